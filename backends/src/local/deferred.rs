//! Shared locks asked for while there is no store: a reading command creates nothing,
//! and what does not exist nobody can hold.

use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
use backtrail_core::error::Result;
use backtrail_core::store::{HeldLock, LockRequest};

use super::blocking;
use super::fs::Root;
use super::handle::{Handle, locked};
use super::locks::{Attempt, Hold};

/// A lock asked for while the store did not exist: there is nothing yet that anybody
/// could hold. The first write of the handle takes it for real.
pub(super) struct Deferred {
    request: LockRequest,
    slot: Weak<Mutex<Slot>>,
}

enum Slot {
    Waiting,
    Held(Hold),
    Lost,
}

struct DeferredHold {
    handle: Arc<Handle>,
    slot: Arc<Mutex<Slot>>,
}

#[async_trait]
impl HeldLock for DeferredHold {
    fn token(&self) -> u64 {
        match &*locked(&self.slot) {
            Slot::Held(hold) => hold.token,
            _ => 0,
        }
    }
    fn is_lost(&self) -> bool {
        // Another process may have made the store meanwhile: then it is time to take
        // the lock, or to learn that somebody else has it.
        if matches!(&*locked(&self.slot), Slot::Waiting)
            && let Ok(Some(root)) = self.handle.read()
        {
            self.handle.take_deferred(&root);
        }
        match &*locked(&self.slot) {
            Slot::Waiting => false,
            Slot::Held(hold) => hold.is_lost(),
            Slot::Lost => true,
        }
    }
    async fn release(self: Box<Self>) -> Result<()> {
        blocking(move || Ok(drop(self))).await
    }
}

/// Puts a Shared lock off until there is a store.
pub(super) fn defer(handle: &Arc<Handle>, request: &LockRequest) -> Box<dyn HeldLock> {
    let slot = Arc::new(Mutex::new(Slot::Waiting));
    let deferred = Deferred { request: request.clone(), slot: Arc::downgrade(&slot) };
    locked(&handle.deferred).push(deferred);
    Box::new(DeferredHold { handle: handle.clone(), slot })
}

impl Handle {
    /// Takes the locks that were asked for before there was a store.
    pub(super) fn take_deferred(&self, root: &Root) {
        let waiting = std::mem::take(&mut *locked(&self.deferred));
        for Deferred { request, slot } in waiting {
            let Some(slot) = slot.upgrade() else { continue };
            *locked(&slot) = self.take_now(root, request).map_or(Slot::Lost, Slot::Held);
        }
    }

    fn take_now(&self, root: &Root, request: LockRequest) -> Option<Hold> {
        let root = Arc::new(Root { fd: root.fd.try_clone().ok()?, path: root.path.clone() });
        Attempt::new(request).shared_now(self, root).ok().flatten()
    }
}
