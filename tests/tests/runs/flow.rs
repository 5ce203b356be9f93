//! Workflows from their first node to their last.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::World;

#[test]
fn run_wf01_conditions_failure_edges_and_defaults_lead_on() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo \"{\\\"n\\\": 2}\" > $BACKTRAIL_OUTPUT'}
  b: {kind: run, command: 'exit 4'}
  c: {kind: compute, set: {code: '{{ outputs.b._error.exit_code }}'}}
  end: {kind: done, output: {code: '{{ outputs.c.code }}'}}
  other: {kind: fail}
edges:
  - {from: a, to: other, when: outputs.a.n > 2}
  - {from: a, to: b}
  - {from: b, to: other}
  - {from: b, to: c, on: failure}
  - {from: c, to: end}
",
    );
    let run = world.run("r1", &[]).expect(0).json();
    assert_eq!(run["result"], json!({"code": 4}));
    let edges: Vec<String> = world
        .events("r1")
        .iter()
        .filter(|e| e["type"] == "edge_selected")
        .map(|e| {
            format!(
                "{}>{}",
                e["data"]["from"].as_str().unwrap_or(""),
                e["data"]["to"].as_str().unwrap_or("")
            )
        })
        .collect();
    assert_eq!(edges, ["a>b", "b>c", "c>end"]);
    // no edge leads on
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'true'}, end: {kind: done}}
edges: [{from: a, to: end, when: 'false'}]
",
    );
    let run = world.run("r2", &[]).expect(1).json();
    assert_eq!(run["failure_code"], "NO_OUTGOING_EDGE");
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'true'}, end: {kind: done}}
edges: [{from: a, to: end, when: 'false'}, {from: a, to: a, loop: again, max: 2}]
",
    );
    let run = world.run("r3", &[]).expect(1).json();
    assert_eq!(run["failure_code"], "LOOP_EXHAUSTED");
}

#[test]
fn run_wf05_bad_outputs_fail_with_a_position_and_never_hang() {
    let world = World::new();
    let outcome = |id: &str, command: &str| {
        let command = serde_json::Value::from(command);
        world.flow(&format!(
            "entry: a
nodes: {{a: {{kind: run, command: {command}}}, end: {{kind: done, output: {{a: '{{{{ outputs.a }}}}'}}}}}}
edges: [{{from: a, to: end}}]
"
        ));
        let run = world.run(id, &[]);
        (run.code, run.json())
    };
    let (code, run) = outcome("absent", "true");
    assert_eq!((code, &run["status"]), (0, &json!("finished")));
    let bad = [
        ("list", "echo '[]' > $BACKTRAIL_OUTPUT"),
        ("broken", "echo '{' > $BACKTRAIL_OUTPUT"),
        ("large", "head -c 2097152 /dev/zero > $BACKTRAIL_OUTPUT"),
        ("link", "ln -s /etc/passwd $BACKTRAIL_OUTPUT"),
        ("fifo", "mkfifo $BACKTRAIL_OUTPUT"),
        ("bytes", "printf '\\377' > $BACKTRAIL_OUTPUT"),
        ("tokens", "echo '{\"_tokens\": -1}' > $BACKTRAIL_OUTPUT"),
    ];
    for (id, command) in bad {
        let (code, run) = outcome(id, command);
        assert_eq!((code, &run["failure_code"]), (1, &json!("SCHEMA_VALIDATION")), "{id}: {run}");
        let error = run["error"].as_str().expect("an error");
        assert!(error.contains(", line ") && error.contains(", column "), "{id}: {error}");
    }
}

#[test]
fn run_wf07_a_command_asks_and_runs_again_with_the_answers() {
    let world = World::new();
    let script = r#"
if test -e $BACKTRAIL_ANSWERS && grep -q name $BACKTRAIL_ANSWERS; then
  echo "{\"attempt\": $BACKTRAIL_ATTEMPT, \"iteration\": $BACKTRAIL_ITERATION}" > $BACKTRAIL_OUTPUT
  cp $BACKTRAIL_ANSWERS answers.json; exit 0
fi
echo '{"questions": {"name": "who?"}}' > $BACKTRAIL_QUESTION; exit 75"#;
    let script = serde_json::Value::from(script);
    world.flow(&format!(
        "entry: a
nodes:
  a: {{kind: run, command: {script}}}
  end: {{kind: done, output: {{attempt: '{{{{ outputs.a.attempt }}}}', iteration: '{{{{ outputs.a.iteration }}}}'}}}}
edges: [{{from: a, to: end}}]
"
    ));
    let run = world.run("r1", &[]).expect(9).json();
    let question = format!("{}_a", world.id("r1"));
    assert_eq!(run["interaction"], question.as_str());
    assert_eq!(run["questions"], json!({"name": "who?"}));
    assert_eq!(world.json(&["resume", "r1"]).expect(4).error_code(), "needs-answers");
    let shown = world.json(&["answer", "r1"]).expect(2).json();
    assert_eq!(shown["questions"], json!({"name": "who?"}));
    let run = world.json(&["answer", "r1", "--answer", "name=me"]).expect(0).json();
    assert_eq!(run["result"], json!({"attempt": 2, "iteration": 0}));
    let answers = std::fs::read_to_string(world.sandbox.path("answers.json")).expect("answers");
    let answers: serde_json::Value = serde_json::from_str(&answers).expect("JSON");
    assert_eq!(answers, json!({ question: {"name": "me"} }));
    // 75 alone is a failure
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'exit 75'}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    assert_eq!(world.run("r2", &[]).expect(1).json()["failure_code"], "EXECUTION_FAILED");
}

