//! The events that our engine emits, typed: nobody else may append them.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The events of our engine with their data. Absent optional values are left out.
///
/// Those about a node want [`super::NewEvent::node`] as well: all but run started, paused,
/// finished, resumed and interrupted, and `edge_selected`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
#[expect(missing_docs, reason = "names and keys are those of docs/format.md")]
pub enum EngineEvent {
    RunStarted {
        reason: Option<String>,
    },
    RunPaused {
        reason: Option<String>,
    },
    RunFinished {
        reason: Option<String>,
    },
    BranchStarted {},
    BranchFinished {
        error: Option<String>,
        join_node: Option<String>,
    },
    NodeStarted {
        kind: String,
        iteration: u64,
        attempt: u64,
    },
    NodeFinished {
        output: Option<Value>,
        #[serde(rename = "_tokens")]
        tokens: Option<u64>,
        #[serde(rename = "_cost_usd")]
        cost_usd: Option<f64>,
        selected_route: Option<String>,
        reasoning: Option<String>,
        snapshot: Option<String>,
    },
    NodeRecovery {
        code: String,
        reason: String,
        attempt: u64,
        delay_ms: Option<u64>,
        error: Option<String>,
    },
    ArtifactWritten {
        publish: String,
        version: u64,
    },
    HumanInputRequested {
        interaction_id: String,
        questions: Value,
        review: Option<bool>,
        instructions: Option<String>,
        posture: Option<String>,
        verdict: Option<Value>,
        turn: Option<u64>,
        turns: Option<Value>,
    },
    HumanAnswersRecorded {
        interaction_id: String,
        answers: Value,
    },
    RunResumed {
        resumed_from: Option<String>,
        restart_node: Option<String>,
        from_entry: Option<bool>,
        claim: Option<u64>,
        adopted: Option<bool>,
    },
    ReviewTurn {
        role: String,
        turn: u64,
    },
    ReviewVerdict {
        decision: String,
        confidence: Option<f64>,
        blockers: Option<Vec<String>>,
    },
    JoinReady {
        strategy: String,
        failed_branches: Option<Vec<String>>,
    },
    EdgeSelected {
        from: String,
        to: String,
        condition: Option<String>,
        negated: Option<bool>,
        #[serde(rename = "loop")]
        loop_name: Option<String>,
        iteration: Option<u64>,
        expression: Option<String>,
    },
    BudgetWarning {
        dimension: String,
        used: Value,
        limit: Value,
    },
    BudgetExceeded {
        dimension: String,
        used: Value,
        limit: Value,
        hard_limit: Option<Value>,
    },
    RunFailed {
        error: String,
        code: String,
        resumable: Option<bool>,
    },
    RunCancelled {
        reason: Option<String>,
    },
    RunInterrupted {
        reason: Option<String>,
    },
    CaptureFailed {
        label: String,
        error: String,
    },
    CaptureOverflow {
        limit: u64,
        count: u64,
    },
    LogTruncated {
        limit: u64,
    },
    ChildrenKilled {
        count: u64,
        commands: Vec<String>,
    },
    /// A rewind moved the run back.
    RunRewound(Map<String, Value>),
    /// A worktree was made for the run.
    WorktreeCreated(Map<String, Value>),
    /// The worktree was given up early.
    WorktreeReclaimed(Map<String, Value>),
    /// The worktree is gone.
    WorktreeRemoved(Map<String, Value>),
    /// A workspace checkpoint was made.
    #[serde(rename = "workspace.checkpoint.created")]
    WorkspaceCheckpointCreated(Map<String, Value>),
    /// Bytes of the run log were reserved and never stored.
    RunLogHole(Map<String, Value>),
}

impl EngineEvent {
    /// Type and data.
    pub(super) fn parts(&self) -> (String, Map<String, Value>) {
        let value = serde_json::to_value(self).unwrap_or_else(|_| json!({}));
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut data = match value {
            Value::Object(mut map) => match map.remove("data") {
                Some(Value::Object(data)) => data,
                _ => Map::new(),
            },
            _ => Map::new(),
        };
        data.retain(|_, value| !value.is_null());
        (kind, data)
    }
}

/// The types of [`EngineEvent`] but for those below `workspace.checkpoint.`.
const ENGINE_TYPES: &[&str] = &[
    "run_started",
    "run_paused",
    "run_finished",
    "branch_started",
    "branch_finished",
    "node_started",
    "node_finished",
    "node_recovery",
    "artifact_written",
    "human_input_requested",
    "human_answers_recorded",
    "run_resumed",
    "review_turn",
    "review_verdict",
    "join_ready",
    "edge_selected",
    "budget_warning",
    "budget_exceeded",
    "run_failed",
    "run_cancelled",
    "run_interrupted",
    "capture_failed",
    "capture_overflow",
    "log_truncated",
    "children_killed",
    "run_rewound",
    "worktree_created",
    "worktree_reclaimed",
    "worktree_removed",
    "run_log_hole",
];

/// True for the types that only our engine emits.
pub fn is_engine_type(kind: &str) -> bool {
    kind.starts_with("workspace.checkpoint.") || ENGINE_TYPES.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::super::event::NewEvent;
    use super::*;

    fn samples() -> Vec<EngineEvent> {
        let map = Map::new();
        vec![
            EngineEvent::RunStarted { reason: None },
            EngineEvent::BranchStarted {},
            EngineEvent::NodeStarted { kind: "run".into(), iteration: 0, attempt: 1 },
            EngineEvent::LogTruncated { limit: 1 },
            EngineEvent::WorkspaceCheckpointCreated(map.clone()),
            EngineEvent::RunRewound(map.clone()),
            EngineEvent::RunLogHole(map),
        ]
    }

    #[test]
    fn what_the_engine_emits_nobody_else_may() {
        for event in samples() {
            let kind = NewEvent::engine(&event).kind().to_owned();
            assert!(is_engine_type(&kind), "{kind}");
            let e = NewEvent::foreign(kind, Map::new()).expect_err("refused");
            assert_eq!(e.code(), "engine-event");
        }
        assert!(NewEvent::foreign("tool_called", Map::new()).is_ok());
        assert!(NewEvent::foreign("", Map::new()).is_err());
    }
}
