//! `cancel`: cancel runs.

use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::process::{RunKey, Scratch, kill_process, kill_survivors};
use backtrail_core::run::{Actor, Liveness, Moved, Run, RunStore, ShellOwner, Status, Transition};
use backtrail_core::tasks::blocking;
use backtrail_core::workflow::drive::external::End;
use backtrail_core::workflow::drive::{self, Unwatched};
use serde_json::json;

use super::pause::{patience, wait};
use super::runs::end::finish;
use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::running::Way;

/// How long the locks of a process that was killed may be held.
const LOCKED: Duration = Duration::from_secs(5);

/// Arguments of `cancel`.
#[derive(clap::Args)]
#[command(
    after_help = "A run that executes stops its commands first, and its last state is captured.
A cancelled run can be resumed.

Examples:
  backtrail cancel latest --reason 'wrong branch'
  backtrail cancel nightly-42 --wait 10s --kill"
)]
pub(crate) struct Args {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// End its process, and what it started, when it does not react
    #[arg(long)]
    kill: bool,
}

/// Cancels.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let patience = patience(app)?;
    let mut code = exit::COMPLETE;
    for text in &args.runs {
        match one(app, text, args, patience).await {
            Ok(run) if app.out.is_json() => {
                app.out.json(&json!({"run_id": run.id(), "status": run.status(), "exit_code": 0}));
            }
            Ok(run) => {
                app.out.summary(format!("{} is {}", run.id(), run.status()));
            }
            Err(e) if args.runs.len() == 1 => return Err(e),
            Err(e) => {
                let its = app.code_of(&e);
                app.out.error(&e, its);
                code = code.and(its);
            }
        }
    }
    Ok(code)
}

async fn one(app: &App, text: &str, args: &Args, patience: Duration) -> Result<Run> {
    let reason = args.reason.as_deref();
    let (place, mut run) = app.find_run(text).await?;
    let runs = app.runs(&place);
    if *run.status() == Status::Running && ShellOwner::of(&run.record).is_some() {
        // between two commands of the shell nobody is there to obey
        let end = End::cancelled(reason.map(str::to_owned));
        finish(app, place, &run, end, false).await?;
        return runs.load(run.id()).await;
    }
    if *run.status() == Status::Running {
        if let Liveness::Held(_) = runs.liveness(&run).await? {
            runs.request_cancel(&mut run, reason).await?;
            match wait(app, &runs, &run, patience).await {
                Ok(run) if *run.status() == Status::Cancelled => return Ok(run),
                Ok(run) => return Err(over(&run)),
                Err(e) if args.kill && e.kind() == Kind::Busy => kill(app, &place, &run).await?,
                Err(e) if e.kind() == Kind::Busy => {
                    return Err(e.with_hint(format!("backtrail cancel {} --kill", run.id())));
                }
                Err(e) => return Err(e),
            }
        }
        put_in_order(app, place, &run).await?;
        run = runs.load(run.id()).await?;
        // what was asked of the lost engine is obeyed when the run is put in order
        if *run.status() == Status::Cancelled {
            return Ok(run);
        }
    }
    cancel_idle(&runs, run, reason).await
}

/// Ends the engine that does not react, then what it had started.
async fn kill(app: &App, place: &Place, run: &Run) -> Result<()> {
    let runs = app.runs(place);
    let pid = runs.holder_process(run).await?;
    app.out.notice(format!("ending process {pid}, which executes run {}", run.id()));
    let key = RunKey::new(run.id(), &place.store.info());
    let places = app.scratch_places(place);
    blocking(move || {
        kill_process(pid);
        let scratch = Scratch::find(&places, &key.scratch())?;
        kill_survivors(scratch.as_ref().map(Scratch::dir), &key)
    })
    .await?;
    // the system frees its locks when it is gone
    runs.claim(run.id(), LOCKED, "cancel").await?.release().await
}

/// The engine is gone: what it left is captured before the run is cancelled.
async fn put_in_order(app: &App, place: Place, run: &Run) -> Result<()> {
    let place = app.place_of(place, run).await?;
    let way = Way::of("cancel", Arc::new(Unwatched));
    let place = app.drive_place(&place, way).await?;
    drive::reconcile(&place, run.id()).await.map(drop)
}

async fn cancel_idle(runs: &RunStore, mut run: Run, reason: Option<&str>) -> Result<Run> {
    let from = match run.status() {
        Status::Queued
        | Status::PausedWaitingHuman
        | Status::PausedOperator
        | Status::FailedResumable => run.status().clone(),
        _ => return Err(over(&run)),
    };
    let change = Transition::new(Status::Cancelled, Actor::Person, [from])
        .failure("CANCELLED", reason.unwrap_or("cancelled"));
    match runs.transition(&mut run, &change).await? {
        Moved::To(_) => Ok(run),
        Moved::Not { .. } => Err(over(&run)),
    }
}

fn over(run: &Run) -> Error {
    let text = format!("run {} is {} already", run.id(), run.status());
    Error::refused("already-ended", text).with_detail("status", run.status().as_str())
}
