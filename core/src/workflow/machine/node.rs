//! Entering nodes, and beginning attempts.

use serde_json::{Value, json};

use super::state::Phase;
use super::{Action, Attempt, Failure, Line, Machine, object};
use crate::run::{EngineEvent, FailureCode, Status};
use crate::snapshot::label::Phase as BoundaryPhase;
use crate::workflow::file::definition::{Kind, Node, Templated};
use crate::workflow::template;

impl Machine {
    /// Whatever is ready goes on.
    pub(super) fn go_on(&mut self) {
        if self.state.stopping.is_some() {
            return self.stop_when_idle();
        }
        match self.state.main.phase {
            Phase::Ready => self.enter(Line::Main),
            Phase::Branching => self.pump(),
            _ => {}
        }
    }

    /// A new entry into the node that the line stands at.
    pub(super) fn enter(&mut self, line: Line) {
        if self.state.exhausted || self.check_budget() {
            return self.out_of_budget(line);
        }
        let id = self.lane(line).node.clone();
        if !self.definition.nodes.contains_key(&id) {
            let failure =
                Failure::new(FailureCode::NODE_NOT_FOUND, format!("there is no node {id:?}"));
            return self.fail_line(line, failure);
        }
        self.count_entry_of(line);
        if line == Line::Main {
            let boundary = self.here(BoundaryPhase::Pre);
            if std::mem::replace(&mut self.state.captured, true) {
                self.alias(boundary);
            } else {
                self.push(Action::Capture { boundary, must: true });
            }
        }
        self.try_node(line);
    }

    /// Counts an entry of the run's own line into the node it stands at.
    pub(super) fn count_entry(&mut self) {
        self.count_entry_of(Line::Main);
    }

    fn count_entry_of(&mut self, line: Line) {
        let id = self.lane(line).node.clone();
        let iteration = self.next_iteration(&id);
        self.state.visits.insert(id.clone(), iteration.saturating_add(1));
        self.state.retries.remove(&id);
        self.lane_mut(line).at = Some((iteration, 1));
        if line == Line::Main {
            self.state.turns.clear();
            self.state.last = Some((id, iteration));
        }
    }

    /// The number of the next entry into a node. A record of another engine counts no
    /// visits: there the loops that hold the node tell how often it was entered.
    fn next_iteration(&self, id: &str) -> u64 {
        if let Some(next) = self.state.visits.get(id) {
            return *next;
        }
        if !self.state.visits.is_empty() {
            return 0;
        }
        let holding = self.bodies.iter().filter(|(_, body)| body.contains(id));
        holding.filter_map(|(name, _)| self.state.loops.get(name)).copied().max().unwrap_or(0)
    }

    /// The present attempt of the present iteration.
    pub(super) fn try_node(&mut self, line: Line) {
        let Some(node) = self.node(line) else { return };
        let Attempt { iteration, attempt, .. } = self.attempt(line);
        self.state.spent.executions = self.state.spent.executions.saturating_add(1);
        self.lane_mut(line).phase = Phase::Running(self.active);
        let kind = node.kind.as_str().to_owned();
        self.emit(Some(line), EngineEvent::NodeStarted { kind, iteration, attempt });
        match &node.kind {
            Kind::Run(spec) => match self.execution(line, &node, spec) {
                Ok(execution) => {
                    if line != Line::Main {
                        // no boundary tells later that this entry was counted
                        self.save(true);
                    }
                    self.push(Action::Start(Box::new(execution)));
                }
                Err(failure) => self.failed(line, failure),
            },
            Kind::Human(spec) => self.ask_person(&node, spec),
            Kind::Router(route) => self.route(line, route.as_ref()),
            Kind::Compute(set) => match self.with_scope(line, |s| template::build(set, s)) {
                Ok(values) => self.succeeded(line, &node, object(values)),
                Err(failure) => self.failed(line, failure),
            },
            Kind::Done { .. } => self.done(&node),
            Kind::Fail { .. } => self.fail_node(&node),
            Kind::Review(spec) => self.begin_round(&node, spec),
            Kind::Parallel(spec) => self.fan_out(spec),
        }
    }

