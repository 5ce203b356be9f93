//! Killed with -9 at every arrow: RES-041 to RES-045.
//!
//! The child is this very test binary: it restores and kills itself at a point.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Kind, Result};
use backtrail_core::restore::{self, Direction, RestoreRequest};
use backtrail_core::snapshot::chain;

use crate::world::{At, Picture, World};

const TOP: &str = "BACKTRAIL_TEST_TOP";
const POINT: &str = "BACKTRAIL_TEST_POINT";
const COUNT: &str = "BACKTRAIL_TEST_COUNT";

/// The child's part; does nothing in a normal run.
#[test]
fn child() {
    let Ok(top) = std::env::var(TOP) else { return };
    let point: &'static str = std::env::var(POINT).expect("a point").leak();
    let n = std::env::var(COUNT).expect("a count").parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut w = World::existing(Path::new(&top)).await;
        w.faults = At::act(point, n, || {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("killed");
            loop {
                std::thread::park();
            }
        });
        let chain = w.root().chain();
        let target = chain::resolve(&*w.store, &chain, "target").await.expect("a target");
        let _ = w.restore(&target).await;
    });
}

/// A workspace whose restore to label `target` is killed at the `n`th time of `point`:
/// the world, how it was before, and how it would be after.
pub(crate) async fn killed(point: &str, n: usize) -> (tempfile::TempDir, World, Picture, Picture) {
    let temp = tempfile::tempdir().expect("temp");
    let w = World::existing(temp.path()).await;
    for i in 0..40 {
        w.write(&format!("d{}/f{i}", i % 4), "then");
    }
    w.write("narrow/f", "then");
    w.write("kind", "a file");
    w.label("target").await;
    let after = w.picture();
    for i in 0..40 {
        match i % 3 {
            0 => w.write(&format!("d{}/f{i}", i % 4), "now"),
            1 => fs::remove_file(w.ws.join(format!("d{}/f{i}", i % 4))).expect("removed"),
            _ => w.write(&format!("new{i}/x"), "added"),
        }
    }
    fs::remove_file(w.ws.join("kind")).expect("removed");
    w.write("kind/in", "a directory");
    let before = w.picture();
    let status = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "kill::child", "--nocapture"])
        .env(TOP, temp.path())
        .env(POINT, point)
        .env(COUNT, n.to_string())
        .output()
        .expect("a child");
    assert!(!status.status.success(), "the child lives through {point} {n}");
    (temp, w, before, after)
}

pub(crate) async fn recover(w: &World, direction: Direction) -> Result<Vec<restore::Recovered>> {
    restore::recover(&w.place(), direction, Duration::from_secs(5), "restore").await
}

const HALF_DONE: [(&str, usize); 8] = [
    ("restore.applying", 1),
    ("restore.step", 1),
    ("restore.step", 2),
    ("restore.step", 20),
    ("restore.step", 43),
    ("restore.step", 54),
    ("restore.deleted", 1),
    ("restore.applied", 1),
];

#[tokio::test]
async fn res_041_a_killed_restore_goes_on_or_back() {
    for (point, n) in HALF_DONE {
        for direction in [Direction::Finish, Direction::RollBack] {
            let (_temp, w, before, after) = killed(point, n).await;
            let e = w.recorder().capture(&Default::default()).await.expect_err("refused");
            assert_eq!((e.kind(), e.code()), (Kind::Refused, "recovery-needed"), "{point} {n}");
            let hint = e.hint().expect("a hint");
            assert!(hint.contains("--finish") && hint.contains("--roll-back"));
            let target = chain::resolve(&*w.store, &w.root().chain(), "target").await;
            let e = w.restore(&target.expect("target")).await.expect_err("refused");
            assert_eq!(e.code(), "recovery-needed");
            let done = recover(&w, direction).await.expect("recovered");
            assert_eq!((done.len(), done[0].third_count), (1, 0), "{point} {n}: {done:?}");
            let right = if direction == Direction::Finish { &after } else { &before };
            assert_eq!(&w.picture(), right, "{point} {n} {direction:?}");
            w.assert_no_staging();
            w.capture().await;
            let e = recover(&w, direction).await.expect_err("nothing left");
            assert_eq!(e.kind(), Kind::NotFound);
        }
    }
}

