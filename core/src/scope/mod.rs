//! What a run changed: the paths that differ across intervals in which it was executing.
//!
//! [`walk`] goes from the head of a run's chain back to a target. Each pair of
//! neighbours is an interval, judged by what is written in the newer snapshot, never by
//! the movable label map.

mod changes;
mod interval;
mod line;

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::ids::Chain;
use crate::path::RelPath;
use crate::plan::{Foreseen, LeftReason};
use crate::snapshot::doc::Snapshot;
use crate::store::Store;
use crate::workspace::Root;

pub use changes::{Paths, changed_since};
pub use interval::{Interval, interval};
pub use line::{Line, line};

/// What a rewind to one snapshot may touch, and why it leaves the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    /// Paths that changed while the run was executing.
    pub paths: BTreeSet<RelPath>,
    /// Those of them that changed in other intervals too, and last in an executing one.
    pub mixed: BTreeSet<RelPath>,
    /// Those of them whose newest change is not the run's.
    pub foreseen: BTreeMap<RelPath, Foreseen>,
    /// Paths that changed in other intervals only.
    pub left: BTreeMap<RelPath, LeftReason>,
    /// Paths that were skipped or not seen on a side of an interval, and so are no part
    /// of the scope.
    pub not_covered: BTreeSet<RelPath>,
    /// Boundaries after the newest snapshot that could not be captured, and why: what the
    /// run changed behind that snapshot cannot be told from what others did.
    pub missed: BTreeMap<String, String>,
}

/// Walks the chain from its head to `target`. `root` is asked when files changed last
/// where a boundary was captured after the run's process had died.
///
/// Refuses with `chain-gap`, `chain-unreadable`, `undone-by-rewind` (exit 4) and
/// `chain-pruned` (6), each also as `skip_reason`; it never falls back to the full tree.
pub async fn walk(
    store: &dyn Store,
    chain: &Chain,
    target: &Snapshot,
    root: &Root,
) -> Result<Produced> {
    let line = line(store, chain, target).await?;
    changes::collect(store, &line, root).await
}
