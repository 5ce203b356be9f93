//! Size: what chains and the store take, and what deleting a chain would free.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::StreamExt;
use serde::Serialize;

use crate::clock::Context;
use crate::error::Result;
use crate::ids::{Chain, Digest};
use crate::reach;
use crate::snapshot::chain::{all_chains, load_refs, load_snapshots};
use crate::snapshot::doc::Snapshot;
use crate::snapshot::tree::Ref;
use crate::store::{ListedObject, Store};

/// One chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainSize {
    /// Its name.
    pub chain: Chain,
    /// Its snapshot documents.
    pub snapshots: u64,
    /// Logical size of the head: the sum of its files' lengths.
    pub head_bytes: u64,
    /// Stored bytes of all objects that it refers to.
    pub reachable_bytes: u64,
    /// Stored bytes of the objects that no other chain refers to: what deleting this
    /// chain alone would free.
    pub unique_bytes: u64,
}

/// The store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreSize {
    /// Objects.
    pub objects: u64,
    /// Their bytes before compression. Of an object that no snapshot refers to only
    /// the stored bytes are known, and those are counted.
    pub raw_bytes: u64,
    /// Their bytes as stored.
    pub stored_bytes: u64,
    /// Stored bytes of the objects that no snapshot refers to. Unfinished restores and
    /// recorded plans may need some; prune frees the rest.
    pub unreferenced_bytes: u64,
    /// Free bytes, when the store knows.
    pub free_bytes: Option<u64>,
}

/// The report: its JSON form is API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every chain asked for.
    pub chains: Vec<ChainSize>,
    /// The whole store.
    pub store: StoreSize,
    /// Documents and trees that cannot be read; what they refer to is not counted.
    pub unreadable: Vec<String>,
}

/// What one tree refers to, by the numbers of its objects and its directories' trees.
#[derive(Default)]
struct Node {
    objects: Vec<u32>,
    dirs: Vec<Digest>,
}

/// Every object, numbered, so that a chain's set is cheap.
#[derive(Default)]
struct Objects {
    numbers: HashMap<Digest, u32>,
    raw: Vec<u64>,
    stored: Vec<u64>,
}

impl Objects {
    fn number(&mut self, digest: Digest, raw: u64) -> u32 {
        let next = self.raw.len() as u32;
        let n = *self.numbers.entry(digest).or_insert(next);
        if n == next {
            self.raw.push(raw);
            self.stored.push(0);
        }
        n
    }

    fn of(&mut self, r: &Ref) -> Vec<u32> {
        r.objects().map(|(d, raw)| self.number(d, raw)).collect()
    }
}

/// Whose an object is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    One(usize),
    Several,
}

/// Computes the sizes; `chains` lists those for which `wanted` is true, while unique
/// bytes are always judged against every chain of the store.
pub async fn size(
    store: &dyn Store,
    ctx: &Context,
    wanted: impl Fn(&Chain) -> bool,
) -> Result<Report> {
    let mut unreadable = Vec::new();
    let loaded = load(store, &mut unreadable).await?;
    let (mut objects, mut nodes) = (Objects::default(), HashMap::new());
    let roots = loaded.values().flatten().map(|s| s.root.clone());
    reach::walk_trees(store, &ctx.cancel, roots, &mut HashSet::new(), |r, tree| match tree {
        Ok(tree) => {
            let mut node = Node::default();
            for content in reach::contents(&tree) {
                node.objects.extend(objects.of(content));
            }
            node.dirs = reach::dirs(&tree).map(|d| d.digest).collect();
            nodes.insert(r.digest, node);
        }
        Err(e) => unreadable.push(format!("tree {}: {e}", r.digest)),
    })
    .await?;
    let sets: Vec<Vec<u32>> =
        loaded.values().map(|snapshots| reached(snapshots, &nodes, &mut objects)).collect();
    drop(nodes);
    let store_size = list(store, &mut objects).await?;
    let owners = owners(&sets, objects.raw.len());
    let mut chains = Vec::new();
    for (n, (chain, snapshots)) in loaded.iter().enumerate().filter(|(_, (c, _))| wanted(c)) {
        let bytes = |own: bool| {
            let all = sets[n].iter().map(|o| *o as usize);
            let kept = all.filter(|o| !own || owners[*o] == Owner::One(n));
            kept.map(|o| objects.stored[o]).sum()
        };
        chains.push(ChainSize {
            chain: chain.clone(),
            snapshots: snapshots.len() as u64,
            head_bytes: head_bytes(store, chain, snapshots, &mut unreadable).await?,
            reachable_bytes: bytes(false),
            unique_bytes: bytes(true),
        });
    }
    Ok(Report { chains, store: store_size, unreadable })
}

