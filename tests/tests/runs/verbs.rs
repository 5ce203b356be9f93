//! The verbs about runs: what they print, refuse and leave alone.

use std::path::Path;

use serde_json::json;

use crate::world::World;

#[test]
fn run_bd02_two_pauses_in_one_iteration_keep_all_their_snapshots() {
    let world = World::new();
    let script = r#"
n=$(grep -o name $BACKTRAIL_ANSWERS 2>/dev/null | wc -l)
test $n = 2 && exit 0
echo $n > asked.txt
echo '{"questions": {"name": "who?"}}' > $BACKTRAIL_QUESTION; exit 75"#;
    let script = serde_json::Value::from(script);
    world.flow(&format!(
        "entry: a
nodes: {{a: {{kind: run, command: {script}}}, end: {{kind: done}}}}
edges: [{{from: a, to: end}}]
"
    ));
    world.run("r1", &[]).expect(9);
    for (n, code) in [(0, 9), (1, 0)] {
        world.sandbox.write("mine.txt", format!("{n}\n"));
        world.json(&["answer", "r1", "--answer", "name=me"]).expect(code);
    }
    let own: Vec<String> = world
        .snapshots("r1")
        .iter()
        .filter_map(|s| s["label_at_capture"].as_str().or(s["label"].as_str()).map(str::to_owned))
        .collect();
    let stops = own.iter().filter(|l| *l == "pause:a:0").count();
    let returns = own.iter().filter(|l| *l == "resume:a:0").count();
    assert_eq!((stops, returns), (2, 2), "{own:?}");
    assert_eq!(world.at("r1", "pre:a:0", "asked.txt"), None, "the first stays");
    assert_eq!(world.at("r1", "resume:a:0", "mine.txt").as_deref(), Some("1\n"));
}

#[test]
fn run_bd11_a_fan_out_has_boundaries_only_around_it() {
    let world = World::new();
    world.flow(
        "entry: fan
nodes:
  fan: {kind: parallel, branches: [a, b], join: end}
  a: {kind: run, command: 'echo a > a1.txt'}
  b: {kind: run, command: 'echo b > b1.txt'}
  end: {kind: done}
edges: [{from: a, to: end}, {from: b, to: end}]
",
    );
    world.run("r1", &[]).expect(0);
    let mut names: Vec<String> = world.labels("r1").into_iter().map(|(l, _)| l).collect();
    names.sort();
    assert_eq!(names, ["post:end:0", "post:fan:0", "pre:end:0", "pre:fan:0"]);
    assert_eq!(world.at("r1", "post:fan:0", "b1.txt").as_deref(), Some("b\n"));
}

#[test]
fn run_bd15_git_variables_reach_commands_and_steer_nobody_else() {
    let mut world = World::new();
    let foreign = world.sandbox.top().join("foreign/.git");
    std::fs::create_dir_all(&foreign).expect("mkdir");
    std::fs::write(foreign.join("HEAD"), "ref: refs/heads/main\n").expect("write");
    let before = backtrail_tests::cli::tree(&foreign);
    world.sandbox.env("GIT_DIR", &foreign);
    world.command("r1", &[], &["sh", "-c", "echo $GIT_DIR > seen"]).expect(0);
    let seen = world.at("r1", "post:main:0", "seen").expect("a file");
    assert_eq!(Path::new(seen.trim_end()), foreign);
    assert_eq!(world.record("r1")["work_dir"], world.sandbox.workspace().display().to_string());
    backtrail_tests::cli::assert_same_tree(&backtrail_tests::cli::tree(&foreign), &before);
}

