//! Histories made directly in a store, without a workspace: a few files each, in any
//! chain, with any parent, label and age.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::clock::{Cancel, Context, Faults, NoFaults, Silent, Timestamp};
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::{Chain, Digest, RunId, WorkspaceKey};
use backtrail_core::object::chunk;
use backtrail_core::object::content::load_tree;
use backtrail_core::snapshot::chain::load_refs;
use backtrail_core::snapshot::coverage::Coverage;
use backtrail_core::snapshot::doc::{Counts, Snapshot, Workspace};
use backtrail_core::snapshot::label::Label;
use backtrail_core::snapshot::refs::Target;
use backtrail_core::snapshot::tree::{Body, Chunk, Entry, Ref, Tree};
use backtrail_core::store::{DocKey, Expect, Object, PutObjects, Store, docs};
use tempfile::TempDir;

/// Runs a future to its end on a runtime of its own.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

/// A local store in a directory of its own.
pub struct History {
    /// The directory; the store is `store` in it.
    pub dir: TempDir,
    /// The store.
    pub store: Arc<dyn Store>,
    /// What operations are handed.
    pub ctx: Context,
    /// The path that snapshots name as their root.
    pub root: PathBuf,
}

/// One snapshot to make.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Path and content of each file.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Label at capture, which is set too.
    pub label: Option<String>,
    /// The label is pinned.
    pub pinned: bool,
    /// A safety snapshot.
    pub bank: bool,
    /// Another parent than the head; the head does not move then.
    pub branch_from: Option<Snapshot>,
    /// Leave refs alone, as a crash before them would.
    pub no_refs: bool,
    /// Fields of a later version.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Spec {
    /// A snapshot of these files.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(p, c): &(&str, &str)| ((*p).to_owned(), c.as_bytes().to_vec());
        Self { files: files.iter().map(file).collect(), ..Self::default() }
    }
    /// With a label.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }
}

impl History {
    /// A store that does not exist yet.
    pub async fn new() -> Self {
        Self::below(&std::env::temp_dir()).await
    }

    /// The same, in a directory below `place`.
    pub async fn below(place: &Path) -> Self {
        let dir = tempfile::tempdir_in(place).expect("a directory");
        let root = dir.path().join("work");
        let store = Self::open(&dir.path().join("store")).await;
        let ctx = Context {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            host: this_host(),
            cancel: Cancel::default(),
            progress: Arc::new(Silent),
            faults: Arc::new(NoFaults),
        };
        Self { dir, store, ctx, root }
    }

    async fn open(path: &Path) -> Arc<dyn Store> {
        let options = OpenOptions { unsafe_no_fsync: true, ..OpenOptions::default() };
        open(path.to_str().expect("UTF-8"), options).await.expect("the store opens")
    }

