//! What an attempt is asked to do, and how it ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::alive::Alive;
use super::env::Environment;
use super::output::{MAX_OUTPUT, Reported, bad, reported, text};
use super::pump::Tee;
use crate::error::{Error, Result};
use crate::ids::{Digest, RunId};
use crate::store::StoreInfo;

/// What messages call the kept part of standard output.
const WHAT: &str = "standard output";

/// What is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments, exactly as they stand.
    Argv(Vec<OsString>),
    /// Text for `shell -c`.
    Shell {
        /// The shell, e.g. `/bin/sh`.
        shell: OsString,
        /// What it executes.
        text: OsString,
    },
}

/// What names a run on this host: two stores may have runs of one id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunKey {
    /// The run's id.
    pub run: String,
    /// The id of its store.
    pub store: String,
}

impl RunKey {
    /// The key of a run in a store.
    pub fn new(run: &RunId, store: &StoreInfo) -> Self {
        Self { run: run.to_string(), store: store.store_id.clone() }
    }

    /// The name of its scratch directory.
    pub fn scratch(&self) -> String {
        format!("{}@{}", self.run, &Digest::of(self.store.as_bytes()).hex()[..8])
    }
}

/// The words by which descendants are recognised: they are in the environment of every
/// child as `BACKTRAIL_RUN_ID`, `BACKTRAIL_STORE_ID` and `BACKTRAIL_EXECUTION_ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The run.
    pub run: RunKey,
    /// `<run>:<node>:<iteration>`, equal over attempts.
    pub execution: String,
}

/// Where standard input, output and error lead.
#[derive(Debug)]
pub enum Stdio {
    /// Input comes from these bytes; output is streamed to the sink and, copied byte for
    /// byte, to `tee`.
    Piped {
        /// All of the input.
        stdin: Vec<u8>,
        /// Copies of the output.
        tee: Tee,
    },
    /// Input is ours; output is streamed to the sink and, copied byte for byte, to `tee`.
    Recorded {
        /// Copies of the output.
        tee: Tee,
    },
    /// All three are ours. On a terminal the child's group becomes the foreground group,
    /// so that Ctrl-C and Ctrl-Z are the child's; afterwards the terminal is as before.
    Inherited,
}

/// What happens to processes that outlive the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// They get two seconds, then the stop sequence.
    #[default]
    Kill,
    /// They stay. Their output is read and thrown away.
    Keep,
}

/// One attempt of a command.
#[derive(Debug)]
pub struct Attempt {
    /// What is executed.
    pub command: Command,
    /// Where; the caller has checked that it lies in the workspace.
    pub cwd: PathBuf,
    /// The whole environment of the child.
    pub environment: Environment,
    /// How descendants are recognised.
    pub identity: Identity,
    /// Where its standard streams lead.
    pub stdio: Stdio,
    /// The longest it may run; it gets the stop sequence then.
    pub timeout: Option<Duration>,
    /// How long it has between TERM and KILL.
    pub grace: Duration,
    /// What happens to processes that outlive it.
    pub background: Background,
    /// Shows later that children live, though the engine does not.
    pub alive: Option<Alive>,
    /// Whether the first MiB of standard output is kept for the caller.
    pub capture: bool,
}

/// How the command itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Why the engine ended a command that had not ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ran into its time limit.
    Timeout,
    /// Somebody asked, for this reason.
    Stopped(String),
    /// It wanted to talk to a terminal that it does not have, and would wait for ever.
    WantsTerminal,
}

/// A process and what it executes. The command may hold secrets: redact it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Its id.
    pub pid: u32,
    /// Its command line, shortened.
    pub command: String,
}

/// The kept part of standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// At most 1 MiB.
    pub bytes: Vec<u8>,
    /// There was more.
    pub cut: bool,
}

impl Captured {
    /// The object that standard output holds; `schema-validation` when it holds none.
    pub fn object(&self) -> Result<Reported> {
        self.check_size()?;
        reported(&self.bytes, WHAT)
    }

    /// Standard output as text; `schema-validation` when it is none.
    pub fn text(&self) -> Result<&str> {
        self.check_size()?;
        text(&self.bytes, WHAT)
    }

    fn check_size(&self) -> Result<()> {
        let why = format!("more than {MAX_OUTPUT} bytes were written");
        if self.cut { Err(bad(WHAT, &why, (1, 1))) } else { Ok(()) }
    }
}

/// How an attempt ended. It has ended when the command, what it left behind and their
/// pipes have; the last two only as far as the fields say.
#[derive(Debug)]
pub struct Outcome {
    /// How the command itself ended.
    pub end: End,
    /// Why, when it was ended by us. `None` too when it had ended by itself and somebody
    /// asked for a stop while only what it left behind was still there.
    pub cause: Option<Cause>,
    /// Processes left behind that had to be stopped, and descendants outside the group
    /// that a stop had to kill.
    pub killed: Vec<Named>,
    /// Processes left that no KILL could end: another user's, or stuck in the system.
    pub left: Vec<Named>,
    /// Bytes written to standard output.
    pub stdout_bytes: u64,
    /// Bytes written to standard error.
    pub stderr_bytes: u64,
    /// The kept part of standard output.
    pub captured: Captured,
    /// A process that is no descendant, or one that was kept, still held the pipes; or
    /// they were given up because the reader of the tee did not move after a stop.
    pub pipes_left: bool,
    /// The first failure of the tee that is not merely its reader having left.
    pub tee_error: Option<String>,
    /// The first failure of the sink. Output after it was still drained.
    pub sink_error: Option<Error>,
    /// From start to end, on a monotonic clock.
    pub elapsed: Duration,
}
