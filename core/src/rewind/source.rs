//! The workflow that a run goes on with.

use super::request::Source;
use crate::error::{Error, Result};
use crate::run::RunRecord;
use crate::workflow::file::{Definition, parse};
use crate::workflow::finding::Severity;

/// A compiled workflow.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// The workflow.
    pub definition: Definition,
}

impl Workflow {
    /// Compiles the present source, else the recorded one; its hash need not match. `None`
    /// for a run that never had one.
    pub fn of(source: Option<&Source>, record: &RunRecord) -> Result<Option<Self>> {
        match (source, &record.workflow_source) {
            (Some(source), _) => Self::compile(&source.text, &source.name).map(Some),
            (None, Some(text)) => Self::compile(text.as_bytes(), "the recorded workflow").map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Reads a workflow whole. Fails with the first thing that is wrong (`bad-value`).
    pub fn compile(text: &[u8], name: &str) -> Result<Self> {
        let parsed = parse(text);
        let wrong = parsed.findings.iter().find(|f| f.code.severity() == Severity::Error);
        if let Some(finding) = wrong {
            let line = finding.span.line;
            let message = format!("{name} cannot be read, line {line}: {}", finding.message);
            return Err(Error::invalid(message).with_hint("backtrail run --check FILE"));
        }
        match parsed.definition {
            Some(definition) => Ok(Self { definition }),
            None => Err(Error::invalid(format!("{name} holds no workflow"))),
        }
    }
}
