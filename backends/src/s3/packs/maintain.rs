//! Freeing what deletions left, called last by prune. A new pack and a new index come
//! before anything is deleted, one pack's worth at a time: a crash at any point leaves
//! duplicates or garbage, never a loss.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::Digest;
use backtrail_core::store::{Expect, LockMode, LockName, LockRequest, Object};

use super::format::{IndexFile, PACK_BYTES, PackTable, pack};
use super::load::Loaded;
use super::{PACKS, pack_key, pack_of};
use crate::s3::Inner;
use crate::s3::bucket::{Row, in_order};
use crate::s3::loose::{self, LARGE, forms};

/// Packs below this are put together once there are [`SMALL_PACKS`].
const SMALL: u64 = 1 << 20;
const SMALL_PACKS: usize = 8;
/// Loose small objects older than [`Inner::old`] that are packed once there are so many.
const LOOSE: usize = 16;

/// A later build wrote part of the index: what it keeps is not known here.
pub(super) fn newer(name: &str) -> Error {
    let message = format!("pack index {name} was written by a newer build");
    Error::new(Kind::Newer, "store-newer", message).with_hint("upgrade backtrail")
}

/// What goes into one new pack, and then goes.
#[derive(Default)]
struct Round {
    packs: Vec<Arc<str>>,
    loose: Vec<Row>,
}

impl Inner {
    pub(in crate::s3) async fn maintain(&self) -> Result<()> {
        self.check_root().await?;
        let wait = Duration::from_secs(30);
        let name = LockName::PackIndex;
        let request = LockRequest::new(name, LockMode::Exclusive, wait, "maintenance");
        let guard = match self.lock(request).await {
            Ok(guard) => guard,
            // Somebody else is at it.
            Err(e) if e.kind() == Kind::Busy => return Ok(()),
            Err(e) => return Err(e),
        };
        let done = self.maintain_locked().await;
        guard.release().await?;
        done
    }

    async fn maintain_locked(&self) -> Result<()> {
        self.packs.doubt();
        self.index().await?;
        let mut loaded = self.packs.loaded.lock().await;
        if let Some(name) = &loaded.newer {
            return Err(newer(name));
        }
        self.drop_dead(&mut loaded).await?;
        let mut damaged = HashSet::new();
        loop {
            let round = self.choose(&loaded, &damaged).await?;
            if round.packs.is_empty() && round.loose.is_empty() {
                break;
            }
            self.repack(&mut loaded, round, &mut damaged).await?;
        }
        self.sweep(&loaded).await
    }

