//! The budget: one warning a dimension and run, then the end.

use std::time::Duration;

use serde_json::{Number, Value};

use super::state::{Phase, Stopping};
use super::{Action, Failure, Line, Machine, Refusal};
use crate::run::{EngineEvent, FailureCode};
use crate::workflow::file::definition::Budget;

/// A limit and what was used of it; of a duration in milliseconds.
struct Dimension {
    name: &'static str,
    used: f64,
    limit: f64,
}

impl Dimension {
    fn values(&self) -> (Value, Value) {
        (number(self.used), number(self.limit))
    }
}

/// A whole number where it is one.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

impl Machine {
    fn elapsed(&self) -> Duration {
        self.state.spent.before.saturating_add(self.active)
    }

    fn dimensions(&self) -> Vec<Dimension> {
        let Budget { duration, iterations, tokens, cost_usd, .. } = self.budget;
        let spent = &self.state.spent;
        let ms = |d: Duration| d.as_secs_f64() * 1000.0;
        let all = [
            ("duration", ms(self.elapsed()).floor(), duration.map(ms)),
            ("iterations", spent.executions as f64, Some(iterations as f64)),
            ("tokens", spent.tokens as f64, tokens.map(|n| n as f64)),
            ("cost_usd", spent.cost, cost_usd),
        ];
        let limited = all.into_iter().filter_map(|(name, used, limit)| Some((name, used, limit?)));
        limited.map(|(name, used, limit)| Dimension { name, used, limit }).collect()
    }

    /// Warns where a share is used up, and says whether a limit is reached.
    pub(super) fn check_budget(&mut self) -> bool {
        for dimension in self.dimensions() {
            let Dimension { name, used, limit } = dimension;
            let fired = format!("budget_warning:{name}");
            if used >= limit * self.budget.warn_at && self.state.fired.insert(fired) {
                let (used, limit) = dimension.values();
                let dimension = name.to_owned();
                let event = EngineEvent::BudgetWarning { dimension, used, limit };
                self.push_run_event(event);
            }
            if used >= limit && !std::mem::replace(&mut self.state.exhausted, true) {
                self.exceeded(&dimension, None);
            }
        }
        self.state.exhausted
    }

    fn exceeded(&mut self, dimension: &Dimension, hard_limit: Option<Value>) {
        let (used, limit) = dimension.values();
        let dimension = dimension.name.to_owned();
        self.push_run_event(EngineEvent::BudgetExceeded { dimension, used, limit, hard_limit });
    }

    /// Budget events carry the node that the run stands at.
    fn push_run_event(&mut self, event: EngineEvent) {
        self.emit(Some(Line::Main), event);
    }

    /// The first dimension of which nothing is left.
    pub(super) fn spent_dimension(&self) -> Option<Refusal> {
        let spent = self.dimensions().into_iter().find(|d| d.used >= d.limit)?;
        Some(Refusal::BudgetSpent { dimension: spent.name, used: spent.used, limit: spent.limit })
    }

    /// Why a run whose budget is spent fails.
    pub(super) fn budget_failure(&self) -> Failure {
        let text = match self.dimensions().into_iter().find(|d| d.used >= d.limit) {
            Some(d) => {
                let (used, limit) = d.values();
                let unit = if d.name == "duration" { " ms" } else { "" };
                format!("the budget is spent: {} {used} of {limit}{unit}", d.name)
            }
            None => String::from("the budget is spent"),
        };
        Failure::new(FailureCode::BUDGET_EXCEEDED, text)
    }

    /// The moments at which the duration matters: warning, limit, hard limit.
    fn moments(&self) -> Option<[Duration; 3]> {
        let limit = self.budget.duration?;
        let at = |share: f64| Duration::try_from_secs_f64(limit.as_secs_f64() * share);
        let hard = at(self.budget.hard).unwrap_or(Duration::MAX);
        Some([at(self.budget.warn_at).unwrap_or(limit), limit, hard])
    }

    /// Asks to be woken at the next of these moments.
    pub(super) fn wake(&mut self) {
        let (Some(moments), now) = (self.moments(), self.elapsed()) else { return };
        if let Some(next) = moments.into_iter().find(|m| *m > now) {
            self.push(Action::WakeAt(next.saturating_sub(self.state.spent.before)));
        }
    }

    /// Time passed: warn, let nothing more begin, or stop what executes.
    pub(super) fn clock(&mut self) {
        self.check_budget();
        let Some([_, limit, hard]) = self.moments() else { return };
        let now = self.elapsed();
        if now < limit {
            return self.wake();
        }
        if now >= hard && !self.running().is_empty() && !self.halting() {
            for dimension in self.dimensions().iter().filter(|d| d.name == "duration") {
                let hard = number((hard.as_secs_f64() * 1000.0).floor());
                self.exceeded(dimension, Some(hard));
            }
            self.stop(Stopping::Budget);
        } else {
            self.wake();
        }
        let waits = |phase| matches!(phase, Phase::Delayed | Phase::Ready | Phase::Branching);
        if self.running().is_empty() && waits(self.state.main.phase) && !self.state.ended {
            self.out_of_budget(Line::Main);
        }
    }
}
