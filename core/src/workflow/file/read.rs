//! The top of a workflow file.

use std::collections::{BTreeMap, BTreeSet};

use super::definition::{Budget, CaptureMode, CheckpointMode, Definition, Template, WorktreeMode};
use super::fields::{Fields, Reader};
use super::yaml::{Node, Yaml};
use super::{MAX_EDGES, MAX_NODES, edges, inputs, nodes};
use crate::workflow::finding::{Code, Finding, Spanned};

const KEYS: [&str; 13] = [
    "backtrail",
    "name",
    "vars",
    "inputs",
    "secrets",
    "env",
    "budget",
    "capture",
    "checkpoint",
    "worktree",
    "entry",
    "nodes",
    "edges",
];

/// Reads a document. `None` when it is no map, or lacks what nothing goes without.
pub(super) fn workflow(
    r: &mut Reader,
    node: &Node,
    unread: &mut BTreeSet<String>,
) -> Option<Definition> {
    let top = r.fields(node, "a workflow", &KEYS)?;
    version(r, &top);
    let name = r.required(&top, "name").and_then(|n| name(r, n));
    let entry = r.required(&top, "entry").and_then(|n| r.text(n, "entry"));
    let nodes = r.required(&top, "nodes").and_then(|n| node_map(r, n, unread));
    let edges = top.get("edges").map(|n| edge_list(r, n)).unwrap_or_default();
    let capture = [
        ("required", CaptureMode::Required),
        ("best_effort", CaptureMode::BestEffort),
        ("off", CaptureMode::Off),
    ];
    let checkpoint = [("auto", CheckpointMode::Auto), ("each", CheckpointMode::Each)];
    let worktree = [("none", WorktreeMode::None), ("auto", WorktreeMode::Auto)];
    let definition = Definition {
        name: name.unwrap_or_default(),
        vars: top.get("vars").map(|n| vars(r, n)).unwrap_or_default(),
        inputs: top.get("inputs").map(|n| inputs::inputs(r, n)).unwrap_or_default(),
        secrets: top.get("secrets").map(|n| secrets(r, n)).unwrap_or_default(),
        env: top.get("env").map(|n| env(r, n)).unwrap_or_default(),
        budget: top.get("budget").and_then(|n| budget(r, n)).unwrap_or_default(),
        capture: top
            .get("capture")
            .and_then(|n| r.word(n, "capture", &capture))
            .unwrap_or_default(),
        checkpoint: top
            .get("checkpoint")
            .and_then(|n| r.word(n, "checkpoint", &checkpoint))
            .unwrap_or_default(),
        worktree: top
            .get("worktree")
            .and_then(|n| r.word(n, "worktree", &worktree))
            .unwrap_or_default(),
        entry: entry.clone().unwrap_or_default(),
        nodes: nodes?,
        edges,
    };
    entry.map(|_| definition)
}

fn version(r: &mut Reader, top: &Fields<'_>) {
    let Some(node) = r.required(top, "backtrail") else { return };
    match &node.yaml {
        Yaml::Number(n) if n.as_u64() == Some(1) => {}
        Yaml::Number(n) => {
            let text = format!("version {n} of the format is not known, only 1 is");
            r.add(Finding::new(Code::BadVersion, node.span, text));
        }
        other => {
            let text = format!("the version of the format must be 1, not {}", other.kind());
            r.add(Finding::new(Code::BadVersion, node.span, text));
        }
    }
}

/// As an id, and `-` is allowed.
fn name(r: &mut Reader, node: &Node) -> Option<Spanned<String>> {
    let text = r.text(node, "name")?;
    r.id(&text.value.replace('-', "_"), text.span, "name").then_some(text)
}

fn vars(r: &mut Reader, node: &Node) -> BTreeMap<String, serde_json::Value> {
    let entries = r.map(node, "vars").unwrap_or_default();
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        if r.id(&key.text, key.span, "variable") {
            out.insert(key.text.clone(), value.yaml.json());
        }
    }
    out
}

