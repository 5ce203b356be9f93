//! Which boundaries a run writes, and what they hold.

use serde_json::json;

use crate::world::World;

const THREE: &str = "entry: a
nodes:
  a: {kind: run, command: 'echo a >> log.txt'}
  b: {kind: run, command: 'echo b >> log.txt'}
  c: {kind: run, command: 'echo c >> log.txt'}
  end: {kind: done, output: {ok: true}}
edges: [{from: a, to: b}, {from: b, to: c}, {from: c, to: end}]
";

#[test]
fn run_bd01_three_nodes_have_pre_and_post_and_one_capture_each() {
    let world = World::new();
    let run = world.flow(THREE).run("r1", &[]).expect(0).json();
    assert_eq!(run["status"], "finished");
    assert_eq!(run["result"], json!({"ok": true}));
    assert_eq!(run["changes"], json!({"added": 1, "modified": 0, "deleted": 0}));
    assert_eq!(run["coverage"]["complete"], true);
    let at = |label: &str| world.label("r1", label);
    assert_eq!(at("pre:b:0"), at("post:a:0"));
    assert_eq!(at("pre:c:0"), at("post:b:0"));
    assert_eq!(at("pre:end:0"), at("post:c:0"));
    assert_eq!(world.at("r1", "pre:a:0", "log.txt"), None);
    assert_eq!(world.at("r1", "post:a:0", "log.txt").as_deref(), Some("a\n"));
    assert_eq!(world.at("r1", "post:c:0", "log.txt").as_deref(), Some("a\nb\nc\n"));
    // one capture before the first node and one behind each
    assert_eq!(world.snapshots("r1").len(), 4);
    assert_eq!(run["last_snapshot"].as_str(), Some(at("post:c:0").as_str()));
}

#[test]
fn run_bd03_what_people_change_while_a_run_waits_is_closed_by_resume() {
    let world = World::new();
    world.flow(
        "entry: ask
nodes:
  ask: {kind: human, questions: {ok: go on?}, answers: {ok: {type: bool}}}
  work: {kind: run, command: 'test -e ready && echo done > out.txt'}
  end: {kind: done}
edges: [{from: ask, to: work}, {from: work, to: end}]
",
    );
    world.run("r1", &[]).expect(9);
    assert_eq!(world.status("r1"), "paused_waiting_human");
    world.sandbox.write("mine.txt", "by hand\n");
    let run = world.json(&["answer", "r1", "--answer", "ok=true"]).expect(1).json();
    assert_eq!(run["status"], "failed_resumable");
    assert_eq!(world.at("r1", "pause:ask:0", "mine.txt"), None);
    assert_eq!(world.at("r1", "resume:ask:0", "mine.txt").as_deref(), Some("by hand\n"));
    // edits while it is failed are closed by the next resume
    world.sandbox.write("ready", "");
    world.json(&["resume", "r1"]).expect(0);
    assert_eq!(world.at("r1", "fail:work:0", "ready"), None);
    assert_eq!(world.at("r1", "resume:work:0", "ready").as_deref(), Some(""));
    assert_eq!(world.at("r1", "resume:work:0", "out.txt"), None);
    assert_eq!(world.at("r1", "post:work:0", "out.txt").as_deref(), Some("done\n"));
}

#[test]
fn run_bd09_a_failure_is_captured_as_fail_and_a_success_never() {
    let world = World::new();
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'echo half > half.txt; exit 3'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    let run = world.run("r1", &[]).expect(1).json();
    assert_eq!(
        (run["status"].as_str(), run["child_exit"].as_i64()),
        (Some("failed_resumable"), Some(3))
    );
    assert_eq!(run["failure_code"], "EXECUTION_FAILED");
    assert_eq!(world.at("r1", "fail:a:0", "half.txt").as_deref(), Some("half\n"));
    let names: Vec<String> = world.labels("r1").into_iter().map(|(l, _)| l).collect();
    assert!(!names.iter().any(|l| l.starts_with("post:")), "{names:?}");
    world.flow(THREE).run("r2", &[]).expect(0);
    let names: Vec<String> = world.labels("r2").into_iter().map(|(l, _)| l).collect();
    assert!(!names.iter().any(|l| l.starts_with("fail:")), "{names:?}");
}

#[test]
fn run_bd12_nodes_that_execute_nothing_are_aliases() {
    let world = World::new();
    world.flow(
        "entry: pick
nodes:
  pick: {kind: router, route: \"'sum'\"}
  sum: {kind: compute, set: {n: \"{{ 1 + 1 }}\"}}
  stop: {kind: fail, code: NOT_TODAY, message: \"{{ outputs.sum.n }} is enough\"}
edges: [{from: pick, to: sum}, {from: sum, to: stop}]
",
    );
    let run = world.run("r1", &[]).expect(1).json();
    assert_eq!((&run["status"], &run["failure_code"]), (&json!("failed"), &json!("NOT_TODAY")));
    assert_eq!(run["error"], "2 is enough");
    assert_eq!(world.snapshots("r1").len(), 1, "one walk, before the first node");
    let first = world.label("r1", "pre:pick:0");
    for label in
        ["post:pick:0", "pre:sum:0", "post:sum:0", "pre:stop:0", "post:stop:0", "fail:stop:0"]
    {
        assert_eq!(world.label("r1", label), first, "{label}");
    }
}

#[test]
fn run_bd06_a_run_that_cannot_be_captured_does_not_start() {
    let world = World::new();
    world.sandbox.write("b.txt", "two\n");
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'touch executed'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    let mut sandbox = world.sandbox;
    sandbox.env("BACKTRAIL_MAX_FILES", "1");
    let world = World { sandbox };
    let run = world.run("r1", &[]).expect(1).json();
    assert_eq!(run["failure_code"], "WORKSPACE_SAFETY");
    assert!(!world.sandbox.path("executed").exists());
    let run = world.run("r2", &["--capture", "best_effort"]).expect(3).json();
    assert_eq!(run["status"], "finished");
    assert_eq!(run["coverage"]["complete"], false);
    assert!(world.sandbox.path("executed").exists());
    assert_eq!(world.record("r2")["versioning"]["state"], "overflow");
}

#[test]
fn what_a_command_did_is_undone_by_a_restore_of_the_boundary_before_it() {
    let world = World::new();
    world.sandbox.write("d/x.txt", "x\n");
    world.sandbox.write("long.txt", "a long line\n");
    let script = "rm -rf d; : > long.txt; sed -i s/one/two/ a.txt; mv a.txt b.txt";
    let before = world.sandbox.tree();
    world.command("r1", &[], &["sh", "-c", script]).expect(0);
    let all = ["restore", "pre:main:0", "--run", &world.id("r1"), "--allow-mass-delete", "--yes"];
    let undone = world.sandbox.run(all);
    assert_eq!(undone.code, 0, "{undone}");
    backtrail_tests::cli::assert_same_tree(&world.sandbox.tree(), &before);
}
