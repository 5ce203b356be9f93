//! What a template sees: these names and nothing else.

use std::collections::BTreeMap;

use minijinja::value::{Serde, Value as Jinja};
use serde_json::{Map, Value, json};

use super::names::Reference;

/// The names of a template. No environment, no files, no clock, no chance.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// `vars`.
    pub vars: &'a Map<String, Value>,
    /// `inputs`.
    pub inputs: &'a Map<String, Value>,
    /// `outputs.<node>`.
    pub outputs: &'a Map<String, Value>,
    /// `last`: the output of the node the selected edge came from.
    pub last: &'a Value,
    /// `loops.<name>`: how often its edges were taken.
    pub loops: &'a BTreeMap<String, u64>,
    /// `run`: id, name, workspace.
    pub run: &'a Value,
    /// `node`: id, iteration, attempt.
    pub node: &'a Value,
    /// `artifacts.<node>`.
    pub artifacts: &'a Map<String, Value>,
    /// `branches.<start node>`: ok, error.
    pub branches: &'a Map<String, Value>,
}

impl<'a> Scope<'a> {
    /// The top-level names.
    pub const ROOTS: [&'static str; 9] =
        ["vars", "inputs", "outputs", "last", "loops", "run", "node", "artifacts", "branches"];

    fn map(&self, root: &str) -> Option<&'a Map<String, Value>> {
        match root {
            "vars" => Some(self.vars),
            "inputs" => Some(self.inputs),
            "outputs" => Some(self.outputs),
            "artifacts" => Some(self.artifacts),
            "branches" => Some(self.branches),
            _ => None,
        }
    }

    fn root(&self, root: &str) -> Value {
        match root {
            "last" => self.last.clone(),
            "run" => self.run.clone(),
            "node" => self.node.clone(),
            "loops" => json!(self.loops),
            _ => self.map(root).map(|m| Value::Object(m.clone())).unwrap_or_default(),
        }
    }

    /// The names as the template engine takes them; of the large ones only what is used.
    pub(super) fn context(&self, references: &[Reference]) -> Jinja {
        let pairs = Self::ROOTS.iter().filter_map(|root| {
            let mut used = references.iter().filter(|r| r.path[0].text == *root).peekable();
            used.peek()?;
            let Some(map) = self.map(root) else {
                return Some((*root, Jinja::from(Serde(self.root(root)))));
            };
            let mut part = Map::new();
            for reference in used {
                let Some(second) = reference.path.get(1) else {
                    return Some((*root, Jinja::from(Serde(map))));
                };
                if let Some(value) = map.get(&second.text) {
                    part.insert(second.text.clone(), value.clone());
                }
            }
            Some((*root, Jinja::from(Serde(part))))
        });
        Jinja::from_pairs(pairs)
    }

    /// The first step of a path that leads nowhere, with the names known there.
    pub(super) fn missing(&self, reference: &Reference) -> Option<(String, Vec<String>)> {
        let mut steps = reference.path.iter();
        let root = &steps.next()?.text;
        if !Self::ROOTS.contains(&root.as_str()) {
            return Some((root.clone(), Self::ROOTS.iter().map(|r| String::from(*r)).collect()));
        }
        let mut at = self.root(root);
        for step in steps {
            match at.get(&step.text) {
                Some(next) => at = next.clone(),
                None => {
                    let known = at.as_object().map(|m| m.keys().cloned().collect());
                    return Some((step.text.clone(), known.unwrap_or_default()));
                }
            }
        }
        None
    }
}
