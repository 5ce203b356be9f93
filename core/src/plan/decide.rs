//! One name: what the target has, what the disk has, and so what is done.

use super::input::Base;
use super::scope::Reach;
use super::steps::Op;
use super::types::NotCovered;
use super::walk::{Fate, Walk, disk_state};
use crate::diff::{State, StateKind};
use crate::error::Result;
use crate::observe::{ObservedEntry, What};
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::snapshot::tree::{Body, Entry, Ref};
use crate::workspace::rules::EntryKind;

/// One name under judgement.
pub(super) struct Name<'a> {
    pub(super) path: RelPath,
    pub(super) in_scope: bool,
    /// How far the scope reaches below it.
    pub(super) reach: Reach,
    /// The target's entry is the one on disk.
    pub(super) same: bool,
    /// What the base has there, when that is compared.
    pub(super) base: Option<State>,
    pub(super) target: Option<&'a Entry>,
    pub(super) disk: Option<&'a ObservedEntry>,
}

impl Name<'_> {
    pub(super) fn disk_state(&self) -> State {
        self.disk.map_or_else(State::absent, disk_state)
    }

    fn target_dir(&self) -> Option<&Ref> {
        match self.target.map(|e| &e.body) {
            Some(Body::Dir(r)) => Some(r),
            _ => None,
        }
    }

    /// It is in scope, or something below it is.
    pub(super) fn concerns(&self) -> bool {
        self.in_scope || self.reach != Reach::Out
    }
}

