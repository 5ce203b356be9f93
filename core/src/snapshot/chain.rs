//! Chains as stored: loading refs and documents, what is reachable, and which
//! snapshot a text means.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;

use super::doc::Snapshot;
use super::label::{self, Label};
use super::pruned;
use super::refs::Refs;
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, SnapshotId};
use crate::store::{DocKey, Listed, Prefix, Store, Version};

/// A document that cannot be read: one row with its error, never the end of a listing.
#[derive(Debug)]
pub struct Unreadable {
    /// Its name in the store.
    pub name: String,
    /// Its id, when the name has the form of one.
    pub id: Option<SnapshotId>,
    /// Why.
    pub error: Error,
}

/// Refs as loaded.
#[derive(Clone, Debug)]
pub struct LoadedRefs {
    /// The refs.
    pub refs: Refs,
    /// The version to replace; `None` when the document does not exist.
    pub version: Option<Version>,
    /// They were lost and rebuilt from the documents; says what could not be recovered.
    pub rebuilt: Option<String>,
}

impl LoadedRefs {
    /// Whether they are those of `chain` as the store has them at `version`.
    fn is_at(&self, chain: &Chain, version: &Version) -> bool {
        self.rebuilt.is_none()
            && self.version.as_ref() == Some(version)
            && self.refs.chain == *chain
    }
}

/// Everything of one chain.
#[derive(Debug)]
pub struct History {
    /// Head and labels.
    pub refs: LoadedRefs,
    /// Every readable snapshot document.
    pub snapshots: BTreeMap<SnapshotId, Snapshot>,
    /// Every other thing in the snapshots' place.
    pub unreadable: Vec<Unreadable>,
}

/// Reads one snapshot document and validates it.
pub async fn read_snapshot(store: &dyn Store, chain: &Chain, id: &SnapshotId) -> Result<Snapshot> {
    let key = DocKey::Snapshot(chain.clone(), id.clone());
    let doc = store.get(&key).await?;
    Snapshot::read(&key, &doc.body)
}

/// Loads the refs of a chain. Lost, empty or undecodable refs are rebuilt in memory
/// and never read as "no history"; refs of a newer format are an error.
pub async fn load_refs(store: &dyn Store, chain: &Chain) -> Result<LoadedRefs> {
    load_refs_again(store, chain, None).await
}

/// The same for who has read them before: what is `known` is not decoded again while it
/// is of the version that the store has.
pub async fn load_refs_again(
    store: &dyn Store,
    chain: &Chain,
    known: Option<LoadedRefs>,
) -> Result<LoadedRefs> {
    let key = DocKey::Refs(chain.clone());
    let (why, version) = match store.get(&key).await {
        Ok(doc) => {
            if let Some(known) = known.filter(|k| k.is_at(chain, &doc.version)) {
                return Ok(known);
            }
            match Refs::read(chain, &doc.body) {
                Ok(refs) => {
                    return Ok(LoadedRefs { refs, version: Some(doc.version), rebuilt: None });
                }
                Err(e) if e.kind() == Kind::Newer => return Err(e),
                Err(e) => (e.message().to_owned(), Some(doc.version)),
            }
        }
        Err(e) if e.is_not_found() => (format!("refs {key} are gone"), None),
        Err(e) => return Err(e),
    };
    let (snapshots, unreadable) = load_snapshots(store, chain).await?;
    if snapshots.is_empty() && unreadable.is_empty() && version.is_none() {
        return Ok(LoadedRefs { refs: Refs::empty(chain.clone()), version, rebuilt: None });
    }
    if let Some(newer) = unreadable.iter().position(|u| u.error.kind() == Kind::Newer) {
        let mut unreadable = unreadable;
        return Err(unreadable.swap_remove(newer).error);
    }
    let all: Vec<Snapshot> = snapshots.into_values().collect();
    let refs = Refs::rebuild(chain.clone(), &all);
    let rebuilt = format!(
        "{why}; rebuilt from {} snapshot documents ({} unreadable). Pins of labels written \
         without a capture, notes and missed boundaries could not be recovered",
        all.len(),
        unreadable.len()
    );
    Ok(LoadedRefs { refs, version, rebuilt: Some(rebuilt) })
}

