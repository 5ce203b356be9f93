//! What a rewind puts back by default: RES-080, 081, 087 to 092, 094, 096, 097.

use std::os::unix::fs::MetadataExt;

use backtrail_core::error::Kind;
use backtrail_core::plan::{LeftReason, OnConflict, Options};
use backtrail_core::restore::Unasked;
use backtrail_core::rewind::{self, RewindRequest, RewindScope, WholeRequest};
use backtrail_core::run::Status;
use backtrail_core::snapshot::label::Phase;

use crate::world::{Play, World, failed, names, rel, to, with_scope};

#[tokio::test]
async fn res_080_what_the_run_changed_is_undone_and_notes_stay() {
    let w = World::new().await;
    let play = failed(&w).await;
    let done = w.rewind_to(&play.id(), "build").await.expect("rewound");
    assert_eq!(w.read("src"), "then");
    assert_eq!(w.read("out/a"), "<entity not found>");
    assert!(!w.ws.join("out").exists());
    assert_eq!(w.read("log"), "<entity not found>");
    assert_eq!(w.read("plan.txt"), "planned");
    assert_eq!(w.read("notes"), "mine");
    let files = done.files.restore.as_ref().expect("files");
    assert!(done.files.reverted);
    assert_eq!((files.counts.plan.written, files.counts.plan.deleted), (1, 2));
    assert_eq!(done.files.overwritten, 0);
    assert_eq!(files.left_in_place.len(), 1);
    assert_eq!(files.left_in_place[0].path, rel("notes"));
    assert_eq!(files.left_in_place[0].reason, LeftReason::OutOfScope);
    assert_eq!(done.exit_code, 0);
    // The bank holds what was discarded.
    let bank = files.bank.as_ref().expect("a bank");
    let undone = w.undo().await.expect("undone");
    assert_eq!(undone.target.snapshot, bank.snapshot);
    assert_eq!((w.read("out/a"), w.read("log")), ("built".into(), "failed".into()));
    assert!(undone.warnings.iter().any(|x| x.code == "record-unchanged"));
}

#[tokio::test]
async fn res_081_files_made_by_hand_stay_unless_all_is_asked_for() {
    let w = World::new().await;
    let play = failed(&w).await;
    let request = RewindRequest { dry_run: true, ..with_scope("plan", RewindScope::Full) };
    let shown = w.rewind(&play.id(), request).await.expect("planned");
    assert!(shown.planned);
    let planned = shown.files.restore.as_ref().expect("a plan");
    assert!(names(&planned.deleted_paths).contains(&"notes".to_owned()));
    assert_eq!(w.read("notes"), "mine");
    assert_eq!(*w.load(&play.id()).await.status(), Status::FailedResumable);
    w.rewind(&play.id(), with_scope("plan", RewindScope::Full)).await.expect("rewound");
    assert_eq!(w.read("notes"), "<entity not found>");
    assert_eq!(w.picture().len(), 2);
    w.undo().await.expect("undone");
    assert_eq!(w.read("notes"), "mine");
}

#[tokio::test]
async fn res_087_a_change_of_mode_alone_is_undone() {
    let w = World::new().await;
    w.write("tool", "x");
    w.chmod("tool", 0o644);
    let mut play = Play::start(&w).await;
    w.chmod("tool", 0o755);
    play.fail("plan", 0).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!(done.files.restore.expect("files").counts.plan.mode_changed, 1);
    assert_eq!(w.picture()["tool"].0 & 0o7777, 0o644);
}

#[tokio::test]
async fn res_088_what_was_skipped_on_one_side_is_not_in_scope() {
    let w = World::new().await;
    w.write("a", "1");
    let mut play = Play::start(&w).await;
    let big = std::fs::File::create(w.ws.join("big")).expect("made");
    big.set_len(40 << 20).expect("sparse");
    w.write("a", "2");
    play.fail("plan", 0).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!(w.read("a"), "1");
    assert!(w.ws.join("big").exists());
    assert_eq!(names(&done.files.uncovered_paths), ["big"]);
    assert_eq!(done.files.scope_count, Some(1));
}

