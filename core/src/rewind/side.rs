//! The run's side of a rewind that somebody else finds interrupted.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::finish::finish;
use super::open::{self, Todo, open_of};
use crate::capture::{self, Recorder};
use crate::error::{Error, Result};
use crate::ids::{Chain, RunId, TransactionId};
use crate::restore::{self, Journal, JournalRun, Place, RunSide};
use crate::run::{Run, RunStore};
use crate::store::{DocKey, LockMode, LockName, LockRequest};

/// Ends the run's part of interrupted rewinds. Whoever settles or recovers restores is
/// handed one.
pub struct RunsSide {
    settings: capture::Settings,
}

impl RunsSide {
    /// One that captures with these settings.
    pub fn shared(settings: capture::Settings) -> Arc<dyn RunSide> {
        // Whoever calls it holds the workspace and is looking after it already.
        Arc::new(Self { settings: capture::Settings { check: None, ..settings } })
    }

    fn recorder(&self, place: &Place, run: &RunId) -> Recorder {
        let (store, ctx, root) = (Arc::clone(&place.store), place.ctx.clone(), place.root.clone());
        Recorder::open(store, ctx, root, Chain::Run(run.clone()), self.settings.clone())
    }
}

/// The run of a journal; `None` when it is gone.
async fn load(runs: &RunStore, journal: &JournalRun) -> Result<Option<Run>> {
    match runs.load(&RunId::new(journal.id.as_str())?).await {
        Ok(run) => Ok(Some(run)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

#[async_trait]
impl RunSide for RunsSide {
    async fn committed(&self, place: &Place, journal: &Journal) -> Result<()> {
        let Some(of) = &journal.run else { return Ok(()) };
        let runs = RunStore::new(Arc::clone(&place.store), place.ctx.clone());
        let Some(run) = load(&runs, of).await? else { return Ok(()) };
        let _claim = runs.claim(run.id(), self.settings.wait, "recover").await?;
        let mut run = runs.load(run.id()).await?;
        let recorder = self.recorder(place, run.id());
        if of.decides {
            return complete(&runs, &mut run, &recorder, &journal.transaction).await;
        }
        let mut todo: Todo = serde_json::from_value(of.after.clone()).map_err(|e| {
            let message = format!("the journal of {} cannot be read", journal.transaction);
            Error::corrupt(message).with_source(e)
        })?;
        if let (Value::Object(data), Some(bank)) = (&mut todo.event, &journal.bank) {
            data.insert(String::from("files_bank"), bank.snapshot.as_str().into());
        }
        finish(&runs, &run, &recorder, &journal.transaction, &todo, true).await
    }

    async fn abandoned(&self, place: &Place, journal: &Journal) -> Result<()> {
        let Some(of) = journal.run.as_ref().filter(|run| run.decides) else { return Ok(()) };
        let runs = RunStore::new(Arc::clone(&place.store), place.ctx.clone());
        let Some(mut run) = load(&runs, of).await? else { return Ok(()) };
        open::unpark(&runs, &mut run, &journal.transaction).await
    }
}

/// Does what is left of a decided rewind.
async fn complete(
    runs: &RunStore,
    run: &mut Run,
    recorder: &Recorder,
    transaction: &TransactionId,
) -> Result<()> {
    let open = open_of(&run.record)?.filter(|open| open.transaction == *transaction);
    let Some(todo) = open.and_then(|open| open.todo) else { return Ok(()) };
    finish(runs, run, recorder, transaction, &todo, true).await?;
    open::forget(runs, run, transaction).await
}

/// Ends what an interrupted rewind left of `run`: what it decided is finished, else the
/// run is unparked. To be called before a run is resumed, rewound or reconciled. True if
/// there was anything.
///
/// Refuses with `recovery-needed` (exit 4) while files are half moved, and with `busy` (5)
/// while that rewind is alive.
pub async fn settle(runs: &RunStore, recorder: &Recorder, run: &mut Run) -> Result<bool> {
    let Some(open) = open_of(&run.record)? else { return Ok(false) };
    let (store, root, settings) = (recorder.store(), recorder.root(), recorder.settings());
    if open.workspace != root.key {
        check_closed(recorder, &open.workspace, &open.transaction).await?;
    }
    let name = LockName::Workspace(root.key.clone());
    let lock = LockRequest::new(name, LockMode::Exclusive, settings.wait, &settings.command);
    let _workspace = store.lock(lock).await?;
    let place = Place::new(Arc::clone(store), recorder.context().clone(), root.clone());
    restore::settle(&place.with_runs(RunsSide::shared(settings.clone()))).await?;
    let _claim = runs.claim(run.id(), settings.wait, &settings.command).await?;
    *run = runs.load(run.id()).await?;
    let Some(open) = open_of(&run.record)? else { return Ok(true) };
    match open.todo {
        None => open::unpark(runs, run, &open.transaction).await?,
        Some(_) => complete(runs, run, recorder, &open.transaction).await?,
    }
    Ok(true)
}

/// A rewind of another directory: its journal must be closed there.
async fn check_closed(
    recorder: &Recorder,
    workspace: &crate::ids::WorkspaceKey,
    transaction: &TransactionId,
) -> Result<()> {
    let key = DocKey::Journal(workspace.clone(), transaction.clone());
    let doc = match recorder.store().get(&key).await {
        Ok(doc) => doc,
        Err(e) if e.is_not_found() => return Ok(()),
        Err(e) => return Err(e),
    };
    let journal = Journal::read(&key.to_string(), &doc.body)?;
    if journal.state.is_terminal() {
        return Ok(());
    }
    let root = &journal.workspace.root;
    let message = format!("the rewind {transaction} in {root} was interrupted and is half done");
    Err(Error::refused("recovery-needed", message)
        .with_hint(format!("run `backtrail restore --finish -w {root}`")))
}
