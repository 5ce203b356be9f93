//! Labels set and taken away without a capture. The head never moves.

use super::chain::load_refs;
use super::doc::Snapshot;
use super::label::Label;
use super::refs::{Refs, Target};
use crate::clock::IdSource;
use crate::error::{Error, Result};
use crate::ids::{Chain, SnapshotId};
use crate::store::{DocKey, Expect, Store, docs};

/// Lost races before a writer gives up.
const MAX_TRIES: usize = 32;

/// How a label is set.
#[derive(Clone, Debug)]
pub struct Relabelled {
    /// Retention keeps the snapshot while the label is there.
    pub pinned: bool,
    /// Take the label from another snapshot that has it.
    pub moves: bool,
    /// When, RFC 3339.
    pub at: String,
}

/// Points `label` at `snapshot` in its chain; the snapshot it named before. Without
/// `moves`, a label of another snapshot is `label-exists`. `not-found` when the
/// snapshot was pruned meanwhile.
pub async fn point(
    store: &dyn Store,
    ids: &dyn IdSource,
    label: &Label,
    snapshot: &Snapshot,
    how: &Relabelled,
) -> Result<Option<SnapshotId>> {
    let target = || Target {
        snapshot: snapshot.id.clone(),
        at: how.at.clone(),
        attempt: None,
        pinned: how.pinned,
    };
    let previous = update(store, ids, &snapshot.chain, |refs| {
        let previous = refs.labels.get(label).map(|t| t.snapshot.clone());
        if let Some(other) = previous.as_ref().filter(|p| **p != snapshot.id && !how.moves) {
            return Err(exists(label, other, &snapshot.id));
        }
        refs.labels.insert(label.clone(), target());
        Ok(previous)
    })
    .await?;
    // A prune that chose this snapshot before the label was there may have removed it.
    match store.get(&snapshot.key()).await {
        Err(e) if e.is_not_found() => {
            delete(store, ids, &snapshot.chain, label).await?;
            Err(Error::not_found(format!("snapshot {} was pruned meanwhile", snapshot.id)))
        }
        other => other.map(|_| previous),
    }
}

fn exists(label: &Label, other: &SnapshotId, wanted: &SnapshotId) -> Error {
    Error::refused("label-exists", format!("label {label} names {other} already"))
        .with_detail("previous", other.as_str())
        .with_hint(format!("backtrail label {label} {wanted} --move"))
}

/// Takes `label` away; the snapshot it named. `not-found` when there is none.
pub async fn delete(
    store: &dyn Store,
    ids: &dyn IdSource,
    chain: &Chain,
    label: &Label,
) -> Result<SnapshotId> {
    update(store, ids, chain, |refs| {
        let target = refs.labels.remove(label).ok_or_else(|| {
            Error::not_found(format!("no label {label} in chain {chain}"))
                .with_hint("backtrail list")
        })?;
        Ok(target.snapshot)
    })
    .await
}

/// Reads, changes and writes the refs of a chain until no other writer came between.
/// Lost refs are rebuilt and written with the change.
pub(crate) async fn update<T>(
    store: &dyn Store,
    ids: &dyn IdSource,
    chain: &Chain,
    change: impl Fn(&mut Refs) -> Result<T>,
) -> Result<T> {
    let key = DocKey::Refs(chain.clone());
    let mut tries = 0;
    loop {
        let loaded = load_refs(store, chain).await?;
        let mut refs = loaded.refs;
        let out = change(&mut refs)?;
        let expect = loaded.version.map_or(Expect::Absent, Expect::Version);
        match docs::save(store, ids, &key, &refs, expect, None).await {
            Ok(_) => return Ok(out),
            Err(e) if e.is_conflict() && tries < MAX_TRIES => tries += 1,
            Err(e) => return Err(e),
        }
    }
}
