//! Servers that bend the rules, and listings that are not whole.

use std::sync::atomic::{AtomicUsize, Ordering};

use backtrail_core::error::Kind;
use backtrail_core::ids::{Chain, WorkspaceKey};
use backtrail_core::store::{DeleteOutcome, DocKey, Expect, Object, Prefix, PutObjects, Store};
use backtrail_tests::proxy::{Act, Answer, Request};
use backtrail_tests::suite::{noise, put, refused, s3, store_all};
use futures::{StreamExt, TryStreamExt};

use crate::world::{World, run, stack};

type Plan = fn(&Request) -> Act;

fn done() -> Answer {
    Answer::new(200, "").with("etag", "\"00000000000000000000000000000000\"")
}

/// CLD-S3-2, K63: the check that fails is named, documents are refused, objects are not.
#[test]
fn cld_s3_2_servers_that_bend_conditions() {
    let cases: [(&str, Plan); 5] = [
        ("create of an existing key", |request| match request.is_conditional() {
            true => Act::Answer(done()),
            false => Act::Pass,
        }),
        ("create of an existing key", |request| match request.is_conditional() {
            true => Act::Instead(412, Answer::new(304, "")),
            false => Act::Pass,
        }),
        ("create", |request| match request.is_conditional() {
            true => Act::Answer(Answer::new(501, "<Error><Code>NotImplemented</Code></Error>")),
            false => Act::Pass,
        }),
        ("update of an absent key", |request| {
            match request.headers.contains_key("if-match") && request.target.contains("absent") {
                true => Act::Answer(done()),
                false => Act::Pass,
            }
        }),
        ("concurrent creates of one key", |request| match request.target.contains("race-") {
            true if request.method == "PUT" => Act::Instead(412, done()),
            _ => Act::Pass,
        }),
    ];
    for (failing, plan) in cases {
        run(async |world: World| {
            let place = world.through(plan);
            let store = s3::raw(&place, world.options()).await;
            let verdict = store.probe().await.expect("the server could be asked");
            assert!(!verdict.documents, "{failing}");
            let failed = verdict.failed.clone().expect("a name");
            assert!(failed.starts_with(failing), "{failed}, not {failing}");
            let e = refused(verdict.require_documents(&place.url()), Kind::Denied);
            assert!(e.message().contains(failing), "{e}");
            assert!(e.hint().is_some_and(|h| h.contains("--objects")), "{e:?}");
            let objects: Vec<Object> = (0..20).map(|i| noise(i, 900)).collect();
            store_all(&*store, &objects).await;
            let other = world.raw().await;
            for object in &objects {
                let got = other.get_object(&object.digest()).await;
                assert_eq!(got.expect("objects work"), object.bytes());
            }
        });
    }
}

/// The server of the tests passes every check, and the probe leaves nothing.
#[test]
fn the_server_of_the_tests_holds_documents() {
    run(async |world| {
        let verdict = world.raw().await.probe().await.expect("asked");
        assert_eq!((verdict.documents, verdict.failed), (true, None));
        assert!(world.bucket().list("probe/").is_empty());
    });
}

fn is_second_page(request: &Request) -> bool {
    let listing = request.target.contains("list-type=2");
    request.method == "GET" && listing && request.target.contains("continuation-token")
}

fn cut_second(request: &Request) -> Act {
    let half = Answer::new(200, "<ListBucketResult><Contents><Key>x");
    if is_second_page(request) { Act::Instead(200, half) } else { Act::Pass }
}

fn refuse_second(request: &Request) -> Act {
    if is_second_page(request) { Act::Answer(Answer::new(500, "")) } else { Act::Pass }
}

/// The first key that was listed comes again on the second page.
fn repeat_in_second(request: &Request) -> Act {
    if !is_second_page(request) {
        return Act::Pass;
    }
    let start = request.target.split("prefix=").nth(1).unwrap_or_default();
    let prefix = start.split('&').next().unwrap_or_default().replace("%2F", "/");
    let page = format!(
        "<ListBucketResult><Contents><Key>{prefix}0000000000000000.json</Key><Size>7</Size>\
         <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"x\"</ETag>\
         </Contents></ListBucketResult>"
    );
    Act::Answer(Answer::new(200, page).with("content-type", "application/xml"))
}

