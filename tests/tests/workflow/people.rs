//! Questions, answers and reviews.

use backtrail_core::run::Status;
use backtrail_core::workflow::machine::{Outcome, Refusal, Start};
use serde_json::{Value, json};

use crate::world::{World, asks, object, ok, workflow};

fn human() -> World {
    let flow = workflow(
        "entry: h\nnodes:\n  h:\n    kind: human\n    questions: {sum: 'look at {{ run.id }}'}\n    \
         answers:\n      approve: {type: bool}\n      where: {type: string, choices: [here, there], default: here}\n      \
         note: {type: string, required: false}\n  end: {kind: done, output: {a: '{{ outputs.h }}'}}\n\
         edges: [{from: h, to: end, when: outputs.h.approve}]\n",
    );
    World::run(&flow, &mut |_| None)
}

#[test]
fn run_wf11_answers_are_checked_and_the_run_stays_paused_until_they_fit() {
    let paused = human();
    assert_eq!(paused.status, Status::PausedWaitingHuman);
    assert_eq!(
        paused.only(&["capture", "interaction", "event", "status"]),
        [
            "event run_started",
            "capture pre:h:0",
            "event node_started",
            "capture pause:h:0",
            "interaction r1_h",
            "event human_input_requested",
            "event run_paused",
            "status paused_waiting_human"
        ]
    );
    assert_eq!(paused.checkpoint.interaction_id.as_deref(), Some("r1_h"));
    assert_eq!(paused.checkpoint.interaction_questions, Some(json!({"sum": "look at r1"})));
    assert!(matches!(paused.resume(|_| {}), Err(Refusal::NeedsAnswers { .. })));
    for (given, key, help) in [
        (json!({}), "approve", "type bool"),
        (json!({"approve": "yes"}), "approve", "type bool"),
        (json!({"approve": true, "aprove": 1}), "aprove", "did you mean \"approve\"?"),
        (json!({"approve": true, "where": "ther"}), "where", "did you mean \"there\"?"),
        (json!({"approve": true, "where": "x"}), "where", "\"here\", \"there\""),
        (json!({"approve": true, "note": 3}), "note", "type string"),
    ] {
        let refused = paused.resume(|r| r.answers = Some(object(given.clone())));
        let Err(Refusal::BadAnswers(problems)) = refused else { panic!("{given}") };
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].key, key);
        assert!(problems[0].help.as_ref().is_some_and(|h| h.contains(help)), "{problems:?}");
    }
    let mut done = paused.answer(json!({"approve": true}));
    done.drive(&mut |_| None);
    assert_eq!(done.status, Status::Finished);
    assert_eq!(done.result, Some(json!({"a": {"approve": true, "where": "here"}})));
    assert_eq!(
        done.only(&["capture", "alias"])[..3],
        ["capture resume:h:0", "alias pre:h:0", "alias post:h:0"]
    );
    assert!(done.checkpoint.interaction_id.is_none());
    // the document of the question is gone: the questions come from the checkpoint
    let again = paused.resume(|r| {
        r.answer_schema = None;
        r.answers = Some(object(json!({"approve": false})));
    });
    assert!(again.is_ok());
}

#[test]
fn a_command_asks_with_75_and_runs_again_with_every_answer_so_far() {
    let flow = workflow(
        "entry: a\nnodes:\n  a: {kind: run, command: 'x'}\n  end: {kind: done}\n\
         edges: [{from: a, to: end}]\n",
    );
    let question = |n: usize| asks(json!({format!("q{n}"): "?"}));
    let mut world = World::run(&flow, &mut |_| Some(question(0)));
    let mut answers = serde_json::Map::new();
    for n in 0..20 {
        assert_eq!(world.status, Status::PausedWaitingHuman, "question {n}");
        let id = if n == 0 { "r1_a".to_owned() } else { format!("r1_a.0.{n}") };
        assert_eq!(world.checkpoint.interaction_id.as_deref(), Some(id.as_str()));
        let given = json!({format!("q{n}"): "yes"});
        let mut next = world
            .resume(|r| {
                r.answers = Some(object(given.clone()));
                r.answered = answers.clone();
            })
            .expect("resumes");
        answers.insert(id, given);
        assert_eq!(next.only(&["start"]), [format!("a 0 {}", n + 2)]);
        assert_eq!(Value::Object(next.started[0].answers.clone()), Value::Object(answers.clone()));
        next.drive(&mut |_| Some(question(n + 1)));
        world = next;
    }
    assert_eq!(world.code(), "EXECUTION_FAILED");
    assert!(!world.checkpoint.outputs["a"].to_string().contains("yes"));
    let broken = World::run(&flow, &mut |_| Some(asks(json!({}))));
    assert_eq!(broken.code(), "SCHEMA_VALIDATION");
}

