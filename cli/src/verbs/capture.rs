//! `capture`: records the workspace as it is now.

use std::path::Path;

use backtrail_core::capture::{Captured, NewLabel, Recorder, Request};
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Chain, RunId};
use backtrail_core::run::{Driver, Run, Status};
use backtrail_core::snapshot::coverage::{Reason, State};
use backtrail_core::snapshot::label::{Boundary, Label, Phase};
use serde_json::{Value, json};

use crate::args::push;
use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::external::{HURRY, PATIENCE};
use crate::hook::{self, Flag};
use crate::output::{Paint, format};
use crate::settings::Override;

/// Arguments of `capture`.
#[derive(clap::Args)]
#[command(
    after_help = "An unchanged workspace adds no snapshot: the label is pointed at the newest one.
Ends with 3 when something could not be covered; it is named, and never touched later.

Examples:
  backtrail capture
  backtrail capture -m 'before refactor' --label before-refactor
  backtrail capture --max-file 200MiB
  backtrail capture --dry-run"
)]
pub(crate) struct Args {
    /// A note for people
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// A name for the snapshot
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Take the label from the snapshot that has it
    #[arg(long = "move", requires = "label")]
    moves: bool,
    /// Let prune keep the snapshot while the label is there; a label outside runs always does
    #[arg(long, requires = "label")]
    pin: bool,
    /// Do it once: asked for again under this id, the first result is given
    #[arg(long, value_name = "ID")]
    operation_id: Option<String>,
    /// Read every file, whatever the stat cache says
    #[arg(long)]
    rehash: bool,
    /// Write nothing; say what would be stored
    #[arg(long)]
    dry_run: bool,
    /// Skip larger files [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    max_file: Option<String>,
    /// Refuse more files [default: 50000]
    #[arg(long, value_name = "N")]
    max_files: Option<String>,
    /// Take a root that is refused otherwise: /, the home directory
    #[arg(long)]
    any_root: bool,
    /// Enter directories on other file systems
    #[arg(long)]
    cross_filesystems: bool,
    /// Continue the chain given by --chain, of a directory that was moved here
    #[arg(long, requires = "chain")]
    adopt: bool,
    /// End with 0 even if something could not be covered
    #[arg(long)]
    accept_incomplete: bool,
    #[command(flatten)]
    pub(crate) flag: Flag,
}

impl Args {
    /// Flags that are settings.
    pub(crate) fn overrides(&self, out: &mut Vec<Override>) {
        push(out, "capture.max_file", "--max-file", &self.max_file);
        push(out, "capture.max_files", "--max-files", &self.max_files);
    }
}

/// Captures.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let label = match &args.label {
        None => NewLabel::None,
        Some(name) => NewLabel::Named(Label::for_person(&**name)?),
    };
    if args.flag.hook {
        let work = async |app: &App, call: hook::Call| {
            let (place, run) = hook::run_of(app, &call).await?;
            let mut place = app.place_of(place, &run).await?;
            place.settings.capture_timeout = Some(HURRY);
            place.settings.wait = PATIENCE;
            let node = open_step(&run).ok_or_else(|| no_step(run.id()))?;
            take(app, args, &mut place, label, Some(node)).await.map(drop)
        };
        return hook::answer(app, work).await;
    }
    let mut place = app.place(args.any_root).await?;
    let node = inside(app, &place).await?;
    let captured = take(app, args, &mut place, label, node).await?;
    let code = match captured.coverage.complete || args.accept_incomplete {
        true => exit::COMPLETE,
        false => exit::PARTIAL,
    };
    if app.out.is_json() {
        app.out.json(&document(&captured, args.dry_run, code)?);
    } else {
        print(app, &place, &captured, args.dry_run);
    }
    Ok(code)
}

/// Captures, in the chain of the run whose node executes when there is one.
async fn take(
    app: &App,
    args: &Args,
    place: &mut Place,
    label: NewLabel,
    node: Option<(Chain, Boundary)>,
) -> Result<Captured> {
    if let Some((chain, _)) = &node {
        place.chain = chain.clone();
    }
    if node.is_none() && place.chain != place.root()?.chain() && !args.adopt {
        return Err(Error::invalid(
            "this would record the workspace in a chain that is not its own",
        )
        .with_hint("add --adopt to continue the chain of a directory that was moved here"));
    }
    // A dry run ends nothing.
    if !args.dry_run {
        app.recover_by_policy(place).await?;
    }
    let mut settings = app.capture_settings(place, "capture", !args.dry_run).await?;
    settings.observe.cross_filesystems = args.cross_filesystems;
    let recorder = Recorder::open(
        place.store.clone(),
        app.ctx.clone(),
        place.root()?.clone(),
        place.chain.clone(),
        settings,
    );
    let person = node.is_none() && label != NewLabel::None;
    let label = match label {
        NewLabel::None if node.is_some() => NewLabel::Numbered("step"),
        label => label,
    };
    let request = Request {
        pin: args.pin || person,
        label,
        boundary: node.map(|(_, boundary)| boundary),
        move_label: args.moves,
        message: args.message.clone(),
        operation: args.operation_id.clone(),
        rehash: args.rehash,
        dry_run: args.dry_run,
        ..Request::default()
    };
    let capture = recorder.capture(&request);
    app.within(place.settings.capture_timeout, capture).await
}

