//! Inputs that a person gave, against what a workflow declares.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::workflow::file::Definition;
use crate::workflow::file::definition::ValueType;
use crate::workflow::nearest::nearest;

/// Reads text as a value of a declared type. Fails with `bad-value` saying what is
/// expected.
pub fn parse_value(name: &str, value_type: ValueType, text: &str) -> Result<Value> {
    let value = match value_type {
        ValueType::String => Some(Value::from(text)),
        ValueType::Json => serde_json::from_str(text).ok(),
        _ => serde_json::from_str(text).ok().filter(|v| value_type.accepts(v)),
    };
    value.ok_or_else(|| {
        let wanted = value_type.as_str();
        Error::invalid(format!("{name} must be of the type {wanted}, it is {text:?}"))
    })
}

/// The inputs of a run: those given, and defaults for the rest. Fails with `bad-value`
/// naming everything that is missing, unknown or of another form.
pub fn check_inputs(
    definition: &Definition,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>> {
    let mut wrong = Vec::new();
    for name in given.keys().filter(|n| !definition.inputs.contains_key(*n)) {
        let near = nearest(name, definition.inputs.keys().map(String::as_str));
        let help = near.map(|n| format!(", did you mean {n:?}?")).unwrap_or_default();
        wrong.push(format!("there is no input {name:?}{help}"));
    }
    let mut out = Map::new();
    for (name, spec) in &definition.inputs {
        match given.get(name).or(spec.default.as_ref()) {
            Some(value) if !spec.value_type.accepts(value) => {
                let wanted = spec.value_type.as_str();
                wrong.push(format!("input {name:?} must be of the type {wanted}"));
            }
            Some(value) if !spec.choices.is_empty() && !spec.choices.contains(value) => {
                let choices: Vec<String> = spec.choices.iter().map(Value::to_string).collect();
                wrong.push(format!("input {name:?} must be one of {}", choices.join(", ")));
            }
            Some(value) => drop(out.insert(name.clone(), value.clone())),
            None if spec.required => wrong.push(format!("input {name:?} is required")),
            None => {}
        }
    }
    match wrong.is_empty() {
        true => Ok(out),
        false => Err(Error::invalid(wrong.join("; ")).with_detail("problems", wrong)),
    }
}
