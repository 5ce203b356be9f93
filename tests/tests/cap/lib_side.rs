//! A sandbox seen by the library: its store opened, recorders with test hooks, and
//! recorded trees read back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture::{Captured, Recorder, Request, Settings};
use backtrail_core::clock::{
    Cancel, Clock, Context, Faults, NoFaults, Progress, Silent, Timestamp,
};
use backtrail_core::error::Result;
use backtrail_core::ids::{Chain, RunId};
use backtrail_core::object::content;
use backtrail_core::observe;
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::tree::{Body, Ref};
use backtrail_core::store::{DocKey, Expect, Store};
use backtrail_core::verify::{Report, Scope, verify};
use backtrail_core::workspace::Root;
use backtrail_tests::cli::{Entry, Sandbox, Tree};
use serde_json::json;

/// The store and workspace of a sandbox.
pub(crate) struct Lib {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ctx: Context,
    pub(crate) root: Root,
    pub(crate) settings: Settings,
}

impl Lib {
    pub(crate) async fn of(s: &Sandbox) -> Self {
        Self::with(s, OpenOptions::default()).await
    }

    pub(crate) async fn with(s: &Sandbox, options: OpenOptions) -> Self {
        let options = OpenOptions { unsafe_no_fsync: true, ..options };
        let store = open(s.store().to_str().expect("UTF-8"), options).await.expect("a store");
        let ctx = Context {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            host: this_host(),
            cancel: Cancel::default(),
            progress: Arc::new(Silent),
            faults: Arc::new(NoFaults),
        };
        let root = Root::open(s.workspace(), &ctx.host, false).expect("a root");
        let observe = observe::Settings { safety_window_ns: 0, ..observe::Settings::default() };
        let cache: PathBuf = s.home().join(".cache/backtrail");
        let settings = Settings { observe, cache_dir: Some(cache), ..Settings::default() };
        Self { store, ctx, root, settings }
    }

    /// A recorder of the workspace's own chain.
    pub(crate) fn own(&self) -> Recorder {
        self.of_chain(self.root.chain())
    }

    /// A recorder of a chain.
    pub(crate) fn of_chain(&self, chain: Chain) -> Recorder {
        let (store, root) = (self.store.clone(), self.root.clone());
        Recorder::open(store, self.ctx.clone(), root, chain, self.settings.clone())
    }

    /// The chain of a run, whose record is made.
    pub(crate) async fn run_chain(&self, run: &str) -> Chain {
        let run: RunId = run.parse().expect("a run");
        let body = json!({ "id": run.as_str(), "status": "running" }).to_string().into();
        let key = DocKey::Run(run.clone());
        self.store.put(&key, body, Expect::Any, None).await.expect("a record");
        Chain::Run(run)
    }

    /// Captures once in the workspace's own chain.
    pub(crate) async fn capture(&self) -> Captured {
        self.own().capture(&Request::default()).await.expect("a capture")
    }

    /// Calls `hook` when the engine enters the phase `walk` or `read`.
    pub(crate) fn on_phase(&mut self, name: &'static str, hook: impl FnMut() + Send + 'static) {
        self.ctx.progress = Arc::new(Hook { name, hook: Mutex::new(Box::new(hook)) });
    }

    /// Calls `hook` when the engine reaches a point.
    pub(crate) fn on_point(
        &mut self,
        name: &'static str,
        hook: impl FnMut() -> Result<()> + Send + 'static,
    ) {
        self.ctx.faults = Arc::new(Point { name, hook: Mutex::new(Box::new(hook)) });
    }

    /// Everything in the store, re-hashed.
    pub(crate) async fn verify_deep(&self) -> Report {
        verify(&*self.store, &self.ctx, &Scope::All, true).await.expect("verify")
    }

    /// Fails unless every snapshot is whole, and reads them all back.
    pub(crate) async fn assert_clean(&self) {
        let report = self.verify_deep().await;
        assert!(report.is_clean(), "{report:#?}");
        for snapshot in self.own().snapshots().await.expect("snapshots") {
            self.tree_of(&snapshot).await;
        }
    }

    /// The tree of what `text` means in the workspace's own chain.
    pub(crate) async fn recorded(&self, text: &str) -> Tree {
        self.tree_of(&self.own().resolve(text).await.expect("a snapshot")).await
    }

    /// The recorded tree with all its bytes.
    pub(crate) async fn tree_of(&self, snapshot: &Snapshot) -> Tree {
        let mut out = Tree::new();
        let mut todo: Vec<(Vec<u8>, Ref)> = vec![(Vec::new(), snapshot.root.clone())];
        while let Some((above, reference)) = todo.pop() {
            let tree = content::load_tree(&*self.store, &reference).await.expect("a tree");
            for entry in tree.entries {
                let slash = if above.is_empty() { &b""[..] } else { b"/" };
                let path = [&above, slash, &entry.name].concat();
                let found = match entry.body {
                    Body::File(file) => {
                        let bytes = content::read_all(&*self.store, &file).await.expect("content");
                        Entry::File(entry.mode, bytes.to_vec())
                    }
                    Body::Dir(tree) => {
                        todo.push((path.clone(), tree));
                        Entry::Dir(entry.mode)
                    }
                    Body::Symlink(target) => Entry::Link(target),
                };
                out.insert(path, found);
            }
        }
        out
    }
}

struct Hook {
    name: &'static str,
    hook: Mutex<Box<dyn FnMut() + Send>>,
}

impl Progress for Hook {
    fn phase(&self, name: &str, _: Option<u64>, _: Option<u64>) {
        if name == self.name {
            (self.hook.lock().expect("hook"))();
        }
    }
    fn advance(&self, _: u64, _: u64) {}
}

type OnPoint = Box<dyn FnMut() -> Result<()> + Send>;

struct Point {
    name: &'static str,
    hook: Mutex<OnPoint>,
}

impl Faults for Point {
    fn reach(&self, point: &str) -> Result<()> {
        if point == self.name { (self.hook.lock().expect("hook"))() } else { Ok(()) }
    }
}

/// A clock that a test moves, in nanoseconds from the real one.
#[derive(Default)]
pub(crate) struct Moved(pub(crate) AtomicI64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

/// A clock that stands still.
pub(crate) struct Still(pub(crate) i64);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(self.0)
    }
}
