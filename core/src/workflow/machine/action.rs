//! What the machine asks its dispatcher to do, in this order and completely.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::process::{Background, Command};
use crate::run::{Checkpoint, EngineEvent, Status};
use crate::snapshot::label::Boundary;
use crate::workflow::file::definition::OutputMode;

/// A thing to do. The actions of one step are done in order; one that waits (a capture, a
/// write) is complete before the next begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Capture the workspace under this boundary.
    Capture {
        /// The boundary.
        boundary: Boundary,
        /// When it fails, nothing that follows in this step is done, and the machine is fed
        /// [`Input::CaptureRefused`](super::Input::CaptureRefused), unless the run's capture
        /// mode lets it go on. A resume that is refused so leaves the run as it was.
        must: bool,
    },
    /// Point this boundary at the run's newest snapshot; capture when the last one failed.
    Alias {
        /// The boundary.
        boundary: Boundary,
        /// An existing label stays where it is.
        keep: bool,
    },
    /// Execute a command; answer with [`Input::Ended`](super::Input::Ended).
    Start(Box<Execution>),
    /// Begin the stop sequence of an execution; its `Ended` still comes.
    Stop {
        /// Which.
        execution: Attempt,
        /// Skip the grace.
        force: bool,
    },
    /// Append an event.
    Emit(Box<Emission>),
    /// Write an artifact.
    WriteArtifact {
        /// The node.
        node: String,
        /// Its version; the next free one when it exists.
        version: u64,
        /// The name under which it is published.
        publish: String,
        /// Its data.
        data: Value,
    },
    /// Create an interaction, or replace it, with the answers that it names or none.
    WriteInteraction(Interaction),
    /// Save the checkpoint.
    SaveCheckpoint {
        /// The checkpoint.
        checkpoint: Box<Checkpoint>,
        /// Wait for it before the next action.
        wait: bool,
    },
    /// Move the run to a status, in one write with its checkpoint.
    SetStatus {
        /// The status.
        status: Status,
        /// Why, for the failed ones and cancelled.
        failure: Option<Failure>,
        /// The output of `done`, with its `message`.
        result: Option<Value>,
        /// The checkpoint.
        checkpoint: Box<Checkpoint>,
    },
    /// Feed [`Input::DelayOver`](super::Input::DelayOver) after this time.
    Delay {
        /// Which attempt waits.
        attempt: Attempt,
        /// How long.
        length: Duration,
    },
    /// Feed [`Input::Clock`](super::Input::Clock) when this process has been active for this
    /// long.
    WakeAt(Duration),
    /// Tell the person, and note it in the run's warnings.
    Warn(String),
    /// Feed [`Input::Continue`](super::Input::Continue), after whatever else has arrived.
    Continue,
    /// The machine is done with; nothing more is fed.
    End,
}

/// One try of one entry into a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// The node.
    pub node: String,
    /// The entry into it, from 0.
    pub iteration: u64,
    /// The try inside it, from 1.
    pub attempt: u64,
}

/// What is executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// Which try this is.
    pub attempt: Attempt,
    /// The branch, in a fan-out.
    pub branch: Option<String>,
    /// Equal over attempts and resumes: `<run>:<node>:<iteration>`.
    pub execution_id: String,
    /// The program, every template filled in.
    pub command: Command,
    /// Where, relative to the workspace.
    pub cwd: Option<String>,
    /// Environment of the file and of the node.
    pub env: BTreeMap<String, String>,
    /// Secrets to add to it.
    pub secrets: Vec<String>,
    /// Standard input.
    pub stdin: String,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Between TERM and KILL; the setting's value without one.
    pub grace: Option<Duration>,
    /// Exit codes of success.
    pub success_codes: Vec<u8>,
    /// Where its output comes from.
    pub output: OutputMode,
    /// What happens to processes left behind.
    pub background: Background,
    /// The content of `BACKTRAIL_INPUT`.
    pub input: Value,
    /// The content of `BACKTRAIL_ANSWERS`.
    pub answers: Map<String, Value>,
}

/// An event and what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Emission {
    /// The event. The dispatcher adds `snapshot` to `node_finished`.
    pub event: EngineEvent,
    /// The node, unless it concerns the run.
    pub node: Option<String>,
    /// The branch, in a fan-out.
    pub branch: Option<String>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Interaction {
    /// Its id.
    pub id: String,
    /// The node.
    pub node: String,
    /// What is shown.
    pub questions: Map<String, Value>,
    /// What is asked for.
    pub answer_schema: Value,
    /// The rounds of a review so far.
    pub turns: Vec<Turn>,
    /// The answers, when they are there.
    pub answers: Option<Map<String, Value>>,
}

/// A turn of a review.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// `companion` or `human`.
    pub role: String,
    /// What was said.
    pub content: String,
    /// What was decided.
    pub verdict: Option<Value>,
}

/// Why a run or a node failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The failure code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// The exit code of the process, when one ended.
    pub exit_code: Option<i32>,
}

impl Failure {
    /// A failure without a process.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), exit_code: None }
    }
}
