//! A workspace and a local store of their own, and what tests do with them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture::{Captured, NewLabel, Recorder, Request, Settings};
use backtrail_core::clock::{Cancel, Context, Faults, NoFaults, Silent};
use backtrail_core::error::{Error, Result};
use backtrail_core::path::RelPath;
use backtrail_core::restore::{self, Place, RestoreRequest, RestoreResult, Unasked};
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::store::Store;
use backtrail_core::workspace::Root;

/// A workspace, a store and a cache in one temporary directory.
pub(crate) struct World {
    _temp: tempfile::TempDir,
    pub(crate) ws: PathBuf,
    pub(crate) store_dir: PathBuf,
    cache: PathBuf,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) faults: Arc<dyn Faults>,
}

/// A path, its mode and its bytes.
pub(crate) type Picture = BTreeMap<String, (u32, Vec<u8>)>;

impl World {
    pub(crate) async fn new() -> Self {
        let temp = tempfile::tempdir().expect("temp");
        let top = temp.path().to_owned();
        Self::at(temp, &top).await
    }

    /// In a directory that exists and outlives the process.
    pub(crate) async fn existing(top: &Path) -> Self {
        let unused = tempfile::tempdir().expect("temp");
        Self::at(unused, top).await
    }

    async fn at(temp: tempfile::TempDir, top: &Path) -> Self {
        let (ws, store_dir) = (top.join("ws"), top.join("store"));
        fs::create_dir_all(&ws).expect("workspace");
        let cache = top.join("cache");
        let options = OpenOptions { unsafe_no_fsync: true, ..OpenOptions::default() };
        let store = open(store_dir.to_str().expect("UTF-8"), options).await.expect("store");
        Self { _temp: temp, ws, store_dir, cache, store, faults: Arc::new(NoFaults) }
    }

    pub(crate) fn context(&self) -> Context {
        Context {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            host: this_host(),
            cancel: Cancel::default(),
            progress: Arc::new(Silent),
            faults: Arc::clone(&self.faults),
        }
    }

    pub(crate) fn root(&self) -> Root {
        Root::open(&self.ws, &this_host(), false).expect("root")
    }

    pub(crate) fn recorder(&self) -> Recorder {
        let root = self.root();
        let settings = Settings {
            wait: Duration::from_secs(5),
            cache_dir: Some(self.cache.clone()),
            check: Some(restore::check(Arc::clone(&self.store), self.context(), None)),
            ..Settings::default()
        };
        let chain = root.chain();
        Recorder::open(Arc::clone(&self.store), self.context(), root, chain, settings)
    }

    pub(crate) fn place(&self) -> Place {
        Place::new(Arc::clone(&self.store), self.context(), self.root())
    }

    /// Captures and returns the snapshot.
    pub(crate) async fn capture(&self) -> Snapshot {
        self.captured().await.snapshot.expect("a snapshot")
    }

    pub(crate) async fn captured(&self) -> Captured {
        self.recorder().capture(&Request::default()).await.expect("captured")
    }

    pub(crate) async fn label(&self, label: &str) -> Snapshot {
        let label = NewLabel::Named(label.parse().expect("a label"));
        let request = Request { label, ..Request::default() };
        let captured = self.recorder().capture(&request).await.expect("captured");
        captured.snapshot.expect("a snapshot")
    }

    pub(crate) async fn restore(&self, target: &Snapshot) -> Result<RestoreResult> {
        self.run(RestoreRequest::new(target.clone())).await
    }

    pub(crate) async fn run(&self, request: RestoreRequest) -> Result<RestoreResult> {
        restore::run(&self.recorder(), &request, &Unasked).await
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.write_mode(path, text.as_bytes(), 0o644);
    }

    pub(crate) fn write_mode(&self, path: &str, bytes: &[u8], mode: u32) {
        let at = self.ws.join(path);
        fs::create_dir_all(at.parent().expect("a parent")).expect("directories");
        fs::write(&at, bytes).expect("written");
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).expect("mode");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.ws.join(path)).expect("readable")
    }

    pub(crate) fn inode(&self, path: &str) -> u64 {
        fs::symlink_metadata(self.ws.join(path)).expect("there").ino()
    }

    /// Everything in the workspace but staging.
    pub(crate) fn picture(&self) -> Picture {
        picture(&self.ws)
    }

    /// Fails if a staging directory is left.
    pub(crate) fn assert_no_staging(&self) {
        let left = fs::read_dir(&self.ws).expect("readable");
        let names = left.map(|e| e.expect("entry").file_name());
        let staging: Vec<_> =
            names.filter(|n| n.to_string_lossy().starts_with(".backtrail-stage")).collect();
        assert!(staging.is_empty(), "{staging:?}");
    }
}

/// Everything below a directory but staging.
pub(crate) fn picture(top: &Path) -> Picture {
    let mut out = BTreeMap::new();
    let mut todo = vec![top.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).expect("readable") {
            let path = entry.expect("entry").path();
            let name = path.strip_prefix(top).expect("below").to_string_lossy().into_owned();
            if name.starts_with(".backtrail-stage-") {
                continue;
            }
            let meta = fs::symlink_metadata(&path).expect("stat");
            let bytes = if meta.is_dir() {
                todo.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("link").as_os_str().as_encoded_bytes().to_vec()
            } else {
                fs::read(&path).expect("content")
            };
            out.insert(name, (meta.mode(), bytes));
        }
    }
    out
}

pub(crate) fn rel(path: &str) -> RelPath {
    RelPath::parse_text(path).expect("a path")
}

/// Does something when a point is reached for the `n`th time (from 1).
pub(crate) struct At {
    point: &'static str,
    left: Mutex<usize>,
    act: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

impl At {
    pub(crate) fn act(
        point: &'static str,
        n: usize,
        act: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn Faults> {
        Arc::new(Self { point, left: Mutex::new(n), act: Box::new(act) })
    }

    pub(crate) fn fail(point: &'static str, n: usize) -> Arc<dyn Faults> {
        Self::act(point, n, || Err(Error::failed("fault", "a test fault")))
    }
}

impl Faults for At {
    fn reach(&self, point: &str) -> Result<()> {
        let mut left = self.left.lock().expect("a lock");
        if point != self.point || *left == 0 {
            return Ok(());
        }
        *left -= 1;
        if *left == 0 { (self.act)() } else { Ok(()) }
    }
}

/// Does something each time a point is reached.
pub(crate) struct Each<F> {
    pub(crate) point: &'static str,
    pub(crate) act: F,
}

impl<F: Fn() + Send + Sync> Faults for Each<F> {
    fn reach(&self, point: &str) -> Result<()> {
        if point == self.point {
            (self.act)();
        }
        Ok(())
    }
}
