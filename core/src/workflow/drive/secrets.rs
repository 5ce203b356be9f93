//! Secrets of a run: what commands are given, and what is redacted wherever it would be
//! stored.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};

use super::Settings;
use crate::error::{Error, Result};
use crate::redact::{Redactor, Secrets};
use crate::workflow::file::Definition;

/// The secrets of a run.
pub(super) struct Known {
    /// Name → value of the declared ones.
    pub(super) declared: BTreeMap<String, OsString>,
    /// Replaces all of them.
    pub(super) redactor: Redactor,
    /// Secrets that are too short to be looked for.
    pub(super) warnings: Vec<String>,
}

impl Known {
    /// Takes declared secrets from the engine's environment and the inputs. Fails with
    /// `missing-secret` (exit 2) naming those that are not set.
    pub(super) fn collect(
        definition: &Definition,
        inputs: &Map<String, Value>,
        settings: &Settings,
    ) -> Result<Self> {
        let mut secrets = Secrets::default();
        let mut declared = BTreeMap::new();
        let mut missing = Vec::new();
        let mut short = Vec::new();
        for name in definition.secrets.iter().map(|s| &s.value) {
            match find(settings, name) {
                Some(value) => {
                    if !secrets.declare(name, value.as_bytes()) {
                        short.push(name.clone());
                    }
                    declared.insert(name.clone(), value.to_owned());
                }
                None => missing.push(name.as_str()),
            }
        }
        if !missing.is_empty() {
            let message = format!("the environment lacks the secret {}", missing.join(", "));
            return Err(Error::invalid(message)
                .with_code("missing-secret")
                .with_detail("missing", missing));
        }
        for (name, _) in definition.inputs.iter().filter(|(_, spec)| spec.secret) {
            for text in inputs.get(name).into_iter().flat_map(texts) {
                if !secrets.declare(name, text.as_bytes()) {
                    short.push(name.clone());
                }
            }
        }
        guess(&mut secrets, settings);
        short.dedup();
        let told = |name: &String| format!("secret {name} is too short to be redacted");
        Ok(Self {
            declared,
            redactor: secrets.redactor()?,
            warnings: short.iter().map(told).collect(),
        })
    }
}

/// What is redacted where nothing is declared.
pub(super) fn guessed(settings: &Settings) -> Result<Redactor> {
    let mut secrets = Secrets::default();
    guess(&mut secrets, settings);
    secrets.redactor()
}

fn guess(secrets: &mut Secrets, settings: &Settings) {
    if settings.redact_guessed {
        let named = settings.environment.iter();
        secrets.guess(named.filter_map(|(n, v)| Some((n.to_str()?, v.as_bytes()))));
    }
}

fn find<'s>(settings: &'s Settings, name: &str) -> Option<&'s OsStr> {
    let found = settings.environment.iter().rfind(|(n, _)| n == name);
    found.map(|(_, value)| value.as_os_str())
}

/// The texts of an input that is secret.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(map) => map.values().flat_map(texts).collect(),
        Value::Number(number) => vec![number.to_string()],
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

/// Inputs as a record keeps them: secret ones as `[redacted]`.
pub(super) fn recorded(
    definition: &Definition,
    inputs: &Map<String, Value>,
    redactor: &Redactor,
) -> Map<String, Value> {
    let clear = |(name, value): (&String, &Value)| {
        let secret = definition.inputs.get(name).is_some_and(|spec| spec.secret);
        let value = if secret { Value::from("[redacted]") } else { redactor.json(value.clone()) };
        (name.clone(), value)
    };
    inputs.iter().map(clear).collect()
}
