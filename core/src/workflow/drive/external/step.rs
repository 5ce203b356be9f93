//! A step: one attempt at a node, from its entry until it says how it ended.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::MutexGuard;

use super::Shared;
use super::end::End;
use super::state::{At, State};
use crate::capture::Late;
use crate::error::{Error, Result};
use crate::ids::NodeId;
use crate::run::{
    Actor, Checkpoint, EngineEvent, FailureCode, PausePointer, Status, Transition, interaction_id,
};
use crate::snapshot::label::Phase;
use crate::workflow::drive::reconcile::{self, surely};

/// An open step. It ends with one of [`Step::finish`], [`Step::fail`] and [`Step::pause`];
/// dropped instead it counts as failed, never as success.
#[must_use = "a step that is dropped has failed"]
pub struct Step {
    shared: Arc<Shared>,
    at: At,
    answers: Map<String, Value>,
    ended: bool,
}

impl Step {
    pub(super) fn new(shared: Arc<Shared>, at: At, answers: Map<String, Value>) -> Self {
        Self { shared, at, answers, ended: false }
    }

    /// The node.
    pub fn node(&self) -> &str {
        &self.at.node
    }
    /// The entry into it, from 0.
    pub fn iteration(&self) -> u64 {
        self.at.iteration
    }
    /// The attempt, from 1.
    pub fn attempt(&self) -> u64 {
        self.at.attempt
    }
    /// What a person answered to the question for which the run was paused.
    pub fn answers(&self) -> &Map<String, Value> {
        &self.answers
    }

    /// Appends an event about the node. Types of the engine are refused.
    pub async fn event(&self, kind: &str, data: Map<String, Value>) -> Result<()> {
        self.shared.state.lock().await.event(kind, data, Some(&self.at)).await
    }

    /// The node completed: `post:`, then `node_finished`. Of `output`, `_tokens` and
    /// `_cost_usd` count for the budget; other keys beginning with `_` are refused.
    pub async fn finish(mut self, output: Map<String, Value>) -> Result<()> {
        let (at, mut state) = self.ending().await?;
        state.complete(&at, output).await
    }

    /// The node failed: `fail:`. The run goes on; entering the node again is its next
    /// attempt.
    pub async fn fail(mut self, code: &str, error: &str) -> Result<()> {
        let (at, mut state) = self.ending().await?;
        state.fail(&at, code, error).await
    }

    /// As [`Step::fail`] for a step that nobody ended: when it stopped is not known. What
    /// changed after the run was heard of last has no known author, and a rewind leaves it.
    pub async fn lost(mut self, code: &str, error: &str) -> Result<()> {
        let (at, mut state) = self.ending().await?;
        state.lost(&at, code, error).await
    }

    /// The run waits: `pause:`, then the status. With questions for their answers, without
    /// any until its node is entered again.
    pub async fn pause(mut self, questions: Map<String, Value>) -> Result<()> {
        let (at, mut state) = self.ending().await?;
        state.pause(&at, questions).await
    }

    /// Leaves the step open: another command of the shell goes on with it.
    pub fn leave_open(mut self) {
        self.ended = true;
    }

    async fn ending(&mut self) -> Result<(At, MutexGuard<'_, State>)> {
        let state = self.shared.state.lock().await;
        if state.open.as_ref() != Some(&self.at) {
            let text = format!("step {} {} is not open any more", self.at.node, self.at.iteration);
            return Err(Error::refused("step-over", text));
        }
        self.ended = true;
        Ok((self.at.clone(), state))
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.given_up().push(self.at.clone());
        }
    }
}

impl State {
    fn checkpoint(&self) -> Checkpoint {
        self.run.record.checkpoint().cloned().unwrap_or_default()
    }

    async fn save(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let runs = self.runs().clone();
        runs.save_checkpoint(&mut self.run, checkpoint).await?;
        self.place.ctx.faults.reach("run.checkpoint")
    }

    async fn complete(&mut self, at: &At, output: Map<String, Value>) -> Result<()> {
        let mut output = self.redactor.object(output);
        let tokens = output.remove("_tokens").and_then(|n| n.as_u64());
        let cost_usd = output.remove("_cost_usd").and_then(|n| n.as_f64());
        let mut checkpoint = self.checkpoint();
        checkpoint.current = None;
        checkpoint.budget_tokens_used = spent(checkpoint.budget_tokens_used, tokens, |a, b| a + b);
        checkpoint.budget_cost_usd = spent(checkpoint.budget_cost_usd, cost_usd, |a, b| a + b);
        let reserved = output.keys().find(|k| k.starts_with('_')).cloned();
        checkpoint.outputs.insert(at.node.clone(), Value::Object(output.clone()));
        if let Err(e) = match &reserved {
            Some(key) => Err(Error::invalid(format!("key {key:?} of the output is reserved"))),
            None => checkpoint.check(),
        } {
            self.fail(at, FailureCode::SCHEMA_VALIDATION, e.message()).await?;
            return Err(e);
        }
        self.capture(&at.boundary(Phase::Post)).await?;
        self.save_versioning().await?;
        let snapshot = self.captures.newest().map(|id| id.to_string());
        let event = EngineEvent::NodeFinished {
            output: Some(Value::Object(output)),
            tokens,
            cost_usd,
            selected_route: None,
            reasoning: None,
            snapshot,
        };
        self.emit(&event, Some(at)).await?;
        self.save(&checkpoint).await?;
        self.open = None;
        self.stop_if_asked(at).await
    }