impl<'a> Walk<'a, '_> {
    pub(super) fn decide(&mut self, n: usize, name: Name<'a>) -> Result<()> {
        if let Some(disk) = name.disk
            && self.out_of_reach(&name, disk)?
        {
            self.nodes[n].stays = true;
            return Ok(());
        }
        let dir = match name.disk.map(|e| &e.what) {
            Some(What::Dir(i)) => Some(*i),
            _ => None,
        };
        match (name.target, name.target_dir(), name.disk, dir) {
            _ if name.same => self.as_recorded(n, &name, dir),
            (Some(_), Some(_), None, _) => self.make_dir(n, &name),
            (Some(_), Some(_), Some(_), Some(i)) => self.both_dirs(n, &name, i),
            (Some(_), Some(_), Some(_), None) => self.leaf_to_dir(n, &name),
            (Some(entry), None, _, Some(i)) => {
                self.nodes[n].stays = true;
                match name.in_scope {
                    true => self.dir_to_leaf(n, &name, entry, i),
                    false => self.dir_on_the_way(n, &name, i),
                }
            }
            (Some(entry), None, _, None) => {
                self.leaf(n, &name, entry);
                Ok(())
            }
            (None, _, _, Some(i)) => self.extra_dir(n, &name, i),
            (None, _, _, None) => {
                self.extra_leaf(n, &name);
                Ok(())
            }
        }
    }

    /// Inside a directory that is as recorded.
    fn as_recorded(&mut self, n: usize, name: &Name<'a>, dir: Option<usize>) -> Result<()> {
        self.nodes[n].stays = true;
        match dir {
            None => self.draft.counts.unchanged += u64::from(name.in_scope),
            Some(i) if name.reach != Reach::Out => {
                self.descend(n, name, None, Some(i), Fate::Stays)?;
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn both_dirs(&mut self, n: usize, name: &Name<'a>, dir: usize) -> Result<()> {
        self.nodes[n].stays = true;
        let after = State::dir(name.target.map_or(0, |e| e.mode));
        if name.disk_state() != after && self.may(name, EntryKind::Dir) {
            self.draft.chmod(&name.path, name.disk_state(), after);
        }
        if name.reach == Reach::Out && !self.draft.lists_left {
            return Ok(());
        }
        let tree = name.target_dir().cloned();
        self.descend(n, name, tree.as_ref(), Some(dir), Fate::Stays)
    }

    fn make_dir(&mut self, n: usize, name: &Name<'a>) -> Result<()> {
        let mode = name.target.map_or(0, |e| e.mode);
        let now = self.input.now.decide(&name.path, EntryKind::Dir);
        if !now.is_stored() && !now.descend && name.concerns() {
            self.keep_excluded(&name.path, EntryKind::Dir);
            return Ok(());
        }
        // An excluded directory is recorded for what is included below it, and made
        // again only for that.
        let then = self.input.cover.rules().is_some_and(|m| m.is_out(&name.path, EntryKind::Dir));
        let wanted = now.is_stored() && !then && self.may(name, EntryKind::Dir);
        let tree = name.target_dir().cloned();
        self.descend(n, name, tree.as_ref(), None, Fate::Missing { mode, wanted })
    }

    /// A file or link is where the target has a directory.
    fn leaf_to_dir(&mut self, n: usize, name: &Name<'a>) -> Result<()> {
        self.nodes[n].stays = true;
        if !name.in_scope && name.reach != Reach::Out {
            self.in_the_way(name, "is no directory now, and not in scope itself");
            return Ok(());
        }
        if !self.may(name, EntryKind::Dir) {
            return Ok(());
        }
        let mode = name.target.map_or(0, |e| e.mode);
        self.draft.replace_by_dir(&name.path, name.disk_state(), mode);
        let tree = name.target_dir().cloned();
        self.descend(n, name, tree.as_ref(), None, Fate::Settled)
    }

    /// The target has a file or link where a directory is, which is not in scope itself.
    fn dir_on_the_way(&mut self, n: usize, name: &Name<'a>, dir: usize) -> Result<()> {
        if self.draft.lists_left {
            self.draft.left(&name.path);
        }
        self.descend(n, name, None, Some(dir), Fate::Stays)
    }

    /// The target has a file or link, the disk a file, a link or nothing.
    fn leaf(&mut self, n: usize, name: &Name<'a>, entry: &Entry) {
        let (before, after) = (name.disk_state(), State::of_entry(entry));
        let respelled = self.draft.respelled.contains_key(&name.path);
        if before == after && !(respelled && name.in_scope) {
            self.nodes[n].stays = true;
            self.draft.counts.unchanged += u64::from(name.in_scope);
            return;
        }
        let kind = match after.kind {
            StateKind::Symlink => EntryKind::Symlink,
            _ => EntryKind::File,
        };
        if !self.may(name, kind) {
            self.nodes[n].stays |= name.disk.is_some();
            return;
        }
        self.nodes[n].stays = true;
        self.nodes[n].needed = true;
        // a mode set through a shared inode would reach its other names
        let shared = name.disk.is_some_and(|e| e.stat.links > 1);
        if before.same_content(&after) && !shared && !respelled {
            self.draft.chmod(&name.path, before, after);
            return;
        }
        let op = match after.kind {
            StateKind::Symlink => Op::Symlink,
            _ => Op::Write,
        };
        self.draft.put(op, &name.path, before, after, entry.body.clone());
    }

    /// The target has no such directory.
    fn extra_dir(&mut self, n: usize, name: &Name<'a>, dir: usize) -> Result<()> {
        if !name.in_scope && self.draft.lists_left {
            self.draft.left(&name.path);
        }
        let excluded = self.disk(dir).is_none_or(|d| d.excluded.is_some())
            || self.exclusion(&name.path, EntryKind::Dir).is_some();
        // What an operation made, its undo takes away, whatever the rules say today.
        let made = matches!(self.input.base, Base::States(_))
            && name.base.as_ref().is_some_and(|s| s.kind == StateKind::Dir);
        let may_go = name.in_scope
            && (made || !excluded)
            && !self.draft.no_delete
            && !self.draft.is_protected(&name.path);
        let named = self.draft.chosen;
        self.descend(n, name, None, Some(dir), Fate::Extra { may_go, named })
    }

    /// The target has no such file or link: rule 2.2.
    fn extra_leaf(&mut self, n: usize, name: &Name<'a>) {
        let Some(disk) = name.disk else { return };
        let kind = match disk.what {
            What::Symlink(_) => EntryKind::Symlink,
            _ => EntryKind::File,
        };
        let too_large = kind == EntryKind::File
            && disk.stat.size > self.input.options.max_file_bytes
            && !self.draft.no_delete;
        if too_large && name.in_scope {
            self.draft.not_covered(NotCovered {
                path: name.path.clone(),
                reason: Reason::TooLarge,
                size: Some(disk.stat.size),
                unchanged: false,
            });
        }
        let stays = too_large || (name.in_scope && self.draft.no_delete) || !self.may(name, kind);
        if stays {
            self.nodes[n].stays = true;
            return;
        }
        self.draft.delete(&name.path, name.disk_state());
        self.nodes[n].removed += 1;
    }
}
