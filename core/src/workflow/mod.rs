//! Workflows: the file and its typed definition, templates, `run --check`, and the
//! engine as a pure state machine.

pub mod answers;
pub mod check;
pub mod file;
pub mod finding;
pub mod graph;
pub mod machine;
pub mod drive;
mod nearest;
pub mod template;
