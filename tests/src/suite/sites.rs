//! The matrix: every store and every layer, each at a fresh place. While working on one,
//! `BACKTRAIL_SUITE_SITES=mongodb` leaves out all whose name does not hold that word.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backtrail_backends::host::RandomIds;
use backtrail_backends::local::LocalStore;
use backtrail_backends::open::{OpenOptions, open};
use backtrail_backends::s3::S3Options;
use backtrail_core::ids::Digest;
use backtrail_core::store::Store;
use backtrail_core::store::layers::fault::FaultStore;
use backtrail_core::store::layers::observe::Observe;
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::layers::verify::Verify;
use backtrail_core::store::memory::MemoryStore;

use super::{mongo, s3};

/// How a site makes a handle.
enum Kind {
    Memory(fn(Arc<dyn Store>) -> Arc<dyn Store>),
    Local,
    Opened,
    /// A prefix of its own in the tests' bucket.
    S3(S3Options),
    /// What a URL names, made by `init`.
    Url(mongo::At),
}

/// A place with a store of its own, empty at first.
pub struct Site {
    /// For messages.
    pub name: &'static str,
    kind: Kind,
    memory: MemoryStore,
    temp: tempfile::TempDir,
}

/// A retry layer that does not make a test wait.
pub fn quick_retry(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    let policy = RetryPolicy {
        first_pause: Duration::from_millis(1),
        last_pause: Duration::from_millis(5),
        ..RetryPolicy::new(Arc::new(RandomIds))
    };
    Arc::new(Retry::new(inner, policy))
}

/// Every site of the matrix, fresh.
pub fn matrix() -> Vec<Site> {
    let mut sites = on_this_host();
    sites.extend(s3::sites());
    sites.extend(mongo::sites());
    sites.extend(s3::fresh().map(Site::file_and));
    if let Ok(word) = std::env::var("BACKTRAIL_SUITE_SITES") {
        sites.retain(|site| site.name.contains(&word));
    }
    sites
}

fn on_this_host() -> Vec<Site> {
    vec![
        Site::new("memory", Kind::Memory(|m| m)),
        Site::new("file", Kind::Local),
        Site::new("open(file)", Kind::Opened),
        Site::new("retry over memory", Kind::Memory(quick_retry)),
        Site::new("verify over memory", Kind::Memory(|m| Arc::new(Verify::new(m)))),
        Site::new("observe over memory", Kind::Memory(|m| Arc::new(Observe::new(m)))),
        Site::new("fault over memory", Kind::Memory(|m| Arc::new(FaultStore::new(m)))),
    ]
}

/// The sites whose store is a directory.
pub fn local() -> Vec<Site> {
    on_this_host().into_iter().filter(|s| s.dir().is_some()).collect()
}

/// Runs a case on each site of the matrix, on a runtime of its own.
pub fn each(case: impl AsyncFn(&Site)) {
    on(matrix(), case);
}

/// Runs a case on each of `sites`.
pub fn on(sites: Vec<Site>, case: impl AsyncFn(&Site)) {
    for site in sites {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        // Shown when the case fails.
        eprintln!("on {}", site.name);
        runtime.block_on(async {
            let limit = Duration::from_secs(120);
            tokio::time::timeout(limit, case(&site)).await.expect("the case ends");
        });
    }
}

impl Site {
    /// A store in the tests' bucket.
    pub fn s3(name: &'static str, place: S3Options) -> Self {
        Self::new(name, Kind::S3(place))
    }

    /// A store at a URL, made by `init`.
    pub fn url(name: &'static str, at: mongo::At) -> Self {
        Self::new(name, Kind::Url(at))
    }

    /// A local store with its objects in a bucket.
    fn file_and(objects: S3Options) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = temp.path().join("store");
        let at = mongo::At::new(dir.to_str().expect("a text path")).with(objects);
        let kind = Kind::Url(at);
        Self { name: "file with objects in s3", kind, memory: MemoryStore::new(), temp }
    }

    fn new(name: &'static str, kind: Kind) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        Self { name, kind, memory: MemoryStore::new(), temp }
    }

    /// A new handle, as another process would have it.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.open_with(OpenOptions::default()).await
    }

    /// A new handle with options; a store in memory has none.
    pub async fn open_with(&self, options: OpenOptions) -> Arc<dyn Store> {
        let path = self.path();
        match &self.kind {
            Kind::Memory(layer) => layer(Arc::new(self.memory.reopen())),
            Kind::Local => Arc::new(LocalStore::new(path, options)),
            Kind::S3(place) => {
                let state_dir = self.temp.path().join("state");
                s3::open(place, OpenOptions { state_dir, ..options }).await
            }
            Kind::Url(at) => {
                let state_dir = self.temp.path().join("state");
                at.open(OpenOptions { state_dir, ..options }).await
            }
            Kind::Opened => {
                open(path.to_str().expect("a text path"), options).await.expect("opens")
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("store")
    }

    /// The store's directory, when it is one.
    pub fn dir(&self) -> Option<PathBuf> {
        matches!(self.kind, Kind::Local | Kind::Opened).then(|| self.path())
    }

    /// The bucket of a store in one, for hands that reach behind the store's back.
    pub fn bucket(&self) -> Option<s3::Bucket> {
        match &self.kind {
            Kind::S3(place) => Some(s3::Bucket::new(place)),
            Kind::Url(at) => at.objects.as_ref().map(s3::Bucket::new),
            _ => None,
        }
    }

    /// The database of a store whose documents lie in one.
    pub fn database(&self) -> Option<&mongo::Place> {
        match &self.kind {
            Kind::Url(at) => at.mongo.as_ref(),
            _ => None,
        }
    }

    /// How many writers may meet on one document: a contended key is slow on S3, and no
    /// design here lets many meet on one.
    pub fn writers(&self, most: usize) -> usize {
        if matches!(self.kind, Kind::S3(_)) { most.min(4) } else { most }
    }

    /// The file of an object that is stored raw.
    pub fn object_file(&self, digest: &Digest) -> Option<PathBuf> {
        let hex = digest.hex();
        self.dir().map(|d| d.join("workspace-objects").join(&hex[..2]).join(&hex[2..]))
    }

    /// The file of an object, raw or compressed, whichever is there.
    pub fn stored_file(&self, digest: &Digest) -> Option<PathBuf> {
        let raw = self.object_file(digest)?;
        let framed = raw.with_extension("zst");
        [raw, framed].into_iter().find(|p| p.exists())
    }

    /// Replaces the stored bytes of an object, as a bad disk would.
    pub fn spoil(&self, digest: &Digest, bytes: &[u8]) {
        if let Some(bucket) = self.bucket() {
            return bucket.spoil(digest, bytes);
        }
        if let Some(place) = self.database() {
            return place.spoil(digest, bytes);
        }
        match self.stored_file(digest) {
            Some(file) => write(&file, bytes),
            None => self.memory.spoil(digest, bytes.to_vec()),
        }
    }

    /// Replaces a document's body by hand.
    pub fn spoil_document(&self, key: &backtrail_core::store::DocKey, bytes: &[u8]) {
        if let Some(place) = self.database() {
            return place.spoil_document(key, bytes);
        }
        if let Kind::S3(place) = &self.kind {
            return s3::Bucket::new(place).put(&key.to_string(), bytes);
        }
        let local = matches!(self.kind, Kind::Url(_)).then(|| self.path());
        match self.dir().or(local) {
            Some(dir) => write(&dir.join(key.to_string()), bytes),
            None => self.memory.spoil_document(key, bytes.to_vec()),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("makes directories");
    std::fs::write(path, bytes).expect("writes");
}
