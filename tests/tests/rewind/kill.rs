//! Killed with -9 at every step of a rewind: RES-106.
//!
//! The child is this very test binary: it rewinds and kills itself at a point.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backtrail_core::clock::Faults;
use backtrail_core::error::Result;
use backtrail_core::restore::{self, Direction};
use backtrail_core::rewind;
use backtrail_core::run::{Run, Status};
use futures::StreamExt;

use crate::world::{Picture, World, failed, to, with_scope};

const TOP: &str = "BACKTRAIL_TEST_TOP";
const POINT: &str = "BACKTRAIL_TEST_POINT";
const RUN: &str = "BACKTRAIL_TEST_RUN";

/// Kills this process when a point is reached.
struct Kill(String, Mutex<()>);

impl Faults for Kill {
    fn reach(&self, point: &str) -> Result<()> {
        let _one = self.1.lock().expect("a lock");
        if point == self.0 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("killed");
            loop {
                std::thread::park();
            }
        }
        Ok(())
    }
}

/// The child's part; does nothing in a normal run.
#[test]
fn child() {
    let Ok(top) = std::env::var(TOP) else { return };
    let (point, run) = (std::env::var(POINT).expect("a point"), std::env::var(RUN).expect("a run"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut w = World::existing(Path::new(&top)).await;
        let (point, keep) = match point.strip_prefix("keep ") {
            Some(point) => (point.to_owned(), true),
            None => (point, false),
        };
        w.faults = Arc::new(Kill(point, Mutex::new(())));
        let run = run.parse().expect("a run");
        let keep_files = with_scope("build", rewind::RewindScope::None);
        let _ = w.rewind(&run, if keep { keep_files } else { to("build") }).await;
    });
}

struct Killed {
    _temp: tempfile::TempDir,
    w: World,
    run: Run,
    before: Picture,
}

async fn killed(point: &str) -> Killed {
    let temp = tempfile::tempdir().expect("temp");
    let w = World::existing(temp.path()).await;
    let id = failed(&w).await.id();
    let (run, before) = (w.load(&id).await, w.picture());
    let child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "kill::child", "--nocapture"])
        .env(TOP, temp.path())
        .env(POINT, point)
        .env(RUN, id.as_str())
        .output()
        .expect("a child");
    assert!(!child.status.success(), "the child lives through {point}");
    Killed { _temp: temp, w, run, before }
}

impl Killed {
    /// What the next rewind or resume does first.
    async fn settle(&self) -> Result<Run> {
        let mut run = self.w.load(self.run.id()).await;
        rewind::settle(&self.w.runs(), &self.w.of_run(run.id()), &mut run).await?;
        Ok(run)
    }

    async fn recover(&self, direction: Direction) -> restore::Recovered {
        let place = self.w.place();
        let done = restore::recover(&place, direction, Duration::from_secs(5), "restore").await;
        done.expect("recovered").remove(0)
    }

    /// As if nothing had happened, but for the writes.
    async fn assert_unparked(&self, point: &str) {
        let now = self.w.load(self.run.id()).await.record;
        let then = &self.run.record;
        assert_eq!(now.status(), then.status(), "{point}");
        assert_eq!(now.error(), then.error(), "{point}");
        assert_eq!(now.failure_code(), then.failure_code(), "{point}");
        assert_eq!(now.finished_at(), then.finished_at(), "{point}");
        assert_eq!(now.outcome_seq(), then.outcome_seq(), "{point}");
        assert_eq!(now.checkpoint(), then.checkpoint(), "{point}");
        assert_eq!(now.explicit_resume_required, then.explicit_resume_required, "{point}");
        assert!(now.extra.is_empty() && now.rewind_transaction.is_none(), "{point}");
        assert_eq!(self.w.picture(), self.before, "{point}");
        // And it can be done.
        self.w.rewind_to(self.run.id(), "build").await.expect("rewound");
        assert_eq!(self.w.read("src"), "then");
    }

    async fn assert_finished(&self, point: &str, files: bool) {
        let now = self.w.load(self.run.id()).await.record;
        assert_eq!(*now.status(), Status::PausedOperator, "{point}");
        assert_eq!(now.checkpoint().expect("a checkpoint").node_id, "build");
        assert!(now.rewind_transaction.is_some() && now.extra.is_empty(), "{point}");
        let runs = self.w.runs();
        let told = runs.events(self.run.id(), 0).filter(|event| {
            let rewound = event.as_ref().is_ok_and(|e| e.kind() == "run_rewound");
            std::future::ready(rewound)
        });
        assert_eq!(told.count().await, 1, "{point}");
        let chain = self.w.of_run(self.run.id()).snapshots().await.expect("snapshots");
        let marks = chain.iter().filter(|s| s.rewound_to.is_some()).count();
        assert_eq!(marks, usize::from(files), "{point}");
        let src = if files { "then" } else { "changed by build" };
        assert_eq!(
            (self.w.read("src"), self.w.read("notes")),
            (src.into(), "mine".into()),
            "{point}"
        );
    }
}

#[tokio::test]
async fn res_106_killed_before_anything_moved_the_run_is_unparked() {
    for point in ["rewind.parked", "restore.banked", "restore.staged", "restore.journal"] {
        let k = killed(point).await;
        let parked = k.w.load(k.run.id()).await;
        assert_eq!(*parked.status(), Status::PausedOperator, "{point}");
        k.settle().await.expect("settled");
        k.assert_unparked(point).await;
    }
}

#[tokio::test]
async fn res_106_killed_before_the_record_was_saved_all_goes_back() {
    for point in ["restore.applying", "restore.step", "restore.applied", "rewind.applied"] {
        for direction in [Direction::RollBack, Direction::Finish] {
            let k = killed(point).await;
            let e = k.settle().await.expect_err("refused");
            assert_eq!(e.code(), "recovery-needed", "{point}");
            let e = k.w.rewind_to(k.run.id(), "build").await.expect_err("refused");
            assert_eq!(e.code(), "recovery-needed", "{point}");
            let done = k.recover(direction).await;
            assert_eq!(done.direction, Direction::RollBack, "{point}");
            assert_eq!(done.warnings.is_empty(), direction == Direction::RollBack, "{point}");
            k.assert_unparked(point).await;
        }
    }
}

#[tokio::test]
async fn res_106_killed_after_the_record_was_saved_it_is_finished() {
    let points = [
        "rewind.saved",
        "restore.committed",
        "rewind.tombstones",
        "capture.document",
        "rewind.snapshot",
        "rewind.event",
        "restore.closed",
    ];
    for point in points.into_iter().filter(|p| *p != "capture.document") {
        let k = killed(point).await;
        k.w.of_run(k.run.id()).capture(&Default::default()).await.expect("any command ends it");
        k.assert_finished(point, true).await;
        let k = killed(point).await;
        k.settle().await.expect("settled");
        k.assert_finished(point, true).await;
        if !["restore.closed"].contains(&point) {
            let k = killed(point).await;
            assert_eq!(
                k.recover(Direction::RollBack).await.direction,
                Direction::Finish,
                "{point}"
            );
            k.assert_finished(point, true).await;
        }
    }
}

#[tokio::test]
async fn res_106_a_rewind_of_the_record_alone_is_ended_too() {
    let k = killed("keep rewind.parked").await;
    k.settle().await.expect("settled");
    k.assert_unparked("keep rewind.parked").await;
    for point in ["keep rewind.tombstones", "keep rewind.snapshot", "keep rewind.event"] {
        let k = killed(point).await;
        k.settle().await.expect("settled");
        k.assert_finished(point, false).await;
    }
}
