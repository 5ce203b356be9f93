//! CLD-D1 to CLD-D10.

use std::time::Duration;

use backtrail_core::error::Kind;
use backtrail_core::ids::{Chain, RunId, SnapshotId, WorkspaceKey};
use backtrail_core::store::{DocKey, Expect, Fence, Listed, LockName, Prefix, Store, Version};
use bytes::Bytes;
use futures::TryStreamExt;

use super::{Site, at_once, body, handles, make_run, put, refused, run_id};

fn workspace() -> WorkspaceKey {
    "00112233445566aa".parse().expect("a key")
}

fn snapshot(n: u64) -> SnapshotId {
    format!("{n:016x}").parse().expect("an id")
}

fn refs(run: &RunId) -> DocKey {
    DocKey::Refs(Chain::Run(run.clone()))
}

fn counter(n: u64) -> String {
    format!("{{\"cas_version\":{n},\"n\":{n}}}")
}

/// The keys below a prefix; fails on anything that is no document.
pub async fn keys(store: &dyn Store, prefix: &Prefix) -> Vec<String> {
    let rows: Vec<Listed> = store.list(prefix).try_collect().await.expect("lists");
    let key = |row: &Listed| match row {
        Listed::Doc { key, age, .. } => {
            assert!(*age < Duration::from_secs(3600));
            key.to_string()
        }
        Listed::Foreign { name } => panic!("{name} is foreign"),
    };
    rows.iter().map(key).collect()
}

/// CLD-D1: a body comes back byte for byte.
pub async fn d1_byte_for_byte(site: &Site) {
    let bodies = [
        "{}",
        "{ }\n",
        r#"{"$x":1,"a.b":{"":"$name"},"":[]}"#,
        "{\"n\": 9223372036854775807, \"m\": -9223372036854775808, \"u\": 18446744073709551615}\n",
        r#"{"f":1.0,"g":1e2,"h":0.1000,"i":-0}"#,
        "{\"e\":\"\\u00e9\u{e9}\\/\\n\",\"b\":2,\"a\":1}\r\n\n",
        "\n\t{\"text\":\"line\u{2028}\"}",
    ];
    let store = site.open().await;
    for text in bodies {
        let version = put(&*store, &DocKey::Damage, text, Expect::Any).await.expect("puts");
        for handle in [store.clone(), site.open().await] {
            let doc = handle.get(&DocKey::Damage).await.expect("reads");
            assert_eq!(doc.body, text.as_bytes());
            assert_eq!(doc.version, version);
        }
    }
    for text in ["", "[]", "1", "{", "{\"a\":1} x", "\u{0}"] {
        refused(put(&*store, &DocKey::Damage, text, Expect::Any).await, Kind::Invalid);
    }
    refused(store.get(&DocKey::Operations(workspace())).await, Kind::NotFound);
}

/// CLD-D2: of many creators exactly one wins, and the others hear its version.
pub async fn d2_one_creator_wins(site: &Site) {
    let stores = handles(site, site.writers(16)).await;
    let key = DocKey::Snapshot(Chain::Workspace(workspace()), snapshot(1));
    let create = |i: usize| {
        let (stores, key) = (stores.clone(), key.clone());
        async move { put(&*stores[i], &key, &counter(i as u64), Expect::Absent).await }
    };
    let results = at_once(stores.len(), create).await;
    let winners: Vec<(usize, &Version)> =
        results.iter().enumerate().filter_map(|(i, r)| Some((i, r.as_ref().ok()?))).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    let (winner, version) = winners[0];
    assert_eq!(body(&*stores[0], &key).await, counter(winner as u64));
    for e in results.iter().filter_map(|r| r.as_ref().err()) {
        assert_eq!(e.kind(), Kind::Conflict, "{e:?}");
        assert_eq!(e.details()["version"], version.0);
    }
}

/// CLD-D3: a write at a version is applied only while it is current.
pub async fn d3_versions_never_return(site: &Site) {
    let store = site.open().await;
    let key = DocKey::Operations(workspace());
    let never = Expect::Version(Version("never".into()));
    refused(put(&*store, &key, "{}", never.clone()).await, Kind::Conflict);
    let mut seen = Vec::new();
    let mut version = put(&*store, &key, &counter(1), Expect::Absent).await.expect("creates");
    for n in 2..6 {
        assert!(!seen.contains(&version));
        let next = put(&*store, &key, &counter(n), Expect::Version(version.clone())).await;
        seen.push(std::mem::replace(&mut version, next.expect("is current")));
    }
    for old in &seen {
        let e = refused(
            put(&*store, &key, &counter(99), Expect::Version(old.clone())).await,
            Kind::Conflict,
        );
        assert_eq!(e.details()["version"], version.0);
    }
    store.delete(&key, None).await.expect("deletes");
    let gone = Expect::Version(version.clone());
    refused(put(&*store, &key, &counter(6), gone.clone()).await, Kind::Conflict);
    put(&*store, &key, &counter(7), Expect::Absent).await.expect("creates again");
    refused(put(&*store, &key, &counter(8), gone).await, Kind::Conflict);
    refused(put(&*store, &key, &counter(8), never).await, Kind::Conflict);
    assert_eq!(body(&*store, &key).await, counter(7));
}

