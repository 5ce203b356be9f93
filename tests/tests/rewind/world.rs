//! A workspace, a local store and a run that is played by hand: records through the
//! library, boundaries through its recorder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture::{NewLabel, Recorder, Request, Settings};
use backtrail_core::clock::{Cancel, Context, Faults, NoFaults, Silent};
use backtrail_core::error::Result;
use backtrail_core::ids::{Chain, RunId};
use backtrail_core::path::RelPath;
use backtrail_core::restore::{self, Place, RestoreResult, Unasked, UndoRequest};
use backtrail_core::rewind::{
    self, Pivot, RewindRequest, RewindResult, RewindScope, RunsSide, Source,
};
use backtrail_core::run::{
    Actor, Checkpoint, Current, Driver, Moved, NewRun, PausePointer, Run, RunRecord, RunStore,
    Status, Transition,
};
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::label::{Boundary, Label, Phase};
use backtrail_core::snapshot::relabel::{self, Relabelled};
use backtrail_core::store::Store;
use backtrail_core::workspace::Root;
use serde_json::json;

/// plan → build → test → end, and from test back to build.
pub(crate) const FLOW: &str = r#"
backtrail: 1
name: flow
entry: plan
nodes:
  plan: {kind: run, command: "true"}
  build: {kind: run, command: "true", publish: built}
  test: {kind: run, command: "true"}
  end: {kind: done}
edges:
  - {from: plan, to: build}
  - {from: build, to: test}
  - {from: test, to: build, loop: again, max: 9, when: "outputs.test.again"}
  - {from: test, to: end}
"#;

/// A path, its mode and its bytes.
pub(crate) type Picture = BTreeMap<String, (u32, Vec<u8>)>;

/// A workspace, a store and a cache in one temporary directory.
pub(crate) struct World {
    _temp: tempfile::TempDir,
    pub(crate) ws: PathBuf,
    cache: PathBuf,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) faults: Arc<dyn Faults>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let temp = tempfile::tempdir().expect("temp");
        let top = temp.path().to_owned();
        Self::at(temp, &top).await
    }

    /// In a directory that exists and outlives the process.
    pub(crate) async fn existing(top: &Path) -> Self {
        Self::at(tempfile::tempdir().expect("temp"), top).await
    }

    async fn at(temp: tempfile::TempDir, top: &Path) -> Self {
        let (ws, store_dir) = (top.join("ws"), top.join("store"));
        fs::create_dir_all(&ws).expect("workspace");
        let options = OpenOptions { unsafe_no_fsync: true, ..OpenOptions::default() };
        let store = open(store_dir.to_str().expect("UTF-8"), options).await.expect("store");
        Self { _temp: temp, ws, cache: top.join("cache"), store, faults: Arc::new(NoFaults) }
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

    pub(crate) fn runs(&self) -> RunStore {
        RunStore::new(Arc::clone(&self.store), self.context())
    }

    fn settings(&self) -> Settings {
        let plain = Settings {
            wait: Duration::from_secs(2),
            cache_dir: Some(self.cache.clone()),
            ..Settings::default()
        };
        let side = RunsSide::shared(plain.clone());
        let check = restore::check(Arc::clone(&self.store), self.context(), Some(side));
        Settings { check: Some(check), ..plain }
    }

    pub(crate) fn recorder(&self, chain: Chain) -> Recorder {
        Recorder::open(Arc::clone(&self.store), self.context(), self.root(), chain, self.settings())
    }

    pub(crate) fn of_run(&self, run: &RunId) -> Recorder {
        self.recorder(Chain::Run(run.clone()))
    }

    pub(crate) fn place(&self) -> Place {
        let place = Place::new(Arc::clone(&self.store), self.context(), self.root());
        place.with_runs(RunsSide::shared(self.settings()))
    }

    pub(crate) async fn load(&self, run: &RunId) -> Run {
        self.runs().load(run).await.expect("a run")
    }

    pub(crate) async fn rewind(&self, run: &RunId, request: RewindRequest) -> Result<RewindResult> {
        let recorder = self.of_run(run);
        rewind::rewind(&self.runs(), &recorder, &self.load(run).await, &request, &Unasked).await
    }

    /// To the newest entry of a node.
    pub(crate) async fn rewind_to(&self, run: &RunId, node: &str) -> Result<RewindResult> {
        self.rewind(run, to(node)).await
    }

    pub(crate) async fn undo(&self) -> Result<RestoreResult> {
        let recorder = self.recorder(self.root().chain());
        rewind::undo(&recorder, &UndoRequest::default(), &Unasked).await
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let at = self.ws.join(path);
        fs::create_dir_all(at.parent().expect("a parent")).expect("directories");
        fs::write(at, text).expect("written");
    }

    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.ws.join(path), fs::Permissions::from_mode(mode)).expect("mode");
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.ws.join(path)).expect("removed");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.ws.join(path)).unwrap_or_else(|e| format!("<{}>", e.kind()))
    }

    /// Everything in the workspace but staging.
    pub(crate) fn picture(&self) -> Picture {
        let mut out = BTreeMap::new();
        let mut todo = vec![self.ws.clone()];
        while let Some(at) = todo.pop() {
            for entry in fs::read_dir(&at).expect("readable") {
                let path = entry.expect("entry").path();
                let name =
                    path.strip_prefix(&self.ws).expect("below").to_string_lossy().into_owned();
                if name.starts_with(".backtrail-stage-") {
                    continue;
                }
                let meta = fs::symlink_metadata(&path).expect("stat");
                let bytes = if meta.is_dir() {
                    todo.push(path.clone());
                    Vec::new()
                } else {
                    fs::read(&path).expect("content")
                };
                out.insert(name, (meta.permissions().mode(), bytes));
            }
        }
        out
    }
}

