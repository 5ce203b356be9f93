//! Which node a run goes back to.

use std::collections::BTreeSet;

use super::auto::{self, Edited};
use super::request::{Pivot, RewindRequest};
use super::source::Workflow;
use super::target::{Boundaries, Entry};
use crate::error::{Error, Result};
use crate::run::Run;
use crate::snapshot::chain;
use crate::snapshot::doc::Snapshot;
use crate::snapshot::label::Phase;
use crate::store::Store;
use crate::workflow::file::definition::Kind;
use crate::workflow::graph::{Graph, branches};

/// The node and the entry into it.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) node: String,
    pub(super) iteration: u64,
    /// A node inside a fan-out was asked for.
    pub(super) promoted_from: Option<String>,
    pub(super) auto: Option<Edited>,
    /// The snapshot, unless files are kept.
    pub(super) entry: Option<Entry>,
}

/// What a choice is made from.
pub(super) struct Chooser<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) run: &'a Run,
    pub(super) workflow: Option<&'a Workflow>,
    pub(super) boundaries: &'a Boundaries,
    /// Files are put back, so there must be a snapshot of the entry.
    pub(super) files: bool,
}

impl Chooser<'_> {
    pub(super) async fn choose(&self, request: &RewindRequest) -> Result<Choice> {
        match &request.pivot {
            Pivot::Entry => {
                let node = self.entry_node()?;
                self.at(node, Some(0), None).await
            }
            Pivot::Node { node, iteration } => self.at(node.clone(), *iteration, None).await,
            Pivot::At(text) => {
                let (node, iteration) = self.named(text).await?;
                self.at(node, Some(iteration), None).await
            }
            Pivot::Auto => {
                let source = request.source.as_ref();
                let reached = self.reached();
                let edited = auto::edited(self.run, source, self.workflow, &reached)?;
                self.at(edited.node.clone(), None, Some(edited)).await
            }
        }
    }

    fn entry_node(&self) -> Result<String> {
        if let Some(workflow) = self.workflow {
            return Ok(workflow.definition.entry.value.clone());
        }
        // Without a workflow: the node of the oldest entry.
        let entries = self.boundaries.named().filter(|(b, _)| b.phase == Phase::Pre);
        let labels = &self.boundaries.refs.refs.labels;
        let at = |b: &crate::snapshot::label::Boundary| {
            b.label().and_then(|l| labels.get(&l).map(|t| t.at.clone())).unwrap_or_default()
        };
        let first = entries.map(|(b, _)| b).min_by_key(at).and_then(|b| b.node);
        first.ok_or_else(|| Error::not_found("no node of the run was entered"))
    }

    async fn at(
        &self,
        asked: String,
        iteration: Option<u64>,
        auto: Option<Edited>,
    ) -> Result<Choice> {
        let (node, promoted_from) = self.promoted(asked);
        self.check_reached(&node)?;
        let record = &self.run.record;
        let visits = record.checkpoint().and_then(|c| c.node_visits.get(&node).copied());
        let labelled = self.boundaries.newest_iteration(&node);
        let newest = labelled.max(visits.map(|n| n.saturating_sub(1))).unwrap_or(0);
        let entry = match (self.files, iteration) {
            (false, _) => None,
            (true, Some(i)) => Some(self.boundaries.exactly(self.store, record, &node, i).await?),
            (true, None) => Some(self.boundaries.newest(self.store, record, &node, newest).await?),
        };
        let found = entry.as_ref().map(|e| e.iteration);
        let iteration = found.or(iteration).unwrap_or(newest);
        Ok(Choice { node, iteration, promoted_from, auto, entry })
    }

    /// A node inside a fan-out becomes the outermost parallel node around it: two nodes
    /// that write at once cannot be told apart.
    fn promoted(&self, asked: String) -> (String, Option<String>) {
        let Some(workflow) = self.workflow else { return (asked, None) };
        let definition = &workflow.definition;
        let graph = Graph::new(definition);
        let mut node = asked.clone();
        let mut seen = BTreeSet::new();
        while seen.insert(node.clone()) {
            let around = definition.nodes.iter().find(|(id, n)| {
                matches!(n.kind, Kind::Parallel(_))
                    && branches(&graph, definition, id).values().any(|held| held.contains(&node))
            });
            match around {
                Some((id, _)) => node.clone_from(id),
                None => break,
            }
        }
        let promoted = (node != asked).then_some(asked);
        (node, promoted)
    }

    /// The nodes that the run executed, or was about to.
    pub(super) fn reached(&self) -> BTreeSet<String> {
        let mut reached = self.boundaries.nodes();
        if let Some(checkpoint) = self.run.record.checkpoint() {
            reached.extend(checkpoint.outputs.keys().cloned());
            reached.extend(checkpoint.node_visits.keys().cloned());
            reached.insert(checkpoint.node_id.clone());
        }
        reached
    }

    fn check_reached(&self, node: &str) -> Result<()> {
        let reached = self.reached();
        if reached.contains(node) {
            return Ok(());
        }
        let known: Vec<String> = reached.into_iter().collect();
        let message = format!("the run did not reach {node}; it reached {}", known.join(", "));
        Err(Error::not_found(message).with_detail("reached", known))
    }

    /// The entry that a label or a snapshot means.
    async fn named(&self, text: &str) -> Result<(String, u64)> {
        let label = crate::snapshot::label::Label::new(text).ok();
        let parsed = label.as_ref().and_then(crate::snapshot::label::Boundary::parse);
        if let Some(b) = parsed.filter(|b| b.phase == Phase::Pre)
            && let (Some(node), Some(iteration)) = (b.node, b.iteration)
        {
            return Ok((node, iteration));
        }
        let found: Snapshot = chain::resolve(self.store, &self.boundaries.chain, text).await?;
        let labels = &self.boundaries.refs.refs.labels;
        let entered =
            self.boundaries.named().filter(|(b, id)| b.phase == Phase::Pre && **id == found.id);
        let at = |b: &crate::snapshot::label::Boundary| {
            b.label().and_then(|l| labels.get(&l).map(|t| t.at.clone())).unwrap_or_default()
        };
        let newest = entered.map(|(b, _)| b).max_by_key(at);
        match newest.and_then(|b| Some((b.node?, b.iteration?))) {
            Some(entry) => Ok(entry),
            None => Err(Error::invalid(format!("no node was entered at snapshot {}", found.id))
                .with_hint(format!(
                    "its files alone: backtrail rewind --restore-snapshot {}",
                    found.id
                ))),
        }
    }
}