/// Reads every snapshot document of a chain; what cannot be read becomes a row.
pub async fn load_snapshots(
    store: &dyn Store,
    chain: &Chain,
) -> Result<(BTreeMap<SnapshotId, Snapshot>, Vec<Unreadable>)> {
    let mut good = BTreeMap::new();
    let mut bad = Vec::new();
    let mut keys = Vec::new();
    let mut rows = store.list(&Prefix::Snapshots(chain.clone()));
    while let Some(row) = rows.next().await {
        match row? {
            Listed::Doc { key, .. } => keys.push(key),
            Listed::Foreign { name } => {
                let error = Error::corrupt(format!("{name} is no snapshot document"));
                bad.push(Unreadable { name, id: None, error });
            }
        }
    }
    let reads = futures::stream::iter(keys).map(|key| async move {
        let doc = store.get(&key).await;
        (key, doc)
    });
    let mut reads = reads.buffer_unordered(16);
    while let Some((key, doc)) = reads.next().await {
        let DocKey::Snapshot(_, id) = &key else { continue };
        match doc.and_then(|d| Snapshot::read(&key, &d.body)) {
            Ok(s) => {
                good.insert(s.id.clone(), s);
            }
            Err(e) if e.is_not_found() => {} // pruned since the listing
            Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Newer | Kind::Invalid) => {
                bad.push(Unreadable { name: key.to_string(), id: Some(id.clone()), error: e });
            }
            Err(e) => return Err(e),
        }
    }
    bad.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((good, bad))
}

impl History {
    /// Loads all of a chain.
    pub async fn load(store: &dyn Store, chain: &Chain) -> Result<Self> {
        let refs = load_refs(store, chain).await?;
        let (snapshots, unreadable) = load_snapshots(store, chain).await?;
        Ok(Self { refs, snapshots, unreadable })
    }

    /// Ids that head and labels reach along `parent`. Across a document that cannot
    /// be read, every lower `seq` counts as reached.
    pub fn reachable(&self) -> BTreeSet<SnapshotId> {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<(SnapshotId, u64)> = Vec::new();
        todo.extend(self.refs.refs.head.clone().map(|h| (h, self.refs.refs.head_seq)));
        todo.extend(self.refs.refs.labels.values().map(|t| (t.snapshot.clone(), u64::MAX)));
        while let Some((id, seq)) = todo.pop() {
            match self.snapshots.get(&id) {
                Some(s) => {
                    if seen.insert(id)
                        && let Some(parent) = &s.parent
                    {
                        todo.push((parent.clone(), s.seq.saturating_sub(1)));
                    }
                }
                None if seq != u64::MAX => {
                    let lower = self.snapshots.values().filter(|s| s.seq < seq);
                    seen.extend(lower.map(|s| s.id.clone()));
                }
                None => {}
            }
        }
        seen
    }

    /// The reachable snapshots, newest (highest `seq`) first.
    pub fn newest_first(&self) -> Vec<&Snapshot> {
        let reach = self.reachable();
        let mut rows: Vec<&Snapshot> = reach.iter().filter_map(|i| self.snapshots.get(i)).collect();
        rows.sort_by(|a, b| (b.seq, &b.created_at).cmp(&(a.seq, &a.created_at)));
        rows
    }
}

/// Which snapshot `text` means in `chain`: `latest`, a label, an id prefix of at
/// least four digits, each with an optional `~N`; ids are then looked for in the
/// whole store. Ambiguous: `ambiguous` (exit 2) with the candidates. Nothing:
/// `not-found` (exit 6).
pub async fn resolve(store: &dyn Store, chain: &Chain, text: &str) -> Result<Snapshot> {
    match find(store, chain, text).await {
        Err(e) if e.is_not_found() => Err(explained(store, chain, text, e).await),
        found => found,
    }
}

/// What is not found may have been pruned: then when, and by which rule.
async fn explained(store: &dyn Store, chain: &Chain, text: &str, e: Error) -> Error {
    let (Ok((name, _)), Ok(gone)) = (split_back(text), pruned::load(store, chain).await) else {
        return e;
    };
    let by_id = label::is_id_like(name);
    let is = |l: &Label| l.as_str() == name;
    let line = gone.snapshots.iter().rev().find(|line| match by_id {
        true => line.id.as_str().starts_with(&name.to_ascii_lowercase()),
        false => line.label.iter().chain(&line.labels).any(is),
    });
    line.map_or(e, was_pruned)
}

fn was_pruned(line: &pruned::Line) -> Error {
    let message = format!("snapshot {} was pruned at {} ({})", line.id, line.at, line.rule);
    Error::not_found(message).with_code("pruned").with_hint("backtrail list")
}

async fn find(store: &dyn Store, chain: &Chain, text: &str) -> Result<Snapshot> {
    let (name, back) = split_back(text)?;
    let refs = load_refs(store, chain).await?.refs;
    let found = match name {
        "latest" => {
            let head = refs.head.clone().ok_or_else(|| none(text, chain))?;
            skip_banks(store, read_snapshot(store, chain, &head).await?).await?
        }
        _ if label::is_id_like(name) => resolve_id(store, chain, name).await?,
        _ => {
            let id = resolve_label(&refs, &Label::new(name)?).ok_or_else(|| none(text, chain))?;
            read_snapshot(store, chain, &id).await?
        }
    };
    go_back(store, found, back, text).await
}

fn none(text: &str, chain: &Chain) -> Error {
    Error::not_found(format!("no snapshot {text:?} in chain {chain}")).with_hint("backtrail list")
}