    /// The store's directory.
    pub fn store_dir(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// The key of the workspace.
    pub fn key(&self) -> WorkspaceKey {
        WorkspaceKey::of(self.root.to_str().expect("UTF-8").as_bytes(), &self.ctx.host.machine)
    }

    /// The workspace's own chain.
    pub fn own(&self) -> Chain {
        Chain::Workspace(self.key())
    }

    /// The chain of a run whose record says `status`.
    pub async fn run_chain(&self, run: &str, status: &str) -> Chain {
        let run: RunId = run.parse().expect("a run id");
        let body = serde_json::json!({ "id": run.as_str(), "status": status });
        self.put(&DocKey::Run(run.clone()), &body).await;
        Chain::Run(run)
    }

    /// Writes a document.
    pub async fn put(&self, key: &DocKey, body: &serde_json::Value) {
        let body = body.to_string().into();
        self.store.put(key, body, Expect::Any, None).await.expect("a document");
    }

    /// Stores content as capture does.
    pub async fn content(&self, bytes: &[u8]) -> Ref {
        let digest = Digest::of(bytes);
        let length = bytes.len() as u64;
        if bytes.is_empty() {
            return Ref::whole(0, digest);
        }
        let parts: Vec<Vec<u8>> = match bytes.len() <= 8 << 20 {
            true => vec![bytes.to_vec()],
            false => chunk::chunks(bytes).map(|c| c.expect("a chunk").to_vec()).collect(),
        };
        let objects: Vec<Object> =
            parts.into_iter().map(|p| Object::new(p).expect("small")).collect();
        let of = |o: &Object| Chunk { length: o.bytes().len() as u32, digest: o.digest() };
        let chunks = if objects.len() > 1 { objects.iter().map(of).collect() } else { Vec::new() };
        self.store.put_objects(objects, PutObjects::Check).await.expect("put");
        Ref { length, digest, chunks }
    }

    /// Stores the tree of `files`, whose paths begin with `prefix`.
    async fn tree(&self, files: &BTreeMap<String, Vec<u8>>) -> Ref {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        let mut dirs: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for (path, content) in files {
            match path.split_once('/') {
                Some((dir, rest)) => {
                    dirs.entry(dir.to_owned())
                        .or_default()
                        .insert(rest.to_owned(), content.clone());
                }
                None => {
                    let body = Body::File(self.content(content).await);
                    let name = path.as_bytes().to_vec();
                    entries.insert(path.clone(), Entry { name, mode: 0o644, body });
                }
            }
        }
        for (dir, files) in dirs {
            let body = Body::Dir(Box::pin(self.tree(&files)).await);
            let name = dir.as_bytes().to_vec();
            entries.insert(dir, Entry { name, mode: 0o755, body });
        }
        let tree = Tree { entries: entries.into_values().collect() };
        self.content(&tree.encode().expect("a tree")).await
    }

    /// Makes a snapshot at the head of `chain`.
    pub async fn snapshot(&self, chain: &Chain, spec: Spec) -> Snapshot {
        let root = self.tree(&spec.files).await;
        let rules = self.content(b"{\"format_version\":1}").await;
        self.store.flush().await.expect("flush");
        let snapshot = self.document(chain, &spec, root, rules).await;
        let body = serde_json::to_vec(&snapshot).expect("JSON").into();
        self.store.put(&snapshot.key(), body, Expect::Absent, None).await.expect("a document");
        if !spec.no_refs {
            self.point(chain, &snapshot, &spec).await;
        }
        snapshot
    }

    /// Makes a snapshot at the head of `chain` that is `base` with one file changed.
    /// Stores the trees along its path only.
    pub async fn change(&self, chain: &Chain, base: &Snapshot, path: &str, to: &[u8]) -> Snapshot {
        let file = self.content(to).await;
        let root = self.changed(&base.root, path, file).await;
        self.store.flush().await.expect("flush");
        let mut spec = Spec::default();
        spec.files.insert(path.to_owned(), to.to_vec());
        let snapshot = self.document(chain, &spec, root, base.rules.clone()).await;
        let body = serde_json::to_vec(&snapshot).expect("JSON").into();
        self.store.put(&snapshot.key(), body, Expect::Absent, None).await.expect("a document");
        self.point(chain, &snapshot, &spec).await;
        snapshot
    }

    async fn changed(&self, tree: &Ref, path: &str, file: Ref) -> Ref {
        let mut tree = load_tree(&*self.store, tree).await.expect("a tree");
        let (name, rest) = match path.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        let at = tree.entries.iter().position(|e| e.name == name.as_bytes()).expect("the entry");
        let body = match (&tree.entries[at].body, rest) {
            (Body::Dir(dir), Some(rest)) => {
                Body::Dir(Box::pin(self.changed(dir, rest, file)).await)
            }
            _ => Body::File(file),
        };
        tree.entries[at].body = body;
        self.content(&tree.encode().expect("a tree")).await
    }

    async fn document(&self, chain: &Chain, spec: &Spec, root: Ref, rules: Ref) -> Snapshot {
        let refs = load_refs(&*self.store, chain).await.expect("refs").refs;
        let (parent, seq) = match &spec.branch_from {
            Some(p) => (Some(p.id.clone()), p.seq + 1),
            None => (refs.head.clone(), refs.head.map_or(0, |_| refs.head_seq + 1)),
        };
        let bank = spec.bank.then(
            || serde_json::json!({ "transaction": "tx-0", "target": "t", "plan_digest": "p" }),
        );
        let mut extra = spec.extra.clone();
        extra.insert("nonce".into(), seq.into());
        let mut snapshot = Snapshot {
            format_version: 1,
            id: "0000000000000000".parse().expect("an id"),
            digest: Digest::EMPTY,
            chain: chain.clone(),
            seq,
            parent,
            label: spec.label.as_deref().map(|l| Label::new(l).expect("a label")),
            boundary: None,
            message: None,
            created_at: self.ctx.clock.now().rfc3339(),
            tool: String::from("test"),
            workspace: Workspace {
                root: self.root.to_str().expect("UTF-8").to_owned(),
                machine: self.ctx.host.machine.clone(),
                ..Workspace::default()
            },
            root,
            counts: Counts {
                files: spec.files.len() as u64,
                bytes: spec.files.values().map(|c| c.len() as u64).sum(),
                ..Counts::default()
            },
            delta: None,
            rules,
            coverage: Coverage::new(Vec::new(), BTreeMap::new()),
            parent_labels: Vec::new(),
            missed: Vec::new(),
            operation: None,
            bank: bank.map(|b| serde_json::from_value(b).expect("a bank note")),
            rewound_to: None,
            late: false,
            alive_until: None,
            changed_later: None,
            extra,
        };
        snapshot.seal().expect("sealed");
        snapshot
    }

    async fn point(&self, chain: &Chain, snapshot: &Snapshot, spec: &Spec) {
        let loaded = load_refs(&*self.store, chain).await.expect("refs");
        let mut refs = loaded.refs;
        // refs that never were are rebuilt from the document just written
        let known = loaded.version.is_some();
        if !known {
            refs = backtrail_core::snapshot::Refs::empty(chain.clone());
        }
        if spec.branch_from.is_none() {
            refs.head = Some(snapshot.id.clone());
            refs.head_seq = snapshot.seq;
        }
        if let Some(label) = &snapshot.label {
            let at = snapshot.created_at.clone();
            let (id, pinned) = (snapshot.id.clone(), spec.pinned);
            refs.labels.insert(label.clone(), Target { snapshot: id, at, attempt: None, pinned });
        }
        let expect = loaded.version.map_or(Expect::Absent, Expect::Version);
        let key = DocKey::Refs(chain.clone());
        docs::save(&*self.store, &*self.ctx.ids, &key, &refs, expect, None).await.expect("refs");
    }

    /// `n` snapshots, each with a file of its own beside a shared one.
    pub async fn many(&self, chain: &Chain, n: usize) -> Vec<Snapshot> {
        let mut out = Vec::new();
        for i in 0..n {
            let own = format!("content {i} of {chain}");
            out.push(self.snapshot(chain, Spec::of(&[("own", &own), ("shared", "same")])).await);
        }
        out
    }

    /// Makes every file of the store look `age` old.
    pub fn make_old(&self, age: Duration) {
        make_old(&self.store_dir(), SystemTime::now() - age);
    }

    /// The file that holds an object.
    pub fn object_file(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let dir = self.store_dir().join("workspace-objects").join(&hex[..2]);
        let raw = dir.join(&hex[2..]);
        if raw.exists() { raw } else { dir.join(format!("{}.zst", &hex[2..])) }
    }

    /// The file that holds a document.
    pub fn doc_file(&self, key: &DocKey) -> PathBuf {
        self.store_dir().join(key.to_string())
    }

    /// This history seen by a context that fails at a point.
    pub fn failing(&self, point: &'static str, after: usize) -> Context {
        let faults = Arc::new(FailAt { point, left: AtomicUsize::new(after) });
        Context { faults, ..self.ctx.clone() }
    }

    /// This history at another time.
    pub fn at(&self, offset: Duration) -> Context {
        Context { clock: Arc::new(Ahead(offset)), ..self.ctx.clone() }
    }
}

fn make_old(dir: &Path, time: SystemTime) {
    for entry in std::fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            make_old(&path, time);
        } else if let Ok(file) = std::fs::File::options().write(true).open(&path) {
            file.set_modified(time).expect("a time");
        }
    }
}

/// Fails once a point was reached more often than it may.
struct FailAt {
    point: &'static str,
    left: AtomicUsize,
}

impl Faults for FailAt {
    fn reach(&self, point: &str) -> Result<()> {
        if point != self.point {
            return Ok(());
        }
        let spend = |n: usize| n.checked_sub(1);
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(Kind::Interrupted, "killed", format!("killed at {point}"))),
        }
    }
}

/// A clock that runs ahead.
struct Ahead(Duration);

impl backtrail_core::clock::Clock for Ahead {
    fn now(&self) -> Timestamp {
        let ahead = i64::try_from(self.0.as_nanos()).expect("a short time");
        Timestamp(backtrail_core::clock::Clock::now(&SystemClock).0 + ahead)
    }
}
