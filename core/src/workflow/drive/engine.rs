//! The loop of a drive: perform what the machine asks, feed back what happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::attempt::{Bench, Ended};
use super::captures::Captures;
use super::journal::Journal;
use super::report::Report;
use super::watch::{self, Message};
use super::{Interrupts, NodeLine, Place};
use crate::error::{Error, Result};
use crate::ids::RunId;
use crate::process::{Scratch, Stopper};
use crate::run::{Claim, EngineEvent, NewEvent, Run, RunStore, Status};
use crate::tasks::blocking;
use crate::workflow::machine::{Action, Attempt, Execution, Input, Machine, Outcome};

/// A run that executes here.
pub(super) struct Drive {
    pub(super) place: Arc<Place>,
    /// The runs, with the claim.
    pub(super) runs: RunStore,
    pub(super) claim: Arc<Claim>,
    pub(super) run: Arc<Mutex<Run>>,
    pub(super) machine: Machine,
    pub(super) bench: Arc<Bench>,
    pub(super) captures: Captures,
    pub(super) journal: Journal,
    /// Makes captures hurry.
    pub(super) hurry: tokio::sync::watch::Sender<bool>,
    /// Statuses that the next move expects.
    pub(super) expects: Vec<Status>,
    /// The open question is answered.
    pub(super) answered: bool,
    /// It goes on where another process left it.
    pub(super) resumed: bool,
    pub(super) state: Progress,
}

/// What changes while a drive goes on.
pub(super) struct Progress {
    pub(super) began: Instant,
    send: UnboundedSender<Message>,
    heard: UnboundedReceiver<Message>,
    /// Dropped, they end.
    pub(super) tasks: JoinSet<()>,
    stoppers: BTreeMap<Attempt, Stopper>,
    wake: Option<Instant>,
    /// The machine wants to go on.
    go_on: bool,
    pub(super) over: bool,
    pub(super) warnings: Vec<String>,
    pub(super) child_exit: Option<i32>,
    signal: Option<String>,
    /// Attempts under way, and one that ended and has no line yet.
    since: BTreeMap<Attempt, Instant>,
    line: Option<(Attempt, String, Duration)>,
    /// The version that an artifact really got.
    pub(super) version: Option<u64>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let (send, heard) = unbounded_channel();
        Self {
            began: Instant::now(),
            send,
            heard,
            tasks: JoinSet::new(),
            stoppers: BTreeMap::new(),
            wake: None,
            go_on: false,
            over: false,
            warnings: Vec::new(),
            child_exit: None,
            signal: None,
            since: BTreeMap::new(),
            line: None,
            version: None,
        }
    }
}

impl Drive {
    /// Drives the run from its first actions to its end.
    pub(super) async fn run(
        mut self,
        first: Vec<Action>,
        interrupts: Interrupts,
    ) -> Result<Report> {
        let (hurry, send) = (self.hurry.clone(), self.state.send.clone());
        self.state.tasks.spawn(watch::signals(interrupts, hurry, send));
        let mut actions = first;
        let mut refusal = None;
        loop {
            let refused = self.perform_all(actions).await?;
            if self.state.over {
                break;
            }
            let input = match refused {
                Some(e) => {
                    let error = self.refusal_text(&e);
                    refusal = Some(e);
                    Input::CaptureRefused { error }
                }
                None => self.next().await?,
            };
            let active = self.active();
            actions = self.machine.step(input, active);
        }
        self.finish(refusal).await
    }

    /// For how long this process has been active.
    pub(super) fn active(&self) -> Duration {
        self.state.began.elapsed()
    }

    async fn perform_all(&mut self, actions: Vec<Action>) -> Result<Option<Error>> {
        let mut refused = None;
        for action in actions {
            refused = self.perform(action).await?;
            if refused.is_some() {
                break;
            }
        }
        self.show_line();
        self.note_lost_labels().await;
        Ok(refused)
    }

