//! A directory that must give way to a file: all inside is deletable and goes, or the
//! whole stays.

use super::decide::Name;
use super::guard::entry_kind;
use super::scope::Reach;
use super::steps::Op;
use super::types::{ConflictDecision, ConflictKind};
use super::walk::{BaseDir, Walk, disk_state};
use crate::diff::State;
use crate::error::Result;
use crate::observe::{ObservedEntry, What};
use crate::path::{RelPath, is_git_name};
use crate::snapshot::tree::Entry;
use crate::workspace::rules::EntryKind;

/// Why a directory cannot give way.
struct Blocker {
    path: RelPath,
    kind: ConflictKind,
    why: String,
}

/// A directory on the way down.
struct Below<'a> {
    index: usize,
    path: RelPath,
    reach: Reach,
    base: BaseDir<'a>,
}

#[derive(Default)]
struct Clearing {
    leaves: Vec<(RelPath, State)>,
    dirs: Vec<(RelPath, u32)>,
    overwritten: Vec<(RelPath, ConflictKind, String)>,
    blocker: Option<Blocker>,
}

impl Clearing {
    /// Keeps the first blocker in byte order, so that equal inputs name the same one.
    fn block(&mut self, path: &RelPath, kind: ConflictKind, why: impl Into<String>) {
        if self.blocker.as_ref().is_none_or(|b| *path < b.path) {
            self.blocker = Some(Blocker { path: path.clone(), kind, why: why.into() });
        }
    }
}

impl<'a> Walk<'a, '_> {
    pub(super) fn dir_to_leaf(
        &mut self,
        n: usize,
        name: &Name<'a>,
        entry: &Entry,
        dir: usize,
    ) -> Result<()> {
        let kind = match entry.body {
            crate::snapshot::tree::Body::Symlink(_) => EntryKind::Symlink,
            _ => EntryKind::File,
        };
        if !self.may(name, kind) {
            return Ok(());
        }
        let base = self.base_child(self.nodes[n].base, name.path.name(), self.disk(dir))?;
        let top = Below { index: dir, path: name.path.clone(), reach: name.reach, base };
        let found = self.clear(top)?;
        if let Some(b) = found.blocker {
            let detail = format!("holds {}: {}", b.path, b.why);
            self.draft.conflict(&name.path, b.kind, detail, ConflictDecision::Keep);
            return Ok(());
        }
        for (path, kind, detail) in found.overwritten {
            self.draft.conflict(&path, kind, detail, ConflictDecision::Overwrite);
        }
        for (path, before) in found.leaves {
            self.draft.delete(&path, before);
        }
        for (path, mode) in found.dirs {
            self.draft.rmdir(&path, mode);
        }
        let (before, after) = (name.disk_state(), State::of_entry(entry));
        self.draft.put(Op::ReplaceKind, &name.path, before, after, entry.body.clone());
        Ok(())
    }

    /// Looks at everything below a directory.
    fn clear(&self, top: Below<'a>) -> Result<Clearing> {
        let mut out = Clearing::default();
        let mut open = vec![top];
        while let Some(here) = open.pop() {
            let Some(dir) = self.disk(here.index) else { continue };
            for entry in &dir.entries {
                let path = here.path.join(&entry.name);
                let (reach, in_scope) = self.draft.scope.child(here.reach, &entry.name);
                let base = self.base_state(here.base, &entry.name, &path, Some(entry));
                let name = Name {
                    path,
                    in_scope,
                    reach,
                    same: false,
                    base,
                    target: None,
                    disk: Some(entry),
                };
                if !self.inside(&name, entry, &mut out) {
                    continue;
                }
                if let What::Dir(index) = entry.what {
                    let base = self.base_child(here.base, &entry.name, self.disk(index))?;
                    out.dirs.push((name.path.clone(), entry.stat.mode));
                    open.push(Below { index, path: name.path, reach, base });
                } else {
                    out.leaves.push((name.path, disk_state(entry)));
                }
            }
        }
        Ok(out)
    }

    /// True if one thing inside may go; otherwise `out` knows why not.
    fn inside(&self, name: &Name<'a>, entry: &ObservedEntry, out: &mut Clearing) -> bool {
        let (path, kind) = (&name.path, ConflictKind::UncoveredContent);
        let unseen = match &entry.what {
            What::Excluded(_) if is_git_name(&entry.name) => {
                out.block(path, ConflictKind::NestedRepo, "a repository of its own");
                return false;
            }
            What::Excluded(_) => Some("excluded"),
            What::Skipped(reason) | What::Unobserved(reason) => Some(reason.as_str()),
            What::Dir(i) if self.disk(*i).is_none_or(|d| !d.recorded || d.excluded.is_some()) => {
                Some("excluded")
            }
            _ => None,
        };
        let is_file = matches!(entry.what, What::File(_));
        let reason = if let Some(why) = unseen {
            Some(why.to_owned())
        } else if self.draft.is_kept(path) {
            Some("kept by choice".to_owned())
        } else if !name.in_scope {
            Some("not in scope".to_owned())
        } else if self.draft.no_delete {
            Some("nothing may be deleted".to_owned())
        } else if is_file && entry.stat.size > self.input.options.max_file_bytes {
            Some("too-large".to_owned())
        } else if self.draft.is_protected(path) {
            Some("protected".to_owned())
        } else {
            self.exclusion(path, entry_kind(entry))
        };
        if let Some(why) = reason {
            out.block(path, kind, why);
            return false;
        }
        let objection = self.objection(name).filter(|_| !matches!(entry.what, What::Dir(_)));
        let Some((kind, detail)) = objection else { return true };
        if !self.draft.overwrites(kind, path) {
            out.block(path, kind, detail);
            return false;
        }
        out.overwritten.push((path.clone(), kind, detail));
        true
    }
}
