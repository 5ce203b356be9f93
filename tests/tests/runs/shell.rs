//! External runs that a shell drives.

use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::world::World;

/// A run that was begun with these flags.
fn begin(world: &World, flags: &[&str]) -> String {
    let args = ["runs", "begin"].iter().chain(flags).copied();
    world.sandbox.run(args).expect(0).out().trim().to_owned()
}

fn boundary(world: &World, run: &str, rest: &[&str]) -> Value {
    let args: Vec<&str> = ["runs", "boundary", run].iter().chain(rest).copied().collect();
    world.json(&args).expect(0).json()
}

fn end(world: &World, run: &str) -> Value {
    world.json(&["runs", "end", run, "--status", "finished"]).expect(0).json()
}

/// A process that lives until it is dropped.
struct Owner(Child);

impl Owner {
    fn new() -> Self {
        Self(Command::new("sleep").arg("300").spawn().expect("sleep"))
    }
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn run_lb01_a_shell_drives_a_run_whose_rewind_leaves_what_was_edited_between_steps() {
    let world = World::new();
    let sandbox = &world.sandbox;
    sandbox.write("old.txt", "old\n");
    let run = begin(&world, &["--workflow", "deploy"]);
    assert_eq!(boundary(&world, &run, &["enter", "build"])["iteration"], 0);
    sandbox.write("built.txt", "built\n");
    sandbox.remove("old.txt");
    let step = world.json(&["capture", "--run", &run]).expect(0).json();
    assert_eq!(step["label"], "step:0");
    sandbox.write("a.txt", "by the run\n");
    boundary(&world, &run, &["leave", "build", "--output", r#"{"files": 2}"#]);
    // between two steps
    sandbox.write("mine.txt", "by hand\n");
    assert_eq!(boundary(&world, &run, &["enter", "test"])["attempt"], 1);
    sandbox.write("report.txt", "fine\n");
    world.json(&["runs", "event", &run, "tool_called", "--data", r#"{"tool": "edit"}"#]).expect(0);
    boundary(&world, &run, &["leave", "test"]);
    let argv =
        ["run", "--in", &run, "--node", "make", "--json", "--", "sh", "-c", "echo m > m.txt"];
    assert_eq!(sandbox.run(argv).expect(0).json()["child_exit"], 0);
    assert_eq!(end(&world, &run)["status"], "finished");

    let labels: Vec<String> = world.labels(&run).into_iter().map(|(l, _)| l).collect();
    let want = [
        "post:build:0",
        "post:make:0",
        "post:test:0",
        "pre:build:0",
        "pre:make:0",
        "pre:test:0",
        "resume:make:0",
        "resume:test:0",
        "step:0",
    ];
    assert_eq!(labels, want);
    assert_eq!(world.at(&run, "resume:test:0", "mine.txt").as_deref(), Some("by hand\n"));
    assert_eq!(world.at(&run, "step:0", "a.txt").as_deref(), Some("one\n"));
    let kinds = [
        "run_started",
        "node_started build",
        "node_finished build",
        "node_started test",
        "tool_called test",
        "node_finished test",
        "node_started make",
        "node_finished make",
        "run_finished",
    ];
    assert_eq!(world.kinds(&run), kinds);
    let record = world.record(&run);
    assert_eq!(record["driver"], "external");
    assert_eq!(record["checkpoint"]["outputs"]["build"], json!({"files": 2}));
    assert_eq!(record["checkpoint"]["node_visits"], json!({"build": 1, "make": 1, "test": 1}));

    // the steps' changes go back, the person's stay
    world.json(&["rewind", &run, "--node", "build", "--yes"]).expect(0);
    assert!(!sandbox.path("built.txt").exists() && !sandbox.path("report.txt").exists());
    assert!(!sandbox.path("m.txt").exists());
    let read = |path: &str| std::fs::read_to_string(sandbox.path(path)).expect("there");
    assert_eq!((read("a.txt"), read("old.txt")), ("one\n".into(), "old\n".into()));
    assert_eq!(read("mine.txt"), "by hand\n");
    world.json(&["undo", "--yes"]).expect(0);
    assert_eq!(read("built.txt"), "built\n");
}

#[test]
fn run_lb01_a_step_that_failed_or_was_left_open_has_fail_and_never_post() {
    let world = World::new();
    let run = begin(&world, &[]);
    boundary(&world, &run, &["enter", "work"]);
    // two steps at once
    let e = world.json(&["runs", "boundary", &run, "enter", "other"]).expect(4);
    assert_eq!(e.error_code(), "step-open");
    let e = world.json(&["runs", "boundary", &run, "leave", "other"]).expect(4);
    assert_eq!(e.error_code(), "other-step");
    world.sandbox.write("half.txt", "half\n");
    boundary(&world, &run, &["leave", "work", "--fail", "--error", "no"]);
    let again = boundary(&world, &run, &["enter", "work"]);
    assert_eq!((again["iteration"].clone(), again["attempt"].clone()), (json!(0), json!(2)));
    let failed = world.sandbox.run(["run", "--in", &run, "--json", "--", "true"]).expect(4);
    assert_eq!(failed.error_code(), "step-open");
    end(&world, &run);
    let labels: Vec<String> = world.labels(&run).into_iter().map(|(l, _)| l).collect();
    assert_eq!(labels, ["fail:work:0", "pre:work:0", "resume:work:0"]);
    assert_eq!(world.at(&run, "fail:work:0", "half.txt").as_deref(), Some("half\n"));
    let e = world.json(&["runs", "end", &run]).expect(4);
    assert_eq!(e.error_code(), "already-ended");
    let e = world.json(&["runs", "boundary", &run, "enter", "work"]).expect(4);
    assert_eq!(e.error_code(), "not-resumable");
}

#[test]
fn run_lb01_a_forged_event_is_refused_and_a_command_that_fails_fails_its_step() {
    let world = World::new();
    let run = begin(&world, &[]);
    for kind in ["node_started", "run_finished", "workspace.checkpoint.created"] {
        let e = world.json(&["runs", "event", &run, kind, "--data", "{}"]).expect(2);
        assert_eq!(e.error_code(), "engine-event", "{kind}");
    }
    assert_eq!(world.kinds(&run), ["run_started"]);
    let argv = ["run", "--in", &run, "--node", "build", "--child-exit", "--"];
    let failed = world.sandbox.run(argv.iter().chain(&["sh", "-c", "echo said; exit 7"]));
    assert_eq!((failed.code, failed.out().as_str()), (7, "said\n"));
    assert_eq!(
        world.record(&run)["checkpoint"]["outputs"]["build"]["_error"]["code"],
        "EXECUTION_FAILED"
    );
    assert!(world.log(&run).contains("said\n"));
    // an engine's run is no external one
    world.command("own", &[], &["true"]).expect(0);
    let own = world.id("own");
    let e = world.json(&["runs", "boundary", &own, "enter", "x"]).expect(4);
    assert_eq!(e.error_code(), "not-external");
}

#[test]
fn run_lb01_a_parked_run_goes_on_where_its_node_is_entered_again() {
    let world = World::new();
    let run = begin(&world, &[]);
    boundary(&world, &run, &["enter", "ask"]);
    world.sandbox.write("run.txt", "run\n");
    assert_eq!(boundary(&world, &run, &["leave", "ask", "--pause"])["status"], "paused_operator");
    world.sandbox.write("mine.txt", "mine\n");
    let e = world.json(&["resume", &run]).expect(4);
    assert_eq!(e.error_code(), "external");
    let again = boundary(&world, &run, &["enter", "ask"]);
    assert_eq!((again["iteration"].clone(), again["attempt"].clone()), (json!(0), json!(2)));
    boundary(&world, &run, &["leave", "ask"]);
    assert_eq!(world.at(&run, "pause:ask:0", "mine.txt"), None);
    assert_eq!(world.at(&run, "resume:ask:0", "mine.txt").as_deref(), Some("mine\n"));
    let cancelled = world.json(&["cancel", &run, "--reason", "enough"]).expect(0).json();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(world.record(&run)["error"], "enough");
}

#[test]
fn run_lb02_a_session_is_one_run_while_it_is_open() {
    let world = World::new();
    let run = begin(&world, &["--session", "k 1"]);
    let again = world.json(&["runs", "begin", "--session", "k 1"]).expect(0).json();
    assert_eq!(
        (again["run_id"].as_str(), again["created"].clone()),
        (Some(run.as_str()), json!(false))
    );
    let children: Vec<Child> =
        (0..4).map(|_| world.sandbox.spawn(["runs", "begin", "--session", "together"])).collect();
    let ids: std::collections::BTreeSet<String> =
        children.into_iter().map(|c| crate::world::end(c).expect(0).out()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    end(&world, &run);
    assert_ne!(begin(&world, &["--session", "k 1"]), run);
}

#[test]
fn run_lb02_a_restore_is_refused_while_the_owner_lives_and_works_when_it_is_gone() {
    let world = World::new();
    let kept = world.sandbox.capture();
    let owner = Owner::new();
    let run = begin(&world, &["--owner-pid", &owner.pid()]);
    boundary(&world, &run, &["enter", "work"]);
    world.sandbox.write("half.txt", "half\n");
    // heard of the run once more: what is older, by more than file times lag, was the run's
    std::thread::sleep(std::time::Duration::from_millis(50));
    world.json(&["runs", "event", &run, "tool_called"]).expect(0);
    let verbs =
        [&["restore", &kept, "--yes"][..], &["rewind", &run, "--yes"], &["run", "--", "true"]];
    for verb in verbs {
        let refused = world.sandbox.run(verb).expect(5);
        assert!(refused.stderr.contains(&owner.pid()), "{refused}");
    }
    drop(owner);
    let list = world.json(&["runs", "list"]).expect(0).json();
    assert_eq!((list["owner_gone"].clone(), list["stale"].clone()), (json!(true), json!(false)));
    world.json(&["restore", &kept, "--dry-run"]).expect(0);
    world.json(&["rewind", &run, "--yes"]).expect(0);
    assert!(!world.sandbox.path("half.txt").exists());
    let record = world.record(&run);
    assert_eq!(record["status"], "paused_operator");
    assert_eq!(record["explicit_resume_required"], true);
    let there = world.labels(&run);
    assert!(there.iter().any(|(l, _)| l == "fail:work:0"), "{there:?}");
}

#[test]
fn run_lb02_a_run_without_an_owner_is_open_and_later_stale_and_never_fails_by_itself() {
    let world = World::new();
    let kept = world.sandbox.capture();
    let run = begin(&world, &[]);
    world.json(&["runs", "reconcile"]).expect(0);
    assert_eq!(world.status(&run), "running");
    // nothing of it executes between two steps
    world.json(&["restore", &kept, "--yes"]).expect(0);
    boundary(&world, &run, &["enter", "work"]);
    world.json(&["restore", &kept, "--yes"]).expect(5);
    // a day passes
    let path = world.sandbox.store().join("runs").join(&run);
    for name in ["run.json", "events.jsonl"] {
        let text = std::fs::read_to_string(path.join(name)).expect("there");
        let year = &text[text.find("\"20").expect("a time") + 1..][..4];
        std::fs::write(path.join(name), text.replace(&format!("\"{year}-"), "\"2019-"))
            .expect("write");
    }
    let row = world.json(&["runs", "list"]).expect(0).json();
    assert_eq!((row["stale"].clone(), row["owner_gone"].clone()), (json!(true), json!(false)));
    world.json(&["runs", "reconcile"]).expect(0);
    assert_eq!(world.status(&run), "running");
    world.json(&["restore", &kept, "--yes"]).expect(0);
    world.json(&["cancel", &run]).expect(0);
    assert_eq!(world.status(&run), "cancelled");
}
