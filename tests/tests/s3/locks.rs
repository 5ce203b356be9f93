//! Locks of dead, slow and lying holders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backtrail_backends::open::OpenOptions;
use backtrail_core::error::Kind;
use backtrail_core::ids::{Chain, WorkspaceKey};
use backtrail_core::store::{DocKey, Expect, LockName, LockRequest, Store};
use backtrail_tests::proxy::Act;
use backtrail_tests::suite::{exclusive, make_run, put, refused, s3, shared};
use bytes::Bytes;

use crate::world::{World, run};

const NOW: Duration = Duration::ZERO;

fn quick(world: &World) -> OpenOptions {
    OpenOptions { lease_ttl: Duration::from_secs(1), ..world.options() }
}

/// A store whose locks are cut off from the server once the flag is set, as by a freeze.
async fn frozen(world: &World) -> (Arc<dyn Store>, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = flag.clone();
    let place = world.through(move |request| {
        match seen.load(Ordering::SeqCst) && request.target.contains("locks/") {
            true => Act::Stall(Duration::from_secs(600)),
            false => Act::Pass,
        }
    });
    (s3::raw(&place, quick(world)).await, flag)
}

/// The network form of CLD-G3 to G6: a holder that cannot renew counts itself lost, its
/// writes are not sent, another gets in after the term, and the late release of the first
/// leaves the successor alone.
#[test]
fn a_holder_that_cannot_renew_is_followed() {
    run(async |world| {
        let (store, freeze) = frozen(&world).await;
        let run = make_run(&*store, "r").await;
        let name = LockName::Run(run.clone());
        let first = store.lock(exclusive(name.clone(), NOW)).await.expect("free");
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        first.check().expect("renewed meanwhile");
        freeze.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let other = s3::raw(&world.place, quick(&world)).await;
        let second = other.lock(exclusive(name.clone(), Duration::from_secs(20))).await;
        let second = second.expect("gets in");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(second.token() > first.token());
        refused(first.check(), Kind::LostLease);
        let (key, fence) = (DocKey::Run(run), first.fence());
        let late = store.put(&key, "{}".into(), Expect::Any, Some(&fence)).await;
        refused(late, Kind::LostLease);
        freeze.store(false, Ordering::SeqCst);
        first.release().await.expect("a no-op");
        second.check().expect("still held");
        let third = s3::raw(&world.place, quick(&world)).await;
        refused(third.lock(exclusive(name, NOW)).await, Kind::Busy);
    });
}

/// CLD-G9 on a network: who breaks an expired Shared `objects` guard first rewrites the
/// refs that it names, so that the writer's compare-and-swap fails.
#[test]
fn a_broken_guard_makes_its_writer_look_again() {
    run(async |world| {
        let (writer, freeze) = frozen(&world).await;
        let key: WorkspaceKey = "00112233445566aa".parse().expect("a key");
        let refs = DocKey::Refs(Chain::Workspace(key));
        let version = put(&*writer, &refs, "{\"cas_version\":4,\"x\":1}", Expect::Absent).await;
        let request = LockRequest { refs: vec![refs.clone()], ..shared(LockName::Objects, NOW) };
        let guard = writer.lock(request).await.expect("free");
        freeze.store(true, Ordering::SeqCst);
        let pruner = s3::raw(&world.place, quick(&world)).await;
        let wait = Duration::from_secs(60);
        let begun = Instant::now();
        let sweep = pruner.lock(exclusive(LockName::Objects, wait)).await.expect("gets in");
        assert!(begun.elapsed() >= Duration::from_secs(20), "{:?}", begun.elapsed());
        refused(guard.check(), Kind::LostLease);
        let at = Expect::Version(version.expect("created"));
        refused(put(&*writer, &refs, "{\"cas_version\":5}", at).await, Kind::Conflict);
        let body = backtrail_tests::suite::body(&*pruner, &refs).await;
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&body["x"], &body["cas_version"]), (&1.into(), &5.into()));
        sweep.release().await.expect("frees");
    });
}

/// CLD-ST10, K59: what a lock document says of pid and host is for people; guard and time
/// decide.
#[test]
fn cld_st10_lock_documents_by_hand() {
    let pids = [std::process::id(), 1, std::os::unix::process::parent_id(), 999_999];
    run(async |world| {
        for (i, pid) in pids.into_iter().enumerate() {
            let host = if i == 3 { "elsewhere" } else { "here" };
            let text = format!(
                "{{\"token\":{},\"holder\":{{\"guard\":\"by hand\",\"program\":\"p\",\
                 \"host\":\"{host}\",\"pid\":{pid},\"since\":\"2026-01-02T03:04:05Z\",\
                 \"ttl_ms\":800}},\"write_id\":\"{i}\"}}",
                40 + i
            );
            world.bucket().put("locks/prune.json", text.as_bytes());
            let store = s3::raw(&world.place, quick(&world)).await;
            let e = refused(store.lock(exclusive(LockName::Prune, NOW)).await, Kind::Busy);
            for part in [host, "2026-01-02T03:04:05Z"] {
                assert!(e.message().contains(part), "{part}: {e}");
            }
            let wait = Duration::from_secs(10);
            let guard = store.lock(exclusive(LockName::Prune, wait)).await.expect("it is dead");
            assert_eq!(guard.token(), 41 + i as u64);
            guard.release().await.expect("frees");
        }
    });
}

/// CLD-ST4: bytes whose chunk is missing are a hole, and later ones stay where they are.
#[test]
fn cld_st4_a_missing_chunk_is_a_hole() {
    use backtrail_core::store::LogPart;
    run(async |world| {
        let store = world.raw().await;
        let run = make_run(&*store, "r").await;
        for text in ["one ", "two ", "three"] {
            store.append_log(&run, None, Bytes::from(text), None).await.expect("appends");
        }
        world.bucket().delete("runs/r/log/00000000000000000004.log");
        let bytes = |offset, text: &'static str| LogPart::Bytes { offset, bytes: text.into() };
        let parts = store.read_log(&run, 0, 0).await.expect("reads");
        assert_eq!(
            parts,
            [bytes(0, "one "), LogPart::Hole { offset: 4, len: 4 }, bytes(8, "three")]
        );
    });
}
