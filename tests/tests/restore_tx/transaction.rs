//! All or nothing: RES-013 to RES-047.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backtrail_core::clock::NoFaults;
use backtrail_core::error::Kind;
use backtrail_core::restore::{RestoreRequest, ResultState};
use backtrail_core::snapshot::chain;

use crate::world::{At, Each, World, rel};

/// A snapshot, then edits, additions and deletions.
async fn changed() -> (World, backtrail_core::snapshot::doc::Snapshot) {
    let w = World::new().await;
    w.write("a", "a1");
    w.write("d/b", "b1");
    w.write("d/c", "c1");
    w.write("same", "same");
    w.write_mode("run.sh", b"#!", 0o755);
    fs::create_dir(w.ws.join("empty")).expect("directory");
    let target = w.capture().await;
    w.write("a", "a2 longer");
    fs::remove_file(w.ws.join("d/b")).expect("removed");
    w.write("new/deep/x", "made later");
    w.write_mode("run.sh", b"#!", 0o644);
    fs::remove_dir(w.ws.join("empty")).expect("removed");
    (w, target)
}

#[tokio::test]
async fn res_001_edits_additions_and_deletions_go_back() {
    let w = World::new().await;
    w.write("a", "a1");
    w.write("d/b", "b1");
    w.write("same", "same");
    fs::create_dir(w.ws.join("empty")).expect("directory");
    let target = w.capture().await;
    let before = w.picture();
    let (inode, mtime) =
        (w.inode("same"), fs::metadata(w.ws.join("same")).expect("stat").modified());
    w.write("a", "a2 longer");
    fs::remove_file(w.ws.join("d/b")).expect("removed");
    fs::remove_dir(w.ws.join("empty")).expect("removed");
    w.write("new/deep/x", "made later");
    let result = w.restore(&target).await.expect("restored");
    assert_eq!(w.picture(), before);
    assert_eq!(result.state, ResultState::Closed);
    assert_eq!(result.exit_code, 0);
    let counts = result.counts.plan;
    assert_eq!(
        (counts.written, counts.deleted, counts.dirs_created, counts.dirs_removed),
        (2, 1, 1, 2)
    );
    assert!(result.bank.expect("a bank").new);
    assert_eq!(w.inode("same"), inode);
    let now = fs::metadata(w.ws.join("same")).expect("stat").modified();
    assert_eq!(now.expect("time"), mtime.expect("time"));
    w.assert_no_staging();
}

#[tokio::test]
async fn res_015_a_dry_run_changes_nothing_anywhere() {
    let (w, target) = changed().await;
    let before = w.picture();
    let store = crate::world::picture(&w.store_dir);
    let request = RestoreRequest { dry_run: true, ..RestoreRequest::new(target) };
    let result = w.run(request).await.expect("planned");
    assert_eq!(result.state, ResultState::Planned);
    assert!(result.transaction.is_none() && result.bank.is_none());
    assert_eq!(w.picture(), before);
    assert_eq!(crate::world::picture(&w.store_dir), store);
}

#[tokio::test]
async fn res_014_another_plan_than_the_one_named_is_refused() {
    let (w, target) = changed().await;
    let dry = RestoreRequest { dry_run: true, ..RestoreRequest::new(target.clone()) };
    let first = w.run(dry.clone()).await.expect("planned").plan;
    fs::File::open(w.ws.join("same"))
        .expect("open")
        .set_modified(std::time::SystemTime::now())
        .expect("touch");
    assert_eq!(w.run(dry).await.expect("planned").plan, first);
    w.write("a", "a3");
    let request = RestoreRequest { plan_digest: Some(first.hex()), ..RestoreRequest::new(target) };
    let e = w.run(request).await.expect_err("another plan");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "plan-changed"));
    assert_eq!(w.read("a"), "a3");
}

#[tokio::test]
async fn res_017_a_mode_alone_is_set_on_the_same_inode() {
    let w = World::new().await;
    w.write_mode("run.sh", b"#!", 0o755);
    let target = w.capture().await;
    w.write_mode("run.sh", b"#!", 0o644);
    let inode = w.inode("run.sh");
    let result = w.restore(&target).await.expect("restored");
    assert_eq!(result.counts.plan.mode_changed, 1);
    assert_eq!(w.inode("run.sh"), inode);
    assert_eq!(w.picture()["run.sh"].0 & 0o777, 0o755);
}

