//! Mark: every object that something stored refers to.

use std::collections::{HashMap, HashSet};

use super::load::{self, Listing, Record, Unreadable};
use super::records::{self, PlanRef};
use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::object::content::{self, read_all};
use crate::reach;
use crate::snapshot::doc::Snapshot;
use crate::snapshot::tree::Ref;
use crate::store::{DocKey, Store, Version};

/// What is referred to, and by which documents that is known.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Must exist: named by a snapshot document.
    strong: HashSet<Digest>,
    /// Kept when they exist: named by a record, perhaps without being an object.
    weak: HashSet<Digest>,
    /// Trees read so far.
    trees: HashSet<Digest>,
    /// Documents read so far, at these versions.
    known: HashMap<DocKey, Version>,
    /// Trees that are missing.
    lost: HashSet<Digest>,
    /// Plans of records that are over, which are missing; nothing needs them.
    pub notices: Vec<String>,
}

impl Marks {
    /// True if the object must stay.
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.strong.contains(digest) || self.weak.contains(digest)
    }

    /// How many objects snapshots refer to.
    pub(super) fn len(&self) -> u64 {
        self.strong.len() as u64
    }

    /// The objects that must exist.
    pub(super) fn strong(&self) -> impl Iterator<Item = &Digest> {
        self.strong.iter()
    }

    /// Trees found missing while marking.
    pub(super) fn lost(&self) -> &HashSet<Digest> {
        &self.lost
    }

    /// Remembers documents as read at their listed versions.
    fn note(&mut self, listing: &Listing, keys: impl Iterator<Item = DocKey>) {
        for key in keys {
            if let Some((_, Some(version), _)) = listing.docs.get(&key.to_string()) {
                self.known.insert(key, version.clone());
            }
        }
    }

    /// Marks what `snapshots` and `records` refer to.
    pub(super) async fn add(
        &mut self,
        store: &dyn Store,
        ctx: &Context,
        listing: &Listing,
        snapshots: &[&Snapshot],
        records: &[Record],
    ) -> Result<()> {
        let mut unreadable = Unreadable::default();
        self.add_trees(store, ctx, snapshots, &mut unreadable).await?;
        for record in records {
            self.add_record(store, record, &mut unreadable).await?;
        }
        unreadable.check()?;
        let keys = snapshots.iter().map(|s| s.key());
        self.note(listing, keys.chain(records.iter().map(|r| r.key.clone())));
        Ok(())
    }

    /// Lists the documents again, and marks from those that appeared or changed.
    pub(super) async fn refresh(&mut self, store: &dyn Store, ctx: &Context) -> Result<()> {
        let listing = load::list(store).await?;
        let new = |(key, version, _): &&(DocKey, Option<Version>, _)| {
            self.known.get(key) != version.as_ref()
        };
        let fresh: Vec<DocKey> =
            listing.docs.values().filter(new).map(|(key, _, _)| key.clone()).collect();
        let (snapshots, rest): (Vec<_>, Vec<_>) =
            fresh.into_iter().partition(|k| matches!(k, DocKey::Snapshot(..)));
        let records = rest.into_iter().filter(load::is_record).collect();
        let mut unreadable = Unreadable::default();
        let snapshots = load::read_snapshots(store, snapshots, &mut unreadable).await?;
        let records = load::read_records(store, records, &mut unreadable).await?;
        unreadable.check()?;
        let snapshots: Vec<&Snapshot> = snapshots.iter().collect();
        self.add(store, ctx, &listing, &snapshots, &records).await
    }

    async fn add_trees(
        &mut self,
        store: &dyn Store,
        ctx: &Context,
        snapshots: &[&Snapshot],
        unreadable: &mut Unreadable,
    ) -> Result<()> {
        let Self { strong, trees, lost, .. } = self;
        let own = |s: &&'_ Snapshot| {
            [Some(s.root.clone()), Some(s.rules.clone()), s.coverage.records_ref.clone()]
        };
        for r in snapshots.iter().flat_map(own).flatten() {
            strong.extend(r.objects().map(|(d, _)| d));
        }
        let roots = snapshots.iter().map(|s| s.root.clone());
        reach::walk_trees(store, &ctx.cancel, roots, trees, |r, tree| match tree {
            Ok(tree) => {
                ctx.progress.advance(1, 0);
                strong.extend(reach::contents(&tree).flat_map(Ref::objects).map(|(d, _)| d));
            }
            Err(e) if content::is_missing(&e) => {
                lost.insert(content::digest_of(&e).unwrap_or(r.digest));
            }
            Err(e) => unreadable.push(format!("tree {}", r.digest), e),
        })
        .await
    }

    async fn add_record(
        &mut self,
        store: &dyn Store,
        record: &Record,
        unreadable: &mut Unreadable,
    ) -> Result<()> {
        let names = records::names(record);
        self.weak.extend(names.digests);
        for plan in names.plans {
            let read = match &plan {
                PlanRef::Object(digest) => {
                    store.get_object(digest).await.map_err(|e| content::damaged(digest, e))
                }
                PlanRef::Content(r) => {
                    self.weak.extend(r.objects().map(|(d, _)| d));
                    read_all(store, r).await
                }
            };
            match read {
                Ok(bytes) => self.weak.extend(records::digests_in(&bytes)),
                Err(e) if e.kind() != Kind::Corrupt => return Err(e),
                Err(e) if names.live.is_some() => {
                    unreadable.push(format!("plan of {}", record.key), e);
                }
                // Nothing can be redone with a plan that is gone.
                Err(e) => self.notices.push(format!("plan of {}: {e}", record.key)),
            }
        }
        Ok(())
    }
}

/// The error of objects that snapshots need and that are not there: nothing was
/// deleted, who is hit, and what still restores.
pub(super) async fn absent(
    store: &dyn Store,
    ctx: &Context,
    snapshots: &[Snapshot],
    absent: &HashSet<Digest>,
) -> Result<Error> {
    let hits = reach::hits(store, &ctx.cancel, snapshots, absent).await?;
    let rows = super::report::missing(absent, &hits);
    let hit: HashSet<_> = rows.iter().flat_map(|m| &m.hit.snapshots).collect();
    let whole = snapshots.iter().filter(|s| !hit.contains(&s.id)).count();
    let first = rows.first().map(|m| {
        let path = m.hit.paths.first().map(|p| format!(" for {p}")).unwrap_or_default();
        format!("object {}{path}", m.digest)
    });
    let message = format!(
        "{} objects that snapshots need are missing, so nothing was deleted: {}; {} snapshots \
         are hit, {whole} restore whole, and the hit ones restore every path but those listed",
        rows.len(),
        first.unwrap_or_default(),
        hit.len(),
    );
    let paths: Vec<String> = rows.iter().flat_map(|m| m.hit.paths.clone()).take(100).collect();
    Ok(Error::corrupt(message)
        .with_hint("backtrail capture --rehash stores again what the workspace still has")
        .with_paths(paths)
        .with_detail("missing", serde_json::to_value(&rows).unwrap_or_default())
        .with_detail("restorable_snapshots", whole))
}
