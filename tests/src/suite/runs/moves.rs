//! RUN-RS06, RS10, RS11.

use backtrail_core::error::Kind;
use backtrail_core::ids::RunId;
use backtrail_core::run::status::{Means, check};
use backtrail_core::run::{
    Actor, Checkpoint, FailureCode, Moved, PausePointer, Run, RunStore, Status, Transition,
};
use serde_json::json;

use super::{engine, forge, person, runs, started, stored};
use crate::suite::Site;

/// The moves that exist: from, to, the actors.
const MOVES: &[(&str, &str, &str)] = &[
    ("queued", "running", "E"),
    ("queued", "cancelled", "O"),
    ("queued", "paused_operator", "O"),
    ("queued", "failed", "A"),
    ("queued", "failed_resumable", "A"),
    ("running", "paused_waiting_human", "E"),
    ("running", "paused_operator", "E"),
    ("running", "finished", "E"),
    ("running", "failed", "E"),
    ("running", "failed_resumable", "EA"),
    ("running", "cancelled", "EO"),
    ("paused_waiting_human", "running", "O"),
    ("paused_waiting_human", "queued", "O"),
    ("paused_waiting_human", "cancelled", "O"),
    ("paused_waiting_human", "paused_operator", "O"),
    ("paused_operator", "running", "O"),
    ("paused_operator", "queued", "O"),
    ("paused_operator", "cancelled", "O"),
    ("paused_operator", "paused_operator", "O"),
    ("cancelled", "running", "O"),
    ("cancelled", "queued", "O"),
    ("cancelled", "paused_operator", "O"),
    ("failed_resumable", "running", "OA"),
    ("failed_resumable", "queued", "OA"),
    ("failed_resumable", "cancelled", "O"),
    ("failed_resumable", "paused_operator", "O"),
    ("failed", "paused_operator", "O"),
];

const ACTORS: [(char, Actor); 3] =
    [('E', Actor::Engine), ('O', Actor::Person), ('A', Actor::Automation)];

/// RUN-RS06: eight by eight statuses by three actors, exactly the moves of the table.
pub fn rs06_exactly_the_moves_of_the_table() {
    let retryable = FailureCode::from(FailureCode::TIMEOUT);
    let launch = FailureCode::from(FailureCode::LAUNCH_FAILED);
    let all = Means {
        locked: true,
        answered: true,
        rewind: true,
        checkpoint: true,
        explicit: false,
        present_code: Some(&retryable),
        new_code: Some(&launch),
    };
    let mut allowed = 0;
    for from in &Status::ALL {
        for to in &Status::ALL {
            for (letter, actor) in ACTORS {
                let want = MOVES.iter().any(|(f, t, actors)| {
                    *f == from.as_str() && *t == to.as_str() && actors.contains(letter)
                });
                let got = check(Some(from), to, actor, &all).is_ok();
                assert_eq!(got, want, "{from} to {to} by {letter}");
                allowed += usize::from(got);
            }
        }
    }
    assert_eq!(allowed, MOVES.iter().map(|(.., actors)| actors.len()).sum::<usize>());
    for (letter, actor) in ACTORS {
        for to in &Status::ALL {
            let want = matches!((letter, to.as_str()), ('E', "running") | ('O', "queued"));
            assert_eq!(check(None, to, actor, &all).is_ok(), want, "none to {to} by {letter}");
        }
    }
    each_condition_is_needed(&all);
}

