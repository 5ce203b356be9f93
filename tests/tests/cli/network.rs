//! Network stores from the command line: making them, pairs, what is never printed.

use std::collections::BTreeMap;
use std::time::Duration;

use backtrail_backends::open::{OpenOptions, open};
use backtrail_backends::s3::S3Options;
use backtrail_core::store::{DocKey, Listed, ListedObject, Prefix};
use backtrail_tests::cli::{Sandbox, assert_same_tree};
use backtrail_tests::suite::mongo::Place;
use backtrail_tests::suite::s3;
use futures::TryStreamExt;
use mongodb::bson::Document;

use crate::sandbox;

/// A sandbox whose store lies in a database of its own; `None` without a server.
fn on_mongo() -> Option<(Sandbox, Place)> {
    let place = Place::fresh()?;
    let mut s = sandbox();
    s.env("BACKTRAIL_STORE", &place.url);
    Some((s, place))
}

/// Gives a sandbox the bucket's credentials, as a person's shell would.
fn with_bucket(s: &mut Sandbox) -> Option<S3Options> {
    let place = s3::fresh()?;
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] {
        if let Some(value) = std::env::var_os(name) {
            s.env(name, value);
        }
    }
    Some(place)
}

fn tables(place: &Place) -> Vec<String> {
    place.run(|db| async move { db.list_collection_names().await.expect("lists") })
}

fn documents(place: &Place, table: &'static str) -> usize {
    let rows = place.run(|db| async move {
        let rows = db.collection::<Document>(table).find(Document::new()).await.expect("finds");
        rows.try_collect::<Vec<_>>().await.expect("reads")
    });
    rows.len()
}

#[test]
fn a_network_store_is_made_by_init_alone() {
    let Some((s, place)) = on_mongo() else { return };
    s.write("a.txt", "hello\n");
    let run = s.run(["capture", "--json"]).expect(6);
    assert_eq!(run.error_code(), "no-store");
    let line = format!("backtrail store init {}", place.url);
    assert!(run.json()["error"]["hint"].as_str().is_some_and(|h| h.contains(&line)), "{run}");
    assert!(tables(&place).is_empty(), "nothing was made in passing");
    let made = s.ok(["store", "init"]);
    let again = s.ok(["store", "init"]);
    assert_eq!(made, again, "it may be repeated");
    let info = s.ok(["store", "info", "--count"]);
    assert_eq!(info["store_id"], made["stores"][0]["store_id"]);
    assert_eq!(
        (info["kind"].as_str(), info["format_version"].as_u64()),
        (Some("mongodb"), Some(1))
    );
    assert!(info["skew_ms"].as_i64().is_some_and(|ms| ms.abs() < 60_000), "{info}");
}

#[test]
fn a_workspace_is_put_back_from_mongodb() {
    let Some((s, _place)) = on_mongo() else { return };
    s.ok(["store", "init"]);
    round_trip(&s);
}

#[test]
fn a_workspace_is_put_back_from_a_pair() {
    let Some((mut s, _place)) = on_mongo() else { return };
    let Some(bucket) = with_bucket(&mut s) else { return };
    s.env("BACKTRAIL_OBJECTS", s3::url(&bucket));
    let made = s.ok(["store", "init"]);
    assert_eq!(made["stores"].as_array().map(Vec::len), Some(2), "{made}");
    round_trip(&s);
    assert_eq!(documents(&_place, "objects"), 0, "objects lie in the bucket");
}

fn round_trip(s: &Sandbox) {
    s.write("a.txt", "hello\n".repeat(1_000));
    s.write("dir/b.bin", vec![7; 3_000_000]);
    s.write("dir/c", "");
    s.capture();
    let before = s.tree();
    assert_eq!(s.ok(["capture"])["created"], false, "an unchanged capture adds none");
    s.write("a.txt", "bye\n");
    s.remove("dir/b.bin");
    s.write("new", "x");
    let after = s.tree();
    s.ok(["restore", "latest", "--yes"]);
    assert_same_tree(&s.tree(), &before);
    s.ok(["undo", "--yes"]);
    assert_same_tree(&s.tree(), &after);
    s.ok(["verify", "--deep"]);
    s.ok(["prune", "--yes", "--keep", "1", "--instant"]);
    s.ok(["verify", "--deep"]);
    let ran = s.run(["run", "--", "sh", "-c", "echo done >> a.txt; echo said"]).expect(0);
    assert!(ran.out().contains("said"), "{ran}");
    assert!(s.run(["logs", "latest"]).expect(0).out().contains("said"));
    s.ok(["rewind", "--yes"]);
    assert_same_tree(&s.tree(), &after);
}

