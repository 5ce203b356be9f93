//! From a URL to a store: `open` knows every scheme and puts the layers around it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backtrail_core::clock::{Clock, Faults, Host, IdSource, NoFaults};
use backtrail_core::error::{Error, Result};
use backtrail_core::store::Store;
use backtrail_core::store::layers::observe::Observe;
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::layers::verify::Verify;
use backtrail_core::store::memory::MemoryStore;

use crate::host::{RandomIds, SystemClock, this_host};
use crate::local::LocalStore;
use crate::s3::{self, S3Options, S3Store};

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

/// Where a URL leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory: `/path` or `file:///path`.
    Local(PathBuf),
    /// A store in memory, shared by all that open the name in this process: `mem://name`.
    Memory(String),
    /// `s3://bucket/prefix`.
    S3(S3Options),
}

/// Reads a store URL. Fails with `bad-value` naming the scheme when it is unknown.
///
/// ```
/// use backtrail_backends::open::{Location, parse};
/// assert_eq!(parse("file:///a%20b").unwrap(), Location::Local("/a b".into()));
/// assert!(parse("ftp://host/x").unwrap_err().message().contains("ftp"));
/// ```
pub fn parse(url: &str) -> Result<Location> {
    if url.starts_with('/') {
        return Ok(Location::Local(PathBuf::from(url)));
    }
    match url.split_once("://") {
        Some(("file", path)) if path.starts_with('/') => decode(path)
            .map(Location::Local)
            .ok_or_else(|| Error::invalid(format!("store {url:?} has a bad %-escape"))),
        Some(("file", _)) => Err(Error::invalid(format!(
            "store {url:?} names a host: a local store is file:///path"
        ))),
        Some(("mem", name)) if !name.is_empty() => Ok(Location::Memory(name.to_owned())),
        Some(("s3", _)) => Ok(Location::S3(s3::url::parse(url)?)),
        // The rest of such a URL may hold a password.
        Some((scheme, _)) => Err(Error::invalid(format!("store scheme {scheme:?} is not known"))
            .with_hint("use a path, file:///path or mem://name")),
        None => Err(Error::invalid(format!("store {url:?} must be an absolute path or a URL"))),
    }
}

fn decode(path: &str) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
        out.push(u8::try_from(value).ok().filter(|b| *b != 0)?);
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(out)))
}

/// The place of a tenant's own store in a bucket.
fn tenant_prefix(options: S3Options, tenant: &str) -> Result<S3Options> {
    let path = tenant_path(PathBuf::from(&options.prefix), tenant)?;
    let prefix = path.to_string_lossy().into_owned();
    Ok(options.at(prefix))
}

fn tenant_path(path: PathBuf, tenant: &str) -> Result<PathBuf> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let valid =
        (1..=63).contains(&tenant.len()) && !tenant.starts_with('-') && tenant.bytes().all(plain);
    match tenant {
        _ if !valid => Err(Error::invalid(format!(
            "tenant {tenant:?} is not valid: 1-63 of a-z, 0-9 and -, not starting with -"
        ))),
        "default" => Ok(path),
        tenant => Ok(path.join("tenants").join(tenant)),
    }
}

/// Opens the store at `url`. A local store that does not exist is created by the first
/// write, never by reading.
pub async fn open(url: &str, options: OpenOptions) -> Result<Arc<dyn Store>> {
    Ok(open_observed(url, options).await?)
}

/// [`open`], with the counts of what goes through the store at hand.
pub async fn open_observed(url: &str, options: OpenOptions) -> Result<Arc<Observe>> {
    let backend: Arc<dyn Store> = match parse(url)? {
        Location::Local(path) => {
            let path = tenant_path(path, &options.tenant)?;
            let store = LocalStore::new(path, options.clone());
            store.exists().await?;
            Arc::new(store)
        }
        Location::Memory(name) => Arc::new(memory_store(&name)),
        Location::S3(s3) => {
            Arc::new(S3Store::open(tenant_prefix(s3, &options.tenant)?, options.clone()).await?)
        }
    };
    let retry = RetryPolicy {
        attempts: options.attempts.max(1),
        budget: options.budget,
        ..RetryPolicy::new(options.ids)
    };
    // Both hash what they read themselves.
    let checked = Arc::new(Verify::over_hashing(backend));
    Ok(Arc::new(Observe::new(Arc::new(Retry::new(checked, retry)))))
}

/// A handle on the memory store of this name; it lives as long as the process.
fn memory_store(name: &str) -> MemoryStore {
    static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    let mut stores = STORES.lock().unwrap_or_else(|e| e.into_inner());
    stores.entry(name.to_owned()).or_insert_with(|| MemoryStore::named(name)).reopen()
}

/// Whether there is a store at `url`, without creating one.
pub async fn exists(url: &str, options: &OpenOptions) -> Result<bool> {
    match parse(url)? {
        Location::Memory(_) => Ok(true),
        Location::S3(s3) => {
            let s3 = tenant_prefix(s3, &options.tenant)?;
            match S3Store::open(s3, options.clone()).await {
                Err(e) if e.is_not_found() => Ok(false),
                opened => opened.map(|_| true),
            }
        }
        Location::Local(path) => {
            let path = tenant_path(path, &options.tenant)?;
            LocalStore::new(path, options.clone()).exists().await
        }
    }
}