    fn done(&mut self, node: &Node) {
        let Kind::Done { output, message } = &node.kind else { return };
        let built = self.with_scope(Line::Main, |scope| {
            let output = output.as_ref().map(|o| template::build(o, scope)).transpose()?;
            let message =
                message.as_ref().map(|m| template::render(m, scope, template::Mode::Plain));
            Ok((output, message.transpose()?))
        });
        let (output, message) = match built {
            Ok(built) => built,
            Err(failure) => return self.failed(Line::Main, failure),
        };
        let mut result = output.clone().map(object).unwrap_or_default();
        if let Some(message) = message {
            result.entry("message").or_insert(Value::from(message));
        }
        self.alias(self.here(BoundaryPhase::Post));
        self.emit(Some(Line::Main), finished(output));
        self.emit(None, EngineEvent::RunFinished { reason: None });
        let result = (!result.is_empty()).then_some(Value::Object(result));
        self.end(Status::Finished, None, result);
    }

    fn fail_node(&mut self, node: &Node) {
        let Kind::Fail { message, code } = &node.kind else { return };
        let rendered = self.with_scope(Line::Main, |scope| {
            let text = message.as_ref().map(|m| template::render(m, scope, template::Mode::Plain));
            text.transpose()
        });
        let message = match rendered {
            Ok(message) => {
                message.unwrap_or_else(|| format!("node {:?} was reached", node.id.value))
            }
            Err(failure) => return self.failed(Line::Main, failure),
        };
        let code = code.as_deref().unwrap_or(FailureCode::FAIL_NODE);
        self.alias(self.here(BoundaryPhase::Post));
        self.emit(Some(Line::Main), finished(None));
        self.alias(self.here(BoundaryPhase::Fail));
        let event = EngineEvent::RunFailed {
            error: message.clone(),
            code: code.to_owned(),
            resumable: Some(false),
        };
        self.emit(Some(Line::Main), event);
        self.end(Status::Failed, Some(Failure::new(code, message)), None);
    }

    /// The pause before a retry is over.
    pub(super) fn delay_over(&mut self, attempt: &Attempt) {
        let Some(line) = self.line_of(attempt, |p| p == Phase::Delayed) else { return };
        if self.state.stopping.is_some() {
            return self.stop_when_idle();
        }
        if self.state.exhausted || self.check_budget() {
            return self.out_of_budget(line);
        }
        self.try_node(line);
    }

    /// The capture without which nothing is protected failed: nothing was executed.
    pub(super) fn capture_refused(&mut self, error: &str) {
        if self.state.returning {
            // the run stays as it was: a later capture would mix a person's edits with its own
            self.push(Action::End);
            self.state.ended = true;
            return;
        }
        let event = EngineEvent::RunFailed {
            error: error.to_owned(),
            code: FailureCode::WORKSPACE_SAFETY.to_owned(),
            resumable: Some(true),
        };
        self.emit(Some(Line::Main), event);
        let failure = Failure::new(FailureCode::WORKSPACE_SAFETY, error);
        self.end(Status::FailedResumable, Some(failure), None);
    }

    /// The object handed to a node: its `input`, or the empty one.
    pub(super) fn node_input(&self, line: Line, node: &Node) -> Result<Value, Failure> {
        match &node.input {
            Some(input @ Templated::Map(_)) => self.with_scope(line, |s| template::build(input, s)),
            _ => Ok(json!({})),
        }
    }
}

/// `node_finished` with an output and nothing else.
pub(super) fn finished(output: Option<Value>) -> EngineEvent {
    EngineEvent::NodeFinished {
        output,
        tokens: None,
        cost_usd: None,
        selected_route: None,
        reasoning: None,
        snapshot: None,
    }
}
