//! Which collection a document lies in, and what of its body is kept beside it for people
//! and other programs to ask for. The key in an `_id` is the one of every other backend.

use backtrail_core::ids::Chain;
use backtrail_core::store::docs::token_of;
use backtrail_core::store::{DocKey, Prefix};
use mongodb::bson::{Document, doc};
use serde_json::{Map, Value};

pub(super) const META: &str = "meta";
pub(super) const OBJECTS: &str = "objects";
pub(super) const EVENTS: &str = "events";
pub(super) const RUN_LOGS: &str = "run_logs";
pub(super) const HEADS: &str = "heads";
pub(super) const LOCKS: &str = "locks";

/// The collections of documents.
const DOCUMENTS: &[&str] = &[
    META,
    "runs",
    "interactions",
    "artifacts",
    "tombstones",
    "refs",
    "snapshots",
    "journals",
    "checkpoints",
    "worktrees",
];

/// Members of a run's record that are kept beside it.
const OF_A_RUN: [&str; 7] =
    ["status", "workflow_name", "created_at", "updated_at", "queued_at", "pool", "runner_id"];

/// The collection of a document.
pub(super) fn table_of(key: &DocKey) -> &'static str {
    match key {
        DocKey::Marker | DocKey::Damage => META,
        DocKey::Run(_) => "runs",
        DocKey::Interaction(..) => "interactions",
        DocKey::Artifact(..) => "artifacts",
        DocKey::RunTombstone(_) => "tombstones",
        DocKey::Refs(_) | DocKey::Pruned(_) => "refs",
        DocKey::Snapshot(..) => "snapshots",
        DocKey::Operations(_) | DocKey::Journal(..) => "journals",
        DocKey::Subject(_)
        | DocKey::SubjectRefs(_)
        | DocKey::Checkpoint(..)
        | DocKey::CheckpointRewind(..) => "checkpoints",
        DocKey::WorktreeManifest(_) => "worktrees",
    }
}

/// The collection of a key of [`crate::net::Small`].
pub(super) fn table_of_small(key: &str) -> Option<&'static str> {
    if key.starts_with("locks/") {
        return Some(LOCKS);
    }
    if key.starts_with("runs/") && key.ends_with("/head.json") {
        return Some(HEADS);
    }
    DocKey::parse(key).map(|key| table_of(&key))
}

/// The collections that may hold documents below a prefix.
pub(super) fn tables_of(prefix: &Prefix) -> &'static [&'static str] {
    match prefix {
        Prefix::All => DOCUMENTS,
        Prefix::Runs | Prefix::Run(_) => {
            &["runs", "interactions", "artifacts", "refs", "snapshots"]
        }
        // A run that lost its record is seen by its refs; with many runs their snapshots
        // must not be read for that.
        Prefix::RunRecords => &["runs", "refs"],
        Prefix::Artifacts(_) => &["artifacts"],
        Prefix::Interactions(_) => &["interactions"],
        Prefix::RunTombstones => &["tombstones"],
        Prefix::Snapshots(_) => &["snapshots"],
        Prefix::Journals(_) => &["journals"],
        Prefix::Place(Chain::Workspace(_)) | Prefix::Workspaces => {
            &["refs", "snapshots", "journals"]
        }
        Prefix::Place(_) => &["refs", "snapshots"],
        Prefix::Checkpoints | Prefix::Subject(_) => &["checkpoints", "refs", "snapshots"],
    }
}

/// Fields beside a body: those to set and those to take away.
pub(super) fn fields_of(key: &DocKey, body: &[u8]) -> (Document, Vec<&'static str>) {
    let mut set = Document::new();
    let mut unset = Vec::new();
    match token_of(body).and_then(|t| i64::try_from(t).ok()) {
        Some(token) if key.run().is_some() => drop(set.insert("token", token)),
        _ => unset.push("token"),
    }
    match key {
        DocKey::Run(_) => {
            let map: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
            for name in OF_A_RUN {
                match map.get(name) {
                    Some(Value::String(text)) => drop(set.insert(name, text.as_str())),
                    _ => unset.push(name),
                }
            }
        }
        DocKey::Snapshot(chain, _) => {
            let map: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
            set.insert("chain", chain.to_string());
            let seq = map.get("seq").and_then(Value::as_i64).unwrap_or_default();
            set.insert("seq", seq);
        }
        DocKey::Artifact(run, node, version) => {
            set.insert("run_id", run.as_str());
            set.insert("node_id", node.as_str());
            set.insert("version", i64::try_from(*version).unwrap_or(i64::MAX));
        }
        _ => {
            if let Some(owner) = owner_of(key) {
                set.insert("owner", owner);
            }
        }
    }
    (set, unset)
}

/// The run, chain, workspace or subject that a document belongs to.
fn owner_of(key: &DocKey) -> Option<String> {
    Some(match key {
        DocKey::Interaction(run, _) | DocKey::RunTombstone(run) | DocKey::WorktreeManifest(run) => {
            run.to_string()
        }
        DocKey::Refs(chain) | DocKey::Pruned(chain) => chain.to_string(),
        DocKey::Operations(key) | DocKey::Journal(key, _) => key.to_string(),
        DocKey::Subject(subject)
        | DocKey::SubjectRefs(subject)
        | DocKey::Checkpoint(subject, _)
        | DocKey::CheckpointRewind(subject, _) => subject.to_string(),
        _ => return None,
    })
}

/// An index that a store needs: its collection, its fields behind the tenant, and the
/// field whose presence it asks for.
pub(super) struct Index {
    pub(super) table: &'static str,
    pub(super) fields: &'static [(&'static str, i32)],
    pub(super) exists: Option<&'static str>,
}

const fn index(table: &'static str, fields: &'static [(&'static str, i32)]) -> Index {
    Index { table, fields, exists: None }
}

/// Every index beside the one on `_id`, which orders and guards all that this build
/// reads; these are for who asks by other fields.
pub(super) const INDEXES: &[Index] = &[
    index("runs", &[("status", 1), ("created_at", 1)]),
    index("runs", &[("workflow_name", 1), ("created_at", -1)]),
    index("runs", &[("updated_at", -1)]),
    index("runs", &[("pool", 1), ("status", 1), ("queued_at", 1)]),
    Index { table: "runs", fields: &[("runner_id", 1)], exists: Some("runner_id") },
    index("snapshots", &[("chain", 1), ("seq", 1)]),
    index("refs", &[("owner", 1)]),
    index("interactions", &[("owner", 1)]),
    index("journals", &[("owner", 1)]),
    index("checkpoints", &[("owner", 1)]),
    index("worktrees", &[("owner", 1)]),
    index("tombstones", &[("owner", 1)]),
    index("artifacts", &[("run_id", 1), ("node_id", 1), ("version", 1)]),
    index(EVENTS, &[("run_id", 1), ("type", 1)]),
];

impl Index {
    /// Its keys.
    pub(super) fn keys(&self) -> Document {
        let mut keys = doc! { "tenant": 1 };
        keys.extend(self.fields.iter().map(|(name, order)| ((*name).to_owned(), (*order).into())));
        keys
    }
}
