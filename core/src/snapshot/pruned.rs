//! `pruned.json`: what retention removed from a chain, so that later commands can say
//! when and by which rule a snapshot went.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::label::Label;
use crate::clock::IdSource;
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, SnapshotId};
use crate::store::{DocKey, Expect, Store, docs};

/// Newest lines kept.
pub const MAX_LINES: usize = 10_000;
const MAX_TRIES: usize = 32;

/// One removed snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its id.
    pub id: SnapshotId,
    /// Its sequence number.
    pub seq: u64,
    /// The label given at its capture.
    pub label: Option<Label>,
    /// The labels that pointed at it when it went.
    #[serde(default)]
    pub labels: Vec<Label>,
    /// When, RFC 3339.
    pub at: String,
    /// By which rule.
    pub rule: String,
}

/// The removed snapshots of a chain, oldest removal first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// 1.
    pub format_version: u64,
    /// Writes so far.
    #[serde(default)]
    pub cas_version: u64,
    /// The lines.
    #[serde(default)]
    pub snapshots: Vec<Line>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Pruned {
    fn empty() -> Self {
        Self {
            format_version: super::doc::FORMAT_VERSION,
            cas_version: 0,
            snapshots: Vec::new(),
            extra: Map::new(),
        }
    }

    /// The newest line about a snapshot.
    pub fn find(&self, id: &SnapshotId) -> Option<&Line> {
        self.snapshots.iter().rev().find(|l| l.id == *id)
    }

    /// The newest line of a snapshot that carried `label`, at its capture or when it went.
    pub fn find_label(&self, label: &Label) -> Option<&Line> {
        let carried = |l: &&Line| l.label.as_ref() == Some(label) || l.labels.contains(label);
        self.snapshots.iter().rev().find(carried)
    }
}

/// Loads the lines of a chain; none when nothing was pruned or the document is unusable
/// (it explains, and nothing depends on it).
pub async fn load(store: &dyn Store, chain: &Chain) -> Result<Pruned> {
    match docs::load(store, &DocKey::Pruned(chain.clone()), super::doc::FORMAT_VERSION).await {
        Ok(found) => Ok(found.map_or_else(Pruned::empty, |(p, _)| p)),
        Err(e) if e.kind() == Kind::Corrupt => Ok(Pruned::empty()),
        Err(e) => Err(e),
    }
}

/// Adds lines, replacing older lines about the same snapshots, and drops the oldest
/// above [`MAX_LINES`].
pub async fn add(
    store: &dyn Store,
    ids: &dyn IdSource,
    chain: &Chain,
    lines: &[Line],
) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let key = DocKey::Pruned(chain.clone());
    for _ in 0..MAX_TRIES {
        let (mut pruned, expect) = match store.get(&key).await {
            Ok(doc) => {
                docs::check_format(&key, &doc.body, super::doc::FORMAT_VERSION)?;
                let pruned = serde_json::from_slice(&doc.body).unwrap_or_else(|_| Pruned::empty());
                (pruned, Expect::Version(doc.version))
            }
            Err(e) if e.is_not_found() => (Pruned::empty(), Expect::Absent),
            Err(e) => return Err(e),
        };
        pruned.snapshots.retain(|old| lines.iter().all(|l| l.id != old.id));
        pruned.snapshots.extend_from_slice(lines);
        let surplus = pruned.snapshots.len().saturating_sub(MAX_LINES);
        pruned.snapshots.drain(..surplus);
        match docs::save(store, ids, &key, &pruned, expect, None).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_conflict() => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::new(Kind::Conflict, "conflict", format!("{key} kept changing")))
}
