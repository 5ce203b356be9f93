//! Telling whether children of a lost engine still run: they inherit a locked descriptor
//! and carry the run's id in their environment.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::attempt::{Named, RunKey};
use super::family::words;
use crate::error::{Error, IoContext, Kind, Result};
use crate::fsx::{self, Dir};

const NAME: &str = "alive";
/// Somebody who only looks holds the lock for a moment.
const TRIES: u32 = 20;
const WAIT: Duration = Duration::from_millis(25);
/// How often what outlives its engine is killed: five seconds in all.
const KILLS: u32 = 200;
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

impl Alive {
    /// The same, open on exec at once: until it is dropped, whatever this process starts
    /// inherits it.
    pub(super) fn shared_descriptor(&self) -> io::Result<OwnedFd> {
        let descriptor = self.descriptor()?;
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty())?;
        Ok(descriptor)
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

impl Survivor {
    /// The error of whoever needs the run to be at rest.
    pub fn busy(&self, run: &str) -> Error {
        let who = match self {
            Self::Process(p) => format!("pid {}, {}", p.pid, p.command),
            Self::Unknown => String::from("it cannot be named"),
        };
        let text =
            format!("the engine of run {run} is gone and a process of it still lives: {who}");
        let error =
            Error::new(Kind::Busy, "busy", text).with_hint("end that process, then try again");
        match self {
            Self::Process(p) => error.with_detail("pid", p.pid),
            Self::Unknown => error,
        }
    }
}

/// The processes of `run` that live without us, if its engine is gone: this process and
/// those of other users are not counted. The commands may hold secrets. Blocks.
pub fn survivors(scratch: Option<&Dir>, run: &RunKey) -> Result<Vec<Survivor>> {
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

/// Ends the process `pid` at once.
pub fn kill_process(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::KILL); // gone already
    }
}

/// Ends at once what lives of `run`, whose engine is gone. `busy` naming one that does not
/// end. Blocks.
pub fn kill_survivors(scratch: Option<&Dir>, run: &RunKey) -> Result<()> {
    let mut tries = 0;
    loop {
        let found = survivors(scratch, run)?;
        let Some(first) = found.first() else { return Ok(()) };
        tries += 1;
        if tries > KILLS {
            return Err(first.busy(&run.run));
        }
        for survivor in &found {
            if let Survivor::Process(one) = survivor {
                kill_process(one.pid);
            }
        }
        let _ = rustix::event::poll(&mut [], Some(&super::pump::timespec(WAIT)));
    }
}

/// Who, other than this process, has the file open.
fn holders(file: &File) -> Result<Vec<Named>> {
    let stat = fsx::stat_open(file).context(|| "cannot look at a lock".to_owned())?;
    let pids = fsx::proc::holders_of(stat.device, stat.inode, std::process::id());
    Ok(pids.into_iter().filter_map(fsx::proc::process).map(|p| super::family::named(&p)).collect())
}
