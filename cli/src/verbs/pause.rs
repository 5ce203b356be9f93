//! `pause`: park a run after its current node.

use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::run::{Liveness, Run, RunStore, ShellOwner, Status};
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};

/// How often a run is looked at while its reaction is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `pause`.
#[derive(clap::Args)]
#[command(after_help = "The run stops after its current node, and nothing automatic restarts it.

Examples:
  backtrail pause latest --reason 'lunch'
  backtrail resume latest")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Parks.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let patience = patience(app)?;
    let (place, mut run) = app.find_run(&args.run).await?;
    let runs = app.runs(&place);
    match (run.status(), runs.liveness(&run).await?) {
        (Status::Running, Liveness::Held(_) | Liveness::Open { .. })
            if ShellOwner::of(&run.record).is_some() =>
        {
            let text = format!("run {} is driven from a shell, which parks it", run.id());
            return Err(Error::refused("external", text)
                .with_hint(format!("backtrail runs boundary {} leave NODE --pause", run.id())));
        }
        (Status::Running, Liveness::Held(_)) => {}
        (Status::PausedOperator, _) => return Ok(said(app, &run)),
        (Status::Running, _) => {
            let text = format!("the process that executed run {} is gone", run.id());
            return Err(Error::refused("owner-gone", text)
                .with_hint(format!("backtrail resume {}", run.id())));
        }
        (status, _) => {
            let text = format!("run {} is {status}: there is nothing to pause", run.id());
            return Err(Error::refused("not-running", text));
        }
    }
    runs.request_pause(&mut run, args.reason.as_deref()).await?;
    let run = wait(app, &runs, &run, patience).await?;
    Ok(said(app, &run))
}

/// The time given to a run to react: a minute, unless `--wait` says otherwise.
pub(crate) fn patience(app: &App) -> Result<Duration> {
    let asked = app.common.wait.is_some();
    Ok(if asked { app.settings()?.wait } else { Duration::from_secs(60) })
}

/// Waits until a run is not running any more. Fails with `busy` when that takes too long.
pub(crate) async fn wait(app: &App, runs: &RunStore, run: &Run, patience: Duration) -> Result<Run> {
    let reacted = async {
        loop {
            let now = runs.load(run.id()).await?;
            if *now.status() != Status::Running {
                return Ok(now);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = app.cancelled() => return Err(app.interrupted()),
            }
        }
    };
    match tokio::time::timeout(patience, reacted).await {
        Ok(done) => done,
        Err(_) => {
            let text = format!("run {} has not reacted within {patience:?}", run.id());
            Err(Error::new(Kind::Busy, "busy", text)
                .with_hint("the request stays: it is obeyed once its node ends"))
        }
    }
}

fn said(app: &App, run: &Run) -> Code {
    let parked = *run.status() == Status::PausedOperator;
    let code = if parked { exit::COMPLETE } else { exit::REFUSED };
    if app.out.is_json() {
        let status = run.status();
        app.out.json(&json!({"run_id": run.id(), "status": status, "exit_code": code.0}));
    } else {
        app.out.summary(format!(
            "{} is {}   backtrail resume {}",
            run.id(),
            run.status(),
            run.id()
        ));
    }
    code
}
