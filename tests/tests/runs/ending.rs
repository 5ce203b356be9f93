//! How a run ends for whoever called it, and which run a word means.

use serde_json::json;

use crate::world::{World, end, until};

const ASKS: &str = "{kind: human, questions: {q: what?}}
  end: {kind: done}
edges: [{from: a, to: end}]";

fn ends(kind: &str) -> String {
    format!("entry: a\nnodes:\n  a: {kind}\n")
}

#[test]
fn run_cl01_every_ending_has_its_exit_code_and_json_agrees() {
    let world = World::new();
    let cases = [
        ("done", "{kind: done}", 0, "finished"),
        ("fail", "{kind: fail}", 1, "failed"),
        ("asks", ASKS, 9, "paused_waiting_human"),
    ];
    for (id, node, code, status) in cases {
        let run = world.flow(&ends(node)).run(id, &[]).expect(code).json();
        assert_eq!((&run["status"], &run["exit_code"]), (&json!(status), &json!(code)), "{run}");
        assert_eq!(world.status(id), status);
    }
    let child =
        |id: &str, script: &str| world.command(id, &["--child-exit"], &["sh", "-c", script]);
    assert_eq!(child("c0", "exit 0").code, 0);
    assert_eq!(child("c3", "exit 3").code, 3);
    assert_eq!(child("c75", "exit 75").code, 75);
    assert_eq!(child("c9", "kill -9 $$").code, 137);
    // without the flag the run's own code
    world.sandbox.run(["run", "--", "sh", "-c", "exit 3"]).expect(1);
    // output passes through byte for byte
    let run = world.sandbox.run(["run", "--", "printf", "a\\000\\033[1mb"]).expect(0);
    assert_eq!(run.stdout, b"a\0\x1b[1mb");
    // arguments are literal
    let run = world.sandbox.run(["run", "--", "printf", "%s|", "{{ x }}", "a b", "{%"]).expect(0);
    assert_eq!(run.out(), "{{ x }}|a b|{%|");
    // a file that is wrong creates nothing
    let before = world.json(&["runs", "list"]).expect(0).out().lines().count();
    let refused = world.flow("entry: b\nnodes: {a: {kind: done}}\n").run("bad", &[]).expect(2);
    assert_eq!(refused.error_code(), "bad-workflow");
    assert_eq!(world.json(&["runs", "list"]).expect(0).out().lines().count(), before);
    let file = world.file().display().to_string();
    let check = world.sandbox.run(["run", &file, "--check"]).expect(2);
    assert!(check.out().contains("error[W012]"), "{check}");
}

#[test]
fn run_cl02_a_run_is_named_by_id_prefix_name_and_latest() {
    let world = World::new();
    world.flow(&ends("{kind: done}"));
    world.run("one-1", &["--name", "first"]).expect(0);
    world.run("one-2", &["--name", "same"]).expect(0);
    world.run("two", &["--name", "same"]).expect(0);
    let id = |word: &str| world.record(word)["id"].as_str().expect("an id").to_owned();
    assert_eq!(id(&world.id("one-1")), world.id("one-1"));
    assert_eq!(id("tw"), world.id("two"));
    assert_eq!(id("first"), world.id("one-1"));
    assert_eq!(id("latest"), world.id("two"));
    for (word, code, error) in
        [("one", 2, "ambiguous"), ("same", 2, "ambiguous"), ("three", 6, "not-found")]
    {
        let run = world.json(&["runs", "show", word]).expect(code);
        assert_eq!(run.error_code(), error);
    }
    let candidates = world.json(&["runs", "show", "one"]).json()["error"]["candidates"].clone();
    assert_eq!(candidates.as_array().map(Vec::len), Some(2));
}

