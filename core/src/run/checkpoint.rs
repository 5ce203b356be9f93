//! The checkpoint of a run: the only authority for a resume. Events are never replayed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::code::FailureCode;
use crate::error::{Error, Result};

/// The largest output of a node, as JSON: 1 MiB.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// Marks an attempt that ended while its run went on.
const CLOSED: &str = "closed";

/// Which iteration and attempt of `node_id` is being executed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Current {
    /// The entry into the node, from 0.
    pub iteration: u64,
    /// The attempt inside it, from 1.
    pub attempt: u64,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How far one branch of a fan-out is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// The branch: its start node's id.
    pub branch_id: String,
    /// Where it began.
    pub start_node_id: String,
    /// The node it executes next.
    pub current_node_id: String,
    /// It reached the join.
    #[serde(default)]
    pub completed: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A fan-out in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parallel {
    /// The parallel node.
    pub router_node_id: String,
    /// Its branches.
    #[serde(default)]
    pub branches: Vec<Branch>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a run needs to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checkpoint {
    /// The node that a resume executes.
    pub node_id: String,
    /// The pause pointer: the question that the run waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interaction_id: Option<String>,
    /// The questions themselves, so that a resume works when their document is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interaction_questions: Option<Value>,
    /// Node → output of its latest execution.
    pub outputs: Map<String, Value>,
    /// Resolved variables.
    pub vars: Map<String, Value>,
    /// Loop → how often its edges were taken.
    pub loop_counters: BTreeMap<String, u64>,
    /// Node → the next artifact version, not the latest.
    pub artifact_versions: BTreeMap<String, u64>,
    /// Iteration and attempt of `node_id` once it was entered; absent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Current>,
    /// Node → its next iteration.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_visits: BTreeMap<String, u64>,
    /// Node → failure code → how often.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_attempts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Node → the edge by which it was entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_incoming: Option<Value>,
    /// Events that come once a run and were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fired_events: Option<Value>,
    /// Tokens spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_tokens_used: Option<u64>,
    /// US dollars spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_cost_usd: Option<f64>,
    /// Node executions spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_iterations_used: Option<u64>,
    /// Active time spent, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_elapsed_ns: Option<u64>,
    /// The fan-out in progress, when `node_id` is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Parallel>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Checkpoint {
    /// The checkpoint of a run that has executed nothing: it stands before `node`.
    pub fn at(node: impl Into<String>) -> Self {
        Self { node_id: node.into(), ..Self::default() }
    }

    /// Iteration and attempt that execute now, when the run is running: none between two
    /// nodes, and none behind an attempt of an external run that failed.
    pub fn executing(&self) -> Option<&Current> {
        self.current.as_ref().filter(|current| !current.extra.contains_key(CLOSED))
    }

    /// The attempt has ended, and its node not: the next attempt goes on from here.
    pub(crate) fn close_attempt(&mut self) {
        if let Some(current) = &mut self.current {
            current.extra.insert(CLOSED.to_owned(), true.into());
        }
    }

    /// Takes the pause pointer away.
    pub(super) fn strip_pointer(&mut self) {
        self.interaction_id = None;
        self.interaction_questions = None;
    }

    /// Takes over the pause pointer of `other` unless this checkpoint names one itself.
    pub(super) fn keep_pointer_of(&mut self, other: &Self) {
        if self.interaction_id.is_none() {
            self.interaction_id.clone_from(&other.interaction_id);
            self.interaction_questions.clone_from(&other.interaction_questions);
        }
    }

    /// Fails with `schema-validation`, saying how large, when an output is above
    /// [`MAX_OUTPUT_BYTES`].
    pub fn check(&self) -> Result<()> {
        for (node, output) in &self.outputs {
            let len = output.to_string().len();
            if len > MAX_OUTPUT_BYTES {
                return Err(too_large(
                    &format!("the output of node {node}"),
                    len,
                    MAX_OUTPUT_BYTES,
                ));
            }
        }
        Ok(())
    }
}

/// The error of a checkpoint that would not fit; the failure code is in its details.
pub(super) fn too_large(what: &str, len: usize, limit: usize) -> Error {
    Error::invalid(format!("{what} has {len} bytes, above the limit of {limit}"))
        .with_code("schema-validation")
        .with_detail("failure_code", FailureCode::SCHEMA_VALIDATION)
}
