//! Runs of other runtimes: they execute the nodes, we keep what was there before and
//! after each.
//!
//! A runtime creates an [`ExternalRun`], enters a node and gets a [`Step`], and says how
//! the step ended. What changes in the workspace inside a step is the run's; what changes
//! between two steps is nobody's, and a rewind leaves it alone.
//!
//! ```no_run
//! # use backtrail_core::error::Result;
//! # use backtrail_core::run::{Driver, NewRun};
//! use backtrail_core::workflow::drive::external::{End, Entry, ExternalRun};
//! # async fn deploy(place: backtrail_core::workflow::drive::Place) -> Result<()> {
//! let new = NewRun { driver: Driver::External, ..NewRun::new("deploy", "build") };
//! let run = ExternalRun::create(place, new, Default::default()).await?;
//! let step = run.enter("build", Entry::Resumed).await?;
//! step.event("tool_called", serde_json::Map::new()).await?;
//! step.finish(serde_json::Map::new()).await?;
//! run.finish(End::finished(serde_json::json!({"shipped": true}))).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `backends/examples/agent.rs` is a whole program.

mod command;
mod end;
mod enter;
mod state;
mod step;

use std::sync::{Arc, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::{Mutex, MutexGuard};

use self::state::{At, State};
use super::{Place, Report};
use crate::error::{Error, Result};
use crate::ids::RunId;
use crate::run::{Driver, FailureCode, NewRun, RunRecord, Status};
use crate::workflow::file::definition::CaptureMode;

pub use command::{Executed, Job};
pub use end::End;
pub use step::Step;

/// What was between this entry into a node and the step before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Anything may have happened: what changed is nobody's. The workspace is captured.
    Resumed,
    /// Nothing, which the runtime vouches for: the step goes on from the last boundary,
    /// and the workspace is not looked at.
    Continuous,
}

/// A run that another runtime executes. It is held by this process until it ended or
/// this is dropped; dropped before it ended, the run counts as interrupted.
pub struct ExternalRun {
    shared: Arc<Shared>,
    id: RunId,
}

/// What a run and its open step share.
struct Shared {
    state: Mutex<State>,
    /// Steps that were dropped before they said how they ended. Of one step there may be
    /// several handles: only the open step can fail by that.
    dropped: std::sync::Mutex<Vec<At>>,
}

impl Shared {
    fn given_up(&self) -> std::sync::MutexGuard<'_, Vec<At>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, once a dropped step is accounted for: it failed.
    async fn settled(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock().await;
        let dropped = std::mem::take(&mut *self.given_up());
        if let Some(at) = state.open.clone().filter(|at| dropped.contains(at)) {
            let text = "the step was given up before it said how it ended";
            let failed = state.fail(&at, FailureCode::INTERRUPTED, text).await;
            if let Err(e) = failed {
                self.given_up().push(at); // it is for the next call
                return Err(e);
            }
        }
        Ok(state)
    }
}

impl ExternalRun {
    /// Creates a run, held by this process. Fails as [`super::launch`] does before
    /// anything is created. `new.driver` must be [`Driver::External`].
    pub async fn create(place: Place, mut new: NewRun, mode: CaptureMode) -> Result<Self> {
        if new.driver != Driver::External {
            return Err(Error::invalid("an external run needs the driver external"));
        }
        new.work_dir = Some(place.root.text());
        Ok(Self::of(State::create(place, new, mode).await?))
    }

    /// Goes on with a run that exists. Its next call takes hold of it, and fails with
    /// `busy` while somebody else does: one that a process held which is gone is put in
    /// order then; one that is driven from a shell is as its last command left it, an open
    /// step too ([`ExternalRun::step`]). Fails with `not-external` for a run of our engine.
    pub async fn open(place: Place, run: &RunId, mode: CaptureMode) -> Result<Self> {
        Ok(Self::of(State::open(place, run, mode).await?))
    }

    fn of(state: State) -> Self {
        let id = state.run.id().clone();
        let shared = Shared { state: Mutex::new(state), dropped: Default::default() };
        Self { shared: Arc::new(shared), id }
    }

    /// The id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The record as it was seen last.
    pub async fn record(&self) -> RunRecord {
        self.shared.state.lock().await.run.record.clone()
    }

    /// What a person should know, since the last call.
    pub async fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state.lock().await.warnings)
    }

    /// Enters a node: the boundaries `resume:` and `pre:`, and `node_started`. The
    /// iteration is counted here: a node whose last attempt did not succeed is entered
    /// again in the same iteration, any other in a new one. A run that stopped is running
    /// again from here on.
    ///
    /// Refused: `step-open` while another step is, `cancelled` when somebody asked for
    /// that (the run is cancelled then), `needs-answers` while a question is open,
    /// `not-resumable` once it ended for good, and `workspace-safety` when the workspace
    /// cannot be captured and must be.
    pub async fn enter(&self, node: &str, entry: Entry) -> Result<Step> {
        let mut state = self.shared.settled().await?;
        let (at, answers) = state.enter(node, entry).await?;
        Ok(Step::new(self.shared.clone(), at, answers))
    }

    /// The open step of a run that is driven from a shell.
    pub async fn step(&self) -> Result<Option<Step>> {
        let mut state = self.shared.settled().await?;
        if state.open.is_some() {
            state.hold().await?;
        }
        let at = state.open.clone();
        Ok(at.map(|at| Step::new(self.shared.clone(), at, Map::new())))
    }

    /// Appends an event about the run. Types of the engine are refused with
    /// `engine-event`, so that nobody can forge a boundary.
    pub async fn event(&self, kind: &str, data: Map<String, Value>) -> Result<()> {
        self.shared.settled().await?.event(kind, data, None).await
    }

    /// Notes something in the run log, which is best effort.
    pub async fn note(&self, text: &str) {
        self.shared.state.lock().await.note(text).await;
    }

    /// Ends the run. Refused with `step-open` while a step is open, and with
    /// `already-ended`.
    pub async fn finish(self, end: End) -> Result<Report> {
        let mut state = self.shared.settled().await?;
        if let Some(at) = &state.open {
            return Err(step_open(at));
        }
        state.finish(end).await
    }
}

fn step_open(at: &At) -> Error {
    let text = format!("step {} {} is open: it must end first", at.node, at.iteration);
    Error::refused("step-open", text).with_detail("node", at.node.as_str())
}

/// Statuses from which a run never goes on.
fn is_over(status: &Status) -> bool {
    matches!(status, Status::Finished | Status::Failed | Status::Other(_))
}
