//! Who may execute, and what becomes of runs whose engine is gone.

use rustix::process::Signal;
use serde_json::json;

use crate::world::{World, end, lives, pid_in, signal, until};

const SLOW: &str = "entry: a
nodes:
  a: {kind: run, command: 'echo $$ > pid; while ! test -e go; do sleep 0.1; done'}
  end: {kind: done}
edges: [{from: a, to: end}]
";

fn started(world: &World, id: &str) -> (std::process::Child, u32) {
    let child = world.flow(SLOW).start(id);
    let path = world.sandbox.path("pid");
    until("the node runs", || std::fs::read_to_string(&path).is_ok_and(|t| t.ends_with('\n')));
    let pid = std::fs::read_to_string(&path).expect("read").trim().parse().expect("a pid");
    std::fs::remove_file(path).expect("remove");
    (child, pid)
}

#[test]
fn run_lk01_a_second_executor_is_told_who_has_the_run() {
    let world = World::new();
    let (child, _) = started(&world, "r1");
    let busy = world.json(&["resume", "r1"]).expect(5);
    assert_eq!(busy.error_code(), "busy");
    assert_eq!(busy.json()["error"]["holder"]["pid"], child.id());
    world.sandbox.write("go", "");
    end(child).expect(0);
    // only the lock decides, whatever the holder says
    let (child, node) = started_again(&world, "r2");
    signal(child.id(), Signal::KILL);
    signal(node, Signal::KILL);
    end(child);
    gone(node);
    let path = world.sandbox.store().join("runs").join(world.id("r2")).join("run.json");
    for pid in [1, std::process::id()] {
        let text = std::fs::read_to_string(&path).expect("read");
        let mut record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        record["holder"]["pid"] = json!(pid);
        std::fs::write(&path, record.to_string()).expect("write");
        let row = world.json(&["runs", "list"]).expect(0).out();
        let row = row.lines().find(|l| l.contains(&world.id("r2"))).expect("a row").to_owned();
        assert!(row.contains("\"owner_gone\":true"), "{row}");
    }
    world.sandbox.write("go", "");
    world.json(&["resume", "r2"]).expect(0);
}

/// Waits until nothing of a killed node is left, which may have been asleep.
fn gone(node: u32) {
    until("it is gone", || !lives(node));
    std::thread::sleep(std::time::Duration::from_millis(300));
}

fn started_again(world: &World, id: &str) -> (std::process::Child, u32) {
    world.sandbox.remove("go");
    started(world, id)
}

#[test]
fn run_lk03_a_child_that_outlives_its_engine_is_in_the_way() {
    let world = World::new();
    let (child, node) = started(&world, "r1");
    signal(child.id(), Signal::KILL);
    end(child);
    assert!(lives(node));
    let busy = world.json(&["resume", "r1"]).expect(5);
    assert!(
        busy.json()["error"]["message"].as_str().expect("text").contains(&node.to_string()),
        "{busy}"
    );
    let id = world.id("r1");
    let restore = ["restore", "pre:a:0", "--run", &id, "--yes", "--json"];
    let busy = world.sandbox.run(restore).expect(5);
    assert_eq!(busy.json()["error"]["pid"], node, "{busy}");
    signal(node, Signal::KILL);
    gone(node);
    world.sandbox.run(["runs", "reconcile", "--json"]).expect(0);
    let record = world.record("r1");
    assert_eq!(record["status"], "failed_resumable");
    assert_eq!(record["failure_code"], "PROCESS_ORPHANED");
    assert_eq!(record["checkpoint"]["current"], json!({"iteration": 0, "attempt": 1}));
    world.sandbox.write("go", "");
    world.json(&["resume", "r1"]).expect(0);
}

#[test]
fn res_076_nothing_is_put_back_under_a_child_that_still_writes() {
    let world = World::new();
    let write = "echo $$ > pid; while :; do echo x >> grows; sleep 0.02; done";
    let flow = format!(
        "entry: a
nodes: {{a: {{kind: run, command: '{write}'}}, end: {{kind: done}}}}
edges: [{{from: a, to: end}}]
"
    );
    world.flow(&flow);
    let child = world.start("r1");
    let node = pid_in(&world, "pid");
    until("it writes", || world.sandbox.path("grows").exists());
    signal(child.id(), Signal::KILL);
    end(child);
    assert!(lives(node));
    let id = world.id("r1");
    let verbs: [&[&str]; 2] = [
        &["restore", "pre:a:0", "--run", &id, "--yes", "--json"],
        &["rewind", &id, "--yes", "--json"],
    ];
    for verb in verbs {
        let busy = world.sandbox.run(verb.iter().copied()).expect(5);
        assert_eq!(busy.json()["error"]["pid"], node, "{busy}");
    }
    signal(node, Signal::KILL);
    gone(node);
    assert!(world.sandbox.path("grows").exists());
    // what it wrote behind the engine's last sign of life is not surely the run's
    world.sandbox.run(verbs[1].iter().copied()).expect(0);
    assert!(world.sandbox.path("grows").exists());
    world.sandbox.run(verbs[0].iter().copied()).expect(0);
    assert!(!world.sandbox.path("grows").exists());
    world.sandbox.run(["undo", "--yes"]).expect(0);
    assert!(world.sandbox.path("grows").exists());
}

#[test]
fn run_lk04_killed_in_the_first_node_and_lists_that_write_nothing() {
    let world = World::new();
    let (child, node) = started(&world, "r1");
    signal(child.id(), Signal::KILL);
    signal(node, Signal::KILL);
    end(child);
    gone(node);
    let before = backtrail_tests::cli::tree(&world.sandbox.store());
    let list = world.json(&["runs", "list"]).expect(0).json();
    assert_eq!((&list["status"], &list["owner_gone"]), (&json!("running"), &json!(true)));
    world.json(&["runs", "show", "r1"]).expect(0);
    let after = backtrail_tests::cli::tree(&world.sandbox.store());
    backtrail_tests::cli::assert_same_tree(&after, &before);
    world.sandbox.write("go", "");
    let run = world.json(&["resume", "r1"]).expect(0).json();
    assert_eq!(run["status"], "finished");
    world.label("r1", "resume:a:0");
}

#[test]
fn run_lk05_one_run_executes_in_a_workspace_unless_it_is_shared() {
    let mut world = World::new();
    let (child, _) = started(&world, "r1");
    let other = |id: &str, more: &[&str]| world.command(id, more, &["true"]);
    let busy = other("r2", &[]).expect(5);
    assert_eq!(busy.json()["error"]["holder"]["pid"], child.id());
    other("r3", &["--share-workspace"]).expect(0);
    assert_eq!(world.record("r3")["share_workspace"], true);
    assert!(world.record("r1")["share_workspace"].is_null());
    // a capture goes on, a restore does not
    world.sandbox.ok(["capture"]);
    world.sandbox.write("go", "");
    end(child).expect(0);
    // a run that a node starts shares by itself
    let inner = format!("$BACKTRAIL_BIN run --run-id {} -- touch nested", world.id("inner"));
    let binary = env!("CARGO_BIN_EXE_backtrail-under-test");
    world.sandbox.env("BACKTRAIL_BIN", binary);
    world.command("outer", &[], &["sh", "-c", &inner]).expect(0);
    assert_eq!(world.record("inner")["parent_run_id"], world.id("outer").as_str());
    assert!(world.sandbox.path("nested").exists());
}
