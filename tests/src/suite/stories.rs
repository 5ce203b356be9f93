//! The CLD-ST cases that every store can play: several promises together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backtrail_backends::host::RandomIds;
use backtrail_core::error::Kind;
use backtrail_core::ids::{Chain, NodeId};
use backtrail_core::store::{DocKey, Expect, LockName, LogPart, Prefix, docs};
use bytes::Bytes;
use futures::StreamExt;

use super::documents::keys;
use super::logs::all_events;
use super::{SOON, Site, at_once, exclusive, handles, make_run, put, refused, shared};

/// CLD-ST2: 50 appends rise; an unknown event is kept; versions of an artifact in order.
pub async fn st2_events_and_artifacts(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let odd = Bytes::from(r#"{"type":"never.seen","$x":[1.50,{"":null}]}"#);
    let mut last = None;
    for _ in 0..50 {
        let first = store.append_events(&run, vec![odd.clone()], None).await.expect("appends");
        assert!(last.is_none_or(|last| first > last));
        last = Some(first);
    }
    let rows = all_events(&*store, &run).await;
    assert_eq!(rows.len(), 50);
    for row in rows {
        let text = format!(r#"{{"seq":{},"type":"never.seen","$x":[1.50,{{"":null}}]}}"#, row.seq);
        assert_eq!(row.body, text.as_bytes());
    }
    for version in 1..4 {
        let key = DocKey::Artifact(run.clone(), "n".parse().expect("a node"), version);
        put(&*store, &key, "{}", Expect::Absent).await.expect("creates");
        refused(put(&*store, &key, "{\"x\":1}", Expect::Absent).await, Kind::Conflict);
    }
    let below = keys(&*store, &Prefix::Run(run)).await;
    let versions: Vec<&String> = below.iter().filter(|k| k.contains("artifacts")).collect();
    assert_eq!(versions.last().map(|k| k.as_str()), Some("runs/r/artifacts/n/3.json"));
    assert_eq!(versions.len(), 3);
}

/// CLD-ST5: A, B, A's content again: the first version is not current again.
pub async fn st5_content_returns_its_version_does_not(site: &Site) {
    let store = site.open().await;
    let write = async |n: u64, expect: Expect| {
        let value = serde_json::json!({ "n": n });
        docs::save(&*store, &RandomIds, &DocKey::Damage, &value, expect, None).await
    };
    let first = write(1, Expect::Absent).await.expect("creates");
    let second = write(2, Expect::Version(first.clone())).await.expect("is current");
    write(1, Expect::Version(second)).await.expect("is current");
    refused(write(3, Expect::Version(first)).await, Kind::Conflict);
}

/// CLD-ST9: an Exclusive gets in past 50 Shared holders, and later ones wait for it.
pub async fn st9_exclusive_is_not_starved(site: &Site) {
    let stores = handles(site, 2).await;
    drop(stores[0].lock(exclusive(LockName::Objects, SOON)).await.expect("free"));
    let mut holders = Vec::new();
    for _ in 0..50 {
        holders.push(stores[0].lock(shared(LockName::Objects, SOON)).await.expect("shared"));
    }
    let store = stores[1].clone();
    let waiting = tokio::spawn(async move { store.lock(exclusive(LockName::Objects, SOON)).await });
    while stores[0].lock(shared(LockName::Objects, Duration::ZERO)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(holders);
    let guard = waiting.await.expect("no panic").expect("gets in");
    refused(stores[0].lock(shared(LockName::Objects, Duration::ZERO)).await, Kind::Busy);
    drop(guard);
    stores[0].lock(shared(LockName::Objects, SOON)).await.expect("free");
}

/// CLD-ST1: a run with every kind of child is created, listed and deleted: gone, its
/// sibling intact, a second deletion well, a late append refused until the tombstone goes.
pub async fn st1_a_run_and_its_children(site: &Site) {
    let store = site.open().await;
    let mut all = Vec::new();
    for id in ["r-1", "r-2"] {
        let run = make_run(&*store, id).await;
        let chain = Chain::Run(run.clone());
        let children = [
            DocKey::Refs(chain.clone()),
            DocKey::Pruned(chain.clone()),
            DocKey::Snapshot(chain, "00000000000000aa".parse().expect("an id")),
            DocKey::Interaction(run.clone(), "i".parse().expect("an id")),
            DocKey::Artifact(run.clone(), "n".parse().expect("a node"), 1),
        ];
        for key in &children {
            put(&*store, key, "{}", Expect::Absent).await.expect("creates");
        }
        store.append_events(&run, vec![Bytes::from("{\"a\":1}")], None).await.expect("appends");
        store.append_log(&run, None, Bytes::from("line\n"), None).await.expect("appends");
        assert_eq!(keys(&*store, &Prefix::Run(run.clone())).await.len(), 6);
        all.push((run, children));
    }
    let (run, children) = &all[0];
    let tombstone = DocKey::RunTombstone(run.clone());
    put(&*store, &tombstone, "{}", Expect::Absent).await.expect("marks");
    for _ in 0..2 {
        for key in children.iter().chain([&DocKey::Run(run.clone())]) {
            store.delete(key, None).await.expect("deletes");
        }
        assert!(keys(&*store, &Prefix::Run(run.clone())).await.is_empty());
        refused(store.read_log(run, 0, 0).await, Kind::NotFound);
        let late = store.append_log(run, None, Bytes::from("late"), None).await;
        assert_eq!(late.expect_err("late").code(), "deleted");
    }
    assert_eq!(keys(&*store, &Prefix::Run(all[1].0.clone())).await.len(), 6);
    assert_eq!(all_events(&*store, &all[1].0).await.len(), 1);
    store.delete(&tombstone, None).await.expect("reaps");
    make_run(&*store, "r-1").await;
    assert!(all_events(&*store, run).await.is_empty());
}

/// CLD-ST3: appends at 0 and 6, a read across both, past the end, and the same again.
pub async fn st3_appends_and_reads_cut_across(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let part = |offset, text: &'static str| LogPart::Bytes { offset, bytes: text.into() };
    for (at, text) in [(0, "first "), (6, "second"), (0, "first "), (6, "second")] {
        let put = store.append_log(&run, Some(at), Bytes::from(text), None).await;
        assert_eq!(put.expect("appends"), at);
    }
    let read = async |from, to| store.read_log(&run, from, to).await.expect("reads");
    assert_eq!(read(4, 9).await, [part(4, "t sec")]);
    assert!(read(12, 0).await.is_empty());
    assert_eq!(read(0, 0).await, [part(0, "first second")]);
}

/// CLD-ST6: a listing of 2,500 keys is complete and sorted.
pub async fn st6_a_long_listing(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let node: NodeId = "n".parse().expect("a node");
    let put = |n: u64| {
        let key = DocKey::Artifact(run.clone(), node.clone(), n);
        let store = store.clone();
        async move { put(&*store, &key, "{}", Expect::Absent).await.map(drop) }
    };
    let puts: Vec<_> = (0..2_500).map(put).collect();
    let done: Vec<_> = futures::stream::iter(puts).buffer_unordered(32).collect().await;
    assert!(done.iter().all(Result::is_ok));
    let mut expected: Vec<String> =
        (0..2_500).map(|n| format!("runs/r/artifacts/n/{n}.json")).collect();
    expected.sort();
    assert_eq!(keys(&*store, &Prefix::Artifacts(run)).await, expected);
}

/// CLD-ST8: 32 lockers for some seconds: never two inside, tokens rise.
pub async fn st8_never_two_inside_for_long(site: &Site) {
    let stores = handles(site, site.writers(32)).await;
    let end = tokio::time::Instant::now() + Duration::from_secs(5);
    let state = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let enter = |i: usize| {
        let (stores, state) = (stores.clone(), state.clone());
        async move {
            let mut entered = 0;
            while tokio::time::Instant::now() < end {
                let asked = exclusive(LockName::Prune, Duration::from_secs(1));
                let Ok(guard) = stores[i].lock(asked).await else { continue };
                assert_eq!(state.0.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                assert!(state.1.swap(guard.token(), Ordering::SeqCst) < guard.token());
                tokio::task::yield_now().await;
                state.0.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
                entered += 1;
            }
            entered
        }
    };
    let entered: u64 = at_once(stores.len(), enter).await.into_iter().sum();
    assert!(entered > 1, "{entered} got in");
}
