//! Writing a run record: every write is conditional on the version read. A typed change
//! is applied again on what another writer left; a whole save reports the conflict.

use std::time::Duration;

use super::checkpoint::{Checkpoint, too_large};
use super::record::{RecordHolder, RunRecord};
use super::status::Status;
use super::store::RunStore;
use super::transition::Transition;
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::store::{DocKey, Expect, MAX_BYTES, Version, docs};

/// How often a typed change is tried against other writers.
const TRIES: u32 = 10;
/// The longest pause behind the first conflict; it grows with each.
const PAUSE: Duration = Duration::from_millis(10);

/// A run as loaded: the record, and the version that a write replaces.
#[derive(Clone, Debug)]
pub struct Run {
    /// The record; a change of it is written by [`RunStore::save`].
    pub record: RunRecord,
    pub(super) version: Version,
}

impl Run {
    /// The id.
    pub fn id(&self) -> &RunId {
        self.record.id()
    }
    /// Where it stands.
    pub fn status(&self) -> &Status {
        self.record.status()
    }
}

/// What a transition came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The run is in this status now: the one asked for, or `cancelled` when a requested
    /// cancel outranked it.
    To(Status),
    /// The run was in none of the expected statuses; nothing was changed.
    Not {
        /// Where it stands.
        actual: Status,
    },
}

/// What one application of a change decided.
enum Step<T> {
    Write(T),
    Keep(T),
}

impl RunStore {
    /// Moves a run to another status (which moves exist: [`super::status::permitted`]).
    /// A mismatch with the expected set is [`Moved::Not`]; a move that does not exist
    /// fails with `bad-transition`. Engine moves need the claim of [`Self::with_claim`].
    pub async fn transition(&self, run: &mut Run, change: &Transition) -> Result<Moved> {
        let holder = self.holder(run.id())?;
        if let Some(checkpoint) = change.saved_checkpoint() {
            checkpoint.check()?;
        }
        let now = self.now();
        self.change(run, |record| {
            Ok(match change.apply(record, now, holder.as_ref())? {
                Some(()) => Step::Write(Moved::To(record.status.clone())),
                None => Step::Keep(Moved::Not { actual: record.status.clone() }),
            })
        })
        .await
    }

    /// Applies a change of free fields. `change` runs again on the newest record when
    /// another writer was faster, so it must only say what to set. Status and pause
    /// pointer stay as they are. No difference: nothing is written.
    pub async fn patch<T>(
        &self,
        run: &mut Run,
        mut change: impl FnMut(&mut RunRecord) -> Result<T>,
    ) -> Result<T> {
        self.change(run, |record| {
            let before = record.clone();
            let answer = change(record)?;
            guard(&before, record)?;
            let same = *record == before;
            Ok(if same { Step::Keep(answer) } else { Step::Write(answer) })
        })
        .await
    }

    /// Saves the checkpoint. A pause pointer that it does not mention stays on a paused or
    /// queued run, and cannot come back elsewhere. Fails with `schema-validation` when an
    /// output or the document is too large.
    pub async fn save_checkpoint(&self, run: &mut Run, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint.check()?;
        self.patch(run, |record| {
            record.checkpoint = Some(checkpoint.clone());
            Ok(())
        })
        .await
    }

    /// Writes the whole record as the caller holds it. Fails with `conflict` when
    /// somebody else wrote since it was loaded.
    pub async fn save(&self, run: &mut Run, record: &RunRecord) -> Result<()> {
        let mut next = record.clone();
        guard(&run.record, &mut next)?;
        *run = self.put(&run.version, &run.record, next).await?;
        Ok(())
    }

    /// Asks the engine to cancel the run; it is noticed by who executes it. The first
    /// request stays.
    pub async fn request_cancel(&self, run: &mut Run, reason: Option<&str>) -> Result<()> {
        let now = self.now().rfc3339();
        self.patch(run, |record| {
            if record.cancel_requested_at.is_none() {
                record.cancel_requested_at = Some(now.clone());
                record.cancel_reason = reason.map(str::to_owned);
            }
            Ok(())
        })
        .await
    }

    /// Asks the engine to pause the run after its current node. The first request stays.
    pub async fn request_pause(&self, run: &mut Run, reason: Option<&str>) -> Result<()> {
        let now = self.now().rfc3339();
        self.patch(run, |record| {
            if record.pause_requested_at.is_none() {
                record.pause_requested_at = Some(now.clone());
                record.pause_reason = reason.map(str::to_owned);
            }
            Ok(())
        })
        .await
    }