#[test]
fn run_wf09_time_limits_missing_commands_and_foreign_directories() {
    let world = World::new();
    std::os::unix::fs::symlink("/", world.sandbox.path("out")).expect("link");
    let code = |id: &str, keys: &str| {
        world.flow(&format!(
            "entry: a
nodes: {{a: {{kind: run, {keys}}}, end: {{kind: done}}}}
edges: [{{from: a, to: end}}]
"
        ));
        let began = Instant::now();
        let run = world.run(id, &[]).expect(1).json();
        assert!(began.elapsed() < Duration::from_secs(20), "{id} took {:?}", began.elapsed());
        run["failure_code"].as_str().expect("a code").to_owned()
    };
    assert_eq!(code("slow", "command: 'sleep 60', timeout: 300ms"), "TIMEOUT");
    assert_eq!(code("noisy", "command: 'cat /dev/zero', timeout: 300ms"), "TIMEOUT");
    assert_eq!(code("absent", "command: [no-such-command]"), "TOOL_FAILED_PERMANENT");
    assert_eq!(code("plain", "command: [./a.txt]"), "TOOL_FAILED_PERMANENT");
    assert_eq!(code("up", "command: 'true', cwd: .."), "TOOL_FAILED_PERMANENT");
    assert_eq!(code("link", "command: 'true', cwd: out"), "TOOL_FAILED_PERMANENT");
    assert_eq!(world.at("slow", "fail:a:0", "a.txt").as_deref(), Some("one\n"));
}

#[test]
fn run_wf08_retries_on_listed_codes_and_a_cancel_ends_the_delay() {
    let world = World::new();
    world.flow(
        "entry: a
nodes:
  a: {kind: run, command: 'echo x >> tries; test $(wc -l < tries) = 3', retry: {max: 5, delay: 10ms}}
  end: {kind: done}
edges: [{from: a, to: end}]
",
    );
    world.run("r1", &[]).expect(0);
    let delays: Vec<u64> = world
        .events("r1")
        .iter()
        .filter(|e| e["type"] == "node_recovery")
        .filter_map(|e| e["data"]["delay_ms"].as_u64())
        .collect();
    assert_eq!(delays, [10, 20]);
    world.flow(
        "entry: a
nodes: {a: {kind: run, command: 'exit 1', retry: {max: 1, delay: 60s}}, end: {kind: done}}
edges: [{from: a, to: end}]
",
    );
    let child = world.start("r2");
    crate::world::until("it waits", || {
        world.sandbox.run(["events", "r2"]).out().contains("node_recovery")
    });
    let began = Instant::now();
    world.json(&["cancel", "r2", "--reason", "enough"]).expect(0);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(crate::world::end(child).expect(1).json()["status"], "cancelled");
    assert_eq!(world.record("r2")["error"], "enough");
}

#[test]
fn run_wf10_branches_join_as_their_strategy_says() {
    let world = World::new();
    let run = |id: &str, strategy: &str, b: &str| {
        world.flow(&format!(
            "entry: fan
nodes:
  fan: {{kind: parallel, branches: [a, b], join: end, strategy: {strategy}}}
  a: {{kind: run, command: 'echo one; sleep 0.2'}}
  b: {{kind: run, command: '{b}'}}
  end: {{kind: done, output: {{a: '{{{{ branches.a.ok }}}}', b: '{{{{ branches.b.ok }}}}'}}}}
edges: [{{from: a, to: end}}, {{from: b, to: end}}]
"
        ));
        world.run(id, &[])
    };
    let all = run("all", "all", "echo two").expect(0).json();
    assert_eq!(all["result"], json!({"a": true, "b": true}));
    let log = world.log("all");
    assert!(log.contains("a| one\n") && log.contains("b| two\n"), "{log}");
    let names: Vec<String> = world.labels("all").into_iter().map(|(l, _)| l).collect();
    assert!(!names.iter().any(|l| l.contains(":a:") || l.contains(":b:")), "{names:?}");
    let failed = run("bad", "all", "exit 1").expect(1).json();
    assert_eq!(failed["failure_code"], "JOIN_FAILED");
    let best = run("best", "best_effort", "exit 1").expect(0).json();
    assert_eq!(best["result"], json!({"a": true, "b": false}));
    let any = run("any", "any", "sleep 60").expect(0).json();
    assert_eq!(any["result"]["a"], true);
}

