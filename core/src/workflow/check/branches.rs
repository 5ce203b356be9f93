//! Branches of fan-outs: disjoint, of kinds that may stand in one, and with a join.

use std::collections::BTreeMap;

use super::Checker;
use crate::workflow::file::definition::{Kind, ParallelSpec};
use crate::workflow::finding::{Code, Finding};
use crate::workflow::graph;

impl<'a> Checker<'a> {
    pub(super) fn branches(&mut self) {
        let definition = self.definition;
        // node → (parallel node, branch) that holds it
        let mut holder: BTreeMap<String, (&'a str, String)> = BTreeMap::new();
        for (id, node) in &definition.nodes {
            let Kind::Parallel(spec) = &node.kind else { continue };
            self.joins(spec);
            for (branch, held) in graph::branches(&self.graph, definition, id) {
                for inner in held {
                    self.kind(&branch, &inner);
                    let place = (id.as_str(), branch.clone());
                    if let Some((_, other)) = holder.insert(inner.clone(), place) {
                        let text =
                            format!("node {inner:?} stands in branches {other:?} and {branch:?}");
                        let span = definition.nodes[&inner].id.span;
                        self.add(Finding::new(Code::BranchOverlap, span, text));
                    }
                }
            }
        }
        self.entered_from_outside(&holder);
    }

    fn joins(&mut self, spec: &ParallelSpec) {
        let Some(join) = self.graph.number(&spec.join.value) else { return };
        for branch in &spec.branches {
            let Some(start) = self.graph.number(&branch.value) else { continue };
            if start == join {
                let text = format!("branch {:?} begins at the join", branch.value);
                self.add(Finding::new(Code::NoJoin, branch.span, text));
            } else if !self.graph.reached(&[start], None)[join] && self.unread.is_empty() {
                let text = format!(
                    "branch {:?} does not reach the join {:?}",
                    branch.value, spec.join.value
                );
                self.add(Finding::new(Code::NoJoin, branch.span, text));
            }
        }
    }

    fn kind(&mut self, branch: &str, inner: &str) {
        let node = &self.definition.nodes[inner];
        if !matches!(node.kind, Kind::Run(_) | Kind::Router(_) | Kind::Compute(_)) {
            let kind = node.kind.as_str();
            let text = format!("node {inner:?} of branch {branch:?} is of kind {kind}");
            let finding = Finding::new(Code::BranchKind, node.id.span, text);
            self.add(finding.help("a branch holds nodes of kind run, router and compute"));
        }
    }

    /// Nobody enters a branch but its parallel node.
    fn entered_from_outside(&mut self, holder: &BTreeMap<String, (&'a str, String)>) {
        let definition = self.definition;
        if let Some((parallel, _)) = holder.get(&definition.entry.value) {
            let text = format!("the entry stands in a branch of {parallel:?}");
            self.add(Finding::new(Code::BranchOverlap, definition.entry.span, text));
        }
        for edge in &definition.edges {
            let (from, to) = (holder.get(&edge.from.value), holder.get(&edge.to.value));
            if let (None, Some((parallel, branch))) = (from, to) {
                let text =
                    format!("the edge leads from outside into branch {branch:?} of {parallel:?}");
                self.add(Finding::new(Code::BranchOverlap, edge.to.span, text));
            }
        }
    }
}
