//! `size`: what history takes, and what deleting a chain would free.

use backtrail_core::error::Result;
use backtrail_core::ids::Chain;
use backtrail_core::size::{self, Report};

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::{Paint, format};

/// Arguments of `size`.
#[derive(clap::Args)]
#[command(
    after_help = "Unique bytes are those that no other chain needs: what deleting the chain would free.

Examples:
  backtrail size
  backtrail size --all --json"
)]
pub(crate) struct Args {
    /// Every chain of the store
    #[arg(long)]
    all: bool,
}

/// Measures.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let report = if args.all {
        let store = app.anywhere().await?.store;
        size::size(&*store, &app.ctx, |_: &Chain| true).await?
    } else {
        let place = app.history().await?;
        super::must_exist(app, &place).await?;
        size::size(&*place.store, &app.ctx, |c: &Chain| *c == place.chain).await?
    };
    if app.out.is_json() {
        app.out.json(&report);
    } else {
        print(app, &report);
    }
    Ok(if report.unreadable.is_empty() { exit::COMPLETE } else { exit::CORRUPT })
}

fn print(app: &App, r: &Report) {
    let out = &app.out;
    for c in &r.chains {
        out.line(format!(
            "{}  {}  head {}, stored {}, unique {}",
            out.paint(Paint::Id, &c.chain.to_string()),
            format::count(c.snapshots, "snapshot"),
            format::bytes(c.head_bytes),
            format::bytes(c.reachable_bytes),
            format::bytes(c.unique_bytes),
        ));
    }
    let s = &r.store;
    let free = s.free_bytes.map(|n| format!(", {} free", format::bytes(n))).unwrap_or_default();
    out.line(format!(
        "store  {}  {} as {}, {} unreferenced{free}",
        format::count(s.objects, "object"),
        format::bytes(s.raw_bytes),
        format::bytes(s.stored_bytes),
        format::bytes(s.unreferenced_bytes),
    ));
    for name in &r.unreadable {
        out.warn(&format!("{name} cannot be read; what it refers to is not counted"));
    }
}
