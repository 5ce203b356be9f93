//! What a rewind reports: the result of the verb and the data of its event.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::ids::{InteractionId, RunId, TransactionId};
use crate::path::RelPath;
use crate::plan::{Conflict, ConflictDecision, LeftInPlace, Plan};
use crate::restore::{BankRef, MAX_LISTED, RestoreResult};
use crate::run::Status;

/// The word for a record that goes back.
pub(super) const REWOUND: &str = "rewound";

/// What `--auto` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AutoTarget {
    /// Nodes whose declaration was edited.
    pub nodes: Vec<String>,
    /// The workflow itself was edited.
    pub workflow: bool,
    /// What the comparison cannot see.
    pub note: &'static str,
}

/// What a rewind changes of the run, in its result and in its event.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunPart {
    pub(super) from_node: Option<String>,
    pub(super) to_node: String,
    pub(super) iteration: u64,
    pub(super) transaction: Option<TransactionId>,
    /// `rewound` or `unchanged`.
    pub(super) record: &'static str,
    pub(super) dropped_nodes: Vec<String>,
    /// Node → the version that says it was taken back.
    pub(super) tombstoned_artifacts: BTreeMap<String, u64>,
    pub(super) retired_interactions: Vec<InteractionId>,
    pub(super) orphaned_child_runs: Vec<String>,
    pub(super) promoted_from: Option<String>,
}

impl RunPart {
    /// What changes of the record, for people.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.record != REWOUND {
            return Vec::new();
        }
        let from = self.from_node.as_deref().unwrap_or("-");
        let to = format!("record: from node {from} to {}:{}", self.to_node, self.iteration);
        let version = |(node, version): (&String, &u64)| format!("{node} by version {version}");
        let named: [(&str, Vec<String>); 4] = [
            ("outputs dropped", self.dropped_nodes.clone()),
            ("artifacts superseded", self.tombstoned_artifacts.iter().map(version).collect()),
            (
                "questions not asked any more",
                self.retired_interactions.iter().map(ToString::to_string).collect(),
            ),
            ("child runs let go", self.orphaned_child_runs.clone()),
        ];
        let rows = named.into_iter().filter(|(_, names)| !names.is_empty());
        [to].into_iter()
            .chain(rows.map(|(what, all)| format!("{what}: {}", all.join(", "))))
            .collect()
    }
}

/// What a rewind did with files.
#[derive(Clone, Debug, Serialize)]
pub struct FilesResult {
    /// Files were put back.
    pub reverted: bool,
    /// Why not: `scope-none` or `no-recorded-change`.
    pub skip_reason: Option<&'static str>,
    /// `produced`, `full` or `none`.
    pub restore_scope: &'static str,
    /// Paths in scope; null for all.
    pub scope_count: Option<u64>,
    /// Paths that somebody else changed and that were put back all the same.
    pub overwritten: u64,
    /// Paths that somebody else changed before the run did.
    pub mixed: Vec<RelPath>,
    /// Paths that a snapshot between did not cover, and so are no part of the scope.
    pub uncovered_paths: Vec<RelPath>,
    /// Boundaries after the newest snapshot that could not be captured, and why: what the
    /// run changed behind that snapshot is left in place.
    pub missed_boundaries: BTreeMap<String, String>,
    /// The commit of a worktree.
    pub revert_commit: Option<String>,
    /// The restore itself; absent when there was none to plan.
    #[serde(flatten)]
    pub restore: Option<RestoreResult>,
}

/// The result of a rewind.
#[derive(Clone, Debug, Serialize)]
pub struct RewindResult {
    /// The run.
    pub run_id: RunId,
    /// Where it would go on.
    pub node_id: String,
    /// Its status now.
    pub status: Status,
    /// The node was found by `--auto`.
    pub auto_targeted: bool,
    /// What `--auto` found.
    pub changes: Option<AutoTarget>,
    #[serde(flatten)]
    pub(super) run: RunPart,
    /// The files.
    pub files: FilesResult,
    /// Only shown, not done.
    pub planned: bool,
    /// The exit code.
    pub exit_code: u8,
}

