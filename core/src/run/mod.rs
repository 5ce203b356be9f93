//! Runs: the record and its status machine, the checkpoint, events, artifacts,
//! interactions and the run log. [`RunStore`] is the one way to all of them.

mod artifact;
mod change;
mod checkpoint;
mod claim;
mod code;
mod delete;
mod engine_event;
mod event;
mod events;
mod interaction;
mod launch;
mod list;
mod log;
mod pid;
mod owner;
mod prune;
mod record;
mod resolve;
pub mod status;
mod store;
mod transition;

pub use artifact::Artifact;
pub use change::{Moved, Run};
pub use checkpoint::{Branch, Checkpoint, Current, MAX_OUTPUT_BYTES, Parallel};
pub use claim::{Claim, Liveness};
pub use code::FailureCode;
pub use delete::{DeleteOptions, Deleted, Tombstone};
pub use engine_event::{EngineEvent, is_engine_type};
pub use event::{Event, MAX_VALUE_BYTES, NewEvent, PREVIEW_BYTES};
pub use interaction::{Answered, Interaction, OpenQuestion, Turn, interaction_id};
pub use launch::{is_secret_option, launch_env, redact_url};
pub use list::RunRow;
pub use log::{LOG_LIMIT, MAX_CHUNK_BYTES};
pub use owner::ShellOwner;
pub use pid::{read_pid, remove_pid, write_pid};
pub use prune::{PrunePlan, PruneReport, PruneRun, RunPrune, TOMBSTONE_AGE};
pub use record::{
    Driver, FORMAT_VERSION, MAX_ERROR_BYTES, MAX_SOURCE_BYTES, RecordHolder, RunRecord, Versioning,
};
pub use status::{Actor, Status};
pub use store::{Created, NewRun, RunStore, new_id};
pub use transition::{PausePointer, Transition};
