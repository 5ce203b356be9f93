//! What follows the decision: tombstones, retired questions, the snapshot that says where
//! files went back to, the event. Each step may be repeated by whoever finds it half done.

use futures::StreamExt;
use serde_json::{Map, Value};

use super::edit::{Tombstone, tombstone_data};
use super::open::Todo;
use crate::capture::{NewLabel, Recorder, Request};
use crate::error::{Kind, Result};
use crate::ids::{SnapshotId, TransactionId};
use crate::run::{EngineEvent, NewEvent, Run, RunStore};
use crate::snapshot::chain::{load_refs, read_snapshot};

/// The label of a tombstone, and the beginning of that of such a snapshot.
const REWOUND: &str = "rewound";

/// Does all that is left. `again`: somebody may have begun it before.
pub(super) async fn finish(
    runs: &RunStore,
    run: &Run,
    recorder: &Recorder,
    transaction: &TransactionId,
    todo: &Todo,
    again: bool,
) -> Result<()> {
    let faults = &recorder.context().faults;
    for tombstone in &todo.tombstones {
        bury(runs, run, todo, tombstone).await?;
    }
    faults.reach("rewind.tombstones")?;
    for id in &todo.retired {
        match runs.retire(run, id).await {
            Err(e) if e.is_not_found() => {}
            done => done.map(drop)?,
        }
    }
    if let Some(to) = &todo.rewound_to {
        mark(recorder, to, transaction).await?;
    }
    faults.reach("rewind.snapshot")?;
    let Value::Object(data) = &todo.event else { return Ok(()) };
    if !(again && told(runs, run, transaction).await?) {
        tell(runs, run, data).await?;
    }
    faults.reach("rewind.event")
}

async fn bury(runs: &RunStore, run: &Run, todo: &Todo, t: &Tombstone) -> Result<()> {
    match runs.artifact(run.id(), &t.node, t.version).await {
        Ok(there) if there.labels.iter().any(|l| l == REWOUND) => return Ok(()),
        Err(e) if !e.is_not_found() => return Err(e),
        _ => {}
    }
    let data = tombstone_data(t, &todo.node, &todo.at);
    let labels = vec![REWOUND.to_owned()];
    runs.write_artifact(run.id(), &t.node, t.version, data, labels).await.map(drop)
}

/// Records the workspace as it is now, so that the history goes on at `to`. The caller
/// holds the workspace.
async fn mark(recorder: &Recorder, to: &SnapshotId, transaction: &TransactionId) -> Result<()> {
    if is_marked(recorder, to, transaction).await? {
        return Ok(());
    }
    let request = Request {
        label: NewLabel::Numbered(REWOUND),
        message: Some(message(transaction)),
        rewound_to: Some(to.clone()),
        locked: true,
        ..Request::default()
    };
    recorder.capture(&request).await.map(drop)
}

/// What people and a repeated step know such a snapshot by.
fn message(transaction: &TransactionId) -> String {
    format!("files went back ({transaction})")
}

/// True if the head says it already.
async fn is_marked(
    recorder: &Recorder,
    to: &SnapshotId,
    transaction: &TransactionId,
) -> Result<bool> {
    let store = &**recorder.store();
    let Some(head) = load_refs(store, recorder.chain()).await?.refs.head else { return Ok(false) };
    match read_snapshot(store, recorder.chain(), &head).await {
        Ok(head) => {
            Ok(head.rewound_to.as_ref() == Some(to) && head.message == Some(message(transaction)))
        }
        Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt) => Ok(false),
        Err(e) => Err(e),
    }
}

async fn told(runs: &RunStore, run: &Run, transaction: &TransactionId) -> Result<bool> {
    let mut events = runs.events(run.id(), 0);
    while let Some(event) = events.next().await {
        let event = event?;
        let of = event.data("transaction").and_then(Value::as_str);
        if event.kind() == "run_rewound" && of == Some(transaction.as_str()) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn tell(runs: &RunStore, run: &Run, data: &Map<String, Value>) -> Result<()> {
    let event = NewEvent::engine(&EngineEvent::RunRewound(data.clone()));
    runs.append_events(run.id(), &[event]).await.map(drop)
}
