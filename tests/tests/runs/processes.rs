//! Stopping: cancel, signals, pause, and processes left behind.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::world::{World, end, lives, pid_in, signal, until};

#[test]
fn run_pr01_a_cancel_ends_what_fled_into_its_own_session() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, grace: 1s, command: 'echo half > half.txt; setsid sh -c \"echo \\$\\$ > fled; exec sleep 300\" & echo $$ > main; wait'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    let child = world.start("r1");
    let (main, fled) = (pid_in(&world, "main"), pid_in(&world, "fled"));
    let began = Instant::now();
    world.json(&["cancel", "r1"]).expect(0);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(end(child).expect(1).json()["status"], "cancelled");
    assert!(!lives(main) && !lives(fled));
    assert_eq!(world.at("r1", "fail:a:0", "half.txt").as_deref(), Some("half\n"));
    assert!(world.kinds("r1").contains(&String::from("run_cancelled a")));
    // the same node on resume, in the same iteration
    world.sandbox.remove("half.txt");
    let child = {
        let resumed = world.sandbox.spawn(["resume", "r1", "--json"]);
        until("it runs again", || world.sandbox.path("half.txt").exists());
        resumed
    };
    assert_eq!(world.record("r1")["checkpoint"]["node_id"], "a");
    world.json(&["cancel", "r1"]).expect(0);
    end(child).expect(1);
    assert_eq!(world.record("r1")["checkpoint"]["current"]["iteration"], 0);
    assert_eq!(world.record("r1")["checkpoint"]["current"]["attempt"], 2);
}

#[test]
fn run_pr02_signals_interrupt_and_pause_parks() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, grace: 60s, command: 'trap \"\" TERM; echo $$ > main; while :; do sleep 0.1; done'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    // the second signal skips the grace
    let child = world.start("r1");
    let main = pid_in(&world, "main");
    signal(child.id(), Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    assert!(lives(main));
    let began = Instant::now();
    signal(child.id(), Signal::TERM);
    let run = end(child).expect(143).json();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(run["status"], "failed_resumable");
    assert_eq!(run["failure_code"], "INTERRUPTED");
    assert!(world.kinds("r1").contains(&String::from("run_interrupted")));
    assert!(!lives(main));
    world.label("r1", "fail:a:0");
    // a child that ignores TERM is killed after its grace
    world.flow(
        "entry: a
nodes:
  a: {kind: run, grace: 300ms, command: 'trap \"\" TERM; echo $$ > again; while :; do sleep 0.1; done'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    let child = world.start("r2");
    let main = pid_in(&world, "again");
    signal(child.id(), Signal::INT);
    assert_eq!(end(child).expect(130).json()["failure_code"], "INTERRUPTED");
    assert!(!lives(main));
    // pause lets the node end
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo $$ > third; while ! test -e go; do sleep 0.1; done'}
  b: {kind: run, command: 'touch late'}
  end: {kind: done}
edges: [{from: a, to: b}, {from: b, to: end}]
",
    );
    let child = world.start("r3");
    pid_in(&world, "third");
    let pausing = world.sandbox.spawn(["pause", "r3", "--reason", "lunch", "--json"]);
    until("it is asked", || !world.record("r3")["pause_requested_at"].is_null());
    std::thread::sleep(Duration::from_millis(700));
    world.sandbox.write("go", "");
    assert_eq!(end(child).expect(9).json()["status"], "paused_operator");
    end(pausing).expect(0);
    let paused = world.events("r3").into_iter().find(|e| e["type"] == "run_paused");
    assert_eq!(paused.expect("told")["data"]["reason"], "lunch");
    assert!(!world.sandbox.path("late").exists());
    world.json(&["resume", "r3"]).expect(0);
    assert!(world.sandbox.path("late").exists());
}

#[test]
fn a_run_that_does_not_react_is_killed_when_asked() {
    let world = World::new();
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'echo half > half; echo $$ > pid; sleep 600'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    let child = world.start("r1");
    let node = pid_in(&world, "pid");
    signal(child.id(), Signal::STOP);
    let busy = world.json(&["cancel", "r1", "--wait", "1s", "--reason", "stuck"]).expect(5);
    assert!(busy.json()["error"]["hint"].to_string().contains("--kill"), "{busy}");
    let cancel = ["cancel", "r1", "--wait", "1s", "--kill"];
    assert_eq!(world.json(&cancel).expect(0).json()["status"], "cancelled");
    assert_eq!(end(child).code, 137);
    assert!(!lives(node));
    assert_eq!(world.record("r1")["error"], "stuck");
    assert_eq!(world.at("r1", "fail:a:0", "half").as_deref(), Some("half\n"));
}

#[test]
fn run_pr03_a_writer_left_behind_is_stopped_before_the_capture() {
    let world = World::new();
    let writer = "(while :; do echo x >> grows; sleep 0.05; done) & echo $! > pid";
    let run = world.command("r1", &[], &["sh", "-c", writer]).expect(0).json();
    let pid = pid_in(&world, "pid");
    assert!(!lives(pid));
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("left processes behind"), "{warnings}");
    let now = std::fs::read_to_string(world.sandbox.path("grows")).expect("read");
    assert_eq!(world.at("r1", "post:main:0", "grows"), Some(now));
    // kept only when asked
    let keeper = "sleep 30 & echo $! > kept";
    world.command("r2", &["--keep-children"], &["sh", "-c", keeper]).expect(0);
    let pid = pid_in(&world, "kept");
    assert!(lives(pid));
    signal(pid, Signal::KILL);
}

#[test]
fn run_pr04_a_detached_run_goes_on_without_who_started_it() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo working; echo $$ > node; while ! test -e go; do sleep 0.1; done'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    let started = world.run("r1", &["--detach"]).expect(0).json();
    assert_eq!(started["run_id"], world.id("r1").as_str());
    // the record is there at once, and its process has a session of its own
    let record = world.record("r1");
    assert_eq!(record["status"], "running");
    let engine = u32::try_from(record["holder"]["pid"].as_u64().expect("a pid")).expect("small");
    let pid_file = world.sandbox.store().join("runs").join(world.id("r1")).join(".pid");
    until("its pid is there", || pid_file.exists());
    assert_eq!(std::fs::read_to_string(&pid_file).expect("read"), format!("{engine}\n"));
    let stat = std::fs::read_to_string(format!("/proc/{engine}/stat")).expect("stat");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3));
    assert_eq!(session, Some(engine.to_string().as_str()));
    // its log is followed from elsewhere to the end of the run
    let following = world.sandbox.spawn(["logs", "r1", "-f"]);
    pid_in(&world, "node");
    world.sandbox.write("go", "");
    let log = end(following).expect(0);
    assert!(log.out().contains("working\n"), "{log}");
    assert_eq!(world.status("r1"), "finished");
    until("its pid is gone", || !pid_file.exists());
    // it is cancelled from elsewhere, and a start that fails says why
    world.sandbox.remove("go");
    world.sandbox.remove("node");
    world.run("r2", &["--detach"]).expect(0);
    pid_in(&world, "node");
    let busy = world.run("r3", &["--detach"]).expect(5);
    assert_eq!(busy.error_code(), "busy");
    world.json(&["cancel", "r2"]).expect(0);
    assert_eq!(world.status("r2"), "cancelled");
}
