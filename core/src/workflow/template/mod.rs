//! Templates and expressions: strict, bounded, and nothing but what they are handed.

mod engine;
mod names;
mod scope;
mod shell;

use std::fmt;

use serde_json::{Map, Value};

use super::file::definition::{Template, Templated};

pub use engine::{FILTERS, FUNCTIONS, TESTS};
pub use names::{
    Call, CallKind, Names, Reference, Step, SyntaxError, expression_names, template_names,
};
pub use scope::Scope;
pub use shell::{Emit, emits};

/// The largest result, in bytes.
pub const MAX_RESULT: usize = 1 << 20;

/// What a template fails with: `EXPRESSION_FAILED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// The expression, or the start of the template.
    pub expression: String,
    /// The line of the file.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
    /// The known name that was probably meant.
    pub nearest: Option<String>,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {:?}: {}", self.line, self.expression, self.message)?;
        match &self.nearest {
            Some(near) => write!(f, "; did you mean {near:?}?"),
            None => Ok(()),
        }
    }
}

/// How the results of `{{ }}` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As they are; all but text as JSON.
    Plain,
    /// As one word of a shell, unless `raw` comes last.
    Shell,
}

/// The text of a template.
pub fn render(
    template: &Template,
    scope: &Scope<'_>,
    mode: Mode,
) -> Result<String, ExpressionError> {
    engine::render(template, scope, mode)
}

/// The value of a template: exactly one `{{ }}` keeps its JSON type, all else is text.
pub fn value(template: &Template, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
    match names::single(&template.text) {
        Some(expression) => engine::evaluate(template, expression, scope),
        None => render(template, scope, Mode::Plain).map(Value::String),
    }
}

/// The value of an expression, such as `outputs.plan.steps > 3`.
pub fn expression(template: &Template, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
    engine::evaluate(template, &template.text, scope)
}

/// Whether a condition holds. Anything but true or false is an error, the text "false" too.
pub fn condition(template: &Template, scope: &Scope<'_>) -> Result<bool, ExpressionError> {
    match expression(template, scope)? {
        Value::Bool(holds) => Ok(holds),
        other => Err(ExpressionError {
            expression: template.text.clone(),
            line: template.span.line,
            message: format!("a condition must give true or false, not {}", shown(&other)),
            nearest: None,
        }),
    }
}

/// The value of a value whose texts are templates.
pub fn build(templated: &Templated, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
    match templated {
        Templated::Constant(value) => Ok(value.clone()),
        Templated::Text(template) => value(template, scope),
        Templated::List(items) => items.iter().map(|item| build(item, scope)).collect(),
        Templated::Map(entries) => {
            let mut out = Map::new();
            for (key, item) in entries {
                out.insert(key.clone(), build(item, scope)?);
            }
            Ok(Value::Object(out))
        }
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 80 { text } else { text.chars().take(79).chain(['…']).collect() }
}
