//! `runs event`: tell a run what another runtime did.

use backtrail_core::error::Result;
use serde_json::json;

use super::boundary::object;
use crate::context::App;
use crate::exit::{self, Code};
use crate::external::Manner;
use crate::hook::{self, Flag};

/// Arguments of `runs event`.
#[derive(clap::Args)]
#[command(
    after_help = "In an open step the event is about its node. Types of the engine are refused.

Examples:
  backtrail runs event $R tool_called --data '{\"tool\": \"edit\"}'
  backtrail runs event --hook tool_called   # in an agent's hook; the data is the tool"
)]
pub(crate) struct Args {
    /// The run; left out with --hook
    #[arg(value_name = "RUN")]
    run: String,
    /// The type
    #[arg(value_name = "TYPE", required_unless_present = "hook")]
    kind: Option<String>,
    /// Its data, a JSON object
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    #[command(flatten)]
    pub(crate) flag: Flag,
}

/// Appends.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.flag.hook {
        let work = async |app: &App, call: hook::Call| {
            let (place, run) = hook::run_of(app, &call).await?;
            let mut data = object(args.data.as_deref(), "--data")?;
            if let Some(tool) = call.tool {
                data.entry("tool").or_insert(json!(tool));
            }
            let run = app.open_external(place, &run, Manner::of("runs event", true)).await?;
            run.event(&args.run, data).await
        };
        return hook::answer(app, work).await;
    }
    let data = object(args.data.as_deref(), "--data")?;
    let kind = args.kind.as_deref().unwrap_or_default();
    let (place, run) = app.find_run(&args.run).await?;
    let run = app.open_external(place, &run, Manner::of("runs event", false)).await?;
    run.event(kind, data).await?;
    if app.out.is_json() {
        app.out.json(&json!({"run_id": run.id(), "type": kind, "exit_code": 0}));
    }
    Ok(exit::COMPLETE)
}
