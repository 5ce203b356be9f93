//! What a rewind is asked.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::path::RelPath;
use crate::plan::Options;

/// Where a run goes back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pivot {
    /// Before its first node: the whole run is undone.
    #[default]
    Entry,
    /// The entry of a node: its newest iteration that can be put back, or exactly one.
    Node {
        /// The node.
        node: String,
        /// Exactly this iteration.
        iteration: Option<u64>,
    },
    /// A label, or a snapshot at which a node was entered.
    At(String),
    /// The node that was edited in the workflow since.
    Auto,
}

/// Which files are put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindScope {
    /// Those that the run changed.
    Produced,
    /// All.
    Full,
    /// None: only the record.
    None,
}

impl RewindScope {
    /// The word on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produced => "produced",
            Self::Full => "full",
            Self::None => "none",
        }
    }
}

/// Exact and case-sensitive: a near miss must not put back more than was meant.
impl FromStr for RewindScope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Produced, Self::Full, Self::None];
        all.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is no restore scope: produced, full or none"))
        })
    }
}

/// The workflow as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its text.
    pub text: Vec<u8>,
    /// Where it lies, for messages.
    pub name: String,
    /// Where it lies in the workspace: it is neither rewritten nor deleted.
    pub path: Option<RelPath>,
}

/// One rewind.
#[derive(Clone, Debug, Default)]
pub struct RewindRequest {
    /// Where to.
    pub pivot: Pivot,
    /// Which files; `None` is what the run changed, and all in a worktree of its own.
    pub scope: Option<RewindScope>,
    /// The workflow; `None` is the recorded one.
    pub source: Option<Source>,
    /// Choices about conflicts.
    pub options: Options,
    /// Plan only.
    pub dry_run: bool,
    /// Apply only a plan whose digest begins with this.
    pub plan_digest: Option<String>,
    /// Keep setuid and setgid bits even as the superuser.
    pub special_modes: bool,
    /// List every path in the result.
    pub full: bool,
}
