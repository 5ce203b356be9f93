//! What differs between two trees: equal subtrees are never loaded.
//!
//! [`walk`] is the one comparison; [`delta`] counts with it for a capture,
//! [`between`] turns it into the changes that people and scopes see, and [`add_text`]
//! puts hunks of lines into them.

mod changes;
mod cover;
mod delta;
mod hunks;
mod observed;
mod pair;
mod source;
mod state;
mod text;
mod walk;

pub use changes::{Change, ChangeCounts, Status, Uncovered, View, between};
pub use cover::{Absence, Cover};
pub use delta::{DeltaCounts, NewRef, delta};
pub use hunks::{Hunk, HunkLine, LineKind, MAX_TEXT_BYTES, MAX_TEXT_LINES, TextDiff, text_diff};
pub use observed::ObservedTrees;
pub use pair::{between_stored, changed_at};
pub use source::{Memory, Stored, TreeSource};
pub use state::{State, StateKind};
pub use text::{ContentSource, add_text, patch};
pub(crate) use walk::at;
pub use walk::{Pair, Side, walk};
