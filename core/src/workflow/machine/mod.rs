//! The engine of a run as a pure machine: what happened goes in, what is to be done comes
//! out. It reads no clock and touches nothing; the dispatcher does what it says.
//!
//! The run's own line stands at one node; in a fan-out each branch has a line of its own.
//! Instant nodes take one step each ([`Action::Continue`]), so that a cancel is seen between
//! them.

mod action;
mod budget;
mod edges;
mod execution;
mod fan;
mod finish;
mod input;
mod node;
mod person;
mod resume;
mod review;
mod state;
mod stop;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use action::{Action, Attempt, Emission, Execution, Failure, Interaction, Turn};
pub use input::{Input, Limits, Outcome, Refusal, Resume, RunInfo, Start};

use super::file::definition::{Budget, Definition, Kind, Node};
use super::graph;
use super::template::{ExpressionError, Scope};
use crate::run::{Checkpoint, EngineEvent, FailureCode, Status};
use crate::snapshot::label::{Boundary, Phase as BoundaryPhase};
use state::{Lane, Phase, State, Stopping};

/// A run of a workflow.
#[derive(Debug)]
pub struct Machine {
    definition: Arc<Definition>,
    /// Node → the numbers of its edges, in file order.
    leaving: BTreeMap<String, Vec<usize>>,
    bodies: BTreeMap<String, BTreeSet<String>>,
    budget: Budget,
    run: RunInfo,
    run_json: Value,
    state: State,
    /// Active time of this process.
    active: Duration,
    out: Vec<Action>,
}

/// A line of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Main,
    Branch(usize),
}

