//! Whatever happens: no panic, no iteration twice.

use std::collections::BTreeSet;
use std::time::Duration;

use backtrail_core::run::Status;
use backtrail_core::workflow::machine::{Attempt, Input, Limits, Outcome};
use proptest::prelude::*;
use serde_json::json;

use crate::world::{World, asks, exit_1, ok, workflow};

const FLOW: &str = "entry: a\nbudget: {duration: 1h}\nnodes:\n  \
    a: {kind: run, command: 'a', retry: {max: 2}, publish: out}\n  \
    p: {kind: parallel, branches: [x, y], join: r, max_concurrency: 1, strategy: best_effort}\n  \
    x: {kind: run, command: 'x', retry: {max: 1}}\n  y: {kind: run, command: 'y'}\n  \
    y2: {kind: router, route: '\"y\" if loops.yl < 1 else \"r\"'}\n  \
    r: {kind: review, instructions: 'i', companion: {command: 'c'}}\n  \
    h: {kind: human, questions: {q: 'q'}}\n  end: {kind: done}\nedges:\n\
    - {from: a, to: a, when: 'outputs.a.again', loop: al, max: 2}\n- {from: a, to: p}\n\
    - {from: a, to: h, on: failure}\n- {from: x, to: r}\n- {from: y, to: y2}\n\
    - {from: y2, to: y, loop: yl, max: 1}\n- {from: y2, to: r}\n\
    - {from: r, to: h}\n- {from: h, to: a, loop: hl, max: 3}\n- {from: h, to: end}\n";

/// A thing that happens; numbers choose among what is open.
#[derive(Clone, Debug)]
enum Move {
    End(usize, u8),
    Wrong(u8),
    Cancel,
    Pause,
    Interrupt,
    Clock(u32),
    Refuse,
    Kill,
    Resume(bool),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        10 => (0..3_usize, 0..8_u8).prop_map(|(n, how)| Move::End(n, how)),
        1 => (0..4_u8).prop_map(Move::Wrong),
        1 => Just(Move::Cancel),
        1 => Just(Move::Pause),
        1 => Just(Move::Interrupt),
        1 => (0..600_u32).prop_map(Move::Clock),
        1 => Just(Move::Refuse),
        1 => Just(Move::Kill),
        6 => any::<bool>().prop_map(Move::Resume),
    ];
    prop::collection::vec(one, 1..60)
}

fn outcome(how: u8) -> Outcome {
    match how {
        0 | 1 => ok(json!({"again": false, "content": "c"})),
        2 => ok(json!({"again": true, "content": "c", "_tokens": 3})),
        3 => exit_1(),
        4 => Outcome::TimedOut { after: Duration::from_secs(1) },
        5 => asks(json!({"q": "?"})),
        6 => Outcome::Stopped,
        _ => ok(json!({"_bad": 1})),
    }
}

fn answers(world: &World) -> serde_json::Value {
    let asked = world.checkpoint.interaction_questions.clone().unwrap_or_default();
    if asked.get("decision").is_some() {
        json!({"decision": "request_changes", "comment": "c"})
    } else {
        json!({"q": "a"})
    }
}

fn apply(world: &mut World, step: &Move) {
    match step {
        Move::End(n, how) if !world.open.is_empty() => {
            let node = world.open[n % world.open.len()].attempt.node.clone();
            world.end(&node, outcome(*how));
        }
        Move::End(..) => {}
        Move::Wrong(n) => {
            let attempt = Attempt { node: "zz".into(), iteration: u64::from(*n), attempt: 0 };
            world.feed(Input::DelayOver(attempt.clone()));
            world.feed(Input::Ended { attempt, outcome: outcome(*n) });
            world.feed(Input::Continue);
        }
        Move::Cancel => world.feed(Input::Cancel { reason: None }),
        Move::Pause => world.feed(Input::Pause { reason: None }),
        Move::Interrupt => world.feed(Input::Interrupt { reason: "TERM".into() }),
        Move::Clock(seconds) => {
            world.active += Duration::from_secs(u64::from(*seconds));
            world.feed(Input::Clock);
        }
        Move::Refuse => {}
        Move::Kill | Move::Resume(_) => {}
    }
    world.drive(&mut |_| None);
}

/// The run again, when it is one that a person may resume.
fn resumed(world: &World, step: &Move) -> Option<World> {
    let limits = Limits { duration: Some(Duration::from_secs(1_000_000)), ..Limits::default() };
    match step {
        Move::Resume(answer) => world
            .resume(|r| {
                r.limits = limits;
                r.answers = answer.then(|| crate::world::object(answers(world)));
            })
            .ok(),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Kills included: then the labels are ahead of the checkpoint.
    #[test]
    fn an_iteration_is_never_given_to_two_entries(steps in moves()) {
        let mut world = World::begin(&workflow(FLOW), Default::default());
        let mut entered: BTreeSet<(String, u64, u64)> = BTreeSet::new();
        let mut seen = 0;
        for step in &steps {
            apply(&mut world, step);
            for execution in &world.started[seen..] {
                let a = &execution.attempt;
                let new = entered.insert((a.node.clone(), a.iteration, a.attempt));
                prop_assert!(new, "{a:?} was started twice: {:?}", world.lines);
            }
            seen = world.started.len();
            if matches!(step, Move::Kill)
                && let Ok(next) = world.resume(|_| {})
            {
                world = next;
                seen = 0;
            }
            if let Some(next) = resumed(&world, step) {
                world = next;
                seen = 0;
            }
        }
        for (node, iteration, _) in &entered {
            let counted = world.machine.checkpoint().node_visits.get(node).copied();
            prop_assert!(counted.is_some_and(|next| *iteration < next), "{node} {iteration}");
        }
    }

    #[test]
    fn the_machine_never_panics_and_always_ends_with_a_status(steps in moves()) {
        let mut world = World::begin(&workflow(FLOW), Default::default());
        for step in &steps {
            apply(&mut world, step);
            if matches!(step, Move::Refuse) {
                world.feed(Input::CaptureRefused { error: "no".into() });
            }
            if matches!(step, Move::Kill) {
                world = world.resume(|_| {}).unwrap_or(world);
            }
            if let Some(next) = resumed(&world, step) {
                world = next;
            }
        }
        // a refused resume alone ends without a status: the run is as it was
        prop_assert!(world.machine.is_over() || world.status == Status::Running);
        let bad = [Status::Failed, Status::FailedResumable, Status::Cancelled];
        prop_assert_eq!(world.failure.is_some(), bad.contains(&world.status));
    }
}
