//! MongoDB: one collection per kind of document, one tenant per handle. Bodies are text
//! under the keys of the local store, objects are binaries, events and run logs lie
//! behind a head, locks are documents whose age the server judges. One try a request;
//! what a lost answer means is settled by the retry layer above, and by
//! [`crate::net::settle`] for what it cannot see.

mod chunks;
mod documents;
mod events;
mod fault;
mod follow;
mod listing;
mod objects;
mod schema;
mod small;
mod space;
mod tables;
pub mod url;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

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
use futures::stream::BoxStream;
use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::local::LocalStore;
use crate::marker::{MarkerHead, no_store};
use crate::net::head::{Head, Heads};
use crate::net::keeper::Keeper;
use crate::net::lease::{Config, Leases};
use crate::net::runlog;
use crate::open::OpenOptions;
use follow::Pushed;
pub use schema::{InitOptions, Keep};
use small::Smalls;
pub use space::Filter;
use space::Space;
pub use url::MongoOptions;

/// The oldest server that has what this build uses: 6.0.
const OLDEST_WIRE: i32 = 17;
/// A pause between looks for a primary.
const PAUSE: Duration = Duration::from_millis(250);

/// A store in a database.
pub struct MongoStore(Arc<Inner>);

/// What one open handle shares between its operations.
struct Inner {
    options: MongoOptions,
    open: OpenOptions,
    client: ClientOptions,
    space: Arc<Space>,
    small: Arc<Smalls>,
    heads: Heads,
    /// Locks have a thread and connections of their own, made by the first one.
    leases: OnceCell<Leases>,
    /// Locks of the host lie on the host.
    host: LocalStore,
    /// Objects that a read of this handle found to be wrong.
    bad: Mutex<HashSet<Digest>>,
    state: Mutex<State>,
}

/// What opening learnt.
#[derive(Default)]
struct State {
    marker: MarkerHead,
    /// Indexes that are not there.
    missing: Vec<String>,
}

impl MongoStore {
    async fn connect(options: MongoOptions, open: OpenOptions) -> Result<Self> {
        let client = options.client().await?;
        let space = Arc::new(space_of(&options, &client, &open.tenant)?);
        let small = Arc::new(Smalls { space: space.clone(), ids: open.ids.clone() });
        let heads = Heads::new(small.clone(), open.ids.clone());
        let host = LocalStore::for_locks(open.state_dir.clone(), open.clone());
        let inner = Inner {
            options,
            client,
            space,
            small,
            heads,
            leases: OnceCell::new(),
            host,
            bad: Mutex::default(),
            state: Mutex::default(),
            open,
        };
        inner.wait_for_primary().await?;
        Ok(Self(Arc::new(inner)))
    }

    /// A handle on an existing store: one without a marker is not found. One whose
    /// indexes are not all there, or that a later build made, can be read.
    pub async fn open(options: MongoOptions, open: OpenOptions) -> Result<Self> {
        let store = Self::connect(options, open).await?;
        let inner = &store.0;
        let marker = inner.marker().await?.ok_or_else(|| no_store(&inner.options.url()))?;
        inner.learn(&marker, inner.missing_indexes().await?);
        Ok(store)
    }

    /// A handle on a store that is made when it is not there, and repaired when its
    /// indexes are not.
    pub async fn init(options: MongoOptions, open: OpenOptions, init: InitOptions) -> Result<Self> {
        let store = Self::connect(options, open).await?;
        let marker = store.0.init(init).await?;
        store.0.learn(&marker, Vec::new());
        Ok(store)
    }

    /// The indexes that were not there when the store was opened.
    pub fn missing_indexes(&self) -> Vec<String> {
        self.0.state().missing.clone()
    }
}

fn space_of(options: &MongoOptions, client: &ClientOptions, tenant: &str) -> Result<Space> {
    let secrets = options.secrets()?;
    let made = Client::with_options(client.clone());
    let what = format!("open {}", options.url());
    let client = made.map_err(|e| fault::error(&what, &e, &secrets))?;
    Ok(Space::new(&client, &options.database, tenant, secrets))
}

