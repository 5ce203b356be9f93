//! Runs whose engine dies, whose captures fail, and restores that were cut short.

use serde_json::json;

use crate::world::World;

/// Three nodes that count how often each was executed, outside the workspace.
fn counting(world: &World) {
    let top = world.sandbox.top().display().to_string();
    let node = |name: &str| {
        format!(
            "{{kind: run, publish: {name}, command: 'echo x >> {top}/count.{name}; echo {name} >> log.txt'}}"
        )
    };
    world.flow(&format!(
        "entry: a
checkpoint: each
nodes:
  a: {}
  b: {}
  c: {}
  end: {{kind: done}}
edges: [{{from: a, to: b}}, {{from: b, to: c}}, {{from: c, to: end}}]
",
        node("a"),
        node("b"),
        node("c"),
    ));
}

/// The stored snapshot that a label of r1 names.
fn document(world: &World, label: &str) -> serde_json::Value {
    let name = format!("{}.json", world.label("r1", label));
    let run = world.sandbox.store().join("runs").join(world.id("r1"));
    let text = std::fs::read_to_string(run.join("workspace/snapshots").join(name)).expect("read");
    serde_json::from_str(&text).expect("JSON")
}

fn executions(world: &World, node: &str) -> usize {
    let path = world.sandbox.top().join(format!("count.{node}"));
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn run_pr05_killed_behind_each_step_a_run_goes_on() {
    // the second reach is node b's, for captures the third
    let points =
        ["run.ended:2", "run.capture:3", "run.artifact:2", "run.events:4", "run.checkpoint:2"];
    for point in points {
        let mut world = World::new();
        counting(&world);
        world.sandbox.env("BACKTRAIL_FAULT", format!("{point}:kill"));
        world.run("r1", &[]).expect(137);
        world.sandbox.env_remove("BACKTRAIL_FAULT");
        assert_eq!(world.status("r1"), "running", "{point}");
        let run = world.json(&["resume", "r1"]);
        assert_eq!(run.code, 0, "{point}: {run}");
        let counts = ["a", "b", "c"].map(|node| executions(&world, node));
        // one node at most once more, and none whose checkpoint was durable
        assert!(
            counts.iter().all(|n| *n >= 1) && counts.iter().sum::<usize>() <= 4,
            "{point}: {counts:?}"
        );
        let durable = point.starts_with("run.checkpoint");
        assert!(!durable || counts == [1, 1, 1], "{point}: {counts:?}");
        // no iteration and attempt twice
        let mut starts: Vec<String> = world
            .events("r1")
            .iter()
            .filter(|e| e["type"] == "node_started" && e["node_id"] != "end")
            .map(|e| format!("{} {}", e["node_id"], e["data"]))
            .collect();
        let all = starts.len();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), all, "{point}: {starts:?}");
    }
}

#[test]
fn what_a_lost_engine_left_is_captured_as_late() {
    let mut world = World::new();
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'echo half > half.txt'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    world.sandbox.env("BACKTRAIL_FAULT", "run.ended:1:kill");
    world.run("r1", &[]).expect(137);
    world.sandbox.env_remove("BACKTRAIL_FAULT");
    world.sandbox.write("by-hand.txt", "mine\n");
    world.json(&["runs", "reconcile"]).expect(0);
    let record = world.record("r1");
    assert_eq!(record["failure_code"], "PROCESS_ORPHANED");
    assert_eq!(world.at("r1", "fail:a:0", "half.txt").as_deref(), Some("half\n"));
    let snapshot = document(&world, "fail:a:0");
    assert_eq!(snapshot["late"], true);
    assert!(snapshot["alive_until"].is_string(), "{snapshot}");
}

