//! Whose keys are whose.

use std::time::Duration;

use backtrail_backends::open::{OpenOptions, open};
use backtrail_backends::s3::{S3Options, S3Store};
use backtrail_core::error::Kind;
use backtrail_core::store::{LockName, Object, Store};
use backtrail_tests::suite::{exclusive, noise, refused, s3, store_all};
use bytes::Bytes;

use crate::world::{World, run};

fn url(place: &S3Options) -> String {
    let endpoint = place.endpoint.clone().expect("an endpoint");
    format!("{}?endpoint={endpoint}&allow_http=true", place.url())
}

fn marker() -> Bytes {
    Bytes::from("{\"format_version\":1,\"store_id\":\"test\",\"kind\":\"s3\"}")
}

async fn at(world: &World, prefix: &str) -> std::sync::Arc<S3Store> {
    let prefix = format!("{}/{prefix}", world.place.prefix);
    let leftovers = Duration::ZERO;
    s3::raw(&S3Options { leftovers, ..world.place.at(prefix) }, world.options()).await
}

/// CLD-S3-5, K65: deletion in one store touches no key of another, of whatever name; a
/// store at the root of a bucket deletes nothing beside keys that it did not write.
#[test]
fn cld_s3_5_only_own_keys_are_touched() {
    run(async |world| {
        let objects: Vec<Object> = (0..40).map(|i| noise(i, 600)).collect();
        let names = ["team", "team2", "team/tenants/other"];
        let mut stores = Vec::new();
        for name in names {
            let store = at(&world, name).await;
            store_all(&*store, &objects).await;
            stores.push(store);
        }
        let others = || {
            let keys = world.bucket().list("").into_iter();
            keys.filter(|k| k.starts_with("team2/") || k.contains("/tenants/")).collect::<Vec<_>>()
        };
        let before = others();
        let digests: Vec<_> = objects.iter().map(Object::digest).collect();
        stores[0].delete_objects(&digests).await.expect("deletes");
        stores[0].maintain().await.expect("maintains");
        assert_eq!(others(), before);
        refused(stores[0].get_object(&digests[0]).await, Kind::NotFound);
        for store in &stores[1..] {
            for object in &objects {
                assert_eq!(
                    store.get_object(&object.digest()).await.expect("there"),
                    object.bytes()
                );
            }
        }
        let root = S3Store::new(world.place.at(""), world.options()).expect("a client");
        let e = refused(root.delete_objects(&digests).await, Kind::Refused);
        assert_eq!(e.code(), "foreign-keys");
        refused(root.maintain().await, Kind::Refused);
        let prune = exclusive(LockName::Prune, Duration::ZERO);
        refused(root.lock(prune).await, Kind::Refused);
        assert_eq!(others(), before);
    });
}

/// CLD-S3-15: a prefix without a marker is not found, and nothing is created.
#[test]
fn cld_s3_15_a_mistyped_prefix_is_not_found() {
    run(async |world| {
        let opened = open(&url(&world.place), OpenOptions::default()).await;
        let Err(e) = opened else { panic!("opened a store that is not there") };
        assert_eq!(e.kind(), Kind::NotFound);
        assert!(e.hint().is_some_and(|h| h.contains("store init s3://")), "{e:?}");
        assert!(world.bucket().list("").is_empty());
    });
}

/// CLD-S3-16: no store inside another or among other things; a second init completes
/// the first.
#[test]
fn cld_s3_16_init_refuses_what_is_not_free() {
    run(async |world| {
        let new = |prefix: &str| {
            let prefix = format!("{}/{prefix}", world.place.prefix);
            S3Store::new(world.place.at(prefix), world.options()).expect("a client")
        };
        let outer = new("outer");
        assert_eq!(outer.init(marker()).await.expect("made"), marker());
        let again = Bytes::from("{\"format_version\":1,\"store_id\":\"another\"}");
        assert_eq!(outer.init(again).await.expect("there"), marker(), "the first marker stays");
        for inner in ["outer/inner", "outer/a/b"] {
            let e = refused(new(inner).init(marker()).await, Kind::Refused);
            assert_eq!(e.code(), "nested-store", "{inner}");
        }
        new("outer/tenants/t").init(marker()).await.expect("a tenant is no other store");
        world.bucket().put("photos/cat.jpg", b"meow");
        let e = refused(new("photos").init(marker()).await, Kind::Refused);
        assert_eq!(e.code(), "not-a-store");
        // Stopped before the marker, a store has nothing or only what is ours.
        world.bucket().put("half/probe/x/y", b"left");
        new("half").init(marker()).await.expect("completes");
    });
}
