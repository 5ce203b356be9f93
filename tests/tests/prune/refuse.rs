//! What stops a prune, with nothing deleted.

use std::time::Duration;

use backtrail_core::error::{Error, Kind};
use backtrail_core::ids::Chain;
use backtrail_core::prune::{Policy, prune};
use backtrail_core::store::{DocKey, LockMode, LockName, LockRequest};
use backtrail_tests::history::{History, Spec, run};

use crate::tap::{Tap, Wrong};
use crate::{assert_whole, contents, go, go_with, keep, listed, request};

async fn refused(h: &History) -> Error {
    let before = contents(h);
    let e = go(h, keep(1)).await.expect_err("refused");
    assert_eq!(contents(h), before, "something was deleted");
    e
}

#[test]
fn res_124_documents_that_cannot_be_read_stop_it() {
    run(async {
        let h = History::new().await;
        let all = h.many(&h.own(), 3).await;
        let file = h.doc_file(&all[0].key());
        let good = std::fs::read(&file).expect("a document");

        std::fs::write(&file, &good[..good.len() / 2]).expect("cut");
        assert_eq!(refused(&h).await.kind(), Kind::Corrupt);

        let newer =
            String::from_utf8_lossy(&good).replace("\"format_version\":1", "\"format_version\":99");
        std::fs::write(&file, newer).expect("store-newer");
        let e = refused(&h).await;
        assert_eq!((e.kind(), e.code()), (Kind::Newer, "store-newer"));
        assert!(e.message().contains(all[0].id.as_str()), "{e}");

        std::fs::remove_file(&file).expect("removed");
        std::fs::create_dir(&file).expect("a directory");
        assert_eq!(refused(&h).await.kind(), Kind::Corrupt);
        std::fs::remove_dir(&file).expect("removed");

        std::fs::write(file.with_file_name("odd"), b"x").expect("odd");
        assert_eq!(refused(&h).await.kind(), Kind::Corrupt);
    });
}

#[test]
fn res_124_a_place_that_cannot_be_listed_is_not_empty() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 2).await;
        let tap = Tap::new(h.store.clone(), Wrong::DocsDenied);
        let e = prune(&tap, &h.ctx, &request(&h, keep(1))).await.expect_err("refused");
        assert_eq!(e.kind(), Kind::Corrupt, "{e:?}");
        assert_eq!(listed(&*h.store, &h.own()).await.len(), 2);
    });
}

#[test]
fn k54_unknown_fields_hide_nothing_and_newer_builds_are_left_alone() {
    run(async {
        let h = History::new().await;
        let mut spec = Spec::of(&[("a", "1")]);
        spec.extra.insert("later".into(), serde_json::json!({ "x": [1, 2] }));
        h.snapshot(&h.own(), spec).await;
        h.many(&h.own(), 1).await;
        let report = go(&h, Policy::default()).await.expect("unknown fields are fine");
        assert_eq!(report.objects_deleted, 0);
        assert_whole(&h).await;
        let key = DocKey::Journal(h.key(), "tx-0123456789abcdef".parse().expect("an id"));
        h.put(&key, &serde_json::json!({ "format_version": 7, "state": "closed" })).await;
        assert_eq!(refused(&h).await.kind(), Kind::Newer);
    });
}

#[test]
fn res_125_lost_refs_lose_nothing() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let all = h.many(&chain, 3).await;
        let file = h.doc_file(&DocKey::Refs(chain.clone()));
        let good = std::fs::read(&file).expect("refs");
        for bad in [Some(&b""[..]), Some(&good[..40]), Some(b"{}"), None] {
            match bad {
                Some(bytes) => std::fs::write(&file, bytes).expect("written"),
                None => std::fs::remove_file(&file).expect("removed"),
            }
            let report = go(&h, keep(1)).await.expect("prune");
            assert!(report.removed.is_empty() && report.objects_deleted == 0, "{report:#?}");
            assert!(report.warnings.iter().any(|w| w.contains("rebuilt")), "{report:#?}");
            assert_eq!(listed(&*h.store, &chain).await.len(), all.len());
        }
        assert_whole(&h).await;
    });
}

#[test]
fn k23_empty_refs_after_a_power_cut_are_no_reason_to_sweep() {
    run(async {
        let h = History::new().await;
        let chain = h.run_chain("r-1", "finished").await;
        let all = h.many(&chain, 22).await;
        std::fs::write(h.doc_file(&DocKey::Refs(chain.clone())), b"").expect("emptied");
        let report = go(&h, Policy::default()).await.expect("prune");
        assert_eq!((report.removed.len(), report.objects_deleted), (0, 0));
        // and while even rebuilding fails, prune refuses
        std::fs::write(h.doc_file(&all[3].key()), b"").expect("emptied");
        assert_eq!(refused(&h).await.kind(), Kind::Corrupt);
    });
}