async fn load(
    store: &dyn Store,
    unreadable: &mut Vec<String>,
) -> Result<BTreeMap<Chain, Vec<Snapshot>>> {
    let mut out = BTreeMap::new();
    for chain in all_chains(store).await? {
        let (good, bad) = load_snapshots(store, &chain).await?;
        unreadable.extend(bad.into_iter().map(|u| format!("{}: {}", u.name, u.error)));
        let good = good.into_values().map(|mut s| {
            s.coverage.records = None;
            s
        });
        out.insert(chain, good.collect());
    }
    Ok(out)
}

async fn head_bytes(
    store: &dyn Store,
    chain: &Chain,
    snapshots: &[Snapshot],
    unreadable: &mut Vec<String>,
) -> Result<u64> {
    let head = match load_refs(store, chain).await {
        Ok(refs) => refs.refs.head,
        Err(e) => {
            unreadable.push(format!("refs of {chain}: {e}"));
            None
        }
    };
    let head = snapshots.iter().find(|s| Some(&s.id) == head.as_ref());
    Ok(head.map_or(0, |s| s.counts.bytes))
}

/// The objects that a chain's snapshots refer to, each once.
fn reached(
    snapshots: &[Snapshot],
    nodes: &HashMap<Digest, Node>,
    objects: &mut Objects,
) -> Vec<u32> {
    let mut out = HashSet::new();
    let mut seen = HashSet::new();
    for s in snapshots {
        for r in [&s.root, &s.rules].into_iter().chain(&s.coverage.records_ref) {
            out.extend(objects.of(r));
        }
        let mut todo = vec![s.root.digest];
        while let Some(tree) = todo.pop() {
            let Some(node) = nodes.get(&tree).filter(|_| seen.insert(tree)) else { continue };
            out.extend(&node.objects);
            todo.extend(&node.dirs);
        }
    }
    out.into_iter().collect()
}

fn owners(sets: &[Vec<u32>], objects: usize) -> Vec<Owner> {
    let mut owners = vec![Owner::Nobody; objects];
    for (n, set) in sets.iter().enumerate() {
        for o in set {
            let owner = &mut owners[*o as usize];
            *owner = match owner {
                Owner::Nobody => Owner::One(n),
                _ => Owner::Several,
            };
        }
    }
    owners
}

async fn list(store: &dyn Store, objects: &mut Objects) -> Result<StoreSize> {
    let free_bytes = store.health().await?.free_bytes;
    let mut out = StoreSize { free_bytes, ..StoreSize::default() };
    let mut rows = store.list_objects();
    while let Some(row) = rows.next().await {
        let ListedObject::Object { digest, stored, .. } = row? else { continue };
        out.objects += 1;
        out.stored_bytes += stored;
        match objects.numbers.get(&digest) {
            Some(n) => {
                objects.stored[*n as usize] = stored;
                out.raw_bytes += objects.raw[*n as usize];
            }
            None => {
                out.raw_bytes += stored;
                out.unreferenced_bytes += stored;
            }
        }
    }
    Ok(out)
}
