//! The run record (`run.json`): every field with its name in the file. Fields that the
//! status machine governs are read through methods and changed by
//! [`super::RunStore`] alone. Unknown fields are kept at every depth.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::checkpoint::Checkpoint;
use super::code::FailureCode;
use super::status::Status;
use crate::clock::{Host, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::ids::{Digest, RunId};
use crate::store::DocKey;

/// The format version this build writes.
pub const FORMAT_VERSION: u64 = 1;
/// The longest error text kept, in bytes: 64 KiB.
pub const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The longest workflow source kept, in bytes: 1 MiB.
pub const MAX_SOURCE_BYTES: usize = 1024 * 1024;

/// Who executes a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The workflow engine.
    Engine,
    /// Another runtime, through the library or the shell.
    External,
    /// Of a later version.
    #[serde(untagged)]
    Other(String),
}

/// Who executed a run last: evidence for people, never proof. Alive means that the
/// run's lock is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordHolder {
    /// Host name.
    pub host: String,
    /// Boot id of the host.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Start of that process in clock ticks since boot.
    pub pid_start: u64,
    /// RFC 3339 time of the claim.
    pub since: String,
    /// The fencing token of the run lock.
    pub token: u64,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl RecordHolder {
    /// This process, holding the run lock with `token`.
    pub(super) fn new(host: &Host, since: Timestamp, token: u64) -> Self {
        Self {
            host: host.name.clone(),
            boot_id: host.boot_id.clone(),
            pid: host.pid,
            pid_start: host.pid_start,
            since: since.rfc3339(),
            token,
            extra: Map::new(),
        }
    }
}

/// How well the workspace of a run is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versioning {
    /// `on`, `partial`, `overflow` or `off`.
    pub state: String,
    /// Why it is not `on`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For overflow the limit and the rule digest; fields of a later version.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A run as recorded. Times are RFC 3339 text, kept as they were written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(default)]
    pub(super) format_version: u64,
    pub(super) id: RunId,
    /// The name of its workflow.
    #[serde(default)]
    pub workflow_name: String,
    pub(super) status: Status,
    /// Inputs; secret ones as `[redacted]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Map<String, Value>>,
    /// When it was created.
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub(super) updated_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) finished_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure_code: Option<FailureCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint: Option<Checkpoint>,
    /// Node → latest artifact version: a cache. Missing or behind: list instead.
    #[serde(default, deserialize_with = "index", skip_serializing_if = "Option::is_none")]
    pub artifact_index: Option<BTreeMap<String, u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome_seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) claim_seq: Option<u64>,
    /// The run's name; by default `<workflow>-<last 6 of the id>`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// SHA-256 of the workflow's source bytes, 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_hash: Option<String>,
    /// Where the workflow was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
    /// The workflow's source, up to [`MAX_SOURCE_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_source: Option<String>,
    /// The workspace it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queued_at: Option<String>,
    /// Who executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<RecordHolder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cancel_requested_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cancel_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pause_requested_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pause_reason: Option<String>,
    /// Set by a rewind; cleared only by a person's resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explicit_resume_required: Option<bool>,
    /// The restore transaction of the last rewind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewind_transaction: Option<String>,
    /// How well the workspace is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioning: Option<Versioning>,
    /// Declared limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Value>,
    /// Later raises: absolute limits, each with its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_raises: Option<Value>,
    /// The output of the `done` node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The `BACKTRAIL_` variables it was launched with, see [`super::launch_env`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_env: Option<BTreeMap<String, String>>,
    /// The run whose node started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// The session of an external run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The program that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrail_version: Option<String>,
    #[serde(default)]
    pub(super) cas_version: u64,
    #[serde(default)]
    pub(super) write_id: String,
    /// Fields of worktrees, of the fleet and of later versions.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
    /// The next write takes the pause pointer away, see [`RunRecord::drop_pause_pointer`].
    #[serde(skip)]
    pub(super) pointer_dropped: bool,
}

/// A cache that cannot be read is no cache.
fn index<'de, D: Deserializer<'de>>(d: D) -> Result<Option<BTreeMap<String, u64>>, D::Error> {
    let value = Value::deserialize(d)?;
    Ok(serde_json::from_value(value).ok())
}

