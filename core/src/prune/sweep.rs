//! Sweep: deletes what nothing refers to, in batches, each under `objects` Exclusive.
//!
//! Writers hold `objects` Shared from the first object they store or rely on until
//! their refs are written. So whatever was published before a batch began is seen by
//! reading the documents again under the lock, and whatever is published later asks
//! for its objects again. Age is a courtesy, the lock is the safety.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;

use super::load;
use super::mark::{self, Marks};
use super::remove::{Removed, Remover};
use super::report::Failure;
use super::select::{LoadedChain, Removal};
use crate::clock::Context;
use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::store::{DeleteOutcome, Guard, ListedObject, LockMode, LockName, LockRequest, Store};

/// The most objects deleted under one hold of the lock.
pub(super) const BATCH: usize = 1000;

/// The objects of a store, as listed to the end.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Every object.
    pub all: HashSet<Digest>,
    /// Those that nothing refers to and that are old enough: digest and stored bytes.
    pub unmarked: Vec<(Digest, u64)>,
    /// Those that nothing refers to yet and that are too young.
    pub young: u64,
}

/// Lists every object. A listing that fails, or names an object twice, ends it: a
/// partial list would be read as "not there".
pub(super) async fn list(store: &dyn Store, marks: &Marks, grace: Duration) -> Result<Objects> {
    let mut out = Objects::default();
    let mut rows = store.list_objects();
    while let Some(row) = rows.next().await {
        let (digest, stored, age) = match row? {
            ListedObject::Object { digest, stored, age } => (digest, stored, age),
            ListedObject::Foreign(name) => {
                let own = name.strip_prefix("workspace-objects/").unwrap_or(&name);
                if load::is_other_store(&format!("/{own}")) {
                    return Err(load::other_store(&name));
                }
                continue;
            }
        };
        if !out.all.insert(digest) {
            let message = format!("the listing names object {digest} twice; nothing was deleted");
            return Err(Error::unavailable(message).with_code("listing"));
        }
        match marks.contains(&digest) {
            true => {}
            false if age < grace => out.young += 1,
            false => out.unmarked.push((digest, stored)),
        }
    }
    Ok(out)
}

/// What a sweep deleted.
#[derive(Debug, Default)]
pub(super) struct Swept {
    pub deleted: u64,
    pub bytes: u64,
    pub failed: Vec<Failure>,
    /// Documents that nothing reached.
    pub documents: Removed,
}

/// A sweep in progress.
pub(super) struct Sweep<'a> {
    pub store: &'a dyn Store,
    pub ctx: &'a Context,
    pub prune: &'a Guard,
    pub wait: Duration,
    pub command: &'a str,
}

impl Sweep<'_> {
    /// Deletes unreachable documents and unmarked objects, batch by batch.
    pub(super) async fn run(
        &self,
        chains: &[LoadedChain],
        removals: &[Removal],
        marks: &mut Marks,
        unmarked: &[(Digest, u64)],
    ) -> Result<Swept> {
        let mut out = Swept::default();
        let documents = removals.iter().any(|r| r.unreachable);
        if documents {
            let guard = self.lock().await?;
            self.ctx.faults.reach("prune.sweep")?;
            let Self { store, ctx, prune, .. } = *self;
            let remover = Remover { store, ctx, prune };
            guard.check()?;
            out.documents = remover.unreachable(chains, removals).await?;
            guard.release().await?;
        }
        for batch in unmarked.chunks(BATCH) {
            self.ctx.cancel.check()?;
            self.batch(marks, batch, &mut out).await?;
        }
        Ok(out)
    }

    async fn lock(&self) -> Result<Guard> {
        let (name, mode) = (LockName::Objects, LockMode::Exclusive);
        self.store.lock(LockRequest::new(name, mode, self.wait, self.command)).await
    }

    async fn batch(
        &self,
        marks: &mut Marks,
        batch: &[(Digest, u64)],
        out: &mut Swept,
    ) -> Result<()> {
        let guard = self.lock().await?;
        self.ctx.faults.reach("prune.sweep")?;
        marks.refresh(self.store, self.ctx).await?;
        if !marks.lost().is_empty() {
            return Err(mark::absent(self.store, self.ctx, &[], marks.lost()).await?);
        }
        let todo: Vec<&(Digest, u64)> = batch.iter().filter(|(d, _)| !marks.contains(d)).collect();
        let digests: Vec<Digest> = todo.iter().map(|(d, _)| *d).collect();
        self.prune.check()?;
        guard.check()?;
        let outcomes = self.store.delete_objects(&digests).await?;
        for ((digest, stored), outcome) in todo.into_iter().zip(outcomes) {
            match outcome {
                DeleteOutcome::Deleted => {
                    out.deleted += 1;
                    out.bytes += stored;
                }
                DeleteOutcome::Absent => {}
                DeleteOutcome::Failed(e) => {
                    let (name, error) = (digest.hex(), e.message().to_owned());
                    out.failed.push(Failure { name, error });
                }
            }
        }
        self.ctx.progress.advance(batch.len() as u64, 0);
        guard.release().await
    }
}
