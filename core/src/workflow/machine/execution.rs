//! A command as it is executed: every template of it filled in.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Execution, Failure, Line, Machine};
use crate::process;
use crate::workflow::file::definition::{Command, Node, RunSpec, Template};
use crate::workflow::template::{ExpressionError, Mode, Scope, render};

impl Machine {
    /// The execution of a `run` node or of a companion.
    pub(super) fn execution(
        &self,
        line: Line,
        node: &Node,
        spec: &RunSpec,
    ) -> Result<Execution, Failure> {
        let attempt = self.attempt(line);
        let input = self.node_input(line, node)?;
        let filled = self.with_scope(line, |scope| self.fill(spec, scope))?;
        let node_json = json!({
            "id": attempt.node, "iteration": attempt.iteration, "attempt": attempt.attempt,
        });
        Ok(Execution {
            branch: self.lane(line).branch.clone(),
            execution_id: format!("{}:{}:{}", self.run.id, attempt.node, attempt.iteration),
            command: filled.command,
            cwd: filled.cwd,
            env: filled.env,
            secrets: spec.secrets.iter().map(|s| s.value.clone()).collect(),
            stdin: filled.stdin,
            timeout: spec.timeout,
            grace: spec.grace,
            success_codes: spec.success_codes.clone(),
            output: spec.output,
            background: spec.background,
            input: json!({
                "input": input,
                "vars": self.state.vars,
                "inputs": self.state.inputs,
                "last": self.last_output(line),
                "run": self.run_json,
                "node": node_json,
            }),
            answers: self.state.answered.clone(),
            attempt,
        })
    }

    fn fill(&self, spec: &RunSpec, scope: &Scope<'_>) -> Result<Filled, ExpressionError> {
        let plain = |t: &Template| render(t, scope, Mode::Plain);
        let command = match &spec.command {
            Command::Shell(text) => process::Command::Shell {
                shell: spec.shell.clone().into(),
                text: render(text, scope, Mode::Shell)?.into(),
            },
            Command::Argv(parts) => process::Command::Argv(
                parts.iter().map(|p| plain(p).map(Into::into)).collect::<Result<_, _>>()?,
            ),
        };
        let mut env = BTreeMap::new();
        for (name, value) in self.definition.env.iter().chain(&spec.env) {
            env.insert(name.clone(), plain(value)?);
        }
        Ok(Filled {
            command,
            cwd: spec.cwd.as_ref().map(plain).transpose()?,
            env,
            stdin: spec.stdin.as_ref().map(plain).transpose()?.unwrap_or_default(),
        })
    }
}

struct Filled {
    command: process::Command,
    cwd: Option<String>,
    env: BTreeMap<String, String>,
    stdin: String,
}
