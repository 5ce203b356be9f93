//! Intervals in which nothing of the run executed, and histories that cannot be walked:
//! RES-082 to 086, 093.

use std::time::Duration;

use backtrail_core::capture::{Late, NewLabel, Request};
use backtrail_core::error::Kind;
use backtrail_core::plan::LeftReason;
use backtrail_core::rewind::RewindScope;
use backtrail_core::run::Status;
use backtrail_core::snapshot::chain::load_refs;
use backtrail_core::snapshot::doc::{BankNote, Snapshot};
use backtrail_core::snapshot::label::{Boundary, Phase};
use backtrail_core::snapshot::refs::Missing;
use backtrail_core::store::{DocKey, Expect, docs};

use crate::world::{Play, World, names, rel, with_scope};

#[tokio::test]
async fn res_082_what_changed_while_parked_survives() {
    for close in [Phase::Pause, Phase::Fail] {
        let w = World::new().await;
        w.write("a", "0");
        let mut play = Play::start(&w).await;
        w.write("before", "run");
        play.capture(close, "plan", 0).await;
        w.write("parked", "mine");
        w.write("both", "mine");
        play.capture(Phase::Resume, "plan", 0).await;
        w.write("after", "run");
        w.write("both", "run");
        play.fail("plan", 0).await;
        let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
        assert_eq!(w.read("parked"), "mine");
        for gone in ["before", "after", "both"] {
            assert_eq!(w.read(gone), "<entity not found>", "{gone}");
        }
        assert_eq!(names(&done.files.mixed), ["both"]);
        let left = &done.files.restore.expect("files").left_in_place;
        assert_eq!(
            (left.len(), &left[0].path, left[0].reason),
            (1, &rel("parked"), LeftReason::Parked)
        );
    }
}

#[tokio::test]
async fn res_083_a_second_pause_of_the_same_iteration_counts_too() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    for round in ["one", "two"] {
        w.write(&format!("run-{round}"), "run");
        play.capture(Phase::Pause, "plan", 0).await;
        w.write(&format!("mine-{round}"), "mine");
        play.capture(Phase::Resume, "plan", 0).await;
    }
    play.fail("plan", 0).await;
    w.rewind_to(&play.id(), "plan").await.expect("rewound");
    for round in ["one", "two"] {
        assert_eq!(w.read(&format!("mine-{round}")), "mine");
        assert_eq!(w.read(&format!("run-{round}")), "<entity not found>");
    }
}

#[tokio::test]
async fn res_084_a_parked_edit_that_only_a_bank_recorded_is_parked() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    w.write("run", "run");
    play.capture(Phase::Pause, "plan", 0).await;
    w.write("mine", "mine");
    let note = BankNote {
        transaction: "tx-0000000000000000".into(),
        target: "0000000000000000".into(),
        plan_digest: String::new(),
        partial: false,
    };
    let bank =
        Request { label: NewLabel::Numbered("bank"), bank: Some(note), ..Request::default() };
    let bank = play.request(bank).await;
    // Nothing moved since, so that `resume:` names the bank.
    let resume = play.capture(Phase::Resume, "plan", 0).await;
    assert_eq!(resume.id, bank.id);
    w.write("later", "run");
    play.fail("plan", 0).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!((w.read("mine"), w.read("run")), ("mine".into(), "<entity not found>".into()));
    assert_eq!(w.read("later"), "<entity not found>");
    assert_eq!(done.files.restore.expect("files").left_in_place[0].reason, LeftReason::Parked);
}