#[test]
fn run_bd05_a_capture_that_fails_costs_its_own_boundary() {
    let mut world = World::new();
    counting(&world);
    world.sandbox.env("BACKTRAIL_FAULT", "capture.document:2:fail");
    let run = world.run("r1", &[]).expect(3).json();
    assert_eq!(run["status"], "finished");
    assert_eq!(run["coverage"]["missed"], json!(["post:a:0"]));
    assert_eq!(run["coverage"]["complete"], false);
    assert_eq!(world.at("r1", "pre:b:0", "log.txt").as_deref(), Some("a\n"));
    let names: Vec<String> = world.labels("r1").into_iter().map(|(l, _)| l).collect();
    assert!(!names.contains(&String::from("post:a:0")), "{names:?}");
    let shown = world.json(&["runs", "show", "r1"]).expect(0).json();
    assert!(shown["missed"]["post:a:0"].is_object(), "{shown}");
    assert_eq!(shown["run"]["versioning"]["state"], "partial");
    assert!(world.kinds("r1").contains(&String::from("capture_failed a")));
    let next = document(&world, "pre:b:0");
    assert_eq!(next["missed"][0]["label"], "post:a:0", "{next}");
}

#[test]
fn run_bd07_over_the_limit_nothing_is_walked_until_the_rules_change() {
    let mut world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'mkdir many; for i in 1 2 3 4 5 6; do echo $i > many/$i; done'}
  b: {kind: run, command: 'echo b > b.txt'}
  c: {kind: run, command: 'echo many/ > .gitignore'}
  end: {kind: done}
edges: [{from: a, to: b}, {from: b, to: c}, {from: c, to: end}]
",
    );
    world.sandbox.env("BACKTRAIL_MAX_FILES", "4");
    let run = world.run("r1", &[]).expect(3).json();
    assert_eq!(run["status"], "finished");
    assert_eq!(world.at("r1", "post:c:0", "b.txt").as_deref(), Some("b\n"));
    let kinds = world.kinds("r1");
    assert_eq!(kinds.iter().filter(|k| k.starts_with("capture_overflow")).count(), 1, "{kinds:?}");
    // other runs are not affected
    world.command("r2", &[], &["true"]).expect(0);
}

#[test]
fn an_overflow_is_remembered_by_the_next_process_of_the_run() {
    let mut world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'mkdir many; for i in 1 2 3 4 5 6; do echo $i > many/$i; done; test -e go'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    world.sandbox.env("BACKTRAIL_MAX_FILES", "4");
    world.run("r1", &[]).expect(1);
    let kept = world.record("r1")["versioning"].clone();
    assert_eq!((&kept["state"], &kept["limit"]), (&"overflow".into(), &4.into()), "{kept}");
    // a resume looks again before it refuses
    let refused = world.json(&["resume", "r1"]).expect(4);
    assert_eq!(refused.error_code(), "workspace-safety");
    // where it may go on without, the same limit and rules are not walked or told again
    std::fs::remove_dir_all(world.sandbox.path("many")).expect("remove");
    world.sandbox.write("go", "");
    let run = world.json(&["resume", "r1", "--capture", "best_effort"]).expect(3).json();
    assert!(run["coverage"]["missed"].to_string().contains("resume:a:0"), "{run}");
    assert_eq!(world.record("r1")["versioning"]["state"], "overflow");
    let told = world.kinds("r1").iter().filter(|k| k.starts_with("capture_overflow")).count();
    assert_eq!(told, 1);
    // a capture opens it
    std::fs::remove_file(world.sandbox.path("go")).expect("remove");
    std::fs::remove_dir_all(world.sandbox.path("many")).expect("remove");
    world.run("r2", &[]).expect(1);
    std::fs::remove_dir_all(world.sandbox.path("many")).expect("remove");
    world.sandbox.write("go", "");
    world.json(&["resume", "r2"]).expect(3);
    world.label("r2", "resume:a:0");
}

