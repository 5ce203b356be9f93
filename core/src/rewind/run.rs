//! The whole rewind, from top to bottom as it happens.

use tokio::sync::Mutex;

use super::choose::{Choice, Chooser};
use super::edit::{Edit, tombstoned};
use super::files::{Files, files, scope_of};
use super::hooks::RunHooks;
use super::request::{RewindRequest, RewindScope};
use super::result::{
    AutoTarget, FilesPart, FilesResult, REWOUND, RewindResult, RunPart, overwritten,
};
use super::side::settle;
use super::source::Workflow;
use super::target::Boundaries;
use crate::capture::Recorder;
use crate::error::{Error, Kind, Result};
use crate::ids::TransactionId;
use crate::restore::{self, Hooks, RestoreResult};
use crate::run::{Liveness, Run, RunStore, Status};

/// What is said of `--auto`.
const NOT_SEEN: &str = "edits of workflows that nodes start themselves are not seen";

/// Puts `run` back. `recorder` is of the run's chain; `ask` shows the plan and confirms it.
/// Never resumes the run.
///
/// Up to the decision every failure leaves all as it was: `Refused` (exit 4) with its
/// `skip_reason` where files cannot be put back, `run-changed` (4) when somebody else moved
/// the run, `busy` (5) while it executes, `not-found` (6) for a node that it did not reach.
pub async fn rewind(
    runs: &RunStore,
    recorder: &Recorder,
    run: &Run,
    request: &RewindRequest,
    ask: &dyn Hooks,
) -> Result<RewindResult> {
    let mut run = run.clone();
    run.record.check_writable()?;
    if !request.dry_run {
        settle(runs, recorder, &mut run).await?;
    }
    check_idle(runs, &run).await?;
    let store = &**recorder.store();
    let workflow = Workflow::of(request.source.as_ref(), &run.record)?;
    let boundaries = Boundaries::load(store, &run).await?;
    let scope = scope_of(request, &run);
    let chooser = Chooser {
        store,
        run: &run,
        workflow: workflow.as_ref(),
        boundaries: &boundaries,
        files: scope != RewindScope::None,
    };
    let choice = chooser.choose(request).await?;
    let edit = Edit::of(runs, &run, workflow.as_ref(), &boundaries, &choice).await?;
    let files = match &choice.entry {
        Some(entry) => Some(files(runs, recorder, &run, request, entry).await?),
        None => None,
    };
    let count = files.as_ref().map_or(Some(0), |f| f.restore.scope.paths().map(|p| p.len() as u64));
    let part = part(&run, &choice, edit.as_ref());
    let hooks = RunHooks {
        ask,
        runs,
        recorder,
        run: Mutex::new(run),
        edit,
        part,
        scope: (scope.as_str(), count),
        tells: true,
        claim: std::sync::Mutex::new(None),
    };
    Rewinding { request, choice, files, hooks }.go().await
}

/// `busy` while anything of the run executes.
pub(super) async fn check_idle(runs: &RunStore, run: &Run) -> Result<()> {
    runs.check_idle(run).await?;
    match runs.liveness(run).await? {
        Liveness::OwnerGone => {
            let message =
                format!("run {} says that it is running, and its process is gone", run.id());
            Err(Error::new(Kind::Busy, "busy", message).with_hint("backtrail runs reconcile"))
        }
        _ => Ok(()),
    }
}

fn part(run: &Run, choice: &Choice, edit: Option<&Edit>) -> RunPart {
    RunPart {
        from_node: run.record.checkpoint().map(|c| c.node_id.clone()),
        to_node: choice.node.clone(),
        iteration: choice.iteration,
        transaction: None,
        record: if edit.is_some() { REWOUND } else { "unchanged" },
        dropped_nodes: edit.map(|e| e.dropped.clone()).unwrap_or_default(),
        tombstoned_artifacts: edit.map(|e| tombstoned(&e.tombstones)).unwrap_or_default(),
        retired_interactions: edit.map(|e| e.retired.clone()).unwrap_or_default(),
        orphaned_child_runs: edit.map(|e| e.released.clone()).unwrap_or_default(),
        promoted_from: choice.promoted_from.clone(),
    }
}

/// A rewind with everything worked out.
struct Rewinding<'a> {
    request: &'a RewindRequest,
    choice: Choice,
    files: Option<Files>,
    hooks: RunHooks<'a>,
}

