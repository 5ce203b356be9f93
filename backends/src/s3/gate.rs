//! How many requests are in flight: at most so many, half of that after a server said
//! that it is too much, and one more for every fifty that went well.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Never fewer than this.
const LEAST: usize = 2;
/// Successes after which one more is allowed.
const CALM: usize = 50;

pub(super) struct Gate {
    places: Semaphore,
    most: usize,
    state: Mutex<State>,
}

struct State {
    limit: usize,
    /// Places to take away as they come back.
    debt: usize,
    calm: usize,
    not_before: Option<Instant>,
}

/// A place in the gate; given back when dropped.
pub(super) struct Place<'a> {
    gate: &'a Gate,
    permit: Option<SemaphorePermit<'a>>,
}

impl Gate {
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        let state = State { limit: most, debt: 0, calm: 0, not_before: None };
        Self { places: Semaphore::new(most), most, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// How many may be in flight now.
    pub(super) fn limit(&self) -> usize {
        self.state().limit
    }

    /// Waits for a place, and for the time that the server asked for.
    pub(super) async fn enter(&self) -> Place<'_> {
        let permit = self.places.acquire().await.ok();
        let until = self.state().not_before;
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
        Place { gate: self, permit }
    }

    /// The server is overloaded.
    pub(super) fn too_much(&self, retry_after: Option<Duration>) {
        let mut state = self.state();
        let limit = (state.limit / 2).max(LEAST.min(self.most));
        state.debt += state.limit - limit;
        state.limit = limit;
        state.calm = 0;
        if let Some(pause) = retry_after {
            state.not_before = Some(Instant::now() + pause);
        }
    }

    /// A request went well.
    pub(super) fn went_well(&self) {
        let mut state = self.state();
        state.calm += 1;
        if state.calm < CALM || state.limit == self.most {
            return;
        }
        state.calm = 0;
        state.limit += 1;
        match state.debt {
            0 => self.places.add_permits(1),
            _ => state.debt -= 1,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if state.debt > 0
            && let Some(permit) = self.permit.take()
        {
            state.debt -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_when_it_is_too_much_and_back_one_by_one() {
        let gate = Gate::new(16);
        let mut limits = Vec::new();
        for _ in 0..5 {
            gate.too_much(None);
            limits.push(gate.limit());
        }
        assert_eq!(limits, [8, 4, 2, 2, 2]);
        (0..CALM * 3).for_each(|_| gate.went_well());
        assert_eq!(gate.limit(), 5);
        (0..CALM * 30).for_each(|_| gate.went_well());
        assert_eq!(gate.limit(), 16);
    }

    #[tokio::test]
    async fn places_follow_the_limit() {
        let gate = Gate::new(4);
        let held = [gate.enter().await, gate.enter().await, gate.enter().await];
        gate.too_much(None);
        drop(held);
        assert_eq!(gate.places.available_permits(), 2);
        (0..CALM * 2).for_each(|_| gate.went_well());
        assert_eq!(gate.places.available_permits(), 4);
    }
}