fn split_back(text: &str) -> Result<(&str, u64)> {
    let Some((name, n)) = text.split_once('~') else { return Ok((text, 0)) };
    let n = if n.is_empty() { Ok(1) } else { n.parse() };
    let n = n.map_err(|_| Error::invalid(format!("{text:?} is not valid: ~ takes a number")))?;
    Ok((name, n))
}

fn resolve_label(refs: &Refs, name: &Label) -> Option<SnapshotId> {
    if let Some(t) = refs.labels.get(name) {
        return Some(t.snapshot.clone());
    }
    // `pre:build` without an iteration is the highest recorded.
    let prefix = format!("{name}:");
    let numbered = refs.labels.iter().filter_map(|(l, t)| {
        let n: u64 = l.as_str().strip_prefix(&prefix)?.parse().ok()?;
        l.is_boundary().then_some((n, t))
    });
    numbered.max_by_key(|(n, _)| *n).map(|(_, t)| t.snapshot.clone())
}

async fn skip_banks(store: &dyn Store, mut s: Snapshot) -> Result<Snapshot> {
    while s.is_bank()
        && let Some(parent) = &s.parent
    {
        s = read_parent(store, &s.chain, parent).await?;
    }
    Ok(s)
}

/// A snapshot that another names as its parent: when it is gone, it was pruned.
async fn read_parent(store: &dyn Store, chain: &Chain, id: &SnapshotId) -> Result<Snapshot> {
    match read_snapshot(store, chain, id).await {
        Err(e) if e.is_not_found() => {
            let gone = pruned::load(store, chain).await?;
            Err(gone.snapshots.iter().rev().find(|l| l.id == *id).map_or(e, was_pruned))
        }
        found => found,
    }
}

async fn go_back(store: &dyn Store, mut s: Snapshot, back: u64, text: &str) -> Result<Snapshot> {
    for _ in 0..back {
        let parent = s.parent.clone().ok_or_else(|| none(text, &s.chain))?;
        s = skip_banks(store, read_parent(store, &s.chain, &parent).await?).await?;
    }
    Ok(s)
}

async fn resolve_id(store: &dyn Store, chain: &Chain, prefix: &str) -> Result<Snapshot> {
    if prefix.len() <= 16
        && let Ok(id) = SnapshotId::new(prefix)
        && let Ok(s) = read_snapshot(store, chain, &id).await
        && History::load(store, chain).await?.reachable().contains(&id)
    {
        return Ok(s);
    }
    let own = candidates(store, chain, prefix).await?;
    let found = if own.is_empty() { everywhere(store, chain, prefix).await? } else { own };
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Err(none(prefix, chain)),
        (Some(one), None) => Ok(one),
        (Some(a), Some(b)) => Err(ambiguous(prefix, [a, b].into_iter().chain(found))),
    }
}

fn ambiguous(prefix: &str, found: impl Iterator<Item = Snapshot>) -> Error {
    let rows: Vec<String> = found
        .map(|s| {
            let label = s.label.map(|l| format!(" {l}")).unwrap_or_default();
            format!("{} ({}{label})", s.id, s.created_at)
        })
        .collect();
    Error::invalid(format!("id prefix {prefix:?} is ambiguous: {}", rows.join(", ")))
        .with_code("ambiguous")
        .with_detail("candidates", rows)
}

async fn candidates(store: &dyn Store, chain: &Chain, prefix: &str) -> Result<Vec<Snapshot>> {
    let history = History::load(store, chain).await?;
    let prefix = prefix.to_ascii_lowercase();
    let matches = |d: String| d.starts_with(&prefix);
    if let Some(bad) = history.unreadable.into_iter().find(|u| {
        u.id.as_ref().is_some_and(|id| id.as_str().starts_with(&prefix)) && prefix.len() >= 16
    }) {
        return Err(bad.error);
    }
    let reach = History { unreadable: Vec::new(), ..history };
    let ids = reach.reachable();
    Ok(reach
        .snapshots
        .into_values()
        .filter(|s| ids.contains(&s.id) && matches(s.digest.hex()))
        .collect())
}

async fn everywhere(store: &dyn Store, not: &Chain, prefix: &str) -> Result<Vec<Snapshot>> {
    let mut out = Vec::new();
    for chain in all_chains(store).await? {
        if chain != *not {
            out.extend(candidates(store, &chain, prefix).await?);
        }
    }
    Ok(out)
}

/// Every chain that has refs or a snapshot document, sorted.
pub async fn all_chains(store: &dyn Store) -> Result<BTreeSet<Chain>> {
    let mut chains = BTreeSet::new();
    for prefix in [Prefix::Workspaces, Prefix::Runs, Prefix::Checkpoints] {
        let mut rows = store.list(&prefix);
        while let Some(row) = rows.next().await {
            if let Listed::Doc { key: DocKey::Refs(c) | DocKey::Snapshot(c, _), .. } = row? {
                chains.insert(c);
            }
        }
    }
    Ok(chains)
}