const SNAPSHOTS: usize = 2_100;

/// CLD-S3-4, CLD-ST6, K53: 2,100 keys are three pages, all seen and sorted; a page that
/// is cut, repeated or refused fails the listing.
#[test]
fn cld_s3_4_listings_are_whole_or_fail() {
    run(async |world| {
        let store = world.raw().await;
        let key: WorkspaceKey = "00112233445566aa".parse().expect("a key");
        let chain = Chain::Workspace(key);
        let puts = (0..SNAPSHOTS).map(|n| {
            let id = format!("{n:016x}").parse().expect("an id");
            let (store, key) = (store.clone(), DocKey::Snapshot(chain.clone(), id));
            async move { put(&*store, &key, "{\"n\":1}", Expect::Absent).await.map(drop) }
        });
        let puts: Vec<_> = futures::stream::iter(puts).buffer_unordered(16).collect().await;
        assert!(puts.iter().all(Result::is_ok));
        let prefix = Prefix::Snapshots(chain);
        let rows: Vec<_> = store.list(&prefix).try_collect().await.expect("lists");
        assert_eq!(rows.len(), SNAPSHOTS);

        let plans: [(&str, Plan); 3] =
            [("cut", cut_second), ("refused", refuse_second), ("repeated", repeat_in_second)];
        for (name, plan) in plans {
            let through = s3::raw(&world.through(plan), world.options()).await;
            let rows: Result<Vec<_>, _> = through.list(&prefix).try_collect().await;
            let e = rows.expect_err(name);
            assert!(matches!(e.kind(), Kind::Unavailable { .. }), "{name}: {e:?}");
        }
    });
}

/// CLD-S3-11: errors in a batch deletion that was answered 200 are those of their keys.
#[test]
fn cld_s3_11_a_batch_deletion_fails_in_part() {
    run(async |world| {
        let place = world.through(|request| {
            if request.method != "POST" {
                return Act::Pass;
            }
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let keys = body.split("<Key>").skip(1).filter_map(|k| k.split("</Key>").next());
            let each = keys.enumerate().map(|(i, key)| match i % 20 {
                7 => format!(
                    "<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
                ),
                _ => format!("<Deleted><Key>{key}</Key></Deleted>"),
            });
            let page = format!("<DeleteResult>{}</DeleteResult>", each.collect::<String>());
            Act::Answer(Answer::new(200, page).with("content-type", "application/xml"))
        });
        let place = backtrail_backends::s3::S3Options { packs: false, ..place };
        let store = s3::raw(&place, world.options()).await;
        let objects: Vec<Object> = (0..60).map(|i| noise(i, 50)).collect();
        store_all(&*store, &objects).await;
        let digests: Vec<_> = objects.iter().map(Object::digest).collect();
        let out = store.delete_objects(&digests).await.expect("answers");
        let failed = out.iter().filter(|o| matches!(o, DeleteOutcome::Failed(_))).count();
        let deleted = out.iter().filter(|o| matches!(o, DeleteOutcome::Deleted)).count();
        assert_eq!((failed, deleted), (3, 57));
    });
}

/// Objects of a server that knows no batch deletion are deleted one by one.
#[test]
fn a_server_without_batch_deletion() {
    let asked = AtomicUsize::new(0);
    run(async |world| {
        let place = world.through(move |request| match request.method == "POST" {
            true => {
                asked.fetch_add(1, Ordering::SeqCst);
                Act::Answer(Answer::new(501, "<Error><Code>NotImplemented</Code></Error>"))
            }
            false => Act::Pass,
        });
        let store = stack(s3::raw(&place, world.options()).await);
        let object = noise(3, 70);
        store.put_objects(vec![object.clone()], PutObjects::Rewrite).await.expect("puts");
        let out = store.delete_objects(&[object.digest()]).await.expect("answers");
        assert!(matches!(out[..], [DeleteOutcome::Deleted]), "{out:?}");
        refused(world.open().await.get_object(&object.digest()).await, Kind::NotFound);
    });
}
