//! Going on from a checkpoint, in every status that a run is resumed from.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::state::State;
use super::{Action, Line, Machine, Refusal, Resume};
use crate::run::{Checkpoint, EngineEvent, Status};
use crate::snapshot::label::Phase as BoundaryPhase;
use crate::workflow::answers::{AnswerSchema, check_answers, schema_from_json, text_schema};
use crate::workflow::file::definition::{Definition, Kind};

impl Machine {
    /// A run that goes on, and what to do first; or why it does not, and nothing was changed.
    pub fn resume(
        definition: Arc<Definition>,
        saved: &Checkpoint,
        resume: Resume,
    ) -> Result<(Self, Vec<Action>), Refusal> {
        match resume.status {
            Status::PausedWaitingHuman
            | Status::PausedOperator
            | Status::Cancelled
            | Status::FailedResumable
            | Status::Queued => {}
            other => return Err(Refusal::Status(other)),
        }
        let Some(node) = definition.nodes.get(&saved.node_id) else {
            return Err(Refusal::NodeGone(saved.node_id.clone()));
        };
        let pointer = pointer(saved, &resume)?;
        let answers = match (&pointer, &resume.answers) {
            (Some(_), Some(given)) => {
                let schema = schema(saved, &resume, &node.kind);
                Some(check_answers(&schema, given).map_err(Refusal::BadAnswers)?)
            }
            _ => None,
        };
        let state = restored(&definition, saved, &resume);
        let mut machine = Self::new(definition, resume.run, &resume.limits, state);
        if let Some(refusal) = machine.spent_dimension() {
            return Err(refusal);
        }
        machine.come_back(resume.status, resume.claim, pointer.zip(answers));
        let actions = std::mem::take(&mut machine.out);
        Ok((machine, actions))
    }

    fn come_back(
        &mut self,
        from: Status,
        claim: Option<u64>,
        answered: Option<(String, Map<String, Value>)>,
    ) {
        let running = |m: &mut Self| {
            let checkpoint = Box::new(m.checkpoint());
            let status = Status::Running;
            m.push(Action::SetStatus { status, failure: None, result: None, checkpoint });
        };
        if !self.state.captured {
            running(self);
            self.emit(None, EngineEvent::RunStarted { reason: None });
            self.wake();
            return self.enter(Line::Main);
        }
        let entered = self.state.main.at.is_some();
        if !entered {
            self.count_entry();
        } else if answered.is_none() {
            self.next_attempt();
        }
        self.state.returning = true;
        let boundary = self.here(BoundaryPhase::Resume);
        self.push(Action::Capture { boundary, must: true });
        let boundary = self.here(BoundaryPhase::Pre);
        self.push(Action::Alias { boundary, keep: true });
        running(self);
        let event = EngineEvent::RunResumed {
            resumed_from: Some(from.as_str().to_owned()),
            restart_node: Some(self.state.main.node.clone()),
            from_entry: None,
            claim,
            adopted: None,
        };
        self.emit(None, event);
        self.wake();
        match answered {
            Some((id, answers)) => self.answered(&id, answers),
            None => self.try_node(Line::Main),
        }
    }
}

/// The open question. Fails when a person must answer it first.
fn pointer(saved: &Checkpoint, resume: &Resume) -> Result<Option<String>, Refusal> {
    if !matches!(resume.status, Status::PausedWaitingHuman | Status::Queued) {
        return Ok(None);
    }
    let Some(interaction_id) = saved.interaction_id.clone() else { return Ok(None) };
    if resume.answers.is_some() {
        return Ok(Some(interaction_id));
    }
    let questions = questions(saved);
    Err(Refusal::NeedsAnswers { interaction_id, questions })
}

fn questions(saved: &Checkpoint) -> Map<String, Value> {
    let questions = saved.interaction_questions.as_ref().and_then(Value::as_object);
    questions.cloned().unwrap_or_default()
}

/// What the open question asks for; from its document, else from the node, else text.
fn schema(saved: &Checkpoint, resume: &Resume, kind: &Kind) -> AnswerSchema {
    let kept = resume.answer_schema.as_ref().and_then(|s| schema_from_json(s).ok());
    kept.unwrap_or_else(|| match kind {
        Kind::Human(spec) => spec.answers.clone(),
        Kind::Review(_) => super::review::review_schema(),
        _ => text_schema(questions(saved).keys()),
    })
}

fn restored(definition: &Definition, saved: &Checkpoint, resume: &Resume) -> State {
    let mut state = State::from_checkpoint(definition, saved);
    state.inputs.clone_from(&resume.inputs);
    state.answered.clone_from(&resume.answered);
    state.artifacts.clone_from(&resume.artifacts);
    state.turns.clone_from(&resume.turns);
    state.next_gate = resume.next_gate;
    for (node, next) in &resume.labelled {
        let visit = state.visits.entry(node.clone()).or_insert(0);
        *visit = (*visit).max(*next);
    }
    for (node, next) in &resume.artifact_versions {
        let version = state.versions.entry(node.clone()).or_insert(0);
        *version = (*version).max(*next);
    }
    // a run that was submitted and never executed has no boundary to come back to
    let fresh = saved.node_visits.is_empty()
        && saved.current.is_none()
        && saved.outputs.is_empty()
        && saved.interaction_id.is_none()
        && resume.status == Status::Queued;
    state.captured = !fresh;
    let node = definition.nodes.get(&saved.node_id).map(|n| &n.kind);
    if let (Some(Kind::Parallel(spec)), Some(parallel)) = (node, &saved.parallel) {
        let same = parallel.router_node_id == saved.node_id
            && parallel.branches.len() == spec.branches.len()
            && spec
                .branches
                .iter()
                .all(|b| parallel.branches.iter().any(|saved| saved.start_node_id == b.value));
        if same {
            state.fan = Some(State::fan_again(parallel, spec.strategy));
        }
    }
    state
}
