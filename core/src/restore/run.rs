//! The whole line: observe → plan → confirm → lock → bank → stage → journal → swap →
//! delete → verify → commit. [`run`] reads from top to bottom as it happens.

use std::sync::Arc;

use super::apply::{self, Applied};
use super::bank::{self, Banked};
use super::close::{Left, close};
use super::detect::{Need, detect};
use super::fresh;
use super::journal::{Journal, JournalRun, JournalState, Keeper, PLAN, write_copy};
use super::late::{self, Late};
use super::operation;
use super::operations::Operations;
use super::owner::Owner;
use super::place::Place;
use super::prepare::prepare;
use super::record;
use super::recover::{end_rolled_back, not_closed, settle};
use super::request::{Hooks, RestoreRequest};
use super::result::{RestoreResult, ResultState};
use super::revert;
use super::stage::{self, Stage};
use super::work::Work;
use crate::capture::Recorder;
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::fsx::Stat;
use crate::ids::TransactionId;
use crate::observe::Observation;
use crate::plan::{Plan, PlanWarning};
use crate::snapshot::doc::BankNote;
use crate::store::{Guard, LockMode, LockName, LockRequest};
use crate::tasks::blocking;

/// How old a look at the workspace may be to serve the bank, in nanoseconds.
const FRESH_NS: i64 = 5_000_000_000;

/// Puts a snapshot back in place. The recorder's chain is the one that gets the bank.
///
/// Errors of kind `Refused` (exit 4) and `Busy` (5) mean that nothing was changed;
/// `Failed` (1) that it was rolled back, or says what to run. What was kept or not
/// covered is in the result, whose exit code is 3 then.
pub async fn run(
    recorder: &Recorder,
    request: &RestoreRequest,
    hooks: &dyn Hooks,
) -> Result<RestoreResult> {
    let started = recorder.context().clock.now();
    if let Some(result) = operation::recorded(recorder, request).await? {
        return Ok(result);
    }
    let notices = unfinished(recorder, request).await?;
    let prepared = prepare(recorder, request).await?;
    let mut plan = prepared.plan;
    plan.warnings.extend(notices);
    if let Some(refusal) = plan.refusal(&request.options) {
        return Err(refusal);
    }
    request.check_digest(&plan)?;
    if request.dry_run {
        hooks.planned(&plan);
    }
    if request.dry_run || plan.is_empty() {
        let state = if request.dry_run { ResultState::Planned } else { ResultState::Unchanged };
        let mut result = RestoreResult::of_plan(&plan, state, request.full);
        result.elapsed_ms = elapsed_ms(recorder, started);
        return Ok(result);
    }
    hooks.confirm(&plan, prepared.identity).await?;
    let _workspace = lock(recorder, request).await?;
    // Somebody may have done the same while this waited for the lock.
    if let Some(result) = operation::recorded(recorder, request).await? {
        return Ok(result);
    }
    match &recorder.settings().check {
        Some(check) => check(recorder.root()).await?,
        None => settle(&place(recorder)).await?,
    }
    recorder.root().check_same()?;
    // What cannot be written at the end must not be found out after the change.
    Operations::load(&**recorder.store(), &recorder.root().key).await?;
    let transaction = TransactionId::new(format!("tx-{}", recorder.context().ids.hex(8)?))?;
    let seen = still_fresh(recorder, prepared.seen);
    let line = Line { recorder, request, hooks, plan: &plan, transaction, started };
    let parked = hooks.locked(&line.transaction, &plan).await?;
    line.transact(parked, seen).await
}

/// What an interrupted restore means for this one: a refusal, or for a dry run, which
/// changes nothing, a warning. What needs no decision is settled under the lock.
async fn unfinished(recorder: &Recorder, request: &RestoreRequest) -> Result<Vec<PlanWarning>> {
    let (store, root) = (&**recorder.store(), recorder.root());
    let mut notices = Vec::new();
    for found in detect(store, root, &recorder.context().host).await? {
        if matches!(found.need(), Need::Sweep | Need::Close) {
            continue;
        }
        let refusal = found.refusal(root);
        if !request.dry_run {
            return Err(refusal);
        }
        let (code, message) = (refusal.code().to_owned(), refusal.message().to_owned());
        notices.push(PlanWarning { code, message });
    }
    Ok(notices)
}

/// The look that the plan was made from also serves the bank, unless somebody thought
/// about the plan for long: what the bank says of paths that are not touched would be
/// old then. Touched paths are read again in either case.
fn still_fresh(recorder: &Recorder, seen: Observation) -> Option<Observation> {
    let age = recorder.context().clock.now().0 - seen.observed.started_ns;
    (0..FRESH_NS).contains(&age).then_some(seen)
}

async fn lock(recorder: &Recorder, request: &RestoreRequest) -> Result<Guard> {
    let name = LockName::Workspace(recorder.root().key.clone());
    let (wait, command) = (recorder.settings().wait, &request.command);
    let request = LockRequest::new(name, LockMode::Exclusive, wait, command);
    // A store that may not even be locked will hold no bank.
    let denied = |e: Error| if e.kind() == Kind::Denied { bank::failed(e) } else { e };
    recorder.store().lock(request).await.map_err(denied)
}

