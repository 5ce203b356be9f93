//! Nodes: the entry, dead ends, unreachable ones, secrets.

use std::collections::BTreeSet;

use super::Checker;
use crate::workflow::file::definition::{Kind, On};
use crate::workflow::finding::{Code, Finding};

impl Checker<'_> {
    pub(super) fn nodes(&mut self) {
        let definition = self.definition;
        self.must_exist(&definition.entry);
        let success = definition.edges.iter().filter(|e| e.on == On::Success);
        let leading: BTreeSet<&str> = success.map(|e| e.from.value.as_str()).collect();
        for (id, node) in &definition.nodes {
            if let Kind::Parallel(spec) = &node.kind {
                spec.branches.iter().for_each(|b| self.must_exist(b));
                self.must_exist(&spec.join);
            }
            let leads = leading.contains(id.as_str());
            if !leads && !node.kind.ends() && !matches!(node.kind, Kind::Parallel(_)) {
                let text = format!("node {id:?} leads nowhere");
                let finding = Finding::new(Code::DeadEnd, node.id.span, text);
                self.add(finding.help("add an edge from it, or make it a node of kind done"));
            }
        }
        self.secrets();
        self.reached();
    }

    fn secrets(&mut self) {
        let definition = self.definition;
        let declared: Vec<&str> = definition.secrets.iter().map(|s| s.value.as_str()).collect();
        for node in definition.nodes.values() {
            let spec = match &node.kind {
                Kind::Run(spec) => Some(&**spec),
                Kind::Review(spec) => spec.companion.as_ref(),
                _ => None,
            };
            for secret in spec.iter().flat_map(|s| &s.secrets) {
                if !declared.contains(&secret.value.as_str()) {
                    let text = format!("secret {:?} is not declared by the file", secret.value);
                    let finding = Finding::new(Code::UndeclaredSecret, secret.span, text);
                    self.add(finding.did_you_mean(&secret.value, declared.iter().copied()));
                }
            }
        }
    }

    fn reached(&mut self) {
        let Some(entry) = self.graph.number(&self.definition.entry.value) else { return };
        if !self.unread.is_empty() {
            return; // a way may lead through a node that could not be read
        }
        let reached = self.graph.reached(&[entry], None);
        for (number, reached) in reached.into_iter().enumerate() {
            if !reached {
                let id = self.graph.id(number);
                let span = self.definition.nodes[id].id.span;
                let text = format!("no path leads to node {id:?}");
                self.add(Finding::new(Code::Unreachable, span, text));
            }
        }
    }
}
