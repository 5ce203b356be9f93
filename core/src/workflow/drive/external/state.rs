//! What an external run works with: its record, its captures, and the locks while
//! anything of it may execute.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::Cancel;
use crate::error::{Error, Result};
use crate::ids::{Chain, RunId};
use crate::process::{RunKey, Scratch};
use crate::redact::Redactor;
use crate::run::{
    Claim, Created, Driver, EngineEvent, NewEvent, NewRun, Run, RunStore, ShellOwner, Status,
};
use crate::snapshot::label::{Boundary, Phase};
use crate::tasks::blocking;
use crate::workflow::drive::captures::{Captures, Took};
use crate::workflow::drive::holds::Holds;
use crate::workflow::drive::reconcile::put_in_order;
use crate::workflow::drive::{Place, secrets};
use crate::workflow::file::definition::CaptureMode;

/// One attempt at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) node: String,
    pub(super) iteration: u64,
    pub(super) attempt: u64,
}

impl At {
    pub(super) fn boundary(&self, phase: Phase) -> Boundary {
        Boundary {
            phase,
            node: Some(self.node.clone()),
            iteration: Some(self.iteration),
            attempt: Some(self.attempt),
            gate: None,
        }
    }
}

/// The locks of a run that executes, and the runs with its claim.
pub(super) struct Held {
    _holds: Holds,
    pub(super) runs: RunStore,
    pub(super) claim: Arc<Claim>,
    /// Touches the heartbeat of a run that lives as long as this process holds it.
    beat: Option<JoinHandle<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(beat) = &self.beat {
            beat.abort();
        }
    }
}

pub(super) struct State {
    pub(super) place: Arc<Place>,
    pub(super) run: Run,
    pub(super) captures: Captures,
    pub(super) redactor: Redactor,
    pub(super) open: Option<At>,
    pub(super) held: Option<Held>,
    pub(super) warnings: Vec<String>,
    /// The command of a shell ends before the run does.
    shell: bool,
    /// Nothing hurries an external run's captures.
    _calm: watch::Sender<bool>,
}

impl State {
    pub(super) async fn create(place: Place, new: NewRun, mode: CaptureMode) -> Result<Self> {
        let redactor = secrets::guessed(&place.settings)?;
        let holds = Holds::take(&place).await?;
        let Created { run, claim } = place.runs.create(new).await?;
        let claim = claim.ok_or_else(|| Error::invalid("an external run is not queued"))?;
        let mut state = Self::new(place, run, mode, redactor);
        let held = state.hold_as(holds, claim).await;
        let event = EngineEvent::RunStarted { reason: None };
        held.runs.append_events(state.run.id(), &[state.new_event(&event, None)]).await?;
        state.held = Some(held);
        Ok(state)
    }

    pub(super) async fn open(place: Place, run: &RunId, mode: CaptureMode) -> Result<Self> {
        let redactor = secrets::guessed(&place.settings)?;
        let found = place.runs.load(run).await?;
        if found.record.driver != Some(Driver::External) {
            let text = format!("run {run} is executed by the engine, not by another runtime");
            return Err(
                Error::refused("not-external", text).with_hint(format!("backtrail resume {run}"))
            );
        }
        Ok(Self::new(place, found, mode, redactor))
    }

    fn new(place: Place, run: Run, mode: CaptureMode, redactor: Redactor) -> Self {
        let (calm, hurry) = watch::channel(false);
        let place = Arc::new(place);
        let chain = Chain::Run(run.id().clone());
        let before = run.record.versioning.as_ref();
        let captures = Captures::new(place.clone(), chain, mode, hurry, before);
        let shell = ShellOwner::of(&run.record).is_some();
        Self {
            place,
            captures,
            redactor,
            // an open step of a process that is gone is nobody's
            open: open_step(&run).filter(|_| shell),
            run,
            held: None,
            warnings: Vec::new(),
            shell,
            _calm: calm,
        }
    }

    /// Takes the locks of a run that executes, unless they are held; what the last holder
    /// left behind is put in order.
    pub(super) async fn hold(&mut self) -> Result<()> {
        if self.held.is_some() {
            return Ok(());
        }
        let holds = Holds::take(&self.place).await?;
        let (runs, settings) = (&self.place.runs, &self.place.settings);
        let wait = if self.shell { settings.wait } else { Duration::ZERO };
        let claim = runs.claim(self.run.id(), wait, &settings.command).await?;
        let held = self.hold_as(holds, claim).await;
        self.run = held.runs.load(self.run.id()).await?;
        if *self.run.status() == Status::Running && !self.shell {
            let lost = put_in_order(&self.place, &held.runs, &mut self.run).await?;
            self.warnings.extend(lost.map(|why| format!("its last state was not captured: {why}")));
        }
        self.open = open_step(&self.run);
        self.held = Some(held);
        Ok(())
    }

