//! What is fed to the machine: everything that happens outside it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::action::{Attempt, Turn};
use crate::process::{Question, Reported};
use crate::run::Status;
use crate::workflow::answers::AnswerProblem;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The actions of the last step are done ([`Action::Continue`](super::Action::Continue)).
    Continue,
    /// An execution ended: its group and pipes are gone.
    Ended {
        /// Which.
        attempt: Attempt,
        /// How.
        outcome: Outcome,
    },
    /// The pause before a retry is over.
    DelayOver(Attempt),
    /// Time passed ([`Action::WakeAt`](super::Action::WakeAt)).
    Clock,
    /// A person cancels the run.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// A person parks the run after the current node.
    Pause {
        /// Why.
        reason: Option<String>,
    },
    /// A signal; the second one skips the grace.
    Interrupt {
        /// Its name.
        reason: String,
    },
    /// A capture that had to succeed failed.
    CaptureRefused {
        /// Why.
        error: String,
    },
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With an exit code of success and an output that could be read, which was redacted.
    Succeeded(Reported),
    /// With another exit code or a signal, or it could not be executed or read.
    Failed {
        /// The failure code: `EXECUTION_FAILED`, `TOOL_FAILED_PERMANENT`, `SCHEMA_VALIDATION` …
        code: String,
        /// What happened.
        message: String,
        /// The exit code, 128+n for a signal; absent when nothing was executed.
        exit_code: Option<i32>,
    },
    /// The time of the attempt was over; it was stopped.
    TimedOut {
        /// The time it had.
        after: Duration,
    },
    /// It asks a person: exit 75 with a question file.
    Asked(Question),
    /// It was stopped because the machine said so.
    Stopped,
}

/// Which run this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunInfo {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its workspace, in path text.
    pub workspace: String,
    /// The workflow file, as messages name it.
    pub file: String,
}

/// Limits that replace those of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Active time.
    pub duration: Option<Duration>,
    /// Node executions.
    pub iterations: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Cost.
    pub cost_usd: Option<f64>,
}

/// What a run is started with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// Which run this is.
    pub run: RunInfo,
    /// Its inputs, checked and with defaults.
    pub inputs: Map<String, Value>,
    /// Variables that replace those of the file.
    pub vars: Map<String, Value>,
    /// Limits that replace those of the file.
    pub limits: Limits,
}

/// What a run is resumed with beside its checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    /// Which run this is.
    pub run: RunInfo,
    /// Its inputs; secret ones were given again.
    pub inputs: Map<String, Value>,
    /// The status it is resumed from.
    pub status: Status,
    /// Limits that replace those of the file, earlier raises included.
    pub limits: Limits,
    /// The claim by which it is resumed.
    pub claim: Option<u64>,
    /// The answers to the open interaction.
    pub answers: Option<Map<String, Value>>,
    /// What the open interaction asks for.
    pub answer_schema: Option<Value>,
    /// The turns of the open interaction.
    pub turns: Vec<Turn>,
    /// The answers of all interactions so far, by id.
    pub answered: Map<String, Value>,
    /// The latest artifact of each node that has one.
    pub artifacts: Map<String, Value>,
    /// The next free version of each node's artifact.
    pub artifact_versions: BTreeMap<String, u64>,
    /// The number of the next gate: one above the highest label.
    pub next_gate: u64,
    /// The next iteration of each node by the labels: after a crash they may be ahead of the
    /// checkpoint, and no iteration is ever given twice.
    pub labelled: BTreeMap<String, u64>,
}

impl Resume {
    /// A resume of a run that was in `status`, with nothing beside.
    pub fn new(run: RunInfo, status: Status) -> Self {
        Self {
            run,
            inputs: Map::new(),
            status,
            limits: Limits::default(),
            claim: None,
            answers: None,
            answer_schema: None,
            turns: Vec::new(),
            answered: Map::new(),
            artifacts: Map::new(),
            artifact_versions: BTreeMap::new(),
            next_gate: 0,
            labelled: BTreeMap::new(),
        }
    }
}

/// Why a run is not resumed. Nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// This status is not resumed from.
    Status(Status),
    /// A person must answer first.
    NeedsAnswers {
        /// The interaction.
        interaction_id: String,
        /// What is asked.
        questions: Map<String, Value>,
    },
    /// The answers do not fit.
    BadAnswers(Vec<AnswerProblem>),
    /// The node of the checkpoint is not in the workflow: `RESUME_INVALID`.
    NodeGone(String),
    /// The budget is spent and no limit was raised.
    BudgetSpent {
        /// `duration`, `iterations`, `tokens` or `cost_usd`.
        dimension: &'static str,
        /// What was used; of a duration in milliseconds.
        used: f64,
        /// The limit.
        limit: f64,
    },
}
