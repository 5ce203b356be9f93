//! Answers that are lost, late or refused for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use backtrail_backends::host::RandomIds;
use backtrail_core::error::Kind;
use backtrail_core::ids::{Chain, WorkspaceKey};
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::{DocKey, Expect, LockName, PutObjects, PutOutcome, Store};
use backtrail_tests::proxy::{Act, Answer, Request};
use backtrail_tests::suite::{exclusive, noise, put, refused, s3, store_all};
use bytes::Bytes;

use crate::world::{run, stack};

fn workspace() -> WorkspaceKey {
    "00112233445566aa".parse().expect("a key")
}

/// Loses the answer to the first write of each of these.
fn losing(parts: &'static [&'static str]) -> impl Fn(&Request) -> Act + Send + Sync {
    let met: Vec<AtomicUsize> = parts.iter().map(|_| AtomicUsize::new(0)).collect();
    move |request| {
        let hit = parts.iter().position(|part| request.target.contains(part));
        match hit.filter(|_| request.method == "PUT") {
            Some(i) if met[i].fetch_add(1, Ordering::SeqCst) == 0 => Act::Lose,
            _ => Act::Pass,
        }
    }
}

/// CLD-S3-1, K62: the write landed and its answer is lost: success, once.
#[test]
fn cld_s3_1_a_lost_answer_is_success() {
    run(async |world| {
        let parts = &[
            "workspace-objects",
            "snapshots",
            "index.json",
            "locks/prune",
            "head.json",
            "events/",
        ];
        let place = world.through(losing(parts));
        let store = stack(s3::raw(&place, world.options()).await);
        let object = noise(1, 300_000);
        store_all(&*store, std::slice::from_ref(&object)).await;
        let chain = Chain::Workspace(workspace());
        let snapshot = DocKey::Snapshot(chain.clone(), "00000000000000aa".parse().expect("an id"));
        put(&*store, &snapshot, "{\"a\":1}", Expect::Absent).await.expect("created");
        let refs = DocKey::Refs(chain);
        let first = put(&*store, &refs, "{\"cas_version\":1}", Expect::Absent).await.expect("lost");
        put(&*store, &refs, "{\"cas_version\":2}", Expect::Version(first)).await.expect("swapped");
        let run = backtrail_tests::suite::make_run(&*store, "r").await;
        let event = vec![Bytes::from("{\"n\":1}")];
        assert_eq!(store.append_events(&run, event, None).await.expect("appended"), 0);
        let guard =
            store.lock(exclusive(LockName::Prune, Duration::ZERO)).await.expect("ours all along");
        guard.check().expect("held");
        let other = world.open().await;
        refused(other.lock(exclusive(LockName::Prune, Duration::ZERO)).await, Kind::Busy);
        guard.release().await.expect("freed");
        let keys = world.bucket().list("");
        let count = |part: &str| keys.iter().filter(|k| k.contains(part)).count();
        assert_eq!((count("workspace-objects"), count("snapshots"), count("events/")), (1, 1, 1));
        assert_eq!(other.get_object(&object.digest()).await.expect("reads"), object.bytes());
        other.lock(exclusive(LockName::Prune, Duration::ZERO)).await.expect("free");
    });
}

fn patient(
    world: &crate::world::World,
    place: backtrail_backends::s3::S3Options,
) -> impl Future<Output = Arc<dyn Store>> {
    let options = world.options();
    async move {
        let policy = RetryPolicy {
            budget: Duration::from_secs(40),
            ..RetryPolicy::new(Arc::new(RandomIds))
        };
        let store: Arc<dyn Store> = s3::raw(&place, options).await;
        Arc::new(Retry::new(store, policy)) as Arc<dyn Store>
    }
}

/// CLD-S3-3, K64: a stall costs one attempt on one connection, a slow link is no stall,
/// and when all attempts stall the error says how many and how long.
#[test]
fn cld_s3_3_stalls_and_slow_links() {
    run(async |world| {
        let upload = |request: &Request| {
            request.method == "PUT" && request.target.contains("workspace-objects")
        };
        let first = AtomicUsize::new(0);
        let once = world.through(move |request| match upload(request) {
            true if first.fetch_add(1, Ordering::SeqCst) == 0 => {
                Act::Stall(Duration::from_secs(60))
            }
            _ => Act::Pass,
        });
        let slow = world.through(move |request| match upload(request) {
            true => Act::Slow(100_000),
            false => Act::Pass,
        });
        let never = world.through(move |request| match upload(request) {
            true => Act::Stall(Duration::from_secs(600)),
            false => Act::Pass,
        });
        let (once, slow, never) = (
            patient(&world, once).await,
            patient(&world, slow).await,
            patient(&world, never).await,
        );
        let one = async |store: &dyn Store, seed: u64| {
            let begun = Instant::now();
            let object = noise(seed, 400_000);
            let out = store.put_objects(vec![object], PutObjects::Rewrite).await;
            (out, begun.elapsed())
        };
        let (a, b, c) =
            futures::future::join3(one(&*once, 1), one(&*slow, 2), one(&*never, 3)).await;
        for (out, time) in [a, b] {
            assert!(matches!(out.expect("puts")[..], [PutOutcome::Stored { .. }]));
            assert!(time < Duration::from_secs(40), "{time:?}");
        }
        let (out, time) = c;
        assert!(time < Duration::from_secs(70), "{time:?}");
        let e = match out {
            Err(e) => e,
            Ok(mut out) => match out.pop() {
                Some(PutOutcome::Failed(e)) => e,
                other => panic!("{other:?}"),
            },
        };
        for part in ["attempts in ", "no answer within"] {
            assert!(e.message().contains(part), "{part}: {e}");
        }
    });
}

/// CLD-S3-12: what the server asks for is done: a pause, and fewer requests for a while.
#[test]
fn cld_s3_12_a_server_that_is_overloaded() {
    run(async |world| {
        let told = AtomicUsize::new(0);
        let place = world.through(move |request| {
            let upload = request.method == "PUT" && request.target.contains("workspace-objects");
            match upload && told.fetch_add(1, Ordering::SeqCst) == 0 {
                true => {
                    let body = "<Error><Code>SlowDown</Code></Error>";
                    Act::Answer(Answer::new(503, body).with("retry-after", "2"))
                }
                false => Act::Pass,
            }
        });
        let place = backtrail_backends::s3::S3Options { packs: false, ..place };
        let raw = s3::raw(&place, world.options()).await;
        let store = stack(raw.clone());
        assert_eq!(raw.concurrency(), 16);
        let begun = Instant::now();
        store_all(&*store, &[noise(1, 100)]).await;
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(raw.concurrency(), 8);
        for round in 0..10 {
            let objects: Vec<_> = (0..50).map(|i| noise(100 + 50 * round + i, 100)).collect();
            store_all(&*store, &objects).await;
        }
        assert!(raw.concurrency() > 12, "{}", raw.concurrency());
    });
}
