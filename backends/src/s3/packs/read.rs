//! Reading packed objects: the first one wanted from a pack by a ranged request, with
//! the second the whole pack, once for all who want it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Digest;
use backtrail_core::tasks;
use bytes::Bytes;
use tokio::sync::OnceCell;

use super::index::{Index, Place};
use super::pack_key;
use super::write::Held;
use crate::s3::Inner;
use crate::s3::bucket::{Part, in_order};
use crate::s3::loose::{content, corrupt};

/// Bytes of whole packs that are kept.
const CACHE_BYTES: usize = 128 * 1024 * 1024;
/// Packs of which it is remembered that something was wanted.
const TOUCHED: usize = 65_536;

/// Whole packs, the last used ones.
#[derive(Default)]
pub(super) struct Cache(Mutex<Packs>);

#[derive(Default)]
struct Packs {
    cells: HashMap<Arc<str>, Arc<OnceCell<Bytes>>>,
    /// The longest unused first.
    order: VecDeque<Arc<str>>,
    touched: HashSet<Arc<str>>,
}

impl Cache {
    fn all(&self) -> MutexGuard<'_, Packs> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether the whole pack is to be read when `wanted` of it are.
    fn whole(&self, pack: &Arc<str>, wanted: usize) -> bool {
        let mut all = self.all();
        let known = all.cells.contains_key(pack) || all.touched.contains(pack);
        if all.touched.len() > TOUCHED {
            all.touched.clear();
        }
        all.touched.insert(pack.clone());
        known || wanted > 1
    }

    fn cell(&self, pack: &Arc<str>) -> Arc<OnceCell<Bytes>> {
        let mut all = self.all();
        all.order.retain(|other| other != pack);
        all.order.push_back(pack.clone());
        let cell = all.cells.entry(pack.clone()).or_default().clone();
        let size =
            |all: &Packs| all.cells.values().filter_map(|c| c.get()).map(Bytes::len).sum::<usize>();
        while size(&all) > CACHE_BYTES && all.order.len() > 1 {
            if let Some(old) = all.order.pop_front() {
                all.cells.remove(&old);
            }
        }
        cell
    }

    fn forget(&self, pack: &Arc<str>) {
        let mut all = self.all();
        all.cells.remove(pack);
        all.order.retain(|other| other != pack);
    }
}

impl Inner {
    /// Reads objects, per item in order.
    pub(in crate::s3) async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let index = self.index().await?;
        let mut wanted: HashMap<Arc<str>, usize> = HashMap::new();
        for place in batch.iter().filter_map(|digest| index.places(digest).first()) {
            *wanted.entry(place.pack.clone()).or_default() += 1;
        }
        let whole: HashSet<Arc<str>> = wanted
            .into_iter()
            .filter(|(p, n)| self.packs.cache.whole(p, *n))
            .map(|(p, _)| p)
            .collect();
        let gets: Vec<_> =
            batch.iter().map(|digest| self.get_one(&index, &whole, *digest)).collect();
        Ok(in_order(gets, self.bucket.concurrency()).await)
    }

    async fn get_one(
        &self,
        index: &Index,
        whole: &HashSet<Arc<str>>,
        digest: Digest,
    ) -> Result<Bytes> {
        if digest == Digest::EMPTY {
            return Ok(Bytes::new());
        }
        if let Some(held) = self.held(&digest) {
            return self.get_held(digest, held).await;
        }
        let first = match self.get_known(index, whole, digest).await {
            Ok(Some(bytes)) => return Ok(bytes),
            other => other,
        };
        // A repack may have moved it since the index was read: look once more.
        self.packs.doubt();
        let index = self.index().await?;
        match self.get_known(&index, &HashSet::new(), digest).await? {
            Some(bytes) => Ok(bytes),
            None => Err(match first {
                Err(e) if !e.is_not_found() => e,
                _ => crate::s3::objects::absent(&digest),
            }),
        }
    }

    /// From a pack, else loose; `None` when it is in neither.
    async fn get_known(
        &self,
        index: &Index,
        whole: &HashSet<Arc<str>>,
        digest: Digest,
    ) -> Result<Option<Bytes>> {
        let mut wrong = None;
        for place in index.places(&digest) {
            // What fails its hash is read once more, past the cache.
            for again in [false, true] {
                let whole = !again && whole.contains(&place.pack);
                match self.get_place(index, place, whole).await {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(e) if e.is_not_found() => break,
                    Err(e) => wrong = Some(e),
                }
            }
        }
        match (self.bucket.loose(&digest).await?, wrong) {
            (Some(bytes), _) => Ok(Some(bytes)),
            (None, Some(e)) => Err(e),
            (None, None) => Ok(None),
        }
    }

    async fn get_place(&self, index: &Index, place: &Place, whole: bool) -> Result<Bytes> {
        let (entry, range) = (place.entry, place.entry.range());
        let short = || corrupt(&entry.digest, "its pack is too short");
        let stored = match whole {
            true => {
                let pack = self.whole(index, &place.pack).await?;
                let range = range.start as usize..range.end as usize;
                if range.end > pack.len() {
                    return Err(short());
                }
                pack.slice(range)
            }
            false => {
                let key = pack_key(&place.pack);
                let got = self.bucket.get_part(&key, Part::Range(range)).await?;
                let gone = || Error::not_found(format!("{key} is not there"));
                got.ok_or_else(gone)?.bytes
            }
        };
        tasks::blocking(move || entry.content(&stored)).await
    }

    async fn whole(&self, index: &Index, pack: &Arc<str>) -> Result<Bytes> {
        let cell = self.packs.cache.cell(pack);
        let read = cell.get_or_try_init(|| async {
            let key = pack_key(pack);
            let gone = || Error::not_found(format!("{key} is not there"));
            let got = self.bucket.get(&key).await?.ok_or_else(gone)?;
            match index.size(pack) {
                Some(size) if size != got.bytes.len() as u64 => {
                    Err(Error::unavailable(format!("{key} came back with another length")))
                }
                _ => Ok(got.bytes),
            }
        });
        let read = read.await.cloned();
        if read.is_err() {
            self.packs.cache.forget(pack);
        }
        read
    }

    async fn get_held(&self, digest: Digest, held: Held) -> Result<Bytes> {
        match held {
            Held::Form(form) => {
                let read = move || content(&digest, &form.stored, form.compressed);
                tasks::blocking(read).await
            }
            Held::Packed(entry, stored) => tasks::blocking(move || entry.content(&stored)).await,
            Held::Placed(place) => self.get_place(&Index::default(), &place, false).await,
        }
    }

    /// Reads the live entries of a pack, each checked; the digests of damaged ones.
    pub(super) async fn live_of(
        &self,
        index: &Index,
        pack: &Arc<str>,
    ) -> Result<(Vec<Bytes>, Vec<Digest>)> {
        let (mut right, mut damaged) = (Vec::new(), Vec::new());
        let bytes = self.whole(index, pack).await?;
        self.packs.cache.forget(pack);
        let live = index.packs.get(pack).map(|p| p.live.clone()).unwrap_or_default();
        for entry in live {
            let range = entry.range();
            let end = (range.end as usize).min(bytes.len());
            let stored = bytes.slice((range.start as usize).min(end)..end);
            match tasks::blocking(move || entry.content(&stored)).await {
                Ok(raw) => right.push(raw),
                Err(_) => damaged.push(entry.digest),
            }
        }
        Ok((right, damaged))
    }
}
