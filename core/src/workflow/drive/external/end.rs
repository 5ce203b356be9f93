//! The end of an external run.

use serde_json::Value;

use super::state::State;
use crate::error::{Error, Result};
use crate::run::{Actor, EngineEvent, FailureCode, Moved, Status, Transition};
use crate::workflow::drive::Report;

/// How an external run ends.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    status: Status,
    result: Option<Value>,
    code: String,
    error: String,
}

impl End {
    /// Finished, with a result.
    pub fn finished(result: Value) -> Self {
        let result = Some(result).filter(|r| !r.is_null());
        Self { status: Status::Finished, result, code: String::new(), error: String::new() }
    }
    /// Failed for good.
    pub fn failed(code: &str, error: impl Into<String>) -> Self {
        Self::with(Status::Failed, code, error)
    }
    /// Failed, and the runtime may go on with it later.
    pub fn resumable(code: &str, error: impl Into<String>) -> Self {
        Self::with(Status::FailedResumable, code, error)
    }
    /// Cancelled.
    pub fn cancelled(reason: Option<String>) -> Self {
        let reason = reason.unwrap_or_else(|| String::from("cancelled"));
        Self::with(Status::Cancelled, FailureCode::CANCELLED, reason)
    }

    fn with(status: Status, code: &str, error: impl Into<String>) -> Self {
        let code = if code.is_empty() { FailureCode::EXECUTION_FAILED } else { code };
        Self { status, result: None, code: code.to_owned(), error: error.into() }
    }

    fn event(&self) -> EngineEvent {
        match self.status {
            Status::Finished => EngineEvent::RunFinished { reason: None },
            Status::Cancelled => EngineEvent::RunCancelled { reason: Some(self.error.clone()) },
            _ => EngineEvent::RunFailed {
                error: self.error.clone(),
                code: self.code.clone(),
                resumable: Some(self.status == Status::FailedResumable),
            },
        }
    }
}

impl State {
    pub(super) async fn finish(&mut self, end: End) -> Result<Report> {
        let status = self.run.status().clone();
        let goes_on = status == Status::Running || end.status == Status::Cancelled;
        if status.is_ended() && !(status == Status::FailedResumable && goes_on) {
            let text = format!("run {} is {status} already", self.run.id());
            return Err(
                Error::refused("already-ended", text).with_detail("status", status.as_str())
            );
        }
        self.hold().await?;
        self.take_up(&end).await?;
        let at = self.run.record.checkpoint().map(|c| c.node_id.clone());
        let mut event = self.new_event(&end.event(), None);
        if let Some(node) = at.filter(|_| end.status != Status::Finished) {
            event = event.node(node);
        }
        self.runs().append_events(self.run.id(), &[event]).await?;
        let from = self.run.status().clone();
        let actor = match (&end.status, &from) {
            (Status::Cancelled, from) if *from != Status::Running => Actor::Person,
            _ => Actor::Engine,
        };
        let mut change = Transition::new(end.status.clone(), actor, [from]);
        if let Some(result) = end.result {
            change = change.result(self.redactor.json(result));
        }
        if end.status != Status::Finished {
            change = change.failure(&end.code, self.redactor.text(&end.error));
        }
        let runs = self.runs().clone();
        if let Moved::Not { actual } = runs.transition(&mut self.run, &change).await? {
            let text = format!("the run is {actual} and was changed by somebody else");
            return Err(Error::refused("bad-transition", text));
        }
        let mut report = Report::of(&self.run);
        if let Err(e) = self.captures.report_whole(&mut report).await {
            self.warn(format!("what changed cannot be told: {}", e.message()));
        }
        let kept = self.run.record.versioning.as_ref();
        report.coverage.complete &= kept.is_none_or(|v| v.state == "on");
        report.warnings = std::mem::take(&mut self.warnings);
        self.release();
        Ok(report)
    }

    /// A run that its runtime parked ends as one that runs.
    async fn take_up(&mut self, end: &End) -> Result<()> {
        let parked = *self.run.status() == Status::PausedOperator;
        if !parked || end.status == Status::Cancelled {
            return Ok(());
        }
        if self.run.record.needs_person() {
            let text =
                format!("run {} was rewound: it is parked until somebody decides", self.run.id());
            return Err(Error::refused("parked", text)
                .with_hint(format!("backtrail runs end {} --status cancelled", self.run.id())));
        }
        let runs = self.runs().clone();
        let change = Transition::new(Status::Running, Actor::Person, [Status::PausedOperator]);
        runs.transition(&mut self.run, &change).await.map(drop)
    }
}
