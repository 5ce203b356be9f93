//! What each action of the machine means outside it.

use serde_json::Value;

use super::captures::Took;
use super::engine::Drive;
use super::journal::{Lost, redacted};
use crate::error::{Error, Result};
use crate::ids::{InteractionId, NodeId, RunId};
use crate::run::{
    self, Actor, Answered, Checkpoint, EngineEvent, FailureCode, Moved, PausePointer, Status,
    Transition,
};
use crate::snapshot::label::Boundary;
use crate::workflow::file::definition::CaptureMode;
use crate::workflow::machine::{Action, Emission, Failure, Input, Interaction};

impl Drive {
    /// Performs one action. `Some` when it was a capture without which nothing goes on:
    /// why it failed.
    pub(super) async fn perform(&mut self, action: Action) -> Result<Option<Error>> {
        match action {
            Action::Capture { boundary, must } => return self.capture(&boundary, must).await,
            Action::Alias { boundary, keep } => self.alias(&boundary, keep).await?,
            Action::Start(execution) => self.start(*execution),
            Action::Stop { execution, force } => self.stop(&execution, force),
            Action::Emit(emission) => self.emit(*emission).await,
            Action::WriteArtifact { node, version, data, .. } => {
                self.write_artifact(&node, version, data).await?;
            }
            Action::WriteInteraction(interaction) => self.write_interaction(interaction).await?,
            Action::SaveCheckpoint { checkpoint, wait } => {
                self.journal.checkpoint(checkpoint).await?;
                if wait {
                    self.journal.settle().await?;
                }
            }
            Action::SetStatus { status, failure, result, checkpoint } => {
                self.set_status(status, failure, result, *checkpoint).await?;
            }
            Action::Delay { attempt, length } => self.later(length, Input::DelayOver(attempt)),
            Action::WakeAt(active) => self.wake_at(active),
            Action::Warn(text) => self.warn(text).await,
            Action::Continue => self.go_on(),
            Action::End => self.state.over = true,
        }
        Ok(None)
    }

    async fn capture(&mut self, boundary: &Boundary, must: bool) -> Result<Option<Error>> {
        let known = self.captures.versioning().state == "overflow";
        let took = self.captures.capture(boundary, must).await;
        self.place.ctx.faults.reach("run.capture")?;
        let e = match took {
            Took::Missed(e) => e,
            Took::Captured(Some(alias)) => {
                self.journal.alias(alias);
                return Ok(None);
            }
            Took::Captured(None) | Took::Off => return Ok(None),
        };
        let label = boundary.label().map(|l| l.to_string()).unwrap_or_default();
        if must && self.captures.mode() == CaptureMode::Required {
            return Ok(Some(e));
        }
        let (warning, events) = self.captures.told(label, &e, known);
        if let Some(warning) = warning {
            self.warn(warning).await;
        }
        for event in &events {
            self.event(event, boundary.node.as_deref(), None).await;
        }
        Ok(None)
    }

    async fn alias(&mut self, boundary: &Boundary, keep: bool) -> Result<()> {
        match self.captures.alias(boundary, keep) {
            Some(alias) => self.journal.alias(alias),
            None => drop(self.capture(boundary, false).await?),
        }
        Ok(())
    }

    /// Labels that could not be set are boundaries that were missed.
    pub(super) async fn note_lost_labels(&mut self) {
        for Lost { labels, error } in self.journal.lost().await {
            for label in labels {
                let (warning, events) = self.captures.told(label.to_string(), &error, false);
                self.captures.miss(label, &error).await;
                if let Some(warning) = warning {
                    self.warn(warning).await;
                }
                for event in &events {
                    self.event(event, None, None).await;
                }
            }
        }
    }

    async fn emit(&mut self, emission: Emission) {
        let Emission { mut event, node, branch } = emission;
        match &mut event {
            EngineEvent::NodeFinished { snapshot, .. } if branch.is_none() => {
                *snapshot = self.captures.newest().map(|id| id.to_string());
            }
            EngineEvent::ArtifactWritten { version, .. } => {
                *version = self.state.version.take().unwrap_or(*version);
            }
            _ => {}
        }
        self.event(&event, node.as_deref(), branch.as_deref()).await;
    }

