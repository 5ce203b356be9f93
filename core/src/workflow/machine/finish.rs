//! How an attempt ends: success with an output, another try, a failure edge, or the end.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::edges::Choice;
use super::node::finished;
use super::state::{Phase, Stopping, json_len};
use super::{Action, Attempt, Failure, Line, Machine, Outcome};
use crate::process::Reported;
use crate::run::{EngineEvent, FailureCode, MAX_OUTPUT_BYTES, Status};
use crate::snapshot::label::Phase as BoundaryPhase;
use crate::workflow::file::definition::{CheckpointMode, Kind, Node, On, Retry};

/// A node that ran shorter need not wait for its checkpoint.
const LONG: Duration = Duration::from_millis(50);

impl Machine {
    /// An execution ended.
    pub(super) fn execution_ended(&mut self, attempt: &Attempt, outcome: Outcome) {
        let running = |p| matches!(p, Phase::Running(_));
        let Some(line) = self.line_of(attempt, running) else { return };
        let stopped = matches!(outcome, Outcome::Stopped);
        let closing = line != Line::Main && self.state.fan.as_ref().is_some_and(|f| f.closing);
        let halted = self.state.stopping.as_ref().is_some_and(|s| !matches!(s, Stopping::Pause(_)));
        if halted {
            // a requested stop outranks whatever the dying node reports
            self.lane_mut(line).phase = Phase::Ready;
            return self.stop_when_idle();
        }
        if closing && (stopped || !matches!(outcome, Outcome::Succeeded(_))) {
            return self.branch_stopped(line);
        }
        let Some(node) = self.node(line) else { return };
        match outcome {
            Outcome::Succeeded(reported) => match &node.kind {
                Kind::Review(spec) => self.companion_spoke(&node, spec, &reported),
                _ => self.reported(line, &node, &reported),
            },
            Outcome::Failed { code, message, exit_code } => {
                self.failed(line, Failure { code, message, exit_code });
            }
            Outcome::TimedOut { after } => {
                let text = format!("it took longer than {after:?}");
                self.failed(line, Failure::new(FailureCode::TIMEOUT, text));
            }
            Outcome::Asked(question) => self.execution_asked(line, &node, &question),
            Outcome::Stopped => {
                let text = "it was stopped from outside";
                self.failed(line, Failure::new(FailureCode::EXECUTION_FAILED, text));
            }
        }
    }

    /// The output of a command: what it spent, then as any output.
    fn reported(&mut self, line: Line, node: &Node, reported: &Reported) {
        self.spend(reported);
        match own_output(reported) {
            Ok(output) => {
                self.completed(line, node, output, reported.tokens, reported.cost_usd);
            }
            Err(failure) => self.failed(line, failure),
        }
    }

    /// What a command reported as spent.
    pub(super) fn spend(&mut self, reported: &Reported) {
        let Reported { tokens, cost_usd: cost, .. } = *reported;
        let spent = &mut self.state.spent;
        spent.tokens = spent.tokens.saturating_add(tokens.unwrap_or(0));
        spent.cost += cost.unwrap_or(0.0);
        let unpriced = tokens.is_some_and(|t| t > 0) && cost.is_none();
        if unpriced && self.budget.cost_usd.is_some() && !spent.unpriced {
            spent.unpriced = true;
            self.state.fired.insert(String::from("unpriced"));
            let text = "a node reports tokens without a cost: the cost limit cannot count them";
            self.push(Action::Warn(text.to_owned()));
        }
    }

    /// A node without a command succeeded.
    pub(super) fn succeeded(&mut self, line: Line, node: &Node, output: Map<String, Value>) {
        self.completed(line, node, output, None, None);
    }

    fn completed(
        &mut self,
        line: Line,
        node: &Node,
        output: Map<String, Value>,
        tokens: Option<u64>,
        cost_usd: Option<f64>,
    ) {
        if let Err(failure) = check_output(node, &output) {
            return self.failed(line, failure);
        }
        let output = Value::Object(output);
        if !self.state.keep_output(&node.id.value, output.clone()) {
            let text = "the outputs of all nodes together are too large for a checkpoint";
            return self.failed(line, Failure::new(FailureCode::SCHEMA_VALIDATION, text));
        }
        if line == Line::Main {
            self.post(&node.kind);
        }
        self.publish(line, node, &output);
        let mut event = finished(Some(output));
        if let EngineEvent::NodeFinished { tokens: t, cost_usd: c, .. } = &mut event {
            (*t, *c) = (tokens, cost_usd);
        }
        self.emit(Some(line), event);
        match self.is_parallel(&node.id.value) {
            true => self.joined(node),
            false => match self.choose(line, On::Success) {
                Ok(Choice::Edge(number)) => self.leave(line, node, number),
                Ok(Choice::Nothing(failure)) | Err(failure) => self.stuck(line, failure),
            },
        }
    }

