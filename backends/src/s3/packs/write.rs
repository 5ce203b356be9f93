//! What was put and is in no index yet.

use std::collections::HashMap;
use std::sync::Arc;

use backtrail_core::error::Result;
use backtrail_core::ids::Digest;
use backtrail_core::store::Expect;
use bytes::Bytes;

use super::format::{Entry, IndexFile, PACK_BYTES, PackTable, pack};
use super::index::Place;
use super::pack_key;
use crate::s3::Inner;
use crate::s3::bucket::in_order;
use crate::s3::loose::{Form, key_of};

/// Small objects below which a flush stores them loose.
const FEW: usize = 16;
/// Full packs that may wait after a failed upload before a put fails.
const WAITING: usize = 4;

/// Objects put by this handle and not yet named by an index.
#[derive(Default)]
pub(in crate::s3) struct Open {
    held: HashMap<Digest, Held>,
    /// In no pack yet, in the order in which they came.
    queue: Vec<Digest>,
    bytes: usize,
    /// Full packs that wait for their upload.
    full: Vec<Full>,
    /// Uploaded packs that no index names yet.
    ready: Vec<PackTable>,
    condemned: Vec<(Arc<str>, Digest)>,
}

/// An object on its way.
#[derive(Clone)]
pub(in crate::s3) enum Held {
    /// In no pack yet.
    Form(Form),
    /// In a pack that is not uploaded.
    Packed(Entry, Bytes),
    /// In a pack that no index names.
    Placed(Place),
}

impl Held {
    pub(in crate::s3) fn raw(&self) -> u64 {
        match self {
            Self::Form(form) => form.raw,
            Self::Packed(entry, _) => u64::from(entry.raw),
            Self::Placed(place) => u64::from(place.entry.raw),
        }
    }

    pub(in crate::s3) fn stored(&self) -> u64 {
        match self {
            Self::Form(form) => form.stored.len() as u64,
            Self::Packed(entry, _) => u64::from(entry.stored),
            Self::Placed(place) => u64::from(place.entry.stored),
        }
    }
}

struct Full {
    table: PackTable,
    bytes: Bytes,
}

impl Open {
    fn add(&mut self, form: Form) {
        self.bytes += form.stored.len();
        self.queue.push(form.digest);
        self.held.insert(form.digest, Held::Form(form));
    }

    /// Makes a pack of what is queued.
    fn close(&mut self, id: String) {
        let mut forms = Vec::new();
        for digest in std::mem::take(&mut self.queue) {
            if let Some(Held::Form(form)) = self.held.get(&digest) {
                forms.push(form.clone());
            }
        }
        self.bytes = 0;
        if forms.is_empty() {
            return;
        }
        let (bytes, entries) = pack(&forms);
        for entry in &entries {
            let range = entry.range();
            let stored = bytes.slice(range.start as usize..range.end as usize);
            self.held.insert(entry.digest, Held::Packed(*entry, stored));
        }
        let table = PackTable { id, size: bytes.len() as u64, entries };
        self.full.push(Full { table, bytes });
    }

    /// A pack is in the bucket.
    fn uploaded(&mut self, table: PackTable) {
        let id: Arc<str> = table.id.as_str().into();
        for entry in &table.entries {
            if let Some(held @ Held::Packed(..)) = self.held.get_mut(&entry.digest) {
                *held = Held::Placed(Place { pack: id.clone(), entry: *entry });
            } else {
                // Deleted meanwhile.
                self.condemned.push((id.clone(), entry.digest));
            }
        }
        self.ready.push(table);
    }
}

impl Inner {
    /// What this handle has of an object that no index names yet.
    pub(in crate::s3) fn held(&self, digest: &Digest) -> Option<Held> {
        self.packs.open().held.get(digest).cloned()
    }

    /// All of those: digest and stored bytes.
    pub(in crate::s3) fn all_held(&self) -> Vec<(Digest, u64)> {
        self.packs.open().held.iter().map(|(digest, held)| (*digest, held.stored())).collect()
    }

    /// Forgets an object on its way; true when there was one.
    pub(in crate::s3) fn drop_held(&self, digest: &Digest) -> bool {
        let mut open = self.packs.open();
        let Some(held) = open.held.remove(digest) else { return false };
        match held {
            Held::Form(form) => {
                open.bytes = open.bytes.saturating_sub(form.stored.len());
                open.queue.retain(|queued| queued != digest);
            }
            Held::Packed(..) => {}
            Held::Placed(place) => open.condemned.push((place.pack, *digest)),
        }
        true
    }

    /// Gives up the packed copies of an object, at the next flush.
    pub(in crate::s3) fn condemn(&self, places: &[Place]) {
        let mut open = self.packs.open();
        open.condemned.extend(places.iter().map(|p| (p.pack.clone(), p.entry.digest)));
    }

    /// Queues small objects, and uploads what packs became full by that. A failed upload
    /// is tried again by the flush, unless too many wait already.
    pub(in crate::s3) async fn queue(&self, forms: Vec<Form>) -> Result<()> {
        let uploading = self.packs.uploads.read().await;
        for form in forms {
            let id = self.open.ids.hex(16)?;
            let mut open = self.packs.open();
            if !open.held.contains_key(&form.digest) {
                open.add(form);
            }
            if open.bytes >= PACK_BYTES {
                open.close(id);
            }
        }
        let done = self.upload().await;
        drop(uploading);
        let waiting = self.packs.open().full.len();
        if waiting > WAITING { done } else { Ok(()) }
    }

