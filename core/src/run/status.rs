//! The statuses of a run and the one pure function that says which moves exist.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::code::FailureCode;
use crate::error::{Error, Result};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for a runner.
    Queued,
    /// Executes, or died while it did: whether its lock is held tells which.
    Running,
    /// Waits for answers.
    PausedWaitingHuman,
    /// Parked by a person: nothing automatic restarts it.
    PausedOperator,
    /// Done.
    Finished,
    /// Over for good.
    Failed,
    /// Failed at a node that can be executed again.
    FailedResumable,
    /// Cancelled by a person; a person can resume it.
    Cancelled,
    /// Of a later version: kept and shown, neither resumable nor deletable.
    #[serde(untagged)]
    Other(String),
}

impl Status {
    /// Every status that this build knows.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::PausedWaitingHuman,
        Self::PausedOperator,
        Self::Finished,
        Self::Failed,
        Self::FailedResumable,
        Self::Cancelled,
    ];

    /// The text in the record.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::PausedWaitingHuman => "paused_waiting_human",
            Self::PausedOperator => "paused_operator",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::FailedResumable => "failed_resumable",
            Self::Cancelled => "cancelled",
            Self::Other(text) => text,
        }
    }

    /// Reads a status; unknown text is [`Status::Other`].
    pub fn parse(text: &str) -> Self {
        let known = Self::ALL.into_iter().find(|s| s.as_str() == text);
        known.unwrap_or_else(|| Self::Other(text.to_owned()))
    }

    /// True for finished, failed, failed_resumable and cancelled: an outcome is there.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::FailedResumable | Self::Cancelled)
    }

    /// True for the two paused statuses.
    pub fn is_paused(&self) -> bool {
        matches!(self, Self::PausedWaitingHuman | Self::PausedOperator)
    }

    /// True where `error` and `failure_code` may stand.
    pub fn may_have_error(&self) -> bool {
        matches!(self, Self::Failed | Self::FailedResumable | Self::Cancelled)
    }

    /// True where the pause pointer may stand.
    pub fn may_have_pointer(&self) -> bool {
        self.is_paused() || *self == Self::Queued
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// On whose behalf a run moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The holder of the run lock that executes it.
    Engine,
    /// A person's verb.
    Person,
    /// A runner, a sweeper, a reconcile.
    Automation,
}

/// What a move needs besides its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Nothing more.
    Nothing,
    /// The run lock, held by who asks.
    Lock,
    /// Complete answers to the open question.
    Answers,
    /// It is a rewind that parks the run.
    Rewind,
    /// As [`Need::Rewind`], and there is a checkpoint to rewind.
    RewindCheckpoint,
    /// The present failure code is retryable and no person must decide.
    Retryable,
    /// The new failure code is [`FailureCode::LAUNCH_FAILED`].
    LaunchFailed,
}

/// Whether `actor` may move a run from one status to another, and what that needs.
/// `from` is `None` for creation. `None`: there is no such move.
pub fn permitted(from: Option<&Status>, to: &Status, actor: Actor) -> Option<Need> {
    use Actor::{Automation as A, Engine as E, Person as O};
    use Status::{
        Cancelled, Failed, FailedResumable, Finished, PausedOperator, PausedWaitingHuman, Queued,
        Running,
    };
    let Some(from) = from else {
        return match (to, actor) {
            (Running, E) => Some(Need::Lock),
            (Queued, O) => Some(Need::Nothing),
            _ => None,
        };
    };
    Some(match (from, to, actor) {
        (Queued, Running, E) => Need::Lock,
        (Queued, Cancelled, O) => Need::Nothing,
        (Queued, Failed, A) => Need::LaunchFailed,
        (Queued, FailedResumable, A) => Need::Nothing,
        (Running, PausedWaitingHuman | PausedOperator | Finished | Failed, E) => Need::Lock,
        (Running, FailedResumable, E | A) => Need::Lock,
        (Running, Cancelled, E | O) => Need::Lock,
        (PausedWaitingHuman, Running | Queued, O) => Need::Answers,
        (PausedOperator | Cancelled | FailedResumable, Running | Queued, O) => Need::Nothing,
        (FailedResumable, Running | Queued, A) => Need::Retryable,
        (PausedWaitingHuman | PausedOperator | FailedResumable, Cancelled, O) => Need::Nothing,
        (Failed, PausedOperator, O) => Need::RewindCheckpoint,
        (
            Queued | PausedWaitingHuman | PausedOperator | Cancelled | FailedResumable,
            PausedOperator,
            O,
        ) => Need::Rewind,
        _ => return None,
    })
}

/// What who asks for a move can show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Means<'a> {
    /// The run lock is held by who asks.
    pub locked: bool,
    /// The answers are complete.
    pub answered: bool,
    /// It is a rewind.
    pub rewind: bool,
    /// There is a checkpoint.
    pub checkpoint: bool,
    /// A person has to resume it: `explicit_resume_required`.
    pub explicit: bool,
    /// The failure code in the record.
    pub present_code: Option<&'a FailureCode>,
    /// The failure code that the move sets.
    pub new_code: Option<&'a FailureCode>,
}

/// Checks a move. Fails with `bad-transition` (kind Refused) saying what is missing;
/// nothing was changed then.
pub fn check(from: Option<&Status>, to: &Status, actor: Actor, means: &Means<'_>) -> Result<()> {
    let refuse = |why: &str| {
        let from = from.map_or("nothing", Status::as_str);
        Err(Error::refused("bad-transition", format!("a run cannot go from {from} to {to}: {why}"))
            .with_detail("status", from)
            .with_detail("to", to.as_str()))
    };
    let Some(need) = permitted(from, to, actor) else {
        return refuse(match actor {
            Actor::Engine => "the engine has no such move",
            Actor::Person => "no verb makes that move",
            Actor::Automation => "a person has to decide",
        });
    };
    let code_is =
        |code: Option<&FailureCode>, test: fn(&FailureCode) -> bool| code.is_some_and(test);
    let has = match need {
        // Executing is always the right of who holds the lock.
        _ if *to == Status::Running && !means.locked => return refuse("its lock is not held"),
        Need::Nothing => true,
        Need::Lock => means.locked,
        Need::Answers => means.answered,
        Need::Rewind => means.rewind,
        Need::RewindCheckpoint => means.rewind && means.checkpoint,
        Need::Retryable => {
            !means.explicit && code_is(means.present_code, FailureCode::is_retryable)
        }
        Need::LaunchFailed => code_is(means.new_code, |c| c.as_str() == FailureCode::LAUNCH_FAILED),
    };
    match need {
        _ if has => Ok(()),
        Need::Nothing | Need::Lock => refuse("its lock is not held"),
        Need::Answers => refuse("its question is not answered"),
        Need::Rewind => refuse("only a rewind parks it"),
        Need::RewindCheckpoint => refuse("only a rewind with a checkpoint parks it"),
        Need::Retryable => refuse("a person has to resume it"),
        Need::LaunchFailed => refuse("only a failed launch ends it there"),
    }
}