    /// Packs of which nothing is live leave the index, then are deleted.
    async fn drop_dead(&self, loaded: &mut Loaded) -> Result<()> {
        let index = loaded.index.clone();
        let dead = index.packs.iter().filter(|(_, pack)| pack.live.is_empty());
        let keys: Vec<String> = dead.map(|(id, _)| pack_key(id)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.compact(loaded).await?;
        self.open.faults.reach("s3.pack.delete")?;
        self.delete(&keys).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        for done in self.bucket.delete_many(keys).await? {
            done?;
        }
        Ok(())
    }

    /// Age from which leftovers and loose objects are taken.
    fn old(&self) -> Duration {
        self.options.leftovers
    }

    /// The next pack's worth of what is worth packing anew.
    async fn choose(&self, loaded: &Loaded, damaged: &HashSet<Arc<str>>) -> Result<Round> {
        let index = &loaded.index;
        let whole = |id: &Arc<str>| !damaged.contains(id);
        let small = index.packs.iter().filter(|(id, p)| p.size < SMALL && whole(id)).count();
        let mut round = Round::default();
        let mut bytes = 0;
        for (id, pack) in index.packs.iter().filter(|(id, _)| whole(id)) {
            let half = pack.live.len() * 2 <= pack.all.len();
            let worth = half || (pack.size < SMALL && small >= SMALL_PACKS);
            if worth && bytes + pack.live_bytes() <= PACK_BYTES as u64 {
                bytes += pack.live_bytes();
                round.packs.push(id.clone());
            }
        }
        if self.options.packs {
            let rows = self.bucket.list(loose::DIR).await?;
            let old = |row: &Row| {
                row.meta.age >= self.old()
                    && row.meta.size < LARGE as u64
                    && loose::parse(&row.key).is_some()
                    && !damaged.contains(row.key.as_str())
            };
            let rows: Vec<Row> = rows.into_iter().filter(old).collect();
            if rows.len() >= LOOSE {
                for row in rows {
                    if bytes + row.meta.size <= PACK_BYTES as u64 {
                        bytes += row.meta.size;
                        round.loose.push(row);
                    }
                }
            }
        }
        Ok(round)
    }

    /// Re-hashes what a round names, writes it into a new pack and its index, then
    /// deletes where it was. A damaged entry stays where it is, and its pack with it.
    async fn repack(
        &self,
        loaded: &mut Loaded,
        round: Round,
        damaged: &mut HashSet<Arc<str>>,
    ) -> Result<()> {
        let index = loaded.index.clone();
        let mut contents = Vec::new();
        let mut keys = Vec::new();
        let mut condemned: Vec<(String, Vec<Digest>)> = Vec::new();
        for id in &round.packs {
            let (right, wrong) = self.live_of(&index, id).await?;
            if wrong.is_empty() {
                keys.push(pack_key(id));
            } else {
                damaged.insert(id.clone());
            }
            let moved: Vec<Digest> = right.iter().map(|raw| Digest::of(raw)).collect();
            condemned.push((id.to_string(), moved));
            contents.extend(right);
        }
        let reads: Vec<_> = round.loose.iter().map(|row| self.read_row(row)).collect();
        for (row, read) in round.loose.iter().zip(in_order(reads, self.bucket.concurrency()).await)
        {
            match read? {
                Some(raw) => {
                    contents.push(raw);
                    keys.push(row.key.clone());
                }
                None => {
                    damaged.insert(row.key.as_str().into());
                }
            }
        }
        if keys.is_empty() {
            // All that was chosen is damaged: it stays.
            return Ok(());
        }
        let mut seen = HashSet::new();
        let objects: Vec<Object> = contents.into_iter().map(Object::new).collect::<Result<_>>()?;
        let objects = objects.into_iter().filter(|o| seen.insert(o.digest())).collect();
        let (bytes, entries) = pack(&forms(objects, self.open.compression).await?);
        let id = self.open.ids.hex(16)?;
        let table = PackTable { id: id.clone(), size: bytes.len() as u64, entries };
        self.bucket.put(&pack_key(&id), bytes, &Expect::Any).await?;
        self.open.faults.reach("s3.repack.put")?;
        // First the moved entries are given up where they were, which empties their packs,
        // then a file without those takes the place of all.
        let gone = IndexFile { packs: vec![table], condemned, ..IndexFile::default() };
        self.write_index(loaded, gone).await?;
        self.open.faults.reach("s3.repack.index")?;
        self.compact(loaded).await?;
        self.open.faults.reach("s3.repack.delete")?;
        self.delete(&keys).await
    }

    /// A loose object's content; `None` when it is damaged or gone.
    async fn read_row(&self, row: &Row) -> Result<Option<bytes::Bytes>> {
        let Some((digest, _)) = loose::parse(&row.key) else { return Ok(None) };
        match self.bucket.loose(&digest).await {
            Err(e) if e.kind() == Kind::Corrupt => Ok(None),
            read => read,
        }
    }

    /// Packs that no index names and leftovers of probes, once they are old.
    async fn sweep(&self, loaded: &Loaded) -> Result<()> {
        let mut keys = Vec::new();
        for row in self.bucket.list(PACKS).await? {
            let named = pack_of(&row.key).is_some_and(|id| loaded.index.packs.contains_key(id));
            if !named && row.meta.age >= self.old() {
                keys.push(row.key);
            }
        }
        let probes = self.bucket.list("probe/").await?.into_iter();
        keys.extend(probes.filter(|row| row.meta.age >= self.old()).map(|row| row.key));
        self.delete(&keys).await
    }
}
