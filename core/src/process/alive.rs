//! Telling whether children of a lost engine still run: they inherit a locked descriptor
//! and carry the run's id in their environment.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Named;
use super::family::words;
use crate::error::{Error, IoContext, Kind, Result};
use crate::fsx::{self, Dir};

const NAME: &str = "alive";
/// Somebody who only looks holds the lock for a moment.
const TRIES: u32 = 20;
const WAIT: Duration = Duration::from_millis(25);
/// Children get the descriptor with a number that no script uses for its own.
const NUMBER: i32 = 100;

/// The locked file `alive` in a run's scratch directory. The lock is held while any copy
/// of the descriptor is: ours, or a child's.
#[derive(Clone, Debug)]
pub struct Alive(Arc<File>);

impl Alive {
    /// Takes the lock; `Busy` naming a child that still holds it. Blocks.
    pub fn hold(scratch: &Dir) -> Result<Self> {
        let what = || "cannot lock the file that shows living children".to_owned();
        let file = fsx::open_lock(scratch, NAME).context(what)?;
        for _ in 0..TRIES {
            if fsx::try_lock(&file, true).context(what)? {
                return Ok(Self(Arc::new(file)));
            }
            let _ = rustix::event::poll(&mut [], Some(&super::pump::timespec(WAIT)));
        }
        let holder = holders(&file)?.into_iter().next();
        let named = holder.map_or_else(String::new, |p| format!(": pid {}, {}", p.pid, p.command));
        let message = format!("a process of the run still runs{named}");
        Err(Error::new(Kind::Busy, "busy", message))
    }

    /// A copy for a child. It stays closed on exec until it is in the child.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        let high = rustix::io::fcntl_dupfd_cloexec(&*self.0, NUMBER);
        match high {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::MFILE) => {
                Ok(rustix::io::fcntl_dupfd_cloexec(&*self.0, 3)?)
            }
            other => Ok(other?),
        }
    }
}

/// What shows that a run whose engine is gone still has living processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survivor {
    /// This process.
    Process(Named),
    /// One that holds the locked descriptor and cannot be named.
    Unknown,
}

/// The processes of `run` that live without us, if its engine is gone: this process and
/// those of other users are not counted. The commands may hold secrets. Blocks.
pub fn survivors(scratch: Option<&Dir>, run: &str) -> Result<Vec<Survivor>> {
    let me = std::process::id();
    let user = fsx::user_id();
    let words = words(run, None);
    let mut found: Vec<Named> = fsx::proc::processes()
        .iter()
        .filter(|p| p.pid != me && !p.zombie)
        .filter(|p| fsx::proc::process_owner(p.pid) == Some(user))
        .filter(|p| fsx::proc::process_has(p.pid, &words))
        .map(super::family::named)
        .collect();
    if !found.is_empty() {
        found.sort();
        return Ok(found.into_iter().map(Survivor::Process).collect());
    }
    let what = || "cannot tell whether children of the run live".to_owned();
    let Some(scratch) = scratch else { return Ok(Vec::new()) };
    match scratch.stat(NAME.as_bytes()) {
        Err(e) if fsx::is_absence(&e) => return Ok(Vec::new()),
        other => other.context(what)?,
    };
    let file = fsx::open_lock(scratch, NAME).context(what)?;
    if fsx::try_lock(&file, false).context(what)? {
        return Ok(Vec::new());
    }
    let holders = holders(&file)?;
    Ok(match holders.is_empty() {
        true => vec![Survivor::Unknown],
        false => holders.into_iter().map(Survivor::Process).collect(),
    })
}

/// Who, other than this process, has the file open.
fn holders(file: &File) -> Result<Vec<Named>> {
    let stat = fsx::stat_open(file).context(|| "cannot look at a lock".to_owned())?;
    let pids = fsx::proc::holders_of(stat.device, stat.inode, std::process::id());
    Ok(pids.into_iter().filter_map(fsx::proc::process).map(|p| super::family::named(&p)).collect())
}