/// Names of environment variables.
pub(super) fn secrets(r: &mut Reader, node: &Node) -> Vec<Spanned<String>> {
    let items = r.list(node, "secrets").unwrap_or_default();
    let mut out: Vec<Spanned<String>> = Vec::new();
    for item in items {
        let Some(name) = r.text(item, "a secret") else { continue };
        if variable(r, &name) {
            out.push(name);
        }
    }
    out
}

/// The environment of a command: name → template.
pub(super) fn env(r: &mut Reader, node: &Node) -> BTreeMap<String, Template> {
    let entries = r.map(node, "env").unwrap_or_default();
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        let name = Spanned::new(key.text.clone(), key.span);
        let template = r.template(value, &format!("env {:?}", key.text));
        if let (true, Some(template)) = (variable(r, &name), template) {
            out.insert(name.value, template);
        }
    }
    out
}

fn variable(r: &mut Reader, name: &Spanned<String>) -> bool {
    let text = &name.value;
    let ok = !text.is_empty() && text.len() <= 255 && !text.contains(['=', '\0']);
    if !ok {
        let text = format!("{text:?} is no name of an environment variable");
        r.add(Finding::new(Code::BadId, name.span, text));
    } else if text.starts_with("BACKTRAIL_") {
        let text = format!("{text} is set by the engine");
        r.add(Finding::new(Code::BadValue, name.span, text));
        return false;
    }
    ok
}

fn budget(r: &mut Reader, node: &Node) -> Option<Budget> {
    let keys = ["duration", "iterations", "tokens", "cost_usd", "warn_at", "hard"];
    let f = r.fields(node, "budget", &keys)?;
    let default = Budget::default();
    let cost = |n: f64| n.is_finite() && n > 0.0;
    let share = |n: f64| n > 0.0 && n <= 1.0;
    let above = |n: f64| n.is_finite() && n >= 1.0;
    Some(Budget {
        duration: f.get("duration").and_then(|n| nonzero(r, n, "budget duration")),
        iterations: f
            .get("iterations")
            .and_then(|n| r.whole(n, "budget iterations", 1, u64::MAX))
            .unwrap_or(default.iterations),
        tokens: f.get("tokens").and_then(|n| r.whole(n, "budget tokens", 1, u64::MAX)),
        cost_usd: f.get("cost_usd").and_then(|n| r.number(n, "budget cost_usd", "above 0", cost)),
        warn_at: f
            .get("warn_at")
            .and_then(|n| r.number(n, "budget warn_at", "above 0 and at most 1", share))
            .unwrap_or(default.warn_at),
        hard: f
            .get("hard")
            .and_then(|n| r.number(n, "budget hard", "at least 1", above))
            .unwrap_or(default.hard),
    })
}

/// A duration that is not zero.
pub(super) fn nonzero(r: &mut Reader, node: &Node, what: &str) -> Option<std::time::Duration> {
    let duration = r.duration(node, what)?;
    if duration.is_zero() {
        r.add(Finding::new(Code::BadValue, node.span, format!("{what} must be above 0")));
        return None;
    }
    Some(duration)
}

fn node_map(
    r: &mut Reader,
    node: &Node,
    unread: &mut BTreeSet<String>,
) -> Option<BTreeMap<String, super::definition::Node>> {
    let entries = r.map(node, "nodes")?;
    if entries.len() > MAX_NODES {
        let text = format!("{} nodes, at most {MAX_NODES} are allowed", entries.len());
        r.add(Finding::new(Code::TooLarge, node.span, text));
        return None;
    }
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        let good = r.id(&key.text, key.span, "node id");
        match nodes::node(r, key, value) {
            Some(node) if good => drop(out.insert(key.text.clone(), node)),
            _ => drop(unread.insert(key.text.clone())),
        }
    }
    Some(out)
}

fn edge_list(r: &mut Reader, node: &Node) -> Vec<super::definition::Edge> {
    let items = r.list(node, "edges").unwrap_or_default();
    if items.len() > MAX_EDGES {
        let text = format!("{} edges, at most {MAX_EDGES} are allowed", items.len());
        r.add(Finding::new(Code::TooLarge, node.span, text));
        return Vec::new();
    }
    let drafts: Vec<edges::Draft> = items.iter().filter_map(|n| edges::edge(r, n)).collect();
    edges::with_loops(r, drafts)
}
