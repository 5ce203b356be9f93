//! Edges, and the loops they share.

use std::collections::BTreeMap;

use super::definition::{Edge, On, Repeat};
use super::fields::Reader;
use super::yaml::Node;
use crate::workflow::finding::{Code, Finding, Span, Spanned};

/// The most often a loop may be taken.
const MAX_LOOP: u64 = 100_000;
/// How many loops a workflow may have: their bodies are compared pair by pair.
const MAX_LOOPS: usize = 1_000;

/// An edge before its loop has its limit.
pub(super) struct Draft {
    edge: Edge,
    name: Option<Spanned<String>>,
    max: Option<(u32, Span)>,
}

pub(super) fn edge(r: &mut Reader, node: &Node) -> Option<Draft> {
    let f = r.fields(node, "an edge", &["from", "to", "when", "on", "as", "loop", "max"])?;
    let from = r.required(&f, "from").and_then(|n| r.text(n, "from"));
    let to = r.required(&f, "to").and_then(|n| r.text(n, "to"));
    let on = [("success", On::Success), ("failure", On::Failure)];
    let name = f.get("loop").and_then(|n| r.text(n, "loop"));
    let name = name.filter(|n| r.id(&n.value, n.span, "loop"));
    let max = f.get("max").and_then(|n| {
        let max = r.whole(n, "max", 1, MAX_LOOP)?;
        Some((u32::try_from(max).ok()?, n.span))
    });
    if let (None, Some((_, span))) = (f.get("loop"), max) {
        r.add(Finding::new(Code::BadEdge, span, "max without loop: there is nothing to count"));
    }
    let alias = f.get("as").and_then(|n| r.text(n, "as"));
    let edge = Edge {
        from: from?,
        to: to?,
        when: f.get("when").and_then(|n| r.template(n, "when")),
        on: f.get("on").and_then(|n| r.word(n, "on", &on)).unwrap_or_default(),
        alias: alias.filter(|a| r.id(&a.value, a.span, "as")),
        repeat: None,
        span: node.span,
    };
    Some(Draft { edge, name, max })
}

/// Gives each loop its one limit: one edge of a loop must name it, and no two differ.
pub(super) fn with_loops(r: &mut Reader, drafts: Vec<Draft>) -> Vec<Edge> {
    let mut limits: BTreeMap<String, u32> = BTreeMap::new();
    for draft in &drafts {
        let (Some(name), Some((max, span))) = (&draft.name, draft.max) else { continue };
        let known = *limits.entry(name.value.clone()).or_insert(max);
        if known != max {
            let text = format!("loop {:?} has max {known} already, not {max}", name.value);
            r.add(Finding::new(Code::BadEdge, span, text));
        }
    }
    if limits.len() > MAX_LOOPS {
        let text = format!("{} loops, at most {MAX_LOOPS} are allowed", limits.len());
        let span = drafts.first().map(|d| d.edge.span).unwrap_or_default();
        r.add(Finding::new(Code::TooLarge, span, text));
        return Vec::new();
    }
    let finish = |draft: Draft| {
        let mut edge = draft.edge;
        if let Some(name) = draft.name {
            match limits.get(&name.value) {
                Some(max) => edge.repeat = Some(Repeat { name, max: *max }),
                None => {
                    let text = format!("loop {:?} lacks the key \"max\"", name.value);
                    r.add(Finding::new(Code::MissingKey, name.span, text));
                    // counted all the same, so that no cycle is reported as well
                    edge.repeat = Some(Repeat { name, max: 1 });
                }
            }
        }
        edge
    };
    drafts.into_iter().map(finish).collect()
}
