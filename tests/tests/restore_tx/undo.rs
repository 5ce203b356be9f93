//! Undo and redo: RES-033 to RES-036.

use backtrail_core::error::Kind;
use backtrail_core::restore::{self, Operations, RestoreResult, Unasked, UndoRequest};
use backtrail_core::store::DocKey;

use crate::world::World;

async fn undo(w: &World) -> backtrail_core::error::Result<RestoreResult> {
    restore::undo(&w.recorder(), &UndoRequest::default(), &Unasked).await
}

async fn redo(w: &World) -> backtrail_core::error::Result<RestoreResult> {
    restore::redo(&w.recorder(), &UndoRequest::default(), &Unasked).await
}

#[tokio::test]
async fn res_033_restore_undo_redo_undo() {
    let w = World::new().await;
    w.write("f", "v1");
    w.write("gone", "old");
    let target = w.capture().await;
    let old = w.picture();
    w.write_mode("f", b"v2", 0o600);
    std::fs::remove_file(w.ws.join("gone")).expect("removed");
    w.write("extra/x", "x");
    let new = w.picture();
    w.restore(&target).await.expect("restored");
    assert_eq!(w.picture(), old);
    let undone = undo(&w).await.expect("undone");
    assert!(undone.bank.is_some());
    assert_eq!(w.picture(), new);
    redo(&w).await.expect("redone");
    assert_eq!(w.picture(), old);
    undo(&w).await.expect("undone");
    assert_eq!(w.picture(), new);
    assert_eq!(undo(&w).await.expect_err("empty").kind(), Kind::NotFound);
}

#[tokio::test]
async fn res_034_a_file_edited_since_is_kept() {
    let w = World::new().await;
    w.write("f", "v1");
    w.write("g", "v1");
    let target = w.capture().await;
    w.write("f", "v2");
    w.write("g", "v2");
    w.restore(&target).await.expect("restored");
    w.write("f", "mine");
    let result = undo(&w).await.expect("undone");
    assert_eq!(result.exit_code, 3);
    assert_eq!(result.counts.plan.kept, 1);
    assert_eq!((w.read("f"), w.read("g")), ("mine".into(), "v2".into()));
}

#[tokio::test]
async fn res_035_a_new_operation_abandons_the_undone_tail() {
    let w = World::new().await;
    w.write("f", "v1");
    let target = w.capture().await;
    w.write("f", "v2");
    w.restore(&target).await.expect("restored");
    undo(&w).await.expect("undone");
    w.write("f", "v3");
    w.restore(&target).await.expect("restored");
    assert_eq!(redo(&w).await.expect_err("abandoned").kind(), Kind::NotFound);
    let list = Operations::load(&*w.store, &w.root().key).await.expect("list");
    let bank = list.entries[0].bank.clone().expect("a bank");
    let bank =
        backtrail_core::snapshot::chain::read_snapshot(&*w.store, &bank.chain, &bank.snapshot)
            .await
            .expect("the bank is there");
    w.restore(&bank).await.expect("restored");
    assert_eq!(w.read("f"), "v2");
}

#[tokio::test]
async fn res_036_a_bank_that_is_gone_is_said_so() {
    let w = World::new().await;
    w.write("f", "v1");
    let target = w.capture().await;
    w.write("f", "v2");
    let bank = w.restore(&target).await.expect("restored").bank.expect("a bank");
    w.store.delete(&DocKey::Snapshot(bank.chain, bank.snapshot), None).await.expect("deleted");
    let e = undo(&w).await.expect_err("gone");
    assert_eq!((e.kind(), e.code()), (Kind::NotFound, "bank-pruned"));
    assert_eq!(w.read("f"), "v1");
}
