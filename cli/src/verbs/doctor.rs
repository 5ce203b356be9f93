//! `doctor`: is everything in order, and what to do where it is not.

mod fix;
mod host;

use backtrail_core::doctor::{self, Check, Status};
use backtrail_core::error::{Error, Result};
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
    /// Write lost refs, remove stale leftovers and damaged journals, store damaged objects again
    #[arg(long)]
    fix: bool,
    /// Agree beforehand
    #[arg(short, long, requires = "fix")]
    yes: bool,
}

/// Checks, and mends where asked.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let at = match app.anywhere().await {
        Ok(at) => at,
        // The store cannot even be opened: that is a finding, not the end of the doctor.
        Err(e) if matches!(exit::of(&e), exit::UNAVAILABLE | exit::CORRUPT) => {
            return Ok(report(app, &[unopened(&e)], &[]));
        }
        Err(e) => return Err(e),
    };
    let done = if args.fix { mend(app, args, &at).await? } else { Vec::new() };
    let cache_dir = at.settings.cache_dir.as_deref();
    let mut checks = doctor::doctor(&*at.store, &app.ctx, at.root.as_ref(), cache_dir).await;
    checks.extend(host::checks(app, &at).await);
    Ok(report(app, &checks, &done))
}

fn unopened(e: &Error) -> Check {
    let (detail, hint) = (e.message().to_owned(), e.hint().map(str::to_owned));
    Check { name: "store", status: Status::Fail, detail, hint, kind: Some(e.kind()) }
}

/// Shows what is to be done, asks, does it; what was done, in words.
async fn mend(app: &App, args: &Args, at: &Somewhere) -> Result<Vec<String>> {
    let plan = fix::plan(app, at).await?;
    if plan.is_empty() {
        return Ok(Vec::new());
    }
    if !app.out.is_json() {
        plan.iter().for_each(|step| app.out.line(format!("to do: {step}")));
    }
    if !args.yes {
        confirm::agree(app, "Do all of this?", "--yes").await?;
    }
    let mut done = Vec::new();
    for step in plan {
        done.push(step.to_string());
        fix::apply(app, at, step).await?;
    }
    Ok(done)
}

fn report(app: &App, checks: &[Check], done: &[String]) -> Code {
    // A failed check ends in 7, 8 or 1, whatever its kind means elsewhere.
    let code = match doctor::verdict(checks).map(|kind| exit::of(&Error::new(kind, "", ""))) {
        None => exit::COMPLETE,
        Some(code @ (exit::CORRUPT | exit::UNAVAILABLE)) => code,
        Some(_) => exit::FAILED,
    };
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
        app.out.line(format!("{word} {:<10} {}", c.name, c.detail));
        if let Some(hint) = &c.hint {
            app.out.line(format!("{:16}{hint}", ""));
        }
    }
    code
}
