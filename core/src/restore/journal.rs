//! The journal of a restore: written at each change of state, first to the staging at
//! the workspace root (synced), then to the store. Where they differ the staging copy
//! wins, so that rolling back needs no store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::operations::Change;
use super::owner::Owner;
use super::stage::{Stage, stage_name};
use super::work::Work;
use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::fsx::{self, Dir};
use crate::ids::{Chain, Digest, SnapshotId, TransactionId, WorkspaceKey};
use crate::path::RelPath;
use crate::snapshot::chain;
use crate::snapshot::label::Label;
use crate::snapshot::tree::Ref;
use crate::store::{DocKey, Expect, Store, Version, docs};
use crate::tasks::blocking;

/// The format version this build writes.
pub const JOURNAL_VERSION: u64 = 1;
/// The copy of the journal in staging.
pub(super) const JOURNAL: &[u8] = b"journal.json";
/// The copy of the plan in staging.
pub(super) const PLAN: &[u8] = b"plan.json";
/// The longest copy that is read back.
const MAX_COPY: u64 = 1 << 30;

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JournalState {
    /// Staged; nothing in the workspace has changed.
    Prepared,
    /// Any mixture of before and after.
    Applying,
    /// All after, verified, originals still aside.
    Applied,
    /// All after, for good.
    Committed,
    /// Any mixture, on its way back.
    RollingBack,
    /// Done.
    Closed,
    /// Undone: all before.
    RolledBack,
}

impl JournalState {
    /// True if nothing is left to do.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Closed | Self::RolledBack)
    }
    /// True if only a person (or a policy) can say whether it goes on or back.
    pub fn needs_recovery(self) -> bool {
        matches!(self, Self::Applying | Self::Applied | Self::RollingBack)
    }
}

/// The workspace a journal belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalWorkspace {
    /// Its key.
    pub key: String,
    /// Canonical path, in path text.
    pub root: String,
    /// Device of the root.
    pub device: u64,
    /// Inode of the root.
    pub inode: u64,
}

/// The safety snapshot of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankRef {
    /// The snapshot that holds every touched path as it was.
    pub snapshot: SnapshotId,
    /// Its chain.
    pub chain: Chain,
    /// Its own label, or the one that was pointed at it.
    pub label: Option<Label>,
    /// False when the head held everything already.
    pub new: bool,
}

/// One staging directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingDir {
    /// Device number.
    pub device: u64,
    /// The directory that holds it, relative to the root.
    pub dir: RelPath,
}

/// The run whose record a rewind changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRun {
    /// The run.
    pub id: String,
    /// Its status when it was parked.
    pub status_before: String,
    /// The version of its record then.
    pub version_before: String,
    /// Its record decides whether the transaction counts. Otherwise files alone move, and
    /// the record stays as it is.
    #[serde(default)]
    pub decides: bool,
    /// What the run's side does once it is done, in its own words.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub after: Value,
}

/// A path that recovery found in a third state and left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Third {
    /// The path.
    pub path: RelPath,
    /// The snapshot that holds it as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<SnapshotId>,
    /// The snapshot that holds what was to be put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SnapshotId>,
}

/// A restore as recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Journal {
    /// 1.
    pub format_version: u64,
    /// Writes so far.
    #[serde(default)]
    pub cas_version: u64,
    /// `tx-` and 16 hex.
    pub transaction: TransactionId,
    /// `restore`, `undo`, `redo`, `rewind` or `into`.
    pub kind: String,
    /// How far it is.
    pub state: JournalState,
    /// Where.
    pub workspace: JournalWorkspace,
    /// What is put back, as the plan says.
    pub target: Value,
    /// The snapshot that is put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_snapshot: Option<SnapshotId>,
    /// The safety snapshot.
    pub bank: Option<BankRef>,
    /// The plan, as an object.
    pub plan: Ref,
    /// Its digest.
    pub plan_digest: Digest,
    /// Digest of the request, times left out.
    pub request_digest: Digest,
    /// Digest of the operation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_digest: Option<Digest>,
    /// Where it is staged.
    pub staging: Vec<StagingDir>,
    /// Directories that are widened meanwhile, with their modes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub narrow: BTreeMap<RelPath, u32>,
    /// Set-id bits are put back as the superuser.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub special_modes: bool,
    /// The run of a rewind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<JournalRun>,
    /// Who does it.
    pub owner: Owner,
    /// The command, for the list of operations.
    #[serde(default)]
    pub command: String,
    /// What it does to the list of operations.
    pub change: Change,
    /// The plan's scope, for that list.
    #[serde(default)]
    pub scope: Value,
    /// The plan's counts, for that list.
    #[serde(default)]
    pub counts: Value,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    pub updated_at: String,
    /// Paths left in a third state, at most 100.
    #[serde(default)]
    pub third: Vec<Third>,
    /// How many there are.
    #[serde(default)]
    pub third_count: u64,
    /// The result, once terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Journal {
    /// True if a run's record decides whether it counts.
    pub fn is_decided_by_run(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.decides)
    }

    /// Reads a journal. `Newer` for a later format, `Corrupt` naming `what` otherwise.
    pub fn read(what: &str, body: &[u8]) -> Result<Self> {
        let journal: Self = serde_json::from_slice(body).map_err(|e| {
            Error::corrupt(format!("journal {what} is not readable")).with_source(e)
        })?;
        if journal.format_version > JOURNAL_VERSION {
            let version = journal.format_version;
            let message =
                format!("journal {what} has format version {version}, newer than this build");
            return Err(
                Error::new(Kind::Newer, "store-newer", message).with_hint("upgrade backtrail")
            );
        }
        Ok(journal)
    }

    /// The copy in a staging directory; `None` when it is absent or unreadable.
    pub(super) fn in_staging(dir: &Dir) -> Option<Self> {
        let body = fsx::read_small(dir, JOURNAL, MAX_COPY).ok()??;
        Self::read("in staging", &body).ok()
    }

    /// Its document.
    pub fn key(&self) -> Result<DocKey> {
        let key: WorkspaceKey = self.workspace.key.parse()?;
        Ok(DocKey::Journal(key, self.transaction.clone()))
    }

    /// Notes paths in a third state with the ids that hold both versions.
    pub(super) fn note_third(&mut self, paths: &[RelPath]) {
        self.third_count = paths.len() as u64;
        let before = self.bank.as_ref().map(|b| b.snapshot.clone());
        let after = self.target_snapshot.clone();
        let row =
            |p: &RelPath| Third { path: p.clone(), before: before.clone(), after: after.clone() };
        self.third = paths.iter().take(100).map(row).collect();
    }
}

