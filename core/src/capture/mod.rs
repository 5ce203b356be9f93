//! Capture: walk → rules → cache → hash → objects → trees → snapshot → label.
//!
//! Read [`Recorder::capture`] from top to bottom: it is the whole line. A kill between
//! two steps leaves garbage that prune collects, never a dangling name.

mod kept;
mod marks;
mod operation;
mod publish;
mod store_trees;
mod types;
mod warn;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use kept::Kept;
pub use marks::Alias;
pub use types::{
    Amount, Captured, Check, CoverageSummary, Late, MAX_MESSAGE, NewLabel, Request, Settings,
    StoredAmount,
};

use crate::clock::{Context, Timestamp};
use crate::damage;
use crate::diff::{DeltaCounts, ObservedTrees};
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, Digest};
use crate::observe::{self, Observation, Observed, Sink, Warning};
use crate::path::RelPath;
use crate::snapshot::chain::{self, LoadedRefs};
use crate::snapshot::doc::{Operation, Snapshot};
use crate::store::hold::Hold;
use crate::store::{DocKey, LockMode, LockName, LockRequest, Store};
use crate::tasks::blocking;
use crate::workspace::Root;
use crate::workspace::cache::StatCache;

/// How often a capture looks again because content it relied on was not held.
const MAX_ROUNDS: usize = 6;

/// Records the states of one workspace in one chain.
pub struct Recorder {
    store: Arc<dyn Store>,
    ctx: Context,
    root: Root,
    chain: Chain,
    settings: Settings,
}

/// What one capture works with once its locks are held.
struct Job<'a> {
    request: &'a Request,
    started: Timestamp,
    refs: LoadedRefs,
    head: Option<Snapshot>,
    operation: Option<Operation>,
    damaged: BTreeSet<Digest>,
    hold: Arc<Hold>,
    sink: Sink,
    warnings: Vec<Warning>,
}

/// A workspace whose objects are all in the store.
struct Held {
    observation: Observation,
    counts: Option<DeltaCounts>,
    added: Vec<(RelPath, u64)>,
}

