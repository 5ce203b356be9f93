//! Names that must not be born, and documents that belong elsewhere.

use std::sync::Arc;

use backtrail_core::error::Kind;
use backtrail_core::ids::{
    CheckpointId, Digest, InteractionId, NodeId, PoolName, RunId, SnapshotId, SubjectId,
    TransactionId, WorkspaceKey,
};
use backtrail_core::store::layers::verify::Verify;
use backtrail_core::store::{DocKey, Prefix, Store};
use futures::TryStreamExt;

use super::{Site, body, make_run, refused, run_id};

/// Each constructor of a name refuses what could leave its place.
pub fn names_are_refused_at_birth() {
    let long = "x".repeat(300);
    let bad = ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a\nb", "\u{7f}", ".hidden", &long];
    for name in bad {
        assert!(name.parse::<RunId>().is_err(), "{name:?}");
        assert!(name.parse::<NodeId>().is_err(), "{name:?}");
        assert!(name.parse::<InteractionId>().is_err(), "{name:?}");
        assert!(name.parse::<SubjectId>().is_err(), "{name:?}");
        assert!(name.parse::<CheckpointId>().is_err(), "{name:?}");
        assert!(name.parse::<PoolName>().is_err(), "{name:?}");
    }
    let hexless = ["", "..", "a/b", "00112233445566AA", "00112233445566a", "%2e%2e", "$where"];
    for name in bad.iter().chain(&hexless) {
        assert!(name.parse::<SnapshotId>().is_err(), "{name:?}");
        assert!(name.parse::<WorkspaceKey>().is_err(), "{name:?}");
        assert!(name.parse::<TransactionId>().is_err(), "{name:?}");
        assert!(name.parse::<Digest>().is_err(), "{name:?}");
    }
    assert!("A".repeat(64).parse::<Digest>().is_err());
    assert!("tx-00112233445566AA".parse::<TransactionId>().is_err());
    let keys = ["runs/../run.json", "runs//run.json", "/store.json", "store.json/", "x.json", ""];
    for key in keys {
        assert_eq!(DocKey::parse(key), None, "{key:?}");
    }
}

/// Odd but legal ids are names like any other.
pub async fn odd_ids_are_plain_names(site: &Site) {
    let store = site.open().await;
    let ids = ["$where", "a.b", "%2e%2e", "UPPER", "upper", "a b", "é", "a'b\"c", "-", "~"];
    for id in ids {
        make_run(&*store, id).await;
    }
    for id in ids {
        let text = body(&*store, &DocKey::Run(run_id(id))).await;
        assert_eq!(text, format!("{{\"run_id\":{id:?}}}\n"));
    }
    let rows: Vec<_> = store.list(&Prefix::Runs).try_collect().await.expect("lists");
    assert_eq!(rows.len(), ids.len());
}

/// A document that says it belongs to another run is corrupt (K82).
pub async fn documents_of_others_are_corrupt(site: &Site) {
    let store: Arc<dyn Store> = Arc::new(Verify::new(site.open().await));
    let run = make_run(&*store, "r-1").await;
    let key = DocKey::Run(run);
    site.spoil_document(&key, b"{\"run_id\":\"r-2\"}");
    let e = refused(store.get(&key).await, Kind::Corrupt);
    assert!(e.message().contains("r-2"), "{e}");
}
