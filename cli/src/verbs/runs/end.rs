//! `runs end`: an external run is over.

use backtrail_core::error::{Error, Result};
use backtrail_core::run::{FailureCode, Liveness, Run};
use backtrail_core::workflow::drive::Report;
use backtrail_core::workflow::drive::external::End;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::external::Manner;
use crate::hook::{self, Flag};
use crate::running::changes;

/// Arguments of `runs end`.
#[derive(clap::Args)]
#[command(after_help = "A step that is still open has failed.

Examples:
  backtrail runs end $R --status finished
  backtrail runs end $R --status failed --error 'the tests do not pass'
  backtrail runs end --hook   # in an agent's hook, which knows the run")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN", required_unless_present = "hook")]
    run: Option<String>,
    /// How it ended
    #[arg(long, value_name = "STATUS", default_value = "finished")]
    status: Ending,
    /// What came of it, JSON
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    /// What went wrong
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Why, in a word [default: EXECUTION_FAILED]
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    #[command(flatten)]
    pub(crate) flag: Flag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Ending {
    /// It did what it should
    Finished,
    /// It failed for good
    Failed,
    /// It failed and may go on
    FailedResumable,
    /// It was given up
    Cancelled,
}

impl Args {
    fn end(&self) -> Result<End> {
        let result = self.result.as_deref().map(serde_json::from_str::<Value>).transpose();
        let result = result
            .map_err(|e| Error::invalid("bad value for --result: it is no JSON").with_source(e))?;
        let code = self.code.as_deref().unwrap_or_default();
        let error = self.error.clone();
        let text = || error.clone().unwrap_or_else(|| String::from("the runtime said so"));
        Ok(match self.status {
            Ending::Finished => End::finished(result.unwrap_or_default()),
            Ending::Failed => End::failed(code, text()),
            Ending::FailedResumable => End::resumable(code, text()),
            Ending::Cancelled => End::cancelled(error),
        })
    }
}

/// Ends.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let end = args.end()?;
    if args.flag.hook {
        let work = async |app: &App, call: hook::Call| {
            let (place, run) = hook::run_of(app, &call).await?;
            finish(app, place, &run, end, true).await.map(drop)
        };
        return hook::answer(app, work).await;
    }
    let (place, run) = app.find_run(args.run.as_deref().unwrap_or_default()).await?;
    let report = finish(app, place, &run, end, false).await?;
    let covered = report.coverage.complete;
    let code = if covered { exit::COMPLETE } else { exit::PARTIAL };
    if app.out.is_json() {
        let mut value = serde_json::to_value(&report)
            .map_err(|e| Error::invalid("the result cannot be written").with_source(e))?;
        value["exit_code"] = json!(code.0);
        app.out.json(&value);
        return Ok(code);
    }
    report.warnings.iter().for_each(|text| app.out.warn(text));
    let id = &report.run_id;
    let changed = changes(&report.changes);
    app.out.summary(format!("{id} is {}  {changed}   backtrail rewind {id}", report.status));
    Ok(code)
}

/// Ends a run from outside; a step that is open has failed. Unless its owner lives, and
/// says so itself, nobody knows until when it executed.
pub(crate) async fn finish(
    app: &App,
    place: Place,
    run: &Run,
    end: End,
    hook: bool,
) -> Result<Report> {
    let lives = matches!(app.runs(&place).liveness(run).await?, Liveness::Held(_));
    let run = app.open_external(place, run, Manner::of("runs end", hook)).await?;
    if let Some(step) = run.step().await? {
        let (code, error) = (FailureCode::INTERRUPTED, "the run ended in this step");
        match lives && !hook {
            true => step.fail(code, error).await?,
            false => step.lost(code, error).await?,
        }
    }
    run.finish(end).await
}
