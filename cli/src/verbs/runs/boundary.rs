//! `runs boundary`: the beginning and the end of a step of an external run.

use backtrail_core::error::{Error, Result};
use backtrail_core::run::{FailureCode, Run};
use backtrail_core::workflow::drive::external::{Entry, ExternalRun};
use backtrail_core::workflow::file::definition::CaptureMode;
use serde_json::{Map, Value, json};

use super::super::run::Mode;
use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::external::Manner;
use crate::hook::{self, Flag};

/// Arguments of `runs boundary`.
#[derive(clap::Args)]
#[command(
    after_help = "What changes between enter and leave is the run's; what changes between leave and
the next enter is nobody's, and a rewind leaves it alone.

Examples:
  backtrail runs boundary $R enter build
  backtrail runs boundary $R leave build --fail
  backtrail runs boundary --hook enter prompt   # in an agent's hook, which knows the run"
)]
pub(crate) struct Args {
    /// The run; left out with --hook
    #[arg(value_name = "RUN")]
    run: String,
    /// Whether the step begins or ends
    #[arg(value_name = "enter|leave")]
    way: String,
    /// The node
    #[arg(value_name = "NODE", required_unless_present = "hook")]
    node: Option<String>,
    /// The step failed
    #[arg(long, conflicts_with = "pause")]
    fail: bool,
    /// The run is parked until a node is entered again
    #[arg(long)]
    pause: bool,
    /// What a leave with --fail says [default: EXECUTION_FAILED]
    #[arg(long, value_name = "CODE", requires = "fail")]
    code: Option<String>,
    /// What went wrong
    #[arg(long, value_name = "TEXT", requires = "fail")]
    error: Option<String>,
    /// The output of the step, a JSON object
    #[arg(long, value_name = "JSON", conflicts_with_all = ["fail", "pause"])]
    output: Option<String>,
    /// What happens when a capture fails [default: required]
    #[arg(long, value_name = "MODE")]
    capture: Option<Mode>,
    #[command(flatten)]
    pub(crate) flag: Flag,
}

enum Way {
    Enter,
    Leave,
}

/// Marks the boundary.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.flag.hook {
        let work = async |app: &App, call: hook::Call| {
            let (way, node) = (way(&args.run)?, &args.way);
            let (place, run) = hook::run_of(app, &call).await?;
            let manner = Manner::of("runs boundary", true);
            let run = app.open_external(place, &run, manner).await?;
            match way {
                Way::Enter => {
                    // an agent that was interrupted never said that its last step ended
                    if let Some(step) = run.step().await? {
                        step.lost(FailureCode::INTERRUPTED, "the agent went on").await?;
                    }
                    run.enter(node, Entry::Resumed).await?.leave_open();
                }
                Way::Leave => leave(args, &run, node).await?,
            }
            for text in run.warnings().await {
                run.note(&text).await;
            }
            Ok(())
        };
        return hook::answer(app, work).await;
    }
    let way = way(&args.way)?;
    let node = args.node.as_deref().unwrap_or_default();
    let (place, found) = app.find_run(&args.run).await?;
    let share = matches!(way, Way::Leave);
    mark(app, args, (place, found), way, node, share).await
}

async fn mark(
    app: &App,
    args: &Args,
    (place, found): (Place, Run),
    way: Way,
    node: &str,
    share: bool,
) -> Result<Code> {
    let mut manner = Manner { share_workspace: share, ..Manner::of("runs boundary", false) };
    manner.capture = args.capture.map_or(manner.capture, CaptureMode::from);
    manner.share_workspace |= found.record.extra.contains_key("share_workspace");
    let run = app.open_external(place, &found, manner).await?;
    let mut out = json!({ "run_id": run.id(), "node": node });
    match way {
        Way::Enter => {
            let step = run.enter(node, Entry::Resumed).await?;
            out["iteration"] = json!(step.iteration());
            out["attempt"] = json!(step.attempt());
            out["answers"] = json!(step.answers());
            step.leave_open();
        }
        Way::Leave => leave(args, &run, node).await?,
    }
    let warnings = run.warnings().await;
    let code = if warnings.is_empty() { exit::COMPLETE } else { exit::PARTIAL };
    out["status"] = json!(run.record().await.status());
    if app.out.is_json() {
        out["warnings"] = json!(warnings);
        out["exit_code"] = json!(code.0);
        app.out.json(&out);
        return Ok(code);
    }
    warnings.iter().for_each(|text| app.out.warn(text));
    match way_text(&out) {
        Some(text) => app.out.summary(format!("entered {node} {text}")),
        None => app.out.summary(format!("left {node}")),
    }
    Ok(code)
}

fn way_text(out: &Value) -> Option<String> {
    let iteration = out["iteration"].as_u64()?;
    match out["attempt"].as_u64() {
        Some(attempt) if attempt > 1 => Some(format!("{iteration}, attempt {attempt}")),
        _ => Some(iteration.to_string()),
    }
}

fn way(text: &str) -> Result<Way> {
    match text {
        "enter" => Ok(Way::Enter),
        "leave" => Ok(Way::Leave),
        other => Err(Error::invalid(format!("{other:?} is neither enter nor leave"))),
    }
}

async fn leave(args: &Args, run: &ExternalRun, node: &str) -> Result<()> {
    let output = object(args.output.as_deref(), "--output")?;
    let step = match run.step().await? {
        Some(step) if step.node() == node => step,
        Some(step) => {
            let text = format!("the open step is at node {}, not {node}", step.node());
            let hint = format!("backtrail runs boundary {} leave {}", run.id(), step.node());
            step.leave_open();
            return Err(Error::refused("other-step", text).with_hint(hint));
        }
        None => {
            let text = format!("run {} has no open step", run.id());
            return Err(Error::refused("no-step", text)
                .with_hint(format!("backtrail runs boundary {} enter {node}", run.id())));
        }
    };
    if args.fail {
        let error = args.error.as_deref().unwrap_or("the step failed");
        return step.fail(args.code.as_deref().unwrap_or_default(), error).await;
    }
    match args.pause {
        true => step.pause(Map::new()).await,
        false => step.finish(output).await,
    }
}

/// The JSON object that a flag holds; an empty one without the flag.
pub(super) fn object(text: Option<&str>, flag: &str) -> Result<Map<String, Value>> {
    let Some(text) = text else { return Ok(Map::new()) };
    serde_json::from_str(text).map_err(|e| {
        Error::invalid(format!("bad value for {flag}: it is no JSON object")).with_source(e)
    })
}