#[tokio::test]
async fn nothing_to_do_is_no_transaction() {
    let w = World::new().await;
    w.write("a", "a1");
    let target = w.capture().await;
    let labels = chain::load_refs(&*w.store, &target.chain).await.expect("refs").refs.labels;
    let result = w.restore(&target).await.expect("restored");
    assert_eq!((result.state, result.exit_code), (ResultState::Unchanged, 0));
    assert!(result.bank.is_none() && result.transaction.is_none());
    let now = chain::load_refs(&*w.store, &target.chain).await.expect("refs").refs.labels;
    assert_eq!(now, labels);
}

#[tokio::test]
async fn res_030_without_a_bank_nothing_is_changed() {
    let (mut w, target) = changed().await;
    let before = w.picture();
    w.faults = At::fail("capture.document", 1);
    let e = w.restore(&target).await.expect_err("no bank");
    assert_eq!((e.kind(), e.code()), (Kind::Failed, "bank-failed"));
    assert_eq!(w.picture(), before);
    w.assert_no_staging();
}

#[tokio::test]
async fn res_031_the_head_serves_as_bank_when_it_holds_everything() {
    let (w, target) = changed().await;
    let head = w.capture().await;
    let bank = w.restore(&target).await.expect("restored").bank.expect("a bank");
    assert_eq!((bank.new, bank.snapshot), (false, head.id));
    assert_eq!(bank.label.expect("a label").as_str(), "bank:0");
    w.write("a", "again");
    let second = w.restore(&target).await.expect("restored").bank.expect("a bank");
    assert_eq!(second.label.expect("a label").as_str(), "bank:1");
    assert!(second.new);
}

#[tokio::test]
async fn res_037_one_operation_id_is_one_transaction() {
    let (w, target) = changed().await;
    let request =
        RestoreRequest { operation_id: Some("op-1".into()), ..RestoreRequest::new(target.clone()) };
    let (first, second) = tokio::join!(w.run(request.clone()), w.run(request.clone()));
    let (first, second) = (first.expect("restored"), second.expect("answered"));
    assert_eq!(first.transaction, second.transaction);
    w.write("a", "edited since");
    assert_eq!(w.run(request.clone()).await.expect("answered").transaction, first.transaction);
    assert_eq!(w.read("a"), "edited since");
    let mut other = request;
    other.options.no_delete = true;
    let e = w.run(other).await.expect_err("another request");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "operation-reused"));
}

#[tokio::test]
async fn res_037_a_rolled_back_operation_needs_a_new_id() {
    let (mut w, target) = changed().await;
    let request = |id: &str| RestoreRequest {
        operation_id: Some(id.into()),
        ..RestoreRequest::new(target.clone())
    };
    w.faults = At::fail("restore.step", 2);
    w.run(request("op-1")).await.expect_err("the fault");
    w.faults = Arc::new(NoFaults);
    let e = w.run(request("op-1")).await.expect_err("used");
    assert_eq!(e.code(), "operation-reused");
    w.run(request("op-2")).await.expect("restored");
}

#[tokio::test]
async fn res_040_a_failure_anywhere_leaves_everything_old() {
    let points = [
        ("restore.banked", 1),
        ("restore.staged", 1),
        ("restore.journal", 1),
        ("restore.applying", 1),
        ("restore.step", 1),
        ("restore.step", 2),
        ("restore.step", 4),
        ("restore.step", 6),
        ("restore.deleted", 1),
        ("restore.applied", 1),
    ];
    for (point, n) in points {
        let (mut w, target) = changed().await;
        let before = w.picture();
        let inode = w.inode("a");
        w.faults = At::fail(point, n);
        let e = w.restore(&target).await.expect_err(point);
        assert_eq!(e.code(), "fault", "{point} {n}: {e:?}");
        assert_eq!(w.picture(), before, "{point} {n}");
        assert_eq!(w.inode("a"), inode);
        w.assert_no_staging();
        // Nothing is left to recover, and it works now.
        w.faults = Arc::new(NoFaults);
        w.restore(&target).await.expect("restored");
        assert_eq!(w.read("a"), "a1");
    }
}