/// Objects of another pair: refused, nothing touched.
#[test]
fn cld_cs1_objects_of_another_pair() {
    let Some((mut s, _first)) = on_mongo() else { return };
    let Some(bucket) = with_bucket(&mut s) else { return };
    let objects = s3::url(&bucket);
    s.env("BACKTRAIL_OBJECTS", &objects);
    s.write("a.txt", "hello\n");
    s.ok(["store", "init"]);
    s.capture();
    let hand = s3::Bucket::new(&bucket);
    let keys = hand.list("");

    let second = Place::fresh().expect("there was a first");
    s.env("BACKTRAIL_STORE", &second.url);
    let init = s.run(["store", "init", "--json"]).expect(4);
    assert_eq!(init.error_code(), "other-pair");
    for args in [&["capture", "--json"][..], &["prune", "--yes", "--instant", "--json"]] {
        let run = s.run(args).expect(4);
        assert_eq!(run.error_code(), "other-pair");
    }
    // Alone it is no store: it has no documents to mark from.
    s.env_remove("BACKTRAIL_OBJECTS");
    let run = s.run(["--store", &objects, "prune", "--yes", "--instant", "--json"]).expect(4);
    assert_eq!(run.error_code(), "objects-half");
    assert_eq!(hand.list(""), keys, "nothing was touched");
}

/// The objects half is down: the error names it, and no document is written.
#[test]
fn cld_cs2_the_objects_half_is_down() {
    let Some((mut s, place)) = on_mongo() else { return };
    let Some(bucket) = with_bucket(&mut s) else { return };
    s.env("BACKTRAIL_OBJECTS", s3::url(&bucket));
    s.write("a.txt", "hello\n");
    s.ok(["store", "init"]);
    let down = S3Options { endpoint: Some("http://127.0.0.1:9".into()), ..bucket };
    s.env("BACKTRAIL_OBJECTS", s3::url(&down));
    s.env("BACKTRAIL_STORE_ATTEMPTS", "2");
    s.env("BACKTRAIL_STORE_BUDGET", "5s");
    let run = s.run(["capture", "--json"]).expect(8);
    let message = run.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("objects store"), "{run}");
    assert_eq!((documents(&place, "snapshots"), documents(&place, "refs")), (0, 0));
}

#[test]
fn a_store_url_is_read_strictly_and_shown_without_secrets() {
    let Some((mut s, place)) = on_mongo() else { return };
    let (scheme, rest) = place.url.split_once("://").expect("a URL");
    let secret = "s3cr%21t-pass";
    s.env("BACKTRAIL_STORE", format!("{scheme}://ann:{secret}@{rest}"));
    s.env("BACKTRAIL_MONGO_WAIT", "3s");
    for args in
        [&["capture"][..], &["capture", "--json"], &["store", "info"], &["config"], &["doctor"]]
    {
        let run = s.run(args);
        let all = format!("{}{}", run.out(), run.stderr);
        for hidden in [secret, "s3cr!t-pass", "ann:"] {
            assert!(!all.contains(hidden), "{run}");
        }
    }
    let run = s.run(["capture", "--json"]).expect(8);
    assert_eq!(run.error_code(), "denied");
    s.env("BACKTRAIL_STORE", format!("{}&retires=3", place.url));
    let run = s.run(["capture", "--json"]).expect(2);
    assert!(run.out().contains("retires"), "{run}");
    for url in ["mongodb+srv://host/db", "mongodb://", "ftp://host/x"] {
        s.env("BACKTRAIL_STORE", url);
        s.run(["capture", "--json"]).expect(2);
    }
    s.env_remove("BACKTRAIL_STORE");
    let config = s.home().join(".config/backtrail");
    std::fs::create_dir_all(&config).expect("makes");
    for key in ["store", "objects"] {
        let text = format!("{key} = \"mongodb://ann:secret@host/db\"\n");
        std::fs::write(config.join("config.toml"), text).expect("writes");
        let run = s.run(["capture", "--json"]).expect(2);
        assert!(!run.out().contains("ann:secret"), "{run}");
    }
}

