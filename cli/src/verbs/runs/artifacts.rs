//! `runs artifacts`: what a run published.

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::NodeId;
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};

/// Arguments of `runs artifacts`.
#[derive(clap::Args)]
#[command(disable_version_flag = true)]
#[command(after_help = "Without --node the artifacts are listed, with it the newest is printed.

Examples:
  backtrail runs artifacts latest
  backtrail runs artifacts latest --node plan
  backtrail runs artifacts latest --node plan --version 0")]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
    /// The node that published it
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Another version than the newest
    #[arg(long, value_name = "N", requires = "node")]
    version: Option<u64>,
}

/// Lists, or prints.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let (place, run) = app.find_run(&args.run).await?;
    let runs = app.runs(&place);
    let all = runs.artifact_versions(run.id()).await?;
    let Some(node) = &args.node else {
        for (node, versions) in &all {
            if app.out.is_json() {
                app.out.json(&json!({"node_id": node, "versions": versions}));
            } else {
                let versions: Vec<String> = versions.iter().map(u64::to_string).collect();
                app.out.line(format!("{node}  {}", versions.join(" ")));
            }
        }
        return Ok(exit::COMPLETE);
    };
    let node = NodeId::new(node.as_str())?;
    let newest = all.get(&node).and_then(|versions| versions.last().copied());
    let version = args.version.or(newest).ok_or_else(|| {
        Error::not_found(format!("node {node} of run {} published nothing", run.id()))
    })?;
    let artifact = runs.artifact(run.id(), &node, version).await?;
    match app.out.is_json() {
        true => app.out.json(&artifact),
        false => app.out.line(format!("{:#}", artifact.data)),
    }
    Ok(exit::COMPLETE)
}