#[tokio::test]
async fn res_085_empty_windows_and_points_inside_a_node_cut_nothing_out() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    play.capture(Phase::Pause, "plan", 0).await;
    play.capture(Phase::Resume, "plan", 0).await;
    w.write("one", "run");
    for label in ["my-point", "checkpoint:abc"] {
        let boundary = Boundary {
            phase: Phase::Inside,
            node: Some("plan".into()),
            iteration: Some(0),
            attempt: Some(1),
            gate: None,
        };
        let label = NewLabel::Named(label.parse().expect("a label"));
        play.request(Request { label, boundary: Some(boundary), ..Request::default() }).await;
        w.write("two", "run");
    }
    let step = Request { label: NewLabel::Numbered("step"), ..Request::default() };
    play.request(step).await;
    w.write("three", "run");
    play.fail("plan", 0).await;
    w.rewind_to(&play.id(), "plan").await.expect("rewound");
    for gone in ["one", "two", "three"] {
        assert_eq!(w.read(gone), "<entity not found>", "{gone}");
    }
}

#[tokio::test]
async fn res_086_a_recorded_gap_refuses_and_a_late_end_goes_by_time() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    w.write("run", "run");
    play.capture(Phase::Fail, "plan", 0).await;
    w.write("mine", "mine");
    miss(&w, &play, "resume:plan:0").await;
    w.write("later", "run");
    play.fail("plan", 0).await;
    let e = w.rewind_to(&play.id(), "plan").await.expect_err("refused");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "chain-gap"));
    assert_eq!(e.details()["skip_reason"], "chain-gap");
    assert_eq!((w.read("run"), w.read("mine")), ("run".into(), "mine".into()));

    let w = World::new().await;
    w.write("gone", "0");
    let mut play = Play::start(&w).await;
    w.write("run", "run");
    std::thread::sleep(Duration::from_millis(50));
    let alive = w.context().clock.now().rfc3339();
    std::thread::sleep(Duration::from_millis(50));
    w.write("mine", "mine");
    w.remove("gone");
    late(&play, alive).await;
    play.end(Status::FailedResumable).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!((w.read("run"), w.read("mine")), ("<entity not found>".into(), "mine".into()));
    assert_eq!(w.read("gone"), "<entity not found>");
    let left = done.files.restore.expect("files").left_in_place;
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|l| l.reason == LeftReason::Unattributed));
}

#[tokio::test]
async fn res_102_an_end_that_was_missed_is_said_and_all_goes_back_when_told() {
    let w = World::new().await;
    w.write("kept", "0");
    let mut play = Play::start(&w).await;
    w.remove("kept");
    w.write("run", "run");
    miss(&w, &play, "post:plan:0").await;
    play.end(Status::FailedResumable).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!((done.exit_code, done.files.reverted), (3, false));
    let missed: Vec<&String> = done.files.missed_boundaries.keys().collect();
    assert_eq!(missed, ["post:plan:0"]);
    let left = done.files.restore.expect("a comparison").left_in_place;
    assert_eq!(left.iter().map(|l| l.path.to_string()).collect::<Vec<_>>(), ["kept", "run"]);
    let done = w.rewind(&play.id(), with_scope("plan", RewindScope::Full)).await.expect("rewound");
    assert_eq!((done.exit_code, done.files.reverted), (0, true));
    assert_eq!((w.read("kept"), w.read("run")), ("0".into(), "<entity not found>".into()));
}

#[tokio::test]
async fn res_086_what_a_dead_engine_may_not_have_seen_is_named_as_left() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    let alive = w.context().clock.now().rfc3339();
    std::thread::sleep(Duration::from_millis(50));
    w.write("after", "by whom?");
    late(&play, alive).await;
    play.end(Status::FailedResumable).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!(done.files.skip_reason, Some("no-recorded-change"));
    let left = done.files.restore.expect("a comparison").left_in_place;
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].path.to_string().as_str(), left[0].reason),
        ("after", LeftReason::Unattributed)
    );
    assert_eq!(w.read("after"), "by whom?");
}

/// The `fail:` of `plan`, captured after its engine had died.
async fn late(play: &Play<'_>, alive_until: String) {
    let boundary = Boundary {
        phase: Phase::Fail,
        node: Some("plan".into()),
        iteration: Some(0),
        attempt: Some(1),
        gate: None,
    };
    let label = NewLabel::Named(boundary.label().expect("a label"));
    let late = Some(Late { alive_until: Some(alive_until) });
    let request = Request { label, boundary: Some(boundary), late, ..Request::default() };
    assert!(play.request(request).await.late);
}

