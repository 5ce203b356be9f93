//! A store that behaves badly in one way, over a real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, HeldLock, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The object listing fails after some rows.
    ListFails,
    /// The object listing gives a row twice.
    ListRepeats,
    /// The document listing fails.
    DocsFail,
    /// The documents may not be listed.
    DocsDenied,
    /// The listing shows the objects of another store below.
    OtherStore,
    /// The `prune` lock counts as lost once this many delete calls were made.
    LosesPrune(usize),
}

/// The store.
pub(crate) struct Tap {
    inner: Arc<dyn Store>,
    wrong: Wrong,
    pub(crate) deletes: Arc<AtomicUsize>,
}

impl Tap {
    pub(crate) fn new(inner: Arc<dyn Store>, wrong: Wrong) -> Self {
        Self { inner, wrong, deletes: Arc::default() }
    }
}

struct Losing {
    guard: Guard,
    deletes: Arc<AtomicUsize>,
    after: usize,
}

#[async_trait]
impl HeldLock for Losing {
    fn token(&self) -> u64 {
        self.guard.token()
    }
    fn is_lost(&self) -> bool {
        self.deletes.load(Ordering::SeqCst) >= self.after
    }
    async fn release(self: Box<Self>) -> Result<()> {
        self.guard.release().await
    }
}

#[async_trait]
impl Store for Tap {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.inner.health().await
    }
    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        self.inner.put_objects(batch, mode).await
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        self.inner.get_object(digest).await
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        self.inner.get_objects(batch).await
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        self.inner.contains(batch).await
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        let rows = self.inner.list_objects();
        let broken = || stream::iter([Err(Error::unavailable("page 2 was cut"))]);
        match self.wrong {
            Wrong::ListFails => rows.take(3).chain(broken()).boxed(),
            Wrong::ListRepeats => rows.chain(self.inner.list_objects().take(1)).boxed(),
            Wrong::OtherStore => {
                let name = String::from("team/workspace-objects/ab/cd");
                rows.chain(stream::iter([Ok(ListedObject::Foreign(name))])).boxed()
            }
            _ => rows,
        }
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.deletes.fetch_add(1, Ordering::SeqCst);
        self.inner.delete_objects(batch).await
    }
    async fn flush(&self) -> Result<()> {
        self.inner.flush().await
    }
    async fn get(&self, key: &DocKey) -> Result<Document> {
        self.inner.get(key).await
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        self.inner.put(key, body, expect, fence).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.deletes.fetch_add(1, Ordering::SeqCst);
        self.inner.delete(key, version).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        let broken = |e| stream::iter([Err(e)]).boxed();
        match self.wrong {
            Wrong::DocsFail => broken(Error::unavailable("page 1 was cut")),
            Wrong::DocsDenied => broken(Error::new(Kind::Denied, "denied", "may not be listed")),
            _ => self.inner.list(prefix),
        }
    }
    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.inner.append_events(run, events, fence).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.inner.read_events(run, from)
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.inner.follow_events(run, from)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.inner.append_log(run, offset, bytes, fence).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        self.inner.read_log(run, from, to).await
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.inner.follow_log(run, from)
    }
    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.inner.lock_holder(name).await
    }
    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        let guard = self.inner.lock(request).await?;
        match self.wrong {
            Wrong::LosesPrune(after) if *guard.name() == LockName::Prune => {
                let deletes = self.deletes.clone();
                let held = Losing { guard, deletes, after };
                Ok(Guard::new(LockName::Prune, Box::new(held)))
            }
            _ => Ok(guard),
        }
    }
}
