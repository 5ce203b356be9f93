//! S3 and what speaks its language: documents under the keys of the local store with
//! If-None-Match and If-Match, objects loose or in packs, events and run logs as segments
//! behind a head, locks as documents. One try a request; what a lost answer means is
//! settled by the retry layer above, and by [`crate::net::settle`] for what it cannot see.

mod bucket;
mod cache;
mod chunks;
mod client;
mod deletion;
mod documents;
mod events;
mod gate;
mod listing;
mod loose;
mod objects;
mod packs;
mod place;
pub mod probe;
pub mod url;
mod wire;

use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::store::docs::token_of;
use backtrail_core::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::OnceCell;

use crate::local::LocalStore;
use crate::net::head::Heads;
use crate::net::keeper::Keeper;
use crate::net::lease::{Config, Leases};
use crate::net::{Found, Named, Small, runlog};
use crate::open::OpenOptions;
use bucket::Bucket;
use chunks::Poll;
pub use url::S3Options;
pub use wire::RequestCount;

/// A store in a bucket.
pub struct S3Store(Arc<Inner>);

/// What one open handle shares between its operations.
struct Inner {
    bucket: Arc<Bucket>,
    options: S3Options,
    open: OpenOptions,
    heads: Heads,
    /// Locks have a thread and connections of their own, made by the first one.
    leases: OnceCell<Leases>,
    /// Locks of the host lie on the host.
    host: LocalStore,
    /// Where locks are taken when this is the objects half of two stores.
    other_half: OnceLock<Arc<dyn Store>>,
    known: documents::Known,
    packs: packs::Packs,
    store_id: Mutex<String>,
}

#[async_trait]
impl Small for Bucket {
    async fn read(&self, key: &str) -> Result<Option<Found>> {
        let Some(got) = self.get(key).await? else { return Ok(None) };
        Ok(Some(Found {
            body: got.bytes,
            version: Version(got.meta.etag),
            idle: None,
            age: Some(got.meta.age),
        }))
    }
    async fn write(&self, key: &str, body: Bytes, expect: &Expect) -> Result<Version> {
        self.put(key, body, expect).await
    }
    async fn remove(&self, key: &str) -> Result<()> {
        self.delete(key).await
    }
    async fn below(&self, dir: &str) -> Result<Vec<Named>> {
        let named =
            |row: bucket::Row| Named { key: row.key, version: Version(row.meta.etag), idle: None };
        Ok(self.list(dir).await?.into_iter().map(named).collect())
    }
}

impl S3Store {
    /// A handle on the store at `options`; sends nothing.
    pub fn new(options: S3Options, open: OpenOptions) -> Result<Self> {
        let bucket = Arc::new(Bucket::new(&options)?);
        let heads = Heads::new(bucket.clone(), open.ids.clone());
        let host = LocalStore::for_locks(open.state_dir.clone(), open.clone());
        Ok(Self(Arc::new(Inner {
            bucket,
            options,
            open,
            heads,
            leases: OnceCell::new(),
            host,
            other_half: OnceLock::new(),
            known: documents::Known::default(),
            packs: packs::Packs::default(),
            store_id: Mutex::default(),
        })))
    }

    /// A handle on an existing store: one without a marker is not found.
    pub async fn open(options: S3Options, open: OpenOptions) -> Result<Self> {
        let store = Self::new(options, open)?;
        let key = DocKey::Marker;
        match store.0.bucket.get(&key.to_string()).await? {
            Some(got) => store.learn(&got.bytes),
            None => {
                let url = store.0.options.url();
                return Err(Error::not_found(format!("there is no store at {url}"))
                    .with_code("no-store")
                    .with_hint(format!("backtrail store init {url}")));
            }
        }
        Ok(store)
    }

    /// The verdict of the last day, or a new one. Only a handle with a cache directory
    /// has one: others would ask the server anew each time.
    pub async fn verdict(&self) -> Result<probe::Verdict> {
        if let Some(verdict) = self.0.cached_verdict().await {
            return Ok(verdict);
        }
        let verdict = self.probe().await?;
        self.0.cache_verdict(&verdict).await;
        Ok(verdict)
    }

    /// Makes this the objects half of two stores: its locks are those of `documents`, for
    /// its own server may bend conditions.
    pub fn lock_in(&self, documents: Arc<dyn Store>) {
        let _ = self.0.other_half.set(documents);
    }

    /// Makes what is known of packs be read again: due once the `objects` lock was taken,
    /// which this store sees itself unless it is the half of two.
    pub fn doubt(&self) {
        self.0.guarded();
    }

    /// Requests that may be in flight now: fewer after the server said that it is too much.
    pub fn concurrency(&self) -> usize {
        self.0.bucket.concurrency()
    }

