//! What one capture leaves in memory for the next of the same process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::snapshot::chain::LoadedRefs;
use crate::workspace::Root;
use crate::workspace::cache::StatCache;

/// The stat cache and the refs as the last capture left them, so that the next need not
/// read and decode them again. Neither is trusted: a cache entry is evidence or is not,
/// and refs count only while the store still has their version. Copies share it.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    cache: Option<StatCache>,
    refs: Option<LoadedRefs>,
}

impl Kept {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_cache(&self, root: &Root) -> Option<StatCache> {
        self.memory().cache.take().filter(|cache| cache.is_of(root))
    }

    pub(super) fn take_refs(&self) -> Option<LoadedRefs> {
        self.memory().refs.take()
    }

    pub(super) fn keep_cache(&self, cache: StatCache) {
        self.memory().cache = Some(cache);
    }

    /// Keeps refs that were read and not changed.
    pub(super) fn keep_refs(&self, refs: LoadedRefs) {
        self.memory().refs = Some(refs);
    }
}
