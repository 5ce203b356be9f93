//! When files cannot be put back, and when nothing is: RES-100, 102, 103, 105, 109.

use backtrail_core::error::Kind;
use backtrail_core::restore::Unasked;
use backtrail_core::rewind::{self, Pivot, RewindRequest, RewindScope};
use backtrail_core::run::{Actor, Status, Transition, Versioning};
use backtrail_core::snapshot::chain::load_refs;
use backtrail_core::snapshot::label::{Label, Phase};
use backtrail_core::snapshot::pruned;
use backtrail_core::snapshot::refs::Missing;
use backtrail_core::store::{DocKey, Expect, docs};

use crate::world::{Play, World, failed, to, with_scope};

async fn code(w: &World, play: &Play<'_>, request: RewindRequest) -> (Kind, String) {
    let before = (w.picture(), w.load(&play.id()).await.record);
    let e = w.rewind(&play.id(), request).await.expect_err("refused");
    assert_eq!((w.picture(), w.load(&play.id()).await.record), before, "{e}");
    let reason = e.details().get("skip_reason").and_then(|r| r.as_str()).unwrap_or(e.code());
    assert_eq!(reason, e.code());
    (e.kind(), reason.to_owned())
}

#[tokio::test]
async fn res_100_completed_work_is_not_dropped_unseen() {
    let w = World::new().await;
    let mut play = failed(&w).await;
    play.resume().await;
    play.capture(Phase::Resume, "test", 0).await;
    play.enter("build", 1).await;
    // The entry of iteration 1 was missed, its end was not.
    w.write("out/b", "built again");
    play.capture(Phase::Post, "build", 1).await;
    play.fail("test", 1).await;
    assert_eq!(code(&w, &play, to("build")).await, (Kind::Refused, "older-iteration".into()));
    let pivot = Pivot::Node { node: "build".into(), iteration: Some(0) };
    let done = w.rewind(&play.id(), RewindRequest { pivot, ..RewindRequest::default() }).await;
    assert_eq!(done.expect("named exactly").iteration(), 0);
    assert_eq!(w.read("out/b"), "<entity not found>");
}

#[tokio::test]
async fn res_102_every_reason_is_told_before_the_run_is_parked() {
    for (state, reason) in
        [("off", "versioning-off"), ("overflow", "over-file-limit"), ("on", "nothing-captured")]
    {
        let w = World::new().await;
        let mut play = Play::uncaptured(&w, Some(crate::world::FLOW), "plan").await;
        play.enter("plan", 0).await;
        let versioning = Versioning { state: state.into(), ..Versioning::default() };
        play.patch(|r| {
            r.versioning = Some(versioning.clone());
        })
        .await;
        play.end(Status::FailedResumable).await;
        assert_eq!(code(&w, &play, to("plan")).await, (Kind::Refused, reason.into()));
        let done = w.rewind(&play.id(), with_scope("plan", RewindScope::None)).await;
        let done = done.expect("the record alone");
        assert_eq!(
            (done.files.skip_reason, done.status),
            (Some("scope-none"), Status::PausedOperator)
        );
    }
    let w = World::new().await;
    let mut play = Play::uncaptured(&w, None, "plan").await;
    play.enter("plan", 0).await;
    play.patch(|r| {
        r.work_dir = None;
    })
    .await;
    play.end(Status::FailedResumable).await;
    assert_eq!(code(&w, &play, to("plan")).await, (Kind::Refused, "no-workspace".into()));
}

#[tokio::test]
async fn res_102_a_missed_boundary_says_why() {
    let w = World::new().await;
    let play = failed(&w).await;
    let chain = w.of_run(&play.id()).chain().clone();
    let loaded = load_refs(&*w.store, &chain).await.expect("refs");
    let mut refs = loaded.refs;
    let label: Label = "pre:test:0".parse().expect("a label");
    refs.labels.remove(&label);
    let missing = Missing { at: "2026-01-01T00:00:00Z".into(), reason: "it took too long".into() };
    refs.missing.insert("pre:test:0".into(), missing);
    let expect = Expect::Version(loaded.version.expect("a version"));
    let ctx = w.context();
    docs::save(&*w.store, &*ctx.ids, &DocKey::Refs(chain), &refs, expect, None)
        .await
        .expect("saved");
    let e = w.rewind_to(&play.id(), "test").await.expect_err("refused");
    assert_eq!(e.code(), "no-boundary");
    assert!(e.message().contains("it took too long"), "{e}");
    assert!(e.hint().expect("a hint").contains("--keep-files"));
}

#[tokio::test]
async fn res_103_a_pruned_boundary_names_rule_and_what_is_left() {
    let w = World::new().await;
    let play = failed(&w).await;
    let chain = w.of_run(&play.id()).snapshots().await.expect("snapshots");
    let first = chain.last().expect("a snapshot").clone();
    let line = pruned::Line {
        id: first.id.clone(),
        seq: first.seq,
        label: first.label.clone(),
        labels: Vec::new(),
        at: "2026-01-01T00:00:00Z".into(),
        rule: "keep 3".into(),
    };
    let ctx = w.context();
    pruned::add(&*w.store, &*ctx.ids, &first.chain, &[line]).await.expect("noted");
    let label = first.label.clone().expect("a label");
    relabel_away(&w, &first.chain, &label).await;
    w.store.delete(&first.key(), None).await.expect("deleted");
    let e = w.rewind_to(&play.id(), "plan").await.expect_err("refused");
    assert_eq!((e.kind(), e.code()), (Kind::NotFound, "chain-pruned"));
    assert!(e.message().contains("keep 3") && e.message().contains("pre:build:0"), "{e}");
    w.rewind_to(&play.id(), "build").await.expect("the nearest works");
}

async fn relabel_away(w: &World, chain: &backtrail_core::ids::Chain, label: &Label) {
    let ctx = w.context();
    backtrail_core::snapshot::relabel::delete(&*w.store, &*ctx.ids, chain, label)
        .await
        .expect("taken away");
}

#[tokio::test]
async fn res_105_a_run_that_moved_meanwhile_loses_no_file() {
    let w = World::new().await;
    let play = failed(&w).await;
    let stale = w.load(&play.id()).await;
    let mut run = stale.clone();
    let cancel = Transition::new(Status::Cancelled, Actor::Person, [Status::FailedResumable]);
    w.runs().transition(&mut run, &cancel).await.expect("moved");
    let before = w.picture();
    let (runs, recorder) = (w.runs(), w.of_run(&play.id()));
    let e = rewind::rewind(&runs, &recorder, &stale, &to("build"), &Unasked).await.expect_err("no");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "run-changed"));
    assert_eq!(w.picture(), before);
    let now = w.load(&play.id()).await;
    assert_eq!(*now.status(), Status::Cancelled);
    assert!(now.record.extra.is_empty());
}

#[tokio::test]
async fn res_109_a_running_run_and_a_node_never_reached_are_refused() {
    let w = World::new().await;
    w.write("a", "1");
    let mut play = Play::start(&w).await;
    let e = w.rewind_to(&play.id(), "plan").await.expect_err("refused");
    assert_eq!(e.kind(), Kind::Busy);
    play.fail("plan", 0).await;
    let e = w.rewind_to(&play.id(), "test").await.expect_err("refused");
    assert_eq!(e.kind(), Kind::NotFound);
    assert!(e.message().contains("plan"), "{e}");
}