#[test]
fn res_126_a_missing_object_stops_it_and_names_who_is_hit() {
    run(async {
        let h = History::new().await;
        let spec = Spec::of(&[("d/lost.txt", "lost"), ("other.txt", "other")]);
        let hit = h.snapshot(&h.own(), spec).await;
        let whole = h.snapshot(&h.own(), Spec::of(&[("other.txt", "other")])).await;
        let lost = backtrail_core::ids::Digest::of(b"lost");
        std::fs::remove_file(h.object_file(&lost)).expect("removed");
        let before = contents(&h);
        let e = go(&h, Policy::default()).await.expect_err("refused");
        assert_eq!(contents(&h), before);
        assert_eq!((e.kind(), e.paths()), (Kind::Corrupt, &["d/lost.txt".to_owned()][..]));
        let row = &e.details()["missing"][0];
        assert_eq!(row["digest"], lost.hex());
        assert_eq!(row["snapshots"], serde_json::json!([hit.id]));
        assert!(e.message().contains("1 restore whole"), "{e}");
        assert_ne!(whole.id, hit.id);
        let damage = backtrail_core::damage::load(&*h.store).await.expect("a list");
        assert!(damage.contains(&lost));
    });
}

#[test]
fn res_127_a_listing_that_is_cut_or_repeats_stops_it() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 5).await;
        for wrong in [Wrong::ListFails, Wrong::ListRepeats, Wrong::DocsFail] {
            let tap = Tap::new(h.store.clone(), wrong);
            let before = contents(&h);
            let e = prune(&tap, &h.ctx, &request(&h, keep(1))).await.expect_err("refused");
            assert!(matches!(e.kind(), Kind::Unavailable { .. }), "{wrong:?}: {e:?}");
            assert_eq!(contents(&h), before, "{wrong:?}");
        }
    });
}

#[test]
fn res_128_another_store_below_is_refused() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 2).await;
        let tap = Tap::new(h.store.clone(), Wrong::OtherStore);
        let e = prune(&tap, &h.ctx, &request(&h, keep(1))).await.expect_err("refused");
        assert_eq!((e.kind(), e.code()), (Kind::Refused, "foreign-store"));
        assert_eq!(listed(&*h.store, &h.own()).await.len(), 2);
    });
}

#[test]
fn res_132_a_second_prune_is_busy_and_a_lost_token_stops_the_first() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 4).await;
        let lock = LockRequest::new(LockName::Prune, LockMode::Exclusive, Duration::ZERO, "prune");
        let guard = h.store.lock(lock).await.expect("the lock");
        assert_eq!(refused(&h).await.kind(), Kind::Busy);
        guard.release().await.expect("released");

        let tap = Tap::new(h.store.clone(), Wrong::LosesPrune(1));
        let e = prune(&tap, &h.ctx, &request(&h, keep(1))).await.expect_err("stopped");
        assert_eq!(e.kind(), Kind::LostLease);
        assert_eq!(tap.deletes.load(std::sync::atomic::Ordering::SeqCst), 1, "no delete more");
        assert_eq!(listed(&*h.store, &h.own()).await.len(), 3);
        assert_whole(&h).await;
    });
}

#[test]
fn res_133_clocks_far_apart_stop_it_and_both_are_shown() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 3).await;
        let far = h.at(Duration::from_secs(3 * 3600));
        let e = go_with(&h, &far, keep(1)).await.expect_err("refused");
        assert_eq!((e.kind(), e.code()), (Kind::Refused, "clock-skew"));
        assert!(e.message().matches('Z').count() >= 2, "both clocks: {e}");
        assert_eq!(listed(&*h.store, &h.own()).await.len(), 3);
        let near = h.at(Duration::from_secs(10 * 60));
        let report = go_with(&h, &near, keep(2)).await.expect("prune");
        assert!(report.skew_ms > 590_000 && !report.warnings.is_empty(), "{report:#?}");
        let mut ignore = request(&h, keep(1));
        ignore.ignore_clock_skew = true;
        prune(&*h.store, &far, &ignore).await.expect("prune");
        assert_whole(&h).await;
    });
}

#[test]
fn k52_objects_from_the_future_count_as_new() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 1).await;
        h.content(b"garbage from the future").await;
        h.store.flush().await.expect("flush");
        let digest = backtrail_core::ids::Digest::of(b"garbage from the future");
        let file = std::fs::File::options().write(true).open(h.object_file(&digest));
        let future = std::time::SystemTime::now() + Duration::from_secs(7 * 3600);
        file.expect("the object").set_modified(future).expect("a time");
        let mut r = request(&h, Policy::default());
        r.grace = Duration::from_secs(3600);
        let report = prune(&*h.store, &h.ctx, &r).await.expect("prune");
        assert_eq!((report.objects_deleted, report.objects_spared_young), (0, 1));
    });
}

#[test]
fn res_135_a_store_that_is_missing_gives_zeros_and_is_not_made() {
    run(async {
        let h = History::new().await;
        let report = go(&h, keep(1)).await.expect("zeros");
        assert_eq!((report.snapshots_scanned, report.objects_scanned), (0, 0));
        assert!(report.complete);
        assert!(!h.store_dir().exists());
        let chain = Chain::Run("r-1".parse().expect("an id"));
        assert!(listed(&*h.store, &chain).await.is_empty());
    });
}
