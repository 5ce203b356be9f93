//! `run -- CMD`: one command as a workflow of its own.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::fsx;
use backtrail_core::process::Tee;
use backtrail_core::workflow::drive::{Report, Streams};
use backtrail_core::workspace::Root;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::Source;
use crate::context::{App, quoted};
use crate::exit::Code;
use crate::settings;

/// Options of a single command.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Options of a single command")]
pub(crate) struct Options {
    /// What the command's node is called
    #[arg(long, value_name = "NODE", default_value = "main", requires = "command")]
    node: String,
    /// How long the command may take
    #[arg(long, value_name = "DUR", requires = "command")]
    timeout: Option<String>,
    /// How often it is tried again
    #[arg(long, value_name = "N", requires = "command")]
    retries: Option<u32>,
    /// Whether the command gets the terminal; its output is not recorded then
    #[arg(long, value_name = "WHEN", default_value = "auto", requires = "command")]
    tty: Tty,
    /// Leave processes alone that the command leaves behind
    #[arg(long, requires = "command")]
    keep_children: bool,
    /// End with the command's own exit code
    #[arg(long, requires = "command")]
    child_exit: bool,
}

/// Whether the command gets the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tty {
    /// When there is one
    Auto,
    /// Always
    Yes,
    /// Never: its output is recorded
    No,
}

impl Options {
    /// The workflow of a command.
    pub(super) fn source(&self, argv: &[OsString], root: &Root) -> Result<Source> {
        let mut command = Vec::new();
        for word in argv {
            let word = word.to_str().ok_or_else(|| {
                Error::invalid(format!("{} is not UTF-8", word.display()))
                    .with_hint("put such a command into a script")
            })?;
            command.push(Value::from(literal(word)));
        }
        let mut node = json!({ "kind": "run", "command": command });
        if let Some(cwd) = below(root)? {
            node["cwd"] = json!(literal(&cwd));
        }
        if self.timeout()?.is_some() {
            node["timeout"] = json!(self.timeout);
        }
        if let Some(retries) = self.retries {
            node["retry"] = json!({ "max": retries });
        }
        let end = if self.node == "done" { "end" } else { "done" };
        let workflow = json!({
            "backtrail": 1,
            "name": "command",
            "entry": self.node,
            "nodes": { self.node.as_str(): node, end: { "kind": "done" } },
            "edges": [{ "from": self.node, "to": end }],
        });
        // JSON is YAML
        let bytes = format!("{workflow:#}\n").into_bytes();
        Ok(Source { name: String::from("command"), path: None, bytes })
    }

    /// How long the command may take.
    pub(super) fn timeout(&self) -> Result<Option<Duration>> {
        let timeout = self.timeout.as_deref().map(settings::duration).transpose();
        timeout.map_err(|why| Error::invalid(format!("bad value for --timeout: {why}")))
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn retries(&self) -> Option<u32> {
        self.retries
    }

    pub(super) fn keep_children(&self) -> bool {
        self.keep_children
    }

    /// Where the command's streams lead.
    pub(super) fn streams(&self, app: &App) -> Streams {
        let env = &app.env;
        let terminal = env.stdin_terminal && env.stdout_terminal && env.stderr_terminal;
        if self.tty == Tty::Yes || self.tty == Tty::Auto && terminal {
            return Streams::Inherit;
        }
        let json = app.out.is_json();
        let make = move || Tee {
            // with --json standard output holds the document alone
            out: match json {
                true => Some(Box::new(std::io::stderr())),
                false => Some(Box::new(std::io::stdout())),
            },
            err: Some(Box::new(std::io::stderr())),
        };
        // from the background a command cannot read a terminal
        Streams::Tee { make: Arc::new(make), own_input: !env.stdin_terminal }
    }

    /// The command's own exit code, when it is asked for.
    pub(super) fn code(&self, report: &Report) -> Option<Code> {
        self.child_code(report.child_exit)
    }

    /// The same of an exit code.
    pub(super) fn child_code(&self, child_exit: Option<i32>) -> Option<Code> {
        let code = child_exit.filter(|_| self.child_exit)?;
        u8::try_from(code).ok().map(Code)
    }
}

/// The current directory, when it lies below the root: a command works where it is given,
/// and `rm *` in a subdirectory must not meet the root.
pub(super) fn below(root: &Root) -> Result<Option<String>> {
    // with --workspace there need be none
    let Ok(here) = crate::env::current_dir() else { return Ok(None) };
    let real = |path: &Path| fsx::canonical(path).unwrap_or_else(|_| path.to_owned());
    let (root, here) = (real(&root.path), real(&here));
    let Ok(below) = here.strip_prefix(&root) else { return Ok(None) };
    if below.as_os_str().is_empty() {
        return Ok(None);
    }
    let text = below.to_str().ok_or_else(|| {
        Error::invalid(format!("{} is not UTF-8", quoted(&here)))
            .with_hint("run the command from another directory")
    })?;
    Ok(Some(text.to_owned()))
}

/// Text that a template leaves as it is.
fn literal(word: &str) -> String {
    match word.contains("{{") || word.contains("{%") || word.contains("{#") {
        true => format!("{{{{ {} }}}}", Value::from(word)),
        false => word.to_owned(),
    }
}
