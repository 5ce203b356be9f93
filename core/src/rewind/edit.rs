//! What a rewind does to a run's record, worked out before anything is changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::choose::Choice;
use super::source::Workflow;
use super::target::Boundaries;
use crate::error::Result;
use crate::ids::{InteractionId, NodeId};
use crate::run::{Checkpoint, Run, RunRecord, RunStore};
use crate::workflow::graph::Graph;

/// Where a record keeps the runs that its nodes started: key → run.
pub(super) const CHILD_RUNS: &str = "child_runs";
/// Members of a checkpoint by node that belong to an execution of it.
const BY_NODE: [&str; 3] = ["sessions", "conversations", "conversation_state"];

/// A new version that says that the older ones were taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tombstone {
    pub(super) node: NodeId,
    pub(super) version: u64,
    pub(super) supersedes: u64,
}

/// The changes of a record.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// Invalidated nodes that held outputs.
    pub(super) dropped: Vec<String>,
    pub(super) tombstones: Vec<Tombstone>,
    pub(super) retired: Vec<InteractionId>,
    /// Keys of child runs that are let go, not cancelled.
    pub(super) released: Vec<String>,
    checkpoint: Checkpoint,
    drop_pointer: bool,
}

impl Edit {
    /// Works it out; `None` for a record that stays as it is.
    pub(super) async fn of(
        runs: &RunStore,
        run: &Run,
        workflow: Option<&Workflow>,
        boundaries: &Boundaries,
        choice: &Choice,
    ) -> Result<Option<Self>> {
        let Some(saved) = run.record.checkpoint() else { return Ok(None) };
        if !super::open::may_be_rewound(run.status()) {
            return Ok(None);
        }
        let invalidated = invalidated(workflow, boundaries, choice);
        let is_out = |node: &str| invalidated.contains(node);
        let mut dropped: Vec<String> =
            saved.outputs.keys().filter(|n| is_out(n)).cloned().collect();
        dropped.sort_unstable();
        let tombstones = tombstones(runs, run, saved, &dropped).await?;
        let open = runs.interactions(run.id()).await?.into_iter().filter(|i| {
            is_out(i.node_id.as_str()) && i.answered_at.is_none() && i.retired_at.is_none()
        });
        let retired: Vec<InteractionId> = open.map(|i| i.id).collect();
        let asked = saved.interaction_id.as_deref();
        let drop_pointer = is_out(&saved.node_id)
            || asked.is_some_and(|id| retired.iter().any(|r| r.as_str() == id));
        let released = released(&run.record, &invalidated);
        let checkpoint = edited(saved, boundaries, choice, &invalidated, &tombstones);
        Ok(Some(Self { dropped, tombstones, retired, released, checkpoint, drop_pointer }))
    }

    /// Makes the changes. The caller saw the record under the run's lock.
    pub(super) fn apply(&self, record: &mut RunRecord) {
        if let Some(checkpoint) = record.checkpoint_mut() {
            let asked = (checkpoint.interaction_id.take(), checkpoint.interaction_questions.take());
            *checkpoint = self.checkpoint.clone();
            (checkpoint.interaction_id, checkpoint.interaction_questions) = asked;
        }
        if self.drop_pointer {
            record.drop_pause_pointer();
        }
        if !self.tombstones.is_empty() {
            let index = record.artifact_index.get_or_insert_default();
            index.extend(self.tombstones.iter().map(|t| (t.node.to_string(), t.version)));
        }
        if let Some(Value::Object(children)) = record.extra.get_mut(CHILD_RUNS) {
            children.retain(|key, _| !self.released.contains(key));
        }
    }
}

