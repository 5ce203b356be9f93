//! Stopping before the end: pause, cancel, signals, a spent budget.

use super::state::{Phase, Stopping};
use super::{Action, Failure, Line, Machine};
use crate::run::{EngineEvent, FailureCode, Status};
use crate::snapshot::label::Phase as BoundaryPhase;

impl Machine {
    /// True while what executes is being stopped.
    pub(super) fn halting(&self) -> bool {
        self.state.stopping.as_ref().is_some_and(|s| !matches!(s, Stopping::Pause(_)))
    }

    /// Wants the run to stop. A cancel outranks a signal, a signal a spent budget, and all
    /// of them a pause; a signal while something is being stopped skips the grace.
    pub(super) fn stop(&mut self, why: Stopping) {
        let again = self.halting();
        let force = again && matches!(why, Stopping::Interrupt(_));
        if self.state.stopping.as_ref().is_none_or(|now| rank(now) < rank(&why)) {
            self.state.stopping = Some(why);
        }
        if self.halting() && (!again || force) {
            for execution in self.running() {
                self.push(Action::Stop { execution, force });
            }
        }
        // what waits for a delay or for `Continue` ends here
        self.stop_when_idle();
    }

    /// Ends the run once nothing executes any more.
    pub(super) fn stop_when_idle(&mut self) {
        if self.state.ended || !self.running().is_empty() {
            return;
        }
        let Some(why) = self.state.stopping.clone() else { return };
        match why {
            Stopping::Pause(reason) => {
                self.mark(BoundaryPhase::Pause);
                let reason = Some(reason.unwrap_or_else(|| String::from("operator")));
                self.emit(Some(Line::Main), EngineEvent::RunPaused { reason });
                self.end(Status::PausedOperator, None, None);
            }
            Stopping::Cancel(reason) => {
                self.mark(BoundaryPhase::Fail);
                self.emit(Some(Line::Main), EngineEvent::RunCancelled { reason: reason.clone() });
                let text = reason.unwrap_or_else(|| String::from("cancelled"));
                let failure = Failure::new(FailureCode::CANCELLED, text);
                self.end(Status::Cancelled, Some(failure), None);
            }
            Stopping::Interrupt(reason) => {
                self.mark(BoundaryPhase::Fail);
                let event = EngineEvent::RunInterrupted { reason: Some(reason.clone()) };
                self.push_about_run(event);
                let text = format!("interrupted by {reason}");
                let failure = Failure::new(FailureCode::INTERRUPTED, text);
                self.end(Status::FailedResumable, Some(failure), None);
            }
            Stopping::Budget => self.end_out_of_budget(),
        }
    }

    /// No node is entered any more. What executes elsewhere may end.
    pub(super) fn out_of_budget(&mut self, line: Line) {
        if let Phase::Running(_) = self.lane(line).phase {
            self.lane_mut(line).phase = Phase::Ready;
        }
        if self.running().is_empty() {
            self.end_out_of_budget();
        }
    }

    fn end_out_of_budget(&mut self) {
        self.mark(BoundaryPhase::Fail);
        let failure = self.budget_failure();
        let event = EngineEvent::RunFailed {
            error: failure.message.clone(),
            code: failure.code.clone(),
            resumable: Some(true),
        };
        self.emit(Some(Line::Main), event);
        self.end(Status::FailedResumable, Some(failure), None);
    }

    /// The boundary after which nothing of the run executes: captured for a node that was
    /// entered, and for one that was not pointed at what the last one left.
    fn mark(&mut self, phase: BoundaryPhase) {
        if self.state.main.at.is_some() {
            self.capture(self.here(phase));
        } else if let Some(last) = self.state.last.clone() {
            let boundary = Self::boundary(phase, &last, None);
            if phase == BoundaryPhase::Pause {
                self.capture(boundary)
            } else {
                self.alias(boundary)
            }
        }
    }

    fn push_about_run(&mut self, event: EngineEvent) {
        self.emit(None, event);
    }
}

fn rank(why: &Stopping) -> u8 {
    match why {
        Stopping::Pause(_) => 0,
        Stopping::Budget => 1,
        Stopping::Interrupt(_) => 2,
        Stopping::Cancel(_) => 3,
    }
}
