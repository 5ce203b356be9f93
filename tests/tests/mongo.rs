//! What the MongoDB store owes beyond the contract of every store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backtrail_backends::mongo::{InitOptions, Keep};
use backtrail_backends::open::{self, OpenOptions};
use backtrail_core::error::Kind;
use backtrail_core::ids::Chain;
use backtrail_core::store::{
    DocKey, Expect, LockName, LogPart, Object, PutObjects, PutOutcome, Store,
};
use backtrail_tests::suite::mongo::Place;
use backtrail_tests::suite::objects::listed;
use backtrail_tests::suite::{
    SOON, at_once, body, exclusive, logs, make_run, noise, put, refused, store_all,
};
use backtrail_tests::wire::Wire;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use mongodb::bson::{Document, doc};

/// Runs a case on a fresh database, or says that there is no server.
fn on_mongo(case: impl AsyncFn(&Place)) {
    let Some(place) = Place::fresh() else { return };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let case = async { tokio::time::timeout(Duration::from_secs(120), case(&place)).await };
    runtime.block_on(case).expect("the case ends");
}

async fn init(place: &Place, init: InitOptions) {
    open::init(&place.url, OpenOptions::default(), init).await.expect("makes");
}

async fn open(url: &str) -> Arc<dyn Store> {
    open::open(url, OpenOptions::default()).await.expect("opens")
}

async fn fresh(place: &Place) -> Arc<dyn Store> {
    init(place, InitOptions::default()).await;
    open(&place.url).await
}

/// A wire to the server, and the URL of the database through it.
fn wired(place: &Place) -> (Wire, String) {
    let rest = place.url.strip_prefix("mongodb://").expect("a plain URL");
    let (host, rest) = rest.split_once('/').expect("a database");
    let wire = Wire::start(host.parse().expect("an address"));
    let db = rest.split('?').next().unwrap_or_default();
    let url = format!("mongodb://{}/{db}?directConnection=true", wire.address);
    (wire, url)
}

/// An answer that is lost is settled: nothing twice, nothing lost.
#[test]
fn cld_mg2_lost_answers() {
    on_mongo(async |place| {
        init(place, InitOptions::default()).await;
        let (wire, url) = wired(place);
        let store = open(&url).await;
        let run = make_run(&*store, "r").await;
        let object = noise(2, 5_000);
        wire.lose(object.digest().hex());
        store_all(&*store, std::slice::from_ref(&object)).await;
        // The first question was the look, and so the put is lost next.
        wire.lose("$currentDate");
        let more = [noise(3, 5_000)];
        let done = store.put_objects(more.to_vec(), PutObjects::Rewrite).await.expect("puts");
        assert!(matches!(done[..], [PutOutcome::Stored { .. }]), "{done:?}");
        assert!(wire.has_lost());
        assert_eq!(listed(&*store).await.0.len(), 2);

        let key =
            DocKey::Snapshot(Chain::Run(run.clone()), "00112233445566aa".parse().expect("id"));
        wire.lose("snapshots/");
        let text = "{\"seq\":1,\"write_id\":\"a\"}";
        put(&*store, &key, text, Expect::Absent).await.expect("creates");
        assert!(wire.has_lost());
        assert_eq!(body(&*store, &key).await, text);

        for (table, times) in [("heads", 1), ("events", 2), ("run_logs", 3)] {
            wire.lose(table);
            let event = vec![Bytes::from(format!("{{\"n\":{times}}}"))];
            store.append_events(&run, event, None).await.expect("appends");
            store.append_log(&run, None, Bytes::from("line\n"), None).await.expect("appends");
            assert!(wire.has_lost(), "{table}");
            let events = logs::all_events(&*store, &run).await;
            assert_eq!(events.len(), times, "{table}");
            let log = store.read_log(&run, 0, 0).await.expect("reads");
            assert!(matches!(&log[..], [LogPart::Bytes { bytes, .. }] if bytes.len() == 5 * times));
        }
        wire.lose("locks/");
        let guard = store.lock(exclusive(LockName::Prune, SOON)).await.expect("takes");
        guard.check().expect("ours");
    });
}

/// K68: many writers of the same new content on an empty database.
#[test]
fn cld_mg3_equal_content_at_once() {
    on_mongo(async |place| {
        init(place, InitOptions::default()).await;
        let indexes = place.run(|db| async move {
            db.collection::<Document>("runs").list_index_names().await.expect("lists")
        });
        assert_eq!(indexes.len(), 6, "they are there before the first write: {indexes:?}");
        let objects: Arc<Vec<Object>> =
            Arc::new((0..60).map(|i| noise(3_000 + i, 2_000)).collect());
        let url = place.url.clone();
        let write = |i: usize| {
            let (url, objects) = (url.clone(), objects.clone());
            async move {
                let store = open(&url).await;
                store_all(&*store, &objects).await;
                let key = format!("{i:016x}").parse().expect("a key");
                let refs = DocKey::Refs(Chain::Workspace(key));
                put(&*store, &refs, "{}", Expect::Absent).await.expect("creates");
            }
        };
        at_once(16, write).await;
        let store = open(&place.url).await;
        assert_eq!(listed(&*store).await.0.len(), 60);
        for object in &*objects {
            assert_eq!(store.get_object(&object.digest()).await.expect("reads"), object.bytes());
        }
    });
}

