//! `prune`: removes snapshots by the given limits, then objects that nobody needs.

use backtrail_core::error::{Error, Result};
use backtrail_core::prune::{self, Policy, Report, Request};

use crate::args::push;
use crate::confirm;
use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};
use crate::settings::{self, Override};

/// Arguments of `prune`.
#[derive(clap::Args)]
#[command(
    after_help = "A snapshot goes when it breaks any given limit and nothing protects it: pinned labels,
banks that are new, tips of unfinished runs, and what an unfinished restore needs stay.
Without limits only finished runs of this workspace are thinned out.

Examples:
  backtrail prune --dry-run
  backtrail prune --keep 50 --yes
  backtrail prune --older-than 30d --all-workspaces --dry-run"
)]
pub(crate) struct Args {
    /// Keep this many of each chain, newest first
    #[arg(long, value_name = "N")]
    keep: Option<String>,
    /// Keep this much of each chain, newest first
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<String>,
    /// Keep nothing older
    #[arg(long, value_name = "DUR")]
    older_than: Option<String>,
    /// Apply the limits to runs that may still execute
    #[arg(long)]
    include_unfinished: bool,
    /// Apply the rules to every workspace of the store
    #[arg(long)]
    all_workspaces: bool,
    /// Keep this snapshot
    #[arg(long, value_name = "ID", num_args = 1)]
    protect: Vec<String>,
    /// Spare younger objects [default: 1h]
    #[arg(long, value_name = "DUR")]
    grace: Option<String>,
    /// Spare no object for its age
    #[arg(long, conflicts_with = "grace")]
    instant: bool,
    /// Remove snapshots, leave the objects
    #[arg(long, conflicts_with = "objects_only")]
    snapshots_only: bool,
    /// Remove no snapshot, only objects that nobody needs
    #[arg(long)]
    objects_only: bool,
    /// Go on although host and store disagree about the time
    #[arg(long)]
    ignore_clock_skew: bool,
    /// Only if the plan has this digest, as --dry-run shows it
    #[arg(long, value_name = "DIGEST")]
    plan: Option<String>,
    /// Show what would go; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Agree beforehand
    #[arg(short, long)]
    yes: bool,
}

impl Args {
    /// Flags that are settings.
    pub(crate) fn overrides(&self, out: &mut Vec<Override>) {
        push(out, "prune.grace", "--grace", &self.grace);
        push(out, "prune.grace", "--instant", &self.instant.then(|| "0".to_owned()));
    }

    fn policy(&self, app: &App, settings: &settings::Settings) -> Result<Policy> {
        let bad = |flag: &str, why: String| Error::invalid(format!("bad value for {flag}: {why}"));
        let size = self.max_bytes.as_deref().map(settings::size).transpose();
        let age = self.older_than.as_deref().map(settings::duration).transpose();
        let keep = self.keep.as_deref().map(settings::count).transpose();
        Ok(Policy {
            keep: keep.map_err(|why| bad("--keep", why))?,
            max_bytes: size.map_err(|why| bad("--max-bytes", why))?,
            older_than: age.map_err(|why| bad("--older-than", why))?,
            default_keep: settings.keep,
            bank_keep: settings.bank_keep,
            bank_age: settings.bank_age,
            run: app.common.run()?,
            include_unfinished: self.include_unfinished,
            all_workspaces: self.all_workspaces,
            protect: self.protect.clone(),
        })
    }
}

/// Prunes.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    // A malformed limit is told before anything is opened.
    args.policy(app, &app.settings()?)?.check()?;
    let place = app.anywhere().await?;
    let mut request = Request {
        policy: Policy {
            run: app.named_run(&place.store, place.root.as_ref()).await?,
            ..args.policy(app, &place.settings)?
        },
        workspace: place.root.as_ref().map(|r| r.key.clone()),
        dry_run: true,
        plan: args.plan.clone(),
        grace: place.settings.grace,
        ignore_clock_skew: args.ignore_clock_skew,
        snapshots_only: args.snapshots_only,
        objects_only: args.objects_only,
        wait: place.settings.wait,
        command: "prune".to_owned(),
    };
    // What a person agrees to is what is done: the real run is bound to this plan.
    if args.dry_run || !args.yes {
        let plan = prune::prune(&*place.store, &app.ctx, &request).await?;
        if args.dry_run {
            return Ok(report(app, &plan));
        }
        if !plan.removed.is_empty() {
            if !app.out.is_json() {
                print_plan(app, &plan);
            }
            let n = format::count(plan.removed.len() as u64, "snapshot");
            confirm::agree(app, &format!("Remove {n} for good?"), "--yes").await?;
        }
        request.plan = Some(plan.plan.hex());
    }
    request.dry_run = false;
    let done = prune::prune(&*place.store, &app.ctx, &request).await?;
    Ok(report(app, &done))
}

fn report(app: &App, r: &Report) -> Code {
    let code = if r.complete { exit::COMPLETE } else { exit::PARTIAL };
    if app.out.is_json() {
        app.out.json(r);
        return code;
    }
    for w in &r.warnings {
        app.out.warn(w);
    }
    if r.dry_run {
        print_plan(app, r);
    }
    let (would, freed) =
        if r.dry_run { ("would remove", "would free") } else { ("removed", "freed") };
    app.out.summary(format!(
        "{would} {} and {}, {freed} {}",
        format::count(r.removed.len() as u64, "snapshot"),
        format::count(r.objects_deleted, "object"),
        format::bytes(r.bytes_freed),
    ));
    if r.objects_spared_young > 0 {
        let n = format::count(r.objects_spared_young, "object");
        app.out.summary(format!("spared for their age: {n}   backtrail prune --instant"));
    }
    for f in &r.failed {
        app.out.warn(&format!("not removed: {}: {}", f.name, f.error));
    }
    if r.dry_run {
        app.out.summary(format!("plan {}", &r.plan.hex()[..16]));
    }
    code
}

fn print_plan(app: &App, r: &Report) {
    let out = &app.out;
    for g in &r.groups {
        let root = g.workspace.as_deref().unwrap_or("-");
        let kept = g.snapshots.saturating_sub(g.removed);
        out.line(format!(
            "{}  {root}  {}: {} go, {kept} stay",
            out.paint(Paint::Bold, &g.chain.to_string()),
            g.rule,
            g.removed,
        ));
        for gone in r.removed.iter().filter(|x| x.chain == g.chain) {
            let label = gone.label.as_ref().map(|l| format!("  {l}")).unwrap_or_default();
            let id = out.paint(Paint::Bad, &gone.id.as_str()[..super::SHORT]);
            out.line(format!("  {id}{label}  {}", gone.reason));
        }
    }
    for p in &r.protected {
        let id = out.paint(Paint::Id, &p.id.as_str()[..super::SHORT]);
        out.line(format!("stays: {id}  {}", p.reason));
    }
}
