//! What a capture records: trees, snapshot documents, refs and labels.

pub mod chain;
pub mod coverage;
pub mod doc;
pub mod label;
pub mod pruned;
pub mod refs;
pub mod relabel;
pub mod tree;

pub use doc::Snapshot;
pub use refs::Refs;
pub use tree::{Body, Entry, Ref, Tree};
