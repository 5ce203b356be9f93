//! RUN-DL01, DL02: deleting and pruning runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backtrail_core::clock::Clock as _;
use backtrail_core::error::Kind;
use backtrail_core::ids::{NodeId, RunId};
use backtrail_core::run::{
    Checkpoint, DeleteOptions, Deleted, NewEvent, Run, RunPrune, RunStore, Status,
};
use backtrail_core::store::{DocKey, Listed, Prefix};
use bytes::Bytes;
use futures::TryStreamExt;
use serde_json::{Map, json};

use super::child::{self, Job};
use super::{SECOND, Ticks, context_at, engine, forge, runs, started};
use crate::suite::{Site, put, refused, run_id};

fn options() -> DeleteOptions {
    DeleteOptions::default()
}

/// A run with something of everything, in `status`, its lock free.
async fn full(runs: &RunStore, id: &str, status: Status) -> Run {
    let (ours, mut run) = started(runs, id).await;
    let node: NodeId = "a".parse().expect("an id");
    let event = NewEvent::foreign("t", Map::new()).expect("an event");
    ours.append_events(run.id(), &[event]).await.expect("appends");
    ours.append_log(run.id(), None, Bytes::from_static(b"hello\n")).await.expect("logs");
    ours.write_artifact(run.id(), &node, 0, json!(1), Vec::new()).await.expect("writes");
    let question = backtrail_core::run::interaction_id(run.id(), &node, 0, 0).expect("an id");
    ours.ask(run.id(), &question, &node, json!({}), None).await.expect("asks");
    engine(&ours, &mut run, status).await;
    run
}

async fn names(runs: &RunStore, run: &RunId) -> Vec<String> {
    let rows: Vec<Listed> =
        runs.store().list(&Prefix::Run(run.clone())).try_collect().await.expect("lists");
    let name = |row: Listed| match row {
        Listed::Doc { key, .. } => key.to_string(),
        Listed::Foreign { name } => name,
    };
    rows.into_iter().map(name).collect()
}

/// RUN-DL01: a deleted run is gone, its neighbour is not, and late writers find out.
pub async fn dl01_deleted_is_gone(site: &Site) {
    let runs = runs(site).await;
    let mut run = full(&runs, "run-1", Status::Finished).await;
    let neighbour = full(&runs, "run-10", Status::Finished).await;
    let kept = names(&runs, neighbour.id()).await;
    if let Some(dir) = site.dir() {
        std::fs::create_dir_all(dir.join("runs/run-1/notes/deep")).expect("makes");
        std::fs::write(dir.join("runs/run-1/notes/deep/own.txt"), "x").expect("writes");
        std::fs::write(dir.join("runs/run-1/.pid"), "1\n").expect("writes");
    }
    assert_eq!(runs.delete(run.id(), &options()).await.expect("deletes"), Deleted::Now);
    for _ in 0..2 {
        assert_eq!(runs.delete(run.id(), &options()).await.expect("repeats"), Deleted::Before);
    }
    assert!(names(&runs, run.id()).await.is_empty());
    if let Some(dir) = site.dir() {
        assert!(!dir.join("runs/run-1").exists());
    }
    let listed: Vec<_> = runs.list().try_collect().await.expect("lists");
    assert_eq!(listed.len(), 1);
    assert_eq!(names(&runs, neighbour.id()).await, kept);
    late_writers(&runs, &mut run).await;
    assert!(names(&runs, run.id()).await.is_empty(), "nothing was created");
    refused(runs.delete(&run_id("never"), &options()).await, Kind::NotFound);
    let rows: Vec<_> =
        runs.store().list(&Prefix::RunTombstones).try_collect().await.expect("lists");
    assert_eq!(rows.len(), 1, "none for what never had a record");
    tombstones_are_reaped(site, run.id()).await;
}

async fn late_writers(runs: &RunStore, run: &mut Run) {
    let id = run.id().clone();
    let node: NodeId = "a".parse().expect("an id");
    let question = backtrail_core::run::interaction_id(&id, &node, 1, 0).expect("an id");
    let event = NewEvent::foreign("late", Map::new()).expect("an event");
    let late = [
        runs.append_events(&id, &[event]).await.map(|_| ()),
        runs.append_log(&id, None, Bytes::from_static(b"late")).await.map(|_| ()),
        runs.write_artifact(&id, &node, 1, json!(1), Vec::new()).await.map(|_| ()),
        runs.ask(&id, &question, &node, json!({}), None).await.map(|_| ()),
        runs.save_checkpoint(run, &Checkpoint::at("b")).await,
        runs.read_log(&id, 0, 0).await.map(|_| ()),
        runs.load(&id).await.map(|_| ()),
        runs.claim(&id, Duration::ZERO, "suite").await.map(|_| ()),
    ];
    for (n, done) in late.into_iter().enumerate() {
        let e = done.expect_err("deleted");
        assert_eq!(e.code(), "deleted", "writer {n}: {e:?}");
    }
}

