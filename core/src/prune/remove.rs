//! Remove: the line in `pruned.json`, then labels and head, then the documents.
//!
//! In this order every crash leaves something whole: a line about a document that is
//! still there says nothing yet, a document without a label is still reached through
//! its descendants, and objects go last of all.

use std::collections::{BTreeMap, BTreeSet};

use super::report::Failure;
use super::select::{LoadedChain, Removal};
use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, SnapshotId};
use crate::snapshot::chain::{History, LoadedRefs, load_refs};
use crate::snapshot::label::Label;
use crate::snapshot::pruned::{self, Line};
use crate::snapshot::refs::Refs;
use crate::store::{DocKey, Expect, Guard, Store, docs};

const MAX_TRIES: usize = 32;

/// What removing needs throughout.
pub(super) struct Remover<'a> {
    pub store: &'a dyn Store,
    pub ctx: &'a Context,
    /// The `prune` lock, checked before each delete call.
    pub prune: &'a Guard,
}

/// What was removed.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub gone: Vec<Removal>,
    pub failed: Vec<Failure>,
    pub notices: Vec<String>,
}

impl Remover<'_> {
    /// Removes the planned snapshots that head or labels reach, chain by chain.
    pub(super) async fn selected(
        &self,
        chains: &[LoadedChain],
        removals: &[Removal],
    ) -> Result<Removed> {
        let mut out = Removed::default();
        let by_chain = by_chain(removals, false);
        for chain in chains {
            let Some(removals) = by_chain.get(&chain.chain) else { continue };
            let labels = labels_of(&chain.refs);
            self.lines(chain, removals, &labels).await?;
            let pinned = match self.unlabel(chain, removals).await? {
                Unlabelled::Done { pinned } => pinned,
                Unlabelled::Lost => {
                    let notice = format!("{}: refs were lost meanwhile, left alone", chain.chain);
                    out.notices.push(notice);
                    continue;
                }
            };
            for r in removals {
                match pinned.contains(&r.id) {
                    true => out.notices.push(format!("{} was pinned meanwhile and stays", r.id)),
                    false => self.document(r, &mut out).await?,
                }
            }
        }
        Ok(out)
    }

    /// Removes the documents that head and labels do not reach. Held: `objects`
    /// Exclusive, so that no capture is between its document and its refs.
    pub(super) async fn unreachable(
        &self,
        chains: &[LoadedChain],
        removals: &[Removal],
    ) -> Result<Removed> {
        let mut out = Removed::default();
        for (name, removals) in by_chain(removals, true) {
            let Some(chain) = chains.iter().find(|c| c.chain == *name) else { continue };
            let history = History::load(self.store, name).await?;
            if history.refs.rebuilt.is_some() || !history.unreadable.is_empty() {
                out.notices.push(format!("{name}: refs were lost meanwhile, left alone"));
                continue;
            }
            let reach = history.reachable();
            let gone: Vec<&Removal> =
                removals.into_iter().filter(|r| !reach.contains(&r.id)).collect();
            self.lines(chain, &gone, &BTreeMap::new()).await?;
            for r in gone {
                self.document(r, &mut out).await?;
            }
        }
        Ok(out)
    }

    async fn lines(
        &self,
        chain: &LoadedChain,
        removals: &[&Removal],
        labels: &BTreeMap<&SnapshotId, Vec<Label>>,
    ) -> Result<()> {
        let seqs: BTreeMap<_, _> =
            chain.rows.iter().map(|r| (&r.snapshot.id, r.snapshot.seq)).collect();
        let at = self.ctx.clock.now().rfc3339();
        let line = |r: &&Removal| Line {
            id: r.id.clone(),
            seq: seqs.get(&r.id).copied().unwrap_or_default(),
            label: r.label.clone(),
            labels: labels.get(&r.id).cloned().unwrap_or_default(),
            at: at.clone(),
            rule: r.reason.clone(),
        };
        let lines: Vec<Line> = removals.iter().map(line).collect();
        pruned::add(self.store, &*self.ctx.ids, &chain.chain, &lines).await
    }

    /// Takes labels, head, notes and recorded operations off the removed snapshots.
    async fn unlabel(&self, chain: &LoadedChain, removals: &[&Removal]) -> Result<Unlabelled> {
        let key = DocKey::Refs(chain.chain.clone());
        for _ in 0..MAX_TRIES {
            let LoadedRefs { mut refs, version, rebuilt } =
                load_refs(self.store, &chain.chain).await?;
            let (None, Some(version)) = (rebuilt, version) else { return Ok(Unlabelled::Lost) };
            let gone: BTreeSet<&SnapshotId> = removals.iter().map(|r| &r.id).collect();
            let pinned = newly_pinned(&refs, &gone);
            let gone: BTreeSet<_> = gone.into_iter().filter(|id| !pinned.contains(*id)).collect();
            if !strip(&mut refs, chain, &gone) {
                return Ok(Unlabelled::Done { pinned });
            }
            self.prune.check()?;
            let expect = Expect::Version(version);
            match docs::save(self.store, &*self.ctx.ids, &key, &refs, expect, None).await {
                Ok(_) => {
                    self.ctx.faults.reach("prune.refs")?;
                    return Ok(Unlabelled::Done { pinned });
                }
                Err(e) if e.is_conflict() => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(Kind::Conflict, "conflict", format!("{key} kept changing")))
    }

    async fn document(&self, removal: &Removal, out: &mut Removed) -> Result<()> {
        self.ctx.faults.reach("prune.document")?;
        self.ctx.cancel.check()?;
        self.prune.check()?;
        let key = DocKey::Snapshot(removal.chain.clone(), removal.id.clone());
        match self.store.delete(&key, None).await {
            Ok(()) => out.gone.push(removal.clone()),
            Err(e) => {
                let (name, error) = (key.to_string(), e.message().to_owned());
                out.failed.push(Failure { name, error });
            }
        }
        Ok(())
    }
}

