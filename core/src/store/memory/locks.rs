//! Locks in memory: freed when the guard drops.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Backing, MemoryStore, wait_for_change};
use crate::error::{Error, Result};
use crate::store::{Guard, HeldLock, Holder, LockMode, LockName, LockRequest};

/// One lock name.
#[derive(Default)]
pub(super) struct Lock {
    /// The newest token given out.
    pub(super) token: u64,
    holders: Vec<(u64, LockMode, Holder)>,
    /// Exclusive requests that wait: no later Shared passes them.
    announced: usize,
    guards: u64,
}

struct Held {
    backing: Arc<Backing>,
    name: LockName,
    guard: u64,
    token: u64,
}

#[async_trait]
impl HeldLock for Held {
    fn token(&self) -> u64 {
        self.token
    }
    fn is_lost(&self) -> bool {
        false
    }
    async fn release(self: Box<Self>) -> Result<()> {
        super::pause().await;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lock) = self.backing.state().locks.get_mut(&self.name) {
            lock.holders.retain(|(guard, ..)| *guard != self.guard);
        }
        self.backing.notify();
    }
}

/// Counts a waiting Exclusive for as long as it waits.
struct Announced<'a>(&'a Backing, &'a LockName);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0.state().locks.get_mut(self.1) {
            lock.announced = lock.announced.saturating_sub(1);
        }
        self.0.notify();
    }
}

impl MemoryStore {
    pub(super) async fn take_lock(&self, request: LockRequest) -> Result<Guard> {
        let end = Instant::now() + request.wait;
        let mut seen = self.backing.changed.subscribe();
        let mut announced = None;
        loop {
            seen.borrow_and_update();
            match self.try_lock(&request) {
                Ok(guard) => return Ok(guard),
                Err(busy) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(busy);
                    }
                    if request.mode == LockMode::Exclusive && announced.is_none() {
                        let mut state = self.backing.state();
                        state.locks.entry(request.name.clone()).or_default().announced += 1;
                        announced = Some(Announced(&self.backing, &request.name));
                    }
                    wait_for_change(&mut seen, left).await;
                }
            }
        }
    }

    pub(super) fn exclusive_holder(&self, name: &LockName) -> Option<Holder> {
        let state = self.backing.state();
        let holders = &state.locks.get(name)?.holders;
        let exclusive = holders.iter().find(|(_, mode, _)| *mode == LockMode::Exclusive);
        exclusive.map(|(_, _, holder)| holder.clone())
    }

    fn try_lock(&self, request: &LockRequest) -> Result<Guard, Error> {
        let mut state = self.backing.state();
        let lock = state.locks.entry(request.name.clone()).or_default();
        let exclusive = request.mode == LockMode::Exclusive;
        let in_the_way = match exclusive {
            true => lock.holders.first(),
            false => lock.holders.iter().find(|(_, mode, _)| *mode == LockMode::Exclusive),
        };
        if let Some((_, _, holder)) = in_the_way {
            return Err(holder.busy(&request.name));
        }
        if !exclusive && lock.announced > 0 {
            let holder = lock.holders.first().map(|(_, _, h)| h.clone()).unwrap_or_default();
            return Err(holder.busy(&request.name));
        }
        lock.guards += 1;
        lock.token += u64::from(exclusive);
        let holder = Holder {
            guard: lock.guards.to_string(),
            program: request.command.clone(),
            host: String::from("memory"),
            pid: 0,
            run_id: request.run_id.as_ref().map(ToString::to_string),
            refs: request.refs.iter().map(ToString::to_string).collect(),
            since: String::from("1970-01-01T00:00:00Z"),
            ..Holder::default()
        };
        lock.holders.push((lock.guards, request.mode, holder));
        let (guard, token) = (lock.guards, lock.token);
        let (backing, name) = (self.backing.clone(), request.name.clone());
        let held = Held { backing, name: name.clone(), guard, token };
        Ok(Guard::new(name, Box::new(held)))
    }
}