/// A rewind to the newest entry of a node.
pub(crate) fn to(node: &str) -> RewindRequest {
    let pivot = Pivot::Node { node: node.to_owned(), iteration: None };
    RewindRequest { pivot, ..RewindRequest::default() }
}

/// The same with a scope.
pub(crate) fn with_scope(node: &str, scope: RewindScope) -> RewindRequest {
    RewindRequest { scope: Some(scope), ..to(node) }
}

/// A workflow as it is now.
pub(crate) fn source(text: &str) -> Source {
    Source { text: text.as_bytes().to_vec(), name: String::from("flow.yaml"), path: None }
}

pub(crate) fn rel(path: &str) -> RelPath {
    RelPath::parse_text(path).expect("a path")
}

pub(crate) fn names(paths: &[RelPath]) -> Vec<String> {
    paths.iter().map(|p| p.text().into_owned()).collect()
}

/// A run that is played by hand.
pub(crate) struct Play<'w> {
    pub(crate) w: &'w World,
    pub(crate) run: Run,
    pub(crate) checkpoint: Checkpoint,
    claim: Option<backtrail_core::run::Claim>,
}

impl<'w> Play<'w> {
    /// Starts a run of [`FLOW`] at `plan`, with its first boundary.
    pub(crate) async fn start(w: &'w World) -> Self {
        Self::of(w, Some(FLOW), "plan").await
    }

    pub(crate) async fn of(w: &'w World, source: Option<&str>, entry: &str) -> Self {
        let mut play = Self::uncaptured(w, source, entry).await;
        play.enter(entry, 0).await;
        play.capture(Phase::Pre, entry, 0).await;
        play
    }

    pub(crate) async fn uncaptured(w: &'w World, source: Option<&str>, entry: &str) -> Self {
        let new = NewRun {
            id: None,
            name: None,
            workflow_name: String::from("flow"),
            workflow_source: source.map(str::to_owned),
            file_path: None,
            work_dir: Some(w.root().text()),
            inputs: None,
            checkpoint: Checkpoint::at(entry),
            driver: Driver::Engine,
            queued: false,
            budget: None,
            launch_env: None,
            parent_run_id: None,
            session_key: None,
            extra: serde_json::Map::new(),
        };
        let created = w.runs().create(new).await.expect("created");
        let checkpoint = Checkpoint::at(entry);
        Self { w, run: created.run, checkpoint, claim: created.claim }
    }

    pub(crate) fn id(&self) -> RunId {
        self.run.id().clone()
    }

    fn boundary(phase: Phase, node: &str, iteration: u64) -> Boundary {
        let (node, iteration) = (Some(node.to_owned()), Some(iteration));
        Boundary { phase, node, iteration, attempt: Some(1), gate: None }
    }

    /// Captures a boundary.
    pub(crate) async fn capture(&self, phase: Phase, node: &str, iteration: u64) -> Snapshot {
        let boundary = Self::boundary(phase, node, iteration);
        let label = NewLabel::Named(boundary.label().expect("a label"));
        self.request(Request { label, boundary: Some(boundary), ..Request::default() }).await
    }

    pub(crate) async fn request(&self, request: Request) -> Snapshot {
        let captured = self.w.of_run(self.run.id()).capture(&request).await.expect("captured");
        captured.snapshot.expect("a snapshot")
    }

    /// Points a boundary at the head, without a walk.
    pub(crate) async fn alias(&self, phase: Phase, node: &str, iteration: u64) {
        let label = Self::boundary(phase, node, iteration).label().expect("a label");
        let head = self.w.of_run(self.run.id()).snapshots().await.expect("snapshots").remove(0);
        self.point(&label, &head).await;
    }