/// CLD-D4: with `Any` the last writer wins, and nothing is torn.
pub async fn d4_last_writer_wins(site: &Site) {
    let stores = handles(site, site.writers(8)).await;
    let write = |i: usize| {
        let stores = stores.clone();
        let text = format!("{{\"n\":{i},\"pad\":\"{}\"}}", "x".repeat(10_000 * i));
        async move { put(&*stores[i], &DocKey::Damage, &text, Expect::Any).await.map(|_| text) }
    };
    let written: Vec<String> =
        at_once(stores.len(), write).await.into_iter().map(|r| r.expect("writes")).collect();
    assert!(written.contains(&body(&*stores[0], &DocKey::Damage).await));
    put(&*stores[3], &DocKey::Damage, "{\"last\":true}", Expect::Any).await.expect("writes");
    assert_eq!(body(&*stores[stores.len() - 1], &DocKey::Damage).await, "{\"last\":true}");
}

/// CLD-D5: Ok is seen by every later read of anybody; Conflict changed nothing.
pub async fn d5_ok_is_seen_by_all(site: &Site) {
    let (writer, reader) = (site.open().await, site.open().await);
    let key = DocKey::Operations(workspace());
    let mut version = put(&*writer, &key, &counter(0), Expect::Absent).await.expect("creates");
    for n in 1..10 {
        let next = put(&*writer, &key, &counter(n), Expect::Version(version.clone())).await;
        let old = std::mem::replace(&mut version, next.expect("writes"));
        let doc = reader.get(&key).await.expect("reads");
        assert_eq!((&doc.body[..], &doc.version), (counter(n).as_bytes(), &version));
        let other = counter(n + 100);
        refused(put(&*reader, &key, &other, Expect::Version(old)).await, Kind::Conflict);
        assert_eq!(body(&*writer, &key).await, counter(n));
    }
}

/// CLD-D6: a listing is sorted and whole, with the versions that reads give.
pub async fn d6_listings_are_sorted_and_whole(site: &Site) {
    let store = site.open().await;
    let chain = Chain::Workspace(workspace());
    let mut expected = Vec::new();
    for n in (0..61).rev() {
        let key = DocKey::Snapshot(chain.clone(), snapshot(n));
        put(&*store, &key, &counter(n), Expect::Absent).await.expect("creates");
        expected.push(key.to_string());
    }
    expected.sort();
    assert_eq!(keys(&*store, &Prefix::Snapshots(chain.clone())).await, expected);
    let refs = DocKey::Refs(chain.clone());
    put(&*store, &refs, "{}", Expect::Absent).await.expect("creates");
    expected.push(refs.to_string());
    expected.sort();
    assert_eq!(keys(&*store, &Prefix::Place(chain)).await, expected);
    let all: Vec<String> = keys(&*store, &Prefix::All).await;
    assert!(expected.iter().all(|k| all.contains(k)));
    let rows: Vec<Listed> = store.list(&Prefix::Workspaces).try_collect().await.expect("lists");
    for row in rows {
        let Listed::Doc { key, version, .. } = row else { panic!("{row:?}") };
        assert_eq!(Some(store.get(&key).await.expect("reads").version), version);
    }
    assert!(keys(&*store, &Prefix::Checkpoints).await.is_empty());
}

/// CLD-D7: a prefix ends at its separator.
pub async fn d7_prefixes_are_apart(site: &Site) {
    let store = site.open().await;
    for id in ["run-1", "run-10", "run-1.x", "run-"] {
        let run = make_run(&*store, id).await;
        put(&*store, &refs(&run), "{}", Expect::Absent).await.expect("creates");
        store.append_events(&run, vec![Bytes::from("{\"a\":1}")], None).await.expect("appends");
    }
    let records = keys(&*store, &Prefix::RunRecords).await;
    let want = ["run-", "run-1.x", "run-1", "run-10"].map(|id| format!("runs/{id}/run.json"));
    assert_eq!(records.len(), 4);
    assert!(want.iter().all(|key| records.contains(key)), "{records:?}");
    let run = run_id("run-1");
    let below = keys(&*store, &Prefix::Run(run.clone())).await;
    assert_eq!(below, ["runs/run-1/run.json", "runs/run-1/workspace/index.json"]);
    let place = Prefix::Place(Chain::Run(run.clone()));
    assert_eq!(keys(&*store, &place).await, ["runs/run-1/workspace/index.json"]);
    for key in [refs(&run), DocKey::Run(run.clone())] {
        store.delete(&key, None).await.expect("deletes");
    }
    assert!(keys(&*store, &Prefix::Run(run)).await.is_empty());
    assert_eq!(keys(&*store, &Prefix::Runs).await.len(), 6);
}

