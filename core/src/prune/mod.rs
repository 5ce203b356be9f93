//! Prune: select → mark → remove → sweep.
//!
//! 1. Every document that names objects is read. What cannot be read ends the prune.
//! 2. **Select** which snapshots go ([`select`], a pure function).
//! 3. **Mark** what the snapshots that stay refer to, and list all objects. What is
//!    marked and not listed ends the prune. Up to here nothing was written.
//! 4. **Remove** labels, then documents.
//! 5. **Sweep** the objects that are not marked, under the `objects` lock, marking
//!    again from what was published meanwhile.
//!
//! Marking comes before removing so that a store with damage is left as it is; the
//! documents that stay are the same before and after. A kill anywhere leaves whole
//! snapshots and garbage, which the next prune removes.

mod load;
mod mark;
mod policy;
mod records;
mod remove;
mod report;
mod select;
mod sweep;

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;

use crate::clock::{Context, Timestamp};
use crate::damage;
use crate::error::{Error, Result};
use crate::ids::{Digest, WorkspaceKey};
use crate::snapshot::doc::Snapshot;
use crate::store::{DocKey, Guard, LockMode, LockName, LockRequest, Store};

pub use policy::Policy;
pub use report::{Failure, Missing, Report};
pub use select::{
    Circumstances, Group, LoadedChain, Protection, PrunePlan, Removal, Row, RunState, select,
};

/// Clocks further apart than this are reported.
const SKEW_WARN_MS: i64 = 5 * 60 * 1000;
/// Clocks further apart than this stop a prune.
const SKEW_REFUSE_MS: i64 = 60 * 60 * 1000;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to keep.
    pub policy: Policy,
    /// The workspace the command works in; without one, all are "other workspaces".
    pub workspace: Option<WorkspaceKey>,
    /// Compute and report, write nothing.
    pub dry_run: bool,
    /// Go on only if the plan has this digest, or one that begins so (16 hex or more).
    pub plan: Option<String>,
    /// Unreferenced objects and unreachable documents younger than this are spared.
    pub grace: Duration,
    /// Go on although host and store disagree about the time.
    pub ignore_clock_skew: bool,
    /// Remove snapshots, sweep nothing.
    pub snapshots_only: bool,
    /// Sweep, remove no snapshot by retention.
    pub objects_only: bool,
    /// How long to wait for each lock.
    pub wait: Duration,
    /// The command, for messages to others.
    pub command: String,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            workspace: None,
            dry_run: false,
            plan: None,
            grace: Duration::from_hours(1),
            ignore_clock_skew: false,
            snapshots_only: false,
            objects_only: false,
            wait: Duration::from_secs(30),
            command: String::from("prune"),
        }
    }
}

/// Prunes a store. A store that holds nothing gives zeros and is not created.
///
/// Nothing is deleted when anything is unreadable (`corrupt`), of a newer format
/// (`newer`), missing (`corrupt`), or listed inconsistently (`unavailable`).
pub async fn prune(store: &dyn Store, ctx: &Context, request: &Request) -> Result<Report> {
    request.policy.check()?;
    if request.snapshots_only && request.objects_only {
        return Err(Error::invalid("--snapshots-only and --objects-only exclude each other"));
    }
    let mut report = Report::empty(store.info().url, request.policy.clone(), request.dry_run);
    if is_empty(store).await? {
        return Ok(report);
    }
    let now = check_clock(store, ctx, request, &mut report).await?;
    let guard = match request.dry_run {
        true => None,
        false => Some(lock(store, request).await?),
    };
    let prune = Prune { store, ctx, request, now };
    prune.run(guard.as_ref(), &mut report).await?;
    if let Some(guard) = guard {
        guard.release().await?;
    }
    Ok(report)
}

async fn lock(store: &dyn Store, request: &Request) -> Result<Guard> {
    let (name, mode) = (LockName::Prune, LockMode::Exclusive);
    store.lock(LockRequest::new(name, mode, request.wait, &request.command)).await
}

