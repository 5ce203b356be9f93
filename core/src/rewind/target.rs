//! The snapshot at which a node was entered, or the reason why there is none.

use crate::error::{Error, Kind, Result};
use crate::ids::{Chain, SnapshotId};
use crate::run::{Run, RunRecord};
use crate::snapshot::chain::{LoadedRefs, load_refs, read_snapshot};
use crate::snapshot::doc::Snapshot;
use crate::snapshot::label::{Boundary, Label, Phase};
use crate::snapshot::pruned::{self, Pruned};
use crate::store::Store;

/// The boundaries of a run's chain.
pub(super) struct Boundaries {
    pub(super) chain: Chain,
    pub(super) refs: LoadedRefs,
    pruned: Pruned,
}

/// An entry into a node.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) iteration: u64,
    pub(super) label: Label,
    pub(super) snapshot: Snapshot,
}

impl Boundaries {
    pub(super) async fn load(store: &dyn Store, run: &Run) -> Result<Self> {
        let chain = Chain::Run(run.id().clone());
        let refs = load_refs(store, &chain).await?;
        let pruned = pruned::load(store, &chain).await?;
        Ok(Self { chain, refs, pruned })
    }

    /// The boundaries that labels name now, with the snapshots.
    pub(super) fn named(&self) -> impl Iterator<Item = (Boundary, &SnapshotId)> {
        let labels = self.refs.refs.labels.iter();
        labels.filter_map(|(label, to)| Some((Boundary::parse(label)?, &to.snapshot)))
    }

    /// The highest iteration of `node` that anything names.
    pub(super) fn newest_iteration(&self, node: &str) -> Option<u64> {
        let of = |b: Boundary| (b.node.as_deref() == Some(node)).then_some(b.iteration?);
        let missing = self
            .refs
            .refs
            .missing
            .keys()
            .filter_map(|l| Boundary::parse(&Label::new(l.as_str()).ok()?));
        self.named().map(|(b, _)| b).chain(missing).filter_map(of).max()
    }

    /// Nodes that any label names, in order of name.
    pub(super) fn nodes(&self) -> std::collections::BTreeSet<String> {
        self.named().filter_map(|(b, _)| b.node).collect()
    }

    /// The newest entry into `node` from `newest` downwards. Refuses with
    /// `older-iteration` when a later one was completed, since its work would be dropped.
    pub(super) async fn newest(
        &self,
        store: &dyn Store,
        record: &RunRecord,
        node: &str,
        newest: u64,
    ) -> Result<Entry> {
        for iteration in (0..=newest).rev() {
            let Some(label) = label(Phase::Pre, node, iteration) else { continue };
            if self.refs.refs.labels.contains_key(&label) {
                self.check_older(node, iteration, newest)?;
                return self.read(store, label, iteration).await;
            }
        }
        Err(self.none(record, node, newest))
    }

    fn check_older(&self, node: &str, found: u64, newest: u64) -> Result<()> {
        let done = |i: &u64| {
            label(Phase::Post, node, *i).is_some_and(|l| self.refs.refs.labels.contains_key(&l))
        };
        let Some(completed) = (found + 1..=newest).rev().find(done) else { return Ok(()) };
        let message = format!(
            "{node} completed iteration {completed}, whose beginning was not captured; going back \
             to iteration {found} would drop that work"
        );
        Err(skipped("older-iteration", message)
            .with_hint(format!("to do so all the same: --node {node} --iteration {found}")))
    }

    /// Exactly this entry.
    pub(super) async fn exactly(
        &self,
        store: &dyn Store,
        record: &RunRecord,
        node: &str,
        iteration: u64,
    ) -> Result<Entry> {
        match label(Phase::Pre, node, iteration) {
            Some(label) if self.refs.refs.labels.contains_key(&label) => {
                self.read(store, label, iteration).await
            }
            _ => Err(self.none(record, node, iteration)),
        }
    }

    async fn read(&self, store: &dyn Store, label: Label, iteration: u64) -> Result<Entry> {
        let id = &self.refs.refs.labels[&label].snapshot;
        match read_snapshot(store, &self.chain, id).await {
            Ok(snapshot) => Ok(Entry { iteration, label, snapshot }),
            Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt | Kind::Newer) => {
                match self.pruned.find(id) {
                    Some(_) => Err(self.pruned_away(&label)),
                    None => Err(skipped(
                        "chain-unreadable",
                        format!("snapshot {id} of {label} cannot be read"),
                    )
                    .with_source(e)),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Why there is no entry into `node`.
    fn none(&self, record: &RunRecord, node: &str, iteration: u64) -> Error {
        let state = record.versioning.as_ref().map_or("on", |v| v.state.as_str());
        let reason = record.versioning.as_ref().and_then(|v| v.reason.as_deref());
        let because = reason.map(|r| format!(": {r}")).unwrap_or_default();
        if let Some(label) = label(Phase::Pre, node, iteration)
            && self.pruned.find_label(&label).is_some()
        {
            return self.pruned_away(&label);
        }
        match state {
            "off" => {
                return skipped("versioning-off", format!("the run recorded no files{because}"));
            }
            "overflow" => {
                let message = format!("the workspace held more files than are recorded{because}");
                return skipped("over-file-limit", message);
            }
            _ if record.work_dir.is_none() => {
                return skipped("no-workspace", "the run had no workspace");
            }
            _ if self.refs.refs.head.is_none() => {
                return skipped(
                    "nothing-captured",
                    format!("no snapshot of the run is there{because}"),
                );
            }
            _ => {}
        }
        let missing = label(Phase::Pre, node, iteration)
            .and_then(|label| self.refs.refs.missing.get(label.as_str()));
        let why = missing.map_or(String::from("it is not recorded"), |m| {
            format!("it was missed at {}: {}", m.at, m.reason)
        });
        skipped("no-boundary", format!("there is no boundary pre:{node}:{iteration}: {why}"))
    }

    fn pruned_away(&self, label: &Label) -> Error {
        let line = self.pruned.find_label(label);
        let (at, rule) = line.map_or(("", ""), |l| (l.at.as_str(), l.rule.as_str()));
        let left: Vec<String> = self
            .named()
            .filter(|(b, id)| b.phase == Phase::Pre && self.pruned.find(id).is_none())
            .filter_map(|(b, _)| b.label().map(|l| l.to_string()))
            .collect();
        let nearest = match left.is_empty() {
            true => String::from("no other entry is left"),
            false => format!("left: {}", left.join(", ")),
        };
        skipped(
            "chain-pruned",
            format!("the snapshot of {label} was pruned at {at} ({rule}); {nearest}"),
        )
        .with_kind(Kind::NotFound)
        .with_detail("boundaries", left)
    }
}

/// The label of a boundary.
pub(super) fn label(phase: Phase, node: &str, iteration: u64) -> Option<Label> {
    let (node, iteration) = (Some(node.to_owned()), Some(iteration));
    Boundary { phase, node, iteration, attempt: None, gate: None }.label()
}

/// A refusal because files cannot be put back.
pub(super) fn skipped(reason: &'static str, message: impl Into<String>) -> Error {
    Error::refused(reason, message)
        .with_detail("skip_reason", reason)
        .with_hint("the record alone is rewound with --keep-files")
}
