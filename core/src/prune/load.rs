//! Reading all that names objects: one listing of the documents, then every snapshot
//! document and every record that may refer to content.
//!
//! What cannot be read stops a prune: nobody knows what it refers to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;

use super::select::{LoadedChain, Row, RunState};
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, RunId, SnapshotId, WorkspaceKey};
use crate::path;
use crate::snapshot::chain::{History, load_refs};
use crate::snapshot::doc::Snapshot;
use crate::store::{DocKey, Listed, Prefix, Store, Version, docs};

/// Documents read at once.
const PARALLEL: usize = 16;
/// The newest version of journals, undo lists and checkpoints that this build reads.
const MAX_RECORD_VERSION: u64 = 1;

/// The documents of a store, as listed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Each with its version, which a list of all documents has, and age.
    pub docs: BTreeMap<String, (DocKey, Option<Version>, Duration)>,
    /// What no key names.
    pub foreign: Vec<String>,
}

/// A record that is no snapshot and may refer to content.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub key: DocKey,
    pub body: Bytes,
}

/// What could not be read; empty means that all was.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    /// Name and reason of each, sorted.
    pub rows: Vec<(String, Error)>,
}

impl Unreadable {
    pub(super) fn push(&mut self, name: impl Into<String>, error: Error) {
        self.rows.push((name.into(), error));
    }

