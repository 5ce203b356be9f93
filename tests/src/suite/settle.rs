//! CLD-ST12 and the retry layer: a lost answer is settled, never guessed.

use std::sync::Arc;
use std::time::Duration;

use backtrail_backends::host::RandomIds;
use backtrail_core::error::Kind;
use backtrail_core::ids::RunId;
use backtrail_core::store::layers::Call;
use backtrail_core::store::layers::fault::{Fault, FaultStore};
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::layers::verify::Verify;
use backtrail_core::store::memory::MemoryStore;
use backtrail_core::store::{DocKey, Expect, LockName, LogPart, Object, Prefix, PutObjects, Store};
use bytes::Bytes;
use futures::TryStreamExt;

use super::documents::keys;
use super::objects::listed;
use super::sites::quick_retry;
use super::{SOON, body, exclusive, make_run, noise, put, question, refused};

/// A memory store behind faults, and the whole stack over it.
pub struct Rig {
    /// Where faults are armed.
    pub faults: Arc<FaultStore>,
    /// `retry(verify(fault(memory)))`.
    pub store: Arc<dyn Store>,
}

impl Rig {
    /// A fresh one, nothing armed.
    pub fn new() -> Self {
        Self::with(quick_retry)
    }

    fn with(retry: impl Fn(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let faults = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
        let store = retry(Arc::new(Verify::new(faults.clone())));
        Self { faults, store }
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

/// Every kind of write under `fault`: it succeeds, once.
pub async fn writes_happen_once(fault: Fault) {
    let rig = Rig::new();
    let store = &*rig.store;
    let run = make_run(store, "r").await;
    let arm = |call| rig.faults.arm(call, 1, fault.clone());

    arm(Call::PutObjects);
    let object = noise(12, 900);
    let conflict = fault == Fault::AfterConflict;
    let out = store.put_objects(vec![object.clone()], PutObjects::Check).await;
    if !conflict {
        assert_eq!(out.expect("puts").len(), 1);
    }
    store.flush().await.expect("flushes");
    assert_eq!(listed(store).await.0.len(), 1);

    arm(Call::Put);
    let created = put(store, &DocKey::Damage, "{\"w\":1}", Expect::Absent).await.expect("creates");
    assert_eq!(store.get(&DocKey::Damage).await.expect("reads").version, created);
    arm(Call::Put);
    let swap = Expect::Version(created.clone());
    let swapped = put(store, &DocKey::Damage, "{\"w\":2}", swap).await.expect("swaps");
    assert_eq!(store.get(&DocKey::Damage).await.expect("reads").version, swapped);
    arm(Call::Put);
    let stale = put(store, &DocKey::Damage, "{\"w\":3}", Expect::Version(created)).await;
    refused(stale, Kind::Conflict);
    assert_eq!(body(store, &DocKey::Damage).await, "{\"w\":2}");
    arm(Call::Delete);
    let deleted = store.delete(&DocKey::Damage, Some(&swapped)).await;
    if !conflict {
        deleted.expect("deletes");
    }

    appends_happen_once(&rig, &run, &arm).await;
}

async fn appends_happen_once(rig: &Rig, run: &RunId, arm: &impl Fn(Call)) {
    let store = &*rig.store;
    let mut numbers = Vec::new();
    for n in 0..6 {
        if n % 2 == 0 {
            arm(Call::AppendEvents);
            arm(Call::AppendLog);
        }
        let events = vec![Bytes::from(format!("{{\"n\":{n}}}")), Bytes::from("{\"more\":1}")];
        numbers.push(store.append_events(run, events, None).await.expect("appends"));
        let line = Bytes::from(format!("line {n}\n"));
        let at = store.append_log(run, None, line, None).await.expect("appends");
        assert_eq!(at, 7 * n);
    }
    assert_eq!(numbers, [0, 2, 4, 6, 8, 10]);
    let events: Vec<_> = store.read_events(run, 0).try_collect().await.expect("reads");
    assert_eq!(events.len(), 12);
    let log = store.read_log(run, 0, 0).await.expect("reads");
    let [LogPart::Bytes { bytes, .. }] = &log[..] else { panic!("{log:?}") };
    assert_eq!(&bytes[..], b"line 0\nline 1\nline 2\nline 3\nline 4\nline 5\n");
    arm(Call::AppendLog);
    let again = store.append_log(run, Some(7), Bytes::from("line 1\n"), None).await;
    assert_eq!(again.expect("the same again"), 7);
}

/// One item that fails is put again alone; one that goes on failing is reported alone.
pub async fn items_are_retried_alone() {
    let rig = Rig::new();
    let batch: Vec<Object> = (0..5).map(|i| noise(600 + i, 50)).collect();
    rig.faults.arm(Call::PutObjects, 1, Fault::Item(3));
    let out = rig.store.put_objects(batch.clone(), PutObjects::Check).await.expect("puts");
    assert_eq!(out.len(), 5);
    rig.store.flush().await.expect("flushes");
    let questions: Vec<_> = batch.iter().map(question).collect();
    assert_eq!(rig.store.contains(&questions).await.expect("answers"), [true; 5]);
    rig.faults.arm(Call::GetObjects, 1, Fault::Item(0));
    let digests: Vec<_> = batch.iter().map(Object::digest).collect();
    for got in rig.store.get_objects(&digests).await.expect("answers") {
        got.expect("reads");
    }
    rig.faults.arm_times(Call::DeleteObjects, 1, 100, Fault::Item(0));
    let out = rig.store.delete_objects(&digests[..2]).await.expect("answers");
    let failed = matches!(
        &out[..],
        [
            backtrail_core::store::DeleteOutcome::Failed(_),
            backtrail_core::store::DeleteOutcome::Deleted
        ]
    );
    assert!(failed, "{out:?}");
}

/// A listing that breaks or repeats itself is whole in the end, or fails.
pub async fn listings_are_whole_or_fail() {
    let rig = Rig::new();
    let mut expected = Vec::new();
    for n in 0..40 {
        let run = make_run(&*rig.store, &format!("run-{n:02}")).await;
        expected.push(DocKey::Run(run).to_string());
    }
    for fault in [Fault::Cut(9), Fault::Repeat(9), Fault::Before] {
        rig.faults.arm(Call::List, 1, fault.clone());
        assert_eq!(keys(&*rig.store, &Prefix::Runs).await, expected, "{fault:?}");
    }
    let objects: Vec<Object> = (0..40).map(|i| noise(700 + i, 50)).collect();
    super::store_all(&*rig.store, &objects).await;
    for fault in [Fault::Repeat(9), Fault::Before] {
        rig.faults.arm(Call::ListObjects, 1, fault);
        assert_eq!(listed(&*rig.store).await.0.len(), 40);
    }
    rig.faults.arm(Call::ListObjects, 1, Fault::Cut(9));
    let rows: Result<Vec<_>, _> = rig.store.list_objects().try_collect().await;
    refused(rows, Kind::Unavailable { maybe_applied: true });
    let run = expected_run();
    let events = (0..40).map(|n| Bytes::from(format!("{{\"n\":{n}}}"))).collect();
    rig.store.append_events(&run, events, None).await.expect("appends");
    rig.faults.arm(Call::ReadEvents, 1, Fault::Cut(13));
    assert_eq!(super::logs::all_events(&*rig.store, &run).await.len(), 40);
}

fn expected_run() -> RunId {
    super::run_id("run-00")
}

/// When tries end, the error names operation, tries and last cause, and says whether
/// the write may have happened.
pub async fn giving_up_is_told() {
    let rig = Rig::new();
    rig.faults.arm_times(Call::Put, 1, 100, Fault::Before);
    rig.faults.arm_times(Call::Get, 1, 100, Fault::Before);
    let e = put(&*rig.store, &DocKey::Damage, "{}", Expect::Absent).await;
    let e = refused(e, Kind::Unavailable { maybe_applied: true });
    for part in ["put damage.json failed after 6 attempts in ", "injected failure before put"] {
        assert!(e.message().contains(part), "{part}: {e}");
    }
    rig.faults.disarm();
    // What will not go away is not tried again.
    let before = rig.faults.met();
    refused(put(&*rig.store, &DocKey::Damage, "[]", Expect::Absent).await, Kind::Invalid);
    refused(rig.store.get(&DocKey::Damage).await, Kind::NotFound);
    assert_eq!(rig.faults.met(), before);
    rig.faults.arm(Call::Lock, 1, Fault::Before);
    rig.store.lock(exclusive(LockName::Prune, SOON)).await.expect("takes");

    let impatient = Rig::with(|inner| {
        let policy = RetryPolicy {
            budget: Duration::from_millis(40),
            attempts: 1_000_000,
            first_pause: Duration::from_millis(20),
            attempt_limit: Some(Duration::from_millis(10)),
            ..RetryPolicy::new(Arc::new(RandomIds))
        };
        Arc::new(Retry::new(inner, policy))
    });
    impatient.faults.arm_times(Call::Flush, 1, 1_000_000, Fault::Delay(Duration::from_secs(9)));
    let e = refused(impatient.store.flush().await, Kind::Unavailable { maybe_applied: true });
    assert!(e.message().contains("no answer within"), "{e}");
}

/// Random faults from a seed: at the end everything that was told is true.
pub async fn random_faults(seed: u64) {
    let rig = Rig::new();
    let store = &*rig.store;
    let run = make_run(store, "r").await;
    let mut version = put(store, &DocKey::Damage, "{\"n\":0}", Expect::Any).await.expect("puts");
    rig.faults.arm_random(seed, 200);
    let (mut events, mut log) = (0, 0);
    for n in 1..40_u64 {
        let object = noise(seed + n, 100);
        if store.put_objects(vec![object.clone()], PutObjects::Check).await.is_ok()
            && store.flush().await.is_ok()
        {
            let got = store.get_object(&object.digest()).await;
            assert!(got.is_ok() || !got.is_err_and(|e| e.is_not_found()), "seed {seed}");
        }
        let text = format!("{{\"n\":{n}}}");
        let swap = Expect::Version(version.clone());
        match put(store, &DocKey::Damage, &text, swap).await {
            Ok(next) => version = next,
            Err(e) => panic!("seed {seed}: {e:?}"),
        }
        let event = Bytes::from(format!("{{\"at\":{n}}}"));
        let first = store.append_events(&run, vec![event], None).await;
        assert_eq!(first.expect("settled"), events, "seed {seed}");
        events += 1;
        let line = Bytes::from(format!("{n:08}"));
        let at = store.append_log(&run, None, line, None).await;
        assert_eq!(at.expect("settled"), log, "seed {seed}");
        log += 8;
    }
    rig.faults.disarm();
    assert_eq!(body(store, &DocKey::Damage).await, "{\"n\":39}", "seed {seed}");
    let rows: Vec<_> = store.read_events(&run, 0).try_collect().await.expect("reads");
    assert_eq!(rows.len() as u64, events, "seed {seed}");
    let parts = store.read_log(&run, 0, 0).await.expect("reads");
    assert_eq!(parts.last().map(LogPart::end), Some(log), "seed {seed}");
}