    /// The next thing that happens. What has arrived comes before the machine goes on.
    async fn next(&mut self) -> Result<Input> {
        // whatever is due happens now, also while instant nodes follow each other
        tokio::task::yield_now().await;
        while self.state.tasks.try_join_next().is_some() {}
        let waiting = self.state.heard.try_recv().ok();
        if waiting.is_none() && std::mem::take(&mut self.state.go_on) {
            return Ok(Input::Continue);
        }
        let wake = self.state.wake;
        let message = match waiting {
            Some(message) => message,
            None => tokio::select! {
                biased;
                Some(message) = self.state.heard.recv() => message,
                () = at(wake) => {
                    self.state.wake = None;
                    return Ok(Input::Clock);
                }
            },
        };
        match message {
            Message::Input(input) => Ok(input),
            Message::Lost(e) => Err(e),
            Message::Signal(reason) => {
                self.state.signal.get_or_insert_with(|| reason.clone());
                Ok(Input::Interrupt { reason })
            }
            Message::Ended(attempt, ended) => self.attempt_ended(attempt, *ended).await,
        }
    }

    async fn attempt_ended(&mut self, attempt: Attempt, ended: Ended) -> Result<Input> {
        self.state.stoppers.remove(&attempt);
        self.state.child_exit = ended.exit.or(self.state.child_exit);
        for note in ended.notes {
            self.warn(note).await;
        }
        if !ended.killed.is_empty() {
            let text = format!(
                "node {} left processes behind, which were stopped: {}",
                attempt.node,
                ended.killed.join(", ")
            );
            self.warn(text).await;
            let count = ended.killed.len() as u64;
            let event = EngineEvent::ChildrenKilled { count, commands: ended.killed };
            self.event(&event, Some(&attempt.node), None).await;
        }
        self.report_log().await;
        self.place.ctx.faults.reach("run.ended")?;
        let since = self.state.since.remove(&attempt);
        let elapsed = since.map(|s| s.elapsed()).unwrap_or_default();
        let word = match &ended.outcome {
            Outcome::Succeeded(_) => String::from("ok"),
            Outcome::Asked(_) => String::from("asks"),
            Outcome::Stopped => String::from("stopped"),
            Outcome::TimedOut { after } => format!("failed: longer than {after:?}"),
            Outcome::Failed { message, .. } => format!("failed: {message}"),
        };
        self.state.line = Some((attempt.clone(), word, elapsed));
        Ok(Input::Ended { attempt, outcome: ended.outcome })
    }

    async fn report_log(&mut self) {
        let report = self.bench.log.report().await;
        if report.truncated {
            let limit = self.place.settings.log_limit;
            self.event(&EngineEvent::LogTruncated { limit }, None, None).await;
            self.warn(format!("the run log reached its limit of {limit} bytes")).await;
        }
        if report.holes > 0 {
            let why = report.error.map(|e| e.message().to_owned()).unwrap_or_default();
            self.warn(format!("{} pieces of the run log are lost: {why}", report.holes)).await;
        }
    }

    fn show_line(&mut self) {
        let Some((attempt, outcome, elapsed)) = self.state.line.take() else { return };
        self.place.watcher.node(&NodeLine {
            node: &attempt.node,
            iteration: attempt.iteration,
            outcome: &outcome,
            elapsed,
            changed: self.captures.take_changed(),
        });
    }

    /// Begins what goes on beside the machine, once the run is running.
    pub(super) fn begin_watching(&mut self, id: RunId) {
        let send = self.state.send.clone();
        let (runs, claim) = (self.runs.clone(), self.claim.clone());
        self.state.tasks.spawn(watch::requests(runs, id, claim, send));
        let scratch = self.bench.scratch.clone();
        self.state.tasks.spawn(watch::heartbeat(scratch, self.place.ctx.clock.clone()));
    }

