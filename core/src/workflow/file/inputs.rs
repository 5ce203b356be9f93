//! Inputs, answers and output fields: types with what else is said about them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::definition::{AnswerSpec, FieldSpec, InputSpec, ValueType};
use super::fields::Reader;
use super::yaml::{Node, Yaml};
use crate::workflow::finding::{Code, Finding};

pub(super) fn inputs(r: &mut Reader, node: &Node) -> BTreeMap<String, InputSpec> {
    let keys = ["type", "required", "default", "enum", "secret", "description"];
    let mut out = BTreeMap::new();
    for (key, value) in r.map(node, "inputs").unwrap_or_default() {
        let what = format!("input {:?}", key.text);
        let good = r.id(&key.text, key.span, "input");
        let Some(f) = r.fields(value, &what, &keys) else { continue };
        let value_type = r.required(&f, "type").and_then(|n| value_type(r, n, &what));
        let spec = InputSpec {
            value_type: value_type.unwrap_or(ValueType::Json),
            required: f.get("required").and_then(|n| r.boolean(n, "required")).unwrap_or(false),
            default: f.get("default").map(|n| n.yaml.json()),
            choices: f.get("enum").map(|n| choices(r, n, "enum", value_type)).unwrap_or_default(),
            secret: f.get("secret").and_then(|n| r.boolean(n, "secret")).unwrap_or(false),
            description: f
                .get("description")
                .and_then(|n| r.text(n, "description"))
                .map(|s| s.value),
            span: key.span,
        };
        if let (Some(default), Some(node)) = (&spec.default, f.get("default")) {
            suits(r, node, default, value_type, &spec.choices);
        }
        if good {
            out.insert(key.text.clone(), spec);
        }
    }
    out
}

fn value_type(r: &mut Reader, node: &Node, what: &str) -> Option<ValueType> {
    r.word(node, &format!("the type of {what}"), &ValueType::WORDS)
}

fn choices(r: &mut Reader, node: &Node, what: &str, wanted: Option<ValueType>) -> Vec<Value> {
    let mut out = Vec::new();
    for item in r.list(node, what).unwrap_or_default() {
        let value = item.yaml.json();
        suits(r, item, &value, wanted, &[]);
        out.push(value);
    }
    out
}

/// Checks a value that stands in the file against its type and choices.
fn suits(r: &mut Reader, node: &Node, value: &Value, wanted: Option<ValueType>, choices: &[Value]) {
    if let Some(wanted) = wanted.filter(|t| !t.accepts(value)) {
        let text = format!("{value} is not of the type {}", wanted.as_str());
        r.add(Finding::new(Code::WrongType, node.span, text));
    } else if !choices.is_empty() && !choices.contains(value) {
        let text = format!("{value} is none of the values that are allowed");
        r.add(Finding::new(Code::BadValue, node.span, text));
    }
}

/// The answers of a `human` node.
pub(super) fn answers(r: &mut Reader, node: &Node) -> BTreeMap<String, AnswerSpec> {
    let keys = ["type", "required", "choices", "default", "text"];
    let mut out = BTreeMap::new();
    for (key, value) in r.map(node, "answers").unwrap_or_default() {
        let what = format!("answer {:?}", key.text);
        let good = r.id(&key.text, key.span, "answer");
        let Some(f) = r.fields(value, &what, &keys) else { continue };
        let wanted = r.required(&f, "type").and_then(|n| value_type(r, n, &what));
        let spec = AnswerSpec {
            value_type: wanted.unwrap_or(ValueType::Json),
            required: f.get("required").and_then(|n| r.boolean(n, "required")).unwrap_or(true),
            choices: f.get("choices").map(|n| choices(r, n, "choices", wanted)).unwrap_or_default(),
            default: f.get("default").map(|n| n.yaml.json()),
            text: f.get("text").and_then(|n| r.text(n, "text")).map(|s| s.value),
        };
        if let (Some(default), Some(node)) = (&spec.default, f.get("default")) {
            suits(r, node, default, wanted, &spec.choices);
        }
        if good {
            out.insert(key.text.clone(), spec);
        }
    }
    out
}

/// `output_schema`: field → type, or {type, required}.
pub(super) fn schema(r: &mut Reader, node: &Node) -> BTreeMap<String, FieldSpec> {
    let mut out = BTreeMap::new();
    for (key, value) in r.map(node, "output_schema").unwrap_or_default() {
        let what = format!("field {:?}", key.text);
        if key.text.starts_with('_') {
            let text = format!("{what}: names beginning with _ are reserved");
            r.add(Finding::new(Code::BadId, key.span, text));
        }
        let (word, required) = if matches!(value.yaml, Yaml::Map(_)) {
            let Some(f) = r.fields(value, &what, &["type", "required"]) else { continue };
            let required = f.get("required").and_then(|n| r.boolean(n, "required"));
            (r.required(&f, "type"), required.unwrap_or(true))
        } else {
            (Some(value), true)
        };
        if let Some(value_type) = word.and_then(|n| value_type(r, n, &what)) {
            out.insert(key.text.clone(), FieldSpec { value_type, required });
        }
    }
    out
}