    async fn id(&self) -> RunId {
        self.run.lock().await.id().clone()
    }

    async fn write_artifact(&mut self, node: &str, version: u64, data: Value) -> Result<()> {
        let data = self.bench.known.redactor.json(data);
        let node = NodeId::new(node)?;
        let id = self.id().await;
        let written = self.runs.write_artifact(&id, &node, version, data, Vec::new()).await?;
        self.state.version = Some(written.version);
        self.place.ctx.faults.reach("run.artifact")
    }

    /// Makes the stored interaction what the machine says it is.
    async fn write_interaction(&mut self, asked: Interaction) -> Result<()> {
        let redactor = self.bench.known.redactor.clone();
        let id = InteractionId::new(asked.id.as_str())?;
        let node = NodeId::new(asked.node.as_str())?;
        let run = self.run.lock().await.clone();
        let questions = Value::Object(redactor.object(asked.questions));
        let there = match self.runs.interaction(run.id(), &id).await {
            Ok(there) => there,
            Err(e) if e.is_not_found() => {
                let schema = Some(asked.answer_schema);
                self.runs.ask(run.id(), &id, &node, questions, schema).await?
            }
            Err(e) => return Err(e),
        };
        let known = there.turns.as_ref().map_or(0, Vec::len);
        for turn in asked.turns.iter().skip(known) {
            let turn = run::Turn {
                role: turn.role.clone(),
                content: redactor.text(&turn.content).into_owned().into(),
                verdict: turn.verdict.clone().map(|v| redactor.json(v)),
                at: self.place.ctx.clock.now().rfc3339(),
                extra: serde_json::Map::new(),
            };
            let reopen = asked.answers.is_none() && there.answered_at.is_some();
            self.runs.add_turn(&run, &id, &turn, reopen).await?;
        }
        if let Some(answers) = asked.answers.filter(|_| there.answered_at.is_none()) {
            match self.runs.answer(&run, &id, &redactor.object(answers)).await? {
                Answered::First(_) | Answered::Same(_) => {}
            }
        }
        Ok(())
    }

    async fn set_status(
        &mut self,
        status: Status,
        failure: Option<Failure>,
        result: Option<Value>,
        checkpoint: Checkpoint,
    ) -> Result<()> {
        self.journal.settle().await?;
        self.note_lost_labels().await;
        let redactor = self.bench.known.redactor.clone();
        let checkpoint = redacted(checkpoint, &redactor);
        let actor = if status == Status::Running { Actor::Person } else { Actor::Engine };
        let mut change = Transition::new(status.clone(), actor, self.expects.clone());
        if let Some(failure) = failure {
            change = change.failure(&failure.code, redactor.text(&failure.message));
        }
        if let Some(result) = result {
            change = change.result(redactor.json(result));
        }
        if let (Status::PausedWaitingHuman, Some(id)) = (&status, &checkpoint.interaction_id) {
            let questions = checkpoint.interaction_questions.clone();
            change = change.asking(PausePointer { interaction_id: id.clone(), questions });
        }
        if std::mem::take(&mut self.answered) {
            change = change.answered();
        }
        self.captures.save_versioning(&self.runs, &mut *self.run.lock().await).await?;
        let change = change.checkpoint(checkpoint);
        let moved = {
            let mut run = self.run.lock().await;
            self.runs.transition(&mut run, &change).await?
        };
        self.place.ctx.faults.reach("run.status")?;
        match moved {
            Moved::To(Status::Cancelled) if status != Status::Cancelled => {
                // the request came while the run was ending
                let reason = Some(String::from(FailureCode::CANCELLED));
                self.event(&EngineEvent::RunCancelled { reason }, None, None).await;
            }
            Moved::To(Status::Running) => {
                let id = self.id().await;
                self.begin_watching(id);
            }
            Moved::To(_) => {}
            Moved::Not { actual } => {
                let text = format!("the run is {actual} and was changed by somebody else");
                return Err(Error::refused("bad-transition", text));
            }
        }
        self.expects = vec![Status::Running];
        Ok(())
    }
}
