//! Kills, concurrent captures, and what a sweep leaves.

use std::sync::Arc;
use std::time::Duration;

use backtrail_core::ids::{Chain, Digest};
use backtrail_core::prune::{Policy, prune};
use backtrail_core::store::{LockMode, LockName, LockRequest, Object, PutObjects};
use backtrail_tests::history::{History, Spec, run};

use crate::{assert_whole, go, go_with, keep, listed, objects, request};

const POINTS: [&str; 6] = [
    "prune.selected",
    "prune.refs",
    "prune.document",
    "prune.marked",
    "prune.sweep",
    "prune.swept",
];

/// Six snapshots with labels, an orphan document and a loose object.
async fn littered() -> (History, Chain) {
    let h = History::new().await;
    let chain = h.run_chain("r-1", "finished").await;
    for i in 0..6 {
        let text = format!("content {i}");
        let spec = Spec::of(&[("own", &text), ("shared", "same")]);
        h.snapshot(&chain, spec.label(&format!("post:n:{i}"))).await;
    }
    let orphan = Spec { no_refs: true, ..Spec::of(&[("own", "orphan")]) };
    h.snapshot(&chain, orphan).await;
    h.content(b"loose").await;
    h.store.flush().await.expect("flush");
    (h, chain)
}

#[test]
fn res_131_killed_at_each_arrow_it_leaves_whole_snapshots_and_the_next_finishes() {
    run(async {
        for point in POINTS {
            for after in 0..3 {
                let (h, chain) = littered().await;
                let killed = go_with(&h, &h.failing(point, after), keep(2)).await;
                let reached = killed.is_err();
                assert_whole(&h).await;
                go(&h, keep(2)).await.unwrap_or_else(|e| panic!("{point} {after}: {e:?}"));
                assert_eq!(listed(&*h.store, &chain).await.len(), 2, "{point} {after}");
                // two own files, two trees, the shared file, the rules
                assert_eq!(objects(&*h.store).await.len(), 6, "{point} {after}");
                assert_whole(&h).await;
                assert!(reached || after > 0, "{point} was never reached");
            }
        }
    });
}

#[test]
fn k21_a_kill_during_cleanup_leaves_no_phantom() {
    run(async {
        let (h, chain) = littered().await;
        // the head itself goes, and the kill comes right after the refs
        let gone = Policy { max_bytes: Some(1), ..Policy::default() };
        go_with(&h, &h.failing("prune.document", 0), gone.clone()).await.expect_err("killed");
        assert!(listed(&*h.store, &chain).await.is_empty(), "no label and no head is left");
        assert_whole(&h).await;
        go(&h, gone).await.expect("prune");
        assert!(objects(&*h.store).await.is_empty());
        let left = backtrail_core::snapshot::chain::load_snapshots(&*h.store, &chain).await;
        assert!(left.expect("a listing").0.is_empty());
    });
}

#[test]
fn an_unreachable_document_that_is_young_is_spared_with_its_objects() {
    run(async {
        let (h, chain) = littered().await;
        let mut r = request(&h, keep(2));
        r.grace = Duration::from_secs(3600);
        let report = prune(&*h.store, &h.ctx, &r).await.expect("prune");
        assert_eq!(report.removed.len(), 4);
        assert_eq!(report.objects_deleted, 0);
        assert_eq!(report.objects_spared_young, 4 * 2 + 1);
        let left = backtrail_core::snapshot::chain::load_snapshots(&*h.store, &chain).await;
        assert_eq!(left.expect("a listing").0.len(), 3);
        assert_whole(&h).await;
    });
}

