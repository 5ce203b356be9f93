//! The strict in-memory reference store: what the contract allows it to do, it does.
//! It yields at each await, pages its listings in odd sizes, gives every write a new
//! version, and forgets what was not flushed when it is opened again.

mod documents;
mod locks;
mod logs;
mod objects;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};
use crate::error::Result;
use crate::ids::{Digest, RunId};

/// Rows of a listing page: odd, so that no test data fits it by accident.
const PAGE: usize = 7;

/// A handle on a store in memory. [`MemoryStore::reopen`] gives another handle on the
/// same store; dropping the last one forgets it.
pub struct MemoryStore {
    backing: Arc<Backing>,
    /// Put by this handle and not flushed.
    pending: Mutex<HashMap<Digest, Bytes>>,
}

/// What all handles share.
pub(super) struct Backing {
    name: String,
    state: Mutex<State>,
    /// Told of every change, for waiters and followers.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Digest, (Bytes, Instant)>,
    docs: BTreeMap<String, Stored>,
    versions: u64,
    events: HashMap<RunId, logs::Events>,
    logs: HashMap<RunId, logs::Log>,
    locks: HashMap<LockName, locks::Lock>,
}

/// A document and when it was written.
struct Stored {
    key: DocKey,
    doc: Document,
    at: Instant,
}

impl Backing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn notify(&self) {
        self.changed.send_replace(());
    }
}

/// Waits until somebody changed something since `seen` was last looked at, or `limit`.
async fn wait_for_change(seen: &mut watch::Receiver<()>, limit: Duration) {
    let _ = tokio::time::timeout(limit, seen.changed()).await;
}

/// Lets every other task go first, as a real store would.
async fn pause() {
    tokio::task::yield_now().await;
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::named("memory")
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with a name for messages.
    pub fn named(name: &str) -> Self {
        let backing = Backing {
            name: name.to_owned(),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        };
        Self { backing: Arc::new(backing), pending: Mutex::default() }
    }

    /// Another handle on the same store, as after a crash of this one: what was put and
    /// not flushed is not there.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self { backing: self.backing.clone(), pending: Mutex::default() }
    }

    /// Replaces the stored bytes of an object by others, as a bad disk would.
    pub fn spoil(&self, digest: &Digest, bytes: impl Into<Bytes>) {
        self.backing.state().objects.insert(*digest, (bytes.into(), Instant::now()));
    }

    /// Replaces a document's body by any bytes, as a foreign hand would.
    pub fn spoil_document(&self, key: &DocKey, body: impl Into<Bytes>) {
        self.backing.state().write(key, body.into());
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Digest, Bytes>> {
        self.pending.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            url: format!("mem://{}", self.backing.name),
            kind: "memory",
            store_id: self.backing.name.clone(),
            local_dir: None,
        }
    }
    async fn health(&self) -> Result<StoreHealth> {
        pause().await;
        Ok(StoreHealth { volatile: true, ..StoreHealth::default() })
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        let mut out = Vec::with_capacity(batch.len());
        for object in &batch {
            pause().await;
            out.push(self.put_one(object, mode));
        }
        Ok(out)
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        pause().await;
        self.get_one(digest)
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let mut out = Vec::with_capacity(batch.len());
        for digest in batch {
            pause().await;
            out.push(self.get_one(digest));
        }
        Ok(out)
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        pause().await;
        Ok(batch.iter().map(|(digest, raw)| self.contains_one(digest, *raw)).collect())
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        paged(move |after: Option<&Digest>| self.object_page(after))
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        let mut out = Vec::with_capacity(batch.len());
        for digest in batch {
            pause().await;
            out.push(self.delete_one(digest));
        }
        Ok(out)
    }
    async fn flush(&self) -> Result<()> {
        pause().await;
        self.flush_pending();
        Ok(())
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        pause().await;
        self.get_document(key)
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        pause().await;
        let done = self.put_document(key, body, &expect, fence);
        pause().await;
        done
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        pause().await;
        self.delete_document(key, version)
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        let prefix = prefix.clone();
        paged(move |after: Option<&String>| self.document_page(&prefix, after))
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        pause().await;
        self.append(run, &events, fence)
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.event_stream(run.clone(), from, false)
    }
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        pause().await;
        self.next_event(run)
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.event_stream(run.clone(), from, true)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        pause().await;
        self.append_bytes(run, offset, &bytes, fence)
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        pause().await;
        self.log_parts(run, from, to)
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.log_stream(run.clone(), from)
    }

    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        pause().await;
        self.take_lock(request).await
    }
    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        pause().await;
        Ok(self.exclusive_holder(name))
    }
}

/// Lists page by page; each page looks at the store anew, behind the last key.
fn paged<'a, K, T, F>(page: F) -> BoxStream<'a, Result<T>>
where
    K: Send + 'a,
    T: Send + 'a,
    F: Fn(Option<&K>) -> Vec<(K, T)> + Send + Sync + 'a,
{
    // `None` behind the last page; inside, the last key seen.
    let step = move |state: Option<Option<K>>| {
        let rows = state.map(|after| page(after.as_ref()));
        async move {
            pause().await;
            let rows = rows?;
            let mut last = None;
            let full = rows.len() == PAGE;
            let mut out = Vec::with_capacity(rows.len());
            for (key, row) in rows {
                last = Some(key);
                out.push(Ok(row));
            }
            Some((out, full.then_some(last)))
        }
    };
    stream::unfold(Some(None), step).flat_map(stream::iter).boxed()
}
