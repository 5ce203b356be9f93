//! What a capture would do with one path now, and why: the rules of the directories
//! on the way, then what only the disk can say. No walk.

use std::sync::Arc;

use super::types::Settings;
use super::walk::{RuleRead, marker, read_rule_file, root_rule_file};
use crate::error::{IoContext, Result};
use crate::fsx::{Dir, FileKind, NameKind, Stat};
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::workspace::Root;
use crate::workspace::rules::{
    Class, EntryKind, Explanation, Limits, MarkerKind, Matcher, Outcome, RuleFamily, RuleFile,
    RuleSet,
};

/// What was found on the way to a path.
struct Way {
    family: RuleFamily,
    files: Vec<Arc<RuleFile>>,
    markers: Vec<(RelPath, MarkerKind)>,
    /// The path or the first ancestor that no capture enters, and why.
    barrier: Option<(RelPath, Outcome, &'static str)>,
}

/// Explains `path` as it is now. It need not exist; `dir` says that a directory is
/// meant. Blocks.
pub fn explain(root: &Root, settings: &Settings, path: &RelPath, dir: bool) -> Result<Explanation> {
    let (family, root_file, _) = root_rule_file(root)?;
    let files = root_file.into_iter().collect();
    let mut way = Way { family, files, markers: Vec::new(), barrier: None };
    let found = root.dir.stat_below(path).ok();
    let kind = match found.map(|s| s.kind) {
        _ if dir => EntryKind::Dir,
        Some(FileKind::Dir) => EntryKind::Dir,
        Some(FileKind::Symlink) => EntryKind::Symlink,
        _ => EntryKind::File,
    };
    way.look(root, settings, path, kind)?;
    let mut out = way.matcher(settings).explain(path, kind);
    if let Some((_, kind)) = way.markers.iter().find(|(at, _)| *at == out.decided_at)
        && out.source == "marker"
    {
        out.pattern = Some(marker_name(*kind).to_owned());
    }
    way.apply_disk(&mut out, settings, found.as_ref());
    Ok(out)
}

fn marker_name(kind: MarkerKind) -> &'static str {
    match kind {
        MarkerKind::Venv => crate::workspace::rules::VENV_MARKER,
        _ => crate::workspace::rules::CACHEDIR_MARKER,
    }
}

impl Way {
    fn matcher(&self, settings: &Settings) -> Matcher {
        let limits =
            Limits { max_file_bytes: settings.max_file_bytes, max_files: settings.max_files };
        let markers = self.markers.iter().map(|(p, _)| p.clone()).collect();
        RuleSet::new(self.family, limits, settings.cross_filesystems)
            .with_found(self.files.clone(), markers)
            .matcher()
    }

    /// Opens each directory on the way, as far as there is one.
    fn look(
        &mut self,
        root: &Root,
        settings: &Settings,
        path: &RelPath,
        kind: EntryKind,
    ) -> Result<()> {
        let mut here = root.dir.try_clone().context(|| "the workspace".to_owned())?;
        let mut at = RelPath::root();
        for name in path.segments() {
            at = at.join(name);
            let Ok(stat) = here.stat(name) else { return Ok(()) };
            self.barrier = self.barrier.take().or_else(|| barrier(root, settings, &at, &stat));
            if at == *path && kind != EntryKind::Dir {
                return Ok(());
            }
            let Ok(dir) = here.open_dir(name) else { return Ok(()) };
            self.enter(&dir, &at, settings)?;
            here = dir;
        }
        Ok(())
    }

    /// Markers and the rule file of one directory; those of an excluded one have no say.
    fn enter(&mut self, dir: &Dir, at: &RelPath, settings: &Settings) -> Result<()> {
        let names = dir.names().unwrap_or_default();
        let names: Vec<(Box<[u8]>, NameKind)> =
            names.into_iter().map(|n| (n.into(), NameKind::Unknown)).collect();
        if let Some(kind) = marker(dir, &names) {
            self.markers.push((at.clone(), kind));
        }
        if self.matcher(settings).is_out(at, EntryKind::Dir) {
            return Ok(());
        }
        match read_rule_file(dir, at, self.family) {
            Ok(RuleRead::File(file, _)) => self.files.push(file),
            Ok(_) => {}
            Err(_) => {
                let why = (at.clone(), Outcome::Skipped, Reason::RulesUnreadable.as_str());
                self.barrier.get_or_insert(why);
            }
        }
        Ok(())
    }

    /// What the rules cannot know: our own directories, mounts, kinds, sizes.
    fn apply_disk(&self, out: &mut Explanation, settings: &Settings, found: Option<&Stat>) {
        if let Some((at, outcome, reason)) = &self.barrier
            && (out.decision == Outcome::Stored || *reason == Class::Always.as_str())
        {
            (out.decision, out.reason, out.source) = (*outcome, reason, "disk");
            (out.file, out.line, out.pattern) = (None, None, None);
            out.decided_at = at.clone();
            return;
        }
        let Some(stat) = found.filter(|_| out.decision == Outcome::Stored) else { return };
        let reason = match stat.kind {
            FileKind::Special => Reason::Unsupported,
            FileKind::File if stat.size > settings.max_file_bytes => {
                (out.size, out.limit) = (Some(stat.size), Some(settings.max_file_bytes));
                Reason::TooLarge
            }
            _ => return,
        };
        (out.decision, out.reason, out.source) = (Outcome::Skipped, reason.as_str(), "disk");
    }
}

fn barrier(
    root: &Root,
    settings: &Settings,
    at: &RelPath,
    stat: &Stat,
) -> Option<(RelPath, Outcome, &'static str)> {
    if settings.never_enter.contains(&(stat.device, stat.inode)) {
        return Some((at.clone(), Outcome::Excluded, Class::Always.as_str()));
    }
    let foreign = stat.kind == FileKind::Dir && stat.mount != root.stat.mount;
    (foreign && !settings.cross_filesystems)
        .then(|| (at.clone(), Outcome::Skipped, Reason::OtherFilesystem.as_str()))
}