impl Recorder {
    /// A recorder of `root` in `chain`. Touches nothing yet.
    pub fn open(
        store: Arc<dyn Store>,
        ctx: Context,
        root: Root,
        chain: Chain,
        settings: Settings,
    ) -> Self {
        Self { store, ctx, root, chain, settings }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
    /// The root.
    pub fn root(&self) -> &Root {
        &self.root
    }
    /// The chain.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }
    /// What operations are handed.
    pub fn context(&self) -> &Context {
        &self.ctx
    }
    /// How it works.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Records the workspace as it is now. Ok means durable.
    ///
    /// An unchanged workspace adds no snapshot: the label is pointed at the head.
    /// Fails with the codes of `docs/exit-codes.md`; nothing is published then.
    pub async fn capture(&self, request: &Request) -> Result<Captured> {
        self.capture_seen(request, None).await
    }

    /// As [`Recorder::capture`] with a look at the workspace that was just taken, so
    /// that it is not walked again. Paths of `must_store` were read and stored by the
    /// caller, who holds `objects`; for anything else that the store lacks, the
    /// workspace is looked at once more.
    pub(crate) async fn capture_seen(
        &self,
        request: &Request,
        mut seen: Option<Observation>,
    ) -> Result<Captured> {
        check_request(request)?;
        let started = self.ctx.clock.now();
        let _workspace = if request.locked { None } else { Some(self.lock_workspace().await?) };
        // Whoever holds the lock throughout asked once.
        if let Some(check) = self.settings.check.as_ref().filter(|_| !request.locked) {
            check(&self.root).await?;
        }
        // A dry run writes nothing that somebody else could meanwhile.
        let _chain = match request.dry_run {
            true => None,
            false => {
                Some(self.lock(LockName::Chain(self.chain.clone()), LockMode::Exclusive).await?)
            }
        };

        let mut job = self.prepare(request, started).await?;
        if let Some(done) = self.repeated(&job).await? {
            return Ok(done);
        }
        check_label(request, &job.refs, true)?;
        let mut forced = request.must_store.clone();
        let mut cache = None;
        for _ in 0..MAX_ROUNDS {
            let observation = match seen.take() {
                Some(seen) => seen,
                None => self.look(&job, &forced, cache.take()).await?,
            };
            if self.force_damaged(&job, &observation.observed, &mut forced) {
                cache = Some(observation.cache);
                continue;
            }
            self.root.check_same()?;
            if job.is_unchanged(&self.root, &self.ctx, &observation.observed) {
                return self.unchanged(job, observation).await;
            }
            check_label(request, &job.refs, false)?;
            if request.dry_run {
                return self.dry_run(job, observation).await;
            }
            let held = match self.hold_all(&job, observation, &mut forced).await? {
                Ok(held) => held,
                Err(observation) => {
                    cache = Some(observation.cache);
                    continue;
                }
            };
            self.store.flush().await?;
            self.ctx.faults.reach("capture.trees")?;
            if !job.hold.is_ours().await {
                // Prune may have swept what was relied on: look at everything again.
                job.sink.forget();
                cache = Some(held.observation.cache);
                continue;
            }
            self.root.check_same()?;
            return self.publish(&mut job, held).await;
        }
        Err(Error::unavailable("content kept disappearing from the store while it was captured"))
    }

    async fn lock_workspace(&self) -> Result<crate::store::Guard> {
        self.lock(LockName::Workspace(self.root.key.clone()), LockMode::Shared).await
    }

    async fn lock(&self, name: LockName, mode: LockMode) -> Result<crate::store::Guard> {
        let request = LockRequest::new(name, mode, self.settings.wait, &self.settings.command);
        self.store.lock(request).await
    }

    /// Reads refs, head and damage list.
    async fn prepare<'a>(&self, request: &'a Request, started: Timestamp) -> Result<Job<'a>> {
        let operation = self.operation(request)?;
        let known = self.settings.kept.as_ref().and_then(Kept::take_refs);
        let refs = chain::load_refs_again(&*self.store, &self.chain, known).await?;
        let mut warnings = Vec::new();
        if let Some(notice) = &refs.rebuilt {
            warnings.push(warn::plain("refs-rebuilt", notice.clone()));
        }
        let head = match &refs.refs.head {
            None => None,
            Some(id) => match chain::read_snapshot(&*self.store, &self.chain, id).await {
                Ok(head) => Some(head),
                Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::NotFound) => {
                    let hint = format!("the head cannot be used as a base: {}", e.message());
                    warnings.push(warn::plain("head-unreadable", hint));
                    None
                }
                Err(e) => return Err(e),
            },
        };
        let damaged = damage::load(&*self.store).await?.digests;
        let hold = Arc::new(Hold::new(
            self.store.clone(),
            self.settings.wait,
            &self.settings.command,
            DocKey::Refs(self.chain.clone()),
        ));
        let sink = Sink::new(self.store.clone(), damaged.clone(), hold.clone());
        Ok(Job { request, started, refs, head, operation, damaged, hold, sink, warnings })
    }

    async fn load_cache(&self) -> Result<StatCache> {
        if let Some(cache) = self.settings.kept.as_ref().and_then(|k| k.take_cache(&self.root)) {
            return Ok(cache);
        }
        let (dir, root) = (self.settings.cache_dir.clone(), self.root.clone());
        blocking(move || Ok(StatCache::load(dir.as_deref(), &root))).await
    }

    async fn look(
        &self,
        job: &Job<'_>,
        forced: &BTreeSet<RelPath>,
        cache: Option<StatCache>,
    ) -> Result<Observation> {
        let cache = match cache {
            Some(cache) => cache,
            None => self.load_cache().await?,
        };
        let mut settings = self.settings.observe.clone();
        settings.rehash |= job.request.rehash;
        settings.must_read = forced.clone();
        if job.request.bank.is_some() {
            settings.must_store = job.request.must_store.clone();
            settings.any_count = true;
        }
        let sink = (!job.request.dry_run).then_some(&job.sink);
        let mut seen = observe::observe(&self.ctx, &self.root, &settings, cache, sink).await?;
        // A bank counts no files, but it is no other set of rules: the same state must
        // be the same snapshot.
        seen.observed.rules.limits.max_files = self.settings.observe.max_files;
        Ok(seen)
    }

    /// Adds files whose objects are on the damage list, so that they are read and
    /// stored again. True if any was added.
    fn force_damaged(
        &self,
        job: &Job<'_>,
        observed: &Observed,
        forced: &mut BTreeSet<RelPath>,
    ) -> bool {
        if job.damaged.is_empty() || job.request.dry_run {
            return false;
        }
        let before = forced.len();
        for (dir, entry, content) in observed.files() {
            let hit = |(digest, _): (Digest, u64)| {
                job.damaged.contains(&digest) && !job.sink.offered(&digest)
            };
            if content.objects().any(hit) {
                forced.insert(dir.path.join(&entry.name));
            }
        }
        forced.len() > before
    }

    /// Saves the cache; a failure is one warning.
    async fn save_cache(&self, mut cache: StatCache, warnings: &mut Vec<Warning>) -> Result<()> {
        self.ctx.faults.reach("capture.cache")?;
        if cache.is_dirty() {
            let temp = self.ctx.ids.hex(8)?;
            let saved;
            (cache, saved) = blocking(move || {
                let saved = cache.save(&temp);
                Ok((cache, saved))
            })
            .await?;
            if let Err(e) = saved {
                let hint = format!("{}, captures stay slow", e.message());
                warnings.push(warn::plain("cache-unwritable", hint));
            }
        }
        if let Some(kept) = &self.settings.kept {
            kept.keep_cache(cache);
        }
        Ok(())
    }

    /// The snapshot that `text` means, see [`chain::resolve`].
    pub async fn resolve(&self, text: &str) -> Result<Snapshot> {
        chain::resolve(&*self.store, &self.chain, text).await
    }

    /// Every reachable snapshot of the chain, newest first.
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let history = chain::History::load(&*self.store, &self.chain).await?;
        Ok(history.newest_first().into_iter().cloned().collect())
    }

    fn captured(&self, job: &Job<'_>, observed: Observed) -> Captured {
        let records = observed.coverage.records.as_deref().unwrap_or_default();
        let (objects, bytes, healed) = job.sink.stored();
        let mut warnings = observed.warnings.clone();
        warnings.extend(job.warnings.iter().cloned());
        Captured {
            created: false,
            id: None,
            chain: self.chain.clone(),
            seq: job.head.as_ref().map_or(0, |h| h.seq + 1),
            parent: job.head.as_ref().map(|h| h.id.clone()),
            label: None,
            workspace: self.root.identity(&self.ctx.host),
            counts: observed.counts,
            delta: None,
            changed_files: None,
            read: Amount { count: observed.read.0, bytes: observed.read.1 },
            reused: observed.reused,
            stored: StoredAmount { objects, bytes },
            healed,
            coverage: CoverageSummary::new(&observed.coverage, records),
            warnings,
            elapsed_ms: self.elapsed_ms(job.started),
            snapshot: None,
            observed: Arc::new(observed),
            cache: None,
        }
    }

    fn elapsed_ms(&self, since: Timestamp) -> u64 {
        u64::try_from((self.ctx.clock.now().0 - since.0) / 1_000_000).unwrap_or(0)
    }

    /// What a capture would do.
    async fn dry_run(&self, job: Job<'_>, observation: Observation) -> Result<Captured> {
        let counts = {
            let trees = ObservedTrees::new(&observation.observed);
            self.compare(&job, &observation.observed, &trees, &mut |_| {}).await?
        };
        let mut captured = self.captured(&job, observation.observed);
        captured.created = true;
        captured.delta = counts.map(|c| c.paths());
        captured.changed_files = counts.map(|c| c.files);
        Ok(captured)
    }
}