    /// Checks what the server can, below `probe/`. Costs about 1,100 small requests.
    pub async fn probe(&self) -> Result<probe::Verdict> {
        let dir = format!("probe/{}/", self.0.open.ids.hex(16)?);
        probe::run(&self.0.bucket, &dir).await
    }

    /// Requests sent by this handle, those of its locks left out.
    pub fn requests(&self) -> RequestCount {
        self.0.bucket.requests()
    }

    fn learn(&self, marker: &[u8]) {
        let id = serde_json::from_slice::<serde_json::Value>(marker).ok();
        let id = id.and_then(|m| Some(m.get("store_id")?.as_str()?.to_owned()));
        *self.0.store_id.lock().unwrap_or_else(|e| e.into_inner()) = id.unwrap_or_default();
    }
}

impl Inner {
    async fn leases(&self) -> Result<&Leases> {
        self.leases
            .get_or_try_init(|| async {
                let keeper = Arc::new(Keeper::start()?);
                let small = Arc::new(Bucket::new(&self.options)?);
                let config = Config {
                    ttl: self.open.lease_ttl,
                    clock: self.open.clock.clone(),
                    ids: self.open.ids.clone(),
                    host: self.open.host.clone(),
                };
                Ok(Leases::new(keeper, small, config))
            })
            .await
    }

    /// A write through a lost guard is not even sent.
    fn check_fence(&self, fence: Option<&Fence>) -> Result<()> {
        match (fence, self.leases.get()) {
            (Some(fence), Some(leases)) => leases.check(fence),
            _ => Ok(()),
        }
    }

    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        if let Some(documents) = self.other_half.get() {
            return documents.lock(request).await;
        }
        let objects = request.name == LockName::Objects;
        if request.name == LockName::Prune {
            self.check_prune().await?;
        }
        // A run's record remembers its newest token, should its lock have been lost.
        let floor = match &request.name {
            LockName::Run(run) => {
                let key = DocKey::Run(run.clone()).to_string();
                self.bucket.get(&key).await?.and_then(|got| token_of(&got.bytes)).unwrap_or(0)
            }
            _ => 0,
        };
        let guard = self.leases().await?.lock(request, floor).await?;
        if objects {
            self.guarded();
        }
        Ok(guard)
    }

    async fn health(&self) -> Result<StoreHealth> {
        let now_ns = self.bucket.now().await?;
        Ok(StoreHealth { now_ns, ..StoreHealth::default() })
    }
}

/// Rows that were all read before the first is handed on.
fn rows<'a, T: Send + 'a>(
    read: impl Future<Output = Result<Vec<T>>> + Send + 'a,
) -> BoxStream<'a, Result<T>> {
    stream::once(read)
        .flat_map(|rows| match rows {
            Ok(rows) => stream::iter(rows.into_iter().map(Ok)).left_stream(),
            Err(e) => stream::iter([Err(e)]).right_stream(),
        })
        .boxed()
}

#[async_trait]
impl Store for S3Store {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            url: self.0.options.url(),
            kind: "s3",
            store_id: self.0.store_id.lock().unwrap_or_else(|e| e.into_inner()).clone(),
            local_dir: None,
        }
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.0.health().await
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        self.0.put_objects(batch, mode).await
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        let mut got = self.0.get_objects(&[*digest]).await?;
        got.pop().unwrap_or_else(|| Err(objects::absent(digest)))
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        self.0.get_objects(batch).await
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        self.0.contains(batch).await
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        rows(self.0.list_objects())
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.0.delete_objects(batch).await
    }
    async fn flush(&self) -> Result<()> {
        self.0.flush().await
    }
    async fn maintain(&self) -> Result<()> {
        self.0.maintain().await
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        self.0.get_document(key).await
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        self.0.put_document(key, body, &expect, fence).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.0.delete_document(key, version).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        let prefix = prefix.clone();
        rows(async move { self.0.list_documents(&prefix).await })
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.0.append_events(run, &events, fence).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.0.read_events(run.clone(), from)
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.0.follow_events(run.clone(), from)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        runlog::append(&*self.0, run, offset, &bytes, fence).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        runlog::read(&*self.0, run, from, to).await
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        runlog::follow(&*self.0, run.clone(), from, Poll)
    }

    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        match request.name.is_host_lock() {
            true => self.0.host.lock(request).await,
            false => self.0.lock(request).await,
        }
    }
    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        match name.is_host_lock() {
            true => self.0.host.lock_holder(name).await,
            false => self.0.leases().await?.holder(name).await,
        }
    }
}

/// The answer when a document of ours was refused by somebody else's.
fn refused(e: &Error) -> bool {
    e.kind() == Kind::Conflict && e.code() == "conflict"
}
