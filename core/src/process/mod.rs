//! One attempt of a command: its process group, its output, its end.
//!
//! [`run`] starts a command in a process group of its own, hands its output on as it
//! arrives, ends it when it takes too long or when somebody asks, and comes back when
//! the group and its pipes are gone, so that nothing writes behind the caller's back.
//! What surrounds an attempt has its own file each: [`Environment`], [`Scratch`] with
//! the files that a command reads and writes, [`Alive`] for telling whether children of
//! a lost engine still run, and [`RunLog`] for the log.
//!
//! Descendants that left the group are found through `/proc`; an engine that called
//! [`adopt_orphans`] finds them even when they hide.

mod alive;
mod attempt;
mod env;
mod family;
mod log;
mod output;
mod pump;
mod run;
mod scratch;
mod start;
mod stop;
mod terminal;
mod wait;

pub use crate::fsx::proc::Process;
pub use alive::{Alive, Survivor, kill_process, kill_survivors, survivors};
pub use attempt::{
    Attempt, Background, Captured, Cause, Command, End, Identity, Named, Outcome, RunKey, Stdio,
};
pub use env::{Environment, Variables};
pub use family::adopt_orphans;
pub use log::{Append, LogReport, LogSink, RunLog, StoreLog};
pub use output::{Asked, MAX_OUTPUT, Question, Reported, reported};
pub use pump::{Chunk, Sink, Stream, Tee};
pub use run::run;
pub use scratch::{AttemptFiles, Scratch, ScratchPlaces};
pub use stop::{Stop, Stopper, stop_pair};
