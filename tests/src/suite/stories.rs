//! The CLD-ST cases that every store can play: several promises together.

use std::time::Duration;

use backtrail_backends::host::RandomIds;
use backtrail_core::error::Kind;
use backtrail_core::store::{DocKey, Expect, LockName, Prefix, docs};
use bytes::Bytes;

use super::documents::keys;
use super::logs::all_events;
use super::{SOON, Site, exclusive, handles, make_run, put, refused, shared};

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