fn place(recorder: &Recorder) -> Place {
    let (store, ctx) = (Arc::clone(recorder.store()), recorder.context().clone());
    Place::new(store, ctx, recorder.root().clone())
}

fn elapsed_ms(recorder: &Recorder, started: Timestamp) -> u64 {
    let now = recorder.context().clock.now();
    u64::try_from((now.0 - started.0) / 1_000_000).unwrap_or(0)
}

/// A transaction under its lock.
pub(super) struct Line<'a> {
    pub(super) recorder: &'a Recorder,
    pub(super) request: &'a RestoreRequest,
    pub(super) hooks: &'a dyn Hooks,
    pub(super) plan: &'a Plan,
    pub(super) transaction: TransactionId,
    pub(super) started: Timestamp,
}

/// What is known once all lies staged and the journal is durable.
struct Staged {
    work: Arc<Work>,
    keeper: Keeper,
    banked: Banked,
}

impl Line<'_> {
    async fn transact(
        &self,
        parked: Option<JournalRun>,
        seen: Option<Observation>,
    ) -> Result<RestoreResult> {
        let mut staged = match self.stage(parked, seen).await {
            Ok(staged) => staged,
            Err(e) => {
                self.hooks.abandoned(&self.transaction).await;
                return Err(e);
            }
        };
        let applied = self.apply(&mut staged).await;
        match applied {
            Ok((done, stats, late)) => self.commit(staged, done, stats, late).await,
            Err(e) => Err(self.roll_back(staged, e).await),
        }
    }

    /// Bank, stage, journal. Nothing in the workspace has changed when this fails.
    async fn stage(&self, parked: Option<JournalRun>, seen: Option<Observation>) -> Result<Staged> {
        let (recorder, plan) = (self.recorder, self.plan);
        let ctx = recorder.context();
        let note = BankNote {
            transaction: self.transaction.to_string(),
            target: plan.target.snapshot.to_string(),
            plan_digest: plan.digest.hex(),
            partial: false,
        };
        ctx.progress.phase("bank", None, None);
        let banked = bank::bank(recorder, &plan.steps, note, seen).await?;
        ctx.faults.reach("restore.banked")?;

        let store = &**recorder.store();
        let owner = Owner::new(ctx, self.transaction.as_str(), &store.info().url);
        let (root, steps) = (Arc::clone(&recorder.root().dir), plan.steps.clone());
        let (special, o) = (self.request.special_modes, owner.clone());
        let respelled = plan.respelled.clone();
        let work = blocking(move || {
            let stage = Stage::create(&root, &o, &steps)?;
            let mut work = Work::new(root, stage, steps, special)?;
            work.respelled = respelled;
            Ok(Arc::new(work))
        })
        .await?;
        match self.fill(&work, parked, owner, &banked).await {
            Ok(keeper) => Ok(Staged { work, keeper, banked }),
            Err(e) => {
                let _ = blocking(move || {
                    work.stage.remove();
                    Ok(())
                })
                .await;
                Err(e)
            }
        }
    }

    async fn fill(
        &self,
        work: &Arc<Work>,
        parked: Option<JournalRun>,
        owner: Owner,
        banked: &Banked,
    ) -> Result<Keeper> {
        let (recorder, plan) = (self.recorder, self.plan);
        let (store, ctx) = (&**recorder.store(), recorder.context());
        let files = plan.counts.written;
        ctx.progress.phase("stage", Some(files), Some(plan.bytes.to_write));
        let threads = recorder.settings().observe.threads;
        stage::fill(work, store, ctx, record::contents(plan), threads).await?;
        ctx.faults.reach("restore.staged")?;

        let body = serde_json::to_vec(plan)
            .map_err(|e| Error::failed("journal", "the plan cannot be written").with_source(e))?;
        // Prune must see the journal before it may sweep the plan.
        let hold = fresh::hold(recorder, &self.request.command).await?;
        let reference = fresh::put(store, &body).await?;
        let journal = self.journal(work, parked, owner, banked, reference);
        let w = Arc::clone(work);
        blocking(move || write_copy(&w.stage, PLAN, &body, false)).await?;
        let mut keeper = Keeper::new(journal);
        let entered = keeper.enter(JournalState::Prepared, work, ctx, store).await;
        hold.release().await?;
        entered??;
        let reached = ctx.faults.reach("restore.journal");
        if let Err(e) = reached {
            end_rolled_back(&mut keeper, work, ctx, store).await?;
            return Err(e);
        }
        Ok(keeper)
    }

    /// Swap, delete, verify, and the caller's decision. An error leaves it to
    /// [`Line::roll_back`].
    async fn apply(&self, staged: &mut Staged) -> Result<(Applied, Vec<Option<Stat>>, Late)> {
        let ctx = self.recorder.context();
        let store = &**self.recorder.store();
        let (work, cancel) = (Arc::clone(&staged.work), ctx.cancel.clone());
        let threads = self.recorder.settings().observe.threads;
        let checked = blocking(move || {
            apply::sync(&work)?;
            work.check(&cancel, threads)
        })
        .await?;
        staged.keeper.enter(JournalState::Applying, &staged.work, ctx, store).await??;
        ctx.faults.reach("restore.applying")?;
        ctx.progress.phase("apply", Some(self.plan.steps.len() as u64), None);
        let (work, context) = (Arc::clone(&staged.work), ctx.clone());
        let (mut done, stats) =
            blocking(move || apply::apply_and_verify(&work, &context, &checked)).await?;
        // A record of its own matters only where something is decided between `applied`
        // and `committed`: recovery treats `applying` the same, and each costs four syncs.
        if staged.keeper.journal.is_decided_by_run() {
            staged.keeper.enter(JournalState::Applied, &staged.work, ctx, store).await??;
        }
        let late = late::bank(self.recorder, &staged.work, &mut done, &staged.banked).await?;
        self.recorder.root().check_same()?;
        self.hooks.applied(&self.transaction, self.plan, &staged.banked.bank).await?;
        Ok((done, stats, late))
    }

    /// Once `committed` is written there is only forward: what fails then is a warning,
    /// and the next command ends it.
    async fn commit(
        &self,
        staged: Staged,
        mut done: Applied,
        stats: Vec<Option<Stat>>,
        late: Late,
    ) -> Result<RestoreResult> {
        let Staged { work, mut keeper, mut banked } = staged;
        let (recorder, ctx) = (self.recorder, self.recorder.context());
        let store = recorder.store();
        let mut result = self.result(&done, &banked, &late);
        keeper.journal.result = serde_json::to_value(&result).ok();
        // Not entered in staging: the originals decide nothing any more, but the state
        // on disk says `applied`, and that is for a person to end.
        let saved = match keeper.enter(JournalState::Committed, &work, ctx, &**store).await {
            Ok(saved) => saved,
            // The run's record is decided already, and says that the files are back.
            Err(e) if keeper.journal.is_decided_by_run() => {
                return Err(e
                    .context("the files are back, but the restore is not recorded as done")
                    .with_hint("mend that, then run `backtrail restore --finish`")
                    .with_detail("transaction", self.transaction.to_string()));
            }
            Err(e) => return Err(self.roll_back(Staged { work, keeper, banked }, e).await),
        };
        ctx.faults.reach("restore.committed")?;
        // A last look before the originals go: who wrote while this was being recorded.
        let closed = match (saved, late::bank(recorder, &work, &mut done, &banked).await) {
            (Ok(()), Ok(late)) => {
                result.late_writes(&late);
                self.close(&work, keeper, &banked).await
            }
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
        match closed {
            Ok(left) => {
                result.warnings.extend(left.warnings());
                if let Err(e) =
                    fresh::note(recorder, &work, (&done, &stats), self.plan, &mut banked).await
                {
                    result.warn("cache-unwritable", e.message().to_owned());
                }
            }
            Err(e) => {
                result.state = ResultState::Committed;
                result.warnings.push(not_closed(&e));
            }
        }
        result.elapsed_ms = elapsed_ms(recorder, self.started);
        Ok(result)
    }

    async fn close(&self, work: &Arc<Work>, keeper: Keeper, banked: &Banked) -> Result<Left> {
        self.hooks.committed(&self.transaction, self.plan, &banked.bank).await?;
        close(self.recorder.store(), self.recorder.context(), Some(work), keeper).await
    }

    /// Puts everything back and says what happened, with the cause's kind and code.
    async fn roll_back(&self, staged: Staged, cause: Error) -> Error {
        let Staged { work, mut keeper, .. } = staged;
        let (ctx, store) = (self.recorder.context(), &**self.recorder.store());
        let applying = keeper.journal.state != JournalState::Prepared;
        let entered = match applying {
            true => keeper.enter(JournalState::RollingBack, &work, ctx, store).await.map(drop),
            false => Ok(()),
        };
        let w = Arc::clone(&work);
        let reverted = blocking(move || {
            // `applying` on disk, as where the disk is full, permits the way back as well.
            let copy = || Journal::in_staging(&w.stage.places[0].dir);
            if entered.is_err() && copy().is_some_and(|j| j.state == JournalState::Committed) {
                entered?;
            }
            let reverted = revert::roll_back(&w, Some(w.begun()))?;
            if applying {
                apply::sync(&w)?;
            }
            Ok(reverted)
        })
        .await;
        let ended = match reverted {
            Ok(reverted) => {
                keeper.journal.note_third(&reverted.third);
                end_rolled_back(&mut keeper, &work, ctx, store).await
            }
            Err(e) => Err(e),
        };
        match ended {
            Ok(left) => {
                self.hooks.abandoned(&self.transaction).await;
                let said = left.warnings().into_iter().map(|w| format!("; {}", w.message));
                let said: String = said.collect();
                cause.context(format!("nothing was changed{said}"))
            }
            Err(e) => Error::failed(
                "rollback-failed",
                format!("{cause}; and putting everything back failed: {e}"),
            )
            .with_hint("mend that, then run `backtrail restore --roll-back`")
            .with_detail("transaction", self.transaction.to_string()),
        }
    }
}
