//! `undo` and `redo`: the list of operations, walked back and forth.

use backtrail_core::capture::Recorder;
use backtrail_core::error::{Error, Result};
use backtrail_core::restore::{EntryState, Operations, RestoreResult, UndoRequest};
use backtrail_core::rewind;
use serde_json::json;

use super::restore::hooks::Confirm;
use super::restore::{Agreement, Conflicts, report};
use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::output::{Paint, format};

/// Arguments of `undo` and `redo`.
#[derive(clap::Args)]
#[command(
    after_help = "An undo is a restore of its own: previewed, banked, and undone by the other of the two.
Files that were changed since are kept.

Examples:
  backtrail undo
  backtrail undo 2 --yes
  backtrail undo --list
  backtrail redo"
)]
pub(crate) struct Args {
    /// How many operations
    #[arg(value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// List the operations, newest first
    #[arg(long)]
    list: bool,
    /// What differs and may be somebody's work
    #[command(flatten)]
    conflicts: Conflicts,
    /// How it is agreed to and shown
    #[command(flatten)]
    agreement: Agreement,
}

/// Which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `undo`.
    Back,
    /// `redo`.
    Forth,
}

/// Undoes or redoes.
pub(crate) async fn run(app: &App, args: &Args, way: Way) -> Result<Code> {
    let place = app.place(true).await?;
    if args.list {
        app.warn_unfinished(&place).await?;
        return list(app, &place).await;
    }
    if args.n > 1 && (args.agreement.dry_run || args.agreement.plan.is_some()) {
        return Err(Error::invalid("--dry-run and --plan take one operation at a time"));
    }
    app.before_change(&place, args.agreement.dry_run).await?;
    let chain = place.root()?.chain();
    let recorder = super::restore::recorder(app, &place, chain, args.agreement.dry_run).await?;
    if args.n == 1 {
        let confirm = Confirm::again(app, &args.agreement);
        let result = once(&recorder, args, &place, way, &confirm).await?;
        return Ok(report::result(app, &result, confirm.preview()));
    }
    several(app, args, &place, way, &recorder).await
}

async fn once(
    recorder: &Recorder,
    args: &Args,
    place: &Place,
    way: Way,
    confirm: &Confirm<'_>,
) -> Result<RestoreResult> {
    let request = UndoRequest {
        options: args.conflicts.options(place)?,
        dry_run: args.agreement.dry_run,
        plan_digest: args.agreement.plan.clone(),
        full: args.agreement.full,
        special_modes: args.conflicts.special_modes,
    };
    match way {
        Way::Back => rewind::undo(recorder, &request, confirm).await,
        Way::Forth => rewind::redo(recorder, &request, confirm).await,
    }
}

/// One transaction after the other; the first failure stops, and what was done before
/// it stays done and is told.
async fn several(
    app: &App,
    args: &Args,
    place: &Place,
    way: Way,
    recorder: &Recorder,
) -> Result<Code> {
    let mut results = Vec::new();
    let mut code = exit::COMPLETE;
    let mut stopped = None;
    for _ in 0..args.n {
        let confirm = Confirm::again(app, &args.agreement);
        match once(recorder, args, place, way, &confirm).await {
            Ok(result) => {
                code = code.and(Code(result.exit_code));
                if !app.out.is_json() {
                    report::print(app, &result, confirm.preview());
                }
                results.push(result);
            }
            Err(e) => {
                stopped = Some(e);
                break;
            }
        }
    }
    if !app.out.is_json() {
        return stopped.map_or(Ok(code), Err);
    }
    if let Some(e) = stopped {
        code = code.and(app.code_of(&e));
        let mut value = app.out.failure(&e, code);
        value["results"] = json!(results);
        app.out.json(&value);
    } else {
        app.out.json(&json!({ "results": results, "exit_code": code.0 }));
    }
    Ok(code)
}

async fn list(app: &App, place: &Place) -> Result<Code> {
    let root = place.root()?;
    let list = Operations::load(&*place.store, &root.key).await?;
    if app.out.is_json() {
        app.out.json(&json!({
            "workspace": place.workspace(), "cursor": list.cursor,
            "operations": list.entries.iter().rev().collect::<Vec<_>>(),
        }));
        return Ok(exit::COMPLETE);
    }
    for e in list.entries.iter().rev() {
        let state = match e.state {
            EntryState::Done => app.out.paint(Paint::Good, "done     "),
            EntryState::Undone => app.out.paint(Paint::Warn, "undone   "),
            EntryState::Abandoned => app.out.paint(Paint::Dim, "abandoned"),
            EntryState::Expired => app.out.paint(Paint::Dim, "expired  "),
        };
        let short = |id: &str| app.out.paint(Paint::Id, &id[..super::SHORT]);
        let target = e.target.as_ref().map(|t| format!("  to {}", short(t.as_str())));
        let bank = e.bank.as_ref().map(|b| format!("  bank {}", short(b.snapshot.as_str())));
        let age = format::age(&e.at, app.now());
        app.out.line(format!(
            "{:>4}  {state}  {age}  {}{}{}",
            e.n,
            e.kind,
            target.unwrap_or_default(),
            bank.unwrap_or_default(),
        ));
    }
    if list.entries.is_empty() {
        app.out.notice("no restore was made here yet");
    }
    Ok(exit::COMPLETE)
}
