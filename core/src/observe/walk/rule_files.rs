//! Rule files and markers, looked at as their directory is listed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{COUNTING_NS, Found, Shared, Task, Walked, excluded_class};
use crate::error::{Error, Result};
use crate::fsx::{self, Dir, FileKind, NameKind};
use crate::observe::types::Warning;
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::workspace::Root;
use crate::workspace::rules::{
    CACHEDIR_MARKER, CACHEDIR_SIGNATURE, DirRules, EntryKind, LineWarning, MAX_RULE_FILE,
    MarkerKind, RuleFamily, RuleFile, RuleFileUse, VENV_MARKER,
};

impl Shared<'_> {
    /// Rules for the names inside a directory: its own rule file and markers looked
    /// at. `None` when nothing inside can be included.
    pub(super) fn rules_inside(
        &self,
        dir: &Dir,
        task: &Task,
        walked: &mut Walked,
        names: &[(Box<[u8]>, NameKind)],
        found: &mut Found,
    ) -> Option<DirRules> {
        if self.counted_enough() {
            return None;
        }
        let Some((above, decision)) = &task.rules else { return Some(self.root_rules.clone()) };
        let mut decision = decision.clone();
        if let Some(marker) = marker(dir, names) {
            // A directory that the rules exclude was counted when its name was judged.
            let counted = decision.counted().is_some();
            decision = above.mark(&task.name, &decision, marker);
            if decision.marked {
                found.markers.push(walked.dir.path.clone());
                if let Some(class) = decision.counted().filter(|_| !counted) {
                    *found.excluded.entry(class).or_default() += 1;
                }
            }
            walked.dir.excluded = excluded_class(&decision);
            walked.dir.recorded = walked.dir.excluded.is_none();
            if walked.dir.excluded.is_some() && !decision.descend {
                walked.clean = false;
                return None;
            }
        }
        let nested = match self.nested_rules(dir, walked, names, found) {
            Ok(nested) => nested,
            Err(e) => {
                walked.failed = Some((Reason::RulesUnreadable, fsx::errno_name(&e)));
                walked.clean = false;
                return None;
            }
        };
        Some(above.enter(&task.name, &decision, nested.as_ref()))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over_since.load(Ordering::Relaxed) != 0
    }

    /// True once too many files were met and counting them has taken its time.
    pub(super) fn counted_enough(&self) -> bool {
        self.is_over()
            && self.ctx.clock.now().0 - self.over_since.load(Ordering::Relaxed) > COUNTING_NS
    }

    /// The directory's own rule file of the family in force.
    fn nested_rules(
        &self,
        dir: &Dir,
        walked: &Walked,
        names: &[(Box<[u8]>, NameKind)],
        found: &mut Found,
    ) -> std::io::Result<Option<Arc<RuleFile>>> {
        let mut rules = None;
        for (name, kind) in names {
            let kind = if *kind == NameKind::Dir { EntryKind::Dir } else { EntryKind::File };
            match self.family.classify(name, kind) {
                RuleFileUse::Ordinary => {}
                RuleFileUse::Ignored(why) => {
                    found.warnings.push(ignored_rule_file(&walked.dir.path.join(name), why));
                }
                RuleFileUse::Rules if walked.dir.excluded.is_some() => {}
                RuleFileUse::Rules => match read_rule_file(dir, &walked.dir.path, self.family)? {
                    RuleRead::File(file, mut warnings) => {
                        found.warnings.append(&mut warnings);
                        found.rule_files.push(file.clone());
                        rules = Some(file);
                    }
                    RuleRead::Ignored(why) => {
                        found.warnings.push(ignored_rule_file(&walked.dir.path.join(name), why));
                    }
                    RuleRead::Absent => {}
                },
            }
        }
        Ok(rules)
    }
}

/// What marks this directory as an environment or a cache, if anything does.
pub(in crate::observe) fn marker(dir: &Dir, names: &[(Box<[u8]>, NameKind)]) -> Option<MarkerKind> {
    let has = |n: &str| names.binary_search_by(|(m, _)| (**m).cmp(n.as_bytes())).is_ok();
    if has(VENV_MARKER) {
        return Some(MarkerKind::Venv);
    }
    let length = CACHEDIR_SIGNATURE.len() as u64;
    let signed = || fsx::read_small(dir, CACHEDIR_MARKER.as_bytes(), length).ok().flatten();
    (has(CACHEDIR_MARKER) && signed().is_some_and(|b| b == CACHEDIR_SIGNATURE))
        .then_some(MarkerKind::CacheDir)
}

pub(in crate::observe) enum RuleRead {
    File(Arc<RuleFile>, Vec<Warning>),
    Ignored(&'static str),
    Absent,
}

pub(in crate::observe) fn read_rule_file(
    dir: &Dir,
    path: &RelPath,
    family: RuleFamily,
) -> std::io::Result<RuleRead> {
    let name = family.file_name();
    match dir.stat(name.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(RuleRead::Absent),
        Err(e) => return Err(e),
        Ok(s) if s.kind != FileKind::File => return Ok(RuleRead::Ignored("it is no regular file")),
        Ok(s) if s.size > MAX_RULE_FILE as u64 => {
            return Err(std::io::Error::other("it is larger than 1 MiB"));
        }
        Ok(_) => {}
    }
    let Some(bytes) = fsx::read_small(dir, name.as_bytes(), MAX_RULE_FILE as u64)? else {
        return Ok(RuleRead::Absent);
    };
    let (file, bad) = RuleFile::parse(path, name, &bytes);
    let warn = |w: LineWarning| Warning {
        code: "rule-line",
        path: Some(w.file.text().into_owned()),
        files: None,
        bytes: None,
        hint: format!("line {} is skipped: {} ({})", w.line, w.why, w.text),
    };
    Ok(RuleRead::File(Arc::new(file), bad.into_iter().map(warn).collect()))
}

fn ignored_rule_file(path: &RelPath, why: &str) -> Warning {
    Warning {
        code: "rule-file-ignored",
        path: Some(path.text().into_owned()),
        files: None,
        bytes: None,
        hint: format!("rule file {path} is ignored: {why}"),
    }
}

/// The family in force and the root's rule file. An unreadable one stops everything.
pub(in crate::observe) fn root_rule_file(
    root: &Root,
) -> Result<(RuleFamily, Option<Arc<RuleFile>>, Vec<Warning>)> {
    let fail = |e: std::io::Error| {
        Error::failed("rules-unreadable", format!("the rule file at the root cannot be read: {e}"))
    };
    let mut warnings = Vec::new();
    for family in [RuleFamily::Backtrail, RuleFamily::Git] {
        match read_rule_file(&root.dir, &RelPath::root(), family).map_err(fail)? {
            RuleRead::File(file, mut bad) => {
                warnings.append(&mut bad);
                return Ok((family, Some(file), warnings));
            }
            RuleRead::Ignored(why) => {
                let path = RelPath::root().join(family.file_name().as_bytes());
                warnings.push(ignored_rule_file(&path, why));
            }
            RuleRead::Absent => {}
        }
    }
    Ok((RuleFamily::Git, None, warnings))
}