#[test]
fn res_129_a_writer_that_relies_on_unmarked_objects_is_waited_for() {
    run(async {
        let h = Arc::new(History::new().await);
        h.many(&h.own(), 1).await;
        let name = || LockName::Objects;
        let shared = LockRequest::new(name(), LockMode::Shared, Duration::ZERO, "capture");
        // half of a capture: objects are stored, nothing names them yet
        let guard = h.store.lock(shared).await.expect("shared");
        let spec = Spec::of(&[("late", "late content")]);
        let object = Object::new(b"late content".to_vec()).expect("small");
        h.store.put_objects(vec![object], PutObjects::Check).await.expect("put");
        h.store.flush().await.expect("flush");
        let e = go(&h, Policy::default()).await.expect_err("busy at once");
        assert_eq!(e.kind(), backtrail_core::error::Kind::Busy);

        let other = h.clone();
        let waiting = tokio::spawn(async move {
            let mut r = request(&other, Policy::default());
            r.wait = Duration::from_secs(20);
            prune(&*other.store, &other.ctx, &r).await.map_err(|e| format!("{e:?}"))
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let late = h.snapshot(&h.own(), spec).await;
        guard.release().await.expect("released");
        waiting.await.expect("no panic").expect("prune");
        assert_eq!(listed(&*h.store, &h.own()).await[0], late.id.to_string());
        assert!(objects(&*h.store).await.contains(&Digest::of(b"late content")));
        assert_whole(&h).await;
    });
}

#[test]
fn k51_reachability_is_computed_inside_the_protected_section() {
    run(async {
        let (h, chain) = littered().await;
        // published after the mark: the fault stands for a capture that came between
        struct Publish(Arc<History>, Chain);
        impl backtrail_core::clock::Faults for Publish {
            fn reach(&self, point: &str) -> backtrail_core::error::Result<()> {
                if point == "prune.marked" {
                    let (h, chain) = (self.0.clone(), self.1.clone());
                    let late = std::thread::spawn(move || {
                        let spec = Spec::of(&[("own", "loose")]);
                        run(async { h.snapshot(&chain, spec).await });
                    });
                    late.join().expect("published");
                }
                Ok(())
            }
        }
        let h = Arc::new(h);
        let faults = Arc::new(Publish(h.clone(), chain.clone()));
        let ctx = backtrail_core::clock::Context { faults, ..h.ctx.clone() };
        go_with(&h, &ctx, keep(2)).await.expect("prune");
        assert!(objects(&*h.store).await.contains(&Digest::of(b"loose")));
        assert_whole(&h).await;
    });
}

#[test]
fn res_130_prune_in_a_loop_with_writers_loses_nothing_published() {
    run(async {
        let h = Arc::new(History::new().await);
        let writers: Vec<_> = (0..4)
            .map(|w| {
                let h = h.clone();
                tokio::spawn(async move {
                    let key = format!("{w:016x}");
                    let chain = Chain::Workspace(key.parse().expect("a key"));
                    for i in 0..6 {
                        let name = LockName::Objects;
                        let wait = Duration::from_secs(30);
                        let lock = LockRequest::new(name, LockMode::Shared, wait, "capture");
                        let guard = h.store.lock(lock).await.expect("shared");
                        let text = format!("{}", i % 3);
                        h.snapshot(&chain, Spec::of(&[("a/b", &text), ("c", "same")])).await;
                        guard.release().await.expect("released");
                    }
                })
            })
            .collect();
        let pruner = h.clone();
        let pruning = tokio::spawn(async move {
            for _ in 0..15 {
                let all = Policy { all_workspaces: true, ..keep(3) };
                let mut r = request(&pruner, all);
                r.wait = Duration::from_secs(30);
                prune(&*pruner.store, &pruner.ctx, &r).await.expect("prune");
            }
        });
        for w in writers {
            w.await.expect("a writer");
        }
        pruning.await.expect("the pruner");
        assert_whole(&h).await;
    });
}

#[test]
fn res_134_a_large_changing_file_leaves_only_what_the_kept_need() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let mut file: Vec<u8> = (0..12_000_000_u64).map(|i| ((i * i) >> 9) as u8).collect();
        for i in 0..12_u8 {
            file[usize::from(i) * 900_000] ^= i + 1;
            let mut spec = Spec::default();
            spec.files.insert("big.bin".into(), file.clone());
            h.snapshot(&chain, spec).await;
            let stored =
                |h: &History| crate::contents(h).iter().map(|(_, b)| b.len()).sum::<usize>();
            let before = stored(&h);
            go(&h, keep(2)).await.expect("prune");
            assert!(stored(&h) <= before + 4096, "a sweep needs no room");
        }
        assert_eq!(listed(&*h.store, &chain).await.len(), 2);
        assert!(objects(&*h.store).await.len() < 30);
        assert_whole(&h).await;
    });
}

#[test]
fn k53_more_than_two_thousand_snapshots_are_all_marked() {
    run(async {
        let h = History::new().await;
        let tree = h.snapshot(&h.own(), Spec::of(&[("a", "0")])).await;
        // documents alone: two thousand and more that share one tree
        for i in 0..2100_u64 {
            let mut s = tree.clone();
            s.chain = Chain::Workspace("00112233445566aa".parse().expect("a key"));
            s.seq = i;
            s.parent = None;
            s.seal().expect("sealed");
            let body = serde_json::to_vec(&s).expect("JSON").into();
            let absent = backtrail_core::store::Expect::Absent;
            h.store.put(&s.key(), body, absent, None).await.expect("a document");
        }
        let report = go(&h, Policy::default()).await.expect("prune");
        assert_eq!((report.snapshots_scanned, report.objects_deleted), (2101, 0));
    });
}
