//! What nodes do: the keys of each kind.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Template, Templated, ValueType};
use crate::process::Background;
use crate::workflow::finding::Spanned;

/// What a node does.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Executes a command.
    Run(Box<RunSpec>),
    /// Asks a person.
    Human(HumanSpec),
    /// Chooses an edge; by the edges' `when` without an expression.
    Router(Option<Template>),
    /// Computes its output.
    Compute(Templated),
    /// Ends the run well.
    Done {
        /// The result.
        output: Option<Templated>,
        /// For people.
        message: Option<Template>,
    },
    /// Ends the run as failed.
    Fail {
        /// Why.
        message: Option<Template>,
        /// The failure code; `FAIL_NODE` without one.
        code: Option<String>,
    },
    /// Rounds of a companion and a person.
    Review(Box<ReviewSpec>),
    /// Branches at once.
    Parallel(ParallelSpec),
}

impl Kind {
    /// The words of a file.
    pub const WORDS: [&'static str; 8] =
        ["run", "human", "router", "compute", "done", "fail", "review", "parallel"];

    /// The word of a file.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Human(_) => "human",
            Self::Router(_) => "router",
            Self::Compute(_) => "compute",
            Self::Done { .. } => "done",
            Self::Fail { .. } => "fail",
            Self::Review(_) => "review",
            Self::Parallel(_) => "parallel",
        }
    }

    /// True for the kinds that end a run.
    pub fn ends(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Fail { .. })
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Text for the shell; templates in it are quoted.
    Shell(Template),
    /// A program and its arguments.
    Argv(Vec<Template>),
}

/// How the output of a command is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputMode {
    /// From the file that `BACKTRAIL_OUTPUT` names.
    #[default]
    File,
    /// Standard output is one JSON object.
    StdoutJson,
    /// Standard output is text: `{"text": …}`.
    StdoutText,
}

/// The keys of a `run` node, and of a companion.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// What is executed.
    pub command: Command,
    /// The shell of a command text.
    pub shell: String,
    /// Where, inside the workspace.
    pub cwd: Option<Template>,
    /// Its environment beside the file's.
    pub env: BTreeMap<String, Template>,
    /// The secrets it is given.
    pub secrets: Vec<Spanned<String>>,
    /// Its standard input.
    pub stdin: Option<Template>,
    /// How long an attempt may take.
    pub timeout: Option<Duration>,
    /// The time between TERM and KILL.
    pub grace: Option<Duration>,
    /// The exit codes of success.
    pub success_codes: Vec<u8>,
    /// How its output is read.
    pub output: OutputMode,
    /// What happens to processes left behind.
    pub background: Background,
    /// When and how often it is tried again.
    pub retry: Retry,
}

/// When and how often a node is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Tries after the first one.
    pub max: u32,
    /// The first pause.
    pub delay: Duration,
    /// What each pause is multiplied by.
    pub factor: f64,
    /// The longest pause.
    pub max_delay: Duration,
    /// After what: failure codes, `exit`, `timeout`.
    pub on: Vec<String>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max: 0,
            delay: Duration::from_secs(1),
            factor: 2.0,
            max_delay: Duration::from_secs(60),
            on: vec!["exit".to_owned(), "timeout".to_owned()],
        }
    }
}

/// The keys of a `human` node.
#[derive(Clone, Debug)]
pub struct HumanSpec {
    /// What is shown.
    pub questions: Vec<(String, Templated)>,
    /// What is asked for; the question keys as text when the file names none.
    pub answers: BTreeMap<String, AnswerSpec>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerSpec {
    /// Its type.
    pub value_type: ValueType,
    /// It must be given.
    pub required: bool,
    /// The values it may have; empty for any.
    pub choices: Vec<Value>,
    /// Its value when it is not given.
    pub default: Option<Value>,
    /// What is shown beside it.
    pub text: Option<String>,
}

impl AnswerSpec {
    /// Text that must be given.
    pub fn text() -> Self {
        Self {
            value_type: ValueType::String,
            required: true,
            choices: Vec::new(),
            default: None,
            text: None,
        }
    }
}

/// Who ends a review.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Posture {
    /// A person.
    #[default]
    Human,
    /// The companion, when it approves without blockers.
    Companion,
}

impl Posture {
    /// The word of a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Companion => "companion",
        }
    }
}

/// The keys of a `review` node.
#[derive(Clone, Debug)]
pub struct ReviewSpec {
    /// What is to be looked at.
    pub instructions: Template,
    /// The command that reviews.
    pub companion: Option<RunSpec>,
    /// Who ends it.
    pub posture: Posture,
    /// How many rounds there may be.
    pub max_turns: u32,
}

/// How branches join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Every branch must succeed.
    #[default]
    All,
    /// The first success ends the others.
    Any,
    /// Failures are noted and the run goes on.
    BestEffort,
}

impl Strategy {
    /// The word of a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::BestEffort => "best_effort",
        }
    }
}

/// The keys of a `parallel` node.
#[derive(Clone, Debug)]
pub struct ParallelSpec {
    /// The first node of each branch.
    pub branches: Vec<Spanned<String>>,
    /// Where the branches meet.
    pub join: Spanned<String>,
    /// How.
    pub strategy: Strategy,
    /// How many branches execute at once.
    pub max_concurrency: usize,
    /// The first failure stops the others (strategy `all`).
    pub fail_fast: bool,
}
