//! `run --in RUN -- CMD`: a command as a step of an external run.

use std::ffi::OsString;

use backtrail_core::error::{Error, Result};
use backtrail_core::process::Command;
use backtrail_core::workflow::drive::external::{Executed, ExternalRun, Job};
use serde_json::{Value, json};

use super::command::{Options, below};
use crate::context::App;
use crate::exit::{self, Code};
use crate::external::Manner;
use crate::running::{Way, printable};

/// Executes it.
pub(super) async fn run(
    app: &App,
    text: &str,
    options: &Options,
    argv: &[OsString],
) -> Result<Code> {
    let timeout = options.timeout()?;
    let (place, found) = app.find_run_to_execute(text).await?;
    let manner = Manner { share_workspace: false, ..Manner::of("run", false) };
    let mut at = app.external_place(&place, manner).await?;
    at.settings.streams = options.streams(app);
    at.settings.keep_children = options.keep_children();
    let run = ExternalRun::open(at, found.id(), manner.capture).await?;
    let cwd = below(place.root()?)?;
    let job = Job { command: Command::Argv(argv.to_vec()), cwd, timeout };
    let done = run.execute(options.node(), job, app.interrupts()).await?;
    let warnings = run.warnings().await;
    let code = options.child_code(done.child_exit).unwrap_or(code_of(&done, &warnings));
    if app.out.is_json() {
        app.out.json(&document(&run, options.node(), &done, &warnings, code).await);
        return Ok(code);
    }
    warnings.iter().for_each(|text| app.out.warn(&printable(text)));
    if let Some((code, message)) = &done.failure {
        app.out.notice(format!("{code}: {}", printable(message)));
    }
    let node = options.node();
    let word = if done.failure.is_some() { "failed" } else { "ok" };
    app.out.notice(format!("{node} {}  {word}   backtrail runs show {}", done.iteration, run.id()));
    Ok(code)
}

async fn document(
    run: &ExternalRun,
    node: &str,
    done: &Executed,
    warnings: &[String],
    code: Code,
) -> Value {
    json!({
        "run_id": run.id(),
        "node": node,
        "iteration": done.iteration,
        "attempt": done.attempt,
        "status": run.record().await.status(),
        "failure_code": done.failure.as_ref().map(|f| &f.0),
        "error": done.failure.as_ref().map(|f| &f.1),
        "child_exit": done.child_exit,
        "warnings": warnings,
        "exit_code": code.0,
    })
}

fn code_of(done: &Executed, warnings: &[String]) -> Code {
    match (&done.signal, &done.failure) {
        (Some(name), Some(_)) => Way::signalled(name),
        (_, Some(_)) => exit::FAILED,
        _ if done.asks => exit::WAITING,
        _ if warnings.is_empty() => exit::COMPLETE,
        _ => exit::PARTIAL,
    }
}

/// What `--in` does not go with.
pub(super) fn check(options: &Options) -> Result<()> {
    match options.retries() {
        Some(_) => Err(Error::invalid("--retries does not go with --in: run the step again")),
        None => Ok(()),
    }
}
