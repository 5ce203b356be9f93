//! Failure codes: why a run failed, in a word that automation can act on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A failure code. Any text is kept: a code of a later version or of another runtime
/// survives, and is treated as one that waits for a person.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureCode(String);

macro_rules! reserved {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        impl FailureCode {
            $($(#[$doc])* pub const $name: &str = stringify!($name);)*
            /// Codes with a meaning here: a workflow's `fail` node may use none of them.
            pub const RESERVED: &[&str] = &[$(Self::$name),*];
        }
    };
}

reserved! {
    /// The node to execute is not in the workflow.
    NODE_NOT_FOUND,
    /// No edge leads on.
    NO_OUTGOING_EDGE,
    /// Only an edge whose loop is spent would lead on.
    LOOP_EXHAUSTED,
    /// A budget's limit was reached.
    BUDGET_EXCEEDED,
    /// The command failed.
    EXECUTION_FAILED,
    /// The workspace could not be protected.
    WORKSPACE_SAFETY,
    /// A resource could not be put back.
    RESOURCE_RESTORE_FAILED,
    /// A time limit ended it.
    TIMEOUT,
    /// A person cancelled it.
    CANCELLED,
    /// A fan-out did not come together.
    JOIN_FAILED,
    /// The run cannot be resumed as asked.
    RESUME_INVALID,
    /// Scratch files do not exist on this host.
    SCRATCH_NOT_PORTABLE,
    /// Output has the wrong form or is too large.
    SCHEMA_VALIDATION,
    /// A template or a condition failed.
    EXPRESSION_FAILED,
    /// A service asked to slow down.
    RATE_LIMITED,
    /// A service's quota is used up.
    USAGE_LIMIT_BLOCKED,
    /// A model's context is full.
    CONTEXT_LENGTH_EXCEEDED,
    /// A tool failed and may work later.
    TOOL_FAILED_TRANSIENT,
    /// A tool failed and will fail again.
    TOOL_FAILED_PERMANENT,
    /// The network failed and may work later.
    NETWORK_TRANSIENT,
    /// Credentials were refused.
    AUTH_FAILED,
    /// A model cannot be reached.
    MODEL_UNAVAILABLE,
    /// A schema cannot be used.
    SCHEMA_UNUSABLE,
    /// Something asked for is not supported here.
    CAPABILITY_UNSUPPORTED,
    /// The sandbox driver cannot be reached.
    SANDBOX_DRIVER_UNAVAILABLE,
    /// A signal stopped the engine.
    INTERRUPTED,
    /// A `fail` node without a code of its own.
    FAIL_NODE,
    /// The process that executed it is gone.
    PROCESS_ORPHANED,
    /// A queue message has another form than this build reads.
    QUEUE_SCHEMA_MISMATCH,
    /// The message was parked after too many deliveries.
    DLQ_PARKED,
    /// The workflow cannot be loaded.
    IR_UNLOADABLE,
    /// It was never published to a queue.
    LAUNCH_FAILED,
    /// Setting up the sandbox took too long.
    SANDBOX_SETUP_TIMEOUT,
    /// No sandbox was free.
    SANDBOX_CAPACITY,
    /// The run needs a newer engine.
    BOT_REQUIRES_NEWER_ENGINE,
    /// Whether an effect happened is unknown.
    AMBIGUOUS_EFFECT,
}

/// Codes after which automation may try again by itself.
const RETRYABLE: &[&str] = &[
    FailureCode::INTERRUPTED,
    FailureCode::PROCESS_ORPHANED,
    FailureCode::TOOL_FAILED_TRANSIENT,
    FailureCode::NETWORK_TRANSIENT,
    FailureCode::RATE_LIMITED,
    FailureCode::MODEL_UNAVAILABLE,
    FailureCode::SANDBOX_SETUP_TIMEOUT,
    FailureCode::SANDBOX_CAPACITY,
    FailureCode::TIMEOUT,
    FailureCode::EXECUTION_FAILED,
];

impl FailureCode {
    /// A code from text; `None` for the empty text, which means "unknown".
    pub fn new(code: impl Into<String>) -> Option<Self> {
        let code = code.into();
        (!code.is_empty()).then_some(Self(code))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if automation may try again. [`Self::EXECUTION_FAILED`] counts as such only
    /// within the delivery limit of a queue, which the caller knows.
    pub fn is_retryable(&self) -> bool {
        RETRYABLE.contains(&self.0.as_str())
    }

    /// True if the code has a meaning here.
    pub fn is_reserved(&self) -> bool {
        Self::RESERVED.contains(&self.0.as_str())
    }

    /// True for a code that a workflow may make up: `[A-Z][A-Z0-9_]{2,63}`, not reserved.
    ///
    /// ```
    /// use backtrail_core::run::FailureCode;
    /// assert!(FailureCode::is_custom("TESTS_RED"));
    /// assert!(!FailureCode::is_custom("TIMEOUT") && !FailureCode::is_custom("x"));
    /// ```
    pub fn is_custom(code: &str) -> bool {
        (3..=64).contains(&code.len())
            && code.starts_with(|c: char| c.is_ascii_uppercase())
            && code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            && !Self::RESERVED.contains(&code)
    }
}

impl From<&str> for FailureCode {
    fn from(code: &str) -> Self {
        Self(code.to_owned())
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