/// No marker, no document, no object: there is no store, and looking made none.
async fn is_empty(store: &dyn Store) -> Result<bool> {
    match store.get(&DocKey::Marker).await {
        Ok(_) => return Ok(false),
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    let listing = load::list(store).await?;
    if !listing.docs.is_empty() {
        return Ok(false);
    }
    let first = store.list_objects().next().await.transpose()?;
    Ok(first.is_none())
}

/// Compares the clocks; the store's clock now.
async fn check_clock(
    store: &dyn Store,
    ctx: &Context,
    request: &Request,
    report: &mut Report,
) -> Result<Timestamp> {
    let host = ctx.clock.now();
    let Some(ns) = store.health().await?.now_ns else { return Ok(host) };
    let now = Timestamp(ns);
    report.skew_ms = host.0.saturating_sub(now.0) / 1_000_000;
    let both = format!("the store's clock says {}, this host's {}", now.rfc3339(), host.rfc3339());
    if report.skew_ms.abs() > SKEW_REFUSE_MS && !request.ignore_clock_skew {
        return Err(Error::refused("clock-skew", format!("{both}: over an hour apart"))
            .with_hint("set the clock right, or add --ignore-clock-skew")
            .with_detail("skew_ms", report.skew_ms));
    }
    if report.skew_ms.abs() > SKEW_WARN_MS {
        report.warnings.push(format!("{both}: over 5 minutes apart"));
    }
    Ok(now)
}

struct Prune<'a> {
    store: &'a dyn Store,
    ctx: &'a Context,
    request: &'a Request,
    now: Timestamp,
}

/// Everything that names objects, as loaded.
struct Loaded {
    listing: load::Listing,
    chains: Vec<LoadedChain>,
    records: Vec<load::Record>,
}

