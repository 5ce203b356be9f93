//! How a drive ended.

use serde::Serialize;
use serde_json::Value;

use crate::ids::SnapshotId;
use crate::run::{FailureCode, Run, Status};
use crate::snapshot::coverage::Record;
use crate::snapshot::doc::Delta;

/// How a drive ended. Serializes as the JSON of `run`, the exit code apart.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The run.
    pub run_id: String,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub status: Status,
    /// Why it failed, in a word.
    pub failure_code: Option<FailureCode>,
    /// Why it failed.
    pub error: Option<String>,
    /// The exit code of the command that ended last, 128+n for a signal.
    pub child_exit: Option<i32>,
    /// The output of `done`.
    pub result: Option<Value>,
    /// The question that it waits for.
    pub interaction: Option<String>,
    /// What is asked.
    pub questions: Option<Value>,
    /// The first snapshot of the run.
    pub first_snapshot: Option<SnapshotId>,
    /// The newest.
    pub last_snapshot: Option<SnapshotId>,
    /// What differs between the two.
    pub changes: Delta,
    /// Whether everything was captured.
    pub coverage: Coverage,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// How long this process executed it.
    pub active_ms: u64,
    /// The signal that stopped it.
    #[serde(skip)]
    pub signal: Option<String>,
}

/// Whether everything was captured.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    /// Every boundary was captured, and nothing is missing but what is expected to be.
    pub complete: bool,
    /// What the newest snapshot does not hold.
    pub not_covered: Vec<Record>,
    /// Boundaries that were not captured.
    pub missed: Vec<String>,
}

impl Report {
    /// The part that the record says.
    pub(super) fn of(run: &Run) -> Self {
        let record = &run.record;
        let pointer = record.checkpoint();
        Self {
            run_id: run.id().to_string(),
            name: record.name.clone(),
            status: record.status().clone(),
            failure_code: record.failure_code().cloned(),
            error: record.error().map(str::to_owned),
            child_exit: None,
            result: record.result.clone(),
            interaction: pointer.and_then(|c| c.interaction_id.clone()),
            questions: pointer.and_then(|c| c.interaction_questions.clone()),
            first_snapshot: None,
            last_snapshot: None,
            changes: Delta::default(),
            coverage: Coverage { complete: true, not_covered: Vec::new(), missed: Vec::new() },
            warnings: Vec::new(),
            active_ms: 0,
            signal: None,
        }
    }
}
