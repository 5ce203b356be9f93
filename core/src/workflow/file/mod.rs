//! A workflow file: YAML, then types; everything wrong with it in one reading.

pub mod definition;
mod edges;
mod fields;
mod inputs;
mod nodes;
mod read;
mod run;
mod scalar;
mod yaml;

use std::collections::BTreeSet;

pub use definition::Definition;
pub use yaml::{MAX_ALIASED, MAX_BYTES, MAX_DEPTH};

use super::finding::{Code, Finding, Span};

/// How many nodes a workflow may have.
pub const MAX_NODES: usize = 5_000;
/// How many edges a workflow may have.
pub const MAX_EDGES: usize = 20_000;

/// What reading a file gave.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The text.
    pub text: String,
    /// The workflow, as far as it could be read; complete when no finding is an error.
    pub definition: Option<Definition>,
    /// Ids of nodes that exist but could not be read.
    pub unread: BTreeSet<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Reads a workflow file. Never fails: what is wrong stands in the findings.
pub fn parse(bytes: &[u8]) -> Parsed {
    match text(bytes) {
        Ok(text) => {
            let (node, findings) = yaml::load(&text);
            let mut reader = fields::Reader { findings };
            let mut unread = BTreeSet::new();
            let definition = node.and_then(|node| read::workflow(&mut reader, &node, &mut unread));
            Parsed { text, definition, unread, findings: reader.findings }
        }
        Err(finding) => Parsed {
            text: String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_BYTES)]).into_owned(),
            definition: None,
            unread: BTreeSet::new(),
            findings: vec![finding],
        },
    }
}

fn text(bytes: &[u8]) -> Result<String, Finding> {
    if bytes.len() > MAX_BYTES {
        let text = format!("the file has {} bytes, at most {MAX_BYTES} are read", bytes.len());
        return Err(Finding::new(Code::TooLarge, Span::start_of_file(), text));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(e) => {
            let good = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
            let line = good.matches('\n').count() + 1;
            let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let at = e.valid_up_to();
            let span = Span {
                line,
                column,
                end_line: line,
                end_column: column + 1,
                start: at,
                end: at + 1,
            };
            let byte = bytes[at];
            Err(Finding::new(Code::Syntax, span, format!("byte {byte:#04x} is not UTF-8")))
        }
    }
}