/// Only past its time, and then the id is plainly unknown.
async fn tombstones_are_reaped(site: &Site, run: &RunId) {
    let policy = RunPrune { keep_last: Some(100), ..RunPrune::default() };
    let clock = Arc::new(Ticks::default());
    let later = RunStore::new(site.open().await, context_at(clock.clone()));
    let month = 30 * 24 * 3600 * SECOND;
    clock.0.fetch_add(month - 3600 * SECOND, Ordering::SeqCst);
    let plan = later.plan_prune(&policy).await.expect("plans");
    assert!(plan.tombstones.is_empty(), "an hour is left");
    clock.0.fetch_add(2 * 3600 * SECOND, Ordering::SeqCst);
    let plan = later.plan_prune(&policy).await.expect("plans");
    assert_eq!(plan.tombstones, std::slice::from_ref(run));
    assert_eq!(later.apply_prune(&plan).await.expect("applies").tombstones_reaped, 1);
    assert_eq!(refused(later.load(run).await, Kind::NotFound).code(), "not-found");
}

/// RUN-DL02: what may not be deleted says what to do first, and stays.
pub async fn dl02_what_is_not_over_stays(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    for status in [Status::Running, Status::PausedOperator] {
        if status != Status::Running {
            engine(&ours, &mut run, status).await;
        }
        let e = refused(runs.delete(run.id(), &options()).await, Kind::Refused);
        assert!(e.hint().is_some_and(|h| h.contains("cancel")), "{e:?}");
    }
    super::person(&ours, &mut run, Status::Cancelled).await;
    // Over, but somebody still holds it.
    let e = refused(runs.delete(run.id(), &options()).await, Kind::Refused);
    assert!(e.message().contains("run/r is held"), "{e:?}");
    drop(ours);
    let child = DeleteOptions { live_child: Some("4711 make".into()), ..options() };
    let e = refused(runs.delete(run.id(), &child).await, Kind::Refused);
    assert!(e.message().contains("4711 make"), "{e:?}");
    let resumable = full(&runs, "again", Status::FailedResumable).await;
    let e = refused(runs.delete(resumable.id(), &options()).await, Kind::Refused);
    assert!(e.hint().is_some_and(|h| h.contains("--include-resumable")), "{e:?}");
    let odd = forge(&**runs.store(), "odd", json!({"status": "hibernating"})).await;
    refused(runs.delete(&odd, &options()).await, Kind::Refused);
    let newer = json!({"status": "finished", "format_version": 2});
    let newer = forge(&**runs.store(), "newer", newer).await;
    refused(runs.delete(&newer, &options()).await, Kind::Newer);
    let broken = full(&runs, "broken", Status::Failed).await;
    site.spoil_document(&DocKey::Run(broken.id().clone()), b"{");
    refused(runs.delete(broken.id(), &options()).await, Kind::Corrupt);
    open_journal(site, &runs, run.id()).await;
    for id in [run.id(), resumable.id(), &odd, &newer, broken.id()] {
        assert!(!names(&runs, id).await.is_empty(), "{id} is still there");
    }
    let asked = DeleteOptions { resumable: true, ..options() };
    assert_eq!(runs.delete(resumable.id(), &asked).await.expect("deletes"), Deleted::Now);
    assert_eq!(runs.delete(run.id(), &options()).await.expect("deletes"), Deleted::Now);
}

/// While a restore of the run's history is open, its snapshots are needed.
async fn open_journal(site: &Site, runs: &RunStore, run: &RunId) {
    let key = "workspaces/00112233445566aa/journals/tx-0123456789abcdef.json";
    let key = DocKey::parse(key).expect("a key");
    let body = json!({"unreadable": true}).to_string();
    let store = site.open().await;
    put(&*store, &key, &body, backtrail_core::store::Expect::Absent).await.expect("puts");
    let e = refused(runs.delete(run, &options()).await, Kind::Refused);
    assert_eq!(e.code(), "recovery-needed");
    store.delete(&key, None).await.expect("removes");
}

/// RUN-DL02: killed at each step, the next delete or prune finishes.
pub async fn dl02_kills_are_finished(site: &Site) {
    let dir = site.dir().expect("a directory");
    let points = [
        ("run.delete.tombstone", 1),
        ("run.delete.record", 1),
        ("run.delete.document", 1),
        ("run.delete.document", 2),
    ];
    for (n, (point, nth)) in points.into_iter().cycle().take(8).enumerate() {
        let runs = runs(site).await;
        let run = full(&runs, "r", Status::Finished).await;
        assert!(!child::run(&Job::DeleteAndDie(point, nth), &dir), "{point}");
        assert!(!names(&runs, run.id()).await.is_empty(), "{point} left something");
        refused(runs.create(super::new_run("r")).await, Kind::Conflict);
        if n < points.len() {
            let done = runs.delete(run.id(), &options()).await.expect("finishes");
            assert_eq!(done, Deleted::Before);
        } else {
            let policy = RunPrune { keep_last: Some(100), ..RunPrune::default() };
            let plan = runs.plan_prune(&policy).await.expect("plans");
            assert_eq!(plan.unfinished, [run.id().clone()], "{point}");
            runs.apply_prune(&plan).await.expect("applies");
        }
        assert!(names(&runs, run.id()).await.is_empty(), "{point}");
        assert!(!dir.join("runs/r").exists(), "{point}");
        let tombstone = DocKey::RunTombstone(run.id().clone());
        runs.store().delete(&tombstone, None).await.expect("removes");
    }
}

