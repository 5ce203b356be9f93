//! Driving a run: the pure machine says what to do, this does it with real processes,
//! captures and records, and tells the machine what came of it.
//!
//! [`launch`] creates a run and drives it to its end, [`resume`] goes on with one that
//! stopped, [`reconcile`] puts a run in order whose engine is gone; [`external`] is for
//! runtimes that execute nodes themselves. All of them hold, in this order,
//! `workspace/<key>` Shared, `executing/<key>` and `run/<id>`, from the first write to the
//! last.

mod attempt;
mod captures;
mod engine;
pub mod external;
mod holds;
mod inputs;
mod journal;
mod launch;
mod perform;
mod reconcile;
mod report;
mod resume;
mod secrets;
mod settings;
mod watch;

pub use inputs::{check_inputs, parse_value};
pub use launch::{Launch, launch};
pub use reconcile::{Reconciled, reconcile};
pub use report::{Coverage, Report};
pub use resume::{Again, resume};
pub use settings::{Interrupts, NodeLine, Place, Settings, Streams, Unwatched, Watcher};
