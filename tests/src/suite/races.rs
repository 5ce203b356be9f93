//! Many writers at once on one counter; the other races stand with their promises.

use backtrail_core::error::Kind;
use backtrail_core::store::{DocKey, Document, Expect, Store};

use super::{Site, at_once, body, handles, put};

fn value(doc: &Document) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(&doc.body).expect("JSON");
    value["n"].as_u64().expect("a number")
}

/// Adds one, however often somebody else comes first.
async fn increment(store: &dyn Store, writer: usize) {
    loop {
        let doc = store.get(&DocKey::Damage).await.expect("reads");
        let text = format!("{{\"n\":{},\"write_id\":\"{writer}\"}}", value(&doc) + 1);
        match put(store, &DocKey::Damage, &text, Expect::Version(doc.version)).await {
            Ok(_) => return,
            Err(e) => assert_eq!(e.kind(), Kind::Conflict, "{e:?}"),
        }
    }
}

/// 8 writers add 10 each: 80, no more and no less (fewer of both on S3).
pub async fn a_counter_counts(site: &Site) {
    let stores = handles(site, site.writers(8)).await;
    put(&*stores[0], &DocKey::Damage, "{\"n\":0}", Expect::Absent).await.expect("creates");
    let add = |i: usize| {
        let stores = stores.clone();
        async move {
            for _ in 0..10 {
                increment(&*stores[i], i).await;
            }
        }
    };
    at_once(stores.len(), add).await;
    let text = body(&*stores[1], &DocKey::Damage).await;
    let sum = 10 * stores.len();
    assert!(text.starts_with(&format!("{{\"n\":{sum},")), "{text}");
}