#[test]
fn run_bd08_a_resume_that_cannot_be_captured_is_refused_unless_forced() {
    let mut world = World::new();
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'test -e go'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    world.run("r1", &[]).expect(1);
    world.sandbox.write("go", "");
    world.sandbox.env("BACKTRAIL_FAULT", "capture.document:1:fail");
    let before = world.record("r1");
    let refused = world.json(&["resume", "r1"]).expect(4);
    assert_eq!(refused.error_code(), "workspace-safety");
    assert_eq!(world.record("r1"), before);
    let run = world.json(&["resume", "r1", "--capture", "best_effort"]).expect(3).json();
    assert_eq!(run["status"], "finished");
    assert!(run["coverage"]["missed"].to_string().contains("resume:a:0"), "{run}");
}

#[test]
fn run_bd14_an_unfinished_restore_is_in_the_way_of_a_run() {
    for point in ["restore.banked", "restore.staged", "restore.step", "restore.applied"] {
        let world = World::new();
        world.flow("entry: a\nnodes: {a: {kind: run, command: 'test -e go'}, end: {kind: done}}\nedges: [{from: a, to: end}]\n");
        world.run("r0", &[]).expect(1);
        let before = world.sandbox.capture();
        world.sandbox.write("a.txt", "two\n");
        world.sandbox.write("go", "");
        let mut command = world.sandbox.command(["restore", &before, "--yes"]);
        command.env("BACKTRAIL_FAULT", format!("{point}:1:kill"));
        assert_eq!(backtrail_tests::cli::finish(command).code, 137, "{point}");
        let record = world.record("r0");
        let unfinished = !matches!(point, "restore.banked" | "restore.staged");
        if !unfinished {
            // nothing was touched yet, so there is nothing to decide
            world.sandbox.write("go", "");
            world.json(&["resume", "r0"]).expect(0);
            continue;
        }
        let files = world.sandbox.tree();
        let mut hint = String::new();
        for run in [world.command("r1", &[], &["touch", "made"]), world.json(&["resume", "r0"])] {
            assert_eq!((run.code, run.error_code().as_str()), (4, "recovery-needed"), "{run}");
            hint = run.json()["error"]["hint"].as_str().expect("a hint").to_owned();
        }
        backtrail_tests::cli::assert_same_tree(&world.sandbox.tree(), &files);
        assert_eq!(world.record("r0"), record);
        assert_eq!(world.json(&["runs", "show", "r1"]).code, 6, "no run was made");
        // the command that it names ends it, and runs go on
        let named = hint.split('`').find_map(|c| c.strip_prefix("backtrail "));
        let words: Vec<&str> = named.expect("a command").split_whitespace().collect();
        world.sandbox.run(&words).expect(0);
        world.command("r1", &[], &["touch", "made"]).expect(0);
        world.sandbox.write("go", "");
        world.json(&["resume", "r0"]).expect(0);
    }
}

#[test]
fn run_bd14_a_status_that_says_done_is_never_ahead_of_the_last_capture() {
    // whatever takes a directory away once a run is over finds its last state captured
    for (script, last, status) in [
        ("echo result > out.txt", "post:main:0", "finished"),
        ("echo result > out.txt; exit 1", "fail:main:0", "failed_resumable"),
    ] {
        for (point, over) in [
            ("capture.document:2", false),
            ("capture.refs:2", false),
            ("run.capture:2", false),
            ("run.status:1", true),
        ] {
            let mut world = World::new();
            world.sandbox.env("BACKTRAIL_FAULT", format!("{point}:kill"));
            world.command("r1", &[], &["sh", "-c", script]).expect(137);
            world.sandbox.env_remove("BACKTRAIL_FAULT");
            let now = world.status("r1");
            assert_eq!(now, if over { status } else { "running" }, "{script} {point}");
            if over {
                assert_eq!(world.at("r1", last, "out.txt").as_deref(), Some("result\n"));
                world.sandbox.remove("out.txt");
                let id = world.id("r1");
                world.sandbox.run(["restore", last, "--run", &id, "--yes"]).expect(0);
                assert!(world.sandbox.path("out.txt").exists());
            }
        }
    }
}
