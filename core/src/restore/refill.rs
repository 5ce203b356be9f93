//! What is gone from staging, or wrong in it, fetched again from the store before a
//! recovery moves anything: originals from the bank, content from the target.

use std::sync::Arc;

use super::fill::{self, NewFile, Place};
use super::journal::{Journal, PLAN, write_copy};
use super::look::{is_side, look_at};
use super::opened::Opened;
use super::place;
use super::revert::lacks_original;
use super::stage::{Stage, step_name};
use super::work::{Work, step_failed};
use crate::clock::Context;
use crate::diff::StateKind;
use crate::error::{Error, IoContext, Result};
use crate::object::content;
use crate::plan::{Op, Step};
use crate::snapshot::chain;
use crate::snapshot::tree::{Body, Ref};
use crate::store::Store;
use crate::tasks::blocking;

/// Makes the staging of a half-done restore again when it is gone, as after a cleanup of
/// untracked files. Empty: what each step needs is fetched as for one that lost some.
pub(super) async fn restage(place: &place::Place, opened: &Opened) -> Result<Arc<Work>> {
    let (root, journal) = (Arc::clone(&place.root.dir), opened.keeper.journal.clone());
    let (steps, respelled) = (opened.steps.clone(), opened.respelled.clone());
    blocking(move || {
        let stage = Stage::create(&root, &journal.owner, &steps)?;
        let plan = serde_json::json!({ "steps": steps, "respelled": respelled });
        write_copy(&stage, PLAN, plan.to_string().as_bytes(), false)?;
        let mut work = Work::new(root, stage, steps, journal.special_modes)?;
        work.respelled = respelled;
        work.narrow.extend(journal.narrow);
        Ok(Arc::new(work))
    })
    .await
}

/// Puts the content of every step whose original is missing into `new`, where rolling
/// back finds it. Needs the store only when something is missing.
pub(super) async fn from_bank(
    work: &Arc<Work>,
    ctx: &Context,
    store: &dyn Store,
    journal: &Journal,
) -> Result<()> {
    let missing = steps_where(work, lacks_original).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let gone = || Error::failed("rollback-failed", "originals are gone and there is no bank");
    let bank = journal.bank.as_ref().ok_or_else(gone)?;
    let root = chain::read_snapshot(store, &bank.chain, &bank.snapshot).await?.root;
    fetch(work, ctx, store, &root, missing, |s| s.before.mode).await
}

/// Puts what every step still to be applied needs into `new`, where it is not there or
/// is not what the plan says.
pub(super) async fn from_target(
    work: &Arc<Work>,
    ctx: &Context,
    store: &dyn Store,
    journal: &Journal,
) -> Result<()> {
    let missing = steps_where(work, lacks_content).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let w = Arc::clone(work);
    let missing = blocking(move || {
        let mut fetched = Vec::new();
        for n in missing {
            let (new, name) = (&w.stage.place(n).new, step_name(n));
            let cleared = match new.unlink(&name) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
                cleared => cleared,
            };
            match w.steps[n].after.kind {
                StateKind::Dir => cleared.and_then(|()| new.make_dir(&name, 0o700)),
                _ => {
                    fetched.push(n);
                    cleared
                }
            }
            .map_err(|e| step_failed(&w.steps[n], &e))?;
        }
        Ok(fetched)
    })
    .await?;
    if missing.is_empty() {
        return Ok(());
    }
    let lost = || Error::failed("finish-failed", "staged content is gone, and so is its name");
    let target = journal.target_snapshot.as_ref().ok_or_else(lost)?;
    let near = journal.bank.as_ref().map(|b| &b.chain).ok_or_else(lost)?;
    let root = chain::resolve(store, near, target.as_str()).await?.root;
    let special = work.special;
    fetch(work, ctx, store, &root, missing, |s| super::effective_mode(s.after.mode, special)).await
}

async fn steps_where(
    work: &Arc<Work>,
    lacks: impl Fn(&Work, usize) -> Result<bool> + Send + 'static,
) -> Result<Vec<usize>> {
    let work = Arc::clone(work);
    blocking(move || {
        let mut out = Vec::new();
        for n in 0..work.steps.len() {
            if lacks(&work, n)? {
                out.push(n);
            }
        }
        Ok(out)
    })
    .await
}

/// True if a step is still to be applied and what it puts in place is not staged.
fn lacks_content(work: &Work, n: usize) -> Result<bool> {
    let step = &work.steps[n];
    let staged_dir = step.op == Op::ReplaceKind && step.after.kind == StateKind::Dir;
    // A mode alone is set without a copy.
    if !(step.after.is_leaf() && step.op != Op::Chmod || staged_dir) {
        return Ok(false);
    }
    let now = work.look(step)?;
    if !is_side(now.as_ref(), &step.before) || is_side(now.as_ref(), &step.after) {
        return Ok(false);
    }
    let staged = look_at(&work.stage.place(n).new, &step_name(n));
    let staged = staged.map_err(|e| step_failed(step, &e))?;
    // The mode of a staged directory comes last.
    let right = match &staged {
        Some(l) if staged_dir => l.side.kind == StateKind::Dir,
        found => is_side(found.as_ref(), &step.after),
    };
    Ok(!right)
}

/// Stages what the tree `root` holds at the paths of some steps.
async fn fetch(
    work: &Arc<Work>,
    ctx: &Context,
    store: &dyn Store,
    root: &Ref,
    steps: Vec<usize>,
    mode: impl Fn(&Step) -> u32,
) -> Result<()> {
    let (mut files, mut links) = (Vec::new(), Vec::new());
    for n in steps {
        let step = &work.steps[n];
        let recorded = work.respelled.get(&step.path).unwrap_or(&step.path);
        let mut held = content::entry_at(store, root, &step.path).await?;
        if held.is_none() {
            held = content::entry_at(store, root, recorded).await?;
        }
        let lost = || {
            let message = format!("no snapshot holds what was staged for {}", step.path);
            Error::failed("recovery-failed", message)
        };
        match held.ok_or_else(lost)?.body {
            Body::File(content) => files.push(NewFile {
                dir: work.stage.number(n),
                name: step_name(n).into(),
                mode: mode(step),
                content,
            }),
            Body::Symlink(target) => links.push((n, target)),
            Body::Dir(_) => {}
        }
    }
    let place: Arc<dyn Place> = Arc::clone(work) as _;
    fill::fill(store, ctx, place, files, 2).await?;
    let w = Arc::clone(work);
    blocking(move || {
        for (n, target) in links {
            let (new, name) = (&w.stage.place(n).new, step_name(n));
            let made = match new.make_link(&target, &name) {
                // An earlier recovery came this far.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    match new.read_link(&name) {
                        Ok(there) if there == target => Ok(()),
                        _ => Err(e),
                    }
                }
                made => made,
            };
            made.context(|| format!("failed to stage {}", w.steps[n].path))?;
        }
        Ok(())
    })
    .await
}