    pub(crate) async fn point(&self, label: &Label, to: &Snapshot) {
        let at = self.w.context().clock.now().rfc3339();
        let how = Relabelled { pinned: false, moves: true, at };
        let (store, ctx) = (&*self.w.store, self.w.context());
        relabel::point(store, &*ctx.ids, label, to, &how).await.expect("pointed");
    }

    /// The checkpoint stands in a node.
    pub(crate) async fn enter(&mut self, node: &str, iteration: u64) {
        self.checkpoint.node_id = node.to_owned();
        self.checkpoint.current = Some(Current { iteration, attempt: 1, ..Current::default() });
        self.checkpoint.node_visits.insert(node.to_owned(), iteration + 1);
        self.save().await;
    }

    /// A node completed, and the next one is entered.
    pub(crate) async fn done(&mut self, node: &str, iteration: u64, next: (&str, u64)) {
        self.capture(Phase::Post, node, iteration).await;
        self.checkpoint.outputs.insert(node.to_owned(), json!({ "iteration": iteration }));
        self.enter(next.0, next.1).await;
        self.alias(Phase::Pre, next.0, next.1).await;
    }

    pub(crate) async fn save(&mut self) {
        let checkpoint = self.checkpoint.clone();
        self.w.runs().save_checkpoint(&mut self.run, &checkpoint).await.expect("saved");
    }

    /// Changes free fields of the record.
    pub(crate) async fn patch(&mut self, change: impl Fn(&mut RunRecord)) {
        let runs = self.w.runs();
        let patched = runs.patch(&mut self.run, |record| {
            change(record);
            Ok(())
        });
        patched.await.expect("patched");
    }

    /// Ends as `status`; the node's last boundary was captured.
    pub(crate) async fn end(&mut self, status: Status) {
        let claim = self.claim.take().map(Arc::new).expect("a claim");
        let runs = self.w.runs().with_claim(Arc::clone(&claim));
        let mut change = Transition::new(status.clone(), Actor::Engine, [Status::Running]);
        if status.may_have_error() {
            change = change.failure("EXECUTION_FAILED", "exit 1");
        }
        let moved = runs.transition(&mut self.run, &change).await.expect("moved");
        assert_eq!(moved, Moved::To(status));
        drop((runs, claim));
    }

    /// Waits for a person.
    pub(crate) async fn pause(&mut self, to: Status, checkpoint: Checkpoint, asks: PausePointer) {
        let claim = self.claim.take().map(Arc::new).expect("a claim");
        let runs = self.w.runs().with_claim(Arc::clone(&claim));
        let change = Transition::new(to.clone(), Actor::Engine, [Status::Running]);
        let change = change.checkpoint(checkpoint).asking(asks);
        let moved = runs.transition(&mut self.run, &change).await.expect("moved");
        assert_eq!(moved, Moved::To(to));
        drop((runs, claim));
    }

    /// The node fails: `fail:`, then failed_resumable.
    pub(crate) async fn fail(&mut self, node: &str, iteration: u64) {
        self.capture(Phase::Fail, node, iteration).await;
        self.end(Status::FailedResumable).await;
    }

    /// A person resumes the run after a rewind or a failure; the caller captures `resume:`.
    pub(crate) async fn resume(&mut self) {
        self.run = self.w.load(&self.id()).await;
        let runs = self.w.runs();
        let claim =
            runs.claim(&self.id(), Duration::from_secs(2), "resume").await.expect("claimed");
        let claim = Arc::new(claim);
        let runs = runs.with_claim(Arc::clone(&claim));
        let from = self.run.status().clone();
        let change = Transition::new(Status::Running, Actor::Person, [from]);
        let moved = runs.transition(&mut self.run, &change).await.expect("moved");
        assert_eq!(moved, Moved::To(Status::Running));
        self.checkpoint = self.run.record.checkpoint().cloned().expect("a checkpoint");
        drop(runs);
        self.claim = Arc::into_inner(claim);
    }
}

/// plan wrote `plan.txt`, build wrote `out/a` and changed `src`, test failed having
/// written `log`; then somebody wrote `notes` by hand.
pub(crate) async fn failed(w: &World) -> Play<'_> {
    w.write("src", "then");
    w.write("kept", "then");
    let mut play = Play::start(w).await;
    w.write("plan.txt", "planned");
    play.done("plan", 0, ("build", 0)).await;
    w.write("out/a", "built");
    w.write("src", "changed by build");
    play.done("build", 0, ("test", 0)).await;
    w.write("log", "failed");
    play.fail("test", 0).await;
    w.write("notes", "mine");
    play
}
