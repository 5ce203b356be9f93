//! This process and this machine: the real clock, real chance and who we are.

#![expect(clippy::disallowed_methods, reason = "the only place that asks the system who and when")]

use std::time::{SystemTime, UNIX_EPOCH};

use backtrail_core::clock::{Clock, Host, IdSource, Timestamp};
use backtrail_core::error::{Error, Result};

/// The wall clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let ns = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(e) => i64::try_from(e.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        };
        Timestamp(ns)
    }
}

/// Random bytes from the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn fill(&self, buf: &mut [u8]) -> Result<()> {
        getrandom::fill(buf).map_err(|e| {
            Error::failed("no-randomness", format!("the system gave no random bytes: {e}"))
        })
    }
}

/// This process as others will see it in holder files and journals.
///
/// `machine` is the content of `/etc/machine-id`, else the host name: a container
/// without that file is told apart by its name alone.
pub fn this_host() -> Host {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = read_line("/etc/machine-id").unwrap_or_else(|| name.clone());
    Host {
        machine,
        boot_id: read_line("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        pid: std::process::id(),
        pid_start: process_start(std::process::id()).unwrap_or(0),
        program: concat!("backtrail ", env!("CARGO_PKG_VERSION")).to_owned(),
        home: std::env::home_dir().filter(|p| p.is_absolute()),
        name,
    }
}

/// When a process started, in clock ticks since boot; `None` when it is not there.
/// With the pid it names a process for good: pids are used again, pairs are not.
pub fn process_start(pid: u32) -> Option<u64> {
    let stat = read_line(&format!("/proc/{pid}/stat"))?;
    // The second field is the command in parentheses and may hold anything but its
    // own end; the start time is field 22.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn read_line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_and_a_name() {
        let host = this_host();
        assert_eq!(host.pid, std::process::id());
        assert!(host.pid_start > 0);
        assert!(!host.name.is_empty() && !host.machine.is_empty());
        assert_eq!(process_start(u32::MAX), None);
    }

    #[test]
    fn random_ids_differ() {
        let ids: &dyn IdSource = &RandomIds;
        assert_ne!(ids.hex(16).expect("random"), ids.hex(16).expect("random"));
    }
}
