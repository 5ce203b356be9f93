//! From a URL to a store: `open` knows every scheme and puts the layers around it.

mod location;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backtrail_core::clock::{Clock, Faults, Host, IdSource, NoFaults};
use backtrail_core::error::{Error, Result};
use backtrail_core::store::layers::observe::Observe;
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::layers::verify::Verify;
use backtrail_core::store::memory::MemoryStore;
use backtrail_core::store::{DocKey, Store, StoreInfo};

use crate::composite::Composite;
use crate::host::{RandomIds, SystemClock, this_host};
use crate::local::LocalStore;
use crate::marker::{Marker, MarkerHead, no_store};
use crate::mongo::{InitOptions, MongoStore};
use crate::s3::S3Store;
pub use location::{Location, check_tenant, parse};

/// How a store is opened. The default is what a command uses without any setting.
#[derive(Clone)]
pub struct OpenOptions {
    /// Leave out every sync to stable storage: a crash of the machine may then lose
    /// what was reported as stored. For tests and throw-away stores.
    pub unsafe_no_fsync: bool,
    /// Compress objects where that frees space. Readers accept both forms.
    pub compression: bool,
    /// Tries per operation, at least 1.
    pub attempts: u32,
    /// Time for all tries of an operation together.
    pub budget: Duration,
    /// Where objects lie when it is not the store itself: a URL.
    pub objects: Option<String>,
    /// For the marker of a new store: the id of the store whose objects half it is.
    pub objects_of: Option<String>,
    /// How long to wait for a primary of MongoDB.
    pub mongo_wait: Duration,
    /// Whose store: `default` lies at the path itself, others below `tenants/`.
    pub tenant: String,
    /// How long a lock of a network store outlives its last sign of life.
    pub lease_ttl: Duration,
    /// Where locks of this host lie when the store lies elsewhere.
    pub state_dir: PathBuf,
    /// What may be remembered of network stores on this host; `None`: nothing is.
    pub cache_dir: Option<PathBuf>,
    /// The wall clock, for markers and holders.
    pub clock: Arc<dyn Clock>,
    /// Random bytes, for staging names and guards.
    pub ids: Arc<dyn IdSource>,
    /// Who we are, for holders.
    pub host: Host,
    /// Test faults: `store.object.staged`, `store.object.synced`, `store.object.named`,
    /// `store.doc.staged`, `store.doc.named`, `store.events.sync`.
    pub faults: Arc<dyn Faults>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let host = this_host();
        let home = host.home.clone().unwrap_or_else(|| PathBuf::from("/"));
        Self {
            unsafe_no_fsync: false,
            compression: true,
            attempts: 6,
            budget: Duration::from_secs(300),
            objects: None,
            objects_of: None,
            mongo_wait: Duration::from_secs(60),
            tenant: String::from("default"),
            lease_ttl: Duration::from_secs(60),
            state_dir: home.join(".local/state/backtrail"),
            cache_dir: None,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            host,
            faults: Arc::new(NoFaults),
        }
    }
}

/// Opens the store at `url`, with the objects of [`OpenOptions::objects`]. A local store
/// that does not exist is created by the first write, never by reading; any other is made
/// by [`init`] alone.
pub async fn open(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    Ok(open_observed(url, options).await?)
}

/// [`open`], with the counts of what goes through the store at hand.
pub async fn open_observed(url: &str, options: OpenOptions) -> Result<Arc<Observe>> {
    let place = parse(url)?.of_tenant(&options.tenant)?;
    let backend = match &options.objects {
        None => alone(place, &options).await?,
        Some(objects) => {
            let objects = parse(objects)?.of_tenant(&options.tenant)?;
            pair(place, objects, &options).await?
        }
    };
    let retry = RetryPolicy {
        attempts: options.attempts.max(1),
        budget: options.budget,
        ..RetryPolicy::new(options.ids)
    };
    // Each backend hashes what it reads itself.
    let checked = Arc::new(Verify::over_hashing(backend));
    Ok(Arc::new(Observe::new(Arc::new(Retry::new(checked, retry)))))
}

/// A store without the layers.
struct Backend {
    store: Arc<dyn Store>,
    /// It again, when it remembers what it looked up.
    remembers: Option<Arc<S3Store>>,
}

async fn backend(place: Location, options: &OpenOptions) -> Result<Backend> {
    let store: Arc<dyn Store> = match place {
        Location::Local(path) => {
            let store = LocalStore::new(path, options.clone());
            store.exists().await?;
            Arc::new(store)
        }
        Location::Memory(name) => Arc::new(memory_store(&name)),
        Location::Mongo(mongo) => Arc::new(MongoStore::open(mongo, options.clone()).await?),
        Location::S3(s3) => {
            let store = Arc::new(S3Store::open(s3, options.clone()).await?);
            return Ok(Backend { store: store.clone(), remembers: Some(store) });
        }
    };
    Ok(Backend { store, remembers: None })
}