#[test]
fn k68_equal_content_at_once() {
    cld_mg3_equal_content_at_once();
}

/// What looks like an expression, a path or a big number is data.
#[test]
fn cld_mg4_data_is_data() {
    on_mongo(async |place| {
        let store = fresh(place).await;
        let run = make_run(&*store, "$run.x").await;
        let text = "{\"$set\":{\"config.path\":\"$workflow\"},\"a.b\":\"$JAVA_HOME/x\",\
                    \"n\":9223372036854775807,\"\":1.50,\"status\":\"$status\",\"pool\":\"$$NOW\"}";
        let refs = DocKey::Refs(Chain::Run(run.clone()));
        put(&*store, &refs, text, Expect::Absent).await.expect("creates");
        assert_eq!(body(&*store, &refs).await, text);
        let record = DocKey::Run(run.clone());
        put(&*store, &record, text, Expect::Any).await.expect("replaces");
        assert_eq!(body(&*store, &record).await, text);
        let row = place.run(|db| async move {
            db.collection::<Document>("runs").find_one(doc! {}).await.expect("finds").expect("one")
        });
        for (field, value) in [("status", "$status"), ("pool", "$$NOW")] {
            assert_eq!(row.get_str(field).expect("text"), value);
        }
        store.append_events(&run, vec![Bytes::from(text)], None).await.expect("appends");
        let events = logs::all_events(&*store, &run).await;
        assert!(events[0].body.ends_with(&text.as_bytes()[1..]), "{events:?}");
        store
            .append_log(&run, None, Bytes::from("$JAVA_HOME \0 \u{fffd}"), None)
            .await
            .expect("log");
        let log = store.read_log(&run, 0, 0).await.expect("reads");
        assert!(matches!(&log[..], [LogPart::Bytes { bytes, .. }] if bytes.starts_with(b"$JAVA")));
    });
}

/// Tenants do not see each other, and a document that says it is another's is corrupt.
/// That a query without the tenant does not compile is a documentation test of `Filter`.
#[test]
fn cld_mg5_tenants_are_apart() {
    on_mongo(async |place| {
        let store = fresh(place).await;
        let of = |tenant: &str| OpenOptions { tenant: tenant.into(), ..OpenOptions::default() };
        let e = open::open(&place.url, of("other")).await.err().expect("a store of its own");
        assert!(e.is_not_found() && e.code() == "no-store", "{e:?}");
        open::init(&place.url, of("other"), InitOptions::default()).await.expect("makes");
        let other = open::open(&place.url, of("other")).await.expect("opens");
        let run = make_run(&*store, "r").await;
        let object = noise(5, 500);
        store_all(&*store, std::slice::from_ref(&object)).await;
        assert_eq!(listed(&*other).await.0.len(), 0);
        refused(other.get(&DocKey::Run(run.clone())).await, Kind::NotFound);
        let key = DocKey::Run(run);
        place.set("runs", &key.to_string(), doc! { "tenant": "other" });
        refused(store.get(&key).await, Kind::Corrupt);
        place.set("objects", &object.digest().hex(), doc! { "tenant": "other" });
        refused(store.get_object(&object.digest()).await, Kind::Corrupt);
        for bad in ["", "-a", "A", "a/b", "a.b", &"x".repeat(64)] {
            let e = open::open(&place.url, of(bad)).await.err().expect("no tenant");
            assert_eq!(e.kind(), Kind::Invalid, "{bad:?}");
        }
    });
}

/// A follower whose connections are cut misses nothing and repeats nothing.
#[test]
fn cld_mg6_followers_outlive_their_stream() {
    on_mongo(async |place| {
        let writer = fresh(place).await;
        let (wire, url) = wired(place);
        let reader = open(&url).await;
        let run = make_run(&*writer, "r").await;
        let mut rows = reader.follow_events(&run, 0);
        let mut log = reader.follow_log(&run, 0);
        let mut seen = Vec::new();
        for n in 0..12_u64 {
            let event = vec![Bytes::from(format!("{{\"n\":{n}}}"))];
            writer.append_events(&run, event, None).await.expect("appends");
            writer.append_log(&run, None, Bytes::from("x"), None).await.expect("appends");
            let sent = Instant::now();
            let row = rows.next().await.expect("goes on").expect("an event");
            if n % 4 != 0 {
                assert!(sent.elapsed() < Duration::from_secs(2), "{:?}", sent.elapsed());
            }
            seen.push(row.seq);
            if n % 4 == 3 {
                wire.cut();
            }
        }
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
        let mut end = 0;
        while end < 12 {
            let part = log.next().await.expect("goes on").expect("a part");
            let LogPart::Bytes { offset, .. } = part else { panic!("{part:?}") };
            assert_eq!(offset, end);
            end = part.end();
        }
        let more = tokio::time::timeout(Duration::from_millis(300), rows.next()).await;
        assert!(more.is_err(), "{more:?}");
    });
}