impl Machine {
    fn new(definition: Arc<Definition>, run: RunInfo, limits: &Limits, state: State) -> Self {
        let mut leaving: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, edge) in definition.edges.iter().enumerate() {
            leaving.entry(edge.from.value.clone()).or_default().push(number);
        }
        let bodies = graph::loop_bodies(&definition);
        let mut budget = definition.budget.clone();
        budget.duration = limits.duration.or(budget.duration);
        budget.iterations = limits.iterations.unwrap_or(budget.iterations);
        budget.tokens = limits.tokens.or(budget.tokens);
        budget.cost_usd = limits.cost_usd.or(budget.cost_usd);
        let run_json = json!({ "id": run.id, "name": run.name, "workspace": run.workspace });
        Self {
            definition,
            leaving,
            bodies,
            budget,
            run,
            run_json,
            state,
            active: Duration::ZERO,
            out: Vec::new(),
        }
    }

    /// A new run, and what to do first. The definition has been checked: see
    /// [`check`](super::check::check).
    pub fn start(definition: Arc<Definition>, start: Start) -> (Self, Vec<Action>) {
        let mut state = State::new(&definition);
        state.vars.extend(start.vars);
        state.inputs = start.inputs;
        let mut machine = Self::new(definition, start.run, &start.limits, state);
        machine.emit(None, EngineEvent::RunStarted { reason: None });
        machine.wake();
        machine.enter(Line::Main);
        let actions = std::mem::take(&mut machine.out);
        (machine, actions)
    }

    /// The next step: what happened, and for how long this process has been active. What
    /// comes too late, or belongs to nothing that executes, changes nothing.
    pub fn step(&mut self, input: Input, active: Duration) -> Vec<Action> {
        self.active = self.active.max(active);
        if !self.state.ended {
            let refused = matches!(input, Input::CaptureRefused { .. });
            self.state.returning &= refused;
            match input {
                Input::Continue => self.go_on(),
                Input::Ended { attempt, outcome } => self.execution_ended(&attempt, outcome),
                Input::DelayOver(attempt) => self.delay_over(&attempt),
                Input::Clock => self.clock(),
                Input::Cancel { reason } => self.stop(Stopping::Cancel(reason)),
                Input::Pause { reason } => self.stop(Stopping::Pause(reason)),
                Input::Interrupt { reason } => self.stop(Stopping::Interrupt(reason)),
                Input::CaptureRefused { error } => self.capture_refused(&error),
            }
        }
        std::mem::take(&mut self.out)
    }

    /// The checkpoint as it stands.
    pub fn checkpoint(&self) -> Checkpoint {
        self.state.checkpoint(self.active)
    }

    /// True when nothing more comes.
    pub fn is_over(&self) -> bool {
        self.state.ended
    }

    fn lane(&self, line: Line) -> &Lane {
        match (line, &self.state.fan) {
            (Line::Branch(n), Some(fan)) => fan.lanes.get(n).unwrap_or(&self.state.main),
            _ => &self.state.main,
        }
    }

    fn lane_mut(&mut self, line: Line) -> &mut Lane {
        match (line, &mut self.state.fan) {
            (Line::Branch(n), Some(fan)) if n < fan.lanes.len() => &mut fan.lanes[n],
            _ => &mut self.state.main,
        }
    }

    /// The lines, the run's own first.
    fn lines(&self) -> Vec<Line> {
        let branches = self.state.fan.as_ref().map_or(0, |fan| fan.lanes.len());
        std::iter::once(Line::Main).chain((0..branches).map(Line::Branch)).collect()
    }

    fn attempt(&self, line: Line) -> Attempt {
        let lane = self.lane(line);
        let (iteration, attempt) = lane.at.unwrap_or((0, 1));
        Attempt { node: lane.node.clone(), iteration, attempt }
    }

    fn line_of(&self, wanted: &Attempt, phase: impl Fn(Phase) -> bool) -> Option<Line> {
        self.lines().into_iter().find(|line| {
            let lane = self.lane(*line);
            phase(lane.phase) && lane.at.is_some() && self.attempt(*line) == *wanted
        })
    }

    fn running(&self) -> Vec<Attempt> {
        let running = |line: &Line| matches!(self.lane(*line).phase, Phase::Running(_));
        self.lines().iter().filter(|l| running(l)).map(|l| self.attempt(*l)).collect()
    }

    fn node(&self, line: Line) -> Option<Node> {
        self.definition.nodes.get(&self.lane(line).node).cloned()
    }

    fn push(&mut self, action: Action) {
        self.out.push(action);
    }

    /// Emits an event about a line's node, or about the run.
    fn emit(&mut self, line: Option<Line>, event: EngineEvent) {
        let lane = line.map(|l| self.lane(l));
        let node = lane.map(|l| l.node.clone());
        let branch = lane.and_then(|l| l.branch.clone());
        self.push(Action::Emit(Box::new(Emission { event, node, branch })));
    }

    fn boundary(phase: BoundaryPhase, at: &(String, u64), attempt: Option<u64>) -> Boundary {
        let (node, iteration) = at;
        Boundary {
            phase,
            node: Some(node.clone()),
            iteration: Some(*iteration),
            attempt,
            gate: None,
        }
    }

    /// A boundary of the run's own line; fan-outs have none inside.
    fn here(&self, phase: BoundaryPhase) -> Boundary {
        let Attempt { node, iteration, attempt } = self.attempt(Line::Main);
        Self::boundary(phase, &(node, iteration), Some(attempt))
    }

    fn capture(&mut self, boundary: Boundary) {
        self.push(Action::Capture { boundary, must: false });
    }

    fn alias(&mut self, boundary: Boundary) {
        self.push(Action::Alias { boundary, keep: false });
    }

    fn save(&mut self, wait: bool) {
        let checkpoint = Box::new(self.checkpoint());
        self.push(Action::SaveCheckpoint { checkpoint, wait });
    }

    /// The last move: nothing follows it.
    fn end(&mut self, status: Status, failure: Option<Failure>, result: Option<Value>) {
        let checkpoint = Box::new(self.checkpoint());
        self.finish_with(Action::SetStatus { status, failure, result, checkpoint });
    }

    fn finish_with(&mut self, action: Action) {
        self.push(action);
        self.push(Action::End);
        self.state.ended = true;
    }

    /// Evaluates something with the names that a line's node sees.
    fn with_scope<T>(
        &self,
        line: Line,
        evaluate: impl FnOnce(&Scope<'_>) -> Result<T, ExpressionError>,
    ) -> Result<T, Failure> {
        let lane = self.lane(line);
        let at = self.attempt(line);
        let node = json!({ "id": at.node, "iteration": at.iteration, "attempt": at.attempt });
        let from = self.state.incoming.get(&lane.node);
        let last = from.and_then(|from| self.state.outputs.get(from)).unwrap_or(&Value::Null);
        let loops = self.counters();
        let scope = Scope {
            vars: &self.state.vars,
            inputs: &self.state.inputs,
            outputs: &self.state.outputs,
            last,
            loops: &loops,
            run: &self.run_json,
            node: &node,
            artifacts: &self.state.artifacts,
            branches: &self.state.branches,
        };
        evaluate(&scope).map_err(|e| {
            let file = if self.run.file.is_empty() { "workflow" } else { &self.run.file };
            Failure::new(FailureCode::EXPRESSION_FAILED, format!("{file}: {e}"))
        })
    }

    /// Every loop of the file, 0 before it was taken.
    fn counters(&self) -> BTreeMap<String, u64> {
        let zero = self.bodies.keys().map(|name| (name.clone(), 0));
        zero.chain(self.state.loops.clone()).collect()
    }

    /// `last` of a line's node.
    fn last_output(&self, line: Line) -> Value {
        let from = self.state.incoming.get(&self.lane(line).node);
        from.and_then(|from| self.state.outputs.get(from)).cloned().unwrap_or_default()
    }

    fn is_parallel(&self, node: &str) -> bool {
        self.definition.nodes.get(node).is_some_and(|n| matches!(n.kind, Kind::Parallel(_)))
    }
}

/// An object, or the empty one.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