/// A journal being written.
#[derive(Debug)]
pub(super) struct Keeper {
    /// The journal.
    pub(super) journal: Journal,
    stored: Stored,
}

/// What is known of the store's document.
#[derive(Debug)]
enum Stored {
    /// It is to be made.
    Absent,
    /// Nothing yet: it is looked up before it is written.
    Unknown,
    /// Its version.
    At(Version),
}

impl Keeper {
    /// A journal that is not in the store yet.
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, stored: Stored::Absent }
    }

    /// An existing journal, whatever the store holds of it.
    pub(super) fn adopt(journal: Journal) -> Self {
        Self { journal, stored: Stored::Unknown }
    }

    /// Moves to `state`: staging copy, then store. The outer error is one of staging:
    /// the state was not entered. The inner one is of the store: it was entered, and
    /// whoever comes next writes the store's copy.
    ///
    /// The copy of `prepared` is not synced: the file system is before `applying`, and
    /// without a copy nothing was changed.
    pub(super) async fn enter(
        &mut self,
        state: JournalState,
        work: &Arc<Work>,
        ctx: &Context,
        store: &dyn Store,
    ) -> Result<Result<()>> {
        self.journal.state = state;
        self.journal.updated_at = ctx.clock.now().rfc3339();
        let body = serde_json::to_vec_pretty(&self.journal).map_err(|e| {
            Error::failed("journal", "the journal cannot be written").with_source(e)
        })?;
        let (copy, durable) = (Arc::clone(work), state != JournalState::Prepared);
        blocking(move || write_copy(&copy.stage, JOURNAL, &body, durable)).await?;
        Ok(self.save(ctx, store).await)
    }

    /// Writes the store's document only. Another store than the restore's own is never
    /// written: it would know half of it. Nor is one that lost it, as a volume that is
    /// not mounted: the staging keeps the state until the document is back.
    pub(super) async fn save(&mut self, ctx: &Context, store: &dyn Store) -> Result<()> {
        self.locate(store).await?;
        let key = self.journal.key()?;
        let expect = match &self.stored {
            Stored::At(version) => Expect::Version(version.clone()),
            Stored::Absent | Stored::Unknown => Expect::Absent,
        };
        let version = docs::save(store, &*ctx.ids, &key, &self.journal, expect, None).await?;
        self.journal.cas_version += 1;
        self.stored = Stored::At(version);
        Ok(())
    }
}

impl Keeper {
    /// Finds out what the store holds of the journal. `another-store` (exit 4) when that
    /// is not the restore's own, or has lost both journal and bank.
    pub(super) async fn locate(&mut self, store: &dyn Store) -> Result<()> {
        let (own, here) = (&self.journal.owner.store, store.info().url);
        if *own != here {
            let message = format!("this restore was made with the store {own}, not {here}");
            return Err(Error::refused("another-store", message));
        }
        let Stored::Unknown = self.stored else { return Ok(()) };
        let key = self.journal.key()?;
        self.stored = match store.get(&key).await {
            Ok(doc) => Stored::At(doc.version),
            // It lost this document only: with the bank it can know all again.
            Err(e) if e.is_not_found() && self.is_banked(store).await => Stored::Absent,
            Err(e) if e.is_not_found() => return Err(self.lost(&here, &key)),
            Err(e) => return Err(e),
        };
        Ok(())
    }

    async fn is_banked(&self, store: &dyn Store) -> bool {
        match &self.journal.bank {
            Some(bank) => chain::read_snapshot(store, &bank.chain, &bank.snapshot).await.is_ok(),
            None => false,
        }
    }

    fn lost(&self, here: &str, key: &DocKey) -> Error {
        let stage =
            String::from_utf8_lossy(&stage_name(self.journal.transaction.as_str())).into_owned();
        let message = format!("{here} holds neither {key} nor the bank of that restore");
        Error::refused("another-store", message).with_hint(format!(
            "bring the store back, or remove {stage} by hand: its `old` is the only copy of what was replaced"
        ))
    }
}

/// Writes a copy into the staging at the root, synced if `durable`.
pub(super) fn write_copy(stage: &Stage, name: &[u8], body: &[u8], durable: bool) -> Result<()> {
    stage.publish(name, body, durable).map_err(|e| {
        let what = String::from_utf8_lossy(name);
        Error::failed("journal", format!("failed to write {what} into staging: {e}"))
    })
}
