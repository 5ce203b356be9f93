//! A workflow as types: every key of a workflow file, each with its place.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use serde_json::Value;

use crate::workflow::finding::{Span, Spanned};

mod kinds;

pub use kinds::{
    AnswerSpec, Command, HumanSpec, Kind, OutputMode, ParallelSpec, Posture, Retry, ReviewSpec,
    RunSpec, Strategy,
};

/// A whole workflow.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its name.
    pub name: Spanned<String>,
    /// Constants, overridden by `--var`.
    pub vars: BTreeMap<String, Value>,
    /// What a run is given.
    pub inputs: BTreeMap<String, InputSpec>,
    /// Names taken from the engine's environment.
    pub secrets: Vec<Spanned<String>>,
    /// Environment of every command.
    pub env: BTreeMap<String, Template>,
    /// Limits of a run.
    pub budget: Budget,
    /// What happens when a capture fails.
    pub capture: CaptureMode,
    /// When checkpoints are waited for.
    pub checkpoint: CheckpointMode,
    /// Whether the run gets a worktree of its own.
    pub worktree: WorktreeMode,
    /// The node a run begins with.
    pub entry: Spanned<String>,
    /// The nodes by id.
    pub nodes: BTreeMap<String, Node>,
    /// The edges in file order.
    pub edges: Vec<Edge>,
}

/// Text with `{{ }}` in it, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// The text.
    pub text: String,
    /// Its place.
    pub span: Span,
}

/// A value whose texts are templates.
#[derive(Clone, Debug, PartialEq)]
pub enum Templated {
    /// Nothing, true, false or a number.
    Constant(Value),
    /// A template.
    Text(Template),
    /// A list.
    List(Vec<Templated>),
    /// A map, in file order.
    Map(Vec<(String, Templated)>),
}

/// The type of an input, an answer or a field of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Text.
    String,
    /// A whole number.
    Int,
    /// A number.
    Number,
    /// True or false.
    Bool,
    /// Anything.
    Json,
}

impl ValueType {
    /// The words of a file, in order.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("string", Self::String),
        ("int", Self::Int),
        ("number", Self::Number),
        ("bool", Self::Bool),
        ("json", Self::Json),
    ];

    /// The word of a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Int => "int",
            Self::Number => "number",
            Self::Bool => "bool",
            Self::Json => "json",
        }
    }

    /// True when `value` is of this type. A number without a fraction is whole.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Int => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Bool => value.is_boolean(),
            Self::Json => true,
        }
    }
}

/// An input that a run is given.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Its type.
    pub value_type: ValueType,
    /// A run without it is refused.
    pub required: bool,
    /// Its value when it is not given.
    pub default: Option<Value>,
    /// The values it may have; empty for any.
    pub choices: Vec<Value>,
    /// Redacted wherever it would be stored.
    pub secret: bool,
    /// For people.
    pub description: Option<String>,
    /// The place of its name.
    pub span: Span,
}

/// The limits of a run; an absent one does not exist, but for `iterations`.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Active time.
    pub duration: Option<Duration>,
    /// Node executions.
    pub iterations: u64,
    /// Tokens that nodes report.
    pub tokens: Option<u64>,
    /// Cost that nodes report.
    pub cost_usd: Option<f64>,
    /// The share of a limit at which it is warned of.
    pub warn_at: f64,
    /// How often `duration` may have passed before a running node is stopped.
    pub hard: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            duration: None,
            iterations: 10_000,
            tokens: None,
            cost_usd: None,
            warn_at: 0.8,
            hard: 1.1,
        }
    }
}

/// What happens when a capture fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// The run does not start.
    #[default]
    Required,
    /// The run goes on and says so.
    BestEffort,
    /// Nothing is captured.
    Off,
}

/// When checkpoints are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointMode {
    /// After nodes that took time.
    #[default]
    Auto,
    /// After each node.
    Each,
}

/// Whether the run gets a worktree of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorktreeMode {
    /// It works where it is started.
    #[default]
    None,
    /// It gets one in a git repository.
    Auto,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id, with the place of the key.
    pub id: Spanned<String>,
    /// For people.
    pub description: Option<String>,
    /// The object handed over.
    pub input: Option<Templated>,
    /// The name under which its output becomes an artifact.
    pub publish: Option<String>,
    /// The fields its output must have.
    pub output_schema: BTreeMap<String, FieldSpec>,
    /// What it does.
    pub kind: Kind,
}

/// A field of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// Its type.
    pub value_type: ValueType,
    /// The output must have it.
    pub required: bool,
}

/// After what an edge is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// The node succeeded.
    #[default]
    Success,
    /// Its last attempt failed.
    Failure,
}

/// An edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where it begins.
    pub from: Spanned<String>,
    /// Where it leads.
    pub to: Spanned<String>,
    /// The condition; always taken without one.
    pub when: Option<Template>,
    /// After what.
    pub on: On,
    /// Its name for a router.
    pub alias: Option<Spanned<String>>,
    /// The counter it is counted by, and how often it may be taken.
    pub repeat: Option<Repeat>,
    /// Its place.
    pub span: Span,
}

/// The loop of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The counter.
    pub name: Spanned<String>,
    /// How often the edges of this counter are taken.
    pub max: u32,
}

impl Edge {
    /// The name a router may use: its own, else the node it leads to.
    pub fn route(&self) -> &str {
        self.alias.as_ref().map_or(&self.to.value, |a| &a.value)
    }
}

/// A declaration as text, without the places it stands at: equal for two that differ in
/// those alone.
pub fn shape(declared: &impl Debug) -> String {
    let text = format!("{declared:?}");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("Span { ") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once('}').map_or("", |(_, behind)| behind);
    }
    out.push_str(rest);
    out
}