impl Prune<'_> {
    async fn run(&self, guard: Option<&Guard>, report: &mut Report) -> Result<()> {
        let loaded = self.load().await?;
        let plan = self.select(&loaded)?;
        report.snapshots_scanned = loaded.chains.iter().map(|c| c.rows.len() as u64).sum();
        report.plan = plan.digest();
        report.groups = plan.groups.clone();
        report.protected = plan.protected.clone();
        for c in &loaded.chains {
            report.warnings.extend(c.rebuilt.iter().map(|why| format!("{}: {why}", c.chain)));
        }
        self.check_plan(&report.plan)?;
        if guard.is_some() {
            self.ctx.faults.reach("prune.selected")?;
        }
        let mut marks = mark::Marks::default();
        let mut objects = sweep::Objects::default();
        if !self.request.snapshots_only {
            objects = self.mark(&loaded, &plan, &mut marks, guard.is_some()).await?;
        }
        report.objects_scanned = objects.all.len() as u64;
        report.objects_marked = marks.len();
        report.objects_spared_young = objects.young;
        report.warnings.append(&mut marks.notices);
        match guard {
            None => {
                report.removed = plan.removed;
                report.objects_deleted = objects.unmarked.len() as u64;
                report.bytes_freed = objects.unmarked.iter().map(|(_, stored)| stored).sum();
                Ok(())
            }
            Some(guard) => self.apply(guard, &loaded, &plan, marks, objects, report).await,
        }
    }

    async fn load(&self) -> Result<Loaded> {
        self.ctx.progress.phase("read", None, None);
        let listing = load::list(self.store).await?;
        let keys = || listing.docs.values().map(|(key, _, _)| key.clone());
        let snapshots = keys().filter(|k| matches!(k, DocKey::Snapshot(..))).collect();
        let records = keys().filter(load::is_record).collect();
        let mut unreadable = load::Unreadable::default();
        let snapshots = load::read_snapshots(self.store, snapshots, &mut unreadable).await?;
        let records = load::read_records(self.store, records, &mut unreadable).await?;
        unreadable.check()?;
        let chains = load::chains(self.store, &listing, snapshots, &records).await?;
        Ok(Loaded { listing, chains, records })
    }

    fn select(&self, loaded: &Loaded) -> Result<PrunePlan> {
        let at = Circumstances {
            workspace: self.request.workspace.clone(),
            now: Some(self.now),
            named: records::protected(&loaded.records),
            grace: self.request.grace,
            objects_only: self.request.objects_only,
            snapshots_only: self.request.snapshots_only,
        };
        select(&self.request.policy, &loaded.chains, &at)
    }

    fn check_plan(&self, digest: &Digest) -> Result<()> {
        let Some(wanted) = &self.request.plan else { return Ok(()) };
        let form = (16..=64).contains(&wanted.len()) && crate::snapshot::label::is_id_like(wanted);
        if !form {
            return Err(Error::invalid(format!("{wanted:?} is no plan digest of 16 hex or more")));
        }
        if digest.hex().starts_with(&wanted.to_ascii_lowercase()) {
            return Ok(());
        }
        let message = format!("the plan is now {digest}, not {wanted}; nothing was deleted");
        Err(Error::refused("plan-changed", message).with_detail("plan", digest.hex()))
    }

    /// Marks from all that stays and lists the objects. Missing ones end the prune.
    async fn mark(
        &self,
        loaded: &Loaded,
        plan: &PrunePlan,
        marks: &mut mark::Marks,
        writes: bool,
    ) -> Result<sweep::Objects> {
        self.ctx.progress.phase("mark", None, None);
        let gone: HashSet<_> = plan.removed.iter().map(|r| &r.id).collect();
        let rows = loaded.chains.iter().flat_map(|c| &c.rows).map(|r| &r.snapshot);
        let stay: Vec<&Snapshot> = rows.filter(|s| !gone.contains(&s.id)).collect();
        marks.add(self.store, self.ctx, &loaded.listing, &stay, &loaded.records).await?;
        let objects = sweep::list(self.store, marks, self.request.grace).await?;
        let absent = marks.strong().filter(|d| !objects.all.contains(*d));
        let absent: HashSet<Digest> = absent.chain(marks.lost()).copied().collect();
        if absent.is_empty() {
            return Ok(objects);
        }
        if writes {
            let digests: Vec<Digest> = absent.iter().copied().collect();
            damage::add(self.store, &*self.ctx.ids, &digests).await?;
        }
        let stay: Vec<Snapshot> = stay.into_iter().cloned().collect();
        Err(mark::absent(self.store, self.ctx, &stay, &absent).await?)
    }

    async fn apply(
        &self,
        guard: &Guard,
        loaded: &Loaded,
        plan: &PrunePlan,
        mut marks: mark::Marks,
        objects: sweep::Objects,
        report: &mut Report,
    ) -> Result<()> {
        let Self { store, ctx, request, .. } = *self;
        ctx.faults.reach("prune.marked")?;
        let remover = remove::Remover { store, ctx, prune: guard };
        let removed = remover.selected(&loaded.chains, &plan.removed).await?;
        ctx.progress.phase("sweep", Some(objects.unmarked.len() as u64), None);
        let (wait, command) = (request.wait, request.command.as_str());
        let sweep = sweep::Sweep { store, ctx, prune: guard, wait, command };
        let unmarked = &objects.unmarked;
        let swept = sweep.run(&loaded.chains, &plan.removed, &mut marks, unmarked).await?;
        ctx.faults.reach("prune.swept")?;
        report.objects_deleted = swept.deleted;
        report.bytes_freed = swept.bytes;
        report.failed.extend(swept.failed);
        for part in [removed, swept.documents] {
            report.removed.extend(part.gone);
            report.failed.extend(part.failed);
            report.warnings.extend(part.notices);
        }
        report.complete = report.failed.is_empty();
        guard.check()?;
        if !request.snapshots_only {
            self.forget_damage(&marks).await?;
        }
        store.maintain().await
    }

    /// Drops damage that no snapshot has any more.
    async fn forget_damage(&self, marks: &mark::Marks) -> Result<()> {
        let list = damage::load(self.store).await?.digests;
        let stale: Vec<Digest> = list.into_iter().filter(|d| !marks.contains(d)).collect();
        damage::remove(self.store, &*self.ctx.ids, &stale).await
    }
}
