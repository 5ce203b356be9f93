//! What the machine remembers, and how it becomes a checkpoint and comes back from one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::action::{Failure, Turn};
use crate::run::{Branch, Checkpoint, Current, Parallel};
use crate::workflow::file::definition::{Definition, Kind, Strategy};

/// Where a line of execution stands: the run's own, or that of a branch.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// The branch; none for the run's own line.
    pub(super) branch: Option<String>,
    /// The node.
    pub(super) node: String,
    /// Its iteration and attempt, once it was entered.
    pub(super) at: Option<(u64, u64)>,
    pub(super) phase: Phase,
    /// Why it ended badly.
    pub(super) error: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A branch that has not begun.
    Waiting,
    /// The node is to be entered.
    Ready,
    /// The node executes since then.
    Running(Duration),
    /// A retry is waited for.
    Delayed,
    /// The branches of the node execute.
    Branching,
    /// Nothing more happens here.
    Over,
}

impl Lane {
    pub(super) fn new(branch: Option<String>, node: &str, phase: Phase) -> Self {
        Self { branch, node: node.to_owned(), at: None, phase, error: None }
    }
}

/// A fan-out.
#[derive(Clone, Debug, Default)]
pub(super) struct Fan {
    pub(super) lanes: Vec<Lane>,
    /// The others are being stopped.
    pub(super) closing: bool,
}

/// Why the run stops before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    Pause(Option<String>),
    Budget,
    Interrupt(String),
    Cancel(Option<String>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Spent {
    pub(super) tokens: u64,
    pub(super) cost: f64,
    pub(super) executions: u64,
    /// Active time of earlier processes.
    pub(super) before: Duration,
    /// Some node reported tokens without a cost.
    pub(super) unpriced: bool,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) main: Lane,
    pub(super) fan: Option<Fan>,
    pub(super) vars: Map<String, Value>,
    pub(super) inputs: Map<String, Value>,
    pub(super) outputs: Map<String, Value>,
    /// The size of each output, as JSON.
    pub(super) sizes: BTreeMap<String, usize>,
    pub(super) loops: BTreeMap<String, u64>,
    pub(super) visits: BTreeMap<String, u64>,
    pub(super) retries: BTreeMap<String, BTreeMap<String, u64>>,
    pub(super) incoming: BTreeMap<String, String>,
    pub(super) artifacts: Map<String, Value>,
    pub(super) versions: BTreeMap<String, u64>,
    pub(super) branches: Map<String, Value>,
    pub(super) fired: BTreeSet<String>,
    pub(super) spent: Spent,
    /// Answers of earlier interactions.
    pub(super) answered: Map<String, Value>,
    pub(super) turns: Vec<Turn>,
    pub(super) next_gate: u64,
    /// The node entered last.
    pub(super) last: Option<(String, u64)>,
    /// A snapshot of this run exists.
    pub(super) captured: bool,
    pub(super) stopping: Option<Stopping>,
    /// The budget is spent: no node is entered any more.
    pub(super) exhausted: bool,
    pub(super) ended: bool,
    /// It was resumed, and nothing has happened since.
    pub(super) returning: bool,
}

impl State {
    /// Before the first node.
    pub(super) fn new(definition: &Definition) -> Self {
        Self {
            main: Lane::new(None, &definition.entry.value, Phase::Ready),
            fan: None,
            vars: definition.vars.clone().into_iter().collect(),
            inputs: Map::new(),
            outputs: Map::new(),
            sizes: BTreeMap::new(),
            loops: BTreeMap::new(),
            visits: BTreeMap::new(),
            retries: BTreeMap::new(),
            incoming: BTreeMap::new(),
            artifacts: Map::new(),
            versions: BTreeMap::new(),
            branches: Map::new(),
            fired: BTreeSet::new(),
            spent: Spent::default(),
            answered: Map::new(),
            turns: Vec::new(),
            next_gate: 0,
            last: None,
            captured: false,
            stopping: None,
            exhausted: false,
            ended: false,
            returning: false,
        }
    }