/// CLD-D8: deleting what is absent is success; with a version it is conditional.
pub async fn d8_delete_may_be_conditional(site: &Site) {
    let store = site.open().await;
    let key = DocKey::Operations(workspace());
    store.delete(&key, None).await.expect("nothing to do");
    let old = put(&*store, &key, &counter(1), Expect::Absent).await.expect("creates");
    let new = put(&*store, &key, &counter(2), Expect::Any).await.expect("writes");
    refused(store.delete(&key, Some(&old)).await, Kind::Conflict);
    assert_eq!(body(&*store, &key).await, counter(2));
    store.delete(&key, Some(&new)).await.expect("is current");
    refused(store.get(&key).await, Kind::NotFound);
    refused(store.delete(&key, Some(&new)).await, Kind::Conflict);
    store.delete(&key, None).await.expect("nothing to do");
    assert!(keys(&*store, &Prefix::Workspaces).await.is_empty());
}

/// CLD-D9: an older token than the stored one writes nothing.
pub async fn d9_old_tokens_are_fenced_out(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let fence = |token| Fence { lock: LockName::Run(run.clone()), token };
    let record = DocKey::Run(run.clone());
    let member = |token: u64| format!("{{\"token\":{token}}}");
    let holder = |token: u64| format!("{{\"holder\":{{\"token\":{token}}}}}");
    let cases: [(DocKey, &dyn Fn(u64) -> String); 2] = [(refs(&run), &member), (record, &holder)];
    for (key, text) in cases {
        let put = async |token: u64, expect: Expect| {
            store.put(&key, Bytes::from(text(token)), expect, Some(&fence(token))).await
        };
        let version = put(5, Expect::Any).await.expect("writes");
        refused(put(4, Expect::Any).await, Kind::LostLease);
        refused(put(4, Expect::Version(version.clone())).await, Kind::LostLease);
        assert_eq!(body(&*store, &key).await, text(5));
        put(5, Expect::Version(version)).await.expect("an equal token writes");
        put(7, Expect::Any).await.expect("a newer token writes");
        refused(put(6, Expect::Any).await, Kind::LostLease);
        assert_eq!(body(&*store, &key).await, text(7));
    }
}

/// CLD-D10: below a deleted run nothing is written until the tombstone goes.
pub async fn d10_deleted_runs_stay_deleted(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let events = || vec![Bytes::from("{\"type\":\"x\"}")];
    store.append_events(&run, events(), None).await.expect("appends");
    store.append_log(&run, None, Bytes::from("log"), None).await.expect("appends");
    put(&*store, &refs(&run), "{}", Expect::Absent).await.expect("creates");
    let record = DocKey::Run(run.clone());
    let version = store.get(&record).await.expect("reads").version;
    let tombstone = DocKey::RunTombstone(run.clone());
    put(&*store, &tombstone, "{}", Expect::Absent).await.expect("creates");
    for step in ["marked", "deleted"] {
        let e = store.append_events(&run, events(), None).await.expect_err(step);
        assert_eq!((e.kind(), e.code()), (Kind::NotFound, "deleted"), "{step}");
        store.append_log(&run, None, Bytes::from("x"), None).await.expect_err(step);
        let artifact = DocKey::Artifact(run.clone(), "n".parse().expect("a node"), 0);
        let e = put(&*store, &artifact, "{}", Expect::Absent).await.expect_err(step);
        assert_eq!(e.code(), "deleted", "{step}");
        let save = Expect::Version(version.clone());
        put(&*store, &record, "{\"x\":1}", save).await.expect_err(step);
        refused(put(&*store, &record, "{}", Expect::Absent).await, Kind::Conflict);
        store.delete(&record, None).await.expect("deletes");
    }
    store.delete(&refs(&run), None).await.expect("deletes");
    assert!(keys(&*store, &Prefix::Runs).await.is_empty());
    let rows: Result<Vec<_>, _> = store.read_events(&run, 0).try_collect().await;
    refused(rows, Kind::NotFound);
    refused(store.read_log(&run, 0, 0).await, Kind::NotFound);
    if let Some(dir) = site.dir() {
        assert!(!dir.join("runs/r").exists(), "nothing of the run stays");
    }
    // An absent run is no place to write to either, and writing makes none.
    let absent = run_id("absent");
    refused(put(&*store, &refs(&absent), "{}", Expect::Absent).await, Kind::NotFound);
    refused(store.append_events(&absent, events(), None).await, Kind::NotFound);
    store.delete(&tombstone, None).await.expect("reaps");
    make_run(&*store, "r").await;
    let rows: Vec<_> = store.read_events(&run, 0).try_collect().await.expect("reads");
    assert!(rows.is_empty(), "nothing of the old run came back");
}
