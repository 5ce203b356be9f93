//! `rewind`: puts a run back to the entry of one of its nodes.

mod report;

use std::path::{Path, PathBuf};

use backtrail_core::error::{Error, Result};
use backtrail_core::rewind::{self, Pivot, RewindRequest, RewindScope, Source, WholeRequest};
use backtrail_core::run::{Run, RunStore};

use super::restore::hooks::Confirm;
use super::restore::{Agreement, Conflicts};
use crate::context::{App, Place};
use crate::exit::Code;

/// What no plan can know.
const LIMIT: &str = "an edit that anybody made while a node executed counts as the node's own";

/// Arguments of `rewind`.
#[derive(clap::Args)]
#[command(
    after_help = "Without a node the whole run is undone. Only what the run changed is put back, while it was
executing: files that you edited before, after, or while it was parked stay. Everything that is
discarded is banked first; `backtrail undo` brings the files back. The run is parked, never
resumed.

Examples:
  backtrail rewind                               the newest run of this workspace, from its start
  backtrail rewind --node build --dry-run
  backtrail rewind nightly-42 --node test --yes
  backtrail rewind --auto --file flow.yaml       to the node that was edited since
  backtrail rewind --node build --keep-files     only the record
  backtrail rewind --list-snapshots
  backtrail rewind --restore-snapshot post:plan:0"
)]
pub(crate) struct Args {
    /// Which run: an id or its beginning, a name, latest [default: latest]
    #[arg(value_name = "RUN", conflicts_with = "run_id")]
    run: Option<String>,
    /// The same
    #[arg(long, value_name = "RUN")]
    run_id: Option<String>,
    /// To the newest entry of this node
    #[arg(long, visible_alias = "step", value_name = "NODE", conflicts_with_all = ["to", "auto"])]
    node: Option<String>,
    /// To exactly this iteration of the node
    #[arg(long, value_name = "N", requires = "node")]
    iteration: Option<u64>,
    /// To this label, or to a snapshot at which a node was entered
    #[arg(long, value_name = "LABEL|SNAP", conflicts_with = "auto")]
    to: Option<String>,
    /// To the node whose declaration was edited in the workflow since
    #[arg(long)]
    auto: bool,
    /// The workflow as it is now [default: where the run read it]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Which files: produced (what the run changed), full or none
    #[arg(long, value_name = "SCOPE")]
    restore_scope: Option<RewindScope>,
    /// No files: only the record
    #[arg(long)]
    keep_files: bool,
    /// List the snapshots of the run instead, banks included
    #[arg(long)]
    list_snapshots: bool,
    /// With --list-snapshots: at most this many, newest first
    #[arg(long, value_name = "N", default_value_t = 50, requires = "list_snapshots")]
    limit: usize,
    /// Put all files of one snapshot of the run back instead; its record stays
    #[arg(long, value_name = "SNAP", conflicts_with_all = ["node", "to", "auto", "keep_files", "restore_scope"])]
    restore_snapshot: Option<String>,
    /// Agree to deleting most of the workspace
    #[arg(long)]
    allow_mass_delete: bool,
    /// What differs and may be somebody's work
    #[command(flatten)]
    conflicts: Conflicts,
    /// How it is agreed to and shown
    #[command(flatten)]
    agreement: Agreement,
}

/// Rewinds.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let given = [&args.run, &args.run_id, &app.common.run];
    let text = given.into_iter().flatten().next().map_or("latest", String::as_str);
    let (place, run) = app.find_run(text).await?;
    if args.list_snapshots {
        return super::list::snapshots(app, &place, args.limit).await;
    }
    // A run without a workspace still has a record.
    let place = match (&run.record.work_dir, &place.root) {
        (None, Some(_)) => place,
        _ => app.place_of(place, &run).await?,
    };
    app.before_change(&place, args.agreement.dry_run).await?;
    if !args.agreement.dry_run {
        app.reconcile_here(&place, false).await?;
    }
    let runs = RunStore::new(place.store.clone(), app.ctx.clone());
    // What was interrupted may have been this run's rewind.
    let run = runs.load(run.id()).await?;
    let chain = place.chain.clone();
    let recorder = super::restore::recorder(app, &place, chain, args.agreement.dry_run).await?;
    let allow = args.allow_mass_delete;
    let confirm = Confirm::of_run(app, &args.agreement, allow);
    if args.restore_snapshot.is_some() {
        app.out.notice("all files of the snapshot are put back, whoever changed them since");
        let request = whole(args, &place)?;
        let done = rewind::restore_snapshot(&runs, &recorder, &run, &request, &confirm).await?;
        return Ok(super::restore::report::result(app, &done, confirm.preview()));
    }
    let request = request(args, &place, &run)?;
    if !args.keep_files {
        app.out.notice(LIMIT);
    }
    let done = rewind::rewind(&runs, &recorder, &run, &request, &confirm).await?;
    Ok(report::result(app, &run, &done, confirm.preview()))
}

fn request(args: &Args, place: &Place, run: &Run) -> Result<RewindRequest> {
    let pivot = match (&args.node, &args.to, args.auto) {
        (Some(node), _, _) => Pivot::Node { node: node.clone(), iteration: args.iteration },
        (_, Some(to), _) => Pivot::At(to.clone()),
        (_, _, true) => Pivot::Auto,
        _ => Pivot::Entry,
    };
    let scope = if args.keep_files { Some(RewindScope::None) } else { args.restore_scope };
    Ok(RewindRequest {
        pivot,
        scope,
        source: source(args, place, run)?,
        options: args.conflicts.options(place)?,
        dry_run: args.agreement.dry_run,
        plan_digest: args.agreement.plan.clone(),
        special_modes: args.conflicts.special_modes,
        full: args.agreement.full,
    })
}

fn whole(args: &Args, place: &Place) -> Result<WholeRequest> {
    Ok(WholeRequest {
        snapshot: args.restore_snapshot.clone().unwrap_or_default(),
        options: args.conflicts.options(place)?,
        dry_run: args.agreement.dry_run,
        plan_digest: args.agreement.plan.clone(),
        special_modes: args.conflicts.special_modes,
        full: args.agreement.full,
    })
}

/// The workflow as it is now: the file named, else the one the run read, if it is there.
fn source(args: &Args, place: &Place, run: &Run) -> Result<Option<Source>> {
    let root = place.root()?;
    let recorded = run.record.file_path.as_ref().map(|path| root.path.join(path));
    let (path, named) = match (&args.file, recorded) {
        (Some(file), _) => (crate::env::absolute(file)?, true),
        (None, Some(path)) => (path, false),
        (None, None) => return Ok(None),
    };
    let Some(text) = read(&path, named)? else { return Ok(None) };
    let name = crate::context::quoted(&path);
    Ok(Some(Source { text, name, path: crate::paths::inside(root, &path).ok() }))
}

fn read(path: &Path, must: bool) -> Result<Option<Vec<u8>>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the person's, outside every workspace perhaps; links are followed"
    )]
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !must => Ok(None),
        Err(e) => Err(Error::invalid(format!("{} cannot be read", path.display())).with_source(e)),
    }
}
