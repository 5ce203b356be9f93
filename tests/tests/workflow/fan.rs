//! Fan-outs.

use backtrail_core::run::Status;
use backtrail_core::workflow::machine::{Input, Outcome};
use serde_json::json;

use crate::world::{World, asks, exit_1, ok, workflow};

fn fan(keys: &str) -> String {
    format!(
        "entry: p\nnodes:\n  p: {{kind: parallel, branches: [a, b, c], join: j{keys}}}\n  \
         a: {{kind: run, command: 'a'}}\n  a2: {{kind: run, command: 'a2'}}\n  \
         b: {{kind: run, command: 'b'}}\n  c: {{kind: run, command: 'c'}}\n  \
         j: {{kind: run, command: \"echo {{{{ branches.a.ok }}}} {{{{ branches.b.ok }}}}\"}}\n  \
         end: {{kind: done}}\nedges:\n- {{from: a, to: a2}}\n- {{from: a2, to: j}}\n\
         - {{from: b, to: j}}\n- {{from: c, to: j}}\n- {{from: j, to: end}}\n"
    )
}

fn text(world: &World) -> String {
    format!("{:?}", world.started.last().map(|e| &e.command))
}

#[test]
fn run_wf10_all_waits_for_every_branch_and_fails_for_each_that_failed() {
    let flow = workflow(&fan(""));
    let good = World::run(&flow, &mut |_| Some(ok(json!({}))));
    assert_eq!(good.status, Status::Finished);
    assert_eq!(good.only(&["start"])[..3], ["a 0 1", "b 0 1", "c 0 1"]);
    // boundaries stand around it, not inside
    assert_eq!(
        good.only(&["capture", "alias"]),
        [
            "capture pre:p:0",
            "capture post:p:0",
            "alias pre:j:0",
            "capture post:j:0",
            "alias pre:end:0",
            "alias post:end:0"
        ]
    );
    assert_eq!(good.data("join_ready"), [json!({"strategy": "all", "failed_branches": null})]);
    assert_eq!(good.started[0].branch.as_deref(), Some("a"));
    assert_eq!(good.checkpoint.outputs["p"]["branches"]["a"]["ok"], true);

    let bad = World::run(&flow, &mut |e| {
        Some(if e.attempt.node.starts_with('a') { ok(json!({})) } else { exit_1() })
    });
    assert_eq!(bad.code(), "JOIN_FAILED");
    let message = &bad.failure.as_ref().expect("a failure").message;
    assert!(message.contains("b (EXECUTION_FAILED") && message.contains("c ("), "{message}");
    // the others ended first, and the resume runs only what failed
    assert!(bad.only(&["start"]).contains(&"a2 0 1"));
    let mut again = bad.resume(|_| {}).expect("resumes");
    again.drive(&mut |_| Some(ok(json!({}))));
    assert_eq!(again.only(&["start"]), ["b 1 1", "c 1 1", "j 0 1"]);
    assert_eq!(again.status, Status::Finished);

    let mut fast = World::begin(&workflow(&fan(", fail_fast: true")), Default::default());
    fast.drive(&mut |e| (e.attempt.node == "b").then(exit_1));
    assert_eq!(fast.only(&["stop"]), ["a", "c"]);
    fast.end("a", Outcome::Stopped);
    assert_eq!(fast.status, Status::Running);
    fast.end("c", Outcome::Stopped);
    assert_eq!(fast.code(), "JOIN_FAILED");
    assert!(!fast.failure.expect("a failure").message.contains("stopped"));
}

#[test]
fn run_wf10_any_and_best_effort_go_on_without_some() {
    let any = workflow(&fan(", strategy: any"));
    let mut world = World::begin(&any, Default::default());
    world.drive(&mut |e| (e.attempt.node == "b").then(|| ok(json!({}))));
    assert_eq!(world.only(&["stop"]), ["a", "c"]);
    world
        .drive(&mut |e| Some(if e.attempt.node == "j" { ok(json!({})) } else { Outcome::Stopped }));
    assert_eq!(world.status, Status::Finished);
    assert!(text(&world).contains("'false' 'true'"), "{}", text(&world));
    let none = World::run(&any, &mut |_| Some(exit_1()));
    assert_eq!(none.code(), "JOIN_FAILED");

    let best = workflow(&fan(", strategy: best_effort"));
    let script = |e: &backtrail_core::workflow::machine::Execution| {
        Some(if ["b", "c"].contains(&e.attempt.node.as_str()) { exit_1() } else { ok(json!({})) })
    };
    let world = World::run(&best, &mut { script });
    assert_eq!(world.status, Status::Finished);
    assert_eq!(world.data("join_ready")[0]["failed_branches"], json!(["b", "c"]));
    assert!(text(&world).contains("'true' 'false'"));
}

#[test]
fn run_wf10_a_limit_holds_and_a_killed_fan_out_runs_only_what_was_left() {
    let flow = workflow(&fan(", max_concurrency: 2"));
    let mut world = World::begin(&flow, Default::default());
    world.drive(&mut |_| None);
    assert_eq!(world.only(&["start"]), ["a 0 1", "b 0 1"]);
    world.end("b", ok(json!({})));
    assert_eq!(world.only(&["start"]), ["a 0 1", "b 0 1", "c 0 1"]);
    // killed with one of three done
    let mut again = world.resume(|_| {}).expect("resumes");
    again.drive(&mut |_| None);
    assert_eq!(again.only(&["start"]), ["a 1 1", "c 1 1"]);
    assert_eq!(again.only(&["capture", "alias"]), ["capture resume:p:0", "alias pre:p:0"]);
    again.drive(&mut |_| Some(ok(json!({}))));
    assert_eq!(again.status, Status::Finished);
    assert!(text(&again).contains("'true' 'true'"));
}

#[test]
fn a_branch_cannot_ask_and_a_cancel_stops_all_of_them() {
    let flow = workflow(&fan(""));
    let mut world = World::begin(&flow, Default::default());
    world.drive(&mut |e| (e.attempt.node == "b").then(|| asks(json!({"q": "?"}))));
    assert!(world.data("branch_finished")[0]["error"].to_string().contains("cannot ask"));
    world.feed(Input::Cancel { reason: None });
    assert_eq!(world.only(&["stop"]), ["a", "c"]);
    world.end("a", Outcome::Stopped);
    world.end("c", ok(json!({})));
    assert_eq!(world.status, Status::Cancelled);
    assert!(world.lines.contains(&"capture fail:p:0".into()));
}