#[test]
fn run_wf11_answers_that_do_not_fit_leave_the_run_paused() {
    let world = World::new();
    world.flow(
        "entry: ask
nodes:
  ask: {kind: human, questions: {c: which?}, answers: {colour: {type: string, choices: [red, blue]}, n: {type: int}}}
  end: {kind: done, output: {got: '{{ outputs.ask }}'}}
edges: [{from: ask, to: end}]
",
    );
    world.run("r1", &[]).expect(9);
    let cases: [&[&str]; 4] = [
        &["--answer", "colour=red"],
        &["--answer", "colour=green", "--answer", "n=1"],
        &["--answer", "colour=red", "--answer", "n=one"],
        &["--answer", "color=red", "--answer", "n=1"],
    ];
    for answers in cases {
        let args: Vec<&str> = ["answer", "r1"].iter().chain(answers).copied().collect();
        let run = world.json(&args).expect(2);
        assert!(!run.json()["error"]["message"].as_str().expect("why").is_empty(), "{run}");
        assert_eq!(world.status("r1"), "paused_waiting_human");
    }
    let good = ["answer", "r1", "--answer", "colour=red", "--answer", "n=1"];
    let run = world.json(&good).expect(0).json();
    assert_eq!(run["result"]["got"], json!({"colour": "red", "n": 1}));
}

#[test]
fn run_wf14_an_edited_workflow_is_refused_until_it_is_accepted() {
    let world = World::new();
    let body = |command: &str| {
        format!(
            "entry: a
nodes: {{a: {{kind: run, command: '{command}'}}, end: {{kind: done}}}}
edges: [{{from: a, to: end}}]
"
        )
    };
    world.flow(&body("exit 1")).run("r1", &[]).expect(1);
    world.flow(&body("true"));
    let refused = world.json(&["resume", "r1"]).expect(4);
    assert_eq!(refused.error_code(), "workflow-changed");
    assert_eq!(refused.json()["error"]["nodes"], json!(["a"]));
    let before = world.record("r1")["workflow_hash"].clone();
    world.json(&["resume", "r1", "--force"]).expect(0);
    assert_ne!(world.record("r1")["workflow_hash"], before);
    // the source on record serves when the file is gone
    world.flow(&body("test -e go")).run("r2", &[]).expect(1);
    std::fs::remove_file(world.file()).expect("remove");
    world.sandbox.write("go", "");
    world.json(&["resume", "r2"]).expect(0);
    // a node that is gone cannot be forced
    world.flow(&body("exit 1")).run("r3", &[]).expect(1);
    world.flow("entry: x\nnodes: {x: {kind: done}}\n");
    let refused = world.json(&["resume", "r3", "--force"]).expect(4);
    assert_eq!(refused.error_code(), "resume-invalid");
}

#[test]
fn run_wf15_no_secret_is_stored_anywhere() {
    let mut world = World::new();
    world.sandbox.env("API_TOKEN", "hunter2-hunter2");
    world.flow(
        "entry: a
secrets: [API_TOKEN]
nodes:
  a:
    kind: run
    secrets: [API_TOKEN]
    publish: it
    command: |
      printf hunter2-; sleep 0.1; printf 'hunter2\\n'
      echo \"{\\\"token\\\": \\\"$API_TOKEN\\\"}\" > $BACKTRAIL_OUTPUT
  b: {kind: run, command: 'test -z \"$API_TOKEN\" && echo {{ outputs.a.token }} 1>&2; exit 1'}
  end: {kind: done}
edges: [{from: a, to: b}, {from: b, to: end}]
",
    );
    world.run("r1", &[]).expect(1);
    assert!(world.log("r1").contains("[redacted:API_TOKEN]"), "{}", world.log("r1"));
    let mut todo = vec![world.sandbox.store()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).expect("list") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).expect("read");
            let found = bytes.windows(15).any(|w| w == b"hunter2-hunter2");
            assert!(!found, "{} holds the secret", path.display());
        }
    }
    world.sandbox.env_remove("API_TOKEN");
    let refused = world.json(&["resume", "r1"]).expect(2);
    assert_eq!(refused.error_code(), "missing-secret");
    assert_eq!(world.status("r1"), "failed_resumable");
}
