//! The names that may stand below each root of templates.

use std::collections::{BTreeMap, BTreeSet};

use crate::workflow::file::Definition;
use crate::workflow::file::definition::Kind;

/// Root → what stands below it, and what that is called.
pub(super) struct Known<'a>(BTreeMap<&'static str, (BTreeSet<&'a str>, &'static str)>);

impl<'a> Known<'a> {
    /// Of a workflow whose nodes have these ids.
    pub(super) fn of(definition: &'a Definition, ids: impl Iterator<Item = &'a str>) -> Self {
        let d = definition;
        let publishing = d.nodes.values().filter(|n| n.publish.is_some());
        let loops = d.edges.iter().filter_map(|e| e.repeat.as_ref());
        let branches = d.nodes.values().filter_map(|n| match &n.kind {
            Kind::Parallel(spec) => Some(&spec.branches),
            _ => None,
        });
        let branches = branches.flatten().map(|b| b.value.as_str());
        Self(BTreeMap::from([
            ("vars", (d.vars.keys().map(String::as_str).collect(), "variable")),
            ("inputs", (d.inputs.keys().map(String::as_str).collect(), "input")),
            ("outputs", (ids.collect(), "node")),
            ("artifacts", (publishing.map(|n| n.id.value.as_str()).collect(), "node")),
            ("loops", (loops.map(|r| r.name.value.as_str()).collect(), "loop")),
            ("branches", (branches.collect(), "branch")),
            ("run", (BTreeSet::from(["id", "name", "workspace"]), "field of run:")),
            ("node", (BTreeSet::from(["id", "iteration", "attempt"]), "field of node:")),
        ]))
    }

    /// What stands below a root; none where anything may.
    pub(super) fn below(&self, root: &str) -> Option<(&BTreeSet<&'a str>, &'static str)> {
        self.0.get(root).map(|(names, what)| (names, *what))
    }
}
