//! Rewind: puts a run back to the entry of one of its nodes: the files that the run
//! changed since, and its record.
//!
//! [`rewind`] reads from top to bottom in the order of its steps. Up to the save of the
//! record (the decision) a failure puts everything back and unparks the run; behind it
//! there is only forward. Whoever finds an interrupted rewind asks the record: it names
//! the transaction, and the rest is finished; or it does not, and all goes back.

mod auto;
mod choose;
mod edit;
mod finish;
mod hooks;
mod files;
mod open;
mod request;
mod result;
mod run;
mod side;
mod source;
mod target;
mod undo;
mod whole;

pub use request::{Pivot, RewindRequest, RewindScope, Source};
pub use result::{AutoTarget, FilesResult, RewindResult};
pub use run::rewind;
pub use side::{RunsSide, settle};
pub use source::Workflow;
pub use undo::{redo, undo};
pub use whole::{WholeRequest, restore_snapshot};
