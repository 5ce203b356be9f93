//! `runs list`: one row a run, newest first, as they are read.

use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::run::{Liveness, Run, RunRow, RunStore, Status};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};
use crate::running::printable;
use crate::settings;

/// Arguments of `runs list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail runs list
  backtrail runs list --status failed_resumable --since 24h
  backtrail runs list --all --json")]
pub(crate) struct Args {
    /// In this status only
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Of this workflow only
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Created this long ago at most
    #[arg(long, value_name = "DUR")]
    since: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Of every workspace
    #[arg(long)]
    all: bool,
}

struct Filter {
    status: Option<Status>,
    workflow: Option<String>,
    since: Option<Duration>,
    work_dir: Option<String>,
}

/// Lists.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let since = args.since.as_deref().map(settings::duration).transpose();
    let since = since.map_err(|why| Error::invalid(format!("bad value for --since: {why}")))?;
    let status = args.status.as_deref().map(status).transpose()?;
    let place = app.anywhere().await?;
    let work_dir = match args.all {
        true => None,
        false => place.root.as_ref().map(|root| root.text()),
    };
    let filter = Filter { status, workflow: args.workflow.clone(), since, work_dir };
    let runs = RunStore::new(place.store.clone(), app.run_context());
    let mut rows = runs.list();
    let mut shown = 0;
    let mut code = exit::COMPLETE;
    while shown < args.limit
        && let Some(row) = rows.next().await
    {
        match row? {
            RunRow::Run(run) if filter.wants(app, &run) => {
                print(app, &runs, &run).await?;
                shown += 1;
            }
            RunRow::Run(_) => {}
            RunRow::Unreadable { name, id, error } => {
                unreadable(app, &name, id.as_ref().map(|id| id.as_str()), &error);
                code = code.and(exit::of(&error));
            }
        }
        if app.out.is_broken() {
            break;
        }
    }
    if shown == 0 && code == exit::COMPLETE && !app.out.is_json() {
        app.out.notice("there are no runs");
    }
    Ok(code)
}

/// A status that this build knows.
pub(crate) fn status(text: &str) -> Result<Status> {
    match Status::parse(text) {
        Status::Other(text) => {
            let all: Vec<&str> = Status::ALL.iter().map(Status::as_str).collect();
            let text = format!("bad value for --status: {text:?} is none of {}", all.join(", "));
            Err(Error::invalid(text))
        }
        known => Ok(known),
    }
}

impl Filter {
    fn wants(&self, app: &App, run: &Run) -> bool {
        let record = &run.record;
        let age = app.now().0.saturating_sub(record.created().0);
        let young = |limit: Duration| i128::from(age) <= limit.as_nanos() as i128;
        self.status.as_ref().is_none_or(|s| s == run.status())
            && self.workflow.as_ref().is_none_or(|w| *w == record.workflow_name)
            && self.since.is_none_or(young)
            && self.work_dir.as_ref().is_none_or(|d| record.work_dir.as_ref() == Some(d))
    }
}

async fn print(app: &App, runs: &RunStore, run: &Run) -> Result<()> {
    let liveness = match run.status() {
        Status::Running => runs.liveness(run).await?,
        _ => Liveness::Idle,
    };
    let gone = liveness == Liveness::OwnerGone;
    let stale = liveness == Liveness::Open { stale: true };
    let record = &run.record;
    if app.out.is_json() {
        app.out.json(&row(run, gone, stale));
        return Ok(());
    }
    let (paint, word) = match run.status() {
        Status::Running if gone => (Paint::Warn, String::from("running (owner gone)")),
        Status::Running if stale => (Paint::Warn, String::from("running (stale)")),
        Status::Finished => (Paint::Good, run.status().to_string()),
        Status::Failed | Status::FailedResumable | Status::Cancelled => {
            (Paint::Bad, run.status().to_string())
        }
        other => (Paint::Warn, other.to_string()),
    };
    let node = record.checkpoint().map_or("-", |c| c.node_id.as_str());
    app.out.line(format!(
        "{}  {}  {}  {}  {}",
        app.out.paint(Paint::Id, run.id().as_str()),
        printable(&record.name),
        app.out.paint(paint, &word),
        printable(node),
        format::age(&record.created_at, app.now()),
    ));
    Ok(())
}

fn row(run: &Run, owner_gone: bool, stale: bool) -> Value {
    let record = &run.record;
    json!({
        "id": run.id(),
        "name": record.name,
        "workflow_name": record.workflow_name,
        "status": run.status(),
        "owner_gone": owner_gone,
        "stale": stale,
        "failure_code": record.failure_code(),
        "node_id": record.checkpoint().map(|c| c.node_id.as_str()),
        "created_at": record.created_at,
        "updated_at": record.updated_at(),
        "finished_at": record.finished_at(),
        "work_dir": record.work_dir,
    })
}

fn unreadable(app: &App, name: &str, id: Option<&str>, error: &Error) {
    if app.out.is_json() {
        let why = error.message();
        return app.out.json(&json!({"id": id, "name": name, "unreadable": why}));
    }
    let word = app.out.paint(Paint::Bad, "unreadable");
    let why = printable(error.message());
    app.out.line(format!("{}  {word}  {why}", printable(id.unwrap_or(name))));
}
