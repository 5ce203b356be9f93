//! Refs (`index.json`): the head and the labels of one chain, changed only by
//! compare-and-swap, and rebuilt from the snapshot documents when lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::doc::Snapshot;
use super::label::Label;
use crate::error::{Error, Result};
use crate::ids::{Chain, Digest, SnapshotId};
use crate::store::{DocKey, docs};

/// Newest notes and operations kept.
pub const MAX_NOTES: usize = 256;

/// What a label means now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// When it was pointed there, RFC 3339.
    pub at: String,
    /// The attempt, for boundary labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// Retention keeps the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// A boundary that was not captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// When, RFC 3339.
    pub at: String,
    /// Why.
    pub reason: String,
}

/// A message given to a capture that added no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The snapshot it belongs to.
    pub snapshot: SnapshotId,
    /// The text.
    pub message: String,
    /// When, RFC 3339.
    pub at: String,
}

/// The recorded result of an operation id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationResult {
    /// Digest of the request.
    pub request_digest: Digest,
    /// The snapshot it produced or met.
    pub snapshot: SnapshotId,
    /// When, RFC 3339; the oldest go first.
    #[serde(default)]
    pub at: String,
}

/// Head and labels of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refs {
    /// 1.
    pub format_version: u64,
    /// Writes so far.
    #[serde(default)]
    pub cas_version: u64,
    /// The chain.
    pub chain: Chain,
    /// The newest snapshot.
    pub head: Option<SnapshotId>,
    /// Its sequence number.
    #[serde(default)]
    pub head_seq: u64,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<Label, Target>,
    /// Boundaries not captured.
    #[serde(default)]
    pub missing: BTreeMap<String, Missing>,
    /// Next number of `bank`, `gate`, `rewound`, `step`.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Newest notes.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Newest operations, by digest of their id.
    #[serde(default)]
    pub operations: BTreeMap<String, OperationResult>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Refs {
    /// An empty chain.
    pub fn empty(chain: Chain) -> Self {
        Self {
            format_version: super::doc::FORMAT_VERSION,
            cas_version: 0,
            chain,
            head: None,
            head_seq: 0,
            labels: BTreeMap::new(),
            missing: BTreeMap::new(),
            counters: BTreeMap::new(),
            notes: Vec::new(),
            operations: BTreeMap::new(),
            extra: Map::new(),
        }
    }

    /// Reads a refs document. `Corrupt` when it cannot be used, `Newer` for a later format.
    pub fn read(chain: &Chain, body: &[u8]) -> Result<Self> {
        let key = DocKey::Refs(chain.clone());
        docs::check_format(&key, body, super::doc::FORMAT_VERSION)?;
        let refs: Self = serde_json::from_slice(body)
            .map_err(|e| Error::corrupt(format!("refs {key} are not readable")).with_source(e))?;
        if refs.chain != *chain {
            return Err(Error::corrupt(format!("refs {key} name another chain, {}", refs.chain)));
        }
        Ok(refs)
    }

    /// Labels that point at `id` now.
    pub fn labels_of<'a>(&'a self, id: &'a SnapshotId) -> impl Iterator<Item = &'a Label> + 'a {
        self.labels.iter().filter(move |(_, t)| t.snapshot == *id).map(|(l, _)| l)
    }

    /// The sequence number after the head's, which counts even when the head's
    /// document cannot be read.
    pub fn next_seq(&self) -> u64 {
        if self.head.is_some() { self.head_seq + 1 } else { 0 }
    }

    /// Draws the next number of a counter.
    pub fn next_number(&mut self, counter: &str) -> u64 {
        let slot = self.counters.entry(counter.to_owned()).or_default();
        let n = *slot;
        *slot += 1;
        n
    }

    /// Adds a note and drops the oldest above the limit.
    pub fn add_note(&mut self, note: Note) {
        self.notes.push(note);
        let surplus = self.notes.len().saturating_sub(MAX_NOTES);
        self.notes.drain(..surplus);
    }

    /// Remembers an operation's result and drops the oldest above the limit.
    pub fn add_operation(&mut self, operation: &Digest, result: OperationResult) {
        self.operations.insert(operation.hex(), result);
        while self.operations.len() > MAX_NOTES {
            let oldest = self.operations.iter().min_by(|a, b| a.1.at.cmp(&b.1.at));
            let Some(key) = oldest.map(|(k, _)| k.clone()) else { break };
            self.operations.remove(&key);
        }
    }

    /// Rebuilds lost refs from the readable snapshot documents of a chain: head is
    /// the highest `seq` that no document names as parent, then the newest; labels
    /// come from `label` and `parent_labels`, later ones win. Counters go past every
    /// number seen. Pins, notes and operations of people cannot be recovered.
    pub fn rebuild(chain: Chain, snapshots: &[Snapshot]) -> Self {
        let mut refs = Self::empty(chain);
        let parents: BTreeSet<_> = snapshots.iter().filter_map(|s| s.parent.as_ref()).collect();
        let tips = snapshots.iter().filter(|s| !parents.contains(&s.id));
        if let Some(head) = tips.max_by_key(|s| (s.seq, s.created_at.clone())) {
            refs.head = Some(head.id.clone());
            refs.head_seq = head.seq;
        }
        let mut sorted: Vec<&Snapshot> = snapshots.iter().collect();
        sorted.sort_by_key(|s| (s.seq, s.created_at.clone()));
        for s in sorted {
            if let Some(parent) = &s.parent {
                for label in &s.parent_labels {
                    refs.point(label.clone(), parent.clone(), &s.created_at);
                }
            }
            if let Some(label) = &s.label {
                refs.point(label.clone(), s.id.clone(), &s.created_at);
                refs.raise_counter(label);
            }
            if let Some(op) = &s.operation {
                let at = s.created_at.clone();
                let (request_digest, snapshot) = (op.request_digest, s.id.clone());
                let result = OperationResult { request_digest, snapshot, at };
                refs.add_operation(&op.operation_digest, result);
            }
        }
        refs
    }

    fn point(&mut self, label: Label, snapshot: SnapshotId, at: &str) {
        let pinned = !label.is_reserved();
        self.labels.insert(label, Target { snapshot, at: at.to_owned(), attempt: None, pinned });
    }

    fn raise_counter(&mut self, label: &Label) {
        let Some((name, number)) = label.as_str().split_once(':') else { return };
        if ["bank", "gate", "rewound", "step"].contains(&name)
            && let Ok(n) = number.parse::<u64>()
        {
            let slot = self.counters.entry(name.to_owned()).or_default();
            *slot = (*slot).max(n + 1);
        }
    }
}