impl Inner {
    /// Waits until there is a primary: one failed look is no verdict.
    async fn wait_for_primary(&self) -> Result<()> {
        let end = Instant::now() + self.open.mongo_wait;
        let url = self.options.url();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let failed = match tokio::time::timeout(left, self.hello()).await {
                Ok(Ok(hello)) => return self.check_server(&hello),
                Ok(Err(e)) if !crate::net::is_transient(&e) => return Err(e),
                Ok(Err(e)) => Some(e),
                Err(_) => None,
            };
            if end.saturating_duration_since(Instant::now()).is_zero() {
                let waited = self.open.mongo_wait.as_secs();
                let message = format!("no primary of {url} answered within {waited} s");
                let e = Error::unavailable(message);
                return Err(match failed {
                    Some(cause) => e.with_source(cause),
                    None => e,
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn hello(&self) -> Result<mongodb::bson::Document> {
        let what = format!("open {}", self.options.url());
        let answer = self.space.db().run_command(doc! { "hello": 1 }).await;
        let answer = answer.map_err(|e| self.space.error(&what, &e))?;
        match answer.get_bool("isWritablePrimary") {
            Ok(true) => Ok(answer),
            _ => Err(Error::unavailable(format!("{what}: no primary"))),
        }
    }

    fn check_server(&self, hello: &mongodb::bson::Document) -> Result<()> {
        match hello.get_i32("maxWireVersion") {
            Ok(wire) if wire < OLDEST_WIRE => Err(Error::refused(
                "unsupported-server",
                format!("{} is older than MongoDB 6.0", self.options.url()),
            )),
            _ => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn bad(&self) -> MutexGuard<'_, HashSet<Digest>> {
        self.bad.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn learn(&self, marker: &MarkerHead, missing: Vec<String>) {
        *self.state() = State { marker: marker.clone(), missing };
    }

    /// Refuses every write to a store that a later build made or that lacks an index.
    fn check_writable(&self) -> Result<()> {
        let state = self.state();
        let url = self.options.url();
        state.marker.check_writable(&url)?;
        match state.missing.first() {
            None => Ok(()),
            Some(first) => Err(Error::refused(
                "store-incomplete",
                format!("store {url} lacks the index {first}: nothing is written to it"),
            )
            .with_hint(no_store(&url).hint().unwrap_or_default())),
        }
    }

    async fn leases(&self) -> Result<&Leases> {
        self.leases
            .get_or_try_init(|| async {
                let keeper = Arc::new(Keeper::start()?);
                let (options, client) = (self.options.clone(), self.client.clone());
                let tenant = self.open.tenant.clone();
                // Connections belong to the runtime that made them.
                let space = keeper.run(async move { space_of(&options, &client, &tenant) });
                let space = Arc::new(space.await?);
                let small = Arc::new(Smalls { space, ids: self.open.ids.clone() });
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
        self.check_writable()?;
        // A run's record remembers its newest token, should its lock have been lost.
        let floor = match &request.name {
            LockName::Run(run) => match self.get_document(&DocKey::Run(run.clone())).await {
                Ok(doc) => token_of(&doc.body).unwrap_or(0),
                Err(e) if e.is_not_found() => 0,
                Err(e) => return Err(e),
            },
            _ => 0,
        };
        self.leases().await?.lock(request, floor).await
    }

    /// Reserves a place in the head of a run.
    async fn reserve<T>(
        &self,
        run: &RunId,
        fence: Option<&Fence>,
        change: impl Fn(&mut Head) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        self.check_writable()?;
        self.check_fence(fence)?;
        self.heads.reserve(run, fence, change, self.check_run(run)).await
    }

    /// A little, so that those who met do not meet again.
    async fn jitter(&self) -> Result<()> {
        let mut byte = [0];
        self.open.ids.fill(&mut byte)?;
        tokio::time::sleep(Duration::from_micros(200) * u32::from(byte[0])).await;
        Ok(())
    }

    async fn health(&self) -> Result<StoreHealth> {
        let hello = self.hello().await?;
        let now = hello.get_datetime("localTime").ok();
        let now_ns = now.and_then(|t| t.timestamp_millis().checked_mul(1_000_000));
        Ok(StoreHealth { now_ns, ..StoreHealth::default() })
    }

    fn info(&self) -> StoreInfo {
        StoreInfo {
            url: self.options.url(),
            kind: "mongodb",
            store_id: self.state().marker.store_id.clone(),
            local_dir: None,
        }
    }
}

#[async_trait]
impl Store for MongoStore {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.0.health().await
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        self.0.put_objects(batch, mode).await
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        let mut got = self.0.get_objects(&[*digest]).await?;
        let none = || Err(Error::new(Kind::NotFound, "not-found", "no answer"));
        got.pop().unwrap_or_else(none)
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        self.0.get_objects(batch).await
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        self.0.contains(batch).await
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.0.list_objects()
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.0.delete_objects(batch).await
    }
    /// Every put has reached a majority and its journal before it is answered.
    async fn flush(&self) -> Result<()> {
        Ok(())
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
        self.0.list_documents(prefix)
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
        let bell = Pushed::new(self.0.space.clone(), tables::RUN_LOGS, run);
        runlog::follow(&*self.0, run.clone(), from, bell)
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