/// The chain and the open step of an external run, in which a capture is a finer point to
/// go back to.
fn open_step(run: &Run) -> Option<(Chain, Boundary)> {
    let external = run.record.driver == Some(Driver::External);
    let checkpoint =
        run.record.checkpoint().filter(|_| external && *run.status() == Status::Running)?;
    let current = checkpoint.executing()?;
    let boundary = Boundary {
        phase: Phase::Inside,
        node: Some(checkpoint.node_id.clone()),
        iteration: Some(current.iteration),
        attempt: Some(current.attempt),
        gate: None,
    };
    Some((Chain::Run(run.id().clone()), boundary))
}

fn no_step(run: &RunId) -> Error {
    Error::refused("no-step", format!("run {run} has no open step"))
        .with_hint(format!("backtrail runs boundary {run} enter NODE"))
}

/// The chain of the run and the node in which this command was started, or of the open
/// step of the run that was asked for, when that is in this workspace and no other chain
/// was asked for.
async fn inside(app: &App, place: &Place) -> Result<Option<(Chain, Boundary)>> {
    if let (Some(_), Chain::Run(run)) = (app.common.run()?, &place.chain) {
        let run = match app.runs(place).load(run).await {
            Ok(run) => run,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e),
        };
        let here = place.root()?.text();
        if run.record.driver != Some(Driver::External) || run.record.work_dir != Some(here) {
            return Ok(None);
        }
        return open_step(&run).map(Some).ok_or_else(|| no_step(run.id()));
    }
    let text = |name: &str| app.env.raw(name).and_then(|v| v.to_str());
    let (Some(run), Some(node)) = (text("BACKTRAIL_RUN_ID"), text("BACKTRAIL_NODE")) else {
        return Ok(None);
    };
    let here = app.env.raw("BACKTRAIL_WORKSPACE").map(Path::new);
    if app.common.chain()?.is_some() || here != Some(&place.root()?.path) {
        return Ok(None);
    }
    let number = |name: &str| text(name).and_then(|n| n.parse().ok());
    let boundary = Boundary {
        phase: Phase::Inside,
        node: Some(node.to_owned()),
        iteration: number("BACKTRAIL_ITERATION"),
        attempt: number("BACKTRAIL_ATTEMPT"),
        gate: None,
    };
    Ok(Some((Chain::Run(RunId::new(run)?), boundary)))
}

fn document(captured: &Captured, dry_run: bool, code: Code) -> Result<Value> {
    let mut value = serde_json::to_value(captured)
        .map_err(|e| Error::invalid("the result cannot be written").with_source(e))?;
    value["exit_code"] = json!(code.0);
    if dry_run {
        value["dry_run"] = json!(true);
    }
    Ok(value)
}

fn print(app: &App, place: &Place, c: &Captured, dry_run: bool) {
    for w in &c.warnings {
        match w.path.as_ref().filter(|p| !p.is_empty() && !w.hint.contains(*p)) {
            Some(path) => app.out.warn(&format!("{path}: {}", w.hint)),
            None => app.out.warn(&w.hint),
        }
    }
    if c.healed > 0 {
        app.out.warn(&format!(
            "{} damaged in the store and stored again",
            format::count(c.healed, "object")
        ));
    }
    let id =
        c.id.as_ref()
            .map(|id| format!(" {}", app.out.paint(Paint::Id, &id.as_str()[..super::SHORT])));
    let id = id.unwrap_or_default();
    let took = format::elapsed(c.elapsed_ms);
    if !c.created && (!dry_run || c.id.is_some()) {
        let files = format::count(c.counts.files, "file");
        app.out.summary(format!("unchanged{id}  {files}  {took}"));
    } else {
        let verb = if dry_run { "would capture" } else { "captured" };
        let stored = if dry_run {
            String::new()
        } else {
            format!("  +{} stored", format::bytes(c.stored.bytes))
        };
        app.out.summary(format!("{verb}{id}  {}{stored}  {took}", changes(c)));
    }
    let uncovered = uncovered(c);
    if !uncovered.is_empty() {
        let at = c.id.as_ref().map_or("latest", |id| &id.as_str()[..super::SHORT]);
        let limit = format::bytes(place.settings.max_file_bytes);
        let (n, words) = words(&uncovered, &limit);
        app.out.summary(format!("not covered: {n} ({words})   backtrail show {at} --skipped"));
    }
}

/// `3 new, 1 changed, 2 deleted, 812 same`.
fn changes(c: &Captured) -> String {
    let all = c.counts.files + c.counts.symlinks;
    match c.changed_files {
        None => format!("{all} new"),
        Some(d) => {
            let same = all.saturating_sub(d.added + d.modified);
            format!("{} new, {} changed, {} deleted, {same} same", d.added, d.modified, d.deleted)
        }
    }
}

fn uncovered(c: &Captured) -> Vec<(String, u64)> {
    let mut out: Vec<(String, u64)> =
        c.coverage.skipped.iter().map(|(r, n)| (r.as_str().to_owned(), *n)).collect();
    let unseen = c.coverage.records.iter().filter(|r| r.state == State::Unobserved);
    if c.coverage.unobserved > 0 {
        let reasons: std::collections::BTreeSet<&str> = unseen.map(|r| r.reason.as_str()).collect();
        let reasons: Vec<&str> = reasons.into_iter().collect();
        out.push((format!("unseen: {}", reasons.join(", ")), c.coverage.unobserved));
    }
    out
}

fn words(uncovered: &[(String, u64)], limit: &str) -> (u64, String) {
    let total = uncovered.iter().map(|(_, n)| n).sum();
    let word = |(reason, n): &(String, u64)| match reason == Reason::TooLarge.as_str() {
        true => format!("{n} over {limit}"),
        false => format!("{n} {reason}"),
    };
    (total, uncovered.iter().map(word).collect::<Vec<_>>().join(", "))
}