    /// Nodes that executed something are captured, the others point at what is there.
    fn post(&mut self, kind: &Kind) {
        let boundary = self.here(BoundaryPhase::Post);
        let executed = match kind {
            Kind::Run(_) | Kind::Parallel(_) => true,
            Kind::Review(spec) => spec.companion.is_some(),
            _ => false,
        };
        if executed { self.capture(boundary) } else { self.alias(boundary) }
    }

    fn publish(&mut self, line: Line, node: &Node, output: &Value) {
        let Some(publish) = &node.publish else { return };
        let id = &node.id.value;
        let next = self.state.versions.entry(id.clone()).or_insert(0);
        let version = *next;
        *next = next.saturating_add(1);
        self.state.artifacts.insert(id.clone(), output.clone());
        self.push(Action::WriteArtifact {
            node: id.clone(),
            version,
            publish: publish.clone(),
            data: output.clone(),
        });
        self.emit(Some(line), EngineEvent::ArtifactWritten { publish: publish.clone(), version });
    }

    /// A router chose.
    pub(super) fn router_finished(&mut self, line: Line, number: usize) {
        let Some(node) = self.node(line) else { return };
        let route = self.definition.edges[number].route().to_owned();
        let output = json!({ "route": route });
        self.state.keep_output(&node.id.value, output.clone());
        if line == Line::Main {
            self.post(&node.kind);
        }
        self.publish(line, &node, &output);
        let mut event = finished(Some(output));
        if let EngineEvent::NodeFinished { selected_route, .. } = &mut event {
            *selected_route = Some(route);
        }
        self.emit(Some(line), event);
        self.leave(line, &node, number);
    }

    /// Leaves a node by an edge, with the checkpoint that says so.
    fn leave(&mut self, line: Line, node: &Node, number: usize) {
        let wait = self.must_wait(line, node);
        self.take(line, number);
        self.arrived(line, wait);
    }

    /// The fan-out is complete: on to its join.
    fn joined(&mut self, node: &Node) {
        let wait = self.must_wait(Line::Main, node);
        self.state.fan = None;
        self.take_join(&node.id.value);
        self.arrived(Line::Main, wait);
    }

    fn must_wait(&self, line: Line, node: &Node) -> bool {
        let long = match self.lane(line).phase {
            Phase::Running(since) => self.active.saturating_sub(since) >= LONG,
            _ => true,
        };
        long || node.publish.is_some() || self.definition.checkpoint == CheckpointMode::Each
    }

    /// A line stands at its next node: save that, and go on.
    pub(super) fn arrived(&mut self, line: Line, wait: bool) {
        let spent = self.check_budget();
        if line != Line::Main {
            return self.branch_arrived(line, wait);
        }
        self.save(wait);
        if self.state.stopping.is_some() {
            self.stop_when_idle();
        } else if spent || self.state.exhausted {
            self.out_of_budget(line);
        } else {
            self.push(Action::Continue);
        }
    }

    /// An attempt failed: another try, a failure edge, or the end of the line.
    pub(super) fn failed(&mut self, line: Line, failure: Failure) {
        if self.retry(line, &failure) {
            return;
        }
        let Attempt { node, attempt, .. } = self.attempt(line);
        self.state.retries.remove(&node);
        let error = json!({
            "code": failure.code, "message": failure.message, "exit_code": failure.exit_code,
        });
        self.state.keep_output(&node, json!({ "_error": error }));
        if line == Line::Main {
            self.capture(self.here(BoundaryPhase::Fail));
        }
        let choice = match self.choose(line, On::Failure) {
            Ok(choice) => choice,
            Err(other) => return self.fail_line(line, other),
        };
        match choice {
            Choice::Edge(number) => {
                let event = EngineEvent::NodeRecovery {
                    code: failure.code,
                    reason: String::from("failure_edge"),
                    attempt,
                    delay_ms: None,
                    error: Some(failure.message),
                };
                self.emit(Some(line), event);
                if line == Line::Main {
                    self.state.fan = None;
                }
                self.take(line, number);
                self.arrived(line, true);
            }
            Choice::Nothing(spent) if spent.code == FailureCode::LOOP_EXHAUSTED => {
                let message = format!("{}; {}: {}", spent.message, failure.code, failure.message);
                self.fail_line(line, Failure { message, ..spent });
            }
            Choice::Nothing(_) => self.fail_line(line, failure),
        }
    }

