//! What an engine that died leaves: who wrote what, and who may go on.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;

use crate::world::{World, end, lives, signal, until};

/// The file of that name below a directory.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    entries.filter_map(Result::ok).find_map(|entry| {
        let path = entry.path();
        match entry.file_type().is_ok_and(|t| t.is_dir()) {
            true => find(&path, name),
            false => (entry.file_name() == name).then_some(path),
        }
    })
}

/// Starts r1 with node a, lets the engine live for a heartbeat behind what the node wrote,
/// and kills both.
fn killed(world: &World) {
    let child = world.start("r1");
    let pid = world.sandbox.top().join("pid");
    until("the node ran", || std::fs::read_to_string(&pid).is_ok_and(|t| t.ends_with('\n')));
    let node: u32 = std::fs::read_to_string(&pid).expect("read").trim().parse().expect("a pid");
    let beat = || std::fs::read(find(&world.sandbox.home(), "heartbeat")?).ok();
    until("its heart beats", || beat().is_some());
    let last = beat();
    until("it beats once more", || beat() != last);
    signal(child.id(), Signal::KILL);
    signal(node, Signal::KILL);
    end(child);
    until("the node is gone", || !lives(node));
}

#[test]
fn run_bd10_what_was_the_runs_stays_the_runs_whoever_writes_it_again() {
    let world = World::new();
    let top = world.sandbox.top().display().to_string();
    world.flow(&format!(
        "entry: a
nodes:
  a: {{kind: run, command: 'echo made > made.txt; echo run > a.txt; test -e {top}/go || {{ echo $$ > {top}/pid; exec sleep 60; }}'}}
  end: {{kind: done}}
edges: [{{from: a, to: end}}]
"
    ));
    let before = world.sandbox.tree();
    killed(&world);
    world.sandbox.write("mine.txt", "mine\n");
    let mut wanted = before;
    wanted.extend(world.sandbox.tree().into_iter().filter(|(path, _)| path == b"mine.txt"));
    // the node makes the same again: nothing differs, but every file has another time
    std::fs::write(format!("{top}/go"), "").expect("write");
    until("it goes on", || world.json(&["resume", "r1"]).code != 5);
    assert_eq!(world.status("r1"), "finished");
    // and each way back and forth gives them another one
    for _ in 0..2 {
        world.json(&["rewind", "r1", "--yes"]).expect(0);
        backtrail_tests::cli::assert_same_tree(&world.sandbox.tree(), &wanted);
        world.json(&["undo", "--yes"]).expect(0);
        assert!(world.sandbox.path("made.txt").exists());
    }
}

#[test]
fn run_bd10_what_a_killed_engine_and_a_person_did_is_told_apart_by_time() {
    let world = World::new();
    for name in ["early.txt", "gone.txt", "both.txt"] {
        world.sandbox.write(name, "then\n");
    }
    let top = world.sandbox.top();
    world.flow(&format!(
        "entry: a
nodes:
  a: {{kind: run, command: 'echo half > half.txt; echo run > both.txt; chmod 600 a.txt; rm early.txt; echo $$ > {0}/pid; exec sleep 60'}}
  end: {{kind: done}}
edges: [{{from: a, to: end}}]
",
        top.display()
    ));
    killed(&world);
    // the person works on what is left
    world.sandbox.write("mine.txt", "mine\n");
    world.sandbox.write("both.txt", "mine too\n");
    world.sandbox.remove("gone.txt");
    until("it is in order", || world.json(&["runs", "reconcile"]).code == 0);
    assert_eq!(world.record("r1")["failure_code"], "PROCESS_ORPHANED");
    assert_eq!(world.at("r1", "fail:a:0", "half.txt").as_deref(), Some("half\n"));
    let done = world.json(&["rewind", "r1", "--yes"]).expect(0).json();
    let text = |path: &str| std::fs::read_to_string(world.sandbox.path(path)).ok();
    assert_eq!(text("half.txt"), None, "the run's");
    use std::os::unix::fs::PermissionsExt as _;
    let meta = std::fs::metadata(world.sandbox.path("a.txt")).expect("there");
    assert_ne!(meta.permissions().mode() & 0o777, 0o600, "the run's");
    assert_eq!(text("mine.txt").as_deref(), Some("mine\n"), "the person's");
    assert_eq!(text("both.txt").as_deref(), Some("mine too\n"), "changed by the person last");
    // whose deletions are cannot be told
    assert_eq!((text("early.txt"), text("gone.txt")), (None, None));
    let left = done["files"]["left_in_place"].as_array().expect("a list");
    let mut paths: Vec<&str> = left.iter().filter_map(|l| l["path"].as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["both.txt", "early.txt", "gone.txt", "mine.txt"]);
    assert!(left.iter().all(|l| l["reason"] == "unattributed"), "{left:?}");
}

#[test]
fn run_bd10_the_entry_of_a_short_node_is_known_after_the_engine_was_killed_in_it() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo a > made.txt; sleep 0.1'}
  b: {kind: run, command: 'echo half > half.txt; kill -9 $PPID'}
  end: {kind: done}
