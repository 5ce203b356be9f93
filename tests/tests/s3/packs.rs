//! Packs: what is stored once, what a crash leaves, what damage spares.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backtrail_backends::s3::S3Store;
use backtrail_core::clock::Faults;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::store::{LockName, Object, PutObjects, Store};
use backtrail_tests::suite::{noise, refused, s3, shared, store_all, text};

use crate::world::{World, run};

fn many(seed: u64, n: u64) -> Vec<Object> {
    (0..n).map(|i| if i % 2 == 0 { noise(seed + i, 700) } else { text(seed + i, 3_000) }).collect()
}

async fn all_there(store: &dyn Store, objects: &[Object]) {
    let digests: Vec<_> = objects.iter().map(Object::digest).collect();
    let got = store.get_objects(&digests).await.expect("answers");
    for (object, got) in objects.iter().zip(got) {
        assert_eq!(got.expect("is there"), object.bytes(), "{}", object.digest());
    }
}

fn packs_of(world: &World) -> Vec<String> {
    world.bucket().list("packs/")
}

/// CLD-S3-6: many small objects are few requests; the same again uploads nothing, from
/// a fresh handle either; three new ones go loose.
#[test]
fn cld_s3_6_small_objects_are_packed() {
    run(async |world| {
        let objects = many(10_000, 14_000);
        let store = world.raw().await;
        let before = store.requests();
        for batch in objects.chunks(256) {
            store.put_objects(batch.to_vec(), PutObjects::Check).await.expect("puts");
        }
        store.flush().await.expect("flushes");
        let used = store.requests() - before;
        assert!(used.total() <= 20, "{used:?}");
        let packs = packs_of(&world);
        assert!((1..=4).contains(&packs.len()), "{packs:?}");
        assert!(world.bucket().list("workspace-objects/").is_empty());
        for handle in [store.clone(), world.raw().await] {
            let guard = handle.lock(shared(LockName::Objects, Duration::ZERO)).await.expect("free");
            let before = handle.requests();
            for batch in objects.chunks(256) {
                handle.put_objects(batch.to_vec(), PutObjects::Check).await.expect("puts");
            }
            handle.flush().await.expect("flushes");
            let used = handle.requests() - before;
            assert_eq!(used.put, 0, "{used:?}");
            guard.release().await.expect("frees");
        }
        let before = store.requests();
        let changed = many(90_000, 3);
        store_all(&*store, &changed).await;
        assert_eq!((store.requests() - before).put, 3);
        assert_eq!((packs_of(&world), world.bucket().list("workspace-objects/").len()), (packs, 3));
        // A restore into nothing: about one request a pack.
        let reader = world.raw().await;
        let before = reader.requests();
        for batch in objects.chunks(64) {
            all_there(&*reader, batch).await;
        }
        let used = reader.requests() - before;
        assert!(used.total() <= 12, "{used:?}");
    });
}

/// Fails at the nth arrival at one point.
struct FailAt {
    point: &'static str,
    left: AtomicU64,
}

impl Faults for FailAt {
    fn reach(&self, point: &str) -> Result<()> {
        if point == self.point && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            return Err(Error::unavailable(format!("stopped at {point}")));
        }
        Ok(())
    }
}

async fn failing(world: &World, point: &'static str) -> Arc<S3Store> {
    let faults = Arc::new(FailAt { point, left: AtomicU64::new(1) });
    let options = backtrail_backends::open::OpenOptions { faults, ..world.options() };
    let place =
        backtrail_backends::s3::S3Options { leftovers: Duration::ZERO, ..world.place.clone() };
    s3::raw(&place, options).await
}

/// CLD-S3-7: stopped at each arrow of a pack write, an index merge and a repack, with
/// nothing cleaned up: what was flushed is all there, and the next maintenance leaves
/// no orphan.
#[test]
fn cld_s3_7_stopped_at_each_arrow() {
    let points = [
        "s3.pack.put",
        "s3.index.merge",
        "s3.index.merged",
        "s3.repack.put",
        "s3.repack.index",
        "s3.repack.delete",
        "s3.pack.delete",
    ];
    for point in points {
        run(async |world| {
            let kept = many(1_000, 20);
            let gone = many(2_000, 20);
            let dead = many(3_000, 20);
            let store = world.raw().await;
            store_all(&*store, &[kept.clone(), gone.clone()].concat()).await;
            store_all(&*store, &dead).await;
            let stopped = failing(&world, point).await;
            if point == "s3.pack.put" {
                let lost = many(4_000, 20);
                stopped.put_objects(lost, PutObjects::Check).await.expect("puts");
                stopped.flush().await.expect_err("stopped");
            } else {
                let keep: HashSet<_> = kept.iter().map(Object::digest).collect();
                let all = [kept.clone(), gone.clone(), dead.clone()].concat();
                let digests: Vec<_> =
                    all.iter().map(Object::digest).filter(|d| !keep.contains(d)).collect();
                stopped.delete_objects(&digests).await.expect("gives them up");
                stopped.maintain().await.expect_err(point);
            }
            drop(stopped);
            all_there(&*world.raw().await, &kept).await;
            let store = world.aged().await;
            store.maintain().await.expect("maintains");
            all_there(&*world.raw().await, &kept).await;
            if point == "s3.pack.put" {
                all_there(&*world.raw().await, &gone).await;
                assert_eq!(packs_of(&world).len(), 2, "{point}");
            } else {
                assert_eq!(packs_of(&world).len(), 1, "{point}");
                let e = world.raw().await.get_object(&gone[0].digest()).await;
                refused(e, Kind::NotFound);
            }
        });
    }
}

