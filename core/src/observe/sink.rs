//! Where content goes as it is read.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::Result;
use crate::ids::Digest;
use crate::store::hold::Hold;
use crate::store::{Object, PutObjects, PutOutcome, Store};

/// Where content goes as it is read.
pub struct Sink {
    store: Arc<dyn Store>,
    damaged: BTreeSet<Digest>,
    hold: Arc<Hold>,
    objects: AtomicU64,
    bytes: AtomicU64,
    healed: AtomicU64,
    rewritten: Mutex<BTreeSet<Digest>>,
    offered: Mutex<HashSet<Digest>>,
}

impl Sink {
    /// A sink into `store`. Objects in `damaged` are stored again without looking.
    /// `hold` is taken before the first write.
    pub fn new(store: Arc<dyn Store>, damaged: BTreeSet<Digest>, hold: Arc<Hold>) -> Self {
        Self {
            store,
            damaged,
            hold,
            offered: Mutex::new(HashSet::new()),
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            rewritten: Mutex::new(BTreeSet::new()),
        }
    }

    /// Makes the objects be in the store. Fails naming the first that could not be.
    /// What went through here before is not looked at again.
    pub async fn put(&self, mut batch: Vec<Object>) -> Result<()> {
        {
            let offered = lock(&self.offered);
            let mut twice = HashSet::new();
            batch.retain(|o| !offered.contains(&o.digest()) && twice.insert(o.digest()));
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.hold.ensure().await?;
        let (again, check): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|o| self.damaged.contains(&o.digest()));
        for (mode, part) in [(PutObjects::Check, check), (PutObjects::Rewrite, again)] {
            if part.is_empty() {
                continue;
            }
            let names: Vec<Digest> = part.iter().map(Object::digest).collect();
            let outcomes = self.store.put_objects(part, mode).await?;
            for (digest, outcome) in names.iter().zip(outcomes) {
                self.account(*digest, outcome, mode)?;
            }
            lock(&self.offered).extend(names);
        }
        Ok(())
    }

    fn account(&self, digest: Digest, outcome: PutOutcome, mode: PutObjects) -> Result<()> {
        match outcome {
            PutOutcome::Failed(e) => return Err(e),
            PutOutcome::Present => return Ok(()),
            PutOutcome::Healed { stored } => {
                self.healed.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(stored, Ordering::Relaxed);
            }
            PutOutcome::Stored { stored } => {
                self.objects.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(stored, Ordering::Relaxed);
                if mode == PutObjects::Rewrite {
                    self.healed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if mode == PutObjects::Rewrite {
            lock(&self.rewritten).insert(digest);
        }
        Ok(())
    }

    /// New objects, bytes as stored, and objects that were wrong and are right now.
    pub fn stored(&self) -> (u64, u64, u64) {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        (get(&self.objects), get(&self.bytes), get(&self.healed))
    }

    /// Damaged objects that were stored again, to be dropped from the damage list.
    pub fn rewritten(&self) -> Vec<Digest> {
        lock(&self.rewritten).iter().copied().collect()
    }

    /// Forgets what went through here: the hold on the store was lost meanwhile.
    pub fn forget(&self) {
        lock(&self.offered).clear();
    }

    /// True if this object went through here, and so is in the store.
    pub fn offered(&self, digest: &Digest) -> bool {
        lock(&self.offered).contains(digest)
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
