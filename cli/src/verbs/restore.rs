//! `restore`: puts a recorded state back, in place or into another directory; also
//! ends a restore that was interrupted.

pub(crate) mod hooks;
mod into;
pub(crate) mod report;

use std::path::PathBuf;

use backtrail_core::capture::Recorder;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Chain;
use backtrail_core::plan::{OnConflict, Options, Scope};
use backtrail_core::restore::{self, Direction, RestoreRequest};
use backtrail_core::snapshot::chain::resolve;
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::label;
use serde_json::json;

use crate::context::{App, Place};
use crate::exit::{self, Code};
use hooks::Confirm;

/// Arguments of `restore`.
#[derive(clap::Args)]
#[command(
    after_help = "Everything that is overwritten or deleted is banked first; `backtrail undo` takes the
restore back. What a snapshot did not cover is never touched. All or nothing: on a failure
everything is as before.

Examples:
  backtrail restore latest --dry-run
  backtrail restore before-refactor
  backtrail restore latest src/main.rs --yes
  backtrail restore 9f3c21 --into /tmp/then
  backtrail restore --roll-back            after a crash in the middle of a restore"
)]
pub(crate) struct Args {
    /// Which: latest, a label, an id or its beginning, each with ~N for N before it
    #[arg(value_name = "SNAP", required_unless_present_any = ["finish", "roll_back"])]
    snapshot: Option<String>,
    /// Only these paths, with all below them
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only this path, with all below it
    #[arg(long = "path", value_name = "PATH", num_args = 1)]
    more_paths: Vec<PathBuf>,
    /// Into this directory, which must be absent or empty, instead of in place
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// With --into: DIR may hold something; what differs is overwritten, nothing deleted
    #[arg(long, requires = "into")]
    overwrite: bool,
    /// With --into: hand all to stable storage before DIR appears
    #[arg(long, requires = "into")]
    sync: bool,
    /// Delete nothing
    #[arg(long)]
    no_delete: bool,
    /// What differs and may be somebody's work
    #[command(flatten)]
    pub(crate) conflicts: Conflicts,
    /// Read every file, whatever the stat cache says
    #[arg(long)]
    rehash: bool,
    /// Plan although there seems to be too little room
    #[arg(long)]
    no_space_check: bool,
    /// Agree to deleting most of the workspace
    #[arg(long)]
    allow_mass_delete: bool,
    /// Take a root that is refused otherwise: /, the home directory
    #[arg(long)]
    any_root: bool,
    /// Put a snapshot of another directory back here; nothing is deleted
    #[arg(long)]
    foreign: bool,
    /// Give a repeated request the recorded result of the first
    #[arg(long, value_name = "ID")]
    operation_id: Option<String>,
    /// How it is agreed to and shown
    #[command(flatten)]
    pub(crate) agreement: Agreement,
    /// Finish the restore that was interrupted
    #[arg(long, conflicts_with_all = NOT_WITH_RECOVERY, conflicts_with = "roll_back")]
    finish: bool,
    /// Roll the restore that was interrupted back
    #[arg(long, conflicts_with_all = NOT_WITH_RECOVERY)]
    roll_back: bool,
}

/// A recovery has its plan already: what says how to make or show one is refused, not
/// ignored.
const NOT_WITH_RECOVERY: [&str; 16] = [
    "snapshot",
    "paths",
    "more_paths",
    "into",
    "no_delete",
    "keep",
    "take",
    "on_conflict",
    "special_modes",
    "rehash",
    "no_space_check",
    "allow_mass_delete",
    "foreign",
    "operation_id",
    "dry_run",
    "plan",
];

/// Choices about conflicts.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Conflicts {
    /// Leave this path as it is
    #[arg(long, value_name = "PATH", num_args = 1)]
    keep: Vec<PathBuf>,
    /// Put this path back even if it was changed since; it is banked
    #[arg(long, value_name = "PATH", num_args = 1)]
    take: Vec<PathBuf>,
    /// What to do with paths that were changed since
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    on_conflict: Choice,
    /// Keep setuid and setgid bits even as the superuser
    #[arg(long)]
    pub(crate) special_modes: bool,
}

/// What to do with conflicts.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Choice {
    Keep,
    Overwrite,
    Abort,
}

/// How a change is agreed to and shown.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Agreement {
    /// Show what would be done; change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Only if the plan has this digest, as --dry-run shows it
    #[arg(long, value_name = "DIGEST")]
    pub(crate) plan: Option<String>,
    /// Agree beforehand
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// List every path, however many
    #[arg(long)]
    pub(crate) full: bool,
}

