//! `doctor`: is everything in order, and what to do where it is not.

mod checks;
mod fix;
mod host;

use backtrail_core::error::Result;
use serde::Serialize;
use serde_json::json;

use crate::confirm;
use crate::context::{App, Somewhere};
use crate::exit::{self, Code};
use crate::output::Paint;

/// Arguments of `doctor`.
#[derive(clap::Args)]
#[command(after_help = "Without --fix nothing is changed. Ends with 0 when no check failed.

Examples:
  backtrail doctor
  backtrail doctor --fix --yes
  backtrail doctor --json")]
pub(crate) struct Args {
    /// Rebuild lost refs, remove stale leftovers, store damaged objects again
    #[arg(long)]
    fix: bool,
    /// Agree beforehand
    #[arg(short, long, requires = "fix")]
    yes: bool,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The exit code that a failure asks for.
    #[serde(skip)]
    code: Code,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        let (status, detail) = (Status::Ok, detail.into());
        Self { name, status, detail, hint: None, code: exit::COMPLETE }
    }
    fn warn(name: &'static str, detail: impl Into<String>) -> Self {
        Self { status: Status::Warn, ..Self::ok(name, detail) }
    }
    fn fail(name: &'static str, code: Code, detail: impl Into<String>) -> Self {
        Self { status: Status::Fail, code, ..Self::ok(name, detail) }
    }
    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Checks, and mends where asked.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let at = match app.anywhere().await {
        Ok(at) => at,
        // The store cannot even be opened: that is a finding, not the end of the doctor.
        Err(e) if matches!(exit::of(&e), exit::UNAVAILABLE | exit::CORRUPT) => {
            let check = Check::fail("store", exit::of(&e), e.message());
            return Ok(report(app, &[check], &[]));
        }
        Err(e) => return Err(e),
    };
    let mut done = Vec::new();
    if args.fix {
        let plan = fix::plan(app, &at).await?;
        if !plan.is_empty() {
            if !app.out.is_json() {
                plan.iter().for_each(|step| app.out.line(format!("to do: {step}")));
            }
            if !args.yes {
                confirm::agree(app, "Do all of this?", "--yes").await?;
            }
            for step in plan {
                let text = step.to_string();
                fix::apply(app, &at, step).await?;
                done.push(text);
            }
        }
    }
    let checks = all(app, &at).await;
    Ok(report(app, &checks, &done))
}

async fn all(app: &App, at: &Somewhere) -> Vec<Check> {
    let mut out = checks::store(app, at).await;
    out.extend(checks::history(at).await);
    out.extend(checks::workspace(app, at).await);
    out.extend(host::checks(at).await);
    out
}

fn report(app: &App, checks: &[Check], done: &[String]) -> Code {
    let code = checks.iter().fold(exit::COMPLETE, |code, c| code.and(c.code));
    if app.out.is_json() {
        app.out.json(&json!({ "checks": checks, "fixed": done, "exit_code": code.0 }));
        return code;
    }
    for text in done {
        app.out.line(format!("{} {text}", app.out.paint(Paint::Good, "fixed")));
    }
    for c in checks {
        let word = match c.status {
            Status::Ok => app.out.paint(Paint::Good, "ok  "),
            Status::Warn => app.out.paint(Paint::Warn, "warn"),
            Status::Fail => app.out.paint(Paint::Bad, "fail"),
        };
        app.out.line(format!("{word} {:<12} {}", c.name, c.detail));
        if let Some(hint) = &c.hint {
            app.out.line(format!("                  {hint}"));
        }
    }
    code
}
