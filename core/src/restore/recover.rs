//! Ending what was interrupted: sweeping what changed nothing, closing what changed
//! everything, and finishing or rolling back the rest as somebody says.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::apply;
use super::close::{Left, clear, close};
use super::detect::{Need, Unfinished, detect};
use super::journal::{Journal, JournalState, Keeper, Third};
use super::look::look;
use super::opened::{Opened, homes};
use super::place::Place;
use super::refill::{from_bank, from_target, restage};
use super::revert::{self, Reverted};
use super::side::RunSide;
use super::stage::Stage;
use super::work::Work;
use crate::capture::Check;
use crate::clock::Context;
use crate::diff::State;
use crate::error::{Error, IoContext, Kind, Result};
use crate::path::RelPath;
use crate::plan::PlanWarning;
use crate::store::{LockMode, LockName, LockRequest, Store};
use crate::tasks::blocking;
use crate::workspace::Root;

/// Which way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the target.
    Finish,
    /// To what was there.
    RollBack,
}

/// What a recovery did to one transaction.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// Which.
    pub transaction: String,
    /// Its last state: `closed` or `rolled-back`; `committed` when it is finished but
    /// could not be closed, which the next command does.
    pub state: JournalState,
    /// Which way it went.
    pub direction: Direction,
    /// Paths that were moved.
    pub moved: u64,
    /// Paths in a third state, untouched: at most 100.
    pub third: Vec<Third>,
    /// How many there are.
    pub third_count: u64,
    /// What a person should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<PlanWarning>,
}

impl Recovered {
    fn new(journal: &Journal, state: JournalState, direction: Direction, moved: u64) -> Self {
        Self {
            transaction: journal.transaction.to_string(),
            state,
            direction,
            moved,
            third: journal.third.clone(),
            third_count: journal.third_count,
            warnings: Vec::new(),
        }
    }

    /// Says so when the way was not the one asked for.
    fn note_direction(&mut self, asked: Direction) {
        if self.direction != asked {
            let message = match self.direction {
                Direction::Finish => "the run was rewound already, so the files were finished",
                Direction::RollBack => "the run was not rewound yet, so the files were rolled back",
            };
            self.warnings
                .push(PlanWarning { code: String::from("direction"), message: message.to_owned() });
        }
    }

    /// 3 when a path was left in a third state, else 0.
    pub fn exit_code(&self) -> u8 {
        if self.third_count > 0 { 3 } else { 0 }
    }
}

/// Called by a command that may write, once it holds the workspace lock: sweeps and
/// closes what needs no decision, and refuses (`recovery-needed`, or `busy`) the rest.
pub async fn settle(place: &Place) -> Result<()> {
    for found in detect(&*place.store, &place.root, &place.ctx.host).await? {
        match found.need() {
            Need::Wait | Need::Recover | Need::Unexplained => {
                return Err(found.refusal(&place.root));
            }
            // Ended, or never begun, with another store: that one must hear of it.
            _ if !found.is_of(&*place.store) => {}
            Need::Sweep => sweep(place, &found).await?,
            Need::Close => close_found(place, &found).await?,
        }
    }
    Ok(())
}

/// Closes what changed everything. A rewind that its run's record names counts, although
/// it was cut short before it could say so itself.
async fn close_found(place: &Place, found: &Unfinished) -> Result<()> {
    let Opened { mut keeper, work, .. } = Opened::new(place, found).await?;
    if let Some(work) = &work
        && keeper.journal.state != JournalState::Committed
    {
        let (ctx, store) = (&place.ctx, &*place.store);
        keeper.enter(JournalState::Committed, work, ctx, store).await??;
    }
    place.committed(&keeper.journal).await?;
    match close(&place.store, &place.ctx, work.as_ref(), keeper).await {
        // The store lost all of it. What was displaced stays where it is, the only copy,
        // and keeps nobody from working.
        Err(e) if e.code() == "another-store" => Ok(()),
        closed => closed.map(drop),
    }
}

/// [`settle`] as a capture asks for it.
pub fn check(store: Arc<dyn Store>, ctx: Context, runs: Option<Arc<dyn RunSide>>) -> Check {
    Arc::new(move |root: &Root| {
        let (store, ctx, runs) = (Arc::clone(&store), ctx.clone(), runs.clone());
        let place = Place { store, ctx, root: root.clone(), runs };
        Box::pin(async move { settle(&place).await })
    })
}