edges: [{from: a, to: b}, {from: b, to: end}]
",
    );
    end(world.start("r1"));
    until("it is in order", || world.json(&["runs", "reconcile"]).code == 0);
    assert_eq!(world.record("r1")["failure_code"], "PROCESS_ORPHANED");
    assert_eq!(world.label("r1", "pre:b:0"), world.label("r1", "post:a:0"));
    assert_eq!(world.at("r1", "pre:b:0", "half.txt"), None);
    assert_eq!(world.at("r1", "fail:b:0", "half.txt").as_deref(), Some("half\n"));
    // who wrote it after the last heartbeat cannot be told: it stays, and is named
    let done = world.json(&["rewind", "r1", "--node", "b", "--yes"]).expect(0).json();
    assert_eq!(done["files"]["left_in_place"][0]["path"], "half.txt");
    assert_eq!(done["files"]["left_in_place"][0]["reason"], "unattributed");
}

/// What a `.pid` or a holder may name: nobody, everybody's parent, us, a text.
const FORGED: [&str; 6] = ["1\n", "0\n", "-1\n", "abc", "", "4194304\n"];

#[test]
fn run_lk01_a_forged_pid_file_decides_nothing() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo $$ > pid; while ! test -e go; do sleep 0.05; done'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    let child = world.start("r1");
    let path = world.sandbox.path("pid");
    until("the node runs", || std::fs::read_to_string(&path).is_ok_and(|t| t.ends_with('\n')));
    let node: u32 = std::fs::read_to_string(&path).expect("read").trim().parse().expect("a pid");
    let file = world.sandbox.store().join("runs").join(world.id("r1")).join(".pid");
    let own = format!("{}\n", std::process::id());
    let all = || FORGED.into_iter().chain([own.as_str()]);
    // while it executes, nobody else may, whoever the file names
    for text in all() {
        std::fs::write(&file, text).expect("write");
        assert_eq!(world.json(&["resume", "r1"]).expect(5).error_code(), "busy", "{text:?}");
        let rewind = world.json(&["rewind", "r1", "--yes"]).expect(5);
        assert_eq!(rewind.json()["error"]["holder"]["pid"], child.id(), "{text:?}: {rewind}");
        let row = world.json(&["runs", "list"]).expect(0).json();
        assert_eq!(row["owner_gone"], false, "{text:?}");
    }
    signal(child.id(), Signal::KILL);
    signal(node, Signal::KILL);
    end(child);
    until("the node is gone", || !lives(node));
    // once it is gone, everybody may, though the file names a process that lives
    for text in all() {
        std::fs::write(&file, text).expect("write");
        let row = world.json(&["runs", "list"]).expect(0).json();
        assert_eq!(row["owner_gone"], true, "{text:?}");
        let shown = world.json(&["runs", "show", "r1"]).expect(0);
        let pid = text.trim().parse::<u32>().ok().filter(|pid| *pid > 0);
        assert_eq!(shown.json()["pid"], json!(pid), "{text:?}");
        assert_eq!(shown.stderr.contains(".pid"), pid.is_none(), "{text:?}: {shown}");
    }
    world.sandbox.write("go", "");
    until("it goes on", || world.json(&["resume", "r1"]).code != 5);
    assert_eq!(world.status("r1"), "finished");
    assert!(!file.exists(), "a stale one is removed");
}

#[test]
fn run_lk03_a_rewind_waits_for_the_end_of_what_a_lost_engine_started() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo made > made.txt; echo $$ > pid; exec sleep 60'}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    let child = world.start("r1");
    let path = world.sandbox.path("pid");
    until("the node runs", || std::fs::read_to_string(&path).is_ok_and(|t| t.ends_with('\n')));
    let node: u32 = std::fs::read_to_string(&path).expect("read").trim().parse().expect("a pid");
    signal(child.id(), Signal::KILL);
    end(child);
    let (files, record) = (world.sandbox.tree(), world.record("r1"));
    let forms: [&[&str]; 3] = [
        &["rewind", "r1", "--yes"],
        &["rewind", "r1", "--keep-files", "--yes"],
        &["rewind", "r1", "--restore-snapshot", "pre:a:0", "--yes"],
    ];
    for form in forms {
        let busy = world.json(form).expect(5);
        let message = busy.json()["error"]["message"].as_str().expect("text").to_owned();
        assert!(message.contains(&node.to_string()) && message.contains("sleep"), "{busy}");
    }
    backtrail_tests::cli::assert_same_tree(&world.sandbox.tree(), &files);
    assert_eq!(world.record("r1"), record);
    signal(node, Signal::KILL);
    until("the node is gone", || !lives(node));
    let mut code = 5;
    until("it can be rewound", || world.json(&["runs", "reconcile"]).code == 0);
    until("it is rewound", || {
        code = world.json(&["rewind", "r1", "--keep-files", "--yes"]).code;
        code != 5
    });
    assert_eq!((code, world.status("r1").as_str()), (0, "paused_operator"));
}
