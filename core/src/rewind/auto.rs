//! `--auto`: the node whose declaration was edited since the run recorded its workflow.

use std::collections::{BTreeMap, BTreeSet};

use super::request::Source;
use super::source::Workflow;
use crate::error::{Error, Result};
use crate::run::Run;
use crate::workflow::file::Definition;
use crate::workflow::file::definition::shape;
use crate::workflow::graph::Graph;

/// What was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edited {
    /// The node to go back to.
    pub(super) node: String,
    /// Every node that was edited.
    pub(super) nodes: Vec<String>,
    /// The workflow itself was edited: everything is done again.
    pub(super) workflow: bool,
}

/// Compares declaration by declaration, wherever each stands. An edge belongs to the
/// node it begins at. Edits of workflows that nodes start themselves are not seen.
pub(super) fn edited(
    run: &Run,
    source: Option<&Source>,
    now: Option<&Workflow>,
    reached: &BTreeSet<String>,
) -> Result<Edited> {
    let Some(recorded) = &run.record.workflow_source else {
        return Err(refused("the run recorded no workflow (above 1 MiB it is not kept)"));
    };
    let (Some(_), Some(now)) = (source, now) else {
        return Err(refused("there is no workflow to compare the recorded one with")
            .with_hint("name it with --file"));
    };
    let then = Workflow::compile(recorded.as_bytes(), "the recorded workflow")?;
    let (then, now) = (&then.definition, &now.definition);
    let nodes: Vec<String> =
        changed(then, now).into_iter().filter(|n| reached.contains(n)).collect();
    if outline(then) != outline(now) {
        return Ok(Edited { node: now.entry.value.clone(), nodes, workflow: true });
    }
    let first = earliest(now, &nodes);
    match &first[..] {
        [] => Err(refused("nothing that the run executed was edited")),
        [node] => Ok(Edited { node: node.clone(), nodes, workflow: false }),
        several => {
            let message = format!("edited in independent branches: {}", several.join(", "));
            Err(refused(message)
                .with_detail("candidates", several.to_vec())
                .with_hint("name one with --node"))
        }
    }
}

fn refused(why: impl Into<String>) -> Error {
    Error::refused("auto-target", format!("no node to go back to was found: {}", why.into()))
}

/// The nodes that differ, with their edges, and exist now.
fn changed(then: &Definition, now: &Definition) -> Vec<String> {
    let (then, now) = (declarations(then), declarations(now));
    let differs = |(id, shape): &(&String, &String)| then.get(*id) != Some(*shape);
    now.iter().filter(differs).map(|(id, _)| id.clone()).collect()
}

fn declarations(definition: &Definition) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> =
        definition.nodes.iter().map(|(id, node)| (id.clone(), shape(node))).collect();
    for edge in &definition.edges {
        if let Some(declared) = out.get_mut(&edge.from.value) {
            declared.push_str(&shape(edge));
        }
    }
    out
}

/// Everything but nodes and edges. Limits and modes change no work that was done.
fn outline(definition: &Definition) -> String {
    let d = definition;
    shape(&(&d.vars, &d.inputs, &d.secrets, &d.env, &d.entry))
}

/// Those of `nodes` that no other of them leads to; of a cycle the one nearest to the
/// entry.
fn earliest(definition: &Definition, nodes: &[String]) -> Vec<String> {
    let graph = Graph::new(definition);
    let component = graph.components();
    let order = distances(definition, &graph);
    let numbers: Vec<usize> = nodes.iter().filter_map(|n| graph.number(n)).collect();
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for &n in &numbers {
        let leads = |m: &usize| component[*m] != component[n] && graph.reached(&[*m], None)[n];
        if numbers.iter().any(leads) {
            continue;
        }
        let slot = first.entry(component[n]).or_insert(n);
        if order[n] < order[*slot] {
            *slot = n;
        }
    }
    let mut first: Vec<usize> = first.into_values().collect();
    first.sort_unstable_by_key(|n| (order[*n], graph.id(*n)));
    first.into_iter().map(|n| graph.id(n).to_owned()).collect()
}

/// For each node how many edges it is from the entry.
fn distances(definition: &Definition, graph: &Graph<'_>) -> Vec<usize> {
    let mut far = vec![usize::MAX; definition.nodes.len()];
    let mut front: Vec<usize> = graph.number(&definition.entry.value).into_iter().collect();
    let mut distance = 0;
    while !front.is_empty() {
        front.retain(|n| far[*n] == usize::MAX);
        front.iter().for_each(|n| far[*n] = distance);
        front = front.iter().flat_map(|n| graph.next(*n).iter().copied()).collect();
        distance += 1;
    }
    far
}
