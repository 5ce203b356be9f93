//! What is in the workspace now: one parallel walk judged by the rules, content
//! hashed where the stat cache does not know it, and the trees of it all.
//!
//! Capture stores an observation, `diff` and the restore plan compare one.

mod build;
mod read;
mod types;

pub use build::{Built, NewTree};
pub use read::Sink;
pub use types::{Observed, ObservedDir, ObservedEntry, Settings, Warning, What};
