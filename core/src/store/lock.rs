//! Names of locks, their guards and fencing tokens. Order of taking:
//! checkpoint, workspace, executing, run, chain, objects; prune, then objects.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::DocKey;
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, PoolName, RunId, SubjectId, WorkspaceKey};

/// Every lock there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LockName {
    /// Shared while a writer relies on or publishes objects, Exclusive per sweep batch.
    Objects,
    /// One prune at a time.
    Prune,
    /// A run's claim.
    Run(RunId),
    /// A checkpoint subject.
    Checkpoint(SubjectId),
    /// The pack index of a network store.
    PackIndex,
    /// Reconciliation of a runner pool.
    Reconcile(PoolName),
    /// On the host. Shared: captures and an executing run; Exclusive: restore and undo.
    Workspace(WorkspaceKey),
    /// On the host: the one executing run of a workspace.
    Executing(WorkspaceKey),
    /// On the host: one capture at a time on a chain.
    Chain(Chain),
}

impl LockName {
    /// True for locks that live on the host whatever the store.
    pub fn is_host_lock(&self) -> bool {
        matches!(self, Self::Workspace(_) | Self::Executing(_) | Self::Chain(_))
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects => f.write_str("objects"),
            Self::Prune => f.write_str("prune"),
            Self::Run(r) => write!(f, "run/{r}"),
            Self::Checkpoint(s) => write!(f, "checkpoint/{s}"),
            Self::PackIndex => f.write_str("pack-index"),
            Self::Reconcile(p) => write!(f, "reconcile/{p}"),
            Self::Workspace(k) => write!(f, "workspace/{k}"),
            Self::Executing(k) => write!(f, "executing/{k}"),
            Self::Chain(c) => write!(f, "chain/{c}"),
        }
    }
}

/// Whether a lock admits others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Excludes only Exclusive.
    Shared,
    /// Excludes all.
    Exclusive,
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// Which.
    pub name: LockName,
    /// How.
    pub mode: LockMode,
    /// How long to wait; zero is `Busy` at once.
    pub wait: Duration,
    /// The command, for messages to others.
    pub command: String,
    /// The run that asks, for messages to others.
    pub run_id: Option<RunId>,
    /// Refs documents that whoever breaks an expired Shared guard must rewrite (CLD-G9).
    pub refs: Vec<DocKey>,
}

impl LockRequest {
    /// A request without run and refs.
    pub fn new(name: LockName, mode: LockMode, wait: Duration, command: &str) -> Self {
        Self { name, mode, wait, command: command.to_owned(), run_id: None, refs: Vec::new() }
    }
}

/// Who holds a lock: evidence for messages, never proof.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Random id of the guard.
    pub guard: String,
    /// Program name, version and command.
    pub program: String,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Runner, when one holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<String>,
    /// Run, when one holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Refs documents to rewrite before breaking (keys).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// RFC 3339 time of taking.
    pub since: String,
    /// Time to live in milliseconds; 0 for an OS lock.
    pub ttl_ms: u64,
}

impl Holder {
    /// `Busy` (exit 5) naming lock, program, host, pid, run and since when.
    pub fn busy(&self, name: &LockName) -> Error {
        let run = self.run_id.as_ref().map(|r| format!(" for run {r}")).unwrap_or_default();
        let who = if self.program.is_empty() {
            String::from("another process")
        } else {
            format!(
                "{} (pid {} on {}{run}, since {})",
                self.program, self.pid, self.host, self.since
            )
        };
        Error::new(Kind::Busy, "busy", format!("{name} is held by {who}"))
            .with_detail("holder", serde_json::to_value(self).unwrap_or_default())
    }
}

/// A holder's fenced right, sent along with a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lock it came from.
    pub lock: LockName,
    /// Greater than every earlier token of that lock.
    pub token: u64,
}

impl Fence {
    /// Fails with `LostLease` when `stored` is a newer token; `what` is named.
    pub fn check(&self, what: &str, stored: Option<u64>) -> Result<()> {
        match stored {
            Some(newer) if newer > self.token => Err(Error::new(
                Kind::LostLease,
                "lost-lease",
                format!("{what} was taken over: token {newer} is newer than ours, {}", self.token),
            )),
            _ => Ok(()),
        }
    }
}

/// What a backend keeps while a lock is held. Dropping it frees the lock.
#[async_trait]
pub trait HeldLock: Send + Sync {
    /// The fencing token.
    fn token(&self) -> u64;
    /// True once the hold cannot be trusted any more (CLD-G6).
    fn is_lost(&self) -> bool;
    /// Frees it; a no-op when it was lost (CLD-G3).
    async fn release(self: Box<Self>) -> Result<()>;
}

/// A held lock; freed when dropped.
pub struct Guard {
    name: LockName,
    held: Box<dyn HeldLock>,
}

impl Guard {
    /// Wraps a backend's hold.
    pub fn new(name: LockName, held: Box<dyn HeldLock>) -> Self {
        Self { name, held }
    }
    /// Which lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }
    /// The fencing token.
    pub fn token(&self) -> u64 {
        self.held.token()
    }
    /// The right to send along with writes.
    pub fn fence(&self) -> Fence {
        Fence { lock: self.name.clone(), token: self.token() }
    }
    /// Fails with `LostLease` once the hold cannot be trusted.
    pub fn check(&self) -> Result<()> {
        if self.held.is_lost() {
            return Err(Error::new(
                Kind::LostLease,
                "lost-lease",
                format!("the hold on lock {} was lost", self.name),
            ));
        }
        Ok(())
    }
    /// Frees the lock and reports whether that worked.
    pub async fn release(self) -> Result<()> {
        self.held.release().await
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({} token {})", self.name, self.token())
    }
}