#[test]
fn run_cl02_every_verb_about_a_run_takes_the_same_words() {
    let world = World::new();
    for id in ["one-1", "one-2"] {
        world.flow(&ends("{kind: fail}")).run(id, &["--name", "same"]).expect(1);
    }
    world.flow(&ends(ASKS)).run("asks", &["--name", "mine"]).expect(9);
    let verbs: [&[&str]; 15] = [
        &["runs", "show"],
        &["runs", "artifacts"],
        &["runs", "delete", "--yes"],
        &["logs"],
        &["logs", "-f"],
        &["events"],
        &["resume"],
        &["answer"],
        &["pause"],
        &["cancel"],
        &["rewind", "--yes"],
        &["rewind", "--list-snapshots"],
        &["list", "--run"],
        &["show", "latest", "--run"],
        &["restore", "latest", "--yes", "--run"],
    ];
    let before = backtrail_tests::cli::tree(&world.sandbox.store());
    for verb in verbs {
        for (word, code, error) in [
            ("one", 2, "ambiguous"),
            ("same", 2, "ambiguous"),
            ("three", 6, "not-found"),
            ("a/b", 2, "bad-value"),
        ] {
            let args: Vec<&str> = verb.iter().copied().chain([word]).collect();
            let run = world.json(&args);
            assert_eq!((run.code, run.error_code().as_str()), (code, error), "{run}");
            if error != "ambiguous" {
                continue;
            }
            let text = run.json()["error"]["candidates"].to_string();
            for part in [&world.id("one-1"), &world.id("one-2"), "same", "s old", "failed"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }
    backtrail_tests::cli::assert_same_tree(
        &backtrail_tests::cli::tree(&world.sandbox.store()),
        &before,
    );
    let (id, prefix) = (world.id("asks"), "as");
    for word in [id.as_str(), prefix, "mine", "latest"] {
        assert_eq!(world.record(word)["id"], id.as_str(), "{word}");
        world.json(&["events", word]).expect(0);
        world.json(&["list", "--run", word]).expect(0);
        world.json(&["rewind", word, "--list-snapshots"]).expect(0);
    }
}

#[test]
fn run_cl02_latest_is_the_newest_of_this_workspace() {
    let mut world = World::new();
    world.flow(&ends("{kind: done}")).run("near", &[]).expect(0);
    let id = world.id("near");
    let (here, there) = (world.sandbox.workspace().to_owned(), world.sandbox.mkdir("../other"));
    world.sandbox.set_workspace(there);
    assert_eq!(world.json(&["runs", "show", "latest"]).expect(6).error_code(), "not-found");
    world.command("far", &[], &["true"]).expect(0);
    assert_eq!(world.record("latest")["id"], world.id("far").as_str());
    world.sandbox.set_workspace(here);
    assert_eq!(world.record("latest")["id"], id.as_str());
}

#[test]
fn run_cl04_a_run_that_executes_stays_whatever_a_prune_is_told() {
    let world = World::new();
    world.command("old", &[], &["true"]).expect(0);
    let wait = "echo started > started; while ! test -e go; do sleep 0.05; done";
    let id = world.id("active");
    let child = world.sandbox.spawn(["run", "--run-id", &id, "--json", "--", "sh", "-c", wait]);
    until("it runs", || world.sandbox.path("started").exists());
    world.flow(&ends(ASKS)).run("asks", &["--share-workspace"]).expect(9);
    let share = ["--share-workspace"];
    world.command("fails", &share, &["false"]).expect(1);
    world.command("new", &share, &["true"]).expect(0);
    let shown = |args: &[&str]| {
        let all: Vec<&str> =
            ["runs", "prune", "--older-than", "1ms", "--yes"].iter().chain(args).copied().collect();
        world.json(&all).expect(0).json()
    };
    assert_eq!(shown(&["--keep-last", "1"])["pruned"], json!([world.id("old")]));
    assert_eq!(shown(&["--status", "failed_resumable"])["pruned"], json!([world.id("fails")]));
    for stays in ["active", "asks", "new"] {
        world.record(stays);
    }
    // deleting it by name says what to do first
    for open in ["active", "asks"] {
        let refused = world.json(&["runs", "delete", open, "--yes"]);
        assert!(matches!(refused.code, 4 | 5), "{refused}");
        assert!(refused.json()["error"]["message"].is_string());
    }
    world.sandbox.write("go", "");
    end(child).expect(0);
    // its own snapshots are whole
    assert_eq!(world.at("active", "post:main:0", "started").as_deref(), Some("started\n"));
}