    /// Plans another try when the node allows one after this failure.
    fn retry(&mut self, line: Line, failure: &Failure) -> bool {
        let retry = match self.node(line).map(|n| n.kind) {
            Some(Kind::Run(spec)) => spec.retry,
            Some(Kind::Review(spec)) => spec.companion.map(|c| c.retry).unwrap_or_default(),
            _ => return false,
        };
        let Attempt { node, iteration, attempt } = self.attempt(line);
        let tried = self.state.retries.get(&node).map_or(0, |codes| codes.values().sum());
        if tried >= u64::from(retry.max) || !applies(&retry, failure) {
            return false;
        }
        if self.check_budget() {
            self.out_of_budget(line);
            return true;
        }
        let length = pause(&retry, tried);
        let codes = self.state.retries.entry(node.clone()).or_default();
        *codes.entry(failure.code.clone()).or_insert(0) += 1;
        let event = EngineEvent::NodeRecovery {
            code: failure.code.clone(),
            reason: String::from("retry"),
            attempt,
            delay_ms: Some(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
            error: Some(failure.message.clone()),
        };
        self.emit(Some(line), event);
        let lane = self.lane_mut(line);
        lane.at = Some((iteration, attempt.saturating_add(1)));
        lane.phase = Phase::Delayed;
        self.save(false);
        if self.state.stopping.is_some() {
            self.stop_when_idle();
        } else {
            self.push(Action::Delay { attempt: self.attempt(line), length });
        }
        true
    }

    /// The node succeeded, but no way leads on.
    fn stuck(&mut self, line: Line, failure: Failure) {
        if line == Line::Main {
            // nothing was executed since `post:`, but people may edit from here on
            self.alias(self.here(BoundaryPhase::Fail));
        }
        self.fail_line(line, failure);
    }

    /// The end of a line: of the run, or of a branch.
    pub(super) fn fail_line(&mut self, line: Line, failure: Failure) {
        if line != Line::Main {
            return self.branch_failed(line, failure);
        }
        let event = EngineEvent::RunFailed {
            error: failure.message.clone(),
            code: failure.code.clone(),
            resumable: Some(true),
        };
        self.emit(Some(Line::Main), event);
        self.end(Status::FailedResumable, Some(failure), None);
    }
}

/// Whether a node is tried again after this failure.
fn applies(retry: &Retry, failure: &Failure) -> bool {
    retry.on.iter().any(|on| match on.as_str() {
        "exit" => failure.code == FailureCode::EXECUTION_FAILED && failure.exit_code.is_some(),
        "timeout" => failure.code == FailureCode::TIMEOUT,
        code => failure.code == code,
    })
}

/// The pause before the next try: growing, up to the longest.
fn pause(retry: &Retry, tried: u64) -> Duration {
    let factor = retry.factor.powi(i32::try_from(tried).unwrap_or(i32::MAX));
    let seconds = retry.delay.as_secs_f64() * factor;
    Duration::try_from_secs_f64(seconds).unwrap_or(retry.max_delay).min(retry.max_delay)
}

/// The output without what the budget is fed with. No other key may begin with `_`.
pub(super) fn own_output(reported: &Reported) -> Result<Map<String, Value>, Failure> {
    let mut output = reported.object.clone();
    output.remove("_tokens");
    output.remove("_cost_usd");
    match output.keys().find(|k| k.starts_with('_')) {
        Some(key) => {
            let text = format!("key {key:?} of the output is reserved");
            Err(Failure::new(FailureCode::SCHEMA_VALIDATION, text))
        }
        None => Ok(output),
    }
}

/// An output against its node's schema and the limit of size.
fn check_output(node: &Node, output: &Map<String, Value>) -> Result<(), Failure> {
    let wrong = |text: String| Err(Failure::new(FailureCode::SCHEMA_VALIDATION, text));
    for (field, spec) in &node.output_schema {
        match output.get(field) {
            None if spec.required => return wrong(format!("the output lacks the field {field:?}")),
            Some(value) if !spec.value_type.accepts(value) => {
                let wanted = spec.value_type.as_str();
                return wrong(format!("field {field:?} of the output is not of type {wanted}"));
            }
            _ => {}
        }
    }
    let len = json_len(&Value::Object(output.clone()));
    if len > MAX_OUTPUT_BYTES {
        return wrong(format!("the output has {len} bytes, at most {MAX_OUTPUT_BYTES} are kept"));
    }
    Ok(())
}