/// Each condition of the table, taken away alone.
fn each_condition_is_needed(all: &Means<'_>) {
    use Status as S;
    let timeout = FailureCode::from(FailureCode::TIMEOUT);
    let budget = FailureCode::from(FailureCode::BUDGET_EXCEEDED);
    let (o, a, e) = (Actor::Person, Actor::Automation, Actor::Engine);
    let cases = [
        (S::Running, S::Finished, e, Means { locked: false, ..*all }),
        (S::Running, S::FailedResumable, a, Means { locked: false, ..*all }),
        (S::Running, S::Cancelled, o, Means { locked: false, ..*all }),
        (S::PausedOperator, S::Running, o, Means { locked: false, ..*all }),
        (S::PausedWaitingHuman, S::Running, o, Means { answered: false, ..*all }),
        (S::PausedWaitingHuman, S::Queued, o, Means { answered: false, ..*all }),
        (S::Cancelled, S::PausedOperator, o, Means { rewind: false, ..*all }),
        (S::Queued, S::PausedOperator, o, Means { rewind: false, ..*all }),
        (S::Failed, S::PausedOperator, o, Means { checkpoint: false, ..*all }),
        (S::FailedResumable, S::Running, a, Means { explicit: true, ..*all }),
        (S::FailedResumable, S::Queued, a, Means { present_code: Some(&budget), ..*all }),
        (S::FailedResumable, S::Queued, a, Means { present_code: None, ..*all }),
        (S::Queued, S::Failed, a, Means { new_code: Some(&timeout), ..*all }),
    ];
    for (from, to, actor, means) in cases {
        let e = check(Some(&from), &to, actor, &means).expect_err("a condition is missing");
        assert_eq!(e.code(), "bad-transition", "{from} to {to}");
    }
    // What this build does not know it does not move.
    let other = S::Other("hibernating".into());
    for to in S::ALL {
        assert!(check(Some(&other), &to, o, all).is_err());
    }
}

fn question() -> PausePointer {
    PausePointer { interaction_id: "r_a".into(), questions: Some(json!({"ok": "go on?"})) }
}

async fn paused(ours: &RunStore, run: &mut Run) {
    let ask = Transition::new(Status::PausedWaitingHuman, Actor::Engine, [Status::Running]);
    let moved = ours.transition(run, &ask.asking(question())).await.expect("pauses");
    assert_eq!(moved, Moved::To(Status::PausedWaitingHuman));
}

fn pointer(run: &Run) -> Option<&str> {
    run.record.checkpoint().expect("a checkpoint").interaction_id.as_deref()
}

/// RUN-RS10: the pause pointer lives on paused and queued runs alone.
pub async fn rs10_the_pointer_goes_with_its_status(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    paused(&ours, &mut run).await;
    // A save that does not mention it keeps it; one by an old copy as well.
    ours.save_checkpoint(&mut run, &Checkpoint::at("a")).await.expect("saves");
    assert_eq!(pointer(&run), Some("r_a"));
    let record = run.record.clone();
    ours.save(&mut run, &record).await.expect("saves");
    assert_eq!(pointer(&run), Some("r_a"));
    person(&ours, &mut run, Status::Queued).await;
    assert_eq!(pointer(&run), Some("r_a"));
    let questions = run.record.checkpoint().expect("there").interaction_questions.clone();
    assert_eq!(questions, question().questions);
    person(&ours, &mut run, Status::Cancelled).await;
    let checkpoint = run.record.checkpoint().expect("there");
    assert_eq!((pointer(&run), checkpoint.node_id.as_str()), (None, "a"));
    assert_eq!(checkpoint.interaction_questions, None);
    // No save brings it back.
    let named = Checkpoint { interaction_id: Some("r_a".into()), ..Checkpoint::at("a") };
    ours.save_checkpoint(&mut run, &named).await.expect("saves");
    assert_eq!(pointer(&run), None);
    let there = stored(&**runs.store(), run.id()).await;
    assert!(there["checkpoint"].get("interaction_id").is_none(), "{there}");
    // The cancelled run goes on at its node, and asks again.
    person(&ours, &mut run, Status::Running).await;
    assert_eq!(pointer(&run), None);
    paused(&ours, &mut run).await;
    assert_eq!(pointer(&run), Some("r_a"));
    // Only who says so takes it away while the run waits.
    ours.patch(&mut run, |r| {
        r.drop_pause_pointer();
        Ok(())
    })
    .await
    .expect("patches");
    assert_eq!(pointer(&run), None);
}

