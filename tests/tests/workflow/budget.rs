//! Budgets.

use std::time::Duration;

use backtrail_core::run::Status;
use backtrail_core::workflow::machine::{Input, Limits, Outcome, Refusal, Start};
use serde_json::{Value, json};

use crate::world::{World, duration_limit, ok, workflow};

fn looped(budget: &str) -> World {
    let flow = workflow(&format!(
        "entry: a\nbudget: {{{budget}}}\nnodes:\n  a: {{kind: run, command: 'x'}}\n  \
         end: {{kind: done}}\nedges:\n- {{from: a, to: a, loop: l, max: 50}}\n- {{from: a, to: end}}\n"
    ));
    World::begin(&flow, Start::default())
}

fn spends() -> Outcome {
    ok(json!({"_tokens": 10, "_cost_usd": 0.5}))
}

#[test]
fn run_wf13_each_dimension_warns_once_stops_and_has_its_code() {
    for (budget, dimension, limit) in [
        ("iterations: 10", "iterations", json!(10)),
        ("tokens: 100", "tokens", json!(100)),
        ("cost_usd: 5", "cost_usd", json!(5)),
        ("duration: 10s", "duration", json!(10_000)),
    ] {
        let mut world = looped(budget);
        for _ in 0..10 {
            world.drive(&mut |_| None);
            world.active += Duration::from_secs(1);
            world.end("a", spends());
        }
        assert_eq!((world.status.as_str(), world.code()), ("failed_resumable", "BUDGET_EXCEEDED"));
        assert_eq!(world.started.len(), 10, "{budget}");
        let warned = world.data("budget_warning");
        assert_eq!(warned.len(), 1, "{budget}");
        assert_eq!((&warned[0]["dimension"], &warned[0]["limit"]), (&json!(dimension), &limit));
        assert_eq!(world.data("budget_exceeded").len(), 1);
        assert_eq!(world.data("budget_exceeded")[0]["used"], limit);
        // the next node was not entered, and the boundary says when the run stopped
        assert!(world.checkpoint.current.is_none());
        assert!(world.lines.contains(&"alias fail:a:9".into()));
        let refused = world.resume(|_| {});
        let Err(Refusal::BudgetSpent { dimension: of, .. }) = refused else { panic!("{budget}") };
        assert_eq!(of, dimension);
    }
}

#[test]
fn run_wf13_spending_is_carried_over_resumes_and_pauses_are_not_counted() {
    let mut world = looped("tokens: 1000, duration: 1h");
    let mut warnings: Vec<Value> = Vec::new();
    for resume in 1..=3_u64 {
        world.active = Duration::from_secs(10);
        world.end("a", spends());
        world.feed(Input::Interrupt { reason: "SIGINT".into() });
        world.end("a", Outcome::Stopped);
        warnings.extend(world.data("budget_warning"));
        assert_eq!(world.checkpoint.budget_tokens_used, Some(10 * resume));
        assert_eq!(world.checkpoint.budget_elapsed_ns, Some(10_000_000_000 * resume));
        // hours may pass here
        world = world.resume(|_| {}).expect("resumes");
    }
    assert!(warnings.is_empty());
    let mut stopped = world.resume(|r| r.limits.tokens = Some(40)).err();
    assert!(stopped.is_none(), "{stopped:?}");
    stopped = world.resume(|r| r.limits.tokens = Some(30)).err();
    assert!(matches!(stopped, Some(Refusal::BudgetSpent { dimension: "tokens", .. })));
    let raised = Limits { tokens: Some(2_000), ..Limits::default() };
    assert!(world.resume(|r| r.limits = raised).is_ok());
}

#[test]
fn run_wf13_time_stops_a_running_node_at_the_hard_limit() {
    let flow = looped("hard: 1.5, warn_at: 0.5").definition;
    let mut world = World::begin(&flow, Start { limits: duration_limit(100), ..Start::default() });
    for (at, warned, exceeded, stopped) in
        [(49, 0, 0, 0), (50, 1, 0, 0), (100, 1, 1, 0), (150, 1, 2, 1)]
    {
        world.active = Duration::from_secs(at);
        world.feed(Input::Clock);
        let seen = (
            world.data("budget_warning").len(),
            world.data("budget_exceeded").len(),
            world.only(&["stop"]).len(),
        );
        assert_eq!(seen, (warned, exceeded, stopped), "at {at}");
    }
    assert_eq!(world.data("budget_exceeded")[1]["hard_limit"], 150_000);
    world.end("a", Outcome::Stopped);
    assert_eq!((world.status.clone(), world.code()), (Status::FailedResumable, "BUDGET_EXCEEDED"));
    assert!(world.lines.contains(&"capture fail:a:0".into()));
    assert_eq!(world.checkpoint.current.as_ref().map(|c| c.iteration), Some(0));
}

#[test]
fn a_cost_limit_with_nodes_that_report_no_cost_is_warned_of_once() {
    let mut world = looped("cost_usd: 5");
    world.drive(&mut |e| (e.attempt.iteration < 3).then(|| ok(json!({"_tokens": 5}))));
    assert_eq!(world.only(&["warn"]).len(), 1);
    let mut wrong = looped("cost_usd: 5");
    wrong.end("a", ok(json!({"_tokenz": 1})));
    assert_eq!(wrong.code(), "SCHEMA_VALIDATION");
}