/// Reads without writing: `&self.field` of what the machine governs.
impl RunRecord {
    /// The format version: 1, or that of a later build.
    pub fn format_version(&self) -> u64 {
        self.format_version
    }
    /// The id.
    pub fn id(&self) -> &RunId {
        &self.id
    }
    /// Where it stands.
    pub fn status(&self) -> &Status {
        &self.status
    }
    /// When it was written last.
    pub fn updated_at(&self) -> &str {
        &self.updated_at
    }
    /// When it reached its outcome; only on ended runs.
    pub fn finished_at(&self) -> Option<&str> {
        self.finished_at.as_deref()
    }
    /// When it was executed first.
    pub fn started_at(&self) -> Option<&str> {
        self.started_at.as_deref()
    }
    /// When it was queued last.
    pub fn queued_at(&self) -> Option<&str> {
        self.queued_at.as_deref()
    }
    /// What went wrong; only on failed, failed_resumable and cancelled runs.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
    /// Why, in a word; `None` is unknown.
    pub fn failure_code(&self) -> Option<&FailureCode> {
        self.failure_code.as_ref()
    }
    /// What a resume needs.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }
    /// Arrivals in an ended status so far: the key of an outcome's side effects.
    pub fn outcome_seq(&self) -> u64 {
        self.outcome_seq.unwrap_or(0)
    }
    /// How often a process claimed it.
    pub fn claim_seq(&self) -> u64 {
        self.claim_seq.unwrap_or(0)
    }
    /// Who executed it last; evidence, never proof.
    pub fn holder(&self) -> Option<&RecordHolder> {
        self.holder.as_ref()
    }
    /// When somebody asked to cancel it.
    pub fn cancel_requested_at(&self) -> Option<&str> {
        self.cancel_requested_at.as_deref()
    }
    /// Why somebody asked to cancel it.
    pub fn cancel_reason(&self) -> Option<&str> {
        self.cancel_reason.as_deref()
    }
    /// When somebody asked to pause it.
    pub fn pause_requested_at(&self) -> Option<&str> {
        self.pause_requested_at.as_deref()
    }
    /// Why somebody asked to pause it.
    pub fn pause_reason(&self) -> Option<&str> {
        self.pause_reason.as_deref()
    }
    /// Forgets what somebody asked for.
    pub(super) fn drop_requests(&mut self) {
        (self.cancel_requested_at, self.cancel_reason) = (None, None);
        self.drop_pause_request();
    }
    pub(super) fn drop_pause_request(&mut self) {
        (self.pause_requested_at, self.pause_reason) = (None, None);
    }
    /// Writes so far.
    pub fn cas_version(&self) -> u64 {
        self.cas_version
    }
    /// The token of the last write.
    pub fn write_id(&self) -> &str {
        &self.write_id
    }
    /// True if a person must resume it.
    pub fn needs_person(&self) -> bool {
        self.explicit_resume_required == Some(true)
    }
    /// The time by which runs are sorted: of creation; the epoch when it is unreadable.
    pub fn created(&self) -> Timestamp {
        Timestamp::parse(&self.created_at).unwrap_or(Timestamp(0))
    }
    /// The time by which runs age: of the last write, else of creation.
    pub fn updated(&self) -> Timestamp {
        Timestamp::parse(&self.updated_at).unwrap_or_else(|_| self.created())
    }
}

impl RunRecord {
    /// Lets the next write take the pause pointer away, which other writes keep on a
    /// paused run: for a rewind whose question is not asked any more.
    pub fn drop_pause_pointer(&mut self) {
        self.pointer_dropped = true;
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.strip_pointer();
        }
    }

    /// Takes another source for its own, with its hash.
    pub fn set_source(&mut self, source: &str) {
        self.workflow_hash = Some(Digest::of(source.as_bytes()).hex());
        self.workflow_source = (source.len() <= MAX_SOURCE_BYTES).then(|| source.to_owned());
    }

    /// The record for an edit of the checkpoint in place; the pause pointer stays under
    /// the rules of a checkpoint save.
    pub fn checkpoint_mut(&mut self) -> Option<&mut Checkpoint> {
        self.checkpoint.as_mut()
    }

    /// Reads the record of `run` and heals it in memory. `Corrupt` when it cannot be
    /// read or names another run, `store-newer` when it cannot be read because a later
    /// build wrote it.
    pub fn read(run: &RunId, body: &[u8]) -> Result<Self> {
        let key = DocKey::Run(run.clone());
        let mut record: Self = serde_json::from_slice(body).map_err(|e| {
            // A later format may have another shape: that is no damage.
            match crate::store::docs::check_format(&key, body, FORMAT_VERSION) {
                Err(newer) => newer,
                Ok(()) => Error::corrupt(format!("record {key} is not readable: {e}")),
            }
        })?;
        if record.id != *run {
            return Err(Error::corrupt(format!("record {key} names another run, {}", record.id)));
        }
        record.heal();
        Ok(record)
    }

    /// Drops what the status may not have and fills in defaults.
    pub(super) fn heal(&mut self) {
        if self.format_version == 0 {
            self.format_version = FORMAT_VERSION;
        }
        if self.format_version > FORMAT_VERSION {
            return; // its rules are not ours
        }
        if self.name.is_empty() {
            self.name = default_name(&self.workflow_name, &self.id);
        }
        if matches!(self.status, Status::Other(_)) {
            return;
        }
        if !self.status.is_ended() {
            self.finished_at = None;
        }
        self.failure_code = self.failure_code.take().filter(|c| !c.as_str().is_empty());
        if !self.status.may_have_error() {
            self.error = None;
            self.failure_code = None;
        }
        if !self.status.may_have_pointer()
            && let Some(checkpoint) = &mut self.checkpoint
        {
            checkpoint.strip_pointer();
        }
    }

    /// Fails with `store-newer` (exit 4) when a later build wrote the record: it is
    /// shown, and neither written, deleted nor pruned.
    pub fn check_writable(&self) -> Result<()> {
        if self.format_version <= FORMAT_VERSION {
            return Ok(());
        }
        let message = format!(
            "run {} has format version {}, newer than this build",
            self.id, self.format_version
        );
        Err(Error::new(Kind::Newer, "store-newer", message).with_hint("upgrade backtrail"))
    }
}

/// `<workflow>-<last 6 of the id>`.
pub(super) fn default_name(workflow: &str, id: &RunId) -> String {
    let id = id.as_str();
    let start = id.char_indices().rev().nth(5).map_or(0, |(at, _)| at);
    format!("{workflow}-{}", &id[start..])
}

/// `text`, at most `limit` bytes of it, cut between characters.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