/// CLD-S3-8: without any index file the packs tell what they hold.
#[test]
fn cld_s3_8_a_lost_index_is_made_again() {
    run(async |world| {
        let objects = many(5_000, 3_000);
        store_all(&*world.raw().await, &objects[..1_500]).await;
        store_all(&*world.raw().await, &objects[1_500..]).await;
        let bucket = world.bucket();
        for key in bucket.list("pack-index/") {
            bucket.delete(&key);
        }
        all_there(&*world.raw().await, &objects).await;
        assert_eq!(bucket.list("pack-index/").len(), 1);
    });
}

/// CLD-S3-9: a reader whose index is old finds what a repack moved.
#[test]
fn cld_s3_9_a_reader_with_an_old_index() {
    run(async |world| {
        let objects = many(6_000, 40);
        store_all(&*world.raw().await, &objects).await;
        let reader = world.raw().await;
        all_there(&*reader, &objects[..1]).await;
        let pruner = world.aged().await;
        let gone: Vec<_> = objects[10..].iter().map(Object::digest).collect();
        pruner.delete_objects(&gone).await.expect("gives them up");
        let before = packs_of(&world);
        pruner.maintain().await.expect("repacks");
        assert_ne!(packs_of(&world), before);
        all_there(&*reader, &objects[1..10]).await;
        refused(reader.get_object(&gone[0]).await, Kind::NotFound);
    });
}

/// CLD-S3-10, K58: a flipped byte hurts one object; a repack leaves it; storing the
/// content again heals it.
#[test]
fn cld_s3_10_a_flipped_byte() {
    run(async |world| {
        let objects = many(7_000, 30);
        store_all(&*world.raw().await, &objects).await;
        let bucket = world.bucket();
        let key = packs_of(&world).pop().expect("a pack");
        let mut bytes = bucket.get(&key).expect("a pack").to_vec();
        bytes[8 + 10] ^= 1; // in the first object, which is stored raw
        bucket.put(&key, &bytes);
        let store = world.raw().await;
        let e = refused(store.get_object(&objects[0].digest()).await, Kind::Corrupt);
        assert_eq!(e.details()["digest"], objects[0].digest().hex());
        all_there(&*store, &objects[1..]).await;
        let pruner = world.aged().await;
        let gone: Vec<_> = objects[15..].iter().map(Object::digest).collect();
        pruner.delete_objects(&gone).await.expect("gives them up");
        pruner.maintain().await.expect("repacks");
        let store = world.raw().await;
        all_there(&*store, &objects[1..15]).await;
        refused(store.get_object(&objects[0].digest()).await, Kind::Corrupt);
        store.put_objects(objects[..1].to_vec(), PutObjects::Rewrite).await.expect("puts");
        store.flush().await.expect("flushes");
        all_there(&*world.raw().await, &objects[..15]).await;
        pruner.maintain().await.expect("frees the damaged one");
        assert_eq!(packs_of(&world).len(), 1);
        all_there(&*world.raw().await, &objects[..15]).await;
    });
}

/// CLD-S3-13: the same content in two packs: one of them goes, the other serves.
#[test]
fn cld_s3_13_the_same_content_in_two_packs() {
    run(async |world| {
        let objects = many(8_000, 20);
        let (one, two) = (world.raw().await, world.raw().await);
        one.put_objects(objects.clone(), PutObjects::Check).await.expect("puts");
        two.put_objects(objects.clone(), PutObjects::Check).await.expect("puts");
        one.flush().await.expect("flushes");
        let first = packs_of(&world);
        two.flush().await.expect("flushes");
        let both = packs_of(&world);
        assert_eq!((first.len(), both.len()), (1, 2));
        world.bucket().delete(&first[0]);
        all_there(&*world.raw().await, &objects).await;
        all_there(&*one, &objects).await;
    });
}
