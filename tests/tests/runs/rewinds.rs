//! Rewinds through the command line, of runs that really ran.

use backtrail_tests::cli::{assert_same_tree, tree};
use serde_json::{Value, json};

use crate::world::World;

/// work, then a question, then a node that fails until `go` is there.
const ASKS: &str = "entry: work
nodes:
  work: {kind: run, command: 'echo worked >> work.txt; rm -f early.txt'}
  ask: {kind: human, questions: {fine: is it?}, answers: {fine: {type: bool}}}
  more: {kind: run, command: 'echo more > more.txt; test -e go'}
  end: {kind: done, output: {fine: '{{ outputs.ask.fine }}'}}
edges: [{from: work, to: ask}, {from: ask, to: more}, {from: more, to: end}]
";

fn failed() -> World {
    let world = World::new();
    world.sandbox.write("early.txt", "early\n");
    world.flow(ASKS);
    world.run("r1", &[]).expect(9);
    world.json(&["answer", "r1", "--answer", "fine=true"]).expect(1);
    world
}

#[test]
fn res_094_a_scope_that_is_none_changes_nothing_of_the_run() {
    let world = failed();
    world.sandbox.write("mine.txt", "mine\n");
    let (files, store) = (world.sandbox.tree(), tree(&world.sandbox.store()));
    for bad in ["Produced", "PRODUCED", "", "all", " full", "full "] {
        for form in [&["--yes"] as &[&str], &["--dry-run"], &["--node", "more", "--yes"]] {
            let scope = format!("--restore-scope={bad}");
            let args: Vec<&str> =
                ["rewind", "r1", &scope].into_iter().chain(form.iter().copied()).collect();
            world.json(&args).expect(2);
        }
    }
    // a usage error comes before any record is read: also of a run that is not there
    world.json(&["rewind", "nobody", "--restore-scope", "Produced", "--yes"]).expect(2);
    assert_same_tree(&world.sandbox.tree(), &files);
    assert_same_tree(&tree(&world.sandbox.store()), &store);
    assert_eq!(world.status("r1"), "failed_resumable");
}

#[test]
fn res_107_nothing_but_a_person_goes_on_with_a_rewound_run() {
    let world = failed();
    world.json(&["rewind", "r1", "--node", "more", "--yes"]).expect(0);
    let parked = world.record("r1");
    assert_eq!(parked["status"], "paused_operator");
    assert_eq!(parked["explicit_resume_required"], true);
    // what puts runs in order, and other runs, leave it
    world.json(&["runs", "reconcile"]).expect(0);
    world.command("other", &[], &["true"]).expect(0);
    world.sandbox.ok(["capture"]);
    world.json(&["runs", "prune", "--older-than", "1ms", "--yes"]).expect(0);
    assert_eq!(world.record("r1"), parked);
    world.sandbox.write("go", "");
    let run = world.json(&["resume", "r1"]).expect(0).json();
    assert_eq!(run["status"], "finished");
    let record = world.record("r1");
    assert!(record["explicit_resume_required"].is_null(), "{record}");
    assert_eq!(world.at("r1", "post:more:1", "more.txt").as_deref(), Some("more\n"));
}

#[test]
fn res_111_a_question_that_was_retired_is_asked_again() {
    let world = World::new();
    world.flow(ASKS);
    let asked = world.run("r1", &[]).expect(9).json();
    let first = asked["interaction"].as_str().expect("an id").to_owned();
    let done = world.json(&["rewind", "r1", "--node", "work", "--yes"]).expect(0).json();
    assert_eq!(done["retired_interactions"], json!([first]));
    assert!(!world.sandbox.path("work.txt").exists());
    // nothing is open now
    let none = world.json(&["answer", "r1", "--answer", "fine=true"]).expect(4);
    assert_eq!(none.error_code(), "no-question");
    let asked = world.json(&["resume", "r1"]).expect(9).json();
    let second = asked["interaction"].as_str().expect("an id").to_owned();
    assert_eq!(second, format!("{first}.1"));
    assert_eq!(asked["questions"], json!({"fine": "is it?"}));
    let old = ["answer", "r1", "--interaction", &first, "--answer", "fine=false"];
    assert_eq!(world.json(&old).expect(4).error_code(), "other-question");
    world.sandbox.write("go", "");
    let new = ["answer", "r1", "--interaction", &second, "--answer", "fine=true"];
    assert_eq!(world.json(&new).expect(0).json()["result"], json!({"fine": true}));
    // one that was answered before the rewind does not satisfy the gate again
    let world = failed();
    world.json(&["rewind", "r1", "--node", "work", "--yes"]).expect(0);
    let asked = world.json(&["resume", "r1"]).expect(9).json();
    assert_eq!(asked["interaction"], format!("{}_ask.1", world.id("r1")));
}