/// A server that is away when a store is opened is waited for, and no longer than said.
#[test]
fn cld_mg8_a_primary_is_waited_for() {
    on_mongo(async |place| {
        init(place, InitOptions::default()).await;
        let (wire, url) = wired(place);
        wire.hold(true);
        let options =
            |secs| OpenOptions { mongo_wait: Duration::from_secs(secs), ..OpenOptions::default() };
        let e = open::open(&url, options(2)).await.err().expect("nobody answers");
        assert!(matches!(e.kind(), Kind::Unavailable { .. }), "{e:?}");
        assert!(e.message().contains("within 2 s"), "{e}");
        let opening = tokio::spawn(async move { open::open(&url, options(60)).await.map(drop) });
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!opening.is_finished());
        wire.hold(false);
        opening.await.expect("no panic").expect("opens once there is one");
    });
}

/// What a later build made can be read and is not written to.
#[test]
fn cld_mg9_newer_is_read_only() {
    on_mongo(async |place| {
        let store = fresh(place).await;
        let run = make_run(&*store, "r").await;
        let marker = body(&*store, &DocKey::Marker).await;
        let newer = marker.replace("\"format_version\": 1", "\"format_version\": 2");
        assert_ne!(marker, newer);
        place.set("meta", "store.json", doc! { "body": newer });
        let store = open(&place.url).await;
        assert!(body(&*store, &DocKey::Run(run.clone())).await.contains("\"r\""));
        refused(put(&*store, &DocKey::Damage, "{}", Expect::Any).await, Kind::Newer);
        refused(store.put_objects(vec![noise(9, 9)], PutObjects::Check).await, Kind::Newer);
        refused(store.append_events(&run, vec![Bytes::from("{}")], None).await, Kind::Newer);
        refused(store.delete(&DocKey::Run(run), None).await, Kind::Newer);
        let again = open::init(&place.url, OpenOptions::default(), InitOptions::default()).await;
        refused(again, Kind::Newer);
    });
}

/// How long records are kept follows what `init` was told last.
#[test]
fn cld_mg10_records_expire_as_told() {
    on_mongo(async |place| {
        let day = Duration::from_secs(86_400);
        let kept = |table: &'static str| {
            let rows = place.run(|db| async move {
                // A collection that nothing was written to may not be there.
                match db.collection::<Document>(table).list_indexes().await {
                    Ok(rows) => rows.try_collect::<Vec<_>>().await.expect("lists"),
                    Err(_) => Vec::new(),
                }
            });
            rows.into_iter().find_map(|row| row.options?.expire_after)
        };
        let set = |events_ttl, logs_ttl| init(place, InitOptions { events_ttl, logs_ttl });
        set(None, None).await;
        assert_eq!((kept("events"), kept("run_logs")), (None, None));
        set(Some(Keep::For(30 * day)), Some(Keep::For(day))).await;
        assert_eq!((kept("events"), kept("run_logs")), (Some(30 * day), Some(day)));
        set(Some(Keep::For(7 * day)), None).await;
        assert_eq!((kept("events"), kept("run_logs")), (Some(7 * day), Some(day)));
        set(Some(Keep::Forever), Some(Keep::Forever)).await;
        assert_eq!((kept("events"), kept("run_logs")), (None, None));
        let long = InitOptions { events_ttl: Some(Keep::For(4_000 * day)), logs_ttl: None };
        refused(open::init(&place.url, OpenOptions::default(), long).await, Kind::Invalid);
        for table in ["snapshots", "objects", "runs", "refs"] {
            assert_eq!(kept(table), None, "{table}");
        }
    });
}

/// A store that lost an index is read, refuses writes, and is repaired by `init`.
#[test]
fn cld_mg11_a_lost_index_stops_writes() {
    on_mongo(async |place| {
        let store = fresh(place).await;
        put(&*store, &DocKey::Damage, "{}", Expect::Any).await.expect("writes");
        place.run(|db| async move {
            let snapshots = db.collection::<Document>("snapshots");
            snapshots.drop_index("tenant_1_chain_1_seq_1").await.expect("drops");
        });
        let store = open(&place.url).await;
        assert_eq!(body(&*store, &DocKey::Damage).await, "{}");
        let e = refused(put(&*store, &DocKey::Damage, "{}", Expect::Any).await, Kind::Refused);
        assert!(e.message().contains("snapshots.tenant_1_chain_1_seq_1"), "{e}");
        assert!(e.hint().is_some_and(|hint| hint.starts_with("backtrail store init ")), "{e:?}");
        let store = fresh(place).await;
        put(&*store, &DocKey::Damage, "{}", Expect::Any).await.expect("writes again");
    });
}