#[tokio::test]
async fn res_089_nothing_recorded_and_kept_files_that_stay_in_scope() {
    let w = World::new().await;
    w.write("a", "1");
    let mut play = Play::start(&w).await;
    play.end(Status::FailedResumable).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert!(!done.files.reverted);
    assert_eq!(done.files.skip_reason, Some("no-recorded-change"));
    assert_eq!((done.exit_code, done.record_rewound()), (0, true));

    let w = World::new().await;
    let play = failed(&w).await;
    let kept = w.rewind(&play.id(), with_scope("build", RewindScope::None)).await.expect("kept");
    assert_eq!(kept.files.skip_reason, Some("scope-none"));
    assert_eq!(w.read("src"), "changed by build");
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert!(done.files.reverted);
    assert_eq!((w.read("src"), w.read("log")), ("then".into(), "<entity not found>".into()));
}

#[tokio::test]
async fn res_090_a_step_that_changed_nothing_moves_no_time() {
    let w = World::new().await;
    w.write("a", "1");
    let mut play = Play::start(&w).await;
    w.write("b", "by plan");
    play.done("plan", 0, ("build", 0)).await;
    play.fail("build", 0).await;
    w.write("mine", "x");
    let times = || {
        ["", "a", "b", "mine"].map(|p| {
            let meta = std::fs::metadata(w.ws.join(p)).expect("there");
            (meta.mtime_nsec(), meta.ctime_nsec(), meta.ino())
        })
    };
    let before = times();
    let done = w.rewind_to(&play.id(), "build").await.expect("rewound");
    assert_eq!(done.files.skip_reason, Some("no-recorded-change"));
    assert_eq!(times(), before);
    let chain = w.of_run(&play.id()).snapshots().await.expect("snapshots");
    assert!(chain.iter().all(|s| !s.is_bank() && s.rewound_to.is_none()));
}

#[tokio::test]
async fn res_091_an_edit_by_hand_is_kept_unless_taken() {
    let w = World::new().await;
    let play = failed(&w).await;
    w.write("src", "edited by hand");
    let done = w.rewind_to(&play.id(), "build").await.expect("rewound");
    assert_eq!((w.read("src"), done.exit_code), ("edited by hand".into(), 3));
    assert_eq!(w.read("log"), "<entity not found>");

    let w = World::new().await;
    let play = failed(&w).await;
    w.write("src", "edited by hand");
    let options = Options { take: vec![rel("src")], ..Options::default() };
    let done =
        w.rewind(&play.id(), RewindRequest { options, ..to("build") }).await.expect("rewound");
    assert_eq!((w.read("src"), done.exit_code), ("then".into(), 0));
    assert_eq!(done.files.overwritten, 1);
    w.undo().await.expect("undone");
    assert_eq!(w.read("src"), "edited by hand");

    let w = World::new().await;
    let play = failed(&w).await;
    w.write("src", "edited by hand");
    let options = Options { on_conflict: OnConflict::Abort, ..Options::default() };
    let e = w.rewind(&play.id(), RewindRequest { options, ..to("build") }).await.expect_err("no");
    assert_eq!(e.kind(), Kind::Refused);
    assert_eq!(*w.load(&play.id()).await.status(), Status::FailedResumable);
}

#[tokio::test]
async fn res_092_what_another_run_changed_is_kept_and_named() {
    let w = World::new().await;
    w.write("shared", "0");
    w.write("own", "0");
    let mut one = Play::start(&w).await;
    w.write("shared", "by one");
    w.write("own", "by one");
    one.fail("plan", 0).await;
    let mut two = Play::start(&w).await;
    w.write("shared", "by two");
    two.fail("plan", 0).await;
    let done = w.rewind_to(&one.id(), "plan").await.expect("rewound");
    assert_eq!((w.read("shared"), w.read("own")), ("by two".into(), "0".into()));
    let conflict = &done.files.restore.expect("files").conflicts[0];
    assert_eq!(conflict.kind.as_str(), "other-run");
    assert!(conflict.detail.contains(two.id().as_str()), "{}", conflict.detail);
}