#[tokio::test]
async fn res_086_the_snapshot_after_a_missed_end_does_not_make_its_interval_a_parked_one() {
    let w = World::new().await;
    w.write("src", "0");
    let mut play = Play::start(&w).await;
    w.write("src", "run");
    play.capture(Phase::Post, "plan", 0).await;
    w.write("late", "run");
    miss(&w, &play, "fail:plan:1").await;
    play.capture(Phase::Resume, "plan", 1).await;
    play.end(backtrail_core::run::Status::FailedResumable).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!((w.read("src"), w.read("late")), ("0".into(), "run".into()));
    let left = done.files.restore.expect("files").left_in_place;
    let left: Vec<_> = left.iter().map(|l| (l.path.to_string(), l.reason)).collect();
    assert_eq!(left, [("late".to_owned(), LeftReason::Unattributed)]);
}

/// Notes a boundary that could not be captured.
async fn miss(w: &World, play: &Play<'_>, label: &str) {
    let chain = w.of_run(&play.id()).chain().clone();
    let loaded = load_refs(&*w.store, &chain).await.expect("refs");
    let mut refs = loaded.refs;
    let at = w.context().clock.now().rfc3339();
    refs.missing.insert(label.into(), Missing { at, reason: "disk full".into() });
    let expect = Expect::Version(loaded.version.expect("a version"));
    let (key, ctx) = (DocKey::Refs(chain), w.context());
    docs::save(&*w.store, &*ctx.ids, &key, &refs, expect, None).await.expect("saved");
}

/// A chain pre:plan, post:plan, post:build, fail:test of a failed run.
async fn chain_of(w: &World) -> (Play<'_>, Vec<Snapshot>) {
    let play = crate::world::failed(w).await;
    let chain = w.of_run(&play.id()).snapshots().await.expect("snapshots");
    (play, chain)
}

async fn replace(w: &World, old: &Snapshot, new: Option<Snapshot>) {
    let version = w.store.get(&old.key()).await.expect("there").version;
    w.store.delete(&old.key(), Some(&version)).await.expect("deleted");
    if let Some(new) = new {
        docs::create(&*w.store, &new.key(), &new, None).await.expect("created");
    }
}

#[tokio::test]
async fn res_093_a_history_that_cannot_be_walked_is_refused() {
    // A parent that is gone, and one whose content does not match its digest.
    for forged in [false, true] {
        let w = World::new().await;
        let (play, chain) = chain_of(&w).await;
        let between = chain[1].clone();
        let new = forged.then(|| Snapshot { message: Some("forged".into()), ..between.clone() });
        replace(&w, &between, new).await;
        refused(&w, &play).await;
    }
    // A head that claims to lie below its own parent.
    let w = World::new().await;
    let (play, chain) = chain_of(&w).await;
    let mut head = Snapshot { seq: 0, ..chain[0].clone() };
    head.seal().expect("sealed");
    docs::create(&*w.store, &head.key(), &head, None).await.expect("created");
    let key = DocKey::Refs(head.chain.clone());
    let loaded = load_refs(&*w.store, &head.chain).await.expect("refs");
    let mut refs = loaded.refs;
    refs.head = Some(head.id.clone());
    let expect = Expect::Version(loaded.version.expect("a version"));
    let ctx = w.context();
    docs::save(&*w.store, &*ctx.ids, &key, &refs, expect, None).await.expect("saved");
    refused(&w, &play).await;
}

async fn refused(w: &World, play: &Play<'_>) {
    let before = w.picture();
    let record = w.load(&play.id()).await.record;
    let e = w.rewind_to(&play.id(), "plan").await.expect_err("refused");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "chain-unreadable"), "{e}");
    assert_eq!(w.picture(), before);
    assert_eq!(w.load(&play.id()).await.record, record);
}