fn check_request(request: &Request) -> Result<()> {
    match request.message.as_ref().map_or(0, String::len) {
        0..=MAX_MESSAGE => Ok(()),
        len => {
            let text = format!("the message has {len} bytes, above the limit of {MAX_MESSAGE}");
            Err(Error::invalid(text))
        }
    }
}

/// Refuses to take a label from another snapshot unasked. Before the walk the head may
/// have it: an unchanged capture leaves it there.
fn check_label(request: &Request, refs: &LoadedRefs, head_may: bool) -> Result<()> {
    let NewLabel::Named(label) = &request.label else { return Ok(()) };
    let free = request.move_label || label.is_reserved();
    match refs.refs.labels.get(label) {
        Some(target)
            if !(free || head_may && refs.refs.head.as_ref() == Some(&target.snapshot)) =>
        {
            Err(Error::refused(
                "label-exists",
                format!("label {label} names snapshot {}", target.snapshot),
            )
            .with_hint(format!("backtrail capture --label {label} --move")))
        }
        _ => Ok(()),
    }
}

impl Job<'_> {
    /// Unchanged: tree, rules, workspace and coverage equal the head's, and no
    /// boundary was missed since.
    fn is_unchanged(&self, root: &Root, ctx: &Context, observed: &Observed) -> bool {
        let Some(head) = &self.head else { return false };
        self.request.rewound_to.is_none()
            && head.root == observed.root
            && head.rules.digest == observed.rules.digest()
            && head.workspace.same_directory(&root.identity(&ctx.host))
            && warn::same_coverage(&head.coverage, &observed.coverage)
            && self.refs.rebuilt.is_none()
            && !self.refs.refs.missing.values().any(|m| m.at > head.created_at)
    }
}