    /// Puts a run back that a failed rewind had parked: status, error and outcome as in
    /// `before`. Guarded by the write token of the parking: fails with `conflict` when
    /// anybody wrote since.
    pub async fn unpark(&self, run: &mut Run, write_id: &str, before: &RunRecord) -> Result<()> {
        if run.record.write_id != write_id || run.record.status != Status::PausedOperator {
            return Err(docs::conflict(&DocKey::Run(run.id().clone()), Some(&run.version)));
        }
        let mut next = run.record.clone();
        next.status = before.status.clone();
        next.finished_at.clone_from(&before.finished_at);
        next.error.clone_from(&before.error);
        next.failure_code.clone_from(&before.failure_code);
        next.outcome_seq = before.outcome_seq;
        next.explicit_resume_required = before.explicit_resume_required;
        *run = self.put(&run.version, &run.record, next).await?;
        Ok(())
    }

    async fn change<T>(
        &self,
        run: &mut Run,
        mut apply: impl FnMut(&mut RunRecord) -> Result<Step<T>>,
    ) -> Result<T> {
        let mut base = run.clone();
        // The caller's copy may be old: what it refuses is asked again of the newest.
        let mut fresh = false;
        let mut tries = 0;
        loop {
            let mut next = base.record.clone();
            let answer = match apply(&mut next) {
                Ok(Step::Write(answer)) => answer,
                Ok(Step::Keep(_)) | Err(_) if !fresh => {
                    base = self.load(run.id()).await?;
                    fresh = true;
                    continue;
                }
                Ok(Step::Keep(answer)) => {
                    *run = base;
                    return Ok(answer);
                }
                Err(e) => return Err(e),
            };
            match self.put(&base.version, &base.record, next).await {
                Ok(written) => {
                    *run = written;
                    return Ok(answer);
                }
                Err(e) if e.is_conflict() => {}
                Err(e) => return Err(e),
            }
            tries += 1;
            if tries == TRIES {
                let message = format!("run {} is written to all the time", run.id());
                return Err(Error::new(Kind::Busy, "busy", message));
            }
            self.pause(PAUSE * tries).await?;
            base = self.load(run.id()).await?;
            fresh = true;
        }
    }

    async fn put(&self, version: &Version, base: &RunRecord, mut next: RunRecord) -> Result<Run> {
        base.check_writable()?;
        next.heal();
        next.updated_at = self.now().rfc3339();
        let expect = Expect::Version(version.clone());
        self.put_record(next, expect).await
    }

    /// Writes a record and gives it back as it is stored.
    pub(super) async fn put_record(&self, mut next: RunRecord, expect: Expect) -> Result<Run> {
        let key = DocKey::Run(next.id.clone());
        let fence = self.fence(&next.id)?;
        let (store, ids) = (&*self.store, &*self.ctx.ids);
        let saved = docs::save_settled(store, ids, &key, &next, expect, fence.as_ref()).await;
        let saved = match saved {
            Err(e) if e.kind() == Kind::Invalid && e.details().contains_key("bytes") => {
                let len = e.details()["bytes"].as_u64().unwrap_or(0) as usize;
                return Err(too_large(&format!("the record of run {}", next.id), len, MAX_BYTES));
            }
            saved => saved?,
        };
        next.cas_version = saved.cas_version;
        next.write_id = saved.write_id;
        next.pointer_dropped = false;
        Ok(Run { record: next, version: saved.version })
    }

    /// Who we are, when we hold the run's lock. Fails with `LostLease` once that is lost.
    fn holder(&self, run: &RunId) -> Result<Option<RecordHolder>> {
        let fence = self.fence(run)?;
        Ok(fence.map(|f| RecordHolder::new(&self.ctx.host, self.now(), f.token)))
    }

    /// Waits for a random part of `limit`, so that writers do not march in step.
    pub(super) async fn pause(&self, limit: Duration) -> Result<()> {
        let mut byte = [0];
        self.ctx.ids.fill(&mut byte)?;
        tokio::time::sleep(limit * u32::from(byte[0]) / 255).await;
        self.ctx.cancel.check()
    }
}

/// What only the status machine may change stays; the pause pointer of a paused run that
/// a checkpoint does not mention stays as well.
fn guard(base: &RunRecord, next: &mut RunRecord) -> Result<()> {
    if next.id != base.id {
        return Err(Error::invalid(format!("run {} cannot become run {}", base.id, next.id)));
    }
    if next.status != base.status {
        return Err(Error::invalid(format!(
            "run {} changes its status by a transition, not by a save",
            base.id
        )));
    }
    if base.status.may_have_pointer()
        && !next.pointer_dropped
        && let (Some(next), Some(base)) = (&mut next.checkpoint, &base.checkpoint)
    {
        next.keep_pointer_of(base);
    }
    next.heal();
    Ok(())
}
