//! What a command reported: its output file, or the question that it asks.

use std::io::Read;

use serde_json::{Map, Value};

use super::attempt::End;
use super::scratch::AttemptFiles;
use crate::error::{Error, Result};
use crate::fsx::{self, Dir, FileKind};

/// The most that a command may report, in bytes.
pub const MAX_OUTPUT: usize = 1 << 20;
/// With this code and a question a command asks.
const ASKS: i32 = 75;

/// What a person shall answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Shown; any keys.
    pub questions: Map<String, Value>,
    /// The schema of the answers, as written.
    pub answers: Option<Value>,
}

/// Whether a command asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// No.
    No,
    /// It wrote a question and exited with 75.
    Yes(Question),
    /// It exited with 75 and wrote none: a failure.
    WithoutQuestion,
    /// It wrote a question and ended otherwise: to be ignored with a warning.
    Ignored,
}

/// The object that a command reported, and what of it feeds the budget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reported {
    /// All of it.
    pub object: Map<String, Value>,
    /// `_tokens`.
    pub tokens: Option<u64>,
    /// `_cost_usd`.
    pub cost_usd: Option<f64>,
}

/// Reads bytes as the object that a command reported; `what` names them in messages.
/// Every failure has the code `schema-validation` and the details `line` and `column`.
pub fn reported(bytes: &[u8], what: &str) -> Result<Reported> {
    let object = object(bytes, what)?;
    let mut out = Reported::default();
    let wrong = |key: &str, wants: &str, has: &Value| {
        let why = format!("{key:?} must be {wants}, it is {has}");
        bad(what, &why, position_of(bytes, key))
    };
    if let Some(tokens) = object.get("_tokens") {
        let valid = tokens.as_u64();
        let valid = valid.ok_or_else(|| wrong("_tokens", "an integer of 0 or more", tokens))?;
        out.tokens = Some(valid);
    }
    if let Some(cost) = object.get("_cost_usd") {
        let valid = cost.as_f64().filter(|c| c.is_finite() && *c >= 0.0);
        let valid = valid.ok_or_else(|| wrong("_cost_usd", "a number of 0 or more", cost))?;
        out.cost_usd = Some(valid);
    }
    out.object = object;
    Ok(out)
}

impl AttemptFiles {
    /// Reads what the command wrote to its output file; nothing written is an empty
    /// object. Blocks, but never on what the command put in the file's place.
    pub fn read_output(&self) -> Result<Reported> {
        match read(self.dir(), Self::OUTPUT, "the output file")? {
            Some(bytes) => reported(&bytes, "the output file"),
            None => Ok(Reported::default()),
        }
    }

    /// Tells whether the command asks a question. Blocks.
    pub fn read_question(&self, end: End) -> Result<Asked> {
        const WHAT: &str = "the question file";
        let asks = end == End::Code(ASKS);
        if !asks {
            let there = self.dir().stat(Self::QUESTION.as_bytes()).is_ok();
            return Ok(if there { Asked::Ignored } else { Asked::No });
        }
        let Some(bytes) = read(self.dir(), Self::QUESTION, WHAT)? else {
            return Ok(Asked::WithoutQuestion);
        };
        let mut object = object(&bytes, WHAT)?;
        let questions = match object.remove("questions") {
            Some(Value::Object(questions)) if !questions.is_empty() => questions,
            _ => {
                return Err(bad(WHAT, "\"questions\" must be an object that is not empty", (1, 1)));
            }
        };
        let answers = object.remove("answers");
        if let Some(key) = object.keys().next() {
            let message = format!("unknown key {key:?}; \"questions\" and \"answers\" are known");
            return Err(bad(WHAT, &message, position_of(&bytes, key)));
        }
        Ok(Asked::Yes(Question { questions, answers }))
    }
}

/// Reads a file that a command may have written: regular, no link, at most 1 MiB.
fn read(dir: &Dir, name: &str, what: &str) -> Result<Option<Vec<u8>>> {
    let cannot = |why: &str| bad(what, why, (1, 1));
    let file = match dir.open_file(name.as_bytes()) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(_) if dir.stat(name.as_bytes()).is_ok_and(|s| s.kind == FileKind::Symlink) => {
            return Err(cannot("it is a link, which is not followed"));
        }
        Err(e) => return Err(cannot(&format!("it cannot be read: {e}"))),
    };
    let stat = fsx::stat_open(&file).map_err(|e| cannot(&format!("it cannot be read: {e}")))?;
    if stat.kind != FileKind::File {
        return Err(cannot("it is no regular file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_OUTPUT as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|e| cannot(&format!("it cannot be read: {e}")))?;
    if bytes.len() > MAX_OUTPUT {
        let size = stat.size.max(bytes.len() as u64);
        return Err(cannot(&format!("it has {size} bytes, at most {MAX_OUTPUT} are allowed")));
    }
    Ok(Some(bytes))
}

fn object(bytes: &[u8], what: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text(bytes, what)?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let start = bytes.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
            let message = format!("it holds {}, not an object", kind(&other));
            Err(bad(what, &message, position(bytes, start)))
        }
        Err(e) => {
            let text = e.to_string();
            let reason = text.split(" at line ").next().unwrap_or_default();
            Err(bad(what, &format!("it is not JSON: {reason}"), (e.line(), e.column().max(1))))
        }
    }
}

/// Bytes as text.
pub(super) fn text<'b>(bytes: &'b [u8], what: &str) -> Result<&'b str> {
    std::str::from_utf8(bytes)
        .map_err(|e| bad(what, "it is not UTF-8", position(bytes, e.valid_up_to())))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// An error in what a command wrote.
pub(super) fn bad(what: &str, why: &str, (line, column): (usize, usize)) -> Error {
    let message = format!("{what}, line {line}, column {column}: {why}");
    Error::failed("schema-validation", message)
        .with_detail("line", line)
        .with_detail("column", column)
}

/// Line and column, from 1, of the byte at `at`; a column counts characters.
fn position(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = &bytes[..at.min(bytes.len())];
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

/// Where a key first stands; the beginning when it is written with escapes.
fn position_of(bytes: &[u8], key: &str) -> (usize, usize) {
    let quoted = format!("\"{key}\"");
    let found = bytes.windows(quoted.len()).position(|w| w == quoted.as_bytes());
    position(bytes, found.unwrap_or(0))
}
