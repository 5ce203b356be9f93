//! Swap, delete, verify: the part that changes the workspace.

use std::sync::Arc;

use tokio::time::Instant;

use super::look::same_inode;
use super::stage::step_name;
use super::swap::{Refusal, Spot};
use super::work::{Work, changed, step_failed};
use crate::clock::Context;
use crate::diff::StateKind;
use crate::error::{Error, Result};
use crate::fsx::{self, FileKind, Stat};
use crate::path::RelPath;
use crate::plan::{Op, Step};

/// What applying did, for the report and for what follows.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// By step: the inode that was put in place, as it was in staging.
    pub(super) placed: Vec<Option<Stat>>,
    /// By step: the inode that was displaced into `old`.
    pub(super) displaced: Vec<Option<Stat>>,
    /// Changed files that had other names.
    pub(super) hard_links_split: u64,
    /// Paths whose owner or group could not be kept.
    pub(super) owner_lost: Vec<RelPath>,
    /// When the last path was looked at.
    pub(super) verified: Option<Instant>,
}

/// Applies every step in order. Nothing is rolled back here: the caller does, from the
/// same [`Work`], which knows how far this came.
pub(super) fn apply(work: &Work, ctx: &Context, checked: &[Option<Stat>]) -> Result<Applied> {
    let steps = work.steps.len();
    let mut done =
        Applied { placed: vec![None; steps], displaced: vec![None; steps], ..Applied::default() };
    for (at, n) in work.order.iter().copied().enumerate() {
        let step = &work.steps[n];
        ctx.cancel.check()?;
        work.begin(at);
        ctx.faults.reach("restore.step")?;
        apply_step(work, n, checked[n].as_ref(), &mut done)?;
        ctx.progress.advance(1, step.after.size);
    }
    ctx.faults.reach("restore.deleted")?;
    for (path, mode) in work.dir_modes(|s| &s.after) {
        work.set_dir_mode(&path, mode).map_err(|e| {
            Error::failed("apply-failed", format!("failed to set the mode of {path}: {e}"))
        })?;
    }
    Ok(done)
}

/// Applies one step whose path was `checked` (nothing when it must be absent).
pub(super) fn apply_step(
    work: &Work,
    n: usize,
    checked: Option<&Stat>,
    done: &mut Applied,
) -> Result<()> {
    let step = &work.steps[n];
    let own_move = step.before.kind == StateKind::Dir && step.op != Op::Chmod;
    if own_move {
        work.widen_self(&step.path).map_err(|e| step_failed(step, &e))?;
    }
    let moved = work.at(n, |spot| match (step.op, checked) {
        (Op::Mkdir, None) => Ok(spot.dir.make_dir(spot.name, 0o700)?),
        (Op::Chmod, Some(stat)) if spot.new.stat(spot.n).is_err() => chmod(work, step, spot, stat),
        (Op::Delete | Op::Rmdir, Some(stat)) => spot.take(stat),
        (Op::Mkdir, Some(_)) | (Op::Chmod | Op::Delete | Op::Rmdir, None) => Err(Refusal::Changed),
        (_, None) => {
            done.placed[n] = Some(spot.new.stat(spot.n)?);
            spot.put()
        }
        (_, Some(stat)) => {
            if !keep_owner(work, step, spot, stat)? {
                done.owner_lost.push(step.path.clone());
            }
            done.placed[n] = Some(spot.new.stat(spot.n)?);
            spot.swap(stat)
        }
    });
    moved.map_err(|e| match e {
        Refusal::Changed => changed(&step.path),
        Refusal::Io(e) => step_failed(step, &e),
    })?;
    if step.op != Op::Chmod {
        done.displaced[n] = checked.copied();
        let split = checked.is_some_and(|s| s.links > 1 && s.kind == FileKind::File);
        done.hard_links_split += u64::from(split && step.op != Op::Delete);
    }
    Ok(())
}

/// Sets a mode where no new inode is needed. A directory's is set at the end.
fn chmod(work: &Work, step: &Step, spot: &Spot<'_>, checked: &Stat) -> Result<(), Refusal> {
    if checked.kind == FileKind::Dir {
        return Ok(());
    }
    if !same_inode(&spot.dir.stat(spot.name)?, checked) {
        return Err(Refusal::Changed);
    }
    Ok(spot.dir.set_mode_of(spot.name, checked.inode, work.mode_after(&step.after))?)
}

