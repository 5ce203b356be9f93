//! `label`: gives a snapshot a name, moves it, or takes it away.

use backtrail_core::error::{Error, Result};
use backtrail_core::snapshot::chain::resolve;
use backtrail_core::snapshot::label::Label;
use backtrail_core::snapshot::relabel::{self, Relabelled};
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};
use crate::output::Paint;

/// Arguments of `label`.
#[derive(clap::Args)]
#[command(
    after_help = "A label given here is pinned: prune keeps its snapshot while the label is there.

Examples:
  backtrail label before-refactor
  backtrail label good 9f3c21 --move
  backtrail label good --delete"
)]
pub(crate) struct Args {
    /// The name: 1-200 bytes, first a letter or digit, then also . _ : @ + % -
    #[arg(value_name = "NAME")]
    name: String,
    /// Which snapshot
    #[arg(value_name = "SNAP", default_value = "latest", conflicts_with = "delete")]
    snapshot: String,
    /// Take the name from the snapshot that has it
    #[arg(long = "move", conflicts_with = "delete")]
    moves: bool,
    /// Let prune remove the snapshot all the same
    #[arg(long, conflicts_with = "delete")]
    no_pin: bool,
    /// Take the label away; the snapshot stays
    #[arg(long)]
    delete: bool,
    /// With --delete: also a label that the engine wrote at a boundary
    #[arg(long, requires = "delete")]
    force: bool,
}

/// Labels.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    // Checked before anything is opened, so that a bad name is told apart from a missing one.
    let name = if args.delete { Label::new(&*args.name)? } else { Label::for_person(&*args.name)? };
    let place = app.history().await?;
    let (store, ids) = (&*place.store, &*app.ctx.ids);
    if args.delete {
        if name.is_reserved() && !args.force {
            return Err(Error::refused(
                "boundary-label",
                format!("label {name} was written by the engine; rewinding may need it"),
            )
            .with_hint(format!("backtrail label {name} --delete --force")));
        }
        let previous = relabel::delete(store, ids, &place.chain, &name).await?;
        if app.out.is_json() {
            app.out.json(&json!({
                "label": name, "snapshot": null, "previous": previous, "pinned": false,
            }));
        } else {
            app.out.summary(format!("label {name} is gone; it named {previous}"));
        }
        return Ok(exit::COMPLETE);
    }
    let snapshot = resolve(store, &place.chain, &args.snapshot).await?;
    let at = app.now().rfc3339();
    let request = Relabelled { pinned: !args.no_pin, moves: args.moves, at };
    let previous = relabel::point(store, ids, &name, &snapshot, &request).await?;
    if app.out.is_json() {
        app.out.json(&json!({
            "label": name, "snapshot": snapshot.id, "previous": previous, "pinned": request.pinned,
        }));
    } else {
        let id = app.out.paint(Paint::Id, snapshot.id.as_str());
        let was = previous.filter(|p| *p != snapshot.id);
        let was = was.map(|p| format!(" (was {p})")).unwrap_or_default();
        app.out.summary(format!("label {name} names {id}{was}"));
    }
    Ok(exit::COMPLETE)
}
