//! CLD-L1 to CLD-L7.

use std::time::Duration;

use backtrail_core::error::Kind;
use backtrail_core::ids::RunId;
use backtrail_core::store::{DocKey, EventRecord, Expect, Fence, LockName, LogPart, Store};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::{SOON, Site, at_once, exclusive, handles, make_run, put, refused};

fn event(n: u64) -> Bytes {
    Bytes::from(format!("{{\"type\":\"t\",\"n\":{n}}}"))
}

/// Every event of a run.
pub async fn all_events(store: &dyn Store, run: &RunId) -> Vec<EventRecord> {
    events(store, run, 0).await
}

async fn events(store: &dyn Store, run: &RunId, from: u64) -> Vec<EventRecord> {
    store.read_events(run, from).try_collect().await.expect("reads")
}

fn number_of(record: &EventRecord) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(&record.body).expect("JSON");
    assert_eq!(value["seq"], record.seq);
    value["n"].as_u64().expect("a number")
}

fn bytes(offset: u64, text: &str) -> LogPart {
    LogPart::Bytes { offset, bytes: Bytes::from(text.to_owned()) }
}

/// The next `n` rows of a stream that never ends.
async fn next<T>(
    rows: &mut futures::stream::BoxStream<'_, backtrail_core::error::Result<T>>,
    n: usize,
) -> Vec<T> {
    let rows = rows.take(n).try_collect();
    tokio::time::timeout(SOON, rows).await.expect("comes in time").expect("no error")
}

/// CLD-L1: numbers start at 0, rise, and are never given twice, whoever appends.
pub async fn l1_numbers_rise(site: &Site) {
    let stores = handles(site, site.writers(8)).await;
    let run = make_run(&*stores[0], "r").await;
    assert!(events(&*stores[0], &run, 0).await.is_empty());
    assert_eq!(stores[0].append_events(&run, vec![event(0)], None).await.expect("appends"), 0);
    let append = |i: usize| {
        let (stores, run) = (stores.clone(), run.clone());
        async move {
            let mut firsts = Vec::new();
            for n in 0..25 {
                let event = event(1000 * i as u64 + n);
                firsts
                    .push(stores[i].append_events(&run, vec![event], None).await.expect("appends"));
            }
            assert!(firsts.is_sorted_by(|a, b| a < b), "{firsts:?}");
            firsts
        }
    };
    let mut all: Vec<u64> = at_once(stores.len(), append).await.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 25 * stores.len());
    let seqs: Vec<u64> = events(&*stores[1], &run, 0).await.iter().map(|e| e.seq).collect();
    assert_eq!(seqs.len(), 25 * stores.len() + 1);
    assert!(seqs[0] == 0 && seqs.is_sorted_by(|a, b| a < b));
}

/// CLD-L2: a batch is seen in order; Ok means that another handle sees it.
pub async fn l2_batches_in_order(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let mut next = 0;
    for size in [1, 3, 40, 0, 7] {
        let batch = (next..next + size).map(event).collect();
        store.append_events(&run, batch, None).await.expect("appends");
        next += size;
        let there = events(&*site.open().await, &run, 0).await;
        let numbers: Vec<u64> = there.iter().map(number_of).collect();
        assert_eq!(numbers, (0..next).collect::<Vec<_>>());
    }
    // One bad event, and nothing of the batch is there.
    for bad in ["[]", "{", "{\"seq\":1}", "", "{\"a\":1}\n{\"b\":2}"] {
        let batch = vec![event(77), Bytes::from(bad.to_owned())];
        refused(store.append_events(&run, batch, None).await, Kind::Invalid);
    }
    assert_eq!(events(&*store, &run, 0).await.len() as u64, next);
}

