//! The fixed data of a transaction under way, and the modes of directories that must
//! be widened while it works.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::effective_mode;
use super::look::{Look, is_side, look};
use super::stage::{Stage, step_name};
use super::swap::Spot;
use crate::clock::Cancel;
use crate::diff::{State, StateKind};
use crate::error::{Error, Kind, Result};
use crate::fsx::{self, Dir, Stat};
use crate::path::RelPath;
use crate::plan::{Op, Step, order};
use crate::tasks;

/// Paths that one thread looks at, at least.
const LOOKS: usize = 64;

/// A transaction under way.
#[derive(Debug)]
pub(super) struct Work {
    /// The workspace root.
    pub(super) root: Arc<Dir>,
    /// The staging.
    pub(super) stage: Stage,
    /// The plan's steps.
    pub(super) steps: Vec<Step>,
    /// The order of applying.
    pub(super) order: Vec<usize>,
    /// Keep setuid and setgid bits as the superuser.
    pub(super) special: bool,
    /// Directories without owner write or search, with their modes: widened for the
    /// operation.
    pub(super) narrow: BTreeMap<RelPath, u32>,
    /// Paths of steps that end with another spelling, on a file system that folds case.
    pub(super) respelled: BTreeMap<RelPath, RelPath>,
    /// Steps of `order` that were begun.
    begun: AtomicUsize,
}

/// `changed-since-plan` (exit 4) for a path that moved under the restore.
pub(super) fn changed(path: &RelPath) -> Error {
    Error::new(
        Kind::Refused,
        "changed-since-plan",
        format!("{path} changed after the restore was planned"),
    )
    .with_paths([path.text().into_owned()])
    .with_hint("run the command again: it plans from what is there now")
}

/// The error of a step that the system refused.
pub(super) fn step_failed(step: &Step, e: &io::Error) -> Error {
    let what = match step.op {
        Op::Mkdir => "make directory",
        Op::Write | Op::Symlink | Op::ReplaceKind => "put back",
        Op::Chmod => "set the mode of",
        Op::Delete | Op::Rmdir => "take away",
    };
    Error::failed("apply-failed", format!("failed to {what} {}: {e}", step.path))
        .with_paths([step.path.text().into_owned()])
}

impl Work {
    /// Puts the parts together. Blocking: looks at directory modes.
    pub(super) fn new(
        root: Arc<Dir>,
        stage: Stage,
        steps: Vec<Step>,
        special: bool,
    ) -> Result<Self> {
        let order = order(&steps);
        let narrow = narrow(&root, &steps)?;
        let (respelled, begun) = (BTreeMap::new(), AtomicUsize::new(0));
        Ok(Self { root, stage, steps, order, special, narrow, respelled, begun })
    }

    /// Remembers that the step at place `at` of the order begins.
    pub(super) fn begin(&self, at: usize) {
        self.begun.store(at + 1, Ordering::SeqCst);
    }
    /// How many steps of the order were begun.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// The mode a step's path gets.
    pub(super) fn mode_after(&self, side: &State) -> u32 {
        match side.kind {
            StateKind::File => effective_mode(side.mode, self.special),
            _ => side.mode,
        }
    }

