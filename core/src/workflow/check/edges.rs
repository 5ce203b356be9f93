//! Edges: their ends, their order, and cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::workflow::file::definition::{Edge, Kind, Node, On};
use crate::workflow::finding::{Code, Finding};
use crate::workflow::graph::Graph;

impl<'a> Checker<'a> {
    pub(super) fn edges(&mut self) {
        let definition = self.definition;
        let mut leaving: BTreeMap<(&str, bool), Vec<&'a Edge>> = BTreeMap::new();
        for edge in &definition.edges {
            self.must_exist(&edge.from);
            self.must_exist(&edge.to);
            let key = (edge.from.value.as_str(), edge.on == On::Failure);
            leaving.entry(key).or_default().push(edge);
        }
        for ((from, failure), edges) in leaving {
            let Some(node) = definition.nodes.get(from) else { continue };
            self.never_taken(node, failure, &edges);
            match &node.kind {
                Kind::Router(Some(_)) if !failure => self.routes(node, &edges),
                _ => self.default_is_last(&edges),
            }
        }
    }

    fn never_taken(&mut self, node: &Node, failure: bool, edges: &[&Edge]) {
        let id = &node.id.value;
        let (text, help) = match &node.kind {
            kind if kind.ends() => (format!("node {id:?} ends the run: no edge leaves it"), None),
            Kind::Parallel(_) if !failure => {
                let text = format!("a success of node {id:?} leads to its join, not along an edge");
                (text, Some("name the node in join"))
            }
            _ => return,
        };
        for edge in edges {
            let finding = Finding::new(Code::BadEdge, edge.from.span, text.clone());
            self.add(Finding { suggestion: help.map(str::to_owned), ..finding });
        }
    }

    /// A router with an expression chooses by name: no conditions, no name twice.
    fn routes(&mut self, node: &Node, edges: &[&Edge]) {
        let mut names = BTreeSet::new();
        for edge in edges {
            if let Some(when) = &edge.when {
                let text = format!("router {:?} chooses by route: when has no say", node.id.value);
                self.add(Finding::new(Code::BadEdge, when.span, text));
            }
            if !names.insert(edge.route()) {
                let text =
                    format!("two edges of router {:?} are named {:?}", node.id.value, edge.route());
                let span = edge.alias.as_ref().map_or(edge.to.span, |a| a.span);
                let finding = Finding::new(Code::BadEdge, span, text);
                self.add(finding.help("give each a name of its own with as"));
            }
        }
    }

    /// An edge that is always taken comes last. One with a loop may be spent, so that others
    /// may follow it.
    fn default_is_last(&mut self, edges: &[&Edge]) {
        let always = |edge: &&&Edge| edge.when.is_none() && edge.repeat.is_none();
        let Some((_, before)) = edges.split_last() else { return };
        for edge in before.iter().filter(always) {
            let text = format!(
                "the edge from {:?} to {:?} is always taken: those after it never are",
                edge.from.value, edge.to.value
            );
            let finding = Finding::new(Code::DefaultNotLast, edge.span, text);
            self.add(finding.help("move it behind the other edges, or give it a when"));
        }
    }

    pub(super) fn cycles(&mut self) {
        let graph = Graph::without_loops(self.definition);
        let component = graph.components();
        let mut told = BTreeSet::new();
        for edge in self.definition.edges.iter().filter(|e| e.repeat.is_none()) {
            let ends = (graph.number(&edge.from.value), graph.number(&edge.to.value));
            let (Some(from), Some(to)) = ends else { continue };
            if component[from] != component[to] || !told.insert(component[from]) {
                continue;
            }
            let held = component.iter().enumerate().filter(|(_, c)| **c == component[from]);
            let names: Vec<&str> = held.map(|(n, _)| graph.id(n)).take(10).collect();
            let text = format!("a cycle without a loop edge: {}", names.join(", "));
            let finding = Finding::new(Code::EndlessCycle, edge.span, text);
            self.add(finding.help("give the edge that goes back a loop and a max"));
        }
    }
}