/// CLD-L3: reading from a number is ordered, and keeps what it does not know.
pub async fn l3_unknown_fields_are_kept(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let odd = [
        r#"{"type":"never.seen","$x":{"a.b":1.00},"":null,"n":1}"#,
        "{\n  \"n\": 2,\n  \"big\": 18446744073709551615\n}\n",
        "  { }  ",
        "{\"n\":4,\"text\":\"a\\nb \\u00e9 \u{e9}\"}",
    ];
    let batch = odd.iter().map(|e| Bytes::from((*e).to_owned())).collect();
    store.append_events(&run, batch, None).await.expect("appends");
    let there = events(&*store, &run, 0).await;
    let text = |i: usize| String::from_utf8(there[i].body.to_vec()).expect("text");
    assert_eq!(text(0), r#"{"seq":0,"type":"never.seen","$x":{"a.b":1.00},"":null,"n":1}"#);
    assert!(text(1).contains("18446744073709551615"));
    assert_eq!(text(2), "{\"seq\":2}");
    assert!(text(3).ends_with("\"text\":\"a\\nb \\u00e9 \u{e9}\"}"));
    assert_eq!(events(&*store, &run, 2).await, there[2..]);
    assert_eq!(store.events_end(&run).await.expect("tells"), 4);
    assert!(events(&*store, &run, 4).await.is_empty());
    assert!(events(&*store, &run, u64::MAX).await.is_empty());
    let empty = make_run(&*store, "empty").await;
    assert_eq!(store.events_end(&empty).await.expect("tells"), 0);
    let absent = "absent".parse().expect("a run id");
    let rows: Result<Vec<_>, _> = store.read_events(&absent, 0).try_collect().await;
    refused(rows, Kind::NotFound);
    refused(store.events_end(&absent).await, Kind::NotFound);
}

/// CLD-L4: the log's key is the byte offset.
pub async fn l4_log_by_offset(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let append = async |at: Option<u64>, text: &str| {
        store.append_log(&run, at, Bytes::from(text.to_owned()), None).await
    };
    assert!(store.read_log(&run, 0, 0).await.expect("reads").is_empty());
    assert_eq!(append(Some(0), "hello ").await.expect("appends"), 0);
    assert_eq!(append(None, "world").await.expect("appends"), 6);
    for _ in 0..2 {
        assert_eq!(append(Some(6), "world").await.expect("the same again"), 6);
        assert_eq!(append(Some(2), "llo w").await.expect("a part of it"), 2);
    }
    refused(append(Some(6), "there").await, Kind::Conflict);
    refused(append(Some(9), "lx and more").await, Kind::Conflict);
    assert_eq!(append(Some(9), "ld!").await.expect("overlaps and goes on"), 9);
    let read = async |from, to| store.read_log(&run, from, to).await.expect("reads");
    assert_eq!(read(0, 0).await, [bytes(0, "hello world!")]);
    assert_eq!(read(4, 9).await, [bytes(4, "o wor")]);
    assert_eq!(read(11, 99).await, [bytes(11, "!")]);
    assert!(read(12, 0).await.is_empty() && read(50, 60).await.is_empty());
    assert!(read(5, 5).await.is_empty() && read(7, 3).await.is_empty());
    let absent = "absent".parse().expect("a run id");
    refused(store.read_log(&absent, 0, 0).await, Kind::NotFound);
}

/// CLD-L5: what was reserved and never stored is a hole, and shifts nothing.
pub async fn l5_holes_are_shown(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let append = async |at: Option<u64>, text: &str| {
        store.append_log(&run, at, Bytes::from(text.to_owned()), None).await.expect("appends")
    };
    let hole = |offset, len| LogPart::Hole { offset, len };
    append(None, "aaaa").await;
    append(Some(10), "bbb").await;
    assert_eq!(append(None, "cc").await, 13);
    let read = async |from, to| site.open().await.read_log(&run, from, to).await.expect("reads");
    assert_eq!(read(0, 0).await, [bytes(0, "aaaa"), hole(4, 6), bytes(10, "bbbcc")]);
    assert_eq!(read(6, 12).await, [hole(6, 4), bytes(10, "bb")]);
    // A late chunk fills its part of the hole, once and again.
    for _ in 0..2 {
        append(Some(5), "xx").await;
    }
    let parts = [bytes(0, "aaaa"), hole(4, 1), bytes(5, "xx"), hole(7, 3), bytes(10, "bbbcc")];
    assert_eq!(read(0, 0).await, parts);
    append(Some(4), "-xx---b").await;
    assert_eq!(read(0, 0).await, [bytes(0, "aaaa-xx---bbbcc")]);
    let at = store.append_log(&run, Some(0), Bytes::from("zz"), None).await;
    refused(at, Kind::Conflict);
}

/// CLD-L6: a follower gets everything once and in order, old and new.
pub async fn l6_followers_miss_nothing(site: &Site) {
    let (store, writer) = (site.open().await, site.open().await);
    let run = make_run(&*store, "r").await;
    writer.append_events(&run, vec![event(0), event(1)], None).await.expect("appends");
    writer.append_log(&run, None, Bytes::from("one "), None).await.expect("appends");
    let mut rows = store.follow_events(&run, 1);
    let mut parts = store.follow_log(&run, 2);
    assert_eq!(next(&mut rows, 1).await.iter().map(number_of).collect::<Vec<_>>(), [1]);
    assert_eq!(next(&mut parts, 1).await, [bytes(2, "e ")]);
    for n in 2..20 {
        writer.append_events(&run, vec![event(n)], None).await.expect("appends");
        writer.append_log(&run, None, Bytes::from("x"), None).await.expect("appends");
    }
    let more: Vec<u64> = next(&mut rows, 18).await.iter().map(number_of).collect();
    assert_eq!(more, (2..20).collect::<Vec<_>>());
    let mut end = 4;
    while end < 22 {
        for part in next(&mut parts, 1).await {
            let LogPart::Bytes { offset, bytes } = part else { panic!("{part:?}") };
            assert_eq!(offset, end);
            assert!(bytes.iter().all(|b| *b == b'x'));
            end += bytes.len() as u64;
        }
    }
    // Nothing more comes: a short wait ends without a row.
    let quiet = tokio::time::timeout(Duration::from_millis(300), rows.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

/// CLD-L7: an old token appends nothing; without a token everybody may.
pub async fn l7_old_tokens_append_nothing(site: &Site) {
    let store = site.open().await;
    let run = make_run(&*store, "r").await;
    let name = LockName::Run(run.clone());
    let first = store.lock(exclusive(name.clone(), SOON)).await.expect("takes");
    let old = first.fence();
    store.append_events(&run, vec![event(0)], Some(&old)).await.expect("appends");
    first.release().await.expect("frees");
    let second = store.lock(exclusive(name.clone(), SOON)).await.expect("takes");
    let new = second.fence();
    store.append_events(&run, vec![event(1)], Some(&new)).await.expect("appends");
    let log = |fence| store.append_log(&run, None, Bytes::from_static(b"x"), Some(fence));
    refused(store.append_events(&run, vec![event(2)], Some(&old)).await, Kind::LostLease);
    refused(log(&old).await, Kind::LostLease);
    log(&new).await.expect("appends");
    store.append_events(&run, vec![event(3)], None).await.expect("needs no token");
    let numbers: Vec<u64> = events(&*store, &run, 0).await.iter().map(number_of).collect();
    assert_eq!(numbers, [0, 1, 3]);
    assert_eq!(store.read_log(&run, 0, 0).await.expect("reads"), [bytes(0, "x")]);
    // The token in the record counts as well.
    let record = format!("{{\"run_id\":\"r\",\"holder\":{{\"token\":{}}}}}", new.token + 5);
    put(&*store, &DocKey::Run(run.clone()), &record, Expect::Any).await.expect("writes");
    refused(store.append_events(&run, vec![event(4)], Some(&new)).await, Kind::LostLease);
    let newest = Fence { lock: name, token: new.token + 5 };
    store.append_events(&run, vec![event(5)], Some(&newest)).await.expect("appends");
}