    /// Starts an execution.
    pub(super) fn start(&mut self, execution: Execution) {
        let attempt = execution.attempt.clone();
        let (stopper, stop) = crate::process::stop_pair();
        self.state.stoppers.insert(attempt.clone(), stopper);
        self.state.since.insert(attempt.clone(), Instant::now());
        let (bench, send) = (self.bench.clone(), self.state.send.clone());
        self.state.tasks.spawn(async move {
            let ended = bench.execute(execution, stop).await;
            let _ = send.send(Message::Ended(attempt, Box::new(ended)));
        });
    }

    pub(super) fn stop(&self, attempt: &Attempt, force: bool) {
        if let Some(stopper) = self.state.stoppers.get(attempt) {
            match force {
                true => stopper.stop_now("the run stops"),
                false => stopper.stop("the run stops"),
            }
        }
    }

    pub(super) fn later(&mut self, length: Duration, input: Input) {
        self.state.tasks.spawn(watch::later(length, input, self.state.send.clone()));
    }

    pub(super) fn wake_at(&mut self, active: Duration) {
        self.state.wake = self.state.began.checked_add(active);
    }

    pub(super) fn go_on(&mut self) {
        self.state.go_on = true;
    }

    /// Tells the person, and notes it in the run log and the report.
    pub(super) async fn warn(&mut self, text: String) {
        let text = self.bench.known.redactor.text(&text).into_owned();
        self.place.watcher.warning(&text);
        // the log is best effort, and the warning stands in the report
        let _ = self.bench.log.note(&text).await;
        self.state.warnings.push(text);
    }

    /// Hands an event to the journal.
    pub(super) async fn event(
        &mut self,
        event: &EngineEvent,
        node: Option<&str>,
        branch: Option<&str>,
    ) {
        let offset = self.bench.log.position().await;
        let active = u64::try_from(self.active().as_millis()).unwrap_or(u64::MAX);
        let mut new = NewEvent::engine_redacted(event, &self.bench.known.redactor)
            .at(self.place.ctx.clock.now())
            .log_offset(offset)
            .active_ms(active);
        if let Some(node) = node {
            new = new.node(node);
        }
        if let Some(branch) = branch {
            new = new.branch(branch);
        }
        self.journal.event(new);
    }

    fn refusal_text(&self, e: &Error) -> String {
        match e.hint() {
            Some(hint) => format!("{}; {hint}", e.message()),
            None => e.message().to_owned(),
        }
    }

    /// What a run that ended well leaves is of no use to anybody.
    async fn remove_scratch(&mut self) {
        self.state.tasks.shutdown().await;
        let (places, run) = (self.place.settings.scratch.clone(), self.bench.run.scratch());
        let removed = blocking(move || Scratch::remove(&places, &run)).await;
        if let Err(e) = removed {
            self.warn(format!("the run's scratch files stay: {}", e.message())).await;
        }
    }

    async fn finish(mut self, refusal: Option<Error>) -> Result<Report> {
        self.journal.settle().await?;
        if let Err(e) = self.bench.log.flush().await {
            self.warn(format!("the end of the run log is lost: {}", e.message())).await;
        }
        let run = self.run.lock().await.clone();
        if *run.status() == Status::Finished {
            self.remove_scratch().await;
        }
        if let (Some(e), true) = (refusal, self.resumed && *run.status() != Status::Running)
            && self.expects != [Status::Running]
        {
            let text = format!("the run was not resumed, nothing was changed: {}", e.message());
            let hint = "free what is in the way, or give --capture best_effort";
            return Err(Error::refused("workspace-safety", text).with_hint(hint).with_source(e));
        }
        let mut report = Report::of(&run);
        if let Err(e) = self.captures.report(&mut report, self.resumed).await {
            self.warn(format!("what changed cannot be told: {}", e.message())).await;
        }
        // what an earlier process missed counts as well
        let kept = run.record.versioning.as_ref();
        report.coverage.complete &= kept.is_none_or(|v| v.state == "on");
        report.child_exit = self.state.child_exit;
        report.warnings = std::mem::take(&mut self.state.warnings);
        report.active_ms = u64::try_from(self.active().as_millis()).unwrap_or(u64::MAX);
        report.signal = self.state.signal.clone();
        Ok(report)
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
