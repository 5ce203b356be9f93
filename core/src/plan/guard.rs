//! What stands against touching a path: the rules, a person, another run, and whatever
//! no snapshot covers.

use super::decide::Name;
use super::scope::Reach;
use super::types::{ConflictDecision, ConflictKind, LeftReason, NotCovered};
use super::walk::Walk;
use crate::error::{Error, Result};
use crate::observe::{ObservedEntry, What};
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::workspace::rules::{Class, EntryKind, Explanation, Matcher};

impl<'a> Walk<'a, '_> {
    /// True if a path that differs from the target may be touched. If not, it is said
    /// why: as a conflict, or as left in place.
    pub(super) fn may(&mut self, name: &Name<'a>, kind: EntryKind) -> bool {
        let path = &name.path;
        if !name.in_scope {
            // a directory that only leads to the scope is not left, it is on the way
            if self.draft.lists_left {
                self.draft.left(path);
            }
            return false;
        }
        if self.exclusion(path, kind).is_some() {
            self.keep_excluded(path, kind);
            return false;
        }
        if self.draft.is_protected(path) {
            self.draft.leave(path, LeftReason::Protected);
            return false;
        }
        let Some((kind, detail)) = self.objection(name) else { return true };
        let overwrite = self.draft.overwrites(kind, path);
        let decision = if overwrite { ConflictDecision::Overwrite } else { ConflictDecision::Keep };
        self.draft.conflict(path, kind, detail, decision);
        overwrite
    }

    /// What the history holds against a path.
    pub(super) fn objection(&self, name: &Name<'a>) -> Option<(ConflictKind, String)> {
        if let Some(known) = self.input.foreseen.get(&name.path) {
            return Some((known.kind, known.detail.clone()));
        }
        let moved = name.base.as_ref().is_some_and(|base| *base != name.disk_state());
        let detail = "differs from the last recorded state".to_owned();
        moved.then_some((ConflictKind::ChangedAfterRun, detail))
    }

    /// The rule that keeps `path` out, then or now, in words.
    pub(super) fn exclusion(&self, path: &RelPath, kind: EntryKind) -> Option<String> {
        let out = |matcher: &Matcher, when: &str| {
            let is_out = matcher.is_out(path, kind);
            is_out.then(|| format!("{when}: {}", rule_text(&matcher.explain(path, kind))))
        };
        let then = self.input.cover.rules().and_then(|m| out(m, "excluded then"));
        then.or_else(|| out(self.input.now, "excluded now"))
    }

    pub(super) fn keep_excluded(&mut self, path: &RelPath, kind: EntryKind) {
        let detail = self.exclusion(path, kind).unwrap_or_else(|| "excluded now".to_owned());
        self.draft.conflict(path, ConflictKind::Excluded, detail, ConflictDecision::Keep);
    }

    /// A path in the way of what is in scope below it.
    pub(super) fn in_the_way(&mut self, name: &Name<'a>, why: &str) {
        let kind = ConflictKind::UncoveredContent;
        self.draft.conflict(&name.path, kind, why, ConflictDecision::Keep);
    }

    /// Deals with what is on disk and never touched: excluded, skipped, unseen. True if
    /// the name was that.
    pub(super) fn out_of_reach(&mut self, name: &Name<'a>, disk: &ObservedEntry) -> Result<bool> {
        match &disk.what {
            What::Skipped(reason) | What::Unobserved(reason) => {
                self.uncovered_now(name, disk, *reason);
                Ok(true)
            }
            What::Excluded(class) => self.excluded_now(name, disk, *class).map(|()| true),
            What::Dir(i) => match self.disk(*i) {
                Some(dir) if !dir.recorded && name.target.is_none() => {
                    self.excluded_now(name, disk, dir.excluded.unwrap_or(Class::Rule))?;
                    Ok(true)
                }
                _ => Ok(false),
            },
            What::File(_) | What::Symlink(_) => Ok(false),
        }
    }

    fn uncovered_now(&mut self, name: &Name<'a>, disk: &ObservedEntry, reason: Reason) {
        let wanted = name.target.is_some();
        let concerned = name.in_scope || (wanted && name.reach != Reach::Out);
        if !concerned || (reason == Reason::Vanished && !wanted) {
            return;
        }
        if reason == Reason::Unsupported && wanted {
            let detail = "a pipe, socket or device is there";
            let kind = ConflictKind::SpecialFile;
            self.draft.conflict(&name.path, kind, detail, ConflictDecision::Keep);
            return;
        }
        let leaf =
            name.target.is_some_and(|e| !matches!(e.body, crate::snapshot::tree::Body::Dir(_)));
        if reason == Reason::TooLarge && leaf {
            self.draft.unread.insert(name.path.clone());
        }
        let file = disk.stat.kind == crate::fsx::FileKind::File;
        self.draft.not_covered(NotCovered {
            path: name.path.clone(),
            reason,
            size: file.then_some(disk.stat.size),
            unchanged: false,
        });
    }

    fn excluded_now(&mut self, name: &Name<'a>, disk: &ObservedEntry, class: Class) -> Result<()> {
        let kind = entry_kind(disk);
        if name.target.is_some() {
            if class == Class::Always {
                let path = &name.path;
                let why =
                    format!("the target's entry {path} is where backtrail keeps its own data now");
                return Err(Error::corrupt(why).with_paths([path.text().into_owned()]));
            }
            if name.concerns() {
                self.keep_excluded(&name.path, kind);
            }
            return Ok(());
        }
        // By a line of the rules now, and not then: the target knows that it was not
        // there. What names and markers keep out is out at all times.
        let stored_then = self.input.cover.rules().is_none_or(|m| !m.is_out(&name.path, kind));
        if class == Class::Rule && name.in_scope && stored_then {
            self.keep_excluded(&name.path, kind);
        }
        Ok(())
    }
}

/// The kind of a disk entry, as the rules ask.
pub(super) fn entry_kind(entry: &ObservedEntry) -> EntryKind {
    use crate::fsx::FileKind;
    match entry.stat.kind {
        FileKind::File => EntryKind::File,
        FileKind::Dir => EntryKind::Dir,
        FileKind::Symlink => EntryKind::Symlink,
        FileKind::Special => EntryKind::Other,
    }
}

/// `.gitignore:3: *.log`, or the list and the entry.
fn rule_text(story: &Explanation) -> String {
    let pattern = story.pattern.as_deref().unwrap_or("");
    match (&story.file, story.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: {pattern}"),
        _ => format!("{} {pattern}", story.source).trim_end().to_owned(),
    }
}
