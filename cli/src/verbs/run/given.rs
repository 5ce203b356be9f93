//! What a person gives a run on the command line: inputs, variables, limits.

use std::path::Path;

use backtrail_core::error::{Error, Result};
use backtrail_core::workflow::drive::parse_value;
use backtrail_core::workflow::file::Definition;
use backtrail_core::workflow::file::definition::ValueType;
use backtrail_core::workflow::machine::Limits;
use serde_json::{Map, Value};

use super::read_file;
use crate::settings;

/// The most that is read for one input.
const MAX_INPUT: u64 = 8 << 20;

/// Limits that replace those of the file.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Raises {
    /// How long it may be active
    #[arg(long, value_name = "DUR")]
    max_duration: Option<String>,
    /// How many nodes it may execute
    #[arg(long, value_name = "N")]
    max_iterations: Option<String>,
    /// How many tokens its nodes may report
    #[arg(long, value_name = "N")]
    max_tokens: Option<String>,
    /// What its nodes may cost, in US dollars
    #[arg(long, value_name = "USD")]
    max_cost: Option<String>,
}

impl Raises {
    /// As limits. Fails naming the flag.
    pub(crate) fn limits(&self) -> Result<Limits> {
        let bad = |flag: &str, why: String| Error::invalid(format!("bad value for {flag}: {why}"));
        let count = |flag: &str, text: &Option<String>| {
            text.as_deref().map(settings::count).transpose().map_err(|why| bad(flag, why))
        };
        let duration = self.max_duration.as_deref().map(settings::duration).transpose();
        let cost = |text: &str| match text.parse::<f64>() {
            Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
            _ => Err(bad("--max-cost", format!("{text:?} is no amount"))),
        };
        Ok(Limits {
            duration: duration.map_err(|why| bad("--max-duration", why))?,
            iterations: count("--max-iterations", &self.max_iterations)?,
            tokens: count("--max-tokens", &self.max_tokens)?,
            cost_usd: self.max_cost.as_deref().map(cost).transpose()?,
        })
    }
}

/// `K=V`; a value of `@FILE` is what the file holds.
async fn pair(text: &str, flag: &str) -> Result<(String, String)> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(Error::invalid(format!("bad value for {flag}: {text:?} is not K=V")));
    };
    let value = match value.strip_prefix('@') {
        Some(literal) if literal.starts_with('@') => literal.to_owned(),
        Some(path) => {
            let bytes = read_file(Path::new(path), MAX_INPUT).await?;
            String::from_utf8(bytes)
                .map_err(|e| Error::invalid(format!("{path} is not UTF-8")).with_source(e))?
        }
        None => value.to_owned(),
    };
    Ok((key.to_owned(), value))
}

/// Inputs by their declared types; an unknown one is found out later, with the others.
pub(crate) async fn inputs(
    definition: &Definition,
    given: &[String],
) -> Result<Map<String, Value>> {
    let mut out = Map::new();
    for text in given {
        let (key, value) = pair(text, "--input").await?;
        let declared = definition.inputs.get(&key).map(|spec| spec.value_type);
        let value =
            parse_value(&format!("input {key:?}"), declared.unwrap_or(ValueType::String), &value)?;
        out.insert(key, value);
    }
    Ok(out)
}

/// Variables by the types of the values that they replace.
pub(crate) async fn vars(definition: &Definition, given: &[String]) -> Result<Map<String, Value>> {
    let mut out = Map::new();
    for text in given {
        let (key, value) = pair(text, "--var").await?;
        let Some(replaced) = definition.vars.get(&key) else {
            return Err(Error::invalid(format!("the workflow has no variable {key:?}")));
        };
        let value_type = match replaced {
            Value::String(_) => ValueType::String,
            Value::Bool(_) => ValueType::Bool,
            Value::Number(n) if n.is_f64() => ValueType::Number,
            Value::Number(_) => ValueType::Int,
            _ => ValueType::Json,
        };
        let value = parse_value(&format!("variable {key:?}"), value_type, &value)?;
        out.insert(key, value);
    }
    Ok(out)
}

/// The object that a JSON file holds.
pub(crate) async fn object_file(path: Option<&Path>) -> Result<Map<String, Value>> {
    let Some(path) = path else { return Ok(Map::new()) };
    let bytes = read_file(path, MAX_INPUT).await?;
    serde_json::from_slice(&bytes).map_err(|e| {
        Error::invalid(format!("{} holds no JSON object", path.display())).with_source(e)
    })
}

/// Answers as they are given: JSON where it is JSON of another type than text.
pub(crate) async fn pairs(given: &[String], flag: &str) -> Result<Vec<(String, String)>> {
    let mut out = Vec::new();
    for text in given {
        out.push(pair(text, flag).await?);
    }
    Ok(out)
}
