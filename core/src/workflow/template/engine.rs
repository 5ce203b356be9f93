//! The template engine: which filters there are, what it may spend, what its errors say.

use std::fmt;
use std::sync::{Arc, OnceLock};

use minijinja::value::{Object, Value as Jinja};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use serde_json::Value;

use super::names::{Names, expression_names, syntax, template_names};
use super::scope::Scope;
use super::{ExpressionError, MAX_RESULT, Mode, shown};
use crate::path::shell_quoted;
use crate::workflow::file::definition::Template;
use crate::workflow::nearest::nearest;

/// What an evaluation may spend.
const FUEL: u64 = 100_000;

/// The filters of templates.
pub const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "chain",
    "count",
    "d",
    "default",
    "dictsort",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "raw",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "zip",
];

/// The tests of templates.
pub const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "even",
    "false",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "int",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
    "upper",
];

/// The functions of templates.
pub const FUNCTIONS: &[&str] = &["dict", "namespace", "range"];

/// Text that `raw` let through. No filter keeps it raw: only the last one can be `raw`.
#[derive(Debug)]
struct Raw(String);

impl Object for Raw {
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A result as text: text as it is, all else as JSON.
fn text(value: &Jinja) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => serde_json::to_string(value)
            .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string())),
    }
}

fn write(out: &mut Output<'_>, value: &Jinja, quoted: bool) -> Result<(), Error> {
    if let Some(raw) = value.downcast_object_ref::<Raw>() {
        return Ok(out.write_str(&raw.0)?);
    }
    let text = text(value)?;
    // `{{ x if y }}` without an else gives no word at all
    let quoted = quoted && !value.is_undefined();
    Ok(out.write_str(&if quoted { shell_quoted(&text) } else { text })?)
}

fn environment(quoted: bool) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_syntax(syntax());
    env.set_formatter(move |out, _: &mut State<'_, '_>, value| write(out, value, quoted));
    for filter in ["safe", "escape", "e", "pprint"] {
        env.remove_filter(filter);
    }
    for test in ["safe", "escaped", "filter", "test"] {
        env.remove_test(test);
    }
    env.remove_global("debug");
    env.add_filter("tojson", |value: &Jinja| match value.as_str() {
        Some(text) => Ok(Value::from(text).to_string()),
        None => text(value),
    });
    env.add_filter("raw", |value: &Jinja| text(value).map(|t| Jinja::from_object(Raw(t))));
    env
}

fn engine(mode: Mode) -> &'static Environment<'static> {
    static PLAIN: OnceLock<Environment<'static>> = OnceLock::new();
    static SHELL: OnceLock<Environment<'static>> = OnceLock::new();
    match mode {
        Mode::Plain => PLAIN.get_or_init(|| environment(false)),
        Mode::Shell => SHELL.get_or_init(|| environment(true)),
    }
}

pub(super) fn render(
    template: &Template,
    scope: &Scope<'_>,
    mode: Mode,
) -> Result<String, ExpressionError> {
    if !template.text.contains(['{', '}']) {
        return Ok(template.text.clone());
    }
    let failure = Failure { template, expression: &template.text, scope };
    let names = template_names(&template.text).map_err(|e| failure.plain(e.message))?;
    let rendered = engine(mode)
        .template_from_named_str("workflow", &template.text)
        .and_then(|t| t.render(scope.context(&names.references)))
        .map_err(|e| failure.of(&e, &names))?;
    if rendered.len() > MAX_RESULT {
        return Err(failure.plain(format!("the result is larger than {MAX_RESULT} bytes")));
    }
    Ok(rendered)
}

pub(super) fn evaluate(
    template: &Template,
    expression: &str,
    scope: &Scope<'_>,
) -> Result<Value, ExpressionError> {
    let failure = Failure { template, expression, scope };
    let names = expression_names(expression).map_err(|e| failure.plain(e.message))?;
    let value = engine(Mode::Plain)
        .compile_expression(expression)
        .and_then(|e| e.eval(scope.context(&names.references)))
        .map_err(|e| failure.of(&e, &names))?;
    if value.is_undefined() {
        return Err(failure.of(&Error::from(ErrorKind::UndefinedError), &names));
    }
    let value = match value.downcast_object_ref::<Raw>() {
        Some(raw) => Value::String(raw.0.clone()),
        None => serde_json::to_value(&value)
            .map_err(|_| failure.plain("the result is no JSON value".to_owned()))?,
    };
    if value.to_string().len() > MAX_RESULT {
        return Err(failure.plain(format!("the result is larger than {MAX_RESULT} bytes")));
    }
    Ok(value)
}

struct Failure<'a> {
    template: &'a Template,
    expression: &'a str,
    scope: &'a Scope<'a>,
}

impl Failure<'_> {
    fn plain(&self, message: String) -> ExpressionError {
        ExpressionError {
            expression: short(self.expression.trim()),
            line: self.template.span.line,
            message,
            nearest: None,
        }
    }

    fn of(&self, error: &Error, names: &Names) -> ExpressionError {
        let inner = error.line().unwrap_or(1).saturating_sub(1);
        let several = self.template.span.end_line > self.template.span.line;
        let mut out = self.plain(describe(error));
        if several {
            out.line += inner;
        }
        if error.kind() == ErrorKind::UndefinedError {
            let missing = names.references.iter().find_map(|r| {
                let (step, known) = self.scope.missing(r)?;
                Some((r, step, known))
            });
            if let Some((reference, step, known)) = missing {
                out.expression = reference.text();
                out.message = format!("{step:?} is not known here");
                out.nearest = nearest(&step, known.iter().map(String::as_str)).map(str::to_owned);
            }
        }
        out
    }
}

fn describe(error: &Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => String::from("the template takes too long or gives too much"),
        ErrorKind::UndefinedError => String::from("a name that is not known"),
        kind => error.detail().map_or_else(|| kind.to_string(), |d| format!("{kind}: {d}")),
    }
}

fn short(text: &str) -> String {
    let quoted = shown(&Value::from(text));
    quoted.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_what_the_engine_knows() {
        let env = engine(Mode::Plain);
        for filter in FILTERS {
            let source = format!("{{{{ none | {filter} }}}}");
            if let Err(e) = env.render_str(&source, ()) {
                assert_ne!(e.kind(), ErrorKind::UnknownFilter, "{filter}");
            }
        }
        for test in TESTS {
            let source = format!("{{{{ none is {test}(1) }}}}");
            if let Err(e) = env.render_str(&source, ()) {
                assert_ne!(e.kind(), ErrorKind::UnknownTest, "{test}");
            }
        }
        for function in FUNCTIONS {
            assert!(env.globals().any(|(name, _)| name == *function), "{function}");
        }
    }
}
