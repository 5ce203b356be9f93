//! `runs prune`: delete runs by age and number, then the objects that nobody needs.

use backtrail_core::error::{Error, Result};
use backtrail_core::prune::{self, Policy, Request};
use backtrail_core::run::{PrunePlan, PruneReport, RunPrune, RunStore, Status};
use serde_json::json;

use super::list::status;
use crate::context::{App, Somewhere};
use crate::exit::{self, Code};
use crate::output::format;
use crate::{confirm, settings};

/// Arguments of `runs prune`.
#[derive(clap::Args)]
#[command(
    after_help = "Active and paused runs stay; a failed run that can be resumed goes only when
--status names it.

Examples:
  backtrail runs prune --older-than 720h
  backtrail runs prune --keep-last 20 --yes
  backtrail runs prune --older-than 24h --status failed_resumable --dry-run"
)]
pub(crate) struct Args {
    /// Older than this only
    #[arg(long, value_name = "DUR")]
    older_than: Option<String>,
    /// The newest that stay
    #[arg(long, value_name = "N")]
    keep_last: Option<String>,
    /// In these statuses only [default: finished, failed, cancelled]
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// Show what would go; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Agree beforehand
    #[arg(short, long)]
    yes: bool,
}

impl Args {
    fn policy(&self, settings: &settings::Settings) -> Result<RunPrune> {
        let bad = |flag: &str, why: String| Error::invalid(format!("bad value for {flag}: {why}"));
        let age = self.older_than.as_deref().map(settings::duration).transpose();
        let keep = self.keep_last.as_deref().map(settings::count).transpose();
        let mut policy = RunPrune {
            older_than: age.map_err(|why| bad("--older-than", why))?,
            keep_last: keep.map_err(|why| bad("--keep-last", why))?,
            tombstone_age: settings.tombstone_age,
            ..RunPrune::default()
        };
        if !self.status.is_empty() {
            policy.statuses = self.status.iter().map(|s| status(s)).collect::<Result<_>>()?;
        }
        policy.check()?;
        Ok(policy)
    }
}

/// Prunes.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let policy = args.policy(&app.settings()?)?;
    let place = app.anywhere().await?;
    let runs = RunStore::new(place.store.clone(), app.run_context());
    let plan = runs.plan_prune(&policy).await?;
    if args.dry_run {
        let done = Done { report: PruneReport::default(), objects: 0, bytes: 0 };
        return Ok(report(app, args, &place, &policy, &plan, &done, Vec::new()));
    }
    if !plan.runs.is_empty() && !args.yes {
        if !app.out.is_json() {
            plan.runs.iter().for_each(|r| app.out.preview(&format!("  {}  {}", r.id, r.status)));
        }
        let n = format::count(plan.runs.len() as u64, "run");
        confirm::agree(app, &format!("Delete {n} for good?"), "--yes").await?;
    }
    let pruned = runs.apply_prune(&plan).await?;
    let mut done = Done { report: pruned, objects: 0, bytes: 0 };
    let mut warnings = Vec::new();
    if !done.report.pruned.is_empty() {
        match sweep(app, &place).await {
            Ok((objects, bytes)) => (done.objects, done.bytes) = (objects, bytes),
            Err(e) => warnings.push(format!("objects were not swept: {}", e.message())),
        }
    }
    Ok(report(app, args, &place, &policy, &plan, &done, warnings))
}

struct Done {
    report: PruneReport,
    objects: u64,
    bytes: u64,
}

/// Removes the objects that nothing names any more.
async fn sweep(app: &App, place: &Somewhere) -> Result<(u64, u64)> {
    let settings = &place.settings;
    let request = Request {
        policy: Policy {
            keep: None,
            max_bytes: None,
            older_than: None,
            default_keep: settings.keep,
            bank_keep: settings.bank_keep,
            bank_age: settings.bank_age,
            run: None,
            include_unfinished: false,
            all_workspaces: false,
            protect: Vec::new(),
        },
        workspace: None,
        dry_run: false,
        plan: None,
        grace: settings.grace,
        ignore_clock_skew: false,
        snapshots_only: false,
        objects_only: true,
        wait: settings.wait,
        command: String::from("runs prune"),
    };
    let swept = prune::prune(&*place.store, &app.ctx, &request).await?;
    Ok((swept.objects_deleted, swept.bytes_freed))
}

fn report(
    app: &App,
    args: &Args,
    place: &Somewhere,
    policy: &RunPrune,
    plan: &PrunePlan,
    done: &Done,
    mut warnings: Vec<String>,
) -> Code {
    let skipped = done.report.skipped.iter();
    warnings.extend(skipped.map(|(run, why)| format!("run {run} stays: {}", why.message())));
    let pruned: Vec<String> = match args.dry_run {
        true => plan.runs.iter().map(|r| r.id.to_string()).collect(),
        false => done.report.pruned.iter().map(ToString::to_string).collect(),
    };
    let code = if warnings.is_empty() { exit::COMPLETE } else { exit::PARTIAL };
    if app.out.is_json() {
        app.out.json(&json!({
            "store": place.store.info().url,
            "age_field": "updated_at",
            "older_than": args.older_than,
            "keep_last": policy.keep_last,
            "statuses": policy.statuses.iter().map(Status::as_str).collect::<Vec<_>>(),
            "dry_run": args.dry_run,
            "scanned": plan.scanned,
            "pruned_count": pruned.len(),
            "pruned": pruned,
            "skipped_count": done.report.skipped.len(),
            "unreadable": plan.unreadable,
            "tombstones_reaped": done.report.tombstones_reaped,
            "objects_pruned": done.objects,
            "bytes_reclaimed": done.bytes,
            "warnings": warnings,
            "exit_code": code.0,
        }));
        return code;
    }
    warnings.iter().for_each(|w| app.out.warn(w));
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    pruned.iter().for_each(|run| app.out.line(format!("{verb} {run}")));
    let n = format::count(pruned.len() as u64, "run");
    app.out.summary(format!("{verb} {n}, {} freed", format::bytes(done.bytes)));
    code
}