/// RUN-RS11: a failure keeps the checkpoint; a requested cancel outranks it.
pub async fn rs11_a_requested_cancel_wins(site: &Site) {
    let runs = runs(site).await;
    let failed = Transition::new(Status::FailedResumable, Actor::Engine, [Status::Running])
        .failure(FailureCode::EXECUTION_FAILED, "exit 1");
    let (ours, mut run) = started(&runs, "fails").await;
    let before = run.record.checkpoint().cloned();
    ours.transition(&mut run, &failed).await.expect("fails");
    assert_eq!(run.record.checkpoint().cloned(), before);

    let (ours, mut run) = started(&runs, "cancelled").await;
    let mut other = runs.load(run.id()).await.expect("loads");
    runs.request_cancel(&mut other, Some("wrong branch")).await.expect("asks");
    // The engine's copy is old and does not know of the request.
    let moved = ours.transition(&mut run, &failed).await.expect("ends");
    assert_eq!(moved, Moved::To(Status::Cancelled));
    assert_eq!(run.record.error(), Some("wrong branch"));
    assert_eq!(run.record.failure_code().map(FailureCode::as_str), Some("CANCELLED"));
    assert_eq!(run.record.cancel_requested_at(), None, "obeyed and cleared");

    let (ours, mut run) = started(&runs, "finished").await;
    engine(&ours, &mut run, Status::Finished).await;
    let mut other = runs.load(run.id()).await.expect("loads");
    let cancel = Transition::new(Status::Cancelled, Actor::Person, [Status::Running]);
    let moved = runs.transition(&mut other, &cancel).await.expect("answers");
    assert_eq!(moved, Moved::Not { actual: Status::Finished });
    let anyway = Transition::new(Status::Cancelled, Actor::Person, [Status::Finished]);
    let e = runs.transition(&mut other, &anyway).await.expect_err("there is no such move");
    assert_eq!(e.code(), "bad-transition");
}

/// RUN-WF17: what only a person goes on with, automation does not, whatever it holds.
pub async fn wf17_automation_leaves_what_a_person_must_decide(site: &Site) {
    let runs = runs(site).await;
    let cases = [
        ("cancelled", json!({"status": "cancelled", "failure_code": "CANCELLED"})),
        ("waits", json!({"status": "paused_waiting_human"})),
        ("parked", json!({"status": "paused_operator", "explicit_resume_required": true})),
        ("budget", json!({"failure_code": "BUDGET_EXCEEDED"})),
        ("effect", json!({"failure_code": "AMBIGUOUS_EFFECT"})),
        ("unknown", json!({"failure_code": "OF_A_LATER_BUILD"})),
        ("none", json!({"failure_code": null})),
        ("empty", json!({"failure_code": ""})),
        ("rewound", json!({"failure_code": "TIMEOUT", "explicit_resume_required": true})),
        ("failed", json!({"status": "failed", "failure_code": "FAIL_NODE"})),
        ("finished", json!({"status": "finished"})),
    ];
    for (id, mut members) in cases {
        if members.get("status").is_none() {
            members["status"] = "failed_resumable".into();
        }
        let run = forge(&**runs.store(), id, members).await;
        let before = stored(&**runs.store(), &run).await;
        // with the run's lock and answers it may not either
        let ours = claimed(&runs, &run).await;
        let mut found = ours.load(&run).await.expect("loads");
        for to in [Status::Running, Status::Queued] {
            let status = found.status().clone();
            let change = Transition::new(to, Actor::Automation, [status]).answered();
            let e = ours.transition(&mut found, &change).await.expect_err(id);
            assert_eq!((e.kind(), e.code()), (Kind::Refused, "bad-transition"), "{id}: {e}");
        }
        assert_eq!(stored(&**runs.store(), &run).await, before, "{id}");
    }
    // after a failure that may pass, it goes on by itself
    for code in [FailureCode::TIMEOUT, FailureCode::PROCESS_ORPHANED, FailureCode::INTERRUPTED] {
        let members = json!({"status": "failed_resumable", "failure_code": code});
        let run = forge(&**runs.store(), &format!("again-{code}"), members).await;
        let ours = claimed(&runs, &run).await;
        let mut found = ours.load(&run).await.expect("loads");
        let change = Transition::new(Status::Running, Actor::Automation, [Status::FailedResumable]);
        let moved = ours.transition(&mut found, &change).await.expect("moves");
        assert_eq!(moved, Moved::To(Status::Running), "{code}");
    }
}

async fn claimed(runs: &RunStore, run: &RunId) -> RunStore {
    let claim = runs.claim(run, std::time::Duration::ZERO, "test").await.expect("claims");
    runs.with_claim(std::sync::Arc::new(claim))
}
