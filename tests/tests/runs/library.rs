//! External runs through the library.

use std::sync::Arc;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture;
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::observe;
use backtrail_core::run::{Driver, FailureCode, NewRun, RunStore, Status};
use backtrail_core::workflow::drive::external::{End, Entry, ExternalRun};
use backtrail_core::workflow::drive::{Place, Settings, Unwatched, reconcile};
use backtrail_core::workspace::Root;
use serde_json::{Map, Value, json};

use crate::world::World;

async fn place(world: &World) -> Place {
    let sandbox = &world.sandbox;
    let options = OpenOptions { unsafe_no_fsync: true, ..OpenOptions::default() };
    let store = open(sandbox.store().to_str().expect("UTF-8"), options).await.expect("a store");
    let ctx = Context {
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
        host: this_host(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults: Arc::new(NoFaults),
    };
    let observe = observe::Settings { safety_window_ns: 0, ..observe::Settings::default() };
    Place {
        runs: RunStore::new(store, ctx.clone()),
        root: Root::open(sandbox.workspace(), &ctx.host, false).expect("a root"),
        ctx,
        capture: capture::Settings { observe, ..capture::Settings::default() },
        settings: Settings::embedded("a test"),
        watcher: Arc::new(Unwatched),
    }
}

async fn create(world: &World, id: &str) -> ExternalRun {
    let new = NewRun {
        id: Some(world.id(id)),
        driver: Driver::External,
        ..NewRun::new("deploy", "build")
    };
    ExternalRun::create(place(world).await, new, Default::default()).await.expect("a run")
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn labels(world: &World, run: &str) -> Vec<String> {
    world.labels(run).into_iter().map(|(l, _)| l).collect()
}

#[tokio::test]
async fn run_lb01_a_program_drives_a_run_and_its_records_are_the_engines() {
    let world = World::new();
    let run = create(&world, "lib").await;
    let id = run.id().to_string();
    let step = run.enter("build", Entry::Resumed).await.expect("entered");
    world.sandbox.write("b.txt", "b\n");
    step.event("tool_called", object(json!({"tool": "edit"}))).await.expect("an event");
    let e = step.event("node_finished", Map::new()).await.expect_err("forged");
    assert_eq!(e.code(), "engine-event");
    let e = run.event("workspace.checkpoint.created", Map::new()).await.expect_err("forged");
    assert_eq!(e.code(), "engine-event");
    let e = run.enter("other", Entry::Resumed).await.err().expect("two at once");
    assert_eq!(e.code(), "step-open");
    step.finish(object(json!({"n": 1, "_tokens": 5}))).await.expect("finished");
    // nothing was between: no look at the workspace
    let step = run.enter("test", Entry::Continuous).await.expect("entered");
    world.sandbox.write("c.txt", "c\n");
    step.finish(Map::new()).await.expect("finished");
    world.sandbox.write("mine.txt", "mine\n");
    let step = run.enter("build", Entry::Resumed).await.expect("entered");
    assert_eq!((step.iteration(), step.attempt()), (1, 1));
    step.finish(Map::new()).await.expect("finished");
    // somebody else cannot take it meanwhile
    world.json(&["rewind", &id, "--yes"]).expect(5);
    let report = run.finish(End::finished(json!({"ok": true}))).await.expect("ended");
    assert_eq!((report.status, report.coverage.complete), (Status::Finished, true));

    assert_eq!(world.label(&id, "pre:test:0"), world.label(&id, "post:build:0"));
    let want = [
        "post:build:0",
        "post:build:1",
        "post:test:0",
        "pre:build:0",
        "pre:build:1",
        "pre:test:0",
        "resume:build:1",
    ];
    assert_eq!(labels(&world, &id), want);
    let kinds = [
        "run_started",
        "node_started build",
        "tool_called build",
        "node_finished build",
        "node_started test",
        "node_finished test",
        "node_started build",
        "node_finished build",
        "run_finished",
    ];
    assert_eq!(world.kinds(&id), kinds);
    let finished = &world.events(&id)[3]["data"];
    assert_eq!((&finished["output"], &finished["_tokens"]), (&json!({"n": 1}), &json!(5)));
    assert_eq!(finished["snapshot"].as_str(), Some(world.label(&id, "post:build:0").as_str()));
    let record = world.record(&id);
    assert_eq!(record["result"], json!({"ok": true}));
    assert_eq!(record["checkpoint"]["budget_tokens_used"], 5);
    world.json(&["rewind", &id, "--node", "build", "--iteration", "0", "--yes"]).expect(0);
    assert!(!world.sandbox.path("b.txt").exists() && !world.sandbox.path("c.txt").exists());
    assert!(world.sandbox.path("mine.txt").exists());
}

#[tokio::test]
async fn run_lb01_a_dropped_step_has_failed_and_a_dropped_run_is_put_in_order() {
    let world = World::new();
    let run = create(&world, "drop").await;
    let id = run.id().clone();
    let step = run.enter("a", Entry::Resumed).await.expect("entered");
    world.sandbox.write("half.txt", "half\n");
    drop(step);
    let step = run.enter("b", Entry::Resumed).await.expect("entered");
    assert_eq!(labels(&world, id.as_str()), ["fail:a:0", "pre:a:0", "pre:b:0", "resume:b:0"]);
    assert_eq!(world.at(id.as_str(), "fail:a:0", "half.txt").as_deref(), Some("half\n"));
    world.sandbox.write("more.txt", "more\n");
    // the process dies
    drop(step);
    drop(run);
    let shown = world.json(&["runs", "list"]).expect(0).json();
    assert_eq!(shown["owner_gone"], true);
    reconcile(&place(&world).await, &id).await.expect("in order");
    assert_eq!(world.at(id.as_str(), "fail:b:0", "more.txt").as_deref(), Some("more\n"));
    let record = world.record(id.as_str());
    assert_eq!(record["status"], "failed_resumable");
    assert_eq!(record["failure_code"], "PROCESS_ORPHANED");
    assert!(labels(&world, id.as_str()).iter().all(|l| !l.starts_with("post:")));
}

#[tokio::test]
async fn cap_105_a_runtime_that_fails_pauses_and_is_taken_over_writes_each_boundary_once() {
    let world = World::new();
    let run = create(&world, "all").await;
    let id = run.id().clone();
    let status = || world.status(id.as_str());
    let step = run.enter("plan", Entry::Resumed).await.expect("entered");
    step.finish(Map::new()).await.expect("finished");
    // fails, and is tried again
    let step = run.enter("work", Entry::Continuous).await.expect("entered");
    world.sandbox.write("half.txt", "half\n");
    step.fail(FailureCode::TOOL_FAILED_TRANSIENT, "busy").await.expect("failed");
    world.sandbox.write("between.txt", "between\n");
    let step = run.enter("work", Entry::Resumed).await.expect("entered");
    assert_eq!((step.iteration(), step.attempt()), (0, 2));
    // asks; the answer goes straight to the node that waits
    step.pause(object(json!({"ok": "go on?"}))).await.expect("paused");
    assert_eq!(status(), "paused_waiting_human");
    let e = run.enter("work", Entry::Resumed).await.err().expect("no answer yet");
    assert_eq!(e.code(), "needs-answers");
    world.sandbox.write("mine.txt", "mine\n");
    world.json(&["answer", id.as_str(), "--answer", "ok=yes"]).expect(0);
    let step = run.enter("work", Entry::Continuous).await.expect("entered");
    assert_eq!(step.answers(), &object(json!({"ok": "yes"})));
    assert_eq!((step.iteration(), step.attempt()), (0, 3));
    // another runner takes over
    world.sandbox.write("left.txt", "left\n");
    step.leave_open();
    drop(run);
    let run = ExternalRun::open(place(&world).await, &id, Default::default()).await.expect("open");
    let step = run.enter("work", Entry::Resumed).await.expect("entered");
    assert_eq!((step.iteration(), step.attempt()), (0, 4));
    step.finish(Map::new()).await.expect("finished");
    run.finish(End::failed("BAD_DAY", "no more")).await.expect("ended");

    let want = [
        "fail:work:0",
        "pause:work:0",
        "post:plan:0",
        "post:work:0",
        "pre:plan:0",
        "pre:work:0",
        "resume:work:0",
    ];
    assert_eq!(labels(&world, id.as_str()), want);
    assert_eq!(world.label(id.as_str(), "pre:work:0"), world.label(id.as_str(), "post:plan:0"));
    let at = |label: &str, path: &str| world.at(id.as_str(), label, path).is_some();
    assert!(at("pause:work:0", "between.txt") && !at("pause:work:0", "mine.txt"));
    assert!(at("fail:work:0", "left.txt"), "the late one");
    let own: Vec<String> = world
        .snapshots(id.as_str())
        .iter()
        .map(|s| s["label"].as_str().unwrap_or_default().to_owned())
        .collect();
    // captures that changed nothing pointed their label at the snapshot before
    let each = ["pre:plan:0", "fail:work:0", "resume:work:0", "resume:work:0", "fail:work:0"];
    assert_eq!(own, each);
    // captures come before what they are before
    let kinds = world.kinds(id.as_str());
    let paused = kinds.iter().position(|k| k == "run_paused work").expect("paused");
    assert_eq!(kinds[paused + 1], "run_resumed");
    assert_eq!(kinds.iter().filter(|k| *k == "node_started work").count(), 4);
    assert_eq!(world.record(id.as_str())["failure_code"], "BAD_DAY");
}

#[tokio::test]
async fn run_lb01_a_person_cancels_a_run_that_a_program_drives() {
    let world = World::new();
    let run = create(&world, "stop").await;
    let id = run.id().clone();
    let step = run.enter("a", Entry::Resumed).await.expect("entered");
    let cancel = world.sandbox.spawn(["cancel", id.as_str(), "--json"]);
    crate::world::until("it is asked", || {
        world.record(id.as_str())["cancel_requested_at"].is_string()
    });
    step.finish(Map::new()).await.expect("finished");
    crate::world::end(cancel).expect(0);
    assert_eq!(world.status(id.as_str()), "cancelled");
    let step = run.enter("a", Entry::Resumed).await.expect("a runtime may go on");
    step.finish(Map::new()).await.expect("finished");
    run.finish(End::finished(Value::Null)).await.expect("ended");
}
