//! `run --check`: everything wrong with a workflow file, in one run.

mod branches;
mod edges;
mod known;
mod nodes;
mod place;
mod templates;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::file::{Definition, Parsed, parse};
use super::finding::{Code, Finding, Report, Spanned};
use super::graph::Graph;
use known::Known;

/// What a check gave.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The findings, for people and as JSON.
    pub report: Report,
    /// The workflow; absent when a finding is an error.
    pub definition: Option<Arc<Definition>>,
}

/// Checks the workflow in `bytes`, which were read from `file`. Never fails, and creates
/// nothing: `run` calls it first, and starts only what has no error.
///
/// ```
/// use backtrail_core::workflow::check::check;
/// let text = "backtrail: 1\nname: x\nentry: go\nnodes: {end: {kind: done}}\n";
/// let checked = check("flow.yaml", text.as_bytes());
/// assert!(checked.definition.is_none());
/// assert!(checked.report.human().contains("flow.yaml:3:8: error[W012]: no node \"go\""));
/// ```
pub fn check(file: &str, bytes: &[u8]) -> Checked {
    let Parsed { text, definition, unread, mut findings } = parse(bytes);
    if let Some(definition) = &definition {
        let mut checker = Checker {
            definition,
            text: &text,
            unread: &unread,
            graph: Graph::new(definition),
            known: Known::of(definition, ids(definition, &unread)),
            findings: Vec::new(),
        };
        checker.all();
        findings.append(&mut checker.findings);
    }
    let report = Report::new(file, text, findings);
    let definition = definition.filter(|_| report.errors() == 0).map(Arc::new);
    Checked { report, definition }
}

/// Every id of a node, read or not.
fn ids<'a>(
    definition: &'a Definition,
    unread: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a str> {
    definition.nodes.keys().chain(unread).map(String::as_str)
}

struct Checker<'a> {
    definition: &'a Definition,
    text: &'a str,
    /// Nodes that exist but could not be read: they are known, and nothing more.
    unread: &'a BTreeSet<String>,
    graph: Graph<'a>,
    known: Known<'a>,
    findings: Vec<Finding>,
}

impl<'a> Checker<'a> {
    fn all(&mut self) {
        self.nodes();
        self.edges();
        self.cycles();
        self.branches();
        self.templates();
    }

    fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Every id of a node, read or not.
    fn ids(&self) -> impl Iterator<Item = &'a str> {
        ids(self.definition, self.unread)
    }

    fn exists(&self, id: &str) -> bool {
        self.definition.nodes.contains_key(id) || self.unread.contains(id)
    }

    /// Reports a name that no node has.
    fn must_exist(&mut self, name: &Spanned<String>) {
        if !self.exists(&name.value) {
            let text = format!("no node {:?}", name.value);
            let finding = Finding::new(Code::UnknownNode, name.span, text);
            self.add(finding.did_you_mean(&name.value, self.ids()));
        }
    }
}