/// Gives the staged thing the owner and group of what it displaces. False when that is
/// not allowed; the group alone is tried then.
fn keep_owner(work: &Work, step: &Step, spot: &Spot<'_>, old: &Stat) -> Result<bool, Refusal> {
    let new = spot.new.stat(spot.n)?;
    if new.uid == old.uid && new.gid == old.gid {
        return Ok(true);
    }
    let kept = spot.new.set_owner(spot.n, old.uid, old.gid).is_ok();
    let group = kept || spot.new.set_group(spot.n, old.gid).is_ok();
    if group && step.after.kind == StateKind::File {
        // A change of owner takes set-id bits away, so the mode is set once more.
        let file = spot.new.open_file(spot.n);
        let again = file.and_then(|f| fsx::set_file_mode(&f, work.mode_after(&step.after)));
        again.map_err(Refusal::Io)?;
    }
    Ok(kept)
}

/// Checks that every path is what its step made of it: kind, size, mode and inode of
/// what was put in, absence of what was taken away. The stats are fresh.
pub(super) fn verify(work: &Work, done: &Applied) -> Result<Vec<Option<Stat>>> {
    let mut out = Vec::with_capacity(work.steps.len());
    for (n, step) in work.steps.iter().enumerate() {
        let path = work.respelled.get(&step.path).unwrap_or(&step.path);
        let now = match work.root.stat_below(path) {
            Ok(stat) => Some(stat),
            Err(e) if fsx::is_absence(&e) => None,
            Err(e) => return Err(step_failed(step, &e)),
        };
        if !is_as_made(work, step, done.placed[n].as_ref(), now.as_ref()) {
            let message = format!("{} is not what the restore made of it", step.path);
            return Err(
                Error::failed("verify-failed", message).with_paths([step.path.text().into_owned()])
            );
        }
        out.push(now);
    }
    Ok(out)
}

fn is_as_made(work: &Work, step: &Step, placed: Option<&Stat>, now: Option<&Stat>) -> bool {
    let Some(now) = now else { return step.after.kind == StateKind::Absent };
    let mode = work.mode_after(&step.after);
    // Some file systems keep no set-id bits, or refuse a group's; the rest must hold.
    let mode_right = now.mode & 0o1777 == mode & 0o1777;
    match step.after.kind {
        StateKind::Absent | StateKind::Special => false,
        StateKind::Dir => now.kind == FileKind::Dir && mode_right,
        StateKind::Symlink => now.kind == FileKind::Symlink && same_as(placed, now),
        StateKind::File => {
            let size = now.size == step.after.size;
            now.kind == FileKind::File && mode_right && size && same_as(placed, now)
        }
    }
}

fn same_as(placed: Option<&Stat>, now: &Stat) -> bool {
    placed.is_none_or(|p| same_inode(p, now))
}

/// Displaced files whose size or modification time moved since they were displaced:
/// somebody kept them open and wrote on. By step.
pub(super) fn late_writes(work: &Work, done: &Applied) -> Vec<(usize, Stat)> {
    let moved = |(n, was): (usize, &Option<Stat>)| {
        let was = was.as_ref().filter(|s| s.kind == FileKind::File)?;
        let now = work.stage.place(n).old.stat(&step_name(n)).ok()?;
        (!same_inode(&now, was)).then_some((n, now))
    };
    done.displaced.iter().enumerate().filter_map(moved).collect()
}

/// [`apply`] and [`verify`] in one crossing, with the sync of the file systems between
/// them and the commit.
pub(super) fn apply_and_verify(
    work: &Arc<Work>,
    ctx: &Context,
    checked: &[Option<Stat>],
) -> Result<(Applied, Vec<Option<Stat>>)> {
    let mut done = apply(work, ctx, checked)?;
    let stats = verify(work, &done)?;
    done.verified = Some(Instant::now());
    sync(work)?;
    ctx.faults.reach("restore.applied")?;
    Ok((done, stats))
}

/// Syncs every file system that holds a part of this, whole: one call each instead of
/// one per file and directory.
pub(super) fn sync(work: &Work) -> Result<()> {
    for place in &work.stage.places {
        place.dir.sync_filesystem().map_err(|e| {
            Error::failed("sync-failed", format!("failed to sync the workspace: {e}"))
        })?;
    }
    Ok(())
}