    /// As a checkpoint says.
    pub(super) fn from_checkpoint(definition: &Definition, saved: &Checkpoint) -> Self {
        let mut state = Self::new(definition);
        state.main.node.clone_from(&saved.node_id);
        state.main.at = saved.current.as_ref().map(|c| (c.iteration, c.attempt));
        if !saved.vars.is_empty() {
            state.vars.clone_from(&saved.vars);
        }
        state.outputs.clone_from(&saved.outputs);
        state.sizes =
            saved.outputs.iter().map(|(node, out)| (node.clone(), json_len(out))).collect();
        state.loops.clone_from(&saved.loop_counters);
        state.visits.clone_from(&saved.node_visits);
        if let Some((iteration, _)) = state.main.at {
            // found by a label after a crash, it may be ahead of what was counted
            let next = state.visits.entry(saved.node_id.clone()).or_insert(0);
            *next = (*next).max(iteration.saturating_add(1));
        }
        state.retries.clone_from(&saved.node_attempts);
        state.versions.clone_from(&saved.artifact_versions);
        state.incoming = texts(saved.selected_incoming.as_ref());
        let fired = saved.fired_events.as_ref().and_then(Value::as_array);
        state.fired =
            fired.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        state.spent = Spent {
            tokens: saved.budget_tokens_used.unwrap_or(0),
            cost: saved.budget_cost_usd.unwrap_or(0.0),
            executions: saved.budget_iterations_used.unwrap_or(0),
            before: Duration::from_nanos(saved.budget_elapsed_ns.unwrap_or(0)),
            unpriced: state.fired.contains("unpriced"),
        };
        for (node, _) in
            definition.nodes.iter().filter(|(_, n)| matches!(n.kind, Kind::Parallel(_)))
        {
            let joined = state.outputs.get(node).and_then(|o| o.get("branches")?.as_object());
            state.branches.extend(joined.cloned().into_iter().flatten());
        }
        state.last = state.main.at.map(|(iteration, _)| (saved.node_id.clone(), iteration));
        state
    }

    /// As a checkpoint. `active` is the active time of this process.
    pub(super) fn checkpoint(&self, active: Duration) -> Checkpoint {
        let elapsed = self.spent.before.saturating_add(active).as_nanos();
        let fired: Vec<&String> = self.fired.iter().collect();
        Checkpoint {
            node_id: self.main.node.clone(),
            outputs: self.outputs.clone(),
            vars: self.vars.clone(),
            loop_counters: self.loops.clone(),
            artifact_versions: self.versions.clone(),
            current: self.main.at.map(|(iteration, attempt)| Current {
                iteration,
                attempt,
                ..Current::default()
            }),
            node_visits: self.visits.clone(),
            node_attempts: self.retries.clone(),
            selected_incoming: (!self.incoming.is_empty()).then(|| json!(self.incoming)),
            fired_events: (!fired.is_empty()).then(|| json!(fired)),
            budget_tokens_used: Some(self.spent.tokens),
            budget_cost_usd: Some(self.spent.cost),
            budget_iterations_used: Some(self.spent.executions),
            budget_elapsed_ns: Some(u64::try_from(elapsed).unwrap_or(u64::MAX)),
            parallel: self.fan.as_ref().map(|fan| self.parallel(fan)),
            ..Checkpoint::default()
        }
    }

    fn parallel(&self, fan: &Fan) -> Parallel {
        let branch = |lane: &Lane| Branch {
            branch_id: lane.branch.clone().unwrap_or_default(),
            start_node_id: lane.branch.clone().unwrap_or_default(),
            current_node_id: lane.node.clone(),
            completed: lane.phase == Phase::Over && lane.error.is_none(),
            error: lane.error.as_ref().map(|e| format!("{}: {}", e.code, e.message)),
            ..Branch::default()
        };
        Parallel {
            router_node_id: self.main.node.clone(),
            branches: fan.lanes.iter().map(branch).collect(),
            ..Parallel::default()
        }
    }

    /// The fan-out of a checkpoint: branches that ended stay ended, the others go on where
    /// they were. A failed one goes on as well, unless its failure was only noted.
    pub(super) fn fan_again(saved: &Parallel, strategy: Strategy) -> Fan {
        let lane = |branch: &Branch| {
            let mut lane = Lane::new(
                Some(branch.start_node_id.clone()),
                &branch.current_node_id,
                Phase::Waiting,
            );
            let noted = strategy == Strategy::BestEffort && branch.error.is_some();
            if branch.completed || noted {
                lane.phase = Phase::Over;
                lane.error = branch.error.as_ref().map(|e| {
                    let (code, message) = e.split_once(": ").unwrap_or(("", e));
                    Failure::new(code, message)
                });
            }
            lane
        };
        Fan { lanes: saved.branches.iter().map(lane).collect(), closing: false }
    }

    /// Keeps an output. False when all of them no longer fit a checkpoint.
    pub(super) fn keep_output(&mut self, node: &str, output: Value) -> bool {
        self.sizes.insert(node.to_owned(), json_len(&output));
        self.outputs.insert(node.to_owned(), output);
        self.sizes.values().sum::<usize>() <= MAX_CHECKPOINT
    }
}

/// What all outputs together may have, so that a run document stays below 8 MiB.
pub(super) const MAX_CHECKPOINT: usize = 7 << 20;

pub(super) fn json_len(value: &Value) -> usize {
    value.to_string().len()
}

fn texts(map: Option<&Value>) -> BTreeMap<String, String> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}