/// Everything a store holds, its marker left out: keys with bodies, events, logs, objects.
fn contents(url: &str) -> BTreeMap<String, Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = open(url, OpenOptions::default()).await.expect("opens");
        let mut out = BTreeMap::new();
        let rows: Vec<Listed> = store.list(&Prefix::All).try_collect().await.expect("lists");
        for row in rows {
            let Listed::Doc { key, .. } = row else { panic!("{row:?}") };
            if key == DocKey::Marker {
                continue;
            }
            let body = store.get(&key).await.expect("reads").body;
            out.insert(key.to_string(), body.to_vec());
            let DocKey::Run(run) = key else { continue };
            let events: Vec<_> = store.read_events(&run, 0).try_collect().await.expect("reads");
            for event in events {
                out.insert(format!("{run} {}", event.seq), event.body.to_vec());
            }
            let log = store.read_log(&run, 0, 0).await.expect("reads");
            out.insert(format!("{run} log"), format!("{log:?}").into_bytes());
        }
        let mut rows = store.list_objects();
        while let Some(row) = rows.try_next().await.expect("lists") {
            if let ListedObject::Object { digest, .. } = row {
                out.insert(format!("object {digest}"), Vec::new());
            }
        }
        out
    })
}

/// File → S3 → MongoDB → file: all of it, byte for byte; killed and repeated, the rest.
#[test]
fn cld_cs3_a_store_is_copied() {
    let Some((mut s, place)) = on_mongo() else { return };
    let Some(bucket) = with_bucket(&mut s) else { return };
    let first = s.store().display().to_string();
    s.env("BACKTRAIL_STORE", &first);
    for n in 0..300 {
        s.write(format!("dir/{n}"), format!("{n}\n").repeat(300));
    }
    s.capture();
    s.ok(["label", "kept", "latest"]);
    s.write("big", vec![3; 9_000_000]);
    s.capture();
    s.run(["run", "--", "sh", "-c", "echo one; echo more >> dir/1; echo two"]).expect(0);
    let whole = contents(&first);

    let (s3, last) = (s3::url(&bucket), s.top().join("last").display().to_string());
    let (first, s3, last) = (first.as_str(), s3.as_str(), last.as_str());
    let mongo = place.url.as_str();
    s.ok(["--store", s3, "store", "init"]);
    s.ok(["--store", mongo, "store", "init"]);
    let dry = s.ok(["store", "copy", first, s3, "--dry-run"]);
    assert!(dry["objects"].as_u64() > Some(300), "{dry}");
    let mut killed = s.spawn(["store", "copy", first, s3]);
    std::thread::sleep(Duration::from_millis(150));
    killed.kill().expect("kills");
    killed.wait().expect("ends");
    for (from, to) in [(first, s3), (s3, mongo), (mongo, last)] {
        let done = s.ok(["store", "copy", from, to, "--verify"]);
        assert_eq!(done["differing"].as_array().map(Vec::len), Some(0), "{done}");
        assert!(contents(to) == whole, "{to} differs");
        let again = s.ok(["store", "copy", from, to]);
        let sent = ["objects", "documents", "events", "log_bytes"].map(|f| again[f].as_u64());
        assert_eq!(sent, [Some(0); 4], "nothing is missing: {again}");
    }
    s.env("BACKTRAIL_STORE", last);
    s.remove("dir/7");
    s.ok(["restore", "kept", "--yes"]);
    assert!(s.path("dir/7").exists() && !s.path("big").exists());

    // What has gone on there is not overwritten.
    let run = s.run(["store", "copy", first, last, "--json"]).expect(4);
    assert!(!run.json()["differing"].as_array().expect("a list").is_empty(), "{run}");

    s.env("BACKTRAIL_STORE", first);
    let mut running = s.spawn(["run", "--", "sleep", "20"]);
    let started = || contents(first).keys().filter(|k| k.ends_with("/run.json")).count() > 1;
    while !started() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let run = s.run(["store", "copy", first, s3, "--json"]);
    assert!(run.out().contains("it is running"), "{run}");
    assert!([3, 4].contains(&run.code), "{run}");
    running.kill().expect("kills");
    running.wait().expect("ends");
}