impl RewindResult {
    /// The node that was gone back to.
    pub fn to_node(&self) -> &str {
        &self.run.to_node
    }
    /// The iteration that was gone back to.
    pub fn iteration(&self) -> u64 {
        self.run.iteration
    }
    /// True if the record went back as well.
    pub fn record_rewound(&self) -> bool {
        self.run.record == REWOUND
    }
    /// Nodes whose outputs were dropped.
    pub fn dropped_nodes(&self) -> &[String] {
        &self.run.dropped_nodes
    }
    /// Questions that are not asked any more.
    pub fn retired_interactions(&self) -> &[InteractionId] {
        &self.run.retired_interactions
    }
    /// Keys of child runs that were let go.
    pub fn orphaned_child_runs(&self) -> &[String] {
        &self.run.orphaned_child_runs
    }
    /// What changes of the record, for people.
    pub fn record_lines(&self) -> Vec<String> {
        self.run.lines()
    }
    /// The transaction; `None` when nothing was done.
    pub fn transaction(&self) -> Option<&TransactionId> {
        self.run.transaction.as_ref()
    }
    /// The node inside a fan-out that was asked for.
    pub fn promoted_from(&self) -> Option<&str> {
        self.run.promoted_from.as_deref()
    }
    /// Node → the version that says it was taken back.
    pub fn tombstoned_artifacts(&self) -> &BTreeMap<String, u64> {
        &self.run.tombstoned_artifacts
    }
}

/// What the files of a rewind come to, for its event.
#[derive(Clone, Debug)]
pub(super) struct FilesPart<'a> {
    pub(super) skip_reason: Option<&'static str>,
    pub(super) scope: &'static str,
    pub(super) scope_count: Option<u64>,
    /// The plan and its bank, when files were put back.
    pub(super) done: Option<(&'a Plan, Option<&'a BankRef>)>,
}

/// The data of `run_rewound`. Lists hold at most [`MAX_LISTED`] entries beside a count.
pub(super) fn event(run: &RunPart, files: &FilesPart<'_>) -> Value {
    let Ok(Value::Object(mut data)) = serde_json::to_value(run) else { return Value::Null };
    let mut add = |name: &str, value: Value| {
        data.insert(format!("files_{name}"), value);
    };
    let none = (Vec::new(), Vec::new());
    let (conflicts, left) =
        files.done.map_or((&none.0, &none.1), |(plan, _)| (&plan.conflicts, &plan.left_in_place));
    let taken = overwritten(conflicts);
    add("reverted", files.done.is_some().into());
    add("skip_reason", json!(files.skip_reason));
    add("restore_scope", files.scope.into());
    add("scope_count", json!(files.scope_count));
    add("target", json!(files.done.map(|(plan, _)| &plan.target.snapshot)));
    add("bank", json!(files.done.and_then(|(_, bank)| bank).map(|b| &b.snapshot)));
    add("revert_commit", Value::Null);
    add("overwritten", taken.len().into());
    add("overwritten_paths", json!(first(&taken)));
    add("left_in_place", left.len().into());
    let paths: Vec<&RelPath> = left.iter().map(|l: &LeftInPlace| &l.path).collect();
    add("left_in_place_paths", json!(first(&paths)));
    Value::Object(data)
}

/// Conflicts that were put back all the same.
pub(super) fn overwritten(conflicts: &[Conflict]) -> Vec<&RelPath> {
    let taken = conflicts.iter().filter(|c| c.decision == ConflictDecision::Overwrite);
    taken.map(|c| &c.path).collect()
}

fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(MAX_LISTED)]
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn an_event_without_files_says_so() {
        let run = RunPart {
            from_node: None,
            to_node: "build".into(),
            iteration: 0,
            transaction: None,
            record: "rewound",
            dropped_nodes: Vec::new(),
            tombstoned_artifacts: BTreeMap::new(),
            retired_interactions: Vec::new(),
            orphaned_child_runs: Vec::new(),
            promoted_from: None,
        };
        let skip_reason = Some("scope-none");
        let files = FilesPart { skip_reason, scope: "none", scope_count: Some(0), done: None };
        let data = event(&run, &files);
        assert_eq!(data["files_reverted"], false);
        assert_eq!(data["files_skip_reason"], "scope-none");
        assert_eq!(data["to_node"], "build");
        let map: Map<String, Value> = data.as_object().cloned().unwrap_or_default();
        assert_eq!(map.len(), 21);
    }
}
