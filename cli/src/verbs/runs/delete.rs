//! `runs delete`: delete runs for good.

use backtrail_core::error::{Error, Result};
use backtrail_core::process::{RunKey, Scratch, Survivor, survivors};
use backtrail_core::run::{DeleteOptions, Deleted, Run, Status};
use backtrail_core::tasks::blocking;
use serde_json::{Value, json};

use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::{confirm, output::format};

/// Arguments of `runs delete`.
#[derive(clap::Args)]
#[command(
    after_help = "Record, snapshots, events, log, artifacts and answers go; objects that nothing else
needs go with the next prune.

Examples:
  backtrail runs delete nightly-4f2a1c
  backtrail runs delete latest --yes"
)]
pub(crate) struct Args {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// Agree beforehand
    #[arg(short, long)]
    yes: bool,
    /// Say what would go; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Delete failed runs that could be resumed too
    #[arg(long)]
    include_resumable: bool,
}

/// Deletes.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let mut found = Vec::new();
    for text in &args.runs {
        match app.find_run(text).await {
            Ok((place, run)) => found.push((place, run)),
            // it was deleted before: a crash may have left something of it
            Err(e) if e.code() == "deleted" => again(app, text).await?,
            Err(e) => return Err(e),
        }
    }
    for (_, run) in &found {
        check(run, args)?;
    }
    if args.dry_run {
        found.iter().for_each(|(_, run)| said(app, run, true));
        return Ok(exit::COMPLETE);
    }
    if !args.yes && !found.is_empty() {
        found.iter().for_each(|(_, run)| app.out.preview(&row(run)));
        let n = format::count(found.len() as u64, "run");
        confirm::agree(app, &format!("Delete {n} for good?"), "--yes").await?;
    }
    for (place, run) in &found {
        delete(app, place, run).await?;
        said(app, run, false);
    }
    Ok(exit::COMPLETE)
}

async fn again(app: &App, text: &str) -> Result<()> {
    let id: backtrail_core::ids::RunId = text.parse()?;
    let place = app.anywhere().await?;
    let runs = backtrail_core::run::RunStore::new(place.store.clone(), app.run_context());
    runs.delete(&id, &DeleteOptions::default()).await.map(drop)
}

fn check(run: &Run, args: &Args) -> Result<()> {
    if *run.status() == Status::FailedResumable && !args.include_resumable {
        let text = format!("run {} failed and can be resumed", run.id());
        return Err(Error::refused("resumable", text).with_hint("add --include-resumable"));
    }
    Ok(())
}

async fn delete(app: &App, place: &Place, run: &Run) -> Result<Deleted> {
    let key = RunKey::new(run.id(), &place.store.info());
    let (places, name) = (app.scratch_places(place), key.scratch());
    let alive = blocking({
        let (places, name) = (places.clone(), name.clone());
        move || {
            let scratch = Scratch::find(&places, &name)?;
            Ok(survivors(scratch.as_ref().map(Scratch::dir), &key)?.into_iter().next())
        }
    });
    let live_child = alive.await?.map(|survivor| match survivor {
        Survivor::Process(p) => format!("pid {}, {}", p.pid, p.command),
        Survivor::Unknown => String::from("a process that cannot be named"),
    });
    let resumable = *run.status() == Status::FailedResumable;
    let options = DeleteOptions { resumable, live_child, ..DeleteOptions::default() };
    let done = app.runs(place).delete(run.id(), &options).await?;
    blocking(move || Scratch::remove(&places, &name)).await?;
    Ok(done)
}

fn row(run: &Run) -> String {
    format!("  {}  {}  {}", run.id(), run.record.name, run.status())
}

fn said(app: &App, run: &Run, dry_run: bool) {
    if app.out.is_json() {
        let result: Value = json!({"run_id": run.id(), "deleted": !dry_run, "dry_run": dry_run});
        return app.out.json(&result);
    }
    let verb = if dry_run { "would delete" } else { "deleted" };
    app.out.summary(format!("{verb} {}", run.id()));
}
