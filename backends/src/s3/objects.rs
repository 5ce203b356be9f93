//! Objects: many at a time, each answered for itself.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Digest;
use backtrail_core::store::{DeleteOutcome, ListedObject, Object, PutObjects, PutOutcome};

use super::Inner;
use super::bucket::in_order;
use super::loose::{self, Form, Found, forms};

/// Digests above which presence is looked up in a listing.
const FEW: usize = 64;

pub(super) fn absent(digest: &Digest) -> Error {
    Error::not_found(format!("object {digest} is not in the store"))
}

/// What became of one put.
enum Put {
    Done(PutOutcome),
    /// It goes into the next pack.
    Queue(Form),
}

impl Inner {
    /// Under an `objects` guard, answers come from state read after it was taken.
    pub(super) fn guarded(&self) {
        self.packs.doubt();
    }

    fn width(&self) -> usize {
        self.bucket.concurrency()
    }

    pub(super) async fn put_objects(
        &self,
        batch: Vec<Object>,
        mode: PutObjects,
    ) -> Result<Vec<PutOutcome>> {
        let mut out: Vec<PutOutcome> = batch.iter().map(|_| PutOutcome::Present).collect();
        let index = self.index().await?;
        let mut seen: HashSet<Digest> = HashSet::new();
        let mut wanted = Vec::new();
        let mut places = Vec::new();
        for (i, object) in batch.into_iter().enumerate() {
            let (digest, raw) = (object.digest(), object.bytes().len() as u64);
            let there = mode == PutObjects::Check
                && (self.held(&digest).is_some() || index.has(&digest, raw));
            // The empty content is never stored, and one of many equal ones is enough.
            if raw > 0 && !there && seen.insert(digest) {
                places.push(i);
                wanted.push(object);
            }
        }
        let forms = forms(wanted, self.open.compression).await?;
        let many = forms.iter().filter(|form| self.is_small(form.raw)).count() >= FEW;
        let puts: Vec<_> = forms.into_iter().map(|form| self.put_one(form, mode, many)).collect();
        let mut queued = Vec::new();
        for (i, put) in places.into_iter().zip(in_order(puts, self.width()).await) {
            out[i] = match put {
                Ok(Put::Done(outcome)) => outcome,
                Ok(Put::Queue(form)) => {
                    let stored = form.stored.len() as u64;
                    queued.push(form);
                    PutOutcome::Stored { stored }
                }
                Err(e) => PutOutcome::Failed(e),
            };
        }
        if mode == PutObjects::Rewrite {
            // The packed copies may be the reason to rewrite.
            seen.iter().for_each(|digest| self.condemn(index.places(digest)));
        }
        self.queue(queued).await?;
        Ok(out)
    }

    /// Puts one object, unless it is to go into a pack: then a loose copy is looked for
    /// only where that is cheap.
    async fn put_one(&self, form: Form, mode: PutObjects, many: bool) -> Result<Put> {
        let digest = form.digest;
        let key = loose::key_of(&digest, form.compressed);
        let put = async {
            if mode == PutObjects::Rewrite || !self.is_small(form.raw) {
                return self.bucket.put_loose(form, mode).await.map(Put::Done);
            }
            if !self.maybe_loose(&digest, many).await? {
                return Ok(Put::Queue(form));
            }
            Ok(match self.bucket.compare(&key, &form).await? {
                Found::Absent => Put::Queue(form),
                Found::Right => Put::Done(PutOutcome::Present),
                Found::Wrong => Put::Done(self.bucket.put_loose(form, mode).await?),
            })
        };
        let done = put.await.map_err(|e| e.with_detail("digest", digest.hex()))?;
        if matches!(done, Put::Done(_)) {
            self.now_loose(key).await;
        }
        Ok(done)
    }

