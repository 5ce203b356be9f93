//! Putting a recorded state back: observe → plan → confirm → lock → bank → stage →
//! journal → swap → delete → verify → commit.
//!
//! Nothing in the workspace changes before the bank is verified, all new content lies
//! staged and the journal is durable. What is displaced is moved aside, never unlinked,
//! until commit.

mod apply;
mod bank;
mod close;
mod detect;
mod fill;
mod fresh;
mod into;
mod journal;
mod late;
mod listing;
mod look;
mod operation;
mod opened;
mod operations;
mod owner;
mod place;
mod prepare;
mod read;
mod record;
mod recover;
mod refill;
mod request;
mod result;
mod revert;
mod run;
mod side;
mod stage;
mod swap;
mod undo;
mod work;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests look at real directories from outside")]
mod tests;

pub use detect::{Need, Unfinished, detect, unreadable};
pub use into::{IntoDone, IntoRequest, restore_into};
pub use journal::{
    BankRef, JOURNAL_VERSION, Journal, JournalRun, JournalState, JournalWorkspace, StagingDir,
    Third,
};
pub use operations::{Change, Entry, EntryState, MAX_ENTRIES, Operations};
pub use owner::Owner;
pub use place::Place;
pub use recover::{Direction, Recovered, check, recover, recover_one, settle};
pub use request::{Hooks, RequestBase, RestoreRequest, Unasked};
pub use result::{MAX_LISTED, RestoreBytes, RestoreCounts, RestoreResult, ResultState};
pub use run::run;
pub use side::RunSide;
pub use undo::{UndoRequest, redo, undo};

use crate::fsx;

/// The mode a file gets: as the superuser, setuid and setgid are left out unless
/// `special` asks for them, since what they would grant is root's.
fn effective_mode(mode: u32, special: bool) -> u32 {
    if mode & 0o6000 != 0 && !special && fsx::is_superuser() { mode & !0o6000 } else { mode }
}
