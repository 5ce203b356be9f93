//! The snapshots from the head of a chain back to a target, past what was undone.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, SnapshotId};
use crate::snapshot::chain::{load_refs, read_snapshot};
use crate::snapshot::doc::Snapshot;
use crate::snapshot::pruned;
use crate::store::Store;

/// The snapshots between a head and a target, newest first; the target is the last.
#[derive(Clone, Debug)]
pub struct Line {
    /// At least the target.
    pub snapshots: Vec<Snapshot>,
    /// Boundaries after the head that could not be captured: label and reason.
    pub missed: BTreeMap<String, String>,
}

impl Line {
    /// The intervals, newest first: (older, newer).
    pub fn intervals(&self) -> impl Iterator<Item = (&Snapshot, &Snapshot)> {
        self.snapshots.windows(2).map(|pair| (&pair[1], &pair[0]))
    }
}

/// Walks along `parent`; a snapshot that was written after files went back goes on at
/// the one they went back to, since what lies between was undone.
pub async fn line(store: &dyn Store, chain: &Chain, target: &Snapshot) -> Result<Line> {
    let refs = load_refs(store, chain).await?.refs;
    let Some(head) = refs.head.clone() else {
        return Err(unreadable(format!("chain {chain} has no head")));
    };
    let head = read(store, chain, &head).await?;
    let later = refs.missing.into_iter().filter(|(_, m)| m.at > head.created_at);
    let missed: BTreeMap<String, String> = later.map(|(label, m)| (label, m.reason)).collect();
    if let Some((label, reason)) = missed.iter().find(|(label, _)| label.starts_with("resume:")) {
        return Err(gap(label, reason));
    }
    let mut at = head;
    let mut seen = BTreeSet::from([at.id.clone()]);
    let mut snapshots = Vec::new();
    let mut undone = Vec::new();
    while at.id != target.id {
        if let Some(missed) = at.missed.iter().find(|m| m.label.starts_with("resume:")) {
            return Err(gap(&missed.label, &missed.reason));
        }
        let next = match (&at.rewound_to, &at.parent) {
            (Some(to), parent) => {
                undone.extend(parent.clone().map(|parent| (parent, to.clone())));
                to.clone()
            }
            (None, Some(parent)) => parent.clone(),
            (None, None) => return Err(not_met(store, chain, target, undone).await),
        };
        let older = read(store, chain, &next).await?;
        if older.seq >= at.seq || !seen.insert(older.id.clone()) {
            let message = format!("snapshots {} and {} name each other", at.id, older.id);
            return Err(unreadable(message));
        }
        snapshots.push(std::mem::replace(&mut at, older));
    }
    snapshots.push(at);
    Ok(Line { snapshots, missed })
}

/// Says why the target does not lie on the way.
async fn not_met(
    store: &dyn Store,
    chain: &Chain,
    target: &Snapshot,
    undone: Vec<(SnapshotId, SnapshotId)>,
) -> Error {
    for (mut id, to) in undone {
        while id != to {
            if id == target.id {
                let message = format!("snapshot {id} was undone by a rewind since");
                return skipped("undone-by-rewind", message)
                    .with_hint(format!("backtrail rewind --restore-snapshot {id}"));
            }
            match read_snapshot(store, chain, &id).await.map(|s| s.parent) {
                Ok(Some(parent)) => id = parent,
                Ok(None) | Err(_) => break,
            }
        }
    }
    unreadable(format!("snapshot {} is not an ancestor of the head of {chain}", target.id))
}

async fn read(store: &dyn Store, chain: &Chain, id: &SnapshotId) -> Result<Snapshot> {
    let e = match read_snapshot(store, chain, id).await {
        Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt | Kind::Newer) => e,
        found => return found,
    };
    if let Some(line) = pruned::load(store, chain).await?.find(id) {
        let message = format!("snapshot {id} was pruned at {} ({})", line.at, line.rule);
        return Err(skipped("chain-pruned", message).with_kind(Kind::NotFound));
    }
    let message =
        format!("snapshot {id} of {chain} cannot be read, so what the run changed is not known");
    Err(unreadable(message).with_source(e))
}

/// A refusal that carries its reason for a rewind without files.
fn skipped(reason: &'static str, message: impl Into<String>) -> Error {
    Error::refused(reason, message).with_detail("skip_reason", reason)
}

fn unreadable(message: String) -> Error {
    skipped("chain-unreadable", message)
}

fn gap(label: &str, why: &str) -> Error {
    let message = format!(
        "boundary {label} could not be captured ({why}), so edits made while the run was parked \
         cannot be told from the run's own"
    );
    skipped("chain-gap", message)
}
