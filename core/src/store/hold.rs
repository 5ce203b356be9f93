//! The `objects` lock of a writer: taken at the first store write or the first
//! reliance on an object that is already there, held until the refs are written.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::{DocKey, Guard, LockMode, LockName, LockRequest, Store};
use crate::error::Result;

/// A lazily taken Shared hold on `objects`.
pub struct Hold {
    store: Arc<dyn Store>,
    request: LockRequest,
    guard: Mutex<Option<Guard>>,
}

impl Hold {
    /// Prepares the hold; nothing is taken yet. `refs` is the document that whoever
    /// breaks the hold must rewrite (CLD-G9).
    pub fn new(store: Arc<dyn Store>, wait: Duration, command: &str, refs: DocKey) -> Self {
        let mut request = LockRequest::new(LockName::Objects, LockMode::Shared, wait, command);
        request.refs = vec![refs];
        Self { store, request, guard: Mutex::new(None) }
    }

    /// Takes the lock unless it is held already.
    pub async fn ensure(&self) -> Result<()> {
        let mut guard = self.guard.lock().await;
        if guard.is_none() {
            *guard = Some(self.store.lock(self.request.clone()).await?);
        }
        Ok(())
    }

    /// True if the hold can still be trusted; a lost one is given up, so that the
    /// next [`Hold::ensure`] takes a new one.
    pub async fn is_ours(&self) -> bool {
        let mut guard = self.guard.lock().await;
        let ours = guard.as_ref().is_none_or(|g| g.check().is_ok());
        if !ours {
            *guard = None;
        }
        ours
    }

    /// Frees the lock.
    pub async fn release(&self) -> Result<()> {
        match self.guard.lock().await.take() {
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }
}
