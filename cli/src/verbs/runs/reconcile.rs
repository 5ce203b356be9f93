//! `runs reconcile`: put runs in order whose process is gone.

use std::sync::Arc;

use backtrail_core::error::Result;
use backtrail_core::run::{Liveness, Run, RunRow, RunStore, Status};
use backtrail_core::workflow::drive::{self, Reconciled, Unwatched};
use futures::StreamExt as _;
use serde_json::json;

use crate::context::{App, Place, Somewhere};
use crate::exit::{self, Code};
use crate::running::Way;

/// Arguments of `runs reconcile`.
#[derive(clap::Args)]
#[command(after_help = "What such a run left half-written is captured, and it becomes resumable.

Examples:
  backtrail runs reconcile
  backtrail runs reconcile --all")]
pub(crate) struct Args {
    /// Runs of every workspace
    #[arg(long)]
    all: bool,
}

/// Reconciles.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let Somewhere { settings, store, root } = app.anywhere().await?;
    let runs = RunStore::new(store.clone(), app.run_context());
    let here = root.as_ref().map(|root| root.text());
    let mut gone = Vec::new();
    let mut rows = runs.list();
    while let Some(row) = rows.next().await {
        let RunRow::Run(run) = row? else { continue };
        let ours = args.all || run.record.work_dir == here;
        if ours
            && *run.status() == Status::Running
            && runs.liveness(&run).await? == Liveness::OwnerGone
        {
            gone.push(*run);
        }
    }
    drop(rows);
    let mut code = exit::COMPLETE;
    for run in gone {
        let chain = backtrail_core::ids::Chain::Run(run.id().clone());
        let (settings, store) = (settings.clone(), store.clone());
        let place = Place { settings, store, root: None, chain };
        match one(app, place, &run).await {
            Ok(done) => code = code.and(said(app, &run, &done)),
            Err(e) => {
                let its = app.code_of(&e);
                app.out.error(&e, its);
                code = code.and(its);
            }
        }
    }
    Ok(code)
}

async fn one(app: &App, place: Place, run: &Run) -> Result<Reconciled> {
    let place = app.place_of(place, run).await?;
    let way = Way::of("runs reconcile", Arc::new(Unwatched));
    drive::reconcile(&app.drive_place(&place, way).await?, run.id()).await
}

fn said(app: &App, run: &Run, done: &Reconciled) -> Code {
    let uncaptured = match done {
        Reconciled::Fine => return exit::COMPLETE,
        Reconciled::Orphan { uncaptured } => uncaptured,
    };
    if app.out.is_json() {
        let status = Status::FailedResumable;
        app.out.json(&json!({"run_id": run.id(), "status": status, "uncaptured": uncaptured}));
    } else {
        app.out.summary(format!("{} is resumable   backtrail resume {}", run.id(), run.id()));
    }
    match uncaptured {
        Some(why) => {
            app.out.warn(&format!("its last state was not captured: {why}"));
            exit::PARTIAL
        }
        None => exit::COMPLETE,
    }
}