    /// Uploads the full packs.
    async fn upload(&self) -> Result<()> {
        let full = std::mem::take(&mut self.packs.open().full);
        let put = |full: Full| async move {
            let (key, bytes) = (pack_key(&full.table.id), full.bytes.clone());
            (self.bucket.put(&key, bytes, &Expect::Any).await, full)
        };
        let puts: Vec<_> = full.into_iter().map(put).collect();
        let mut failed = None;
        for (done, full) in in_order(puts, self.bucket.concurrency()).await {
            let mut open = self.packs.open();
            match done {
                Ok(_) => open.uploaded(full.table),
                Err(e) => {
                    open.full.push(full);
                    failed = Some(e);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The barrier: what was put before is stored and named when this is Ok (CLD-O5).
    pub(in crate::s3) async fn flush(&self) -> Result<()> {
        let _alone = self.packs.uploads.write().await;
        let few = {
            let open = self.packs.open();
            open.full.is_empty() && open.ready.is_empty() && open.queue.len() < FEW
        };
        if few {
            self.flush_loose().await?;
        } else {
            let id = self.open.ids.hex(16)?;
            self.packs.open().close(id);
        }
        self.upload().await?;
        self.open.faults.reach("s3.pack.put")?;
        self.flush_index().await
    }

    async fn flush_loose(&self) -> Result<()> {
        let forms: Vec<Form> = {
            let open = self.packs.open();
            let form = |digest| match open.held.get(digest) {
                Some(Held::Form(form)) => Some(form.clone()),
                _ => None,
            };
            open.queue.iter().filter_map(form).collect()
        };
        let put = |form: &Form| {
            let key = key_of(&form.digest, form.compressed);
            let stored = form.stored.clone();
            async move { (self.bucket.put(&key, stored, &Expect::Any).await, key) }
        };
        let puts: Vec<_> = forms.iter().map(put).collect();
        let mut failed = None;
        let mut stored = Vec::new();
        for (form, (done, key)) in forms.iter().zip(in_order(puts, self.bucket.concurrency()).await)
        {
            match done {
                Ok(_) => {
                    let mut open = self.packs.open();
                    open.held.remove(&form.digest);
                    open.queue.retain(|digest| *digest != form.digest);
                    open.bytes = open.bytes.saturating_sub(form.stored.len());
                    stored.push(key);
                }
                Err(e) => failed = Some(e.context(format!("object {} is not stored", form.digest))),
            }
        }
        if let Some(known) = &mut self.packs.loaded.lock().await.loose {
            known.extend(stored);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Names the uploaded packs in an index file.
    async fn flush_index(&self) -> Result<()> {
        let (packs, condemned) = {
            let open = self.packs.open();
            (open.ready.clone(), open.condemned.clone())
        };
        if packs.is_empty() && condemned.is_empty() {
            return Ok(());
        }
        self.index().await?;
        let mut loaded = self.packs.loaded.lock().await;
        let file = IndexFile {
            packs: packs.clone(),
            condemned: by_pack(&condemned),
            ..IndexFile::default()
        };
        self.write_index(&mut loaded, file).await?;
        let mut open = self.packs.open();
        open.ready.drain(..packs.len());
        open.condemned.drain(..condemned.len());
        for entry in packs.iter().flat_map(|table| &table.entries) {
            if matches!(open.held.get(&entry.digest), Some(Held::Placed(_))) {
                open.held.remove(&entry.digest);
            }
        }
        Ok(())
    }

    /// Condemns packed objects now: one index file a batch.
    pub(in crate::s3) async fn condemn_now(&self, gone: &[(Arc<str>, Digest)]) -> Result<()> {
        let mut loaded = self.packs.loaded.lock().await;
        if let Some(name) = &loaded.newer {
            return Err(super::maintain::newer(name));
        }
        let file = IndexFile { condemned: by_pack(gone), ..IndexFile::default() };
        self.write_index(&mut loaded, file).await.map(drop)
    }

    /// Whether a loose object may be there: a listing that had them all says no. With
    /// too many to know, of `many` each is taken as absent.
    pub(in crate::s3) async fn maybe_loose(&self, digest: &Digest, many: bool) -> Result<bool> {
        let loaded = self.packs.loaded.lock().await;
        let has = |keys: &std::collections::HashSet<String>| {
            keys.contains(&key_of(digest, false)) || keys.contains(&key_of(digest, true))
        };
        Ok(loaded.loose.as_ref().map_or(!many, has))
    }

    /// An object was stored loose.
    pub(in crate::s3) async fn now_loose(&self, key: String) {
        if let Some(known) = &mut self.packs.loaded.lock().await.loose {
            known.insert(key);
        }
    }
}

fn by_pack(gone: &[(Arc<str>, Digest)]) -> Vec<(String, Vec<Digest>)> {
    let mut out: HashMap<&str, Vec<Digest>> = HashMap::new();
    for (pack, digest) in gone {
        out.entry(pack).or_default().push(*digest);
    }
    out.into_iter().map(|(pack, digests)| (pack.to_owned(), digests)).collect()
}
