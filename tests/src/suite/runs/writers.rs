//! RUN-RS07, RS14: other writers, and answers that are lost.

use std::sync::Arc;

use backtrail_core::error::Kind;
use backtrail_core::run::{Actor, RunRecord, RunStore, Status, Transition};
use backtrail_core::store::layers::Call;
use backtrail_core::store::layers::fault::{Fault, FaultStore};
use serde_json::json;

use super::{context, engine, new_run, runs, started, stored};
use crate::suite::{Site, at_once, refused};

/// RUN-RS07: a stale copy drops nothing that another writer set.
pub async fn rs07_stale_copies_lose_nothing(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    let mut stale = run.clone();
    ours.patch(&mut run, |r| {
        r.budget = Some(json!({"iterations": 5}));
        r.extra.insert("tenant_id".into(), json!("t"));
        Ok(())
    })
    .await
    .expect("patches");
    // The whole document: a conflict.
    let mut record = stale.record.clone();
    record.result = Some(json!("old"));
    refused(ours.save(&mut stale, &record).await, Kind::Conflict);
    assert_eq!(stale.record.budget, None, "the caller's copy moves only after success");
    // A typed change: applied again on what is there.
    ours.patch(&mut stale, |r| {
        r.result = Some(json!("new"));
        Ok(())
    })
    .await
    .expect("patches");
    let there = stored(&**runs.store(), run.id()).await;
    assert_eq!((&there["budget"]["iterations"], &there["tenant_id"]), (&json!(5), &json!("t")));
    assert_eq!(there["result"], "new");
    // An old copy that still runs revives neither status nor code.
    engine(&ours, &mut run, Status::FailedResumable).await;
    runs.request_cancel(&mut stale, None).await.expect("asks");
    assert_eq!(stale.status(), &Status::FailedResumable);
    let mut old = stale.clone();
    old.record = record.clone();
    refused(ours.save(&mut stale, &record).await, Kind::Invalid);
    many_writers(site, run.id()).await;
}

/// Ten writers add up: none loses another's work.
async fn many_writers(site: &Site, id: &backtrail_core::ids::RunId) {
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(runs(site).await);
    }
    let handles = Arc::new(handles);
    let add = |i: usize| {
        let (handles, id) = (handles.clone(), id.clone());
        async move {
            let mut run = handles[i].load(&id).await.expect("loads");
            for _ in 0..5 {
                let one = |r: &mut RunRecord| {
                    let n = r.extra.get("n").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    r.extra.insert("n".into(), json!(n + 1));
                    Ok(())
                };
                handles[i].patch(&mut run, one).await.expect("adds");
            }
        }
    };
    at_once(4, add).await;
    assert_eq!(stored(&**handles[0].store(), id).await["n"], 20);
}

/// RUN-RS14: a write whose answer was lost is read back by its token.
pub async fn rs14_lost_answers_are_settled(site: &Site) {
    let fault = Arc::new(FaultStore::new(site.open().await));
    let runs = RunStore::new(fault.clone(), context());
    let (ours, mut run) = started(&runs, "r").await;
    for (n, lost) in [Fault::After, Fault::AfterConflict].into_iter().enumerate() {
        fault.arm(Call::Put, 1, lost.clone());
        let created = runs.create(new_run(&format!("new-{n}"))).await.expect("settled");
        let there = stored(&*fault, created.run.id()).await;
        assert_eq!(there["write_id"], created.run.record.write_id());
        fault.arm(Call::Put, 1, lost.clone());
        let before = run.record.cas_version();
        let mut record = run.record.clone();
        record.result = Some(json!(format!("{lost:?}")));
        ours.save(&mut run, &record).await.expect("settled");
        fault.arm(Call::Put, 1, lost.clone());
        let set = |r: &mut RunRecord| {
            r.budget = Some(json!(format!("{lost:?}")));
            Ok(())
        };
        ours.patch(&mut run, set).await.expect("settled");
        let there = stored(&*fault, run.id()).await;
        assert_eq!(
            (&there["result"], &there["budget"]),
            (&json!(format!("{lost:?}")), &there["result"])
        );
        assert_eq!(there["cas_version"], before + 2, "each write happened once");
        assert_eq!(run.record.cas_version(), before + 2);
    }
    // Not applied and not answered: an error, not a conflict, and nothing changed.
    let before = stored(&*fault, run.id()).await;
    fault.arm(Call::Put, 1, Fault::Before);
    let e = ours.request_pause(&mut run, None).await.expect_err("the store failed");
    assert!(matches!(e.kind(), Kind::Unavailable { .. }), "{e:?}");
    assert_eq!(stored(&*fault, run.id()).await, before);
    another_writer_in_between(&fault, &ours, run).await;
}

/// The answer is lost and another's token is there: the whole save is a conflict, the
/// typed change finds out where the run is now.
async fn another_writer_in_between(
    fault: &FaultStore,
    ours: &RunStore,
    mut run: backtrail_core::run::Run,
) {
    let mut stale = run.clone();
    let done = Transition::new(Status::Failed, Actor::Engine, [Status::Running]);
    ours.transition(&mut run, &done).await.expect("ends");
    fault.arm(Call::Put, 1, Fault::Before);
    let record = stale.record.clone();
    refused(ours.save(&mut stale, &record).await, Kind::Conflict);
    assert_eq!(stored(fault, run.id()).await["write_id"], run.record.write_id());
}
