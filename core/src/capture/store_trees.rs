//! Making every object of an observation be in the store: what the base holds, what
//! `contains` knows, and what has to be stored.

use std::collections::BTreeSet;

use super::{Held, Job, Recorder};
use crate::diff::{self, DeltaCounts, NewRef, ObservedTrees, Side, Stored};
use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::object::chunk;
use crate::observe::{Observation, Observed};
use crate::path::RelPath;
use crate::snapshot::chain;
use crate::snapshot::tree::Ref;
use crate::tasks;

/// Objects asked for or put in one call.
const BATCH: usize = 256;
/// The fewest trees of one call, where splitting lets more threads work.
const MIN_BATCH: usize = 32;
/// Bytes of trees put in one call.
const BATCH_BYTES: usize = 8 << 20;

/// What the base does not hold at the same path.
#[derive(Default)]
struct Unheld {
    files: Vec<(RelPath, Ref)>,
    trees: Vec<Digest>,
    added: Vec<(RelPath, u64)>,
}

impl Recorder {
    /// Stores what is missing. Files that must be read for it come back in `forced`
    /// with the observation, for another look.
    pub(super) async fn hold_all(
        &self,
        job: &Job<'_>,
        observation: Observation,
        forced: &mut BTreeSet<RelPath>,
    ) -> Result<Result<Held, Observation>> {
        job.hold.ensure().await?;
        let trees = ObservedTrees::new(&observation.observed);
        let mut unheld = Unheld::default();
        let mut note = |new: NewRef<'_>| {
            if new.is_tree {
                unheld.trees.push(new.reference.digest);
            } else {
                unheld.files.push((new.path.clone(), new.reference.clone()));
                if new.added {
                    unheld.added.push((new.path.clone(), new.reference.length));
                }
            }
        };
        let counts = self.compare(job, &observation.observed, &trees, &mut note).await?;
        let missing = self.missing_files(job, &unheld.files).await?;
        if !missing.is_empty() {
            forced.extend(missing);
            return Ok(Err(observation));
        }
        self.put_trees(job, &observation.observed, &trees, unheld.trees).await?;
        self.put_evidence(job, &observation.observed).await?;
        drop(trees);
        Ok(Ok(Held { observation, counts, added: unheld.added }))
    }

    /// Compares with the base and reports what it does not hold. The counts are those
    /// against the head; `None` without one, or when its trees cannot be read (then
    /// nothing counts as held).
    pub(super) async fn compare(
        &self,
        job: &Job<'_>,
        observed: &Observed,
        trees: &ObservedTrees<'_>,
        note: &mut (dyn FnMut(NewRef<'_>) + Send),
    ) -> Result<Option<DeltaCounts>> {
        let stored = Stored(&*self.store);
        let new = Side { root: Some(&observed.root), trees };
        if let Some(head) = &job.head {
            // Read again, now that the lock is held: prune may have taken it.
            let base = Side { root: Some(&head.root), trees: &stored };
            let compared = match chain::read_snapshot(&*self.store, &self.chain, &head.id).await {
                Ok(_) => self.compare_sides(base, new, note).await,
                Err(e) => Err(e),
            };
            match compared {
                Ok(counts) => return Ok(Some(counts)),
                Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        let none = Side { root: None, trees: &stored };
        diff::delta(none, new, note).await?;
        Ok(None)
    }

    /// Notes only what a whole comparison found: half of one that broke off, and then
    /// all of the next, would count paths twice.
    async fn compare_sides(
        &self,
        base: Side<'_>,
        new: Side<'_>,
        note: &mut (dyn FnMut(NewRef<'_>) + Send),
    ) -> Result<DeltaCounts> {
        let mut found: Vec<(RelPath, bool, bool, Ref)> = Vec::new();
        let counts = diff::delta(base, new, &mut |n| {
            found.push((n.path.clone(), n.is_tree, n.added, n.reference.clone()));
        })
        .await?;
        for (path, is_tree, added, reference) in &found {
            note(NewRef { path, is_tree: *is_tree, added: *added, reference });
        }
        Ok(counts)
    }

    /// Files that were not read now and whose objects the store does not hold.
    async fn missing_files(&self, job: &Job<'_>, files: &[(RelPath, Ref)]) -> Result<Vec<RelPath>> {
        let mut asked: Vec<(usize, (Digest, u64))> = Vec::new();
        for (i, (_, content)) in files.iter().enumerate() {
            let unknown = content.objects().filter(|(d, _)| !job.sink.offered(d));
            asked.extend(unknown.map(|o| (i, o)));
        }
        let mut missing: Vec<usize> = Vec::new();
        for batch in asked.chunks(BATCH) {
            let names: Vec<(Digest, u64)> = batch.iter().map(|(_, o)| *o).collect();
            let there = self.store.contains(&names).await?;
            for ((i, (digest, _)), there) in batch.iter().zip(there) {
                if !there || job.damaged.contains(digest) {
                    missing.push(*i);
                }
            }
        }
        missing.dedup();
        Ok(missing.into_iter().map(|i| files[i].0.clone()).collect())
    }

    /// Stores again the damaged trees, rules and records of a workspace that is as its
    /// head says.
    pub(super) async fn heal_trees(&self, job: &Job<'_>, observed: &Observed) -> Result<()> {
        if job.damaged.is_empty() || job.request.dry_run {
            return Ok(());
        }
        job.hold.ensure().await?;
        let trees = ObservedTrees::new(observed);
        self.put_trees(job, observed, &trees, Vec::new()).await?;
        self.put_evidence(job, observed).await
    }

    async fn put_trees(
        &self,
        job: &Job<'_>,
        observed: &Observed,
        trees: &ObservedTrees<'_>,
        mut wanted: Vec<Digest>,
    ) -> Result<()> {
        let damaged = observed.dirs.iter().filter_map(|d| d.tree.as_ref());
        let damaged = damaged.filter(|t| t.objects().any(|(d, _)| job.damaged.contains(&d)));
        wanted.extend(damaged.map(|t| t.digest));
        let mut seen = BTreeSet::new();
        wanted.retain(|d| seen.insert(*d));
        let threads = self.settings.observe.threads.max(1);
        // Few trees are split as well, so that nobody is idle while the disk works.
        let share = wanted.len().div_ceil(2 * threads).clamp(MIN_BATCH, BATCH);
        let puts = wanted.chunks(share).map(|digests| async move {
            self.ctx.cancel.check()?;
            let mut batch = Vec::new();
            for digest in digests {
                let tree = trees.tree(digest).ok_or_else(|| {
                    Error::failed("io", format!("tree {digest} is not of this observation"))
                })?;
                batch.extend(chunk::objects(tree.encode()?)?);
                if batch.iter().map(|o| o.bytes().len()).sum::<usize>() >= BATCH_BYTES {
                    job.sink.put(std::mem::take(&mut batch)).await?;
                }
            }
            job.sink.put(batch).await
        });
        tasks::all(puts, threads + 1).await?;
        Ok(())
    }

    /// The rule set, and the coverage records when they are long.
    async fn put_evidence(&self, job: &Job<'_>, observed: &Observed) -> Result<()> {
        let mut objects = chunk::objects(observed.rules.encode())?;
        if let Some(bytes) = super::publish::long_records(&observed.coverage) {
            objects.extend(chunk::objects(bytes)?);
        }
        job.sink.put(objects).await
    }
}
