//! `rewind_open`: what a record says of a rewind that is under way, so that whoever
//! finds it after a crash knows how to go back, or what is left to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::edit::{Edit, Tombstone};
use crate::error::{Error, Kind, Result};
use crate::ids::{InteractionId, RunId, SnapshotId, TransactionId, WorkspaceKey};
use crate::run::{Actor, Moved, Run, RunRecord, RunStore, Status, Transition};

/// The member of the record.
pub(super) const FIELD: &str = "rewind_open";

/// A rewind under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) transaction: TransactionId,
    /// The workspace whose journal tells how far the files are.
    pub(super) workspace: WorkspaceKey,
    /// How the run was before it was parked.
    before: Before,
    /// What follows the decision; absent before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) todo: Option<Todo>,
}

/// The members that parking changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Before {
    status: Status,
    error: Option<String>,
    failure_code: Option<String>,
    finished_at: Option<String>,
    outcome_seq: u64,
    claim_seq: u64,
    explicit_resume_required: Option<bool>,
}

/// What is left to do once the record is saved: steps that may each be repeated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Todo {
    /// RFC 3339.
    pub(super) at: String,
    /// The node gone back to.
    #[serde(default)]
    pub(super) node: String,
    #[serde(default)]
    pub(super) tombstones: Vec<Tombstone>,
    #[serde(default)]
    pub(super) retired: Vec<InteractionId>,
    /// Files went back to this snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rewound_to: Option<SnapshotId>,
    /// The data of the event; null for none.
    #[serde(default)]
    pub(super) event: Value,
}

/// Statuses whose record goes back with the files.
pub(super) fn may_be_rewound(status: &Status) -> bool {
    matches!(
        status,
        Status::FailedResumable
            | Status::Cancelled
            | Status::PausedOperator
            | Status::PausedWaitingHuman
            | Status::Queued
            | Status::Failed
    )
}

/// What the record says; an unreadable note counts as corrupt, not as none.
pub(super) fn open_of(record: &RunRecord) -> Result<Option<Open>> {
    let Some(value) = record.extra.get(FIELD) else { return Ok(None) };
    serde_json::from_value(value.clone()).map(Some).map_err(|e| {
        Error::corrupt(format!("{FIELD} of run {} cannot be read", record.id())).with_source(e)
    })
}

/// The refusal of a rewind that met another change of the run.
pub(super) fn changed(run: &RunId, why: &str) -> Error {
    Error::refused(
        "run-changed",
        format!("run {run} changed meanwhile ({why}); nothing was changed"),
    )
    .with_hint(format!("look at it again: backtrail runs show {run}"))
}

/// Parks the run from the status it was seen in, saying first how it was. Lost:
/// `run-changed`.
pub(super) async fn park(
    runs: &RunStore,
    run: &mut Run,
    transaction: &TransactionId,
    workspace: &WorkspaceKey,
) -> Result<()> {
    let record = &run.record;
    let seen = (record.status().clone(), record.write_id().to_owned());
    let open = Open {
        transaction: transaction.clone(),
        workspace: workspace.clone(),
        before: Before {
            status: seen.0.clone(),
            error: record.error().map(str::to_owned),
            failure_code: record.failure_code().map(|c| c.as_str().to_owned()),
            finished_at: record.finished_at().map(str::to_owned),
            outcome_seq: record.outcome_seq(),
            claim_seq: record.claim_seq(),
            explicit_resume_required: record.explicit_resume_required,
        },
        todo: None,
    };
    let value = json(&open)?;
    let id = run.id().clone();
    runs.patch(run, |record| {
        if record.write_id() != seen.1 {
            return Err(changed(&id, &format!("it is {}", record.status())));
        }
        record.extra.insert(FIELD.to_owned(), value.clone());
        Ok(())
    })
    .await?;
    let parking = Transition::new(Status::PausedOperator, Actor::Person, [seen.0])
        .rewind(transaction.as_str());
    let parked = match runs.transition(run, &parking).await {
        Ok(Moved::To(_)) => return Ok(()),
        Ok(Moved::Not { actual }) => changed(&id, &format!("it is {actual}")),
        Err(e) => e,
    };
    unpark(runs, run, transaction).await?;
    Err(parked)
}

/// Puts a parked run back as it was. Nothing if this rewind is not under way there, and
/// nothing but the note where somebody moved the run on since.
pub(super) async fn unpark(
    runs: &RunStore,
    run: &mut Run,
    transaction: &TransactionId,
) -> Result<()> {
    *run = runs.load(run.id()).await?;
    let Some(open) = open_of(&run.record)?.filter(|o| o.transaction == *transaction) else {
        return Ok(());
    };
    if open.todo.is_some() {
        return Err(Error::refused(
            "rewind-decided",
            format!("run {} was rewound by {transaction} already", run.id()),
        ));
    }
    let record = &run.record;
    let parked =
        *record.status() == Status::PausedOperator && record.claim_seq() == open.before.claim_seq;
    if !parked {
        return forget(runs, run, transaction).await;
    }
    let before = as_before(record, &open.before)?;
    let write_id = record.write_id().to_owned();
    run.record.extra.remove(FIELD);
    runs.unpark(run, &write_id, &before).await
}

fn as_before(record: &RunRecord, before: &Before) -> Result<RunRecord> {
    let mut value = json(record)?;
    if let Value::Object(map) = &mut value {
        let members = [
            ("status", json(&before.status)?),
            ("error", json(&before.error)?),
            ("failure_code", json(&before.failure_code)?),
            ("finished_at", json(&before.finished_at)?),
            ("outcome_seq", before.outcome_seq.into()),
            ("explicit_resume_required", json(&before.explicit_resume_required)?),
        ];
        map.extend(members.map(|(name, value)| (name.to_owned(), value)));
    }
    RunRecord::read(record.id(), value.to_string().as_bytes())
}

/// The decision: saves the edited record, which names the transaction from then on.
pub(super) async fn decide(
    runs: &RunStore,
    run: &mut Run,
    transaction: &TransactionId,
    edit: &Edit,
    todo: &Todo,
) -> Result<()> {
    let id = run.id().clone();
    let done = runs
        .patch(run, |record| {
            let open = open_of(record)?.filter(|o| o.transaction == *transaction);
            let Some(mut open) = open.filter(|_| *record.status() == Status::PausedOperator) else {
                return Err(changed(&id, &format!("it is {}", record.status())));
            };
            if open.todo.is_some() {
                return Ok(());
            }
            open.todo = Some(todo.clone());
            record.extra.insert(FIELD.to_owned(), json(&open)?);
            edit.apply(record);
            record.rewind_transaction = Some(transaction.to_string());
            record.explicit_resume_required = Some(true);
            Ok(())
        })
        .await;
    match done {
        // Whether it was saved the record itself says.
        Err(e) if e.kind() == (Kind::Unavailable { maybe_applied: true }) => {
            *run = runs.load(&id).await.map_err(|_| e)?;
            let named = run.record.rewind_transaction.as_deref() == Some(transaction.as_str());
            if named { Ok(()) } else { Err(changed(&id, "it could not be saved")) }
        }
        done => done,
    }
}

/// Takes the note away.
pub(super) async fn forget(
    runs: &RunStore,
    run: &mut Run,
    transaction: &TransactionId,
) -> Result<()> {
    runs.patch(run, |record| {
        if open_of(record)?.is_some_and(|o| o.transaction == *transaction) {
            record.extra.remove(FIELD);
        }
        Ok(())
    })
    .await
}

fn json(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|e| Error::failed("internal", "the record cannot be written").with_source(e))
}
