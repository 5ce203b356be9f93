//! Objects: many at a time, each answered for itself.

use std::collections::HashMap;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Digest;
use backtrail_core::store::{DeleteOutcome, ListedObject, Object, PutObjects, PutOutcome};
use bytes::Bytes;

use super::Inner;
use super::bucket::in_order;
use super::loose::{self, Form, forms};

/// Digests above which presence is looked up in a listing.
const FEW: usize = 64;

pub(super) fn absent(digest: &Digest) -> Error {
    Error::not_found(format!("object {digest} is not in the store"))
}

impl Inner {
    /// Under an `objects` guard, answers come from state read after it was taken.
    pub(super) fn guarded(&self) {}

    fn width(&self) -> usize {
        self.bucket.concurrency()
    }

    pub(super) async fn put_objects(
        &self,
        batch: Vec<Object>,
        mode: PutObjects,
    ) -> Result<Vec<PutOutcome>> {
        let mut out: Vec<PutOutcome> = batch.iter().map(|_| PutOutcome::Present).collect();
        let mut first: HashMap<Digest, usize> = HashMap::new();
        let mut wanted = Vec::new();
        let mut places = Vec::new();
        for (i, object) in batch.into_iter().enumerate() {
            // The empty content is never stored, and one of many equal ones is enough.
            if !object.bytes().is_empty() && first.insert(object.digest(), i).is_none() {
                places.push(i);
                wanted.push(object);
            }
        }
        let forms = forms(wanted, self.open.compression).await?;
        let put = |form: Form| async move {
            let digest = form.digest;
            let put = self.bucket.put_loose(form, mode).await;
            put.unwrap_or_else(|e| PutOutcome::Failed(e.with_detail("digest", digest.hex())))
        };
        let puts: Vec<_> = forms.into_iter().map(put).collect();
        for (i, outcome) in places.into_iter().zip(in_order(puts, self.width()).await) {
            out[i] = outcome;
        }
        Ok(out)
    }

    pub(super) async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let get = |digest: Digest| async move {
            if digest == Digest::EMPTY {
                return Ok(Bytes::new());
            }
            self.bucket.loose(&digest).await?.ok_or_else(|| absent(&digest))
        };
        let gets: Vec<_> = batch.iter().copied().map(get).collect();
        Ok(in_order(gets, self.width()).await)
    }

    pub(super) async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let look = |(digest, raw): (Digest, u64)| async move {
            if digest == Digest::EMPTY {
                return Ok(raw == 0);
            }
            self.bucket.has_loose(&digest, raw).await
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
        let object = |(digest, (stored, age))| ListedObject::Object { digest, stored, age };
        out.extend(sizes.into_iter().map(object));
        Ok(out)
    }

    pub(super) async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        let mut loose = self.loose_keys(batch).await?;
        let mut keys = Vec::new();
        let mut owners = Vec::new();
        for (i, digest) in batch.iter().enumerate() {
            for key in loose.remove(digest).unwrap_or_default() {
                keys.push(key);
                owners.push(i);
            }
        }
        let mut out: Vec<DeleteOutcome> = batch.iter().map(|_| DeleteOutcome::Absent).collect();
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

    pub(super) async fn flush(&self) -> Result<()> {
        Ok(())
    }

    pub(super) async fn maintain(&self) -> Result<()> {
        Ok(())
    }
}