fn review(keys: &str) -> World {
    let flow = workflow(&format!(
        "entry: g\nnodes:\n  g: {{kind: review, instructions: 'look'{keys}}}\n  \
         end: {{kind: done, output: {{g: '{{{{ outputs.g }}}}'}}}}\nedges: [{{from: g, to: end}}]\n"
    ));
    World::begin(&flow, Start::default())
}

const COMPANION: &str = ", companion: {command: 'c'}";

fn says(decision: &str, blockers: &[&str]) -> Outcome {
    ok(
        json!({"content": decision, "verdict": {"decision": decision, "confidence": 0.5, "blockers": blockers}}),
    )
}

#[test]
fn run_wf12_a_review_without_a_companion_is_one_question() {
    let mut world = review("");
    world.drive(&mut |_| None);
    assert_eq!(world.only(&["capture"]), ["pre:g:0", "gate:0", "pause:g:0"]);
    let mut ended = world.answer(json!({"decision": "request_changes", "comment": "no"}));
    ended.drive(&mut |_| None);
    let output =
        json!({"decision": "request_changes", "comment": "no", "turns": 1, "gate": "gate:0"});
    assert_eq!(ended.result, Some(json!({"g": output})));
    let turns = &ended.interactions.last().expect("written").turns;
    assert_eq!((turns.len(), turns[0].role.as_str()), (1, "human"));
    let refused = world.resume(|r| r.answers = Some(object(json!({"decision": "maybe"}))));
    assert!(matches!(refused, Err(Refusal::BadAnswers(_))));
}

#[test]
fn run_wf12_companion_and_person_take_turns_on_one_interaction_up_to_max_turns() {
    let mut world = review(&format!("{COMPANION}, max_turns: 3"));
    world.drive(&mut |_| Some(says("approved", &[])));
    let mut ids = Vec::new();
    for round in 0..3 {
        // posture human: the companion never ends it
        assert_eq!(world.status, Status::PausedWaitingHuman);
        assert!(world.lines.contains(&format!("capture gate:{round}")), "{:?}", world.lines);
        let asked = &world.data("human_input_requested")[0];
        assert_eq!((&asked["turn"], &asked["turns"]), (&json!(round + 1), &json!(3)));
        assert_eq!(asked["verdict"]["decision"], "approved");
        ids.push(world.checkpoint.interaction_id.clone());
        let mut next = world.answer(json!({"decision": "request_changes", "comment": "more"}));
        if round < 2 {
            let seen = &next.started[0].input["review"];
            assert_eq!(seen["turns"].as_array().map(Vec::len), Some(2 * (round + 1)));
        }
        next.drive(&mut |_| Some(says("approved", &[])));
        world = next;
    }
    ids.dedup();
    assert_eq!(ids, [Some("r1_g".to_owned())]);
    let output =
        json!({"decision": "request_changes", "comment": "more", "turns": 3, "gate": "gate:2"});
    assert_eq!(world.result, Some(json!({"g": output})));
}

#[test]
fn run_wf12_a_companion_ends_it_only_when_it_approves_without_blockers() {
    let keys = format!("{COMPANION}, posture: companion");
    let mut world = review(&keys);
    world.drive(&mut |_| Some(says("approved", &[])));
    assert_eq!(world.status, Status::Finished);
    assert_eq!(world.result.as_ref().expect("a result")["g"]["decision"], "approve");
    assert_eq!(world.data("review_verdict")[0]["confidence"], 0.5);
    for outcome in
        [says("approved", &["tests"]), says("changes_requested", &[]), ok(json!({"content": "?"}))]
    {
        let mut world = review(&keys);
        world.drive(&mut |_| Some(outcome.clone()));
        assert_eq!(world.status, Status::PausedWaitingHuman);
    }
    for wrong in [
        json!({}),
        json!({"content": "x", "verdict": {"decision": "yes"}}),
        json!({"content": "x", "verdict": {"decision": "approved", "confidence": 2}}),
    ] {
        let mut world = review(&keys);
        world.drive(&mut |_| Some(ok(wrong.clone())));
        assert_eq!(world.code(), "SCHEMA_VALIDATION", "{wrong}");
    }
}
