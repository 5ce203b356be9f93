//! The verbs, one file each: arguments, and what they do and print.

mod answer;
mod cancel;
mod capture;
mod completions;
mod config;
mod diff;
mod doctor;
mod events;
mod explain;
mod label;
mod list;
mod logs;
mod man;
mod pause;
mod prune;
mod reference;
mod restore;
mod resume;
mod rewind;
mod run;
mod runs;
mod show;
mod size;
mod store;
mod undo;
mod verify;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Chain;
use backtrail_core::store::{DocKey, Prefix};
use clap::Subcommand;
use futures::StreamExt as _;

use crate::context::{App, Place};
use crate::exit::Code;
use crate::settings::Override;

/// Digits of a snapshot id that people are shown.
pub(crate) const SHORT: usize = 8;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Record the workspace as it is now
    Capture(Box<capture::Args>),
    /// List the snapshots, newest first
    List(list::Args),
    /// Show one snapshot, its entries, or the bytes of one of its files
    Show(show::Args),
    /// Show what changed between two states
    Diff(diff::Args),
    /// Put a recorded state back
    Restore(Box<restore::Args>),
    /// Take the newest restore back
    Undo(Box<undo::Args>),
    /// Do what was undone again
    Redo(Box<undo::Args>),
    /// Execute a workflow, or one command, and record what it does
    Run(Box<run::Args>),
    /// Go on with a run that stopped
    Resume(Box<resume::Args>),
    /// Answer what a run asks, and go on with it
    Answer(Box<answer::Args>),
    /// Park a run after its current node
    Pause(pause::Args),
    /// Cancel runs
    Cancel(cancel::Args),
    /// Show what the commands of a run printed
    Logs(logs::Args),
    /// Show the events of a run
    Events(events::Args),
    /// List, show, delete and mend runs
    Runs(runs::Args),
    /// Put a run back to the entry of one of its nodes: its files and its record
    Rewind(Box<rewind::Args>),
    /// Name a snapshot, move a name, or take it away
    Label(label::Args),
    /// Remove snapshots by limits, then what nobody needs
    Prune(Box<prune::Args>),
    /// Check that what the store should hold is there, and right
    Verify(verify::Args),
    /// Check store, history, workspace and host; mend what can be
    Doctor(doctor::Args),
    /// Show what history takes, and what deleting a chain would free
    Size(size::Args),
    /// Make a store, say what one is, copy one into another
    Store(store::Args),
    /// Say what a capture would do with a path, and which rule decided
    Explain(explain::Args),
    /// Show every setting, its value and where the value comes from
    Config(config::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print the manual page, in roff
    #[command(hide = true)]
    Man(man::Args),
    /// Print the reference of the command line, in Markdown
    #[command(hide = true)]
    Reference,
}

impl Verb {
    /// Does it.
    pub(crate) async fn run(self, app: &App) -> Result<Code> {
        match self {
            Self::Capture(args) => capture::run(app, &args).await,
            Self::List(args) => list::run(app, &args).await,
            Self::Show(args) => show::run(app, &args).await,
            Self::Restore(args) => restore::run(app, &args).await,
            Self::Undo(args) => undo::run(app, &args, undo::Way::Back).await,
            Self::Rewind(args) => rewind::run(app, &args).await,
            Self::Redo(args) => undo::run(app, &args, undo::Way::Forth).await,
            Self::Run(args) => run::run(app, &args).await,
            Self::Resume(args) => resume::run(app, &args).await,
            Self::Answer(args) => answer::run(app, &args).await,
            Self::Pause(args) => pause::run(app, &args).await,
            Self::Cancel(args) => cancel::run(app, &args).await,
            Self::Logs(args) => logs::run(app, &args).await,
            Self::Events(args) => events::run(app, &args).await,
            Self::Runs(args) => runs::run(app, &args).await,
            Self::Store(args) => store::run(app, &args).await,
            Self::Prune(args) => prune::run(app, &args).await,
            Self::Verify(args) => verify::run(app, &args).await,
            Self::Doctor(args) => doctor::run(app, &args).await,
            Self::Size(args) => size::run(app, &args).await,
            Self::Diff(args) => diff::run(app, &args).await,
            Self::Explain(args) => explain::run(app, &args).await,
            Self::Label(args) => label::run(app, &args).await,
            Self::Config(args) => config::run(app, &args),
            Self::Completions(args) => completions::run(app, &args),
            Self::Man(args) => man::run(app, &args),
            Self::Reference => reference::run(app),
        }
    }

    /// True for a command that an agent's hook calls.
    pub(crate) fn is_hook(&self) -> bool {
        match self {
            Self::Capture(args) => args.flag.hook,
            Self::Runs(args) => args.is_hook(),
            _ => false,
        }
    }

    /// Adds the flags of a verb that are settings.
    pub(crate) fn overrides(&self, out: &mut Vec<Override>) {
        match self {
            Self::Capture(args) => args.overrides(out),
            Self::Diff(args) => args.overrides(out),
            Self::Prune(args) => args.overrides(out),
            _ => {}
        }
    }
}

/// A chain that was named by `--run` or `--chain` must be there; a workspace without
/// snapshots is no error.
async fn must_exist(app: &App, place: &Place) -> Result<()> {
    if app.common.chain()?.is_none() {
        return Ok(());
    }
    let chain = &place.chain;
    let mut keys = vec![DocKey::Refs(chain.clone())];
    if let Chain::Run(run) = chain {
        keys.push(DocKey::Run(run.clone()));
    }
    for key in keys {
        match place.store.get(&key).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    // Lost refs do not make a chain unknown: its documents may be there.
    let mut rows = place.store.list(&Prefix::Snapshots(chain.clone()));
    match rows.next().await {
        Some(row) => row.map(|_| ()),
        None => {
            Err(Error::not_found(format!("no chain {chain}")).with_hint("backtrail list --chains"))
        }
    }
}
