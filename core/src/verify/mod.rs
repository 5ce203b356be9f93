//! Verify: whether what was recorded can be put back.
//!
//! Shallow: documents, trees, reachability, presence and length; it says how many
//! objects it did not hash again. Deep: every object, and every content in chunks as a
//! whole. It goes on after the first damage, repairs nothing, and fills the damage
//! list, so that the next capture that meets the content stores it again.

mod objects;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::clock::Context;
use crate::damage;
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, Digest, SnapshotId};
use crate::object::content;
use crate::reach;
use crate::snapshot::chain::{all_chains, load_snapshots, read_snapshot};
use crate::snapshot::coverage::decode_records;
use crate::snapshot::doc::Snapshot;
use crate::snapshot::tree::Ref;
use crate::store::Store;

pub use report::{Checked, Damaged, Partial, Problem, Report, Restorable, UnreadableRow};

/// What is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One snapshot.
    Snapshot(Chain, SnapshotId),
    /// Every snapshot document of these chains.
    Chains(BTreeSet<Chain>),
    /// The whole store.
    All,
}

/// What the walk found to check.
#[derive(Default)]
struct Wanted {
    /// Objects by digest, with the length a reference gives them.
    objects: HashMap<Digest, u64>,
    /// Content in chunks, by the digest of the whole.
    chunked: HashMap<Digest, Ref>,
    /// Damage found so far.
    damaged: BTreeMap<Digest, Problem>,
    /// Objects read and hashed already: the trees.
    hashed: HashSet<Digest>,
    trees: u64,
}

impl Wanted {
    fn want(&mut self, r: &Ref) {
        self.objects.extend(r.objects());
        if !r.chunks.is_empty() && !self.chunked.contains_key(&r.digest) {
            self.chunked.insert(r.digest, r.clone());
        }
    }

    fn note(&mut self, r: &Ref, e: &Error) {
        let digest = content::digest_of(e).unwrap_or(r.digest);
        self.damaged.entry(digest).or_insert_with(|| Problem::of(e));
    }
}

/// Verifies `scope`. Damage is in the report, not an error; exit 7 is the caller's when
/// [`Report::is_clean`] is false. Errors are those of the store itself.
pub async fn verify(store: &dyn Store, ctx: &Context, scope: &Scope, deep: bool) -> Result<Report> {
    ctx.progress.phase("read", None, None);
    let (snapshots, unreadable) = load(store, scope).await?;
    let mut wanted = Wanted::default();
    walk(store, ctx, &snapshots, &mut wanted).await?;
    let bytes: u64 = wanted.objects.values().sum();
    let objects = wanted.objects.len() as u64;
    ctx.progress.phase("verify", Some(objects), Some(bytes));
    match deep {
        true => objects::hash_all(store, ctx, &mut wanted).await?,
        false => objects::look_at_all(store, ctx, &mut wanted).await?,
    }
    let not_rehashed = if deep { 0 } else { objects.saturating_sub(wanted.hashed.len() as u64) };
    let digests: Vec<Digest> = wanted.damaged.keys().copied().collect();
    let hits =
        reach::hits(store, &ctx.cancel, &snapshots, &digests.iter().copied().collect()).await?;
    let real: Vec<Digest> =
        digests.into_iter().filter(|d| wanted.objects.contains_key(d)).collect();
    damage::add(store, &*ctx.ids, &real).await?;
    if deep {
        forget_healed(store, ctx, &wanted).await?;
    }
    let checked =
        Checked { snapshots: snapshots.len() as u64, trees: wanted.trees, objects, bytes };
    let damaged = report::rows(wanted.damaged, &hits);
    let restorable = report::restorable(&snapshots, &damaged);
    Ok(Report { deep, checked, not_rehashed, damaged, unreadable, restorable })
}

/// Drops from the damage list what was hashed just now and is right.
async fn forget_healed(store: &dyn Store, ctx: &Context, wanted: &Wanted) -> Result<()> {
    let list = damage::load(store).await?.digests;
    let right = |d: &Digest| wanted.hashed.contains(d) && !wanted.damaged.contains_key(d);
    let healed: Vec<Digest> = list.into_iter().filter(right).collect();
    damage::remove(store, &*ctx.ids, &healed).await
}

async fn load(store: &dyn Store, scope: &Scope) -> Result<(Vec<Snapshot>, Vec<UnreadableRow>)> {
    let chains = match scope {
        Scope::Snapshot(chain, id) => {
            return Ok((vec![read_snapshot(store, chain, id).await?], Vec::new()));
        }
        Scope::Chains(chains) => chains.clone(),
        Scope::All => all_chains(store).await?,
    };
    let (mut snapshots, mut unreadable) = (Vec::new(), Vec::new());
    for chain in &chains {
        let (good, bad) = load_snapshots(store, chain).await?;
        snapshots.extend(good.into_values().map(|mut s| {
            s.coverage.records = None;
            s
        }));
        let row = |u: crate::snapshot::chain::Unreadable| UnreadableRow {
            name: u.name,
            error: u.error.message().to_owned(),
            newer: u.error.kind() == Kind::Newer,
        };
        unreadable.extend(bad.into_iter().map(row));
    }
    Ok((snapshots, unreadable))
}

/// Reads every tree, rule set and record list, and collects what they refer to.
async fn walk(
    store: &dyn Store,
    ctx: &Context,
    snapshots: &[Snapshot],
    wanted: &mut Wanted,
) -> Result<()> {
    let mut own: HashMap<Digest, (&Ref, bool)> = HashMap::new();
    for s in snapshots {
        wanted.want(&s.root);
        own.insert(s.rules.digest, (&s.rules, false));
        own.extend(s.coverage.records_ref.iter().map(|r| (r.digest, (r, true))));
    }
    for (r, is_records) in own.into_values() {
        ctx.cancel.check()?;
        wanted.want(r);
        check_own(store, r, is_records, wanted).await?;
    }
    let roots = snapshots.iter().map(|s| s.root.clone());
    let mut stop = None;
    reach::walk_trees(store, &ctx.cancel, roots, &mut HashSet::new(), |r, tree| {
        wanted.trees += 1;
        match tree {
            Ok(tree) => {
                wanted.hashed.extend(r.objects().map(|(d, _)| d));
                reach::contents(&tree).for_each(|r| wanted.want(r));
            }
            Err(e) if e.kind() == Kind::Corrupt => wanted.note(r, &e),
            Err(e) => stop = Some(e),
        }
    })
    .await?;
    stop.map_or(Ok(()), Err)
}

/// Rule sets and coverage records are few and needed whole: they are read at once.
async fn check_own(
    store: &dyn Store,
    r: &Ref,
    is_records: bool,
    wanted: &mut Wanted,
) -> Result<()> {
    let bytes = match content::read_all(store, r).await {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == Kind::Corrupt => {
            wanted.note(r, &e);
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    wanted.hashed.extend(r.objects().map(|(d, _)| d));
    let readable = match is_records {
        true => decode_records(&bytes).is_ok(),
        false => serde_json::from_slice::<serde_json::Value>(&bytes).is_ok(),
    };
    if !readable {
        wanted.damaged.insert(r.digest, Problem::Undecodable);
    }
    Ok(())
}
