//! Publishing: the document create-only, then head and label in one write.

use serde_json::Map;

use super::{Captured, Held, Job, NewLabel, Recorder, warn};
use crate::clock::Timestamp;
use crate::damage;
use crate::diff::{between_stored, changed_at};
use crate::error::{Error, Result};
use crate::ids::{Digest, SnapshotId};
use crate::observe::{self, Observation};
use crate::path::RelPath;
use crate::snapshot::chain::{self, LoadedRefs};
use crate::snapshot::coverage::{self, Coverage, MAX_INLINE_RECORDS};
use crate::snapshot::doc::{FORMAT_VERSION, Snapshot};
use crate::snapshot::label::Label;
use crate::snapshot::refs::{Note, Refs, Target};
use crate::store::{DocKey, Expect, docs};

/// Paths that a late state notes at most.
const MAX_LATER: usize = 10_000;
/// Lost races before a capture gives up.
const MAX_TRIES: usize = 10;

impl Recorder {
    pub(super) async fn publish(&self, job: &mut Job<'_>, held: Held) -> Result<Captured> {
        let Held { observation, counts, added } = held;
        let Observation { observed, mut cache } = observation;
        warn::on_publish(self, job, &observed, &added).await?;
        let mut captured = self.captured(job, observed);
        captured.created = true;
        captured.delta = counts.map(|c| c.paths());
        captured.changed_files = counts.map(|c| c.files);
        for _ in 0..MAX_TRIES {
            self.ctx.cancel.check()?;
            self.begin_chain(job).await?;
            let snapshot = self.document(job, &captured).await?;
            self.ctx.faults.reach("capture.document")?;
            self.ctx.cancel.check()?;
            match self.swap_refs(job, &snapshot).await {
                Ok(()) => {
                    self.ctx.faults.reach("capture.refs")?;
                    captured.id = Some(snapshot.id.clone());
                    captured.seq = snapshot.seq;
                    captured.parent = snapshot.parent.clone();
                    captured.label = snapshot.label.clone();
                    captured.workspace = snapshot.workspace.clone();
                    let store_id = self.store.info().store_id;
                    cache.set_published(&store_id, &self.chain, &snapshot.id);
                    captured.snapshot = Some(snapshot);
                    self.finish(job, cache, &mut captured).await?;
                    return Ok(captured);
                }
                Err(e) if e.is_conflict() => self.reload(job, &mut captured).await?,
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(
            crate::error::Kind::Busy,
            "busy",
            format!("refs of chain {} kept changing while they were written", self.chain),
        ))
    }

    /// A chain begins with refs that name nothing: a document beside no refs at all, as
    /// a kill before the swap would leave it, would be taken for lost refs.
    async fn begin_chain(&self, job: &mut Job<'_>) -> Result<()> {
        if job.refs.version.is_some() || job.refs.rebuilt.is_some() {
            return Ok(());
        }
        match self.save_refs(&mut job.refs).await {
            Err(e) if e.is_conflict() => Ok(()), // somebody else began it: the swap finds out
            done => done,
        }
    }

    /// After a lost race: the new head is the parent, the counts against it unknown
    /// but for what it shares with the old one.
    async fn reload(&self, job: &mut Job<'_>, captured: &mut Captured) -> Result<()> {
        job.refs = chain::load_refs(&*self.store, &self.chain).await?;
        let head = match &job.refs.refs.head {
            Some(id) => Some(chain::read_snapshot(&*self.store, &self.chain, id).await?),
            None => None,
        };
        if head.as_ref().map(|h| &h.id) != job.head.as_ref().map(|h| &h.id) {
            job.head = head;
            let trees = crate::diff::ObservedTrees::new(&captured.observed);
            let counts = self.compare(job, &captured.observed, &trees, &mut |_| {}).await?;
            captured.delta = counts.map(|c| c.paths());
        }
        Ok(())
    }

    /// Makes the document and puts it create-only. An id taken by another document
    /// moves `created_at` on by a nanosecond.
    async fn document(&self, job: &mut Job<'_>, captured: &Captured) -> Result<Snapshot> {
        let mut at = self.ctx.clock.now();
        let mut snapshot = self.draft(job, captured)?;
        snapshot.changed_later = self.changed_later(job.head.as_ref(), &snapshot).await?;
        loop {
            snapshot.created_at = at.rfc3339();
            snapshot.seal()?;
            match docs::create(&*self.store, &snapshot.key(), &snapshot, None).await {
                Ok(_) => return Ok(snapshot),
                Err(e) if e.is_conflict() => at.0 += 1,
                Err(e) => return Err(e),
            }
        }
    }

    fn draft(&self, job: &mut Job<'_>, captured: &Captured) -> Result<Snapshot> {
        let observed = &captured.observed;
        let head = job.head.as_ref();
        let label = new_label(&mut job.refs.refs, &job.request.label)?;
        let mut workspace = self.root.identity(&self.ctx.host);
        workspace.replaced = head.is_some_and(|h| {
            h.workspace.same_place(&workspace) && !h.workspace.same_directory(&workspace)
        });
        let parent_labels = head.map(|h| job.refs.refs.labels_of(&h.id).cloned().collect());
        Ok(Snapshot {
            format_version: FORMAT_VERSION,
            id: SnapshotId::of(&Digest::EMPTY), // sealed below
            digest: Digest::EMPTY,
            chain: self.chain.clone(),
            seq: job.refs.refs.next_seq(),
            parent: job.refs.refs.head.clone(),
            label,
            boundary: job.request.boundary.clone(),
            message: job.request.message.clone(),
            created_at: String::new(),
            tool: self.ctx.host.program.clone(),
            workspace,
            root: observed.root.clone(),
            counts: observed.counts,
            delta: captured.delta,
            rules: observe::reference(&observed.rules.encode()),
            coverage: stored_coverage(&observed.coverage),
            parent_labels: parent_labels.unwrap_or_default(),
            missed: missed_since(&job.refs.refs, head),
            operation: job.operation.clone(),
            bank: job.request.bank.clone(),
            rewound_to: job.request.rewound_to.clone(),
            late: job.request.late.is_some(),
            alive_until: job.request.late.as_ref().and_then(|late| late.alive_until.clone()),
            changed_later: None,
            extra: Map::new(),
        })
    }

    /// Of a state that is captured late: what was changed after its engine is known to have
    /// lived. `None` for any other, and where there is too much to note.
    async fn changed_later(
        &self,
        head: Option<&Snapshot>,
        late: &Snapshot,
    ) -> Result<Option<Vec<RelPath>>> {
        let until = late.alive_until.as_deref().map(Timestamp::parse);
        let (Some(Ok(until)), Some(head)) = (until, head) else { return Ok(None) };
        let mut later = Vec::new();
        for change in between_stored(&*self.store, head, late).await? {
            let by_then = changed_at(&change, &self.root)?.is_some_and(|at| at <= until);
            if change.to.is_some() && !by_then {
                later.push(change.path);
            }
        }
        later.sort_unstable();
        Ok(Some(later).filter(|all| all.len() <= MAX_LATER))
    }

    async fn swap_refs(&self, job: &mut Job<'_>, snapshot: &Snapshot) -> Result<()> {
        let refs = &mut job.refs.refs;
        refs.head = Some(snapshot.id.clone());
        refs.head_seq = snapshot.seq;
        if let Some(label) = &snapshot.label {
            let target = Target {
                snapshot: snapshot.id.clone(),
                at: snapshot.created_at.clone(),
                attempt: job.request.boundary.as_ref().and_then(|b| b.attempt),
                pinned: job.request.pin,
            };
            refs.labels.insert(label.clone(), target);
        }
        job.note_operation(&snapshot.id, &snapshot.created_at);
        self.save_refs(&mut job.refs).await
    }

    /// Writes refs on the version they were read at.
    pub(super) async fn save_refs(&self, loaded: &mut LoadedRefs) -> Result<()> {
        let key = DocKey::Refs(self.chain.clone());
        let expect = loaded.version.clone().map_or(Expect::Absent, Expect::Version);
        let ids = &*self.ctx.ids;
        let version = docs::save(&*self.store, ids, &key, &loaded.refs, expect, None).await?;
        loaded.version = Some(version);
        Ok(())
    }

    /// Nothing changed: the label goes to the head, a message becomes a note.
    pub(super) async fn unchanged(
        &self,
        mut job: Job<'_>,
        observation: Observation,
    ) -> Result<Captured> {
        self.heal_trees(&job, &observation.observed).await?;
        let Observation { observed, cache } = observation;
        let Some(head) = job.head.clone() else {
            return Err(Error::failed("io", "an unchanged capture needs a head"));
        };
        let mut captured = self.captured(&job, observed);
        captured.id = Some(head.id.clone());
        captured.seq = head.seq;
        captured.parent = head.parent.clone();
        captured.delta = Some(Default::default());
        captured.changed_files = Some(Default::default());
        if !job.request.dry_run {
            if job.sink.stored() != (0, 0, 0) || !job.sink.rewritten().is_empty() {
                self.store.flush().await?;
            }
            if !job.request.leave_label {
                captured.label = self.label_head(&mut job, &head).await?;
            }
            self.finish(&mut job, cache, &mut captured).await?;
            if let (Some(kept), true) = (&self.settings.kept, job.request.leave_label) {
                kept.keep_refs(job.refs);
            }
        }
        captured.snapshot = Some(head);
        Ok(captured)
    }

    async fn label_head(&self, job: &mut Job<'_>, head: &Snapshot) -> Result<Option<Label>> {
        for _ in 0..MAX_TRIES {
            let at = self.ctx.clock.now().rfc3339();
            let refs = &mut job.refs.refs;
            let label = new_label(refs, &job.request.label)?;
            let already = |l: &Label| {
                refs.labels
                    .get(l)
                    .is_some_and(|t| t.snapshot == head.id && (t.pinned || !job.request.pin))
            };
            let plain = job.request.message.is_none() && job.operation.is_none();
            if plain && label.as_ref().is_none_or(already) {
                return Ok(label);
            }
            if let Some(label) = &label {
                let attempt = job.request.boundary.as_ref().and_then(|b| b.attempt);
                let pinned = job.request.pin;
                let target = Target { snapshot: head.id.clone(), at: at.clone(), attempt, pinned };
                refs.labels.insert(label.clone(), target);
            }
            if let Some(message) = job.request.message.clone() {
                refs.add_note(Note { snapshot: head.id.clone(), message, at: at.clone() });
            }
            job.note_operation(&head.id, &at);
            match self.save_refs(&mut job.refs).await {
                Ok(()) => return Ok(label),
                Err(e) if e.is_conflict() => {
                    job.refs = chain::load_refs(&*self.store, &self.chain).await?;
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(crate::error::Kind::Busy, "busy", "refs kept changing"))
    }

    /// Drops healed digests from the damage list, saves the cache, frees the lock.
    async fn finish(
        &self,
        job: &mut Job<'_>,
        cache: crate::workspace::cache::StatCache,
        captured: &mut Captured,
    ) -> Result<()> {
        let (objects, bytes, healed) = job.sink.stored();
        captured.stored = super::StoredAmount { objects, bytes };
        captured.healed = healed;
        // The snapshot is published: what fails from here on is a warning.
        let rewritten = job.sink.rewritten();
        if !rewritten.is_empty()
            && let Err(e) = damage::remove(&*self.store, &*self.ctx.ids, &rewritten).await
        {
            captured.warnings.push(warn::plain("damage-list", e.message().to_owned()));
        }
        if healed > 0 {
            let hint = format!("{healed} objects in the store were wrong and are right now");
            captured.warnings.push(warn::plain("healed", hint));
        }
        match &job.request.bank {
            None => self.save_cache(cache, &mut captured.warnings).await?,
            Some(_) => captured.cache = Some(cache),
        }
        if let Err(e) = job.hold.release().await {
            captured.warnings.push(warn::plain("lock", e.message().to_owned()));
        }
        captured.elapsed_ms = self.elapsed_ms(job.started);
        Ok(())
    }
}

/// The label asked for; a numbered one draws its number.
fn new_label(refs: &mut Refs, asked: &NewLabel) -> Result<Option<Label>> {
    match asked {
        NewLabel::None => Ok(None),
        NewLabel::Named(label) => Ok(Some(label.clone())),
        NewLabel::Numbered(name) => {
            let n = refs.next_number(name);
            Label::new(format!("{name}:{n}")).map(Some)
        }
    }
}

/// Coverage as stored: a long list of records is an object of its own.
fn stored_coverage(coverage: &Coverage) -> Coverage {
    let mut out = coverage.clone();
    if let Some(bytes) = long_records(coverage) {
        out.records = None;
        out.records_ref = Some(observe::reference(&bytes));
    }
    out
}

/// The records as an object's bytes, when there are too many for the document.
pub(super) fn long_records(coverage: &Coverage) -> Option<Vec<u8>> {
    let records = coverage.records.as_ref()?;
    (records.len() > MAX_INLINE_RECORDS).then(|| coverage::encode_records(records))
}

fn missed_since(refs: &Refs, head: Option<&Snapshot>) -> Vec<crate::snapshot::doc::Missed> {
    let since = head.map_or("", |h| h.created_at.as_str());
    let rows = refs.missing.iter().filter(|(_, m)| m.at.as_str() > since);
    rows.map(|(label, m)| crate::snapshot::doc::Missed {
        label: label.clone(),
        reason: m.reason.clone(),
        at: m.at.clone(),
    })
    .collect()
}
