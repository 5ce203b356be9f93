//! `verify`: is what the store should hold there, and right?

use std::collections::BTreeSet;
use std::sync::Arc;

use backtrail_core::error::Result;
use backtrail_core::snapshot::chain::resolve;
use backtrail_core::store::Store;
use backtrail_core::verify::{self, Report, Scope};

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};

/// Arguments of `verify`.
#[derive(clap::Args)]
#[command(
    after_help = "Repairs nothing. What is damaged is remembered: the next capture of a workspace that
still has the content stores it again. Ends with 7 when anything is damaged.

Examples:
  backtrail verify
  backtrail verify latest --deep
  backtrail verify --all --deep --json"
)]
pub(crate) struct Args {
    /// Only this snapshot
    #[arg(value_name = "SNAP", conflicts_with = "all")]
    snapshot: Option<String>,
    /// The whole store
    #[arg(long)]
    all: bool,
    /// Read and hash every object again, not only look for it
    #[arg(long)]
    deep: bool,
}

/// Verifies.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let (store, scope) = match args.all {
        true => (app.anywhere().await?.store, Scope::All),
        false => scope(app, args).await?,
    };
    let report = verify::verify(&*store, &app.ctx, &scope, args.deep).await?;
    if app.out.is_json() {
        app.out.json(&report);
    } else {
        print(app, &report);
    }
    Ok(if report.is_clean() { exit::COMPLETE } else { exit::CORRUPT })
}

/// One snapshot, or the chain of the workspace or of `--run` and `--chain`.
async fn scope(app: &App, args: &Args) -> Result<(Arc<dyn Store>, Scope)> {
    let place = app.history().await?;
    let store = &*place.store;
    let scope = match &args.snapshot {
        Some(text) => {
            let s = resolve(store, &place.chain, text).await?;
            Scope::Snapshot(s.chain, s.id)
        }
        None => {
            super::must_exist(app, &place).await?;
            Scope::Chains(BTreeSet::from([place.chain.clone()]))
        }
    };
    Ok((place.store, scope))
}

fn print(app: &App, r: &Report) {
    let out = &app.out;
    for u in &r.unreadable {
        let word = if u.newer { "newer" } else { "unreadable" };
        out.line(format!("{} {}: {}", out.paint(Paint::Bad, word), u.name, u.error));
    }
    for d in &r.damaged {
        let problem = serde_json::to_value(d.problem).unwrap_or_default();
        let problem = problem.as_str().unwrap_or("damaged");
        let snapshots: Vec<&str> =
            d.hit.snapshots.iter().map(|id| &id.as_str()[..super::SHORT]).collect();
        out.line(format!("{} {}", out.paint(Paint::Bad, problem), d.digest));
        out.line(format!("  snapshots: {}", snapshots.join(" ")));
        for path in &d.hit.paths {
            out.line(format!("  path: {path}"));
        }
        let more = d.hit.path_count.saturating_sub(d.hit.paths.len() as u64);
        if more > 0 {
            out.line(format!("  and {more} more paths"));
        }
    }
    let c = r.checked;
    let how = if r.deep { "verified" } else { "looked at" };
    out.summary(format!(
        "{how} {}, {}, {}, {}",
        format::count(c.snapshots, "snapshot"),
        format::count(c.trees, "tree"),
        format::count(c.objects, "object"),
        format::bytes(c.bytes),
    ));
    if r.not_rehashed > 0 {
        let n = format::count(r.not_rehashed, "object");
        out.summary(format!("not hashed again: {n}   backtrail verify --deep"));
    }
    if !r.is_clean() {
        let (whole, partial) = (&r.restorable.whole, &r.restorable.partial);
        out.summary(format!(
            "damaged: {}; {} restore whole, {} but for the paths above",
            format::count(r.damaged.len() as u64, "object"),
            format::count(whole.len() as u64, "snapshot"),
            partial.len(),
        ));
        out.summary("to heal what the workspace still has: backtrail capture --rehash");
    }
}
