//! The engine's parts, each on a tree of its own: walk, rules, hash, put many small
//! objects, plan, apply. Whole-process comparisons with other tools: `benches/compare`.
//!
//! `cargo bench -p backtrail-benches --bench engine [-- FILTER]`

use std::path::Path;
use std::sync::Arc;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture::{Captured, Recorder, Request, Settings};
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::diff::Stored;
use backtrail_core::observe;
use backtrail_core::path::RelPath;
use backtrail_core::plan::{Scope, load_target};
use backtrail_core::restore::{IntoRequest, restore_into};
use backtrail_core::store::{Object, PutObjects, Store};
use backtrail_core::workspace::Root;
use backtrail_core::workspace::cache::StatCache;
use backtrail_core::workspace::rules::{EntryKind, Limits, RuleFamily, RuleFile, RuleSet};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Files of the tree, in directories of ten.
const FILES: usize = 5_000;

struct Bench {
    rt: Runtime,
    dir: TempDir,
    ctx: Context,
    store: Arc<dyn Store>,
    recorder: Recorder,
    captured: Captured,
}

fn context() -> Context {
    Context {
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
        host: this_host(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults: Arc::new(NoFaults),
    }
}

fn make_tree(root: &Path) {
    for i in 0..FILES {
        let dir = root.join(format!("d{}", i / 10));
        std::fs::create_dir_all(&dir).expect("directory");
        let text = format!("file {i}\n").repeat(100 + i % 400);
        std::fs::write(dir.join(format!("f{i}.txt")), text).expect("file");
    }
}

impl Bench {
    fn new() -> Self {
        let rt =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let dir = tempfile::tempdir().expect("directory");
        let workspace = dir.path().join("workspace");
        make_tree(&workspace);
        let url = dir.path().join("store").to_string_lossy().into_owned();
        let store = rt.block_on(open(&url, OpenOptions::default())).expect("store");
        let ctx = context();
        let root = Root::open(&workspace, &ctx.host, false).expect("root");
        let chain = root.chain();
        let cache_dir = Some(dir.path().join("cache"));
        let settings = Settings { cache_dir, ..Settings::default() };
        let recorder = Recorder::open(store.clone(), ctx.clone(), root, chain, settings);
        let captured = rt.block_on(recorder.capture(&Request::default())).expect("first capture");
        std::thread::sleep(std::time::Duration::from_millis(2100)); // older than the safety window
        rt.block_on(recorder.capture(&Request::default())).expect("settling capture");
        Self { rt, dir, ctx, store, recorder, captured }
    }

    fn cache(&self) -> StatCache {
        StatCache::load(Some(&self.dir.path().join("cache")), self.recorder.root())
    }
}

fn walk(c: &mut Criterion) {
    let b = Bench::new();
    let settings = observe::Settings::default();
    let mut group = c.benchmark_group("walk");
    group.throughput(Throughput::Elements(FILES as u64));
    group.bench_function("observe, cache warm", |x| {
        x.iter(|| {
            let look = observe::observe(&b.ctx, b.recorder.root(), &settings, b.cache(), None);
            b.rt.block_on(look).expect("observes").observed.counts
        });
    });
    group.bench_function("unchanged capture", |x| {
        x.iter(|| b.rt.block_on(b.recorder.capture(&Request::default())).expect("captures").seq);
    });
    group.finish();
}

fn rules(c: &mut Criterion) {
    let lines = b"target/\n*.log\n!keep.log\n/docs/**/*.pdf\nbuild/\n*.tmp\n!src/**\n";
    let (file, _) = RuleFile::parse(&RelPath::root(), ".gitignore", lines);
    let set = RuleSet::new(RuleFamily::Git, Limits::default(), false)
        .with_found(vec![Arc::new(file)], Vec::new());
    let names: Vec<String> = (0..10_000).map(|i| format!("file_{i}.rs")).collect();
    let rules = set.matcher().dir(&RelPath::new("src").expect("a path"));
    let mut group = c.benchmark_group("rules");
    group.throughput(Throughput::Elements(names.len() as u64));
    group.bench_function("decide", |x| {
        x.iter(|| {
            let stored = |n: &&String| rules.decide(n.as_bytes(), EntryKind::File).is_stored();
            names.iter().filter(stored).count()
        });
    });
    group.finish();
}

fn hash(c: &mut Criterion) {
    let mut group = c.benchmark_group("hash");
    for size in [4 << 10, 1 << 20] {
        let bytes = vec![7u8; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("object of {size}"), |x| {
            x.iter(|| Object::new(bytes.clone()).expect("an object").digest());
        });
    }
    group.finish();
}

fn put_many_small(c: &mut Criterion) {
    let b = Bench::new();
    let mut group = c.benchmark_group("put");
    group.sample_size(10);
    let mut round = 0u64;
    group.bench_function("256 new objects of 2 KiB, flushed", |x| {
        x.iter_batched(
            || {
                round += 1;
                let object =
                    |i: u64| Object::new(format!("{round}/{i} ").repeat(256)).expect("object");
                (0..256).map(object).collect::<Vec<_>>()
            },
            |batch| {
                b.rt.block_on(b.store.put_objects(batch, PutObjects::Check)).expect("puts");
                b.rt.block_on(b.store.flush()).expect("flushes");
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn plan(c: &mut Criterion) {
    let b = Bench::new();
    for i in (0..FILES).step_by(100) {
        let path = b.dir.path().join(format!("workspace/d{}/f{i}.txt", i / 10));
        std::fs::write(path, "changed\n").expect("writes");
    }
    let settings = observe::Settings::default();
    let look = observe::observe(&b.ctx, b.recorder.root(), &settings, b.cache(), None);
    let observed = b.rt.block_on(look).expect("observes").observed;
    let target = b.captured.snapshot.as_ref().expect("a snapshot").root.clone();
    c.bench_function("plan/load what differs, 1 % changed", |x| {
        x.iter(|| {
            let source = Stored(&*b.store);
            let view = load_target(&source, &target, Some(&observed), &Scope::Full);
            b.rt.block_on(view).expect("loads").root().length
        });
    });
}

fn apply(c: &mut Criterion) {
    let b = Bench::new();
    let tree = b.captured.snapshot.as_ref().expect("a snapshot").root.clone();
    let mut group = c.benchmark_group("apply");
    group.sample_size(10).throughput(Throughput::Elements(FILES as u64));
    let mut round = 0;
    group.bench_function("restore into an empty directory", |x| {
        x.iter(|| {
            round += 1;
            let request = IntoRequest {
                tree: tree.clone(),
                dest: b.dir.path().join(format!("out{round}")),
                paths: Default::default(),
                sync: false,
                special_modes: false,
                no_space_check: false,
                any_root: false,
                threads: 2,
            };
            b.rt.block_on(restore_into(&*b.store, &b.ctx, request)).expect("restores").bytes
        });
    });
    group.finish();
}

criterion_group!(engine, walk, rules, hash, put_many_small, plan, apply);
criterion_main!(engine);
