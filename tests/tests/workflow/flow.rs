//! Edges, loops, iterations, retries, stopping.

use std::time::Duration;

use backtrail_core::run::Status;
use backtrail_core::workflow::machine::{Input, Outcome};
use serde_json::json;

use crate::world::{World, exit_1, ok, workflow};

const TRUE: &str = "kind: run, command: 'true'";

#[test]
fn run_wf01_conditions_failure_edges_and_defaults_choose_the_path() {
    let flow = workflow(&format!(
        "entry: a\nnodes:\n  a: {{{TRUE}}}\n  b: {{{TRUE}}}\n  c: {{{TRUE}}}\n  end: {{kind: done}}\n\
         edges:\n- {{from: a, to: b, when: outputs.a.n > 3}}\n- {{from: a, to: c}}\n\
         - {{from: a, to: end, on: failure, when: outputs.a._error.exit_code == 1}}\n\
         - {{from: b, to: end}}\n- {{from: c, to: end, when: outputs.a.n == 3}}\n"
    ));
    let path = |n: i64| World::run(&flow, &mut |_| Some(ok(json!({ "n": n }))));
    assert_eq!(path(4).only(&["edge"]), ["a b", "b end"]);
    let world = path(3);
    assert_eq!(world.only(&["edge"]), ["a c", "c end"]);
    assert_eq!(world.status, Status::Finished);
    let [first, _] = &world.data("edge_selected")[..] else { panic!("two edges") };
    assert_eq!((&first["from"], &first["to"]), (&json!("a"), &json!("c")));

    let lost = path(2);
    assert_eq!((lost.status.as_str(), lost.code()), ("failed_resumable", "NO_OUTGOING_EDGE"));
    assert!(lost.failure.as_ref().is_some_and(|f| f.message.contains("end when")));
    assert_eq!(lost.checkpoint.node_id, "c");

    let failed = World::run(&flow, &mut |_| Some(exit_1()));
    assert_eq!(failed.only(&["edge"]), ["a end"]);
    assert_eq!(failed.status, Status::Finished);
    assert_eq!(failed.data("node_recovery")[0]["reason"], "failure_edge");
    assert_eq!(failed.checkpoint.outputs["a"]["_error"]["exit_code"], 1);

    let looped = workflow(&format!(
        "entry: a\nnodes:\n  a: {{{TRUE}}}\nedges:\n- {{from: a, to: a, loop: again, max: 2}}\n"
    ));
    let spent = World::run(&looped, &mut |_| Some(ok(json!({}))));
    assert_eq!(spent.code(), "LOOP_EXHAUSTED");
    assert_eq!(spent.only(&["start"]), ["a 0 1", "a 1 1", "a 2 1"]);
}

const NESTED: &str = "entry: a\nnodes:\n  a: {kind: compute, set: {}}\n  \
    b: {kind: run, command: 'true'}\n  c: {kind: compute, set: {n: '{{ loops.inner }}'}}\n  \
    end: {kind: done, output: {inner: '{{ loops.inner }}', outer: '{{ loops.outer }}'}}\nedges:\n\
    - {from: a, to: b}\n- {from: b, to: b, loop: inner, max: 3}\n- {from: b, to: c}\n\
    - {from: c, to: a, loop: outer, max: 1}\n- {from: c, to: end}\n";

#[test]
fn run_wf02_a_loop_ends_at_its_max_inner_ones_restart_and_counters_survive_a_resume() {
    let flow = workflow(NESTED);
    let world = World::run(&flow, &mut |_| Some(ok(json!({}))));
    assert_eq!(world.status, Status::Finished);
    // four times in each of two rounds, and no iteration twice
    let numbers: Vec<String> = (0..8).map(|n| format!("b {n} 1")).collect();
    assert_eq!(world.only(&["start"]), numbers);
    assert_eq!(world.result.expect("a result"), json!({"inner": 3, "outer": 1}));

    let mut killed = World::begin(&flow, Default::default());
    killed.drive(&mut |e| (e.attempt.iteration < 6).then(|| ok(json!({}))));
    assert_eq!(killed.checkpoint.loop_counters["inner"], 2);
    let mut again = killed.resume(|_| {}).expect("resumes");
    again.drive(&mut |_| Some(ok(json!({}))));
    // what was not in the checkpoint is executed again, as a new entry: the labels know of
    // the one that was lost
    assert_eq!(again.only(&["start"]), ["b 7 1", "b 8 1"]);
    assert_eq!(again.result.expect("a result"), json!({"inner": 3, "outer": 1}));
}

#[test]
fn run_wf03_exclusive_edges_hand_over_the_output_of_the_one_taken() {
    let flow = workflow(
        "entry: r\nvars: {way: right}\nnodes:\n  r: {kind: router, route: vars.way}\n  \
         left: {kind: compute, set: {from: left}}\n  right: {kind: compute, set: {from: right}}\n  \
         meet: {kind: run, command: ['echo', '{{ last.from }}'], input: {it: '{{ last }}'}}\n  \
         end: {kind: done}\nedges:\n- {from: r, to: left}\n- {from: r, to: right}\n\
         - {from: left, to: meet}\n- {from: right, to: meet}\n- {from: meet, to: end}\n",
    );
    let world = World::run(&flow, &mut |_| Some(ok(json!({}))));
    let meet = &world.started[0];
    assert_eq!(meet.input["input"], json!({"it": {"from": "right"}}));
    assert_eq!(meet.input["last"], json!({"from": "right"}));
    assert_eq!(world.data("node_finished")[0]["selected_route"], "right");
    assert!(!world.checkpoint.outputs.contains_key("left"));
    // and after a kill as well: the taken edge is in the checkpoint
    let mut killed = World::begin(&flow, Default::default());
    killed.drive(&mut |_| None);
    let again = killed.resume(|_| {}).expect("resumes");
    assert_eq!(again.started[0].input["last"], json!({"from": "right"}));
}

