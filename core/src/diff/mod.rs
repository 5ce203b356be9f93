//! What differs between two trees: equal subtrees are never loaded.
//!
//! [`walk`] is the one comparison; [`delta`] counts with it for a capture,
//! [`between`] turns it into the changes people and scopes see, and [`hunks`]
//! shows the text inside one change.

mod delta;
mod source;
mod walk;

pub use delta::{DeltaCounts, NewRef, delta};
pub use source::{Memory, Stored, TreeSource};
pub use walk::{Pair, Side, walk};