/// What the marker of a store says; `None` without one.
async fn marker_of(store: &dyn Store) -> Result<Option<MarkerHead>> {
    match store.get(&DocKey::Marker).await {
        Ok(doc) => {
            let place = format!("the marker of {}", store.info().url);
            MarkerHead::parse(place, &doc.body).map(Some)
        }
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// A store of its own. The objects half of a pair is none: a prune that marked from its
/// own documents, of which it has none, would empty it.
async fn alone(place: Location, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    let network = matches!(place, Location::Mongo(_) | Location::S3(_));
    let Backend { store, remembers } = backend(place, options).await?;
    // The verdict of the last day; without a place to keep it, `init` alone asks.
    if let (Some(bucket), Some(_)) = (&remembers, &options.cache_dir) {
        bucket.verdict().await?.require_documents(&store.info().url)?;
    }
    // A local store with a damaged marker can be read all the same.
    let marker = match network {
        true => marker_of(&*store).await?,
        false => marker_of(&*store).await.unwrap_or_default(),
    };
    match marker.and_then(|marker| marker.objects_of) {
        None => Ok(store),
        Some(owner) => Err(Error::refused(
            "objects-half",
            format!("{} holds the objects of store {owner} and is no store", store.info().url),
        )
        .with_hint("give that store with --store and this one with --objects")),
    }
}

async fn pair(
    documents: Location,
    objects: Location,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>> {
    check_pair(&documents, &objects)?;
    let first = alone(documents, options).await?;
    let url = first.info().url;
    let id = marker_of(&*first).await?.ok_or_else(|| no_store(&url))?.store_id;
    let of_objects = |e: Error| e.context("objects store");
    let second = backend(objects, options).await.map_err(of_objects)?;
    let there = marker_of(&*second.store).await.map_err(of_objects)?;
    let there = there.ok_or_else(|| no_store(&second.store.info().url));
    check_paired(&second.store.info(), &there.map_err(of_objects)?, &id)?;
    if let Some(half) = &second.remembers {
        half.lock_in(first.clone());
    }
    Ok(Arc::new(Composite { documents: first, objects: second.store, remembers: second.remembers }))
}

/// Two directories would be one store with its objects elsewhere on the same host, of
/// which a capture could be told to leave out only one.
fn check_pair(documents: &Location, objects: &Location) -> Result<()> {
    match (documents, objects) {
        (Location::Local(_), Location::Local(_)) => {
            Err(Error::invalid("a local store keeps its objects itself: leave --objects out"))
        }
        (a, b) if a == b => Err(Error::invalid("--objects is the store itself: leave it out")),
        _ => Ok(()),
    }
}

/// Fails unless the objects half belongs to the documents of this id.
fn check_paired(objects: &StoreInfo, marker: &MarkerHead, id: &str) -> Result<()> {
    if marker.objects_of.as_deref() == Some(id) {
        return Ok(());
    }
    let owner = match &marker.objects_of {
        Some(other) => format!("holds the objects of store {other}"),
        None => String::from("is a store of its own"),
    };
    Err(Error::refused("other-pair", format!("{} {owner}, not of store {id}", objects.url))
        .with_hint("a prune of one pair would delete the other's objects; use its own --objects"))
}

/// A handle on the memory store of this name; it lives as long as the process.
fn memory_store(name: &str) -> MemoryStore {
    static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    let mut stores = STORES.lock().unwrap_or_else(|e| e.into_inner());
    stores.entry(name.to_owned()).or_insert_with(|| MemoryStore::named(name)).reopen()
}

/// Makes the store at `url`, and the objects half of [`OpenOptions::objects`]: markers,
/// indexes, time limits of records. What is there stays; a pair is never made another.
/// What each half says of itself.
pub async fn init(url: &str, options: OpenOptions, init: InitOptions) -> Result<Vec<StoreInfo>> {
    let place = parse(url)?.of_tenant(&options.tenant)?;
    let objects = options.objects.as_deref().map(parse).transpose()?;
    let objects = objects.map(|place| place.of_tenant(&options.tenant)).transpose()?;
    if let Some(objects) = &objects {
        check_pair(&place, objects)?;
    }
    let first = make(place.clone(), &options, init).await?;
    let mut out = vec![alone(place, &options).await?.info()];
    if let Some(objects) = objects {
        let half = OpenOptions { objects_of: Some(first.store_id.clone()), ..options.clone() };
        let of_objects = |e: Error| e.context("objects store");
        make(objects.clone(), &half, InitOptions::default()).await.map_err(of_objects)?;
        let store = backend(objects, &options).await.map_err(of_objects)?.store;
        let there = marker_of(&*store).await?.unwrap_or_default();
        check_paired(&store.info(), &there, &first.store_id)?;
        out.push(store.info());
    }
    Ok(out)
}

/// Makes one store; its marker.
async fn make(place: Location, options: &OpenOptions, init: InitOptions) -> Result<MarkerHead> {
    let timed = init.events_ttl.is_some() || init.logs_ttl.is_some();
    if timed && !matches!(place, Location::Mongo(_)) {
        return Err(Error::invalid("--events-ttl and --logs-ttl are for a MongoDB store"));
    }
    let (url, body) = match place {
        Location::Local(path) => {
            let store = LocalStore::new(path, options.clone());
            store.init().await?;
            (store.info().url, store.get(&DocKey::Marker).await?.body)
        }
        Location::Mongo(mongo) => {
            let store = MongoStore::init(mongo, options.clone(), init).await?;
            (store.info().url, store.get(&DocKey::Marker).await?.body)
        }
        Location::S3(s3) => {
            let store = S3Store::new(s3, options.clone())?;
            // In an objects half nothing is conditional.
            if options.objects_of.is_none() {
                store.probe().await?.require_documents(&store.info().url)?;
            }
            let body = store.init(Marker::fresh("s3", options)?.body()?).await?;
            (store.info().url, body)
        }
        Location::Memory(_) => return Err(Error::invalid("a store in memory needs no init")),
    };
    MarkerHead::parse(format!("the marker of {url}"), &body)
}

/// Whether there is a store at `url`, without creating one.
pub async fn exists(url: &str, options: &OpenOptions) -> Result<bool> {
    match parse(url)?.of_tenant(&options.tenant)? {
        Location::Memory(_) => Ok(true),
        Location::Local(path) => LocalStore::new(path, options.clone()).exists().await,
        place => match backend(place, options).await {
            Err(e) if e.is_not_found() => Ok(false),
            opened => opened.map(|_| true),
        },
    }
}
