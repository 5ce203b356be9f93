//! Rolling back and finishing, by what each path is now: before, after, or neither.
//! A path in a third state is never touched. Both may be killed and run again.

use super::apply::{Applied, apply_step};
use super::look::{Look, is_side, look_at};
use super::swap::{Refusal, Spot};
use super::work::{Work, step_failed};
use crate::diff::{State, StateKind};
use crate::error::{Error, Result};
use crate::fsx::{Dir, FileKind, Stat};
use crate::path::RelPath;
use crate::plan::{Op, Step};

/// What became of the paths.
#[derive(Debug, Default)]
pub(super) struct Reverted {
    /// Paths moved to the side asked for.
    pub(super) moved: u64,
    /// Paths in a third state, untouched.
    pub(super) third: Vec<RelPath>,
}

/// What became of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is there already.
    Already,
    /// It was moved there.
    Moved,
    /// It matches neither side, or something else is in the way of it.
    Third,
}

/// Puts back what every step displaced, last step first. `attempted` limits it to the
/// first steps of the order, when the caller knows that no other began.
///
/// A failure leaves the rest as it is: the originals stay in staging for another try.
pub(super) fn roll_back(work: &Work, attempted: Option<usize>) -> Result<Reverted> {
    let count = attempted.unwrap_or(work.order.len()).min(work.order.len());
    let mut out = Reverted::default();
    if count == 0 {
        return Ok(out);
    }
    let mut failure: Option<Error> = None;
    for n in work.order[..count].iter().rev().copied() {
        match back(work, n) {
            Ok(outcome) => note(&mut out, outcome, &work.steps[n].path),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    // A directory that stays because somebody uses it keeps what it was made with.
    let stays = |s: &Step| s.op == Op::Mkdir && out.third.contains(&s.path);
    let mut modes = work.dir_modes(|s| if stays(s) { &s.after } else { &s.before });
    if count < work.order.len() {
        // Modes come last, so none of the plan's was set yet; somebody else's stays.
        let stays = |p: &RelPath| out.third.contains(p);
        modes.retain(|(path, _)| work.narrow.contains_key(path) || stays(path));
    }
    settle(work, modes, failure, out)
}

/// Carries on where the restore stopped: every step not yet applied is, in order.
pub(super) fn finish(work: &Work) -> Result<Reverted> {
    let mut out = Reverted::default();
    let steps = work.steps.len();
    let mut done =
        Applied { placed: vec![None; steps], displaced: vec![None; steps], ..Applied::default() };
    let mut failure: Option<Error> = None;
    for n in work.order.iter().copied() {
        match forward(work, n, &mut done) {
            Ok(outcome) => note(&mut out, outcome, &work.steps[n].path),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    let modes = work.dir_modes(|s| &s.after);
    settle(work, modes, failure, out)
}

fn note(out: &mut Reverted, outcome: Outcome, path: &RelPath) {
    match outcome {
        Outcome::Already => {}
        Outcome::Moved => out.moved += 1,
        Outcome::Third => out.third.push(path.clone()),
    }
}

/// Modes come last, also after a failure: nothing stays wider than it was.
fn settle(
    work: &Work,
    modes: Vec<(RelPath, u32)>,
    mut failure: Option<Error>,
    mut out: Reverted,
) -> Result<Reverted> {
    for (path, mode) in modes {
        if let Err(e) = work.set_dir_mode(&path, mode) {
            let message = format!("failed to set the mode of {path}: {e}");
            failure = failure.or_else(|| Some(Error::failed("apply-failed", message)));
        }
    }
    out.third.sort();
    match failure {
        Some(e) => Err(e),
        None => Ok(out),
    }
}

fn back(work: &Work, n: usize) -> Result<Outcome> {
    let step = &work.steps[n];
    let Some(now) = work.look(step)? else { return Ok(Outcome::Third) };
    let before = now.side.same_content(&step.before);
    let after = now.side.same_content(&step.after);
    if before && now.stat.is_none() {
        return Ok(Outcome::Already); // its parent may be gone, or a file
    }
    let moved = work.at(n, |spot| {
        let original = original(spot, &step.before)?;
        match (before, after) {
            // The same content on both sides (a mode change by a copy): the inode that
            // was there comes back, so that its other names are one file with it again.
            (true, true) => match (&original, &now.stat) {
                (Some(from), Some(stat)) if was_swapped(step, from, &now) => {
                    exchange(spot, from, stat)
                }
                _ => fix_mode(spot, &now, step.before.mode),
            },
            (true, false) => fix_mode(spot, &now, step.before.mode),
            (false, true) => put_back(work, step, spot, original.as_ref(), &now),
            // Between two renames, where the file system has no exchange. Without an
            // original the step never began, and somebody else took the file away.
            (false, false)
                if now.stat.is_none()
                    && (original.is_some() || !step.before.is_leaf())
                    && is_staged(spot, &step.after)? =>
            {
                put_back(work, step, spot, original.as_ref(), &now)
            }
            (false, false) => Ok(Outcome::Third),
        }
    });
    settle_step(step, moved)
}

/// A name that is taken or gone meanwhile is a third state.
fn settle_step(step: &Step, moved: Result<Outcome, Refusal>) -> Result<Outcome> {
    match moved {
        Ok(outcome) => Ok(outcome),
        Err(Refusal::Changed) => Ok(Outcome::Third),
        Err(Refusal::Io(e)) => Err(step_failed(step, &e)),
    }
}

/// Where the displaced original of a step lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Old,
    /// A kill came between the exchange and the move to `old`.
    New,
}

fn original(spot: &Spot<'_>, before: &State) -> Result<Option<From>, Refusal> {
    let held = |dir: &Dir| Ok::<_, Refusal>(is_side(look_at(dir, spot.n)?.as_ref(), before));
    if before.kind == StateKind::Absent {
        return Ok(None);
    }
    if was_displaced(spot.old, spot.n, before)? {
        return Ok(Some(From::Old));
    }
    Ok(held(spot.new)?.then_some(From::New))
}

/// True if `old` holds what the step displaced. Its place proves that, not its content:
/// whoever has the file open may have written on since, and that is not to be lost.
fn was_displaced(old: &Dir, name: &[u8], before: &State) -> std::io::Result<bool> {
    // By `stat` alone: the content of a file that is being written on cannot be read.
    match old.stat(name) {
        Ok(s) => Ok(matches!(
            (before.kind, s.kind),
            (StateKind::File, FileKind::File)
                | (StateKind::Symlink, FileKind::Symlink)
                | (StateKind::Dir, FileKind::Dir)
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// True if a step was applied and what it displaced is in staging no more.
pub(super) fn lacks_original(work: &Work, n: usize) -> Result<bool> {
    let step = &work.steps[n];
    if !step.before.is_leaf() {
        return Ok(false);
    }
    let now = work.look(step)?;
    if !is_side(now.as_ref(), &step.after) || is_side(now.as_ref(), &step.before) {
        return Ok(false);
    }
    let place = work.stage.place(n);
    let name = super::stage::step_name(n);
    let held =
        |dir: &Dir| Ok::<_, std::io::Error>(is_side(look_at(dir, &name)?.as_ref(), &step.before));
    let old = was_displaced(&place.old, &name, &step.before);
    let found = old.and_then(|old| Ok(old || held(&place.new)?));
    found.map(|found| !found).map_err(|e| step_failed(step, &e))
}

fn is_staged(spot: &Spot<'_>, after: &State) -> Result<bool, Refusal> {
    Ok(after.kind != StateKind::Absent && is_side(look_at(spot.new, spot.n)?.as_ref(), after))
}

/// A spot that takes from where the original lies and puts aside into `new`.
fn reversed<'a>(spot: &'a Spot<'a>, from: &From) -> Spot<'a> {
    let source = if *from == From::Old { spot.old } else { spot.new };
    let name = spot.last.unwrap_or(spot.name);
    let last = spot.last.map(|_| spot.name);
    // Only an exchange may put aside to where the original lies.
    let aside = if *from == From::New && last.is_some() { spot.old } else { spot.new };
    Spot { dir: spot.dir, name, last, new: source, old: aside, n: spot.n }
}

/// True if a mode change by a copy was applied: before that, `new` holds the copy.
fn was_swapped(step: &Step, from: &From, now: &Look) -> bool {
    let file = step.before.kind == StateKind::File;
    file && (*from == From::Old || now.side.mode != step.before.mode)
}

fn exchange(spot: &Spot<'_>, from: &From, now: &Stat) -> Result<Outcome, Refusal> {
    reversed(spot, from).swap(now)?;
    Ok(Outcome::Moved)
}

fn put_back(
    work: &Work,
    step: &Step,
    spot: &Spot<'_>,
    original: Option<&From>,
    now: &Look,
) -> Result<Outcome, Refusal> {
    match (original, &now.stat) {
        (Some(from), None) => {
            reversed(spot, from).put()?;
            Ok(Outcome::Moved)
        }
        (Some(from), Some(stat)) => exchange(spot, from, stat),
        (None, Some(stat)) if step.before.kind == StateKind::Absent => {
            if step.op == Op::Mkdir && !spot.dir.open_dir(spot.name)?.names()?.is_empty() {
                return Ok(Outcome::Third); // somebody else put something into it
            }
            work.widen_self(&step.path)?;
            Spot { old: spot.new, ..*spot }.take(stat)?;
            Ok(Outcome::Moved)
        }
        (None, None) if step.before.kind == StateKind::Dir => {
            spot.dir.make_dir(spot.name, 0o700)?; // its mode follows with the others
            Ok(Outcome::Moved)
        }
        _ => Err(Refusal::Io(std::io::Error::other(
            "its original is gone from staging; the bank holds it",
        ))),
    }
}

fn fix_mode(spot: &Spot<'_>, now: &Look, mode: u32) -> Result<Outcome, Refusal> {
    if now.side.kind != StateKind::File || now.side.mode == mode {
        return Ok(Outcome::Already);
    }
    spot.dir.set_mode_of(spot.name, now.inode(), mode)?;
    Ok(Outcome::Moved)
}

fn forward(work: &Work, n: usize, done: &mut Applied) -> Result<Outcome> {
    let step = &work.steps[n];
    let Some(now) = work.look(step)? else { return Ok(Outcome::Third) };
    let before = now.side.same_content(&step.before);
    let after = now.side.same_content(&step.after);
    let mode = work.mode_after(&step.after);
    let copied = before
        && (now.side.mode != mode || work.respelled.contains_key(&step.path))
        && work.at(n, |s| is_staged(s, &step.after)).unwrap_or(false);
    if after && now.stat.is_none() {
        return Ok(Outcome::Already); // its parent may be gone, or a file
    }
    if after && !copied {
        let fixed = work.at(n, |spot| fix_mode(spot, &now, mode));
        return settle_step(step, fixed);
    }
    let between = now.stat.is_none() && work.at(n, |s| is_staged(s, &step.after)).unwrap_or(false);
    if !before && !between {
        return Ok(Outcome::Third);
    }
    if between && !before {
        let put = work.at(n, |spot| spot.put().map(|()| Outcome::Moved));
        return settle_step(step, put);
    }
    match apply_step(work, n, now.stat.as_ref(), done) {
        Ok(()) => Ok(Outcome::Moved),
        Err(e) if e.code() == "changed-since-plan" => Ok(Outcome::Third),
        Err(e) => Err(e),
    }
}
