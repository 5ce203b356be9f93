//! A rewind on the way of its restore: parks the run once the workspace is locked, saves
//! its record when all files are in place, finishes or unparks it.

use std::sync::Mutex as Cell;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Mutex;

use super::edit::Edit;
use super::finish::finish;
use super::open::{self, Todo};
use super::result::{FilesPart, RunPart, event};
use crate::capture::Recorder;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::ids::TransactionId;
use crate::plan::{Identity, Plan};
use crate::restore::{BankRef, Hooks, JournalRun};
use crate::run::{Claim, Run, RunStore};

/// The run's side of one rewind.
pub(super) struct RunHooks<'a> {
    /// Shows and asks.
    pub(super) ask: &'a dyn Hooks,
    pub(super) runs: &'a RunStore,
    pub(super) recorder: &'a Recorder,
    /// As the plan was made from.
    pub(super) run: Mutex<Run>,
    /// `None`: files only.
    pub(super) edit: Option<Edit>,
    pub(super) part: RunPart,
    pub(super) scope: (&'static str, Option<u64>),
    /// False for one that is told by no event.
    pub(super) tells: bool,
    pub(super) claim: Cell<Option<Claim>>,
}

impl RunHooks<'_> {
    /// Takes the run's lock and checks that the run is the one that was planned with.
    pub(super) async fn lock(&self) -> Result<()> {
        let mut run = self.run.lock().await;
        let wait = self.recorder.settings().wait;
        let claim = self.runs.claim(run.id(), wait, "rewind").await?;
        let now = self.runs.load(run.id()).await?;
        if now.record.write_id() != run.record.write_id() {
            return Err(open::changed(run.id(), &format!("it is {}", now.status())));
        }
        *run = now;
        *self.claim.lock().unwrap_or_else(|e| e.into_inner()) = Some(claim);
        Ok(())
    }

    pub(super) fn unlock(&self) {
        drop(self.claim.lock().unwrap_or_else(|e| e.into_inner()).take());
    }

    /// Parks the run.
    pub(super) async fn park(&self, transaction: &TransactionId) -> Result<()> {
        let faults = &self.recorder.context().faults;
        let mut run = self.run.lock().await;
        open::park(self.runs, &mut run, transaction, &self.recorder.root().key).await?;
        if let Err(e) = faults.reach("rewind.parked") {
            open::unpark(self.runs, &mut run, transaction).await?;
            return Err(e);
        }
        Ok(())
    }

    /// Saves the edited record.
    pub(super) async fn decide(
        &self,
        transaction: &TransactionId,
        edit: &Edit,
        files: &FilesPart<'_>,
    ) -> Result<()> {
        let todo = self.todo(transaction, files);
        let mut run = self.run.lock().await;
        open::decide(self.runs, &mut run, transaction, edit, &todo).await
    }

    /// What is left to do behind the decision.
    pub(super) fn todo(&self, transaction: &TransactionId, files: &FilesPart<'_>) -> Todo {
        let part = RunPart { transaction: Some(transaction.clone()), ..self.part.clone() };
        let now: Timestamp = self.recorder.context().clock.now();
        Todo {
            at: now.rfc3339(),
            node: self.part.to_node.clone(),
            tombstones: self.edit.as_ref().map(|e| e.tombstones.clone()).unwrap_or_default(),
            retired: self.edit.as_ref().map(|e| e.retired.clone()).unwrap_or_default(),
            rewound_to: files.done.map(|(plan, _)| plan.target.snapshot.clone()),
            event: if self.tells { event(&part, files) } else { Value::Null },
        }
    }

    /// Does what is left and takes the note of it away.
    pub(super) async fn finish(&self, transaction: &TransactionId, todo: &Todo) -> Result<()> {
        let mut run = self.run.lock().await;
        finish(self.runs, &run, self.recorder, transaction, todo, false).await?;
        if self.edit.is_some() {
            open::forget(self.runs, &mut run, transaction).await?;
        }
        Ok(())
    }

    fn files<'p>(&self, plan: &'p Plan, bank: Option<&'p BankRef>) -> FilesPart<'p> {
        let (scope, scope_count) = self.scope;
        FilesPart { skip_reason: None, scope, scope_count, done: Some((plan, bank)) }
    }
}

#[async_trait]
impl Hooks for RunHooks<'_> {
    fn planned(&self, plan: &Plan) {
        self.ask.also(&self.part.lines());
        self.ask.planned(plan);
    }

    async fn confirm(&self, plan: &Plan, identity: Identity) -> Result<()> {
        self.ask.also(&self.part.lines());
        self.ask.confirm(plan, identity).await
    }

    async fn locked(&self, transaction: &TransactionId, plan: &Plan) -> Result<Option<JournalRun>> {
        self.lock().await?;
        let (status, version) = {
            let run = self.run.lock().await;
            (run.status().to_string(), run.record.cas_version().to_string())
        };
        let after = if self.edit.is_some() {
            self.park(transaction).await?;
            Value::Null
        } else {
            // Its bank is not known yet; the journal will name it.
            let todo = self.todo(transaction, &self.files(plan, None));
            serde_json::to_value(todo).map_err(|e| {
                Error::failed("journal", "the journal cannot be written").with_source(e)
            })?
        };
        Ok(Some(JournalRun {
            id: self.run.lock().await.id().to_string(),
            status_before: status,
            version_before: version,
            decides: self.edit.is_some(),
            after,
        }))
    }

    async fn applied(
        &self,
        transaction: &TransactionId,
        plan: &Plan,
        bank: &BankRef,
    ) -> Result<()> {
        let faults = &self.recorder.context().faults;
        faults.reach("rewind.applied")?;
        if let Some(edit) = &self.edit {
            self.decide(transaction, edit, &self.files(plan, Some(bank))).await?;
            // Decided: whatever fails from here on must not put files back.
            let _ = faults.reach("rewind.saved");
        }
        Ok(())
    }

    async fn committed(
        &self,
        transaction: &TransactionId,
        plan: &Plan,
        bank: &BankRef,
    ) -> Result<()> {
        let todo = self.todo(transaction, &self.files(plan, Some(bank)));
        self.finish(transaction, &todo).await
    }

    async fn abandoned(&self, transaction: &TransactionId) {
        if self.edit.is_some() {
            let mut run = self.run.lock().await;
            // Whoever looks at the run next unparks it if this fails.
            let _ = open::unpark(self.runs, &mut run, transaction).await;
        }
        self.unlock();
    }
}
