//! Workflows: the file and its typed definition, templates, `run --check`, and the
//! engine as a pure state machine.

pub mod file;
pub mod finding;
mod nearest;