    pub(super) async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let index = self.index().await?;
        let unpacked = |(digest, raw): &&(Digest, u64)| {
            self.is_small(*raw) && self.held(digest).is_none() && !index.has(digest, *raw)
        };
        let many = batch.iter().filter(unpacked).count() >= FEW;
        let index = &index;
        let look = |(digest, raw): (Digest, u64)| async move {
            if digest == Digest::EMPTY {
                return Ok(raw == 0);
            }
            if let Some(held) = self.held(&digest) {
                return Ok(held.raw() == raw);
            }
            if index.has(&digest, raw) {
                return Ok(true);
            }
            // Of many small ones those in no pack are put again rather than looked for.
            Ok(!(many && self.is_small(raw)) && self.bucket.has_loose(&digest, raw).await?)
        };
        let looks: Vec<_> = batch.iter().copied().map(look).collect();
        in_order(looks, self.width()).await.into_iter().collect()
    }

    pub(super) async fn list_objects(&self) -> Result<Vec<ListedObject>> {
        let mut sizes: HashMap<Digest, (u64, Duration)> = HashMap::new();
        let mut out = Vec::new();
        for row in self.bucket.list(loose::DIR).await? {
            match loose::parse(&row.key) {
                Some((digest, _)) => {
                    let size = sizes.entry(digest).or_insert((0, Duration::MAX));
                    size.0 += row.meta.size;
                    size.1 = size.1.min(row.meta.age);
                }
                None => out.push(ListedObject::Foreign(row.key)),
            }
        }
        self.list_packed(&mut sizes).await?;
        for (digest, stored) in self.all_held() {
            let size = sizes.entry(digest).or_insert((0, Duration::ZERO));
            *size = (size.0 + stored, Duration::ZERO);
        }
        let object = |(digest, (stored, age))| ListedObject::Object { digest, stored, age };
        out.extend(sizes.into_iter().map(object));
        Ok(out)
    }

    /// Packed objects, each as old as its pack.
    async fn list_packed(&self, sizes: &mut HashMap<Digest, (u64, Duration)>) -> Result<()> {
        self.packs.doubt();
        let index = self.index().await?;
        if index.objects().next().is_none() {
            return Ok(());
        }
        let ages: HashMap<String, Duration> = self.pack_ages().await?;
        for (digest, places) in index.objects() {
            let size = sizes.entry(*digest).or_insert((0, Duration::MAX));
            for place in places {
                size.0 += u64::from(place.entry.stored);
                size.1 = size.1.min(ages.get(&*place.pack).copied().unwrap_or_default());
            }
        }
        Ok(())
    }

    pub(super) async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.check_root().await?;
        let index = self.index().await?;
        let mut gone = Vec::new();
        for place in batch.iter().flat_map(|digest| index.places(digest)) {
            gone.push((place.pack.clone(), place.entry.digest));
        }
        if !gone.is_empty() {
            self.condemn_now(&gone).await?;
        }
        let mut loose = self.loose_keys(batch).await?;
        let mut keys = Vec::new();
        let mut owners = Vec::new();
        for (i, digest) in batch.iter().enumerate() {
            for key in loose.remove(digest).unwrap_or_default() {
                keys.push(key);
                owners.push(i);
            }
        }
        let mut seen = HashSet::new();
        let mut was_there = |digest: &Digest| {
            let held = self.drop_held(digest);
            seen.insert(*digest) && (held || !index.places(digest).is_empty())
        };
        let mut out: Vec<DeleteOutcome> = batch
            .iter()
            .map(|d| if was_there(d) { DeleteOutcome::Deleted } else { DeleteOutcome::Absent })
            .collect();
        for (i, done) in owners.into_iter().zip(self.bucket.delete_many(&keys).await?) {
            match done {
                Err(e) => out[i] = DeleteOutcome::Failed(e),
                Ok(()) if matches!(out[i], DeleteOutcome::Absent) => {
                    out[i] = DeleteOutcome::Deleted
                }
                Ok(()) => {}
            }
        }
        Ok(out)
    }

    /// The keys under which objects of a batch lie loose.
    async fn loose_keys(&self, batch: &[Digest]) -> Result<HashMap<Digest, Vec<String>>> {
        let mut out: HashMap<Digest, Vec<String>> = HashMap::new();
        if batch.len() >= FEW {
            for row in self.bucket.list(loose::DIR).await? {
                if let Some((digest, _)) = loose::parse(&row.key) {
                    out.entry(digest).or_default().push(row.key);
                }
            }
            return Ok(out);
        }
        let look = |(digest, key): (Digest, String)| async move {
            Ok::<_, Error>((digest, self.bucket.head(&key).await?.map(|_| key)))
        };
        let mut looks = Vec::new();
        for digest in batch {
            for compressed in [false, true] {
                looks.push(look((*digest, loose::key_of(digest, compressed))));
            }
        }
        for look in in_order(looks, self.width()).await {
            if let (digest, Some(key)) = look? {
                let keys = out.entry(digest).or_default();
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        Ok(out)
    }
}