/// The pivot and all nodes reached from it that cannot reach it. Without a workflow: those
/// that were entered after it.
fn invalidated(
    workflow: Option<&Workflow>,
    boundaries: &Boundaries,
    choice: &Choice,
) -> BTreeSet<String> {
    let pivot = &choice.node;
    let mut out = BTreeSet::from([pivot.clone()]);
    if let Some(workflow) = workflow {
        let graph = Graph::new(&workflow.definition);
        if let Some(number) = graph.number(pivot) {
            let below = graph.reached(&[number], None);
            let back = graph.leading_to(&[number], None);
            let gone = (0..below.len()).filter(|n| below[*n] && !back[*n]);
            out.extend(gone.map(|n| graph.id(n).to_owned()));
        }
        return out;
    }
    let labels = &boundaries.refs.refs.labels;
    let from = choice.entry.as_ref().and_then(|e| labels.get(&e.label)).map(|t| t.at.as_str());
    if let Some(from) = from {
        let later = labels.iter().filter(|(_, t)| t.at.as_str() > from);
        out.extend(later.filter_map(|(l, _)| crate::snapshot::label::Boundary::parse(l)?.node));
    }
    out
}

async fn tombstones(
    runs: &RunStore,
    run: &Run,
    saved: &Checkpoint,
    dropped: &[String],
) -> Result<Vec<Tombstone>> {
    let stored = runs.artifact_versions(run.id()).await?;
    let mut out = Vec::new();
    for node in dropped {
        let Ok(node) = NodeId::new(node.as_str()) else { continue };
        let Some(latest) = stored.get(&node).and_then(|versions| versions.last().copied()) else {
            continue;
        };
        let next = saved.artifact_versions.get(node.as_str()).copied().unwrap_or(0);
        out.push(Tombstone { node, version: next.max(latest + 1), supersedes: latest });
    }
    Ok(out)
}

/// Links whose key is an invalidated node, alone or followed by `@` or `#`.
fn released(record: &RunRecord, invalidated: &BTreeSet<String>) -> Vec<String> {
    let Some(Value::Object(children)) = record.extra.get(CHILD_RUNS) else { return Vec::new() };
    let node = |key: &str| key.split(['@', '#']).next().unwrap_or_default().to_owned();
    let mut keys: Vec<String> =
        children.keys().filter(|key| invalidated.contains(&node(key))).cloned().collect();
    keys.sort_unstable();
    keys
}

fn edited(
    saved: &Checkpoint,
    boundaries: &Boundaries,
    choice: &Choice,
    invalidated: &BTreeSet<String>,
    tombstones: &[Tombstone],
) -> Checkpoint {
    let mut next = saved.clone();
    next.node_id.clone_from(&choice.node);
    next.current = None;
    next.parallel = None;
    for node in invalidated {
        next.outputs.remove(node);
        next.node_attempts.remove(node);
        let named = boundaries.newest_iteration(node).map_or(0, |i| i + 1);
        if named > 0 || next.node_visits.contains_key(node) {
            let visits = next.node_visits.entry(node.clone()).or_default();
            *visits = (*visits).max(named);
        }
        for member in BY_NODE {
            if let Some(Value::Object(map)) = next.extra.get_mut(member) {
                map.remove(node);
            }
        }
    }
    // The pivot is entered the way it was; the others anew.
    if let Some(Value::Object(incoming)) = &mut next.selected_incoming {
        incoming.retain(|node, _| *node == choice.node || !invalidated.contains(node));
    }
    for t in tombstones {
        next.artifact_versions.insert(t.node.to_string(), t.version + 1);
    }
    next
}

/// What a tombstone says.
pub(super) fn tombstone_data(t: &Tombstone, to: &str, at: &str) -> Value {
    let explanation =
        format!("the run was rewound to {to}: what version {} says was taken back", t.supersedes);
    let mut data: Map<String, Value> = Map::new();
    data.insert("_rewound".into(), true.into());
    data.insert("_rewound_to".into(), to.into());
    data.insert("_supersedes".into(), t.supersedes.into());
    data.insert("_rewound_at".into(), at.into());
    data.insert("_explanation".into(), explanation.into());
    Value::Object(data)
}

/// Node → its new latest version, for the event.
pub(super) fn tombstoned(tombstones: &[Tombstone]) -> BTreeMap<String, u64> {
    tombstones.iter().map(|t| (t.node.to_string(), t.version)).collect()
}
