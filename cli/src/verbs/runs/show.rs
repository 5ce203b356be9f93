//! `runs show`: one run with everything about it.

use std::path::PathBuf;

use backtrail_core::error::Result;
use backtrail_core::fsx::Dir;
use backtrail_core::run::{Liveness, OpenQuestion, Run, RunStore, Status, read_pid};
use backtrail_core::snapshot::chain::load_refs;
use backtrail_core::snapshot::refs::Refs;
use backtrail_core::tasks::blocking;
use serde_json::{Value, json};

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};
use crate::running::{is_external, printable};

/// Arguments of `runs show`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail runs show latest
  backtrail runs show nightly-4f2a1c --json")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
}

struct Shown {
    run: Run,
    liveness: Liveness,
    refs: Refs,
    question: Option<OpenQuestion>,
    log_bytes: u64,
    /// What the `.pid` of a detached run says.
    pid: Option<u32>,
}

/// Shows.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let (place, run) = app.find_run(&args.run).await?;
    let runs = app.runs(&place);
    let shown = Shown {
        liveness: runs.liveness(&run).await?,
        refs: load_refs(&*place.store, &place.chain).await?.refs,
        question: open(&runs, &run).await?,
        log_bytes: runs.log_size(run.id()).await?,
        pid: pid(app, place.store.info().local_dir, run.id().to_string()).await,
        run,
    };
    if app.out.is_json() {
        app.out.json(&document(&shown));
    } else {
        print(app, &shown);
    }
    Ok(exit::COMPLETE)
}

/// The `.pid`; one that cannot be read is warned about.
async fn pid(app: &App, store: Option<PathBuf>, run: String) -> Option<u32> {
    let dir = store?.join("runs").join(run);
    let read = blocking(move || match Dir::open(&dir) {
        Ok(dir) => read_pid(&dir),
        Err(_) => Ok(None), // its record may be elsewhere
    });
    match read.await {
        Ok(pid) => pid,
        Err(e) => {
            app.out.warn(e.message());
            None
        }
    }
}

async fn open(runs: &RunStore, run: &Run) -> Result<Option<OpenQuestion>> {
    match run.status() {
        Status::PausedWaitingHuman | Status::Queued => runs.open_question(run).await,
        _ => Ok(None),
    }
}

/// What a person would type next.
fn next(shown: &Shown) -> Option<String> {
    let id = shown.run.id();
    let stopped = matches!(shown.liveness, Liveness::Open { .. } | Liveness::OwnerGone);
    match shown.run.status() {
        Status::Running if is_external(&shown.run) && stopped => {
            Some(format!("backtrail runs end {id} --status finished"))
        }
        Status::PausedOperator | Status::FailedResumable | Status::Cancelled
            if is_external(&shown.run) =>
        {
            Some(format!("backtrail runs boundary {id} enter NODE"))
        }
        Status::PausedWaitingHuman => Some(format!("backtrail answer {id}")),
        Status::PausedOperator | Status::FailedResumable | Status::Cancelled => {
            Some(format!("backtrail resume {id}"))
        }
        Status::Running if shown.liveness == Liveness::OwnerGone => {
            Some(format!("backtrail resume {id}"))
        }
        Status::Running => Some(format!("backtrail logs {id} -f")),
        _ => None,
    }
}

fn document(shown: &Shown) -> Value {
    let boundaries: Vec<Value> = shown
        .refs
        .labels
        .iter()
        .map(|(label, target)| {
            json!({
                "label": label, "snapshot": target.snapshot, "at": target.at,
                "attempt": target.attempt,
            })
        })
        .collect();
    let question = shown.question.as_ref().map(|q| {
        let schema = q.interaction.as_ref().and_then(|i| i.answer_schema.clone());
        json!({"interaction": q.id.as_str(), "questions": q.questions, "answers": schema})
    });
    json!({
        "run": shown.run.record,
        "owner_gone": shown.liveness == Liveness::OwnerGone,
        "stale": shown.liveness == Liveness::Open { stale: true },
        "holder": match &shown.liveness {
            Liveness::Held(holder) => json!(holder),
            _ => Value::Null,
        },
        "boundaries": boundaries,
        "head": shown.refs.head,
        "missed": shown.refs.missing,
        "question": question,
        "log_bytes": shown.log_bytes,
        "pid": shown.pid,
        "next": next(shown),
    })
}

fn print(app: &App, shown: &Shown) {
    let record = &shown.run.record;
    let row = |name: &str, value: &str| app.out.line(format!("{name:<10} {}", printable(value)));
    app.out.line(format!("{:<10} {}", "run", app.out.paint(Paint::Id, shown.run.id().as_str())));
    row("name", &record.name);
    let gone = match shown.liveness {
        Liveness::OwnerGone => " (owner gone)",
        Liveness::Open { stale: true } => " (stale)",
        _ => "",
    };
    row("status", &format!("{}{gone}", shown.run.status()));
    if let Some(code) = record.failure_code() {
        row("code", code.as_str());
    }
    if let Some(error) = record.error() {
        row("error", error);
    }
    if let Liveness::Held(holder) = &shown.liveness {
        row("holder", &format!("pid {} on {} since {}", holder.pid, holder.host, holder.since));
    }
    if let Some(checkpoint) = record.checkpoint() {
        row("node", &checkpoint.node_id);
        if let Some(used) = checkpoint.budget_iterations_used {
            let active = checkpoint.budget_elapsed_ns.unwrap_or(0) / 1_000_000;
            row("spent", &format!("{used} nodes, {}", format::elapsed(active)));
        }
    }
    row("created", &format::age(&record.created_at, app.now()));
    if let Some(dir) = &record.work_dir {
        row("workspace", dir);
    }
    if let Some(result) = &record.result {
        row("result", &result.to_string());
    }
    if let Some(versioning) = &record.versioning {
        let why = versioning.reason.as_deref().unwrap_or_default();
        row("recorded", &format!("{} {why}", versioning.state));
    }
    row("log", &format::bytes(shown.log_bytes));
    boundaries(app, shown);
    if let Some(question) = &shown.question {
        for (key, text) in question.questions.as_object().into_iter().flatten() {
            let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
            row("asks", &format!("{key}: {text}"));
        }
    }
    if let Some(next) = next(shown) {
        app.out.line(next);
    }
}

fn boundaries(app: &App, shown: &Shown) {
    let mut labels: Vec<_> = shown.refs.labels.iter().collect();
    labels.sort_by(|a, b| a.1.at.cmp(&b.1.at));
    for (label, target) in labels {
        let short = &target.snapshot.as_str()[..super::super::SHORT];
        app.out.line(format!("  {}  {label}", app.out.paint(Paint::Id, short)));
    }
    for (label, missing) in &shown.refs.missing {
        let why = printable(&missing.reason);
        app.out.line(format!("  {}  {label}: {why}", app.out.paint(Paint::Warn, "missed")));
    }
}