#[test]
fn run_bd16_a_capture_in_a_node_is_a_step_of_the_run() {
    let mut world = World::new();
    world.sandbox.env("BIN", env!("CARGO_BIN_EXE_backtrail-under-test"));
    let script = "echo one > s.txt; $BIN capture --quiet; echo two > s.txt";
    world.command("r1", &[], &["sh", "-c", script]).expect(0);
    let step = world.label("r1", "step:0");
    assert_eq!(world.at("r1", "step:0", "s.txt").as_deref(), Some("one\n"));
    let post = world.label("r1", "post:main:0");
    let rows = world.snapshots("r1");
    let row = rows.iter().find(|s| s["id"] == post.as_str()).expect("a row");
    assert_eq!(row["parent"], step.as_str(), "{row}");
}

#[test]
fn run_wf16_a_secret_missing_on_resume_changes_nothing() {
    let world = World::new();
    world.flow(
        "entry: a
inputs: {key: {type: string, required: true, secret: true}}
nodes: {a: {kind: run, command: 'test -e go'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    world.run("r1", &["--input", "key=hunter2hunter2"]).expect(1);
    assert_eq!(world.record("r1")["inputs"], json!({"key": "[redacted]"}));
    let before = world.record("r1");
    assert_eq!(world.json(&["resume", "r1"]).expect(2).error_code(), "missing-secret");
    assert_eq!(world.record("r1"), before);
    world.sandbox.write("go", "");
    world.json(&["resume", "r1", "--input", "key=hunter2hunter2"]).expect(0);
}

#[test]
fn run_cl03_deleting_asks_first_and_a_dry_run_says_what_it_would_do() {
    let world = World::new();
    world.command("r1", &[], &["true"]).expect(0);
    let before = backtrail_tests::cli::tree(&world.sandbox.store());
    for args in [["runs", "delete", "r1"], ["runs", "prune", "--keep-last=1"]] {
        let keeps = args[1] == "prune";
        world.json(&args).expect(if keeps { 0 } else { 4 });
    }
    world.json(&["runs", "prune", "--older-than", "0ms"]).expect(2);
    world.json(&["runs", "prune", "--older-than", "1ms"]).expect(4);
    let dry = world.json(&["runs", "prune", "--older-than", "1ms", "--dry-run"]).expect(0).json();
    backtrail_tests::cli::assert_same_tree(
        &backtrail_tests::cli::tree(&world.sandbox.store()),
        &before,
    );
    assert_eq!(dry["pruned"], json!([world.id("r1")]));
    let done = world.json(&["runs", "prune", "--older-than", "1ms", "--yes"]).expect(0).json();
    assert_eq!(done["pruned"], dry["pruned"]);
    world.json(&["runs", "show", &world.id("r1")]).expect(6);
    world.json(&["runs", "delete", &world.id("r1"), "--yes"]).expect(0);
}

#[test]
fn run_cl04_prune_refuses_what_it_cannot_mean_and_spares_what_is_open() {
    let world = World::new();
    let bad: [&[&str]; 4] = [
        &["runs", "prune", "--keep-last", "0"],
        &["runs", "prune", "--keep-last=-1"],
        &["runs", "prune", "--older-than=-1h"],
        &["runs", "prune", "--older-than", "1h", "--status", "running"],
    ];
    for args in bad {
        world.json(args).expect(2);
    }
    let none = world.json(&["runs", "prune", "--older-than", "1h"]).expect(0).json();
    assert_eq!((&none["scanned"], &none["pruned_count"]), (&json!(0), &json!(0)));
    world.flow(
        "entry: ask
nodes: {ask: {kind: human, questions: {q: what?}}, end: {kind: done}}
edges: [{from: ask, to: end}]
",
    );
    world.run("asks", &[]).expect(9);
    world.command("failed", &[], &["false"]).expect(1);
    world.command("done-1", &[], &["true"]).expect(0);
    world.command("done-2", &[], &["true"]).expect(0);
    let args = ["runs", "prune", "--older-than", "1ms", "--keep-last", "1", "--yes"];
    let done = world.json(&args).expect(0).json();
    assert_eq!(done["pruned"], json!([world.id("done-1")]));
    for stays in ["asks", "failed", "done-2"] {
        world.record(stays);
    }
}

#[test]
fn run_cl05_nothing_of_others_reaches_a_terminal_as_a_command() {
    let world = World::new();
    world.flow(
        "entry: a
nodes: {a: {kind: fail, message: \"red \\e[31m\"}}
",
    );
    let file = world.file().display().to_string();
    let id = world.id("r1");
    let named = "n\u{1b}[2Jame";
    let run = world.sandbox.run(["run", &file, "--run-id", &id, "--name", named]).expect(1);
    assert!(!run.out().contains('\u{1b}') && !run.stderr.contains('\u{1b}'), "{run}");
    for args in [vec!["runs", "list"], vec!["runs", "show", "r1"], vec!["events", "r1"]] {
        let run = world.sandbox.run(&args).expect(0);
        assert!(!run.out().contains('\u{1b}'), "{run}");
    }
}

#[test]
fn run_cl06_no_git_no_repository_and_an_empty_directory_are_enough() {
    let mut world = World::new();
    world.sandbox.remove("a.txt");
    let empty = world.sandbox.mkdir("../empty");
    world.sandbox.env("PATH", empty);
    world.command("r1", &[], &["/bin/sh", "-c", "echo x > f"]).expect(0);
    world.command("r2", &[], &["/bin/sh", "-c", "exit 1"]).expect(1);
    let verbs: [&[&str]; 8] = [
        &["runs", "list"],
        &["runs", "show", "latest"],
        &["runs", "artifacts", "latest"],
        &["runs", "reconcile"],
        &["logs", "latest"],
        &["events", "latest"],
        &["cancel", "latest"],
        &["runs", "prune", "--older-than", "1h"],
    ];
    for args in verbs {
        world.json(args).expect(0);
    }
    world.json(&["resume", "latest"]).expect(1);
    world.json(&["runs", "delete", "r1", "--yes"]).expect(0);
}

/// The workflow files of `docs/examples`, and those that a document shows.
fn documented() -> Vec<(String, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let read = |file: &Path| std::fs::read_to_string(file).expect("read");
    let mut out = Vec::new();
    for entry in std::fs::read_dir(docs.join("examples")).expect("examples") {
        let file = entry.expect("entry").path();
        out.push((file.display().to_string(), read(&file)));
    }
    let shown = read(&docs.join("workflows.md"));
    let blocks = shown.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    out.extend(blocks.map(|b| (String::from("docs/workflows.md"), b.to_owned())));
    out
}

#[test]
fn run_va03_every_example_runs() {
    let documented = documented();
    assert!(documented.len() >= 5 && documented.iter().any(|(from, _)| from.ends_with(".md")));
    for (from, text) in documented {
        let world = World::new();
        let file = world.sandbox.home().join("flow.yaml");
        std::fs::write(&file, &text).expect("write");
        let name = file.display().to_string();
        world.sandbox.run(["run", &name, "--check"]).expect(0);
        let mut args = vec!["run", &name, "--json"];
        for (input, value) in [("task:", "task=tidy up"), ("issue:", "issue=7")] {
            if text.contains(input) {
                args.extend(["--input", value]);
            }
        }
        let mut run = world.sandbox.run(&args);
        while run.code == 9 {
            let shown = world.json(&["answer", "latest"]).expect(2).json();
            let mut args = vec![String::from("answer"), String::from("latest")];
            for (key, spec) in shown["answers"].as_object().expect("a schema") {
                let value = match spec["type"].as_str() {
                    Some("bool") => String::from("true"),
                    Some("int" | "number") => String::from("1"),
                    _ => spec["choices"][0].as_str().unwrap_or("fine").to_owned(),
                };
                args.extend([String::from("--answer"), format!("{key}={value}")]);
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            run = world.json(&args);
        }
        assert_eq!(run.code, 0, "{from}: {run}");
    }
}

#[test]
fn run_ev07_offsets_cut_exactly_what_a_node_printed() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo from a; echo more'}
  b: {kind: run, command: 'echo from b 1>&2'}
  end: {kind: done}
edges: [{from: a, to: b}, {from: b, to: a, when: 'node.iteration < 1', loop: again, max: 1}, {from: b, to: end}]
",
    );
    world.run("r1", &[]).expect(0);
    let log = |more: &[&str]| {
        let args = ["logs", "r1"].iter().chain(more);
        world.sandbox.run(args).expect(0).out()
    };
    assert_eq!(log(&["--node", "a", "--iteration", "0"]), "from a\nmore\n");
    assert_eq!(log(&["--node", "b"]), "from b\nfrom b\n");
    assert_eq!(log(&["--tail", "1"]), "from b\n");
    let kinds = world.kinds("r1");
    let first: Vec<&str> = kinds.iter().map(String::as_str).take(4).collect();
    assert_eq!(first, ["run_started", "node_started a", "node_finished a", "edge_selected"]);
    assert_eq!(kinds.last().map(String::as_str), Some("run_finished"));
    let seqs: Vec<u64> = world.events("r1").iter().filter_map(|e| e["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn a_preview_of_a_rewind_shows_what_changes_of_the_record() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo a > made; echo {} > \"$BACKTRAIL_OUTPUT\"', publish: plan}
  b: {kind: run, command: 'exit 1'}
  end: {kind: done}
edges: [{from: a, to: b}, {from: b, to: end}]
",
    );
    world.run("r1", &[]).expect(1);
    let id = world.id("r1");
    let before = world.record("r1");
    let shown = world.sandbox.run(["rewind", &id, "--node", "a", "--dry-run"]).expect(0);
    let text = format!("{}{}", shown.out(), shown.stderr);
    let lines = [
        "record: from node b to a:0",
        "outputs dropped: a, b",
        "artifacts superseded: a by version 1",
    ];
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    let json = world.json(&["rewind", &id, "--node", "a", "--dry-run"]).expect(0).json();
    assert_eq!((&json["from_node"], &json["to_node"]), (&"b".into(), &"a".into()), "{json}");
    assert_eq!(json["tombstoned_artifacts"], serde_json::json!({"a": 1}));
    assert_eq!(json["dropped_nodes"], serde_json::json!(["a", "b"]));
    assert_eq!((&json["record"], &json["planned"]), (&"rewound".into(), &true.into()));
    assert_eq!(world.record("r1"), before);
    // whoever is asked sees it before the answer
    let command = world.sandbox.command(["rewind", &id, "--node", "a"]);
    let asked = backtrail_tests::host::at_terminal(command, "n\n");
    assert!(lines.iter().all(|line| asked.stderr.contains(line)), "{}", asked.stderr);
    assert_eq!(world.record("r1"), before);
}

#[test]
fn a_command_works_in_the_directory_where_it_is_given() {
    let mut world = World::new();
    world.sandbox.write("sub/dir/x", "x\n");
    world.sandbox.write("kept", "kept\n");
    let top = world.sandbox.workspace().to_owned();
    world.sandbox.set_workspace(top.join("sub/dir"));
    let empties = "rm -rf ./*; echo made > made";
    let id = world.id("r1");
    let mut command = world.sandbox.command(["run", "--run-id", &id, "-w"]);
    command.arg(&top).args(["--", "sh", "-c", empties]).current_dir(top.join("sub/dir"));
    backtrail_tests::cli::finish(command).expect(0);
    assert!(top.join("kept").exists() && !top.join("sub/dir/x").exists());
    assert!(top.join("sub/dir/made").exists() && !top.join("made").exists());
}

#[test]
fn a_workflow_that_asks_for_a_worktree_does_not_run_in_the_workspace() {
    let world = World::new();
    world.flow(
        "worktree: auto
entry: a
nodes: {a: {kind: run, command: 'echo x > made'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    let refused = world.run("r1", &[]).expect(4);
    assert_eq!(refused.error_code(), "no-worktree");
    assert!(!world.sandbox.path("made").exists());
}
