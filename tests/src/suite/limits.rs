//! CLD-ST7: at the limit accepted, one byte more refused before anything is sent.

use backtrail_core::error::Kind;
use backtrail_core::store::{DocKey, Expect, MAX_BYTES, MAX_EVENT_BYTES, Object};
use bytes::Bytes;

use super::{Site, make_run, refused, store_all};

fn document(len: usize) -> Bytes {
    let pad = len - "{\"p\":\"\"}".len();
    Bytes::from(format!("{{\"p\":\"{}\"}}", "x".repeat(pad)))
}

/// Objects, bodies, log appends and events at and above their limits.
pub async fn at_the_limit_and_above(site: &Site) {
    let store = site.open().await;
    refused(Object::new(vec![0; MAX_BYTES + 1]), Kind::Invalid);
    let largest = Object::new(vec![7; MAX_BYTES]).expect("at the limit");
    store_all(&*store, std::slice::from_ref(&largest)).await;
    assert_eq!(store.get_object(&largest.digest()).await.expect("reads").len(), MAX_BYTES);

    store.put(&DocKey::Damage, document(MAX_BYTES), Expect::Any, None).await.expect("accepted");
    assert_eq!(store.get(&DocKey::Damage).await.expect("reads").body.len(), MAX_BYTES);
    let e = refused(
        store.put(&DocKey::Damage, document(MAX_BYTES + 1), Expect::Any, None).await,
        Kind::Invalid,
    );
    for part in ["damage.json", "8388609", "8388608"] {
        assert!(e.message().contains(part), "{part}: {e}");
    }
    assert_eq!(store.get(&DocKey::Damage).await.expect("reads").body.len(), MAX_BYTES);

    let run = make_run(&*store, "r").await;
    let bytes = Bytes::from(vec![b'x'; MAX_BYTES + 1]);
    refused(store.append_log(&run, None, bytes.clone(), None).await, Kind::Invalid);
    store.append_log(&run, None, bytes.slice(1..), None).await.expect("accepted");
    let event = |len| vec![document(len)];
    refused(store.append_events(&run, event(MAX_EVENT_BYTES + 1), None).await, Kind::Invalid);
    store.append_events(&run, event(MAX_EVENT_BYTES), None).await.expect("accepted");
    let rows: Vec<_> = super::logs::all_events(&*store, &run).await;
    assert_eq!(rows.len(), 1);
    assert!(rows[0].body.len() > MAX_EVENT_BYTES);
}