impl Args {
    /// The snapshot as typed.
    fn text(&self) -> &str {
        self.snapshot.as_deref().unwrap_or("latest")
    }
}

impl Conflicts {
    /// The choices as the engine takes them.
    pub(crate) fn options(&self, place: &Place) -> Result<Options> {
        let inside = |paths: &[PathBuf]| {
            paths.iter().map(|p| crate::paths::inside(place.root()?, p)).collect::<Result<Vec<_>>>()
        };
        Ok(Options {
            keep: inside(&self.keep)?,
            take: inside(&self.take)?,
            on_conflict: match self.on_conflict {
                Choice::Keep => OnConflict::Keep,
                Choice::Overwrite => OnConflict::Overwrite,
                Choice::Abort => OnConflict::Abort,
            },
            max_file_bytes: place.settings.max_file_bytes,
            ..Options::default()
        })
    }
}

/// Restores.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.finish || args.roll_back {
        return recover(app, args).await;
    }
    let text = args.text();
    if let Some(dir) = &args.into {
        return into::run(app, args, text, dir).await;
    }
    let place = app.place(args.any_root).await?;
    let target = resolve(&*place.store, &place.chain, text).await?;
    app.before_change(&place, args.agreement.dry_run).await?;
    let root = place.root()?;
    let paths = args.paths.iter().chain(&args.more_paths);
    let paths: Vec<_> = paths.map(|p| crate::paths::inside(root, p)).collect::<Result<_>>()?;
    let mut request = request(app, args, &place, target, text)?;
    // The root named as a path is the whole workspace.
    if !paths.is_empty() && !paths.iter().any(|p| p.is_root()) {
        request.scope = Scope::Paths(paths.into_iter().collect());
    }
    let chain = root.chain();
    let recorder = recorder(app, &place, chain, args.agreement.dry_run).await?;
    let confirm = Confirm::new(app, &request.target, &args.agreement, args.allow_mass_delete);
    let result = restore::run(&recorder, &request, &confirm).await?;
    Ok(report::result(app, &result, confirm.preview()))
}

/// What is asked, but for the paths.
fn request(
    app: &App,
    args: &Args,
    place: &Place,
    target: Snapshot,
    text: &str,
) -> Result<RestoreRequest> {
    let mut options = args.conflicts.options(place)?;
    options.no_delete = args.no_delete;
    options.no_space_check = args.no_space_check;
    let name = text.split('~').next().unwrap_or_default();
    let by_label = !label::is_id_like(name);
    Ok(RestoreRequest {
        label: by_label.then(|| text.to_owned()),
        run: match (&app.common.run, &place.chain) {
            (Some(_), Chain::Run(run)) => Some(run.clone()),
            _ => None,
        },
        options,
        foreign: args.foreign,
        rehash: args.rehash,
        special_modes: args.conflicts.special_modes,
        dry_run: args.agreement.dry_run,
        plan_digest: args.agreement.plan.clone(),
        operation_id: args.operation_id.clone(),
        full: args.agreement.full,
        ..RestoreRequest::new(target)
    })
}

/// A recorder whose chain gets the bank: the workspace's own.
pub(crate) async fn recorder(
    app: &App,
    place: &Place,
    chain: Chain,
    dry_run: bool,
) -> Result<Recorder> {
    let settings = app.capture_settings(place, "restore", !dry_run).await?;
    let root = place.root()?.clone();
    Ok(Recorder::open(place.store.clone(), app.ctx.clone(), root, chain, settings))
}

async fn recover(app: &App, args: &Args) -> Result<Code> {
    let place = app.place(true).await?;
    let direction = if args.finish { Direction::Finish } else { Direction::RollBack };
    let at = app.recovery_place(&place).await?;
    let done = restore::recover(&at, direction, place.settings.wait, "restore").await?;
    let code = done.iter().fold(exit::COMPLETE, |code, r| code.and(Code(r.exit_code())));
    if app.out.is_json() {
        app.out.json(&json!({
            "workspace": place.workspace(), "recovered": done, "exit_code": code.0,
        }));
        return Ok(code);
    }
    for r in &done {
        let way = match r.direction {
            Direction::Finish => "finished",
            Direction::RollBack => "rolled back",
        };
        app.out.summary(format!("{way} {}  {} paths moved", r.transaction, r.moved));
        for third in &r.third {
            app.out.warn(&format!("left as it is, changed since: {}", third.path));
        }
        for warning in &r.warnings {
            app.out.warn(&warning.message);
        }
    }
    Ok(code)
}

/// A usage error of flags that do not go together.
fn not_with(what: &str, other: &str) -> Error {
    Error::invalid(format!("{what} cannot be used with {other}"))
}
