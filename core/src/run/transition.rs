//! A change of status as a value, and the pure function that applies it to a record.

use serde_json::Value;

use super::checkpoint::Checkpoint;
use super::code::FailureCode;
use super::record::{MAX_ERROR_BYTES, RecordHolder, RunRecord, cut};
use super::status::{self, Actor, Means, Status};
use crate::clock::Timestamp;
use crate::error::{Error, Result};

/// The question that a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct PausePointer {
    /// The interaction.
    pub interaction_id: String,
    /// Its questions, embedded so that a resume works when the interaction is gone.
    pub questions: Option<Value>,
}

/// A change of status: where to, on whose behalf, from where, and what goes with it.
///
/// ```
/// use backtrail_core::run::{Actor, FailureCode, Status, Transition};
/// let failed = Transition::new(Status::FailedResumable, Actor::Engine, [Status::Running])
///     .failure(FailureCode::TIMEOUT, "node build took longer than 20m");
/// assert_eq!(failed.to, Status::FailedResumable);
/// ```
#[derive(Clone, Debug)]
pub struct Transition {
    /// The new status.
    pub to: Status,
    /// On whose behalf.
    pub actor: Actor,
    /// The statuses it expects; empty is an error.
    pub expect: Vec<Status>,
    error: Option<String>,
    code: Option<FailureCode>,
    result: Option<Value>,
    checkpoint: Option<Checkpoint>,
    pause: Option<PausePointer>,
    answered: bool,
    rewind: Option<String>,
}

impl Transition {
    /// A move to `to` on behalf of `actor` from one of `expect`.
    pub fn new(to: Status, actor: Actor, expect: impl IntoIterator<Item = Status>) -> Self {
        Self {
            to,
            actor,
            expect: expect.into_iter().collect(),
            error: None,
            code: None,
            result: None,
            checkpoint: None,
            pause: None,
            answered: false,
            rewind: None,
        }
    }

    /// Why it failed, redacted by the caller; kept up to [`MAX_ERROR_BYTES`].
    #[must_use]
    pub fn failure(mut self, code: &str, error: impl Into<String>) -> Self {
        self.code = FailureCode::new(code);
        self.error = Some(error.into());
        self
    }
    /// The output of `done`.
    #[must_use]
    pub fn result(mut self, result: Value) -> Self {
        self.result = Some(result);
        self
    }
    /// The checkpoint to save with it; without one the present checkpoint stays.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }
    /// The question it waits for.
    #[must_use]
    pub fn asking(mut self, pointer: PausePointer) -> Self {
        self.pause = Some(pointer);
        self
    }
    /// The open question has complete answers.
    #[must_use]
    pub fn answered(mut self) -> Self {
        self.answered = true;
        self
    }
    /// It parks the run for a rewind: `explicit_resume_required` is set, and error and
    /// outcome are left to the rewind's own save.
    #[must_use]
    pub fn rewind(mut self, transaction: impl Into<String>) -> Self {
        self.rewind = Some(transaction.into());
        self
    }

    pub(super) fn saved_checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// Applies it to `record`. `None` when the record is in none of the expected
    /// statuses. Fails with `bad-transition` when there is no such move, and with
    /// `bad-value` for an empty expected set. `holder` is this process when it holds the
    /// run lock.
    pub fn apply(
        &self,
        record: &mut RunRecord,
        now: Timestamp,
        holder: Option<&RecordHolder>,
    ) -> Result<Option<()>> {
        if self.expect.is_empty() {
            return Err(Error::invalid("a transition must name the statuses it expects"));
        }
        if !self.expect.contains(&record.status) {
            return Ok(None);
        }
        if record.cancel_requested_at.is_some() && self.is_outranked(&record.status) {
            return self.as_cancel(record).apply(record, now, holder);
        }
        let means = Means {
            locked: holder.is_some(),
            answered: self.answered,
            rewind: self.rewind.is_some(),
            checkpoint: record.checkpoint.is_some(),
            explicit: record.needs_person(),
            present_code: record.failure_code.as_ref(),
            new_code: self.code.as_ref(),
        };
        status::check(Some(&record.status), &self.to, self.actor, &means)?;
        self.write(record, now, holder);
        Ok(Some(()))
    }

    /// A requested cancel outranks whatever a dying node reports.
    fn is_outranked(&self, from: &Status) -> bool {
        *from == Status::Running && self.to != Status::Cancelled && self.actor != Actor::Person
    }

    fn as_cancel(&self, record: &RunRecord) -> Self {
        Self {
            to: Status::Cancelled,
            // The request is a person's; who holds the lock obeys it.
            actor: Actor::Person,
            error: record.cancel_reason.clone().or_else(|| self.error.clone()),
            code: None,
            result: None,
            pause: None,
            ..self.clone()
        }
    }

    fn write(&self, record: &mut RunRecord, now: Timestamp, holder: Option<&RecordHolder>) {
        let arrived = record.status != self.to;
        let from_person = self.actor == Actor::Person;
        record.status = self.to.clone();
        record.finished_at = None;
        if self.to.is_ended() {
            record.finished_at = Some(now.rfc3339());
            record.outcome_seq = Some(record.outcome_seq() + u64::from(arrived));
            record.drop_requests();
        }
        record.error = None;
        record.failure_code = None;
        if self.to.may_have_error() {
            record.error = self.error.as_deref().map(|e| cut(e, MAX_ERROR_BYTES).to_owned());
            let cancelled =
                || (self.to == Status::Cancelled).then(|| FailureCode::CANCELLED.into());
            record.failure_code = self.code.clone().or_else(cancelled);
        }
        match self.to {
            Status::Running => {
                record.started_at.get_or_insert_with(|| now.rfc3339());
                record.claim_seq = Some(record.claim_seq() + 1);
                record.drop_requests();
                record.result = None;
            }
            Status::Queued => record.queued_at = Some(now.rfc3339()),
            Status::PausedOperator => record.drop_pause_request(),
            Status::Finished => record.result.clone_from(&self.result),
            _ => {}
        }
        if from_person && matches!(self.to, Status::Running | Status::Queued) {
            record.explicit_resume_required = None;
        }
        if self.rewind.is_some() {
            record.explicit_resume_required = Some(true);
        }
        if let Some(holder) = holder {
            record.holder = Some(RecordHolder {
                extra: record.holder.take().map(|h| h.extra).unwrap_or_default(),
                ..holder.clone()
            });
        }
        self.write_checkpoint(record);
    }

    /// The pause pointer lives only on the paused statuses and on queued.
    fn write_checkpoint(&self, record: &mut RunRecord) {
        if let Some(mut next) = self.checkpoint.clone() {
            if let Some(old) = &record.checkpoint {
                next.keep_pointer_of(old);
            }
            record.checkpoint = Some(next);
        }
        let Some(checkpoint) = &mut record.checkpoint else { return };
        if let Some(pointer) = &self.pause {
            checkpoint.interaction_id = Some(pointer.interaction_id.clone());
            checkpoint.interaction_questions.clone_from(&pointer.questions);
        }
        if !self.to.may_have_pointer() {
            checkpoint.strip_pointer();
        }
    }
}