impl Rewinding<'_> {
    async fn go(self) -> Result<RewindResult> {
        let restored = match &self.files {
            Some(files) if !files.is_empty() => {
                Some(restore::run(self.hooks.recorder, &files.restore, &self.hooks).await?)
            }
            _ => None,
        };
        let moved = restored.as_ref().and_then(|r| r.transaction.clone());
        let transaction = match moved {
            Some(transaction) => Some(transaction),
            None if self.request.dry_run => None,
            None => self.record_alone(restored.as_ref()).await?,
        };
        self.hooks.unlock();
        self.result(restored, transaction).await
    }

    /// Nothing of the files changes: parks, saves and finishes the record.
    async fn record_alone(
        &self,
        restored: Option<&RestoreResult>,
    ) -> Result<Option<TransactionId>> {
        let (hooks, recorder) = (&self.hooks, self.hooks.recorder);
        let Some(edit) = &hooks.edit else { return Ok(None) };
        let ids = &recorder.context().ids;
        let transaction = TransactionId::new(format!("tx-{}", ids.hex(8)?))?;
        hooks.lock().await?;
        hooks.park(&transaction).await?;
        let (scope, scope_count) = hooks.scope;
        let skip_reason = self.skip_reason(restored);
        let part = FilesPart { skip_reason, scope, scope_count, done: None };
        if let Err(e) = hooks.decide(&transaction, edit, &part).await {
            hooks.abandoned(&transaction).await;
            return Err(e);
        }
        let todo = hooks.todo(&transaction, &part);
        hooks.finish(&transaction, &todo).await?;
        Ok(Some(transaction))
    }

    fn skip_reason(&self, restored: Option<&RestoreResult>) -> Option<&'static str> {
        if self.files.is_none() {
            return Some("scope-none");
        }
        let kept = restored.is_some_and(|r| r.counts.plan.kept > 0);
        let moved = restored.is_some_and(|r| r.transaction.is_some());
        (!moved && !kept).then_some("no-recorded-change")
    }

    async fn result(
        self,
        restored: Option<RestoreResult>,
        transaction: Option<TransactionId>,
    ) -> Result<RewindResult> {
        let planned = self.request.dry_run;
        let skip_reason = match planned && restored.as_ref().is_some_and(has_steps) {
            true => None,
            false => self.skip_reason(restored.as_ref()),
        };
        let (restore_scope, scope_count) = self.hooks.scope;
        let run = self.hooks.run.into_inner();
        let now = match planned {
            true => run,
            false => self.hooks.runs.load(run.id()).await?,
        };
        let checkpoint = now.record.checkpoint().map(|c| c.node_id.clone());
        let node_id = checkpoint.unwrap_or_else(|| self.choice.node.clone());
        let status: Status = now.status().clone();
        let changes = self.choice.auto.map(|edited| AutoTarget {
            nodes: edited.nodes,
            workflow: edited.workflow,
            note: NOT_SEEN,
        });
        let (mixed, uncovered, missed) =
            self.files.map(|f| (f.mixed, f.uncovered, f.missed)).unwrap_or_default();
        let taken = restored.as_ref().map_or(0, |r| overwritten(&r.conflicts).len() as u64);
        let exit_code = match restored.as_ref().map_or(0, |r| r.exit_code) {
            // done, but what the run changed last is not covered
            0 if !missed.is_empty() => 3,
            code => code,
        };
        Ok(RewindResult {
            run_id: now.id().clone(),
            node_id,
            status,
            auto_targeted: changes.is_some(),
            changes,
            run: RunPart { transaction, ..self.hooks.part },
            files: FilesResult {
                reverted: restored.as_ref().is_some_and(|r| r.transaction.is_some()),
                skip_reason,
                restore_scope,
                scope_count,
                overwritten: taken,
                mixed: mixed.into_iter().collect(),
                uncovered_paths: uncovered.into_iter().collect(),
                missed_boundaries: missed,
                revert_commit: None,
                restore: restored,
            },
            planned,
            exit_code,
        })
    }
}

fn has_steps(r: &RestoreResult) -> bool {
    let c = &r.counts.plan;
    c.written + c.deleted + c.mode_changed + c.dirs_created + c.dirs_removed > 0
}