    async fn hold_as(&self, holds: Holds, claim: Claim) -> Held {
        let claim = Arc::new(claim);
        let runs = self.place.runs.with_claim(claim.clone());
        let beat = if self.shell { None } else { self.beat().await };
        Held { _holds: holds, runs, claim, beat }
    }

    /// Without a heartbeat a crash is only less well described.
    async fn beat(&self) -> Option<JoinHandle<()>> {
        let key = RunKey::new(self.run.id(), &self.place.runs.store().info());
        let (places, name) = (self.place.settings.scratch.clone(), key.scratch());
        let scratch = blocking(move || Scratch::open(&places, &name)).await.ok()?;
        let clock = self.place.ctx.clock.clone();
        Some(tokio::spawn(crate::workflow::drive::watch::heartbeat(Arc::new(scratch), clock)))
    }

    /// Nothing of the run executes until somebody enters a node again.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// The runs, with the claim while it is held.
    pub(super) fn runs(&self) -> &RunStore {
        self.held.as_ref().map_or(&self.place.runs, |held| &held.runs)
    }

    pub(super) fn new_event(&self, event: &EngineEvent, at: Option<&At>) -> NewEvent {
        let new = NewEvent::engine_redacted(event, &self.redactor).at(self.place.ctx.clock.now());
        match at {
            Some(at) => new.node(at.node.as_str()),
            None => new,
        }
    }

    pub(super) async fn emit(&self, event: &EngineEvent, at: Option<&At>) -> Result<()> {
        let new = self.new_event(event, at);
        self.runs().append_events(self.run.id(), &[new]).await.map(drop)
    }

    pub(super) async fn event(
        &self,
        kind: &str,
        data: Map<String, Value>,
        at: Option<&At>,
    ) -> Result<()> {
        let mut new = NewEvent::foreign(kind, self.redactor.object(data))?;
        if let Some(at) = at.or(self.open.as_ref()) {
            new = new.node(at.node.as_str());
        }
        self.runs().append_events(self.run.id(), &[new]).await.map(drop)
    }

    pub(super) fn warn(&mut self, text: String) {
        self.place.watcher.warning(&text);
        self.warnings.push(text);
    }

    pub(super) async fn note(&self, text: &str) {
        let limit = self.place.settings.log_limit;
        // the run log is best effort
        if let Ok(log) = self.runs().open_log(self.run.id(), limit, self.redactor.clone()).await
            && log.note(text).await.is_ok()
        {
            let _ = log.flush().await;
        }
    }

    /// Captures a boundary; why it was missed, when it must not be.
    pub(super) async fn capture(&mut self, boundary: &Boundary) -> Result<Option<Error>> {
        let known = self.captures.versioning().state == "overflow";
        let enters = matches!(boundary.phase, Phase::Pre | Phase::Resume);
        let took = self.captures.capture(boundary, enters).await;
        self.place.ctx.faults.reach("run.capture")?;
        let Took::Missed(e) = took else { return Ok(None) };
        if self.shell {
            // this process ends: what is not noted now never is, and then what people did
            // between two steps would count as the run's
            self.captures.tell().await?;
        }
        let label = boundary.label().map(|l| l.to_string()).unwrap_or_default();
        let (warning, events) = self.captures.told(label, &e, known);
        if let Some(warning) = warning {
            self.warn(warning);
        }
        let at = boundary.node.clone().map(|node| At { node, iteration: 0, attempt: 0 });
        for event in &events {
            self.emit(event, at.as_ref()).await?;
        }
        Ok(Some(e))
    }

    /// Points a boundary at the last one, when that is known. True if it did.
    pub(super) async fn alias(&mut self, boundary: &Boundary, keep: bool) -> Result<bool> {
        let Some(alias) = self.captures.alias(boundary, keep) else { return Ok(false) };
        self.captures.recorder(Cancel::default()).alias(&[alias]).await?;
        Ok(true)
    }

    pub(super) async fn save_versioning(&mut self) -> Result<()> {
        let runs = self.runs().clone();
        self.captures.save_versioning(&runs, &mut self.run).await
    }
}

/// The step that a record says is open.
fn open_step(run: &Run) -> Option<At> {
    let checkpoint = run.record.checkpoint().filter(|_| *run.status() == Status::Running)?;
    let current = checkpoint.executing()?;
    let node = checkpoint.node_id.clone();
    Some(At { node, iteration: current.iteration, attempt: current.attempt })
}