    pub(super) async fn fail(&mut self, at: &At, code: &str, error: &str) -> Result<()> {
        self.capture(&at.boundary(Phase::Fail)).await?;
        self.save_versioning().await?;
        self.failed(at, code, error).await
    }

    async fn lost(&mut self, at: &At, code: &str, error: &str) -> Result<()> {
        let heard = self.runs().heard_at(&self.run).await?;
        let late = Late { alive_until: Some(surely(&heard.rfc3339())) };
        let boundary = at.boundary(Phase::Fail);
        if let Err(e) = reconcile::capture(&self.place, self.run.id(), boundary, late).await {
            self.warn(format!("its last state was not captured: {}", e.message()));
        }
        self.failed(at, code, error).await
    }

    /// Writes down that an attempt failed, whose end is captured.
    async fn failed(&mut self, at: &At, code: &str, error: &str) -> Result<()> {
        let code = if code.is_empty() { FailureCode::EXECUTION_FAILED } else { code };
        let error = self.redactor.text(error).into_owned();
        let mut checkpoint = self.checkpoint();
        checkpoint.close_attempt();
        let output = json!({"_error": {"code": code, "message": error, "exit_code": null}});
        checkpoint.outputs.insert(at.node.clone(), output);
        let event = EngineEvent::NodeRecovery {
            code: code.to_owned(),
            reason: String::from("step_failed"),
            attempt: at.attempt,
            delay_ms: None,
            error: Some(error),
        };
        self.emit(&event, Some(at)).await?;
        self.save(&checkpoint).await?;
        self.open = None;
        self.stop_if_asked(at).await
    }

    async fn pause(&mut self, at: &At, questions: Map<String, Value>) -> Result<()> {
        self.capture(&at.boundary(Phase::Pause)).await?;
        self.save_versioning().await?;
        match questions.is_empty() {
            true => self.park(at).await,
            false => self.ask(at, self.redactor.object(questions)).await,
        }
    }

    async fn ask(&mut self, at: &At, questions: Map<String, Value>) -> Result<()> {
        let runs = self.runs().clone();
        let (run, node) = (self.run.id().clone(), NodeId::new(at.node.as_str())?);
        let known = runs.interactions(&run).await?;
        let mut n = 0;
        let id = loop {
            let id = interaction_id(&run, &node, at.iteration, n)?;
            if known.iter().all(|there| there.id != id) {
                break id;
            }
            n += 1;
        };
        let questions = Value::Object(questions);
        runs.ask(&run, &id, &node, questions.clone(), None).await?;
        let event = EngineEvent::HumanInputRequested {
            interaction_id: id.to_string(),
            questions: questions.clone(),
            review: None,
            instructions: None,
            posture: None,
            verdict: None,
            turn: None,
            turns: None,
        };
        self.emit(&event, Some(at)).await?;
        self.emit(&EngineEvent::RunPaused { reason: None }, Some(at)).await?;
        let pointer = PausePointer { interaction_id: id.to_string(), questions: Some(questions) };
        let change = Transition::new(Status::PausedWaitingHuman, Actor::Engine, [Status::Running]);
        self.stop(change.asking(pointer)).await
    }

    async fn park(&mut self, at: &At) -> Result<()> {
        let reason = Some(String::from("operator"));
        self.emit(&EngineEvent::RunPaused { reason }, Some(at)).await?;
        self.stop(Transition::new(Status::PausedOperator, Actor::Engine, [Status::Running])).await
    }

    /// Nothing of the run executes any more.
    async fn stop(&mut self, change: Transition) -> Result<()> {
        let runs = self.runs().clone();
        runs.transition(&mut self.run, &change).await?;
        self.open = None;
        self.release();
        Ok(())
    }

    /// Obeys a person who asked to cancel or to park the run while the step went on.
    async fn stop_if_asked(&mut self, at: &At) -> Result<()> {
        self.run = self.runs().load(self.run.id()).await?;
        let record = &self.run.record;
        if *record.status() != Status::Running {
            return Ok(());
        }
        if record.cancel_requested_at().is_some() {
            let reason = record.cancel_reason().map(str::to_owned);
            return self.finish(End::cancelled(reason)).await.map(drop);
        }
        if record.pause_requested_at().is_some() {
            self.alias(&at.boundary(Phase::Pause), false).await?;
            return self.park(at).await;
        }
        Ok(())
    }
}

fn spent<T: Default>(before: Option<T>, more: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    match more {
        Some(more) => Some(add(before.unwrap_or_default(), more)),
        None => before,
    }
}
