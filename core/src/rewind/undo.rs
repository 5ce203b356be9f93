//! Undo and redo of operations that moved the files of a run: the run's history hears of
//! it, so that a later rewind knows what is there.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::finish::finish;
use super::open::Todo;
use crate::capture::Recorder;
use crate::error::{Error, Result};
use crate::ids::{Chain, RunId, SnapshotId, TransactionId};
use crate::plan::{Identity, Plan};
use crate::restore::{
    self, BankRef, Entry, Hooks, JournalRun, Operations, RestoreResult, UndoRequest,
};
use crate::run::RunStore;

/// As [`restore::undo`], for operations of runs as well. The record of a run stays.
pub async fn undo(
    recorder: &Recorder,
    request: &UndoRequest,
    ask: &dyn Hooks,
) -> Result<RestoreResult> {
    let list = Operations::load(&**recorder.store(), &recorder.root().key).await?;
    match list.to_undo().and_then(|entry| of_run(entry, entry.bank.as_ref()?.snapshot.clone())) {
        Some((run, to)) => {
            restore::undo(recorder, request, &Marks::new(recorder, ask, run, to)).await
        }
        None => restore::undo(recorder, request, ask).await,
    }
}

/// As [`restore::redo`], for operations of runs as well.
pub async fn redo(
    recorder: &Recorder,
    request: &UndoRequest,
    ask: &dyn Hooks,
) -> Result<RestoreResult> {
    let list = Operations::load(&**recorder.store(), &recorder.root().key).await?;
    match list.to_redo().and_then(|entry| of_run(entry, entry.target.clone()?)) {
        Some((run, to)) => {
            restore::redo(recorder, request, &Marks::new(recorder, ask, run, to)).await
        }
        None => restore::redo(recorder, request, ask).await,
    }
}

/// The run whose history holds the bank of an operation.
fn of_run(entry: &Entry, to: SnapshotId) -> Option<(RunId, SnapshotId)> {
    match &entry.bank.as_ref()?.chain {
        Chain::Run(run) => Some((run.clone(), to)),
        _ => None,
    }
}

/// Records in the run's chain where files went.
struct Marks<'a> {
    ask: &'a dyn Hooks,
    runs: RunStore,
    recorder: Recorder,
    run: RunId,
    to: SnapshotId,
}

impl<'a> Marks<'a> {
    fn new(recorder: &Recorder, ask: &'a dyn Hooks, run: RunId, to: SnapshotId) -> Self {
        let (store, ctx) = (recorder.store(), recorder.context());
        let of_run = Recorder::open(
            Arc::clone(store),
            ctx.clone(),
            recorder.root().clone(),
            Chain::Run(run.clone()),
            recorder.settings().clone(),
        );
        let runs = RunStore::new(Arc::clone(store), ctx.clone());
        Self { ask, runs, recorder: of_run, run, to }
    }

    fn todo(&self) -> Todo {
        Todo { rewound_to: Some(self.to.clone()), event: Value::Null, ..Todo::default() }
    }
}

#[async_trait]
impl Hooks for Marks<'_> {
    fn planned(&self, plan: &Plan) {
        self.ask.planned(plan);
    }

    async fn confirm(&self, plan: &Plan, identity: Identity) -> Result<()> {
        self.ask.confirm(plan, identity).await
    }

    async fn locked(&self, _: &TransactionId, _: &Plan) -> Result<Option<JournalRun>> {
        let run = match self.runs.load(&self.run).await {
            Ok(run) => run,
            // Its history goes with it.
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e),
        };
        self.runs.check_idle(&run).await?;
        Ok(Some(JournalRun {
            id: self.run.to_string(),
            status_before: run.status().to_string(),
            version_before: run.record.cas_version().to_string(),
            decides: false,
            after: serde_json::to_value(self.todo()).map_err(|e| {
                Error::failed("journal", "the journal cannot be written").with_source(e)
            })?,
        }))
    }

    async fn committed(&self, transaction: &TransactionId, _: &Plan, _: &BankRef) -> Result<()> {
        match self.runs.load(&self.run).await {
            Ok(run) => {
                let todo = self.todo();
                finish(&self.runs, &run, &self.recorder, transaction, &todo, false).await
            }
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }
}
