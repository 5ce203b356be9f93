//! `owner.json` in a staging directory: who made it, so that others can tell whether
//! that process still lives.

use std::io;

use serde::{Deserialize, Serialize};

use crate::clock::{Context, Host};
use crate::fsx::{self, Dir};

/// The name of the file.
pub(super) const OWNER: &[u8] = b"owner.json";

/// Who made a staging directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// 1.
    pub format_version: u64,
    /// The transaction.
    pub transaction: String,
    /// `into` for a restore into an empty directory; empty otherwise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The store's URL without credentials.
    pub store: String,
    /// Host name.
    pub host: String,
    /// Machine id.
    pub machine: String,
    /// Boot id.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Start of that process in clock ticks since boot.
    pub pid_start: u64,
    /// RFC 3339 time.
    pub since: String,
    /// The mode of the directory that holds the staging, when it had to be widened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_mode: Option<u32>,
}

impl Owner {
    /// This process.
    pub(super) fn new(ctx: &Context, transaction: &str, store: &str) -> Self {
        Self {
            format_version: 1,
            transaction: transaction.to_owned(),
            kind: String::new(),
            store: store.to_owned(),
            host: ctx.host.name.clone(),
            machine: ctx.host.machine.clone(),
            boot_id: ctx.host.boot_id.clone(),
            pid: ctx.host.pid,
            pid_start: ctx.host.pid_start,
            since: ctx.clock.now().rfc3339(),
            home_mode: None,
        }
    }

    /// Writes `owner.json` and the `.gitignore` that keeps git away from the staging.
    pub(super) fn write(&self, dir: &Dir) -> io::Result<()> {
        let body = serde_json::to_vec_pretty(self)?;
        fsx::publish(dir, OWNER, b"owner.tmp", &body, false)?;
        fsx::publish(dir, b".gitignore", b"gitignore.tmp", b"*\n", false)
    }

    /// Reads `owner.json`; `None` when it is absent or unreadable.
    pub(super) fn read(dir: &Dir) -> Option<Self> {
        let body = fsx::read_small(dir, OWNER, 64 * 1024).ok()??;
        serde_json::from_slice(&body).ok()
    }

    /// True if that very process runs on this host now. Another host's process cannot
    /// be seen from here and counts as gone; its lock, if held, says otherwise.
    pub fn is_alive(&self, host: &Host) -> bool {
        self.machine == host.machine
            && self.boot_id == host.boot_id
            && fsx::process_start(self.pid) == Some(self.pid_start)
    }
}