#[tokio::test]
async fn res_041_before_anything_changed_it_is_swept() {
    for point in ["restore.banked", "restore.staged", "restore.journal"] {
        let (_temp, w, before, _) = killed(point, 1).await;
        assert_eq!(w.picture(), before);
        w.capture().await;
        w.assert_no_staging();
        assert!(
            restore::detect(&*w.store, &w.root(), &w.context().host)
                .await
                .expect("looks")
                .is_empty()
        );
    }
}

#[tokio::test]
async fn res_041_after_the_commit_it_is_closed() {
    for point in ["restore.committed", "restore.closed"] {
        let (_temp, w, before, after) = killed(point, 1).await;
        assert_eq!(w.picture(), after);
        w.capture().await;
        w.assert_no_staging();
        restore::undo(&w.recorder(), &Default::default(), &restore::Unasked).await.expect("undone");
        assert_eq!(w.picture(), before, "{point}");
    }
}

#[tokio::test]
async fn res_041_another_store_refuses_too() {
    let (temp, mut w, before, _) = killed("restore.step", 20).await;
    let own = Arc::clone(&w.store);
    let url = temp.path().join("other").to_str().expect("UTF-8").to_owned();
    w.store = backtrail_backends::open::open(&url, Default::default()).await.expect("a store");
    let e = w.recorder().capture(&Default::default()).await.expect_err("refused");
    assert_eq!(e.code(), "recovery-needed");
    // RES-045: the store of the restore is not needed to roll back.
    recover(&w, Direction::RollBack).await.expect("rolled back");
    assert_eq!(w.picture(), before);
    w.store = own;
    w.capture().await;
    w.assert_no_staging();
}

#[tokio::test]
async fn res_042_an_edit_of_a_pending_file_is_left_and_named() {
    for direction in [Direction::Finish, Direction::RollBack] {
        let (_temp, w, before, after) = killed("restore.step", 20).await;
        w.write("d0/f0", "mine");
        let done = recover(&w, direction).await.expect("recovered");
        assert_eq!(done[0].exit_code(), 3);
        assert_eq!(done[0].third[0].path.text(), "d0/f0");
        assert!(done[0].third[0].before.is_some() && done[0].third[0].after.is_some());
        assert_eq!(w.read("d0/f0"), "mine");
        let mut right = if direction == Direction::Finish { after } else { before };
        right.get_mut("d0/f0").expect("the file").1 = b"mine".to_vec();
        assert_eq!(w.picture(), right);
        w.capture().await;
    }
}

#[tokio::test]
async fn staging_that_nothing_explains_is_never_removed() {
    let (_temp, w, _, _) = killed("restore.step", 20).await;
    let stage = fs::read_dir(&w.ws).expect("list").map(|e| e.expect("entry").path());
    let stage: Vec<_> = stage.filter(|p| p.to_string_lossy().contains("-stage-")).collect();
    fs::remove_file(stage[0].join("journal.json")).expect("removed");
    fs::remove_dir_all(w.store_dir.join("workspaces").join(w.root().key.as_str()).join("journals"))
        .expect("removed");
    let e = w.recorder().capture(&Default::default()).await.expect_err("refused");
    assert_eq!(e.code(), "recovery-needed");
    assert!(e.message().contains(".backtrail-stage-"), "{e}");
    assert!(recover(&w, Direction::RollBack).await.is_err());
    assert!(stage[0].join("old").exists());
}

#[tokio::test]
async fn a_plain_request_needs_no_chain_but_its_own() {
    let w = World::new().await;
    w.write("a", "1");
    let target = w.capture().await;
    w.write("a", "2");
    let request = RestoreRequest { full: true, ..RestoreRequest::new(target) };
    let result = w.run(request).await.expect("restored");
    let json = serde_json::to_value(&result).expect("JSON");
    for field in [
        "format_version",
        "kind",
        "transaction",
        "state",
        "workspace",
        "target",
        "bank",
        "plan",
        "scope",
        "counts",
        "bytes",
        "written_paths",
        "deleted_paths",
        "conflicts",
        "not_covered",
        "left_in_place",
        "third",
        "warnings",
        "elapsed_ms",
        "exit_code",
    ] {
        assert!(json.get(field).is_some(), "{field} is missing");
    }
}
