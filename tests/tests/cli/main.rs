//! The command line, end to end: the binary in a sandbox.

mod capture;
mod config;
mod crash;
mod diff;
mod disk;
mod doctor;
mod explain;
mod history;
mod network;
mod objects;
mod reference;
mod restore;
mod restore_disk;
mod store;
mod terminal;
mod undo;

use backtrail_tests::cli::Sandbox;

/// A sandbox for the binary of this package.
fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"))
}