    /// Runs `act` with the handles of step `n`. The directory is widened first when it
    /// must be; its mode is right again at the end of the transaction.
    pub(super) fn at<T, E: From<io::Error>>(
        &self,
        n: usize,
        act: impl FnOnce(&Spot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let path = &self.steps[n].path;
        let (dir, name) = self.root.open_parent(path)?;
        self.widen(path.parent().as_ref(), &dir)?;
        let place = self.stage.place(n);
        let name_in_stage = step_name(n);
        let last = self.respelled.get(path).map(RelPath::name);
        let (new, old, n) = (&*place.new, &place.old, name_in_stage.as_slice());
        act(&Spot { dir: &dir, name, last, new, old, n })
    }

    fn widen(&self, path: Option<&RelPath>, dir: &Dir) -> io::Result<()> {
        match path.is_some_and(|p| self.narrow.contains_key(p)) && !dir.may_change() {
            true => dir.set_mode(dir.stat_self()?.mode | 0o700),
            false => Ok(()),
        }
    }

    /// Gives directories that move themselves the write right their `..` needs.
    pub(super) fn widen_self(&self, path: &RelPath) -> io::Result<()> {
        match self.narrow.contains_key(path) {
            true => self.root.open_below(path).and_then(|d| self.widen(Some(path), &d)),
            false => Ok(()),
        }
    }

    /// Compares every path with `before` by reading it: kind, mode, content. Nothing
    /// was changed yet, so the first difference refuses the whole restore. The stats
    /// are those of the inodes that may be displaced.
    pub(super) fn check(&self, cancel: &Cancel, threads: usize) -> Result<Vec<Option<Stat>>> {
        tasks::split(&self.steps, threads, LOOKS, |steps| {
            let check = |step| {
                cancel.check()?;
                let now = self.look(step)?;
                let same = is_side(now.as_ref(), &step.before);
                match now {
                    Some(now) if same && now.side.mode == step.before.mode => Ok(now.stat),
                    _ => Err(changed(&step.path)),
                }
            };
            steps.iter().map(check).collect()
        })
    }

    /// What a step's path is now, under either spelling.
    pub(super) fn look(&self, step: &Step) -> Result<Option<Look>> {
        let at = |path: &RelPath| {
            look(&self.root, path).map_err(|e| {
                let message = format!("failed to read {path}: {e}");
                Error::failed("unreadable", message).with_paths([path.text().into_owned()])
            })
        };
        match (at(&step.path)?, self.respelled.get(&step.path)) {
            (Some(found), Some(last)) if found.stat.is_none() => at(last),
            (found, _) => Ok(found),
        }
    }

    /// The modes that directories get when the steps `made` as [`State`] says: recorded
    /// ones for those the plan makes or re-modes, present ones for those that were
    /// widened. Deepest first.
    pub(super) fn dir_modes(&self, side: impl Fn(&Step) -> &State) -> Vec<(RelPath, u32)> {
        let mut modes = self.narrow.clone();
        for step in &self.steps {
            let side = side(step);
            if side.kind == StateKind::Dir {
                modes.insert(step.path.clone(), side.mode);
            }
        }
        let mut modes: Vec<_> = modes.into_iter().collect();
        modes.sort_by_key(|(path, _)| std::cmp::Reverse(path.segments().count()));
        modes
    }

    /// Sets the mode of a directory that is there; an absent one needs none.
    pub(super) fn set_dir_mode(&self, path: &RelPath, mode: u32) -> io::Result<()> {
        let dir = match self.root.open_below(path) {
            Err(e) if fsx::is_absence(&e) => return Ok(()),
            other => other?,
        };
        if dir.stat_self()?.mode == mode { Ok(()) } else { dir.set_mode(mode) }
    }
}

/// Directories whose names the steps change, or that move themselves, without the
/// right to: with their modes. `no-permission` (exit 4) where the right cannot be had.
fn narrow(root: &Dir, steps: &[Step]) -> Result<BTreeMap<RelPath, u32>> {
    let mut out = BTreeMap::new();
    if fsx::is_superuser() {
        return Ok(out);
    }
    let mut seen = std::collections::BTreeSet::new();
    for step in steps {
        let own_move =
            matches!(step.op, Op::Rmdir | Op::ReplaceKind) && step.before.kind == StateKind::Dir;
        let mode_only = step.op == Op::Chmod;
        let parent = step.path.parent().filter(|_| !mode_only);
        for path in parent.into_iter().chain(own_move.then(|| step.path.clone())) {
            if !seen.insert(path.clone()) {
                continue;
            }
            // What cannot be opened yet is made by this restore.
            let Ok(dir) = root.open_below(&path) else { continue };
            if dir.may_change() {
                continue;
            }
            match dir.stat_self() {
                Ok(stat) if stat.uid == fsx::user_id() => {
                    out.insert(path, stat.mode);
                }
                _ => return Err(no_permission(&path)),
            }
        }
    }
    Ok(out)
}

fn no_permission(path: &RelPath) -> Error {
    let place = if path.is_root() { "the workspace root".to_owned() } else { path.to_string() };
    Error::refused("no-permission", format!("names in {place} cannot be changed by this user"))
        .with_paths([path.text().into_owned()])
}