fn snapshot_file(world: &World, snapshot: &str) -> std::path::PathBuf {
    let run = world.sandbox.store().join("runs").join(world.id("r1"));
    run.join("workspace/snapshots").join(format!("{snapshot}.json"))
}

#[test]
fn res_116_one_snapshot_of_a_failed_run_and_a_list_that_shows_what_is_bad() {
    let world = failed();
    world.sandbox.write("mine.txt", "mine\n");
    let (before, ended) = (world.record("r1"), world.sandbox.tree());
    let args = ["rewind", "r1", "--restore-snapshot", "pre:work:0", "--yes"];
    world.json(&args).expect(0);
    let text = |path: &str| std::fs::read_to_string(world.sandbox.path(path)).ok();
    assert_eq!((text("early.txt"), text("work.txt")), (Some("early\n".into()), None));
    assert_eq!(world.record("r1"), before, "status, error and checkpoint stay");
    world.json(&["undo", "--yes"]).expect(0);
    assert_same_tree(&world.sandbox.tree(), &ended);
    // every label of each snapshot, banks included
    let list = world.json(&["rewind", "r1", "--list-snapshots"]).expect(0).json();
    let rows = list["snapshots"].as_array().expect("rows");
    let labels: Vec<&str> = rows
        .iter()
        .flat_map(|r| r["labels"].as_array().expect("labels"))
        .filter_map(Value::as_str)
        .collect();
    for (label, _) in world.labels("r1") {
        assert!(labels.contains(&label.as_str()), "{label} in {labels:?}");
    }
    assert!(rows.iter().any(|r| r["bank"] == true), "{list}");
    // a bad document is one row
    let bad = world.label("r1", "post:work:0");
    std::fs::write(snapshot_file(&world, &bad), "{\"id\": 7").expect("write");
    let list = world.json(&["rewind", "r1", "--list-snapshots"]).expect(7).json();
    assert_eq!(list["snapshots"].as_array().map(Vec::len), Some(rows.len() - 1), "{list}");
    let unreadable = list["unreadable"].as_array().expect("rows");
    assert_eq!((unreadable.len(), &unreadable[0]["id"]), (1, &json!(bad)), "{list}");
    for form in [&["--list-snapshots"] as &[&str], &["--restore-snapshot", "latest", "--yes"]] {
        let args: Vec<&str> =
            ["rewind", "nobody"].into_iter().chain(form.iter().copied()).collect();
        assert_eq!(world.json(&args).expect(6).error_code(), "not-found");
    }
}

/// Refused for `reason`, nothing changed; what it says.
fn refused(world: &World, node: &str, reason: &str) -> String {
    let (files, record) = (world.sandbox.tree(), world.record("r1"));
    let run = world.json(&["rewind", "r1", "--node", node, "--yes"]).expect(4);
    assert_eq!(run.error_code(), reason, "{run}");
    let error = run.json()["error"].clone();
    assert!(error["hint"].to_string().contains("--keep-files"), "{run}");
    assert_same_tree(&world.sandbox.tree(), &files);
    assert_eq!(world.record("r1"), record, "before the run is parked");
    // the record alone can be rewound
    let kept = world.json(&["rewind", "r1", "--node", node, "--keep-files", "--yes"]).expect(0);
    assert_eq!(kept.json()["files"]["skip_reason"], "scope-none");
    assert_same_tree(&world.sandbox.tree(), &files);
    assert_eq!(world.status("r1"), "paused_operator");
    error["message"].as_str().expect("text").to_owned()
}

const FAILS: &str = "entry: a
nodes: {a: {kind: run, command: 'echo a > made.txt; exit 1'}, end: {kind: done}}
edges: [{from: a, to: end}]
";

#[test]
fn res_102_a_run_without_boundaries_says_which_of_the_reasons_it_is() {
    let world = World::new();
    world.flow(FAILS).run("r1", &["--capture", "off"]).expect(1);
    refused(&world, "a", "versioning-off");

    let mut world = World::new();
    world.sandbox.write("b.txt", "two\n");
    world.sandbox.env("BACKTRAIL_MAX_FILES", "1");
    world.flow(FAILS).run("r1", &["--capture", "best_effort"]).expect(1);
    refused(&world, "a", "over-file-limit");

    // its engine died before the first capture
    let mut world = World::new();
    world.sandbox.env("BACKTRAIL_FAULT", "run.created:1:kill");
    world.flow(FAILS).run("r1", &[]).expect(137);
    world.sandbox.env_remove("BACKTRAIL_FAULT");
    world.json(&["runs", "reconcile"]).expect(0);
    refused(&world, "a", "nothing-captured");

    let world = World::new();
    world.flow(FAILS).run("r1", &["--capture", "off"]).expect(1);
    let path = world.sandbox.store().join("runs").join(world.id("r1")).join("run.json");
    let mut record = world.record("r1");
    for gone in ["work_dir", "versioning"] {
        record.as_object_mut().expect("an object").remove(gone);
    }
    std::fs::write(&path, record.to_string()).expect("write");
    refused(&world, "a", "no-workspace");
}

