//! Deleting a run: a tombstone first, then the record, then the rest. After a crash the
//! next delete or prune finishes; a late writer finds the tombstone and creates nothing.

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use super::change::Run;
use super::status::Status;
use super::store::RunStore;
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::restore::Journal;
use crate::store::{DocKey, Listed, Prefix, docs};

/// What a deletion leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// 1.
    #[serde(default)]
    pub format_version: u64,
    /// The run.
    pub run_id: RunId,
    /// RFC 3339.
    #[serde(default)]
    pub deleted_at: String,
    /// Its workflow.
    #[serde(default)]
    pub workflow_name: String,
    /// Where it stood.
    #[serde(default)]
    pub status: String,
}

/// What a deletion may do.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// A failed run that could be resumed was asked for by name.
    pub resumable: bool,
    /// A child of the run that still lives, as its host sees it: pid and command.
    pub live_child: Option<String>,
    /// Only when the record is still the one with this write token.
    pub write_id: Option<String>,
}

/// What a deletion came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone now.
    Now,
    /// It was deleted before; what was left is gone now.
    Before,
}

impl RunStore {
    /// Deletes a run. Deleting a deleted run is success and finishes what a crash left.
    /// Refused (exit 4) saying what to do first: a run that is not over, that is held,
    /// whose child lives, or of which a restore is open. An unreadable or newer record is
    /// never deleted.
    pub async fn delete(&self, run: &RunId, options: &DeleteOptions) -> Result<Deleted> {
        let found = match self.load(run).await {
            Ok(found) => found,
            Err(e) if e.code() == "deleted" => {
                self.finish_delete(run).await?;
                return Ok(Deleted::Before);
            }
            Err(e) => return Err(e),
        };
        if self.is_tombstoned(run).await? {
            // A crash came between the tombstone and the record.
            self.finish_delete(run).await?;
            return Ok(Deleted::Before);
        }
        self.check_deletable(&found, options)?;
        let lock = self.take_lock(run, std::time::Duration::ZERO, "delete").await;
        let claim = lock.map_err(|e| match e.kind() {
            Kind::Busy => e.with_kind(Kind::Refused).with_hint(format!("backtrail cancel {run}")),
            _ => e,
        })?;
        let found = self.load(run).await?;
        self.check_deletable(&found, options)?;
        self.check_journals(run).await?;
        self.entomb(&found).await?;
        self.finish_delete(run).await?;
        claim.release().await?;
        Ok(Deleted::Now)
    }

    fn check_deletable(&self, run: &Run, options: &DeleteOptions) -> Result<()> {
        run.record.check_writable()?;
        let id = run.id();
        let refuse = |why: &str, hint: String| {
            let message = format!("run {id} is not deleted: {why}");
            Err(Error::refused("not-deletable", message).with_hint(hint))
        };
        match run.status() {
            Status::Finished | Status::Failed | Status::Cancelled => {}
            Status::FailedResumable if options.resumable => {}
            Status::FailedResumable => {
                return refuse(
                    "it can be resumed",
                    format!("backtrail runs delete {id} --include-resumable"),
                );
            }
            Status::Other(status) => {
                return refuse(&format!("its status {status:?} is not known"), upgrade());
            }
            status => return refuse(&format!("it is {status}"), format!("backtrail cancel {id}")),
        }
        if let Some(child) = &options.live_child {
            return refuse(&format!("its child still lives: {child}"), format!("kill {child}"));
        }
        match &options.write_id {
            Some(token) if token != run.record.write_id() => {
                refuse("it was changed since", String::from("backtrail runs show"))
            }
            _ => Ok(()),
        }
    }

    /// A restore of this run's history that is not over needs its snapshots.
    async fn check_journals(&self, run: &RunId) -> Result<()> {
        let mut rows = self.store.list(&Prefix::Workspaces);
        while let Some(row) = rows.try_next().await? {
            let Listed::Doc { key: key @ DocKey::Journal(..), .. } = row else { continue };
            let body = match self.store.get(&key).await {
                Ok(doc) => doc.body,
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e),
            };
            if names_run(&key, &body, run) {
                let message = format!("run {run} is not deleted: a restore of it is open ({key})");
                return Err(Error::refused("recovery-needed", message)
                    .with_hint("backtrail restore --finish or backtrail restore --roll-back"));
            }
        }
        Ok(())
    }

    async fn entomb(&self, run: &Run) -> Result<()> {
        let tombstone = Tombstone {
            format_version: 1,
            run_id: run.id().clone(),
            deleted_at: self.now().rfc3339(),
            workflow_name: run.record.workflow_name.clone(),
            status: run.status().to_string(),
        };
        let key = DocKey::RunTombstone(run.id().clone());
        match docs::create(&*self.store, &key, &tombstone, None).await {
            Ok(_) => {}
            Err(_) if self.is_tombstoned(run.id()).await? => {}
            Err(e) => return Err(e),
        }
        self.ctx.faults.reach("run.delete.tombstone")
    }

    pub(super) async fn is_tombstoned(&self, run: &RunId) -> Result<bool> {
        match self.store.get(&DocKey::RunTombstone(run.clone())).await {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Removes what a run with a tombstone still has: the record and with it events and
    /// log, then refs and snapshots, artifacts, interactions.
    pub(super) async fn finish_delete(&self, run: &RunId) -> Result<()> {
        self.store.delete(&DocKey::Run(run.clone()), None).await?;
        self.ctx.faults.reach("run.delete.record")?;
        let mut keys = Vec::new();
        let mut rows = self.store.list(&Prefix::Run(run.clone()));
        while let Some(row) = rows.try_next().await? {
            if let Listed::Doc { key, .. } = row {
                keys.push(key);
            }
        }
        drop(rows);
        keys.sort_by_key(rank);
        let mut failed = None;
        for key in keys {
            self.ctx.faults.reach("run.delete.document")?;
            if let Err(e) = self.store.delete(&key, None).await {
                failed.get_or_insert(e.context(format!("failed to delete {key}")));
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The order of deletion: refs before what they name.
fn rank(key: &DocKey) -> u8 {
    match key {
        DocKey::Refs(_) => 0,
        DocKey::Pruned(_) | DocKey::Snapshot(..) => 1,
        DocKey::Artifact(..) => 2,
        _ => 3,
    }
}

/// True if an open journal has to do with the run. One that cannot be read may.
fn names_run(key: &DocKey, body: &[u8], run: &RunId) -> bool {
    let Ok(journal) = Journal::read(&key.to_string(), body) else { return true };
    if journal.state.is_terminal() {
        return false;
    }
    let chain = format!("\"run/{run}\"");
    let spelled = body.windows(chain.len()).any(|w| w == chain.as_bytes());
    spelled || journal.run.is_some_and(|r| r.id == run.as_str())
}

fn upgrade() -> String {
    String::from("upgrade backtrail")
}