    /// Exit 7 when anything is damaged, else 4 when all is merely newer.
    pub(super) fn check(mut self) -> Result<()> {
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        let Some((name, _)) = self.rows.first() else { return Ok(()) };
        let newer = self.rows.iter().all(|(_, e)| e.kind() == Kind::Newer);
        let more = match self.rows.len() - 1 {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let rows: Vec<String> = self.rows.iter().map(|(n, e)| format!("{n}: {e}")).collect();
        let (kind, code, what) = match newer {
            true => (Kind::Newer, "store-newer", "is of a newer format"),
            false => (Kind::Corrupt, "corrupt", "cannot be read"),
        };
        let message = format!("{name}{more} {what}, so nothing was deleted: {}", rows.join("; "));
        let hint = if newer { "upgrade backtrail" } else { "backtrail verify --all" };
        let mut e = Error::new(kind, code, message).with_hint(hint);
        e = e.with_detail("unreadable", rows);
        Err(match self.rows.into_iter().next() {
            Some((_, source)) => e.with_source(source),
            None => e,
        })
    }
}

/// Lists every document. Refuses another store's keys, and whatever stands in the
/// place of a snapshot, journal or checkpoint and is none.
pub(super) async fn list(store: &dyn Store) -> Result<Listing> {
    let mut out = Listing::default();
    let mut rows = store.list(&Prefix::All);
    while let Some(row) = rows.next().await {
        match row.map_err(listing_failed)? {
            Listed::Doc { key, version, age } => {
                out.docs.insert(key.to_string(), (key, version, age));
            }
            Listed::Foreign { name } => out.foreign.push(name),
        }
    }
    let mut unreadable = Unreadable::default();
    for name in &out.foreign {
        if is_other_store(name) {
            return Err(other_store(name));
        }
        if hides_references(name) {
            unreadable.push(name.clone(), Error::corrupt(format!("{name} is no document")));
        }
    }
    unreadable.check()?;
    Ok(out)
}

/// A place that cannot be listed is not an empty place: stored data is unreadable.
fn listing_failed(e: Error) -> Error {
    if e.kind() != Kind::Denied {
        return e;
    }
    let message = format!("documents cannot be listed, so nothing was deleted: {e}");
    Error::corrupt(message).with_detail("unreadable", vec![e.message()]).with_source(e)
}

/// True for what stands where a document that refers to content could stand. What lies
/// beside our own places is nobody's business.
fn hides_references(name: &str) -> bool {
    let own = ["runs/", "workspaces/", "checkpoints/"].iter().any(|p| name.starts_with(p));
    let last = name.rsplit('/').next().unwrap_or_default();
    if !own || last.starts_with(".tmp-") {
        return false;
    }
    let places = ["/snapshots/", "/journals/"];
    DocKey::parse(name).is_some()
        || name.starts_with("checkpoints/")
        || ["/snapshots", "/journals"].iter().any(|p| name.ends_with(p))
        || places.iter().any(|p| name.contains(p))
}

/// True for a key that only a store of its own would have, below ours.
pub(super) fn is_other_store(name: &str) -> bool {
    name.ends_with("/store.json") || name.contains("/workspace-objects/")
}

pub(super) fn other_store(name: &str) -> Error {
    let message = format!("{name} belongs to another store below this one; nothing was deleted");
    Error::refused("foreign-store", message).with_detail("key", name)
}

/// Reads the given snapshot documents; coverage records are dropped, to bound memory.
pub(super) async fn read_snapshots(
    store: &dyn Store,
    keys: Vec<DocKey>,
    unreadable: &mut Unreadable,
) -> Result<Vec<Snapshot>> {
    let mut out = Vec::with_capacity(keys.len());
    for (key, body) in read(store, keys, unreadable).await? {
        match Snapshot::read(&key, &body) {
            Ok(mut s) => {
                s.coverage.records = None;
                out.push(s);
            }
            Err(e) => unreadable.push(key.to_string(), e),
        }
    }
    Ok(out)
}

/// Reads every record of `keys` that may refer to content.
pub(super) async fn read_records(
    store: &dyn Store,
    keys: Vec<DocKey>,
    unreadable: &mut Unreadable,
) -> Result<Vec<Record>> {
    let mut out = Vec::new();
    for (key, body) in read(store, keys, unreadable).await? {
        match version_of(&key, &body) {
            Ok(()) => out.push(Record { key, body }),
            Err(e) => unreadable.push(key.to_string(), e),
        }
    }
    Ok(out)
}

/// Records that may name objects or snapshots, besides snapshot documents.
pub(super) fn is_record(key: &DocKey) -> bool {
    !matches!(
        key,
        DocKey::Marker
            | DocKey::Damage
            | DocKey::Refs(_)
            | DocKey::Pruned(_)
            | DocKey::Snapshot(..)
            | DocKey::RunTombstone(_)
    )
}

async fn read(
    store: &dyn Store,
    keys: Vec<DocKey>,
    unreadable: &mut Unreadable,
) -> Result<Vec<(DocKey, Bytes)>> {
    let gets = keys.into_iter().map(|key| async move {
        let doc = store.get(&key).await;
        (key, doc)
    });
    let mut gets = futures::stream::iter(gets).buffer_unordered(PARALLEL);
    let mut out = Vec::new();
    while let Some((key, doc)) = gets.next().await {
        match doc {
            Ok(doc) => out.push((key, doc.body)),
            Err(e) if e.is_not_found() => {} // deleted since the listing
            Err(e) if matches!(e.kind(), Kind::Unavailable { .. }) => return Err(e),
            Err(e) => unreadable.push(key.to_string(), e),
        }
    }
    Ok(out)
}

/// Records must be JSON objects; those whose format is ours to know must not be newer.
fn version_of(key: &DocKey, body: &[u8]) -> Result<()> {
    docs::parse_object(key, body)?;
    let versioned = matches!(
        key,
        DocKey::Journal(..)
            | DocKey::Operations(_)
            | DocKey::Checkpoint(..)
            | DocKey::CheckpointRewind(..)
    );
    if versioned { docs::check_format(key, body, MAX_RECORD_VERSION) } else { Ok(()) }
}

/// Puts snapshots, refs and runs together, chain by chain.
pub(super) async fn chains(
    store: &dyn Store,
    listing: &Listing,
    snapshots: Vec<Snapshot>,
    records: &[Record],
) -> Result<Vec<LoadedChain>> {
    let mut by_chain: BTreeMap<Chain, BTreeMap<SnapshotId, Snapshot>> = BTreeMap::new();
    for s in snapshots {
        by_chain.entry(s.chain.clone()).or_default().insert(s.id.clone(), s);
    }
    let runs = run_states(records);
    let mut out = Vec::new();
    for (chain, snapshots) in by_chain {
        let refs = load_refs(store, &chain).await.map_err(listing_failed)?;
        let history = History { refs, snapshots, unreadable: Vec::new() };
        let reach: BTreeSet<SnapshotId> = history.reachable();
        let mut rows: Vec<Row> = history
            .snapshots
            .into_values()
            .map(|snapshot| Row {
                age: age_of(listing, &snapshot),
                reachable: reach.contains(&snapshot.id),
                snapshot,
            })
            .collect();
        // by sequence, never by time: clocks step back
        rows.sort_by(|a, b| {
            (b.snapshot.seq, &b.snapshot.id).cmp(&(a.snapshot.seq, &a.snapshot.id))
        });
        let run = match &chain {
            Chain::Run(r) => runs.get(r).cloned().unwrap_or(RunState::Ended),
            _ => RunState::Ended,
        };
        let workspace = workspace_of(&chain, rows.first().map(|r| &r.snapshot));
        let rebuilt = history.refs.rebuilt;
        out.push(LoadedChain { chain, refs: history.refs.refs, rebuilt, rows, run, workspace });
    }
    Ok(out)
}

fn age_of(listing: &Listing, s: &Snapshot) -> Duration {
    listing.docs.get(&s.key().to_string()).map(|(_, _, age)| *age).unwrap_or_default()
}

/// The workspace that a chain is of: for runs, that of the newest snapshot.
pub(super) fn workspace_of(chain: &Chain, newest: Option<&Snapshot>) -> Option<WorkspaceKey> {
    if let Chain::Workspace(key) = chain {
        return Some(key.clone());
    }
    let ws = &newest?.workspace;
    let root = path::parse_text(&ws.root).ok()?;
    Some(WorkspaceKey::of(&root, &ws.machine))
}

/// Only a run that is known to have finished or failed is at its end; every other
/// status, also one this build does not know, may still execute.
fn run_states(records: &[Record]) -> HashMap<RunId, RunState> {
    let mut out = HashMap::new();
    for r in records {
        let DocKey::Run(run) = &r.key else { continue };
        let status = serde_json::from_slice::<Value>(&r.body).ok();
        let status = status.and_then(|v| Some(v.get("status")?.as_str()?.to_owned()));
        let state = match status.as_deref() {
            Some("finished" | "failed") => RunState::Ended,
            Some(other) => RunState::Unfinished(other.to_owned()),
            None => RunState::Unfinished(String::from("of unknown status")),
        };
        out.insert(run.clone(), state);
    }
    out
}