/// The plan names what goes, and what changed since stays.
pub async fn prune_plans_and_applies(site: &Site) {
    let clock = Arc::new(Ticks::default());
    let runs = RunStore::new(site.open().await, context_at(clock.clone()));
    for n in 0..4 {
        full(&runs, &format!("old-{n}"), Status::Finished).await;
        clock.0.fetch_add(3600 * SECOND, Ordering::SeqCst);
    }
    let (_held, _running) = started(&runs, "running").await;
    full(&runs, "resumable", Status::FailedResumable).await;
    clock.0.fetch_add(48 * 3600 * SECOND, Ordering::SeqCst);
    full(&runs, "young", Status::Cancelled).await;
    assert!(clock.now().0 > 0);
    let day = Some(Duration::from_hours(24));
    let policy = RunPrune { older_than: day, keep_last: Some(2), ..RunPrune::default() };
    let plan = runs.plan_prune(&policy).await.expect("plans");
    let ids: Vec<&str> = plan.runs.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["old-2", "old-1", "old-0"], "two are kept: young, old-3");
    assert_eq!(plan.scanned, 7);
    // One is resumed between plan and execution.
    let mut revived = runs.load(&run_id("old-1")).await.expect("loads");
    runs.request_pause(&mut revived, None).await.expect("writes");
    let report = runs.apply_prune(&plan).await.expect("applies");
    assert_eq!(report.pruned, [run_id("old-2"), run_id("old-0")]);
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(report.skipped[0].0, run_id("old-1"));
    for bad in [
        RunPrune::default(),
        RunPrune { keep_last: Some(0), ..RunPrune::default() },
        RunPrune { statuses: vec![Status::Running], older_than: day, ..RunPrune::default() },
    ] {
        refused(runs.plan_prune(&bad).await.map(|p| p.scanned), Kind::Invalid);
    }
    if site.dir().is_some() {
        let absent = tempfile::tempdir().expect("a directory");
        let place = absent.path().join("store");
        let store = backtrail_backends::local::LocalStore::new(&place, Default::default());
        let none = RunStore::new(Arc::new(store), super::context());
        let plan = none.plan_prune(&policy).await.expect("plans");
        assert_eq!((plan.scanned, plan.runs.len()), (0, 0));
        none.apply_prune(&plan).await.expect("does nothing");
        assert!(!place.exists(), "nothing is created");
    }
}

/// RUN-DL02, K46: what only a deleted run used is freed by the next prune, and what
/// others use is not.
pub async fn dl02_what_only_it_used_is_freed() {
    use crate::history::{History, Spec};
    use backtrail_core::ids::Chain;
    use backtrail_core::prune::{Policy, Request, prune};
    let h = History::new().await;
    let runs = RunStore::new(h.store.clone(), super::context());
    let mut chains = Vec::new();
    for id in ["goes", "stays"] {
        let (ours, mut run) = started(&runs, id).await;
        let chain = Chain::Run(run.id().clone());
        let spec = Spec::of(&[("own", id), ("shared", "by both")]);
        h.snapshot(&chain, spec.label("post:a:0")).await;
        engine(&ours, &mut run, Status::Finished).await;
        chains.push(chain);
    }
    let request = Request {
        policy: Policy { keep: Some(100), ..Policy::default() },
        workspace: Some(h.key()),
        grace: Duration::ZERO,
        wait: Duration::ZERO,
        ..Request::default()
    };
    let count = async || {
        let rows: Vec<_> = h.store.list_objects().try_collect().await.expect("lists");
        rows.len()
    };
    prune(&*h.store, &h.ctx, &request).await.expect("prunes");
    let both = count().await;
    assert_eq!(runs.delete(&run_id("goes"), &options()).await.expect("deletes"), Deleted::Now);
    assert_eq!(count().await, both, "objects are left to prune");
    prune(&*h.store, &h.ctx, &request).await.expect("prunes");
    assert_eq!(count().await, both - 2, "its own file and its own tree");
    let history = backtrail_core::snapshot::chain::History::load(&*h.store, &chains[1]).await;
    assert_eq!(history.expect("loads").newest_first().len(), 1);
}