/// Ends every half-done restore of the workspace in one direction. `not-found` (exit 6)
/// when there is none. Takes the workspace lock; may be killed and run again.
pub async fn recover(
    place: &Place,
    direction: Direction,
    wait: Duration,
    command: &str,
) -> Result<Vec<Recovered>> {
    let name = LockName::Workspace(place.root.key.clone());
    let request = LockRequest::new(name, LockMode::Exclusive, wait, command);
    // A store that is gone must not keep anybody from rolling back out of staging.
    let _guard = match place.store.lock(request).await {
        Ok(guard) => Some(guard),
        Err(e) if direction == Direction::RollBack && is_gone(&e) => None,
        Err(e) => return Err(e),
    };
    let found = match detect(&*place.store, &place.root, &place.ctx.host).await {
        Err(e) if direction == Direction::RollBack && is_gone(&e) => {
            super::detect::detect_staged(&place.root, &place.ctx.host).await?
        }
        found => found?,
    };
    let mut out = Vec::new();
    for one in found {
        match one.need() {
            Need::Wait | Need::Unexplained => return Err(one.refusal(&place.root)),
            Need::Sweep | Need::Close if !one.is_of(&*place.store) => {}
            Need::Sweep => sweep(place, &one).await?,
            Need::Close | Need::Recover => out.push(recover_one(place, &one, direction).await?),
        }
    }
    if out.is_empty() {
        return Err(Error::not_found(format!(
            "no restore of {} was interrupted",
            place.root.text()
        )));
    }
    Ok(out)
}

fn is_gone(e: &Error) -> bool {
    matches!(e.kind(), Kind::Unavailable { .. } | Kind::Denied | Kind::NotFound)
}

/// Ends one half-done restore. The caller holds the workspace lock.
pub async fn recover_one(
    place: &Place,
    found: &Unfinished,
    direction: Direction,
) -> Result<Recovered> {
    let mut opened = Opened::new(place, found).await?;
    let committed = opened.keeper.journal.state == JournalState::Committed;
    let asked = direction;
    let direction = if committed { Direction::Finish } else { found.direction(asked)? };
    let work = match opened.work.take() {
        Some(work) => work,
        None if committed => return without_staging(place, opened, direction, None).await,
        None => match restage(place, &opened).await {
            Ok(work) => work,
            Err(e) => return without_staging(place, opened, direction, Some(e)).await,
        },
    };
    let (keeper, store, ctx) = (&mut opened.keeper, &*place.store, &place.ctx);
    let entering = match direction {
        Direction::Finish if committed => JournalState::Committed,
        Direction::Finish => JournalState::Applying,
        Direction::RollBack => JournalState::RollingBack,
    };
    let _ = keeper.enter(entering, &work, ctx, store).await?;
    match direction {
        _ if committed => {}
        Direction::RollBack => from_bank(&work, ctx, store, &keeper.journal).await?,
        Direction::Finish => from_target(&work, ctx, store, &keeper.journal).await?,
    }
    let reverted = move_files(&work, (!committed).then_some(direction)).await?;
    keeper.journal.note_third(&reverted.third);
    match direction {
        Direction::Finish => {
            let mut out =
                Recovered::new(&keeper.journal, JournalState::Closed, direction, reverted.moved);
            out.note_direction(asked);
            keeper.journal.result = serde_json::to_value(&out).ok();
            let saved = keeper.enter(JournalState::Committed, &work, ctx, store).await?;
            Ok(finished(place, out, saved, Some(&work), opened.keeper).await)
        }
        Direction::RollBack => {
            let mut out = Recovered::new(
                &keeper.journal,
                JournalState::RolledBack,
                direction,
                reverted.moved,
            );
            out.note_direction(asked);
            keeper.journal.result = serde_json::to_value(&out).ok();
            out.warnings.extend(end_rolled_back(keeper, &work, ctx, store).await?.warnings());
            place.abandoned(&keeper.journal).await?;
            Ok(out)
        }
    }
}

/// Moves every path to one side; nothing when `way` is `None`.
async fn move_files(work: &Arc<Work>, way: Option<Direction>) -> Result<Reverted> {
    let w = Arc::clone(work);
    blocking(move || {
        let reverted = match way {
            None => Ok(Reverted::default()),
            Some(Direction::Finish) => revert::finish(&w),
            Some(Direction::RollBack) => revert::roll_back(&w, None),
        };
        reverted.and_then(|r| apply::sync(&w).map(|()| r)).map_err(|e| {
            e.with_hint("mend that and run the same command again: it goes on where it stopped")
        })
    })
    .await
}

