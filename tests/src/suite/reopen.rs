//! Everything again after the store was closed and opened by another process, and what
//! a process leaves that was killed at each point of a write (CLD-O3, O5, D5, G4).

use std::collections::HashMap;

use backtrail_core::ids::{Chain, Digest};
use backtrail_core::store::{
    DocKey, Expect, LockMode, LockName, LogPart, Object, Prefix, PutObjects, Store,
};
use bytes::Bytes;
use futures::TryStreamExt;

use super::child::{self, Task};
use super::documents::keys;
use super::objects::listed;
use super::{SOON, Site, body, exclusive, make_run, noise, put, question, run_id, store_all, text};

fn contents() -> Vec<Object> {
    (0..10).flat_map(|i| [noise(900 + i, 1_000), text(900 + i, 30_000)]).collect()
}

/// Writes something of every kind.
pub async fn fill(store: &dyn Store) {
    store_all(store, &contents()).await;
    let run = make_run(store, "kept").await;
    put(store, &DocKey::Refs(Chain::Run(run.clone())), "{\"head\":1}\n", Expect::Absent)
        .await
        .expect("creates");
    let events = vec![Bytes::from("{\"n\":1}"), Bytes::from("{\"n\":2}")];
    store.append_events(&run, events, None).await.expect("appends");
    store.append_log(&run, None, Bytes::from("line\n"), None).await.expect("appends");
    drop(store.lock(exclusive(LockName::Prune, SOON)).await.expect("free"));
}

/// Fails unless everything that [`fill`] wrote is there and right.
pub async fn check(store: &dyn Store) {
    let contents = contents();
    let questions: Vec<(Digest, u64)> = contents.iter().map(question).collect();
    assert!(store.contains(&questions).await.expect("answers").iter().all(|there| *there));
    for object in &contents {
        assert_eq!(store.get_object(&object.digest()).await.expect("reads"), object.bytes());
    }
    let run = run_id("kept");
    let below = keys(store, &Prefix::Run(run.clone())).await;
    assert_eq!(below, ["runs/kept/run.json", "runs/kept/workspace/index.json"]);
    assert_eq!(body(store, &DocKey::Refs(Chain::Run(run.clone()))).await, "{\"head\":1}\n");
    let events: Vec<_> = store.read_events(&run, 0).try_collect().await.expect("reads");
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [0, 1]);
    let log = store.read_log(&run, 0, 0).await.expect("reads");
    assert_eq!(log, [LogPart::Bytes { offset: 0, bytes: Bytes::from("line\n") }]);
    let first = store.append_events(&run, vec![Bytes::from("{}")], None).await;
    assert_eq!(first.expect("appends"), 2, "numbers go on");
    let guard = store.lock(exclusive(LockName::Prune, SOON)).await.expect("free");
    assert!(guard.token() >= 2, "tokens go on");
}

/// What one process wrote another one reads.
pub async fn another_process_reads_it(site: &Site) {
    match site.dir() {
        Some(dir) => {
            fill(&*site.open().await).await;
            assert!(child::run(&Task::Check, &dir).success());
        }
        None => {
            fill(&*site.open().await).await;
            check(&*site.open().await).await;
        }
    }
}

/// CLD-O5: what a flush covered outlives the process that put it.
pub async fn o5_flushed_outlives_its_writer(site: &Site) {
    let Some(dir) = site.dir() else { return };
    assert!(child::run(&Task::Fill, &dir).success());
    check(&*site.open().await).await;
}

/// CLD-O3: a writer killed at any point leaves no name without its bytes.
pub async fn o3_a_kill_leaves_no_half_object(site: &Site) {
    let Some(dir) = site.dir() else {
        let object = noise(3, 500);
        let store = site.open().await;
        store.put_objects(vec![object.clone()], PutObjects::Check).await.expect("puts");
        return;
    };
    let points = [
        ("store.object.staged", 1, 0),
        ("store.object.staged", 20, 0),
        ("store.object.synced", 1, 0),
        ("store.object.named", 7, 7),
        ("store.object.named", 20, 20),
    ];
    for (point, nth, named) in points {
        let _ = std::fs::remove_dir_all(&dir);
        assert!(!child::run(&Task::Die(point, nth), &dir).success(), "{point}: must die");
        let store = site.open().await;
        let (ages, foreign): (HashMap<_, _>, usize) = listed(&*store).await;
        assert_eq!((ages.len(), foreign), (named, 0), "{point} {nth}");
        for digest in ages.keys() {
            store.get_object(digest).await.expect("what has a name is right");
        }
        // The next writer needs no clean-up.
        store_all(&*store, &child::objects()).await;
        assert_eq!(listed(&*store).await.0.len(), 20);
    }
}

/// CLD-D5: a writer killed in the middle leaves the old document or the new one.
pub async fn d5_a_kill_leaves_old_or_new(site: &Site) {
    let Some(dir) = site.dir() else { return };
    let (old, new) = ("{\"old\":1}", "{\"by\":\"child\"}");
    for (point, expected) in [("store.doc.staged", old), ("store.doc.named", new)] {
        let store = site.open().await;
        put(&*store, &DocKey::Damage, old, Expect::Any).await.expect("writes");
        assert!(!child::run(&Task::Die(point, 1), &dir).success(), "{point}: must die");
        assert_eq!(body(&*store, &DocKey::Damage).await, expected, "{point}");
        // The dead writer's lock is gone, its staging file is no document.
        put(&*store, &DocKey::Damage, old, Expect::Any).await.expect("writes");
        assert_eq!(keys(&*store, &Prefix::All).await, ["damage.json", "store.json"]);
    }
}

/// CLD-G4: the lock of a killed process is free at once.
pub async fn g4_a_killed_holder_is_gone(site: &Site) {
    let Some(dir) = site.dir() else { return };
    let store = site.open().await;
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        let mut child = child::start(&Task::Hold(mode), &dir);
        child::wait_until_held(&mut child);
        let e = store.lock(exclusive(LockName::Prune, std::time::Duration::ZERO)).await;
        let e = super::refused(e, backtrail_core::error::Kind::Busy);
        assert_eq!(e.details()["holder"]["pid"], child.id());
        child.kill().expect("kills");
        child.wait().expect("ends");
        let free = store.lock(exclusive(LockName::Prune, std::time::Duration::ZERO)).await;
        drop(free.expect("free at once"));
    }
}
