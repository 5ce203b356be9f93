//! Objects in memory.

use std::ops::Bound;

use bytes::Bytes;
use tokio::time::Instant;

use super::{MemoryStore, PAGE};
use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::store::{DeleteOutcome, ListedObject, Object, PutObjects, PutOutcome};

impl MemoryStore {
    pub(super) fn put_one(&self, object: &Object, mode: PutObjects) -> PutOutcome {
        let digest = object.digest();
        let stored = object.bytes().len() as u64;
        if stored == 0 {
            return PutOutcome::Present;
        }
        let mut pending = self.pending();
        let mut state = self.backing.state();
        let mut healed = false;
        if mode == PutObjects::Check {
            if pending.contains_key(&digest) {
                return PutOutcome::Present;
            }
            match state.objects.get_mut(&digest) {
                Some((bytes, at)) if bytes == object.bytes() => {
                    *at = Instant::now();
                    return PutOutcome::Present;
                }
                wrong => healed = wrong.is_some(),
            }
        }
        pending.insert(digest, object.bytes().clone());
        if healed { PutOutcome::Healed { stored } } else { PutOutcome::Stored { stored } }
    }

    fn stored(&self, digest: &Digest) -> Option<Bytes> {
        let pending = self.pending().get(digest).cloned();
        pending.or_else(|| self.backing.state().objects.get(digest).map(|(bytes, _)| bytes.clone()))
    }

    pub(super) fn get_one(&self, digest: &Digest) -> Result<Bytes> {
        if *digest == Digest::EMPTY {
            return Ok(Bytes::new());
        }
        let missing = || Error::not_found(format!("object {digest} is not in the store"));
        let bytes = self.stored(digest).ok_or_else(missing)?;
        match Digest::of(&bytes) {
            found if found == *digest => Ok(bytes),
            found => Err(Error::corrupt(format!("object {digest} is corrupt: {found}"))
                .with_detail("digest", digest.hex())
                .with_detail("expected", digest.hex())
                .with_detail("found", found.hex())),
        }
    }

    pub(super) fn contains_one(&self, digest: &Digest, raw: u64) -> bool {
        if *digest == Digest::EMPTY {
            return raw == 0;
        }
        self.stored(digest).is_some_and(|bytes| bytes.len() as u64 == raw && raw > 0)
    }

    /// Both what is stored and what this handle has pending.
    pub(super) fn object_page(&self, after: Option<&Digest>) -> Vec<(Digest, ListedObject)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let pending = self.pending();
        let state = self.backing.state();
        let row = |digest: &Digest, bytes: &Bytes, at: Instant| {
            let (stored, age) = (bytes.len() as u64, at.elapsed());
            (*digest, ListedObject::Object { digest: *digest, stored, age })
        };
        let named = state.objects.range((start, Bound::Unbounded)).take(PAGE);
        let mut rows: Vec<_> = named.map(|(d, (bytes, at))| row(d, bytes, *at)).collect();
        let ours = pending.iter().filter(|(d, _)| after.is_none_or(|a| *d > a));
        rows.extend(ours.map(|(d, bytes)| row(d, bytes, Instant::now())));
        // A stable sort: of an object in both places the stored row stays.
        rows.sort_by_key(|(digest, _)| *digest);
        rows.dedup_by_key(|(digest, _)| *digest);
        rows.truncate(PAGE);
        rows
    }

    pub(super) fn delete_one(&self, digest: &Digest) -> DeleteOutcome {
        let pending = self.pending().remove(digest).is_some();
        let stored = self.backing.state().objects.remove(digest).is_some();
        if pending || stored { DeleteOutcome::Deleted } else { DeleteOutcome::Absent }
    }

    pub(super) fn flush_pending(&self) {
        let mut pending = self.pending();
        let mut state = self.backing.state();
        for (digest, bytes) in pending.drain() {
            state.objects.insert(digest, (bytes, Instant::now()));
        }
    }
}
