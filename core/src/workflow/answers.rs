//! Answers against what was asked for.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::file::definition::{AnswerSpec, ValueType};
use super::nearest::nearest;

/// What is asked for: key → form.
pub type AnswerSchema = BTreeMap<String, AnswerSpec>;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerProblem {
    /// The key.
    pub key: String,
    /// What, in one line.
    pub message: String,
    /// What to do instead.
    pub help: Option<String>,
}

/// Each problem in one line, with what to do instead.
pub fn told(problems: &[AnswerProblem]) -> Vec<String> {
    let line = |p: &AnswerProblem| match &p.help {
        Some(help) => format!("{}; {help}", p.message),
        None => p.message.clone(),
    };
    problems.iter().map(line).collect()
}

/// The answers with their defaults, or everything that is wrong with them.
pub fn check_answers(
    schema: &AnswerSchema,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, Vec<AnswerProblem>> {
    let mut problems = Vec::new();
    for key in given.keys().filter(|k| !schema.contains_key(*k)) {
        let near = nearest(key, schema.keys().map(String::as_str));
        problems.push(AnswerProblem {
            key: key.clone(),
            message: format!("{key:?} is not asked for"),
            help: near.map(|n| format!("did you mean {n:?}?")),
        });
    }
    let mut out = Map::new();
    for (key, spec) in schema {
        match given.get(key).or(spec.default.as_ref()) {
            Some(value) => match unsuited(key, spec, value) {
                Some(problem) => problems.push(problem),
                None => drop(out.insert(key.clone(), value.clone())),
            },
            None if spec.required => problems.push(AnswerProblem {
                key: key.clone(),
                message: format!("{key:?} is not answered"),
                help: Some(format!("give {}", form(spec))),
            }),
            None => {}
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

fn unsuited(key: &str, spec: &AnswerSpec, value: &Value) -> Option<AnswerProblem> {
    let message = if !spec.value_type.accepts(value) {
        format!("{key:?} must be of the type {}", spec.value_type.as_str())
    } else if !spec.choices.is_empty() && !spec.choices.contains(value) {
        format!("{key:?} must not be {value}")
    } else {
        return None;
    };
    let near = value.as_str().and_then(|text| {
        nearest(text, spec.choices.iter().filter_map(Value::as_str)).map(str::to_owned)
    });
    let help =
        near.map_or_else(|| format!("give {}", form(spec)), |n| format!("did you mean {n:?}?"));
    Some(AnswerProblem { key: key.to_owned(), message, help: Some(help) })
}

fn form(spec: &AnswerSpec) -> String {
    if spec.choices.is_empty() {
        return format!("a value of the type {}", spec.value_type.as_str());
    }
    let choices: Vec<String> = spec.choices.iter().map(Value::to_string).collect();
    format!("one of {}", choices.join(", "))
}

/// The schema as an interaction keeps it: `answer_schema`.
pub fn schema_json(schema: &AnswerSchema) -> Value {
    let entry = |spec: &AnswerSpec| {
        let mut out = json!({ "type": spec.value_type.as_str(), "required": spec.required });
        if !spec.choices.is_empty() {
            out["choices"] = Value::from(spec.choices.clone());
        }
        if let Some(default) = &spec.default {
            out["default"] = default.clone();
        }
        if let Some(text) = &spec.text {
            out["text"] = Value::from(text.clone());
        }
        out
    };
    Value::Object(schema.iter().map(|(key, spec)| (key.clone(), entry(spec))).collect())
}

/// Reads `answer_schema` of an interaction, or `answers` of a question file. The error says
/// what is wrong with it.
pub fn schema_from_json(value: &Value) -> Result<AnswerSchema, String> {
    let object = value.as_object().ok_or("answers must be an object")?;
    object.iter().map(|(key, spec)| Ok((key.clone(), answer_from_json(key, spec)?))).collect()
}

/// The schema of questions that name no answers: each key is answered by text.
pub fn text_schema<'a>(keys: impl IntoIterator<Item = &'a String>) -> AnswerSchema {
    keys.into_iter().map(|key| (key.clone(), AnswerSpec::text())).collect()
}

fn answer_from_json(key: &str, value: &Value) -> Result<AnswerSpec, String> {
    let known = ["type", "required", "choices", "default", "text"];
    let object = value.as_object().ok_or_else(|| format!("answer {key:?} must be an object"))?;
    if let Some(other) = object.keys().find(|k| !known.contains(&k.as_str())) {
        return Err(format!("answer {key:?} has no key {other:?}"));
    }
    let word = object.get("type").and_then(Value::as_str).unwrap_or("string");
    let value_type = ValueType::WORDS.iter().find(|(w, _)| *w == word);
    let (_, value_type) =
        value_type.ok_or_else(|| format!("answer {key:?} has no type {word:?}"))?;
    let choices = match object.get("choices") {
        None => Vec::new(),
        Some(Value::Array(choices)) => choices.clone(),
        Some(_) => return Err(format!("choices of answer {key:?} must be a list")),
    };
    let required = match object.get("required") {
        None => true,
        Some(Value::Bool(b)) => *b,
        Some(_) => return Err(format!("required of answer {key:?} must be true or false")),
    };
    Ok(AnswerSpec {
        value_type: *value_type,
        required,
        choices,
        default: object.get("default").cloned(),
        text: object.get("text").and_then(Value::as_str).map(str::to_owned),
    })
}