#[test]
fn res_102_a_boundary_that_was_too_slow_is_named_with_its_cause() {
    let mut world = World::new();
    let top = world.sandbox.top().display().to_string();
    world.sandbox.env("BIN", env!("CARGO_BIN_EXE_backtrail-under-test"));
    world.sandbox.env("BACKTRAIL_CAPTURE_TIMEOUT", "500ms");
    // a capture inside the node hangs and holds the chain, until the next node ends it
    let hang = format!(
        "echo a > a.txt; \
         BACKTRAIL_FAULT=capture.document:1:stop $BIN capture >/dev/null 2>&1 & echo $! > {top}/pid; \
         while ! grep -q \"State:.T\" /proc/$(cat {top}/pid)/status; do sleep 0.05; done"
    );
    world.flow(&format!(
        "entry: a
nodes:
  a: {{kind: run, background: keep, command: {}}}
  b: {{kind: run, command: 'kill -9 $(cat {top}/pid); echo b > b.txt; exit 1'}}
  end: {{kind: done}}
edges: [{{from: a, to: b}}, {{from: b, to: end}}]
",
        json!(hang)
    ));
    world.run("r1", &[]).expect(1);
    let why = refused(&world, "b", "no-boundary");
    assert!(why.contains("pre:b:0") && why.contains("took longer than 500ms"), "{why}");
    let shown = world.json(&["runs", "show", "r1"]).expect(0).json();
    assert!(shown["missed"]["pre:b:0"]["reason"].to_string().contains("500ms"), "{shown}");
    // what came before and behind it is there
    assert_eq!(world.at("r1", "fail:b:0", "b.txt").as_deref(), Some("b\n"));
    world.json(&["rewind", "r1", "--node", "a", "--yes"]).expect(0);
    assert!(!world.sandbox.path("b.txt").exists());
}

#[test]
fn a_rewind_of_a_run_of_another_workspace_says_where_it_works() {
    let mut world = World::new();
    world.sandbox.write("kept.txt", "before\n");
    world.command("r1", &[], &["sh", "-c", "echo run > kept.txt"]).expect(0);
    let theirs = world.sandbox.workspace().display().to_string();
    let other = world.sandbox.top().join("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("kept.txt"), "other\n").expect("written");
    world.sandbox.set_workspace(&other);
    let done = world.sandbox.run(["rewind", &world.id("r1"), "--yes"]).expect(0);
    let told = format!("the run's workspace is {theirs}");
    assert!(done.stderr.contains(&told), "{}", done.stderr);
    assert_eq!(std::fs::read(other.join("kept.txt")).expect("there"), b"other\n");
    assert_eq!(std::fs::read(format!("{theirs}/kept.txt")).expect("there"), b"before\n");
}

#[test]
fn res_095_in_a_worktree_of_the_run_all_goes_back_unless_produced_is_asked_for() {
    for (scope, mine_stays) in [(None, false), (Some("produced"), true), (Some("none"), true)] {
        let mut world = World::new();
        let git = |world: &World, args: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.args(["-c", "user.name=me", "-c", "user.email=me@here"]).args(args);
            let done = command.current_dir(world.sandbox.workspace()).output().expect("git");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        for args in [&["init", "-q"] as &[&str], &["add", "-A"], &["commit", "-q", "-m", "one"]] {
            git(&world, args);
        }
        let made = world.sandbox.top().join("made");
        let path = made.display().to_string();
        git(&world, &["worktree", "add", "-q", "-b", "of-the-run", &path]);
        world.sandbox.set_workspace(&made);
        world.flow(FAILS).run("r1", &[]).expect(1);
        // as the record of a run says for which the worktree was made
        let file = world.sandbox.store().join("runs").join(world.id("r1")).join("run.json");
        let mut record = world.record("r1");
        record["worktree"] = json!(path);
        std::fs::write(&file, record.to_string()).expect("write");
        world.sandbox.write("mine.txt", "by hand\n");
        let mut args = vec!["rewind", "r1", "--yes", "--allow-mass-delete"];
        args.extend(scope.map(|s| ["--restore-scope", s]).into_iter().flatten());
        let done = world.json(&args).expect(0).json();
        assert_eq!(done["files"]["restore_scope"], scope.unwrap_or("full"), "{done}");
        let there = |name: &str| world.sandbox.path(name).exists();
        assert_eq!(there("mine.txt"), mine_stays, "{scope:?}");
        assert_eq!(there("made.txt"), scope == Some("none"), "{scope:?}");
        assert!(there("a.txt") && there(".git"));
        if scope.is_none() {
            world.json(&["undo", "--yes"]).expect(0);
            assert!(there("mine.txt") && there("made.txt"));
        }
    }
}
