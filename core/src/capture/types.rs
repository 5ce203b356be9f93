//! What a capture is asked and what it answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Serialize;

use super::kept::Kept;
use crate::error::Result;
use crate::ids::{Chain, SnapshotId};
use crate::observe::{self, Warning};
use crate::path::RelPath;
use crate::snapshot::coverage::{Coverage, Record};
use crate::snapshot::doc::{BankNote, Counts, Delta, Snapshot, Workspace};
use crate::snapshot::label::{Boundary, Label};
use crate::workspace::Root;
use crate::workspace::cache::StatCache;

/// Asked once the workspace lock is held: fails with `recovery-needed` when a restore
/// of this workspace was cut short.
pub type Check = Arc<dyn for<'a> Fn(&'a Root) -> BoxFuture<'a, Result<()>> + Send + Sync>;

/// How a recorder works.
#[derive(Clone)]
pub struct Settings {
    /// How to look at the workspace.
    pub observe: observe::Settings,
    /// The longest wait for a lock.
    pub wait: Duration,
    /// Where the stat cache lives; `None`: no cache.
    pub cache_dir: Option<PathBuf>,
    /// The command, for the messages of others who wait.
    pub command: String,
    /// Looks for an unfinished restore.
    pub check: Option<Check>,
    /// Shared by captures that follow each other in one process.
    pub kept: Option<Kept>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            observe: observe::Settings::default(),
            wait: Duration::from_secs(30),
            cache_dir: None,
            command: String::from("capture"),
            check: None,
            kept: None,
        }
    }
}

/// The label of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NewLabel {
    /// None.
    #[default]
    None,
    /// This one.
    Named(Label),
    /// The next of a counter: `bank`, `gate`, `rewound` or `step`.
    Numbered(&'static str),
}

/// One capture.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Its label.
    pub label: NewLabel,
    /// Re-point the label if it names another snapshot.
    pub move_label: bool,
    /// Retention keeps the snapshot while the label is there.
    pub pin: bool,
    /// An unchanged workspace leaves the label to the caller, who sets it together with
    /// others ([`super::Recorder::alias`]).
    pub leave_label: bool,
    /// The label in parts.
    pub boundary: Option<Boundary>,
    /// Names what is asked for: asked for again under the same id, it is not done again.
    pub operation: Option<String>,
    /// A note, at most 4 KiB.
    pub message: Option<String>,
    /// Trust no cache entry.
    pub rehash: bool,
    /// Write nothing, not even the cache.
    pub dry_run: bool,
    /// Makes it a bank.
    pub bank: Option<BankNote>,
    /// Paths that are read, and stored whatever the limits.
    pub must_store: BTreeSet<RelPath>,
    /// The caller holds the workspace lock.
    pub locked: bool,
    /// The snapshot that files went back to: the history before it goes on there. Such a
    /// capture adds a snapshot in any case.
    pub rewound_to: Option<SnapshotId>,
    /// It records what a lost engine left.
    pub late: Option<Late>,
}

/// A state that is captured after its engine was lost: how long that surely lived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// RFC 3339: what changed later was not the run's; unknown without it.
    pub alive_until: Option<String>,
}

/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 4096;

/// Files read and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Files (or objects).
    #[serde(rename = "files")]
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Objects stored and their bytes as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoredAmount {
    /// Objects.
    pub objects: u64,
    /// Bytes as stored.
    pub bytes: u64,
}

/// Coverage in a result: counts and the first hundred records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoverageSummary {
    /// Nothing is missing but what is expected to be.
    pub complete: bool,
    /// Skipped paths by reason.
    pub skipped: std::collections::BTreeMap<crate::snapshot::coverage::Reason, u64>,
    /// Directories not seen.
    pub unobserved: u64,
    /// Excluded paths by class.
    pub excluded: std::collections::BTreeMap<String, u64>,
    /// At most 100 records.
    pub records: Vec<Record>,
}

impl CoverageSummary {
    /// Summarizes `coverage`, whose records are `all`.
    pub fn new(coverage: &Coverage, all: &[Record]) -> Self {
        Self {
            complete: coverage.complete,
            skipped: coverage.skipped.clone(),
            unobserved: coverage.unobserved,
            excluded: coverage.excluded.clone(),
            records: all.iter().take(100).cloned().collect(),
        }
    }
}

/// What a capture did. Serializes as the JSON of the verb, the exit code apart.
#[derive(Clone, Debug, Serialize)]
pub struct Captured {
    /// False: unchanged, the label points at the head.
    pub created: bool,
    /// The snapshot; `None` for a dry run that would make one.
    pub id: Option<SnapshotId>,
    /// Its chain.
    pub chain: Chain,
    /// Its number.
    pub seq: u64,
    /// The snapshot before it.
    pub parent: Option<SnapshotId>,
    /// The label given.
    pub label: Option<Label>,
    /// Which directory.
    pub workspace: Workspace,
    /// What it holds.
    pub counts: Counts,
    /// Against the parent.
    pub delta: Option<Delta>,
    /// Files and links changed against the parent, for people.
    #[serde(skip)]
    pub changed_files: Option<Delta>,
    /// Files whose content was read.
    pub read: Amount,
    /// Files whose content the cache knew.
    pub reused: u64,
    /// Objects that are new in the store.
    pub stored: StoredAmount,
    /// Objects that were wrong in the store and are right now.
    pub healed: u64,
    /// What is and is not covered.
    pub coverage: CoverageSummary,
    /// What a person should know.
    pub warnings: Vec<Warning>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// The document; `None` for a dry run that would make one.
    #[serde(skip)]
    pub snapshot: Option<Snapshot>,
    /// The workspace as observed.
    #[serde(skip)]
    pub observed: Arc<observe::Observed>,
    /// Of a bank: the stat cache, which its restore completes and saves.
    #[serde(skip)]
    pub(crate) cache: Option<StatCache>,
}