#[test]
fn run_wf08_retries_wait_longer_each_time_and_a_cancel_does_not_wait() {
    let flow = workflow(
        "entry: a\nnodes:\n  a: {kind: run, command: 'false', retry: {max: 4, delay: 2s, \
         max_delay: 10s, on: [exit, NETWORK_TRANSIENT]}}\n  end: {kind: done}\n\
         edges:\n- {from: a, to: end}\n",
    );
    let world = World::run(&flow, &mut |_| Some(exit_1()));
    let seconds = |n: u64| Duration::from_secs(n);
    assert_eq!(world.delays, [seconds(2), seconds(4), seconds(8), seconds(10)]);
    assert_eq!(world.only(&["start"]), ["a 0 1", "a 0 2", "a 0 3", "a 0 4", "a 0 5"]);
    let recoveries = world.data("node_recovery");
    assert_eq!(recoveries.len(), 4);
    assert_eq!(recoveries[1]["delay_ms"], 4000);
    assert_eq!(recoveries[1]["attempt"], 2);
    assert_eq!((world.status.as_str(), world.code()), ("failed_resumable", "EXECUTION_FAILED"));
    assert_eq!(world.only(&["capture"]), ["pre:a:0", "fail:a:0"]);
    // a person tries again: the same iteration, the next attempt, and new tries
    let mut again = world.resume(|_| {}).expect("resumes");
    again.drive(&mut |e| Some(if e.attempt.attempt < 8 { exit_1() } else { ok(json!({})) }));
    assert_eq!(again.only(&["start"]), ["a 0 6", "a 0 7", "a 0 8"]);
    assert_eq!(again.status, Status::Finished);

    let other = World::run(&flow, &mut |_| {
        let after = Duration::from_secs(1);
        Some(Outcome::TimedOut { after })
    });
    assert_eq!((other.delays.len(), other.code()), (0, "TIMEOUT"));

    let mut waiting = World::begin(&flow, Default::default());
    waiting.impatient = false;
    waiting.drive(&mut |_| Some(exit_1()));
    waiting.feed(Input::Cancel { reason: Some("enough".into()) });
    assert_eq!(waiting.status, Status::Cancelled);
    assert_eq!(waiting.only(&["capture"]), ["pre:a:0", "fail:a:0"]);
    assert_eq!(waiting.data("run_cancelled")[0]["reason"], "enough");
    assert_eq!(waiting.checkpoint.current.as_ref().map(|c| c.attempt), Some(2));
}

#[test]
fn a_stop_outranks_what_the_dying_node_reports() {
    let flow = workflow(NESTED);
    let mut world = World::begin(&flow, Default::default());
    world.drive(&mut |_| None);
    world.feed(Input::Interrupt { reason: "SIGTERM".into() });
    assert_eq!(world.only(&["stop"]), ["b"]);
    world.feed(Input::Interrupt { reason: "SIGTERM".into() });
    assert_eq!(world.only(&["kill"]), ["b"]);
    world.feed(Input::Cancel { reason: None });
    world.end("b", ok(json!({})));
    assert_eq!((world.status.clone(), world.code()), (Status::Cancelled, "CANCELLED"));
    assert_eq!(world.checkpoint.node_id, "b");
    assert!(world.lines.contains(&"capture fail:b:0".into()));
    let again = world.resume(|_| {}).expect("a person may resume it");
    assert_eq!(again.only(&["capture", "alias"]), ["capture resume:b:0", "alias pre:b:0"]);
    assert_eq!(again.only(&["start"]), ["b 0 2"]);
}

#[test]
fn a_pause_lets_the_node_end_and_comes_back_at_the_next() {
    let flow = workflow(NESTED);
    let mut world = World::begin(&flow, Default::default());
    world.drive(&mut |_| None);
    world.feed(Input::Pause { reason: None });
    assert!(world.only(&["stop"]).is_empty());
    world.end("b", ok(json!({})));
    assert_eq!(world.status, Status::PausedOperator);
    assert!(world.lines.contains(&"capture pause:b:0".into()));
    assert!(world.checkpoint.current.is_none());
    let again = world.resume(|_| {}).expect("resumes");
    assert_eq!(again.only(&["start"]), ["b 1 1"]);
    assert_eq!(again.only(&["capture"]), ["resume:b:1"]);
    // a resume whose capture fails leaves the run as it was
    let mut refused = world.resume(|_| {}).expect("resumes");
    refused.lines.clear();
    refused.feed(Input::CaptureRefused { error: "disk full".into() });
    assert!(refused.lines.is_empty() && refused.machine.is_over());
}

#[test]
fn a_first_capture_that_fails_ends_the_run_before_anything_is_executed() {
    let mut world = World::begin(&workflow(NESTED), Default::default());
    world.feed(Input::CaptureRefused { error: "too many files".into() });
    assert_eq!((world.status.as_str(), world.code()), ("failed_resumable", "WORKSPACE_SAFETY"));
    world.feed(Input::Continue);
    assert_eq!(world.lines.last().map(String::as_str), Some("status failed_resumable"));
}
