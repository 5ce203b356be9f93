//! `resume`: go on with a run that stopped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Chain, Digest};
use backtrail_core::rewind;
use backtrail_core::run::{Run, Status};
use backtrail_core::workflow::check::check;
use backtrail_core::workflow::drive::{self, Again};
use backtrail_core::workflow::file::definition::{CaptureMode, shape};
use backtrail_core::workflow::file::{Definition, MAX_BYTES, parse};
use serde_json::{Map, Value};

use super::run::given::{self, Raises};
use super::run::{Lines, Mode, read_file, runnable};
use crate::context::{App, Place};
use crate::detach::{self, Detach};
use crate::exit::Code;
use crate::running::{Way, is_external};

/// Arguments of `resume`.
#[derive(clap::Args)]
#[command(
    after_help = "RUN is an id, a unique prefix of one, a name, or latest. The node at which the run
stopped is executed again, in the same iteration.

Examples:
  backtrail resume latest
  backtrail resume nightly-4f2a1c --max-cost 40
  backtrail resume latest --force   accept an edited workflow file"
)]
pub(crate) struct Args {
    /// The run
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    pub(crate) how: How,
}

/// How a run goes on.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct How {
    /// The workflow file [default: the one it was started with]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A secret input, which is not on record; K=@FILE reads a file
    #[arg(long = "input", value_name = "K=V")]
    inputs: Vec<String>,
    /// Accept a workflow file that was edited since
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    raises: Raises,
    /// What happens when a capture fails [default: as the file says]
    #[arg(long, value_name = "MODE")]
    capture: Option<Mode>,
    /// Execute a queued run here
    #[arg(long)]
    here: bool,
    /// Let other runs execute in the workspace meanwhile
    #[arg(long)]
    share_workspace: bool,
    #[command(flatten)]
    pub(crate) apart: Detach,
}

/// Resumes.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.how.apart.detach {
        return detach::start(app).await;
    }
    let (place, run) = app.find_run_to_execute(&args.run).await?;
    go_on(app, &place, &run, &args.how).await
}

/// Goes on with a run.
pub(crate) async fn go_on(app: &App, place: &Place, run: &Run, how: &How) -> Result<Code> {
    let run = &settled(app, place, run).await?;
    if is_external(run) {
        let text = format!("run {} is driven by another runtime, which goes on with it", run.id());
        return Err(Error::refused("external", text)
            .with_hint(format!("backtrail runs boundary {} enter NODE", run.id())));
    }
    if *run.status() == Status::Queued && !how.here {
        return Err(Error::refused("queued", "the run is queued: a runner takes it")
            .with_hint(format!("backtrail resume {} --here", run.id())));
    }
    let source = source(app, run, how).await?;
    let checked = check(&source.name, &source.bytes);
    let definition = runnable(app, &source.name, &checked)?;
    let text = String::from_utf8_lossy(&source.bytes).into_owned();
    let changed =
        run.record.workflow_hash.as_ref().is_some_and(|h| *h != Digest::of(&source.bytes).hex());
    if changed && !how.force {
        return Err(edited(run, &definition));
    }
    let inputs = inputs(run, &definition, how).await?;
    app.recover_by_policy(place).await?;
    let lines = Arc::new(Lines::new(true, how.apart));
    let way = Way { share_workspace: how.share_workspace, ..Way::of("resume", lines.clone()) };
    let drive_place = app.drive_place(place, way).await?;
    let again = Again {
        definition,
        source: changed.then_some(text),
        inputs,
        raises: how.raises.limits()?,
        capture: how.capture.map(CaptureMode::from),
    };
    let work = drive::resume(drive_place, run.id(), again, app.interrupts());
    let store = place.store.info().local_dir;
    let report = lines.show(app, store, work).await?;
    app.run_ended(&report, true)
}

/// The run once what an interrupted rewind left of it is ended.
async fn settled(app: &App, place: &Place, run: &Run) -> Result<Run> {
    let mut run = run.clone();
    let chain = Chain::Run(run.id().clone());
    let recorder = super::restore::recorder(app, place, chain, true).await?;
    rewind::settle(&app.runs(place), &recorder, &mut run).await?;
    Ok(run)
}

struct Source {
    name: String,
    bytes: Vec<u8>,
}

/// The workflow file, or the source on record when the file is gone.
async fn source(app: &App, run: &Run, how: &How) -> Result<Source> {
    let named = how.file.clone();
    let path = named.clone().or_else(|| run.record.file_path.clone().map(PathBuf::from));
    if let Some(path) = path {
        match read(&path).await {
            Ok(source) => return Ok(source),
            Err(e) if !e.is_not_found() || named.is_some() => return Err(e),
            Err(_) => {
                let path = path.display();
                app.out.notice(format!("{path} is gone: the source on record is used"));
            }
        }
    }
    let Some(text) = run.record.workflow_source.clone() else {
        let text = format!("the workflow of run {} is neither a file nor on record", run.id());
        return Err(Error::not_found(text).with_hint("give --file FILE"));
    };
    let name = run.record.file_path.clone().unwrap_or_else(|| run.record.workflow_name.clone());
    Ok(Source { name, bytes: text.into_bytes() })
}

async fn read(path: &Path) -> Result<Source> {
    let bytes = read_file(path, MAX_BYTES as u64 + 1).await?;
    Ok(Source { name: path.display().to_string(), bytes })
}

/// The error of an edited file, with the nodes that changed.
fn edited(run: &Run, now: &Definition) -> Error {
    let before = run.record.workflow_source.as_ref().map(|s| parse(s.as_bytes()));
    let before = before.and_then(|p| p.definition);
    let nodes = before.map(|before| changed_nodes(&before, now)).unwrap_or_default();
    let what = match nodes.is_empty() {
        true => String::from("no node changed"),
        false => format!("changed nodes: {}", nodes.join(", ")),
    };
    let text = format!("the workflow of run {} was edited since it started; {what}", run.id());
    Error::refused("workflow-changed", text)
        .with_detail("nodes", nodes)
        .with_hint(format!("backtrail resume {} --force", run.id()))
}

fn changed_nodes(before: &Definition, now: &Definition) -> Vec<String> {
    let all: BTreeSet<&String> = before.nodes.keys().chain(now.nodes.keys()).collect();
    let declared = |d: &Definition, id: &String| d.nodes.get(id).map(shape);
    all.into_iter().filter(|id| declared(before, id) != declared(now, id)).cloned().collect()
}

/// The inputs on record, and the secret ones given again.
async fn inputs(run: &Run, definition: &Definition, how: &How) -> Result<Map<String, Value>> {
    let given = given::inputs(definition, &how.inputs).await?;
    let secret = |name: &str| definition.inputs.get(name).is_some_and(|spec| spec.secret);
    if let Some(name) = given.keys().find(|name| !secret(name)) {
        return Err(Error::invalid(format!("input {name:?} is on record and no secret")));
    }
    let mut inputs = run.record.inputs.clone().unwrap_or_default();
    let missing: Vec<String> =
        inputs.keys().filter(|n| secret(n) && !given.contains_key(*n)).cloned().collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        return Err(Error::invalid(format!("secret inputs are not on record: {names}"))
            .with_code("missing-secret")
            .with_detail("missing", missing)
            .with_hint("give each again with --input K=V"));
    }
    inputs.extend(given);
    drive::check_inputs(definition, &inputs)
}
