//! backtrail-core: the engine that puts a working directory back.
//!
//! Modules are listed in flow order; a module uses only modules above it.

pub mod error;
pub mod ids;
pub mod path;
pub mod clock;
pub mod tasks;
pub mod fsx;
pub mod store;
pub mod object;
pub mod snapshot;
pub mod damage;
pub mod workspace;
pub mod observe;
pub mod diff;
pub mod capture;
pub mod plan;
pub mod restore;
pub mod scope;
pub mod reach;
pub mod prune;
pub mod verify;
pub mod size;
pub mod doctor;
pub mod redact;
pub mod process;
pub mod run;
pub mod workflow;
pub mod rewind;
pub mod copy;
