//! What a verify found.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::Error;
use crate::ids::{Digest, SnapshotId};
use crate::object::content;
use crate::reach::Hit;
use crate::snapshot::doc::Snapshot;

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    /// It is not there.
    Missing,
    /// It has fewer bytes than recorded.
    Short,
    /// It has more bytes than recorded.
    Long,
    /// It has other bytes.
    WrongBytes,
    /// It cannot be decompressed, or is no tree, rule set or record list.
    Undecodable,
}

impl Problem {
    /// The problem that an error of damage tells of.
    pub fn of(e: &Error) -> Self {
        match content::problem_of(e) {
            Some("missing") => Self::Missing,
            Some("short") => Self::Short,
            Some("long") => Self::Long,
            Some("undecodable") => Self::Undecodable,
            _ => Self::WrongBytes,
        }
    }
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Snapshot documents.
    pub snapshots: u64,
    /// Distinct trees.
    pub trees: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Their bytes, as recorded.
    pub bytes: u64,
}

/// One damaged object, or one content whose chunks make something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// Its name.
    pub digest: Digest,
    /// What is wrong.
    pub problem: Problem,
    /// Who needs it.
    #[serde(flatten)]
    pub hit: Hit,
}

/// A document that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadableRow {
    /// Its name in the store.
    pub name: String,
    /// Why.
    pub error: String,
    /// It is of a newer format, which is no damage.
    pub newer: bool,
}

/// A snapshot with damage: all but some paths restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partial {
    /// Its id.
    pub id: SnapshotId,
    /// Damaged objects it needs.
    pub damaged: u64,
}

/// What can still be put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restorable {
    /// Snapshots without damage.
    pub whole: Vec<SnapshotId>,
    /// Snapshots with damage: every path but the listed ones restores.
    pub partial: Vec<Partial>,
}

/// The report of a verify: its JSON form is API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every object was hashed again.
    pub deep: bool,
    /// How much was looked at.
    pub checked: Checked,
    /// Objects whose presence and length alone were looked at.
    pub not_rehashed: u64,
    /// Damage, by digest.
    pub damaged: Vec<Damaged>,
    /// Documents that cannot be read.
    pub unreadable: Vec<UnreadableRow>,
    /// What can still be put back.
    pub restorable: Restorable,
}

impl Report {
    /// True if nothing is damaged (exit 0); else exit 7.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.unreadable.is_empty()
    }
}

pub(super) fn rows(
    damaged: BTreeMap<Digest, Problem>,
    hits: &BTreeMap<Digest, Hit>,
) -> Vec<Damaged> {
    let hit = |d: &Digest| hits.get(d).cloned().unwrap_or_default();
    damaged
        .into_iter()
        .map(|(digest, problem)| Damaged { digest, problem, hit: hit(&digest) })
        .collect()
}

pub(super) fn restorable(snapshots: &[Snapshot], damaged: &[Damaged]) -> Restorable {
    let mut counts: BTreeMap<&SnapshotId, u64> = BTreeMap::new();
    for id in damaged.iter().flat_map(|d| &d.hit.snapshots) {
        *counts.entry(id).or_default() += 1;
    }
    let ids: BTreeSet<&SnapshotId> = snapshots.iter().map(|s| &s.id).collect();
    let whole = ids.into_iter().filter(|id| !counts.contains_key(id)).cloned().collect();
    let partial =
        counts.into_iter().map(|(id, damaged)| Partial { id: id.clone(), damaged }).collect();
    Restorable { whole, partial }
}