enum Unlabelled {
    /// Nothing refers to the removed any more, but for those pinned since the plan.
    Done { pinned: BTreeSet<SnapshotId> },
    /// The refs are gone or unusable: nothing of the chain may go.
    Lost,
}

fn by_chain(removals: &[Removal], unreachable: bool) -> BTreeMap<&Chain, Vec<&Removal>> {
    let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for r in removals.iter().filter(|r| r.unreachable == unreachable) {
        out.entry(&r.chain).or_default().push(r);
    }
    out
}

fn labels_of(refs: &Refs) -> BTreeMap<&SnapshotId, Vec<Label>> {
    let mut out: BTreeMap<_, Vec<Label>> = BTreeMap::new();
    for (label, target) in &refs.labels {
        out.entry(&target.snapshot).or_default().push(label.clone());
    }
    out
}

fn newly_pinned(refs: &Refs, gone: &BTreeSet<&SnapshotId>) -> BTreeSet<SnapshotId> {
    let pinned = refs.labels.values().filter(|t| t.pinned && gone.contains(&t.snapshot));
    pinned.map(|t| t.snapshot.clone()).collect()
}

/// Removes every mention of `gone`; false when there is none. No older snapshot
/// inherits a label; the head moves to the newest that stays.
fn strip(refs: &mut Refs, chain: &LoadedChain, gone: &BTreeSet<&SnapshotId>) -> bool {
    let before = refs.clone();
    refs.labels.retain(|_, t| !gone.contains(&t.snapshot));
    refs.notes.retain(|n| !gone.contains(&n.snapshot));
    refs.operations.retain(|_, o| !gone.contains(&o.snapshot));
    if refs.head.as_ref().is_some_and(|h| gone.contains(h)) {
        let stays = |r: &&super::select::Row| r.reachable && !gone.contains(&r.snapshot.id);
        let head = chain.rows.iter().find(stays);
        refs.head = head.map(|r| r.snapshot.id.clone());
        refs.head_seq = head.map_or(refs.head_seq, |r| r.snapshot.seq);
    }
    *refs != before
}