#[tokio::test]
async fn res_044_a_roll_back_that_fails_can_be_run_again() {
    let (mut w, target) = changed().await;
    let before = w.picture();
    let ws = w.ws.clone();
    w.faults = At::act("restore.deleted", 1, move || {
        let mut stage = fs::read_dir(&ws).expect("list").map(|e| e.expect("entry").path());
        let stage = stage.find(|p| p.to_string_lossy().contains("-stage-"));
        for old in fs::read_dir(stage.expect("staging").join("old")).expect("list") {
            let path = old.expect("entry").path();
            let _ = fs::remove_file(path);
        }
        Err(backtrail_core::error::Error::failed("fault", "a test fault"))
    });
    let e = w.restore(&target).await.expect_err("fails twice");
    assert_eq!((e.kind(), e.code()), (Kind::Failed, "rollback-failed"));
    assert!(e.hint().expect("a hint").contains("restore --roll-back"));
    w.faults = Arc::new(NoFaults);
    let e = w.restore(&target).await.expect_err("unfinished");
    assert_eq!(e.code(), "recovery-needed");
    let wait = std::time::Duration::from_secs(5);
    let direction = backtrail_core::restore::Direction::RollBack;
    let done = backtrail_core::restore::recover(&w.place(), direction, wait, "restore").await;
    assert_eq!(done.expect("the bank serves")[0].third_count, 0);
    assert_eq!(w.picture(), before);
    w.assert_no_staging();
}

#[tokio::test]
async fn res_046_an_edit_between_plan_and_swap_survives() {
    for point in ["restore.banked", "restore.journal", "restore.applying"] {
        let (mut w, target) = changed().await;
        let before = w.picture();
        let path = w.ws.join("a");
        let edited = path.clone();
        w.faults = At::act(point, 1, move || {
            fs::write(&edited, "mine").expect("edited");
            Ok(())
        });
        let e = w.restore(&target).await.expect_err(point);
        assert_eq!((e.kind(), e.code()), (Kind::Refused, "changed-since-plan"), "{point}");
        assert_eq!(w.read("a"), "mine");
        fs::write(path, "a2 longer").expect("edited back");
        assert_eq!(w.picture(), before, "{point}");
        w.assert_no_staging();
    }
}

#[tokio::test]
async fn res_047_what_a_writer_adds_late_is_in_the_bank() {
    use std::io::Write;
    let (mut w, target) = changed().await;
    let open = fs::OpenOptions::new().append(true).open(w.ws.join("a")).expect("open");
    w.faults = At::act("restore.applied", 1, move || {
        open.try_clone().and_then(|mut f| f.write_all(b" and on")).expect("late");
        Ok(())
    });
    let result = w.restore(&target).await.expect("restored");
    assert_eq!(result.counts.late_writes, 1);
    assert_eq!(w.read("a"), "a1");
    let refs = chain::load_refs(&*w.store, &target.chain).await.expect("refs").refs;
    let late = refs.head.expect("a head");
    w.faults = Arc::new(NoFaults);
    let late = chain::read_snapshot(&*w.store, &target.chain, &late).await.expect("readable");
    assert!(late.is_bank());
    let request = RestoreRequest {
        scope: backtrail_core::plan::Scope::Paths([rel("a")].into()),
        ..RestoreRequest::new(late)
    };
    w.run(request).await.expect("restored");
    assert_eq!(w.read("a"), "a2 longer and on");
}

#[tokio::test]
async fn res_047_a_file_that_never_rests_is_put_back_with_all_that_was_written() {
    use std::io::Write;
    let (mut w, target) = changed().await;
    let before = w.picture();
    let open = fs::OpenOptions::new().append(true).open(w.ws.join("a")).expect("open");
    let writes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&writes);
    w.faults = Arc::new(Each {
        point: "restore.late",
        act: move || {
            count.fetch_add(1, Ordering::SeqCst);
            open.try_clone().and_then(|mut f| f.write_all(b"+")).expect("written on");
        },
    });
    let e = w.restore(&target).await.expect_err("in use");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "file-in-use"));
    let written = writes.load(Ordering::SeqCst);
    assert_eq!(w.read("a"), format!("a2 longer{}", "+".repeat(written)));
    fs::write(w.ws.join("a"), "a2 longer").expect("edited back");
    assert_eq!(w.picture(), before);
    w.assert_no_staging();
}