/// Closes what is finished, and says so when that is left to the next command.
async fn finished(
    place: &Place,
    mut out: Recovered,
    saved: Result<()>,
    work: Option<&Arc<Work>>,
    keeper: Keeper,
) -> Recovered {
    let closed = match saved.and(place.committed(&keeper.journal).await) {
        Ok(()) => close(&place.store, &place.ctx, work, keeper).await,
        Err(e) => Err(e),
    };
    match closed {
        Ok(left) => out.warnings.extend(left.warnings()),
        Err(e) => {
            out.state = JournalState::Committed;
            out.warnings.push(not_closed(&e));
        }
    }
    out
}

/// What is told when all is done but the record of it.
pub(super) fn not_closed(e: &Error) -> PlanWarning {
    let message = format!("done, but not closed; the next command does: {e}");
    PlanWarning { code: String::from("not-closed"), message }
}

/// Enters `rolled-back` and removes the staging. When the store cannot take the state,
/// the staging stays and says it, until the next command writes it to the store.
pub(super) async fn end_rolled_back(
    keeper: &mut Keeper,
    work: &Arc<Work>,
    ctx: &Context,
    store: &dyn Store,
) -> Result<Left> {
    let saved = match keeper.enter(JournalState::RolledBack, work, ctx, store).await {
        Ok(saved) => saved,
        // As on a full disk: with the store's word the staging goes, and needs none.
        Err(e) => Ok(keeper.save(ctx, store).await.map_err(|_| e)?),
    };
    let (work, journal) = (Arc::clone(work), keeper.journal.clone());
    blocking(move || match saved {
        Ok(()) => Ok(clear(&work, &journal)),
        Err(_) => {
            work.stage.empty();
            Ok(Left::default())
        }
    })
    .await
}

/// A restore whose staging is gone and cannot be made again: nothing can be moved, so
/// every path that is not on the side asked for is a third state, named with the ids
/// that hold both versions.
async fn without_staging(
    place: &Place,
    mut opened: Opened,
    direction: Direction,
    why: Option<Error>,
) -> Result<Recovered> {
    let (root, steps) = (Arc::clone(&place.root.dir), opened.steps);
    let committed = opened.keeper.journal.state == JournalState::Committed;
    let third = blocking(move || {
        let mut third: Vec<RelPath> = Vec::new();
        // What is committed is edited as people like.
        for step in steps.iter().filter(|_| !committed) {
            let side = match direction {
                Direction::Finish => &step.after,
                Direction::RollBack => &step.before,
            };
            let now = look(&root, &step.path)
                .context(|| format!("failed to read {}", step.path))?
                .map(|l| l.side);
            if !now.is_some_and(|now: State| now.same_content(side)) {
                third.push(step.path.clone());
            }
        }
        Ok(third)
    })
    .await?;
    let journal = &mut opened.keeper.journal;
    journal.note_third(&third);
    let (state, ended) = match direction {
        Direction::Finish => (JournalState::Committed, JournalState::Closed),
        Direction::RollBack => (JournalState::RolledBack, JournalState::RolledBack),
    };
    journal.state = state;
    let mut out = Recovered::new(journal, ended, direction, 0);
    out.warnings.extend(why.map(|e| {
        let message = format!("the staging is gone and cannot be made again: {e}");
        PlanWarning { code: String::from("staging-gone"), message }
    }));
    journal.result = serde_json::to_value(&out).ok();
    opened.keeper.save(&place.ctx, &*place.store).await?;
    match direction {
        Direction::Finish => Ok(finished(place, out, Ok(()), None, opened.keeper).await),
        Direction::RollBack => {
            place.abandoned(&opened.keeper.journal).await?;
            Ok(out)
        }
    }
}

/// Removes what changed nothing, after the store's journal says so.
async fn sweep(place: &Place, found: &Unfinished) -> Result<()> {
    if let Some(journal) = found.journal.clone()
        && found.open_in_store
    {
        let mut keeper = Keeper::adopt(journal);
        if !keeper.journal.state.is_terminal() {
            keeper.journal.state = JournalState::RolledBack;
        }
        keeper.save(&place.ctx, &*place.store).await?;
        if keeper.journal.state == JournalState::RolledBack {
            place.abandoned(&keeper.journal).await?;
        }
    }
    if !found.staged {
        return Ok(());
    }
    let (root, id) = (Arc::clone(&place.root.dir), found.transaction.clone());
    let at = homes(found.journal.as_ref());
    blocking(move || {
        let stage = Stage::open(&root, &id, &at, &[])
            .context(|| format!("failed to open the staging of {id}"))?;
        if let Some(stage) = stage {
            stage.remove();
        }
        Ok(())
    })
    .await
}
