//! Who keeps an external run that is driven from a shell. No process of ours lives between
//! two of its commands, so its lock says nothing; the process that owns it does, when it
//! was named.

use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change::Run;
use super::claim::Liveness;
use super::record::RunRecord;
use super::store::RunStore;
use crate::clock::{Host, Timestamp};
use crate::error::{Error, Result};
use crate::fsx;
use crate::store::Holder;

/// The member of the record.
const FIELD: &str = "shell_owner";
/// An external run without a known owner that is silent for so long is stale: 24 h.
const STALE_NS: i64 = 24 * 3600 * 1_000_000_000;

/// The owner of a run that is driven from a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShellOwner {
    /// Host name.
    pub host: String,
    /// Boot id of the host.
    pub boot_id: String,
    /// The process; `None` when nobody was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its start in clock ticks since boot: numbers of processes come again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_start: Option<u64>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ShellOwner {
    /// The owner `pid` on this host, or nobody. Fails when there is no such process.
    pub fn new(host: &Host, pid: Option<u32>) -> Result<Self> {
        let start = |pid: u32| {
            fsx::process_start(pid).ok_or_else(|| {
                Error::invalid(format!("there is no process {pid} that could own the run"))
            })
        };
        Ok(Self {
            host: host.name.clone(),
            boot_id: host.boot_id.clone(),
            pid,
            pid_start: pid.map(start).transpose()?,
            extra: Map::new(),
        })
    }

    /// As a further field of a record to be created.
    pub fn field(&self) -> Result<(String, Value)> {
        let value = serde_json::to_value(self)
            .map_err(|e| Error::failed("internal", "the owner cannot be written").with_source(e))?;
        Ok((FIELD.to_owned(), value))
    }

    /// The owner that a record names; `None` for a run that a process holds.
    pub fn of(record: &RunRecord) -> Option<Self> {
        let value = record.extra.get(FIELD)?;
        Some(serde_json::from_value(value.clone()).unwrap_or_default())
    }

    /// Whether the process lives; `None` when that cannot be told from here.
    fn lives(&self, host: &Host) -> Option<bool> {
        let pid = self.pid?;
        if self.host != host.name {
            return None;
        }
        let same_boot = self.boot_id == host.boot_id;
        Some(same_boot && fsx::process_start(pid).is_some_and(|s| Some(s) == self.pid_start))
    }

    fn holder(&self, record: &RunRecord) -> Holder {
        Holder {
            host: self.host.clone(),
            pid: self.pid.unwrap_or_default(),
            run_id: Some(record.id().to_string()),
            since: record.created_at.clone(),
            program: String::from("its owner"),
            guard: String::new(),
            runner_id: None,
            refs: Vec::new(),
            ttl_ms: 0,
        }
    }
}

impl RunStore {
    /// Whether a run that says running, and whose lock is free, is executed.
    pub(super) async fn unlocked_liveness(&self, run: &Run) -> Result<Liveness> {
        let Some(owner) = ShellOwner::of(&run.record) else { return Ok(Liveness::OwnerGone) };
        Ok(match owner.lives(&self.ctx.host) {
            Some(true) => Liveness::Held(owner.holder(&run.record)),
            Some(false) => Liveness::OwnerGone,
            None => Liveness::Open { stale: self.is_stale(run).await? },
        })
    }

    async fn is_stale(&self, run: &Run) -> Result<bool> {
        let now = self.now().0;
        let silent = |since: Timestamp| now.saturating_sub(since.0) >= STALE_NS;
        // an event is heard of as well, and costs a look at all of them
        Ok(silent(run.record.updated()) && silent(self.heard_at(run).await?))
    }

    /// When anything of a run was written last.
    pub async fn heard_at(&self, run: &Run) -> Result<Timestamp> {
        let mut newest = run.record.updated();
        let mut events = self.events(run.id(), 0);
        while let Some(event) = events.try_next().await? {
            newest = Timestamp::parse(event.timestamp()).map_or(newest, |at| newest.max(at));
        }
        Ok(newest)
    }
}
