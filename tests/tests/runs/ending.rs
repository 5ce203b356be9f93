//! How a run ends for whoever called it, and which run a word means.

use serde_json::json;

use crate::world::World;

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