#[tokio::test]
async fn res_094_a_scope_is_spelled_exactly() {
    for bad in ["Produced", "", "all", " full"] {
        let e = bad.parse::<RewindScope>().expect_err(bad);
        assert_eq!(e.kind(), Kind::Invalid);
    }
    assert_eq!("produced".parse::<RewindScope>().expect("a scope"), RewindScope::Produced);
}

#[tokio::test]
async fn res_096_what_a_person_changed_after_a_rewind_stays_in_the_next() {
    let w = World::new().await;
    let mut play = failed(&w).await;
    w.rewind_to(&play.id(), "build").await.expect("rewound");
    w.write("src", "mine now");
    play.resume().await;
    play.capture(Phase::Resume, "build", 1).await;
    play.enter("build", 1).await;
    play.alias(Phase::Pre, "build", 1).await;
    w.write("second", "by build again");
    play.fail("build", 1).await;
    let done = w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!(w.read("src"), "mine now");
    assert_eq!(w.read("second"), "<entity not found>");
    assert_eq!(w.read("plan.txt"), "<entity not found>");
    let left = &done.files.restore.expect("files").left_in_place;
    let src = left.iter().find(|l| l.path == rel("src")).expect("left");
    assert_eq!(src.reason, LeftReason::Parked);
}

#[tokio::test]
async fn res_097_whatever_way_files_were_changed() {
    let w = World::new().await;
    w.write("from", "moved");
    w.write("gone", "deleted");
    let before = w.picture();
    let mut play = Play::start(&w).await;
    let script =
        "mv from to; rm gone; mkdir -p d/e; echo x > d/e/f; ln -s to link; (echo late > bg) & wait";
    let done = std::process::Command::new("sh").args(["-c", script]).current_dir(&w.ws).status();
    assert!(done.expect("a shell").success());
    play.fail("plan", 0).await;
    w.rewind_to(&play.id(), "plan").await.expect("rewound");
    assert_eq!(w.picture(), before);
}

#[tokio::test]
async fn res_116_a_snapshot_of_a_failed_run_is_put_back_whole() {
    let w = World::new().await;
    let play = failed(&w).await;
    let before = w.load(&play.id()).await;
    let recorder = w.of_run(&play.id());
    let request = WholeRequest { snapshot: "post:plan:0".into(), ..WholeRequest::default() };
    let runs = w.runs();
    let done = rewind::restore_snapshot(&runs, &recorder, &before, &request, &Unasked).await;
    let done = done.expect("restored");
    assert_eq!((w.read("src"), w.read("notes")), ("then".into(), "<entity not found>".into()));
    assert_eq!(w.load(&play.id()).await.record, before.record);
    let chain = recorder.snapshots().await.expect("snapshots");
    assert_eq!(chain[0].rewound_to, Some(done.target.snapshot.clone()));
    assert!(chain.iter().any(|s| s.is_bank()));
    w.undo().await.expect("undone");
    assert_eq!((w.read("src"), w.read("notes")), ("changed by build".into(), "mine".into()));
    let chain = recorder.snapshots().await.expect("snapshots");
    assert_eq!(chain[0].rewound_to, done.bank.map(|b| b.snapshot));
    // And the run's own changes are in scope as before.
    w.rewind_to(&play.id(), "build").await.expect("rewound");
    assert_eq!((w.read("src"), w.read("notes")), ("then".into(), "mine".into()));
    let gone = WholeRequest { snapshot: "post:plan:7".into(), ..WholeRequest::default() };
    let run = w.load(&play.id()).await;
    let e =
        rewind::restore_snapshot(&runs, &recorder, &run, &gone, &Unasked).await.expect_err("no");
    assert_eq!(e.kind(), Kind::NotFound);
    let _ = to("plan");
}