#[tokio::test]
async fn res_047_what_is_written_after_the_commit_is_in_the_bank_too() {
    use std::io::Write;
    let (mut w, target) = changed().await;
    let open = fs::OpenOptions::new().append(true).open(w.ws.join("a")).expect("open");
    w.faults = At::act("restore.committed", 1, move || {
        open.try_clone().and_then(|mut f| f.write_all(b" at last")).expect("late");
        Ok(())
    });
    let result = w.restore(&target).await.expect("restored");
    assert_eq!(result.counts.late_writes, 1);
    let refs = chain::load_refs(&*w.store, &target.chain).await.expect("refs").refs;
    let late = refs.head.expect("a head");
    w.faults = Arc::new(NoFaults);
    let late = chain::read_snapshot(&*w.store, &target.chain, &late).await.expect("readable");
    let only_a = backtrail_core::plan::Scope::Paths([rel("a")].into());
    let request = RestoreRequest { scope: only_a, ..RestoreRequest::new(late) };
    w.run(request).await.expect("restored");
    assert_eq!(w.read("a"), "a2 longer at last");
}

#[tokio::test]
async fn res_062_the_next_capture_reads_nothing() {
    let (w, target) = changed().await;
    // What was just written is read again by any capture: only older files say that
    // the restore's own are not.
    tokio::time::sleep(std::time::Duration::from_millis(2200)).await;
    w.capture().await;
    w.restore(&target).await.expect("restored");
    let next = w.captured().await;
    assert_eq!(next.read.count, 0, "{:?}", next.read);
    assert_eq!(next.stored.objects, 0);
}

#[tokio::test]
async fn res_063_latest_is_never_the_bank() {
    let (w, target) = changed().await;
    w.restore(&target).await.expect("restored");
    w.write("a", "again");
    let latest = chain::resolve(&*w.store, &target.chain, "latest").await.expect("latest");
    assert_eq!(latest.id, target.id);
    w.restore(&latest).await.expect("restored");
    assert_eq!(w.read("a"), "a1");
}

/// Puts a file into every directory that a restore moved aside.
fn use_displaced(ws: &std::path::Path) {
    for stage in fs::read_dir(ws).expect("readable").map(|e| e.expect("entry").path()) {
        let Ok(old) = fs::read_dir(stage.join("old")) else { continue };
        for aside in old.map(|e| e.expect("entry").path()).filter(|p| p.is_dir()) {
            fs::write(aside.join("mine"), "work").expect("written");
        }
    }
}

#[tokio::test]
async fn what_was_put_into_a_displaced_directory_is_never_removed() {
    let mut w = World::new().await;
    w.write("kind", "a file");
    let target = w.capture().await;
    fs::remove_file(w.ws.join("kind")).expect("removed");
    fs::create_dir(w.ws.join("kind")).expect("directory");
    w.write("gone/x", "made later");
    let ws = w.ws.clone();
    w.faults = At::act("restore.committed", 1, move || {
        use_displaced(&ws);
        Ok(())
    });
    let result = w.restore(&target).await.expect("restored");
    let codes: Vec<_> = result.warnings.iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["directory-in-use", "staging-kept"]);
    // One path is free, the other is taken by what was restored.
    assert_eq!((w.read("gone/mine"), w.read("kind")), ("work".into(), "a file".into()));
    let stage = w.ws.join(result.warnings[1].message.split(' ').next().expect("a path"));
    w.faults = Arc::new(NoFaults);
    w.capture().await;
    let old = fs::read_dir(stage.join("old")).expect("kept").map(|e| e.expect("entry").path());
    let kept: Vec<_> = old.map(|p| fs::read_to_string(p.join("mine")).expect("kept")).collect();
    assert_eq!(kept, ["work"]);
    // Emptied, it goes with the next command.
    fs::remove_dir_all(stage.join("old")).expect("removed");
    w.write("more", "1");
    w.capture().await;
    w.assert_no_staging();
}
