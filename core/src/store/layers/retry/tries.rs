//! The tries of one operation: how often, how long, and what is said at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::IdSource;
use crate::error::{Error, Kind, Result};

/// How an operation is repeated.
#[derive(Clone)]
pub struct RetryPolicy {
    /// Tries in all, at least 1.
    pub attempts: u32,
    /// Time for all tries and the pauses between them.
    pub budget: Duration,
    /// The longest first pause; doubled each time up to [`RetryPolicy::last_pause`].
    pub first_pause: Duration,
    /// The longest pause.
    pub last_pause: Duration,
    /// How long one try may take beside the time for its bytes. `None`: for ever, for
    /// stores whose work cannot be abandoned.
    pub attempt_limit: Option<Duration>,
    /// Chance for the pauses.
    pub ids: Arc<dyn IdSource>,
}

impl RetryPolicy {
    /// 6 tries in 5 minutes, pauses from 100 ms to 10 s, no limit for one try.
    pub fn new(ids: Arc<dyn IdSource>) -> Self {
        Self {
            attempts: 6,
            budget: Duration::from_secs(300),
            first_pause: Duration::from_millis(100),
            last_pause: Duration::from_secs(10),
            attempt_limit: None,
            ids,
        }
    }
}

/// The slowest transfer that is not a stall, in bytes a second.
const SLOWEST: u64 = 64 * 1024;

/// True when trying again may help.
pub(super) fn is_transient(e: &Error) -> bool {
    matches!(e.kind(), Kind::Unavailable { .. })
}

/// One operation on its way.
pub(super) struct Tries<'a> {
    policy: &'a RetryPolicy,
    what: String,
    began: Instant,
    made: u32,
    /// A try may have been applied.
    unsure: bool,
}

impl<'a> Tries<'a> {
    /// `what` names operation and key: `put runs/r1/run.json`.
    pub(super) fn new(policy: &'a RetryPolicy, what: String) -> Self {
        Self { policy, what, began: Instant::now(), made: 0, unsure: false }
    }

    /// Counts a try that is made elsewhere.
    pub(super) fn count(&mut self) {
        self.made += 1;
    }

    /// Makes one try that moves about `bytes`.
    pub(super) async fn attempt<T>(
        &mut self,
        bytes: usize,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.count();
        let done = match self.policy.attempt_limit {
            None => work.await,
            Some(limit) => {
                let limit = limit + Duration::from_secs(bytes as u64 / SLOWEST);
                let late = || {
                    Error::unavailable(format!("no answer within {}", human(limit)))
                        .with_kind(Kind::Unavailable { maybe_applied: true })
                };
                tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
            }
        };
        if let Err(e) = &done {
            self.unsure |= e.kind() == Kind::Unavailable { maybe_applied: true };
        }
        done
    }

    /// Starts counting anew: something came through.
    pub(super) fn progressed(&mut self) {
        self.made = 0;
        self.began = Instant::now();
    }

    /// Pauses before the next try; fails for good when the error will not go away or
    /// tries or time are used up. It never sleeps past the budget.
    pub(super) async fn again(&mut self, e: Error) -> Result<()> {
        if !is_transient(&e) {
            return Err(e);
        }
        let pause = self.pause(&e)?;
        let spent = self.began.elapsed();
        if self.made >= self.policy.attempts || spent + pause > self.policy.budget {
            return Err(self.give_up(spent, e));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Anything between nothing and the doubled pause, so that clients that failed
    /// together do not come back together; at least what the store asked for.
    fn pause(&self, e: &Error) -> Result<Duration> {
        let doubled = 1_u32.checked_shl(self.made.saturating_sub(1)).unwrap_or(u32::MAX);
        let most = self.policy.first_pause.saturating_mul(doubled).min(self.policy.last_pause);
        let mut draw = [0; 4];
        self.policy.ids.fill(&mut draw)?;
        let part = f64::from(u32::from_le_bytes(draw)) / f64::from(u32::MAX);
        let asked = e.details().get("retry_after_ms").and_then(serde_json::Value::as_u64);
        Ok(most.mul_f64(part).max(Duration::from_millis(asked.unwrap_or(0))))
    }

    fn give_up(&self, spent: Duration, e: Error) -> Error {
        let tries = if self.made == 1 { "attempt" } else { "attempts" };
        let message = format!(
            "{} failed after {} {tries} in {}: {}",
            self.what,
            self.made,
            human(spent),
            e.message()
        );
        let kind = Kind::Unavailable { maybe_applied: self.unsure };
        Error::new(kind, e.code(), message).with_source(e)
    }
}

/// `4m58s`, `12s`, `0.3s`.
fn human(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        secs @ 10..60 => format!("{secs}s"),
        secs => format!("{}m{:02}s", secs / 60, secs % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (ms, text) in [(0, "0.0s"), (340, "0.3s"), (12_900, "12s"), (298_000, "4m58s")] {
            assert_eq!(human(Duration::from_millis(ms)), text);
        }
    }
}
