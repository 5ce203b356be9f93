//! `runs`: the records of runs.

mod artifacts;
mod begin;
mod boundary;
mod delete;
pub(crate) mod end;
mod event;
mod list;
mod prune;
mod reconcile;
mod show;

use backtrail_core::error::Result;
use clap::Subcommand;

use crate::context::App;
use crate::exit::Code;

/// Arguments of `runs`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail runs list
  backtrail runs show latest
  backtrail runs prune --older-than 720h")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the runs of this workspace, newest first
    List(list::Args),
    /// Show one run: where it stands, its boundaries, what it asks
    Show(show::Args),
    /// List what a run published, or print it
    Artifacts(artifacts::Args),
    /// Delete runs for good
    Delete(delete::Args),
    /// Delete runs by age and number, then what nobody needs
    Prune(prune::Args),
    /// Put runs in order whose process is gone
    Reconcile(reconcile::Args),
    /// Begin a run that a shell or another runtime drives
    Begin(begin::Args),
    /// Say that a step of such a run begins or ends
    Boundary(boundary::Args),
    /// Tell such a run what was done
    Event(event::Args),
    /// Say that such a run is over
    End(end::Args),
}

impl Args {
    /// True for a command that an agent's hook calls.
    pub(crate) fn is_hook(&self) -> bool {
        match &self.verb {
            Verb::Begin(args) => args.flag.hook,
            Verb::Boundary(args) => args.flag.hook,
            Verb::Event(args) => args.flag.hook,
            Verb::End(args) => args.flag.hook,
            _ => false,
        }
    }
}

/// Does it.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    match &args.verb {
        Verb::List(args) => list::run(app, args).await,
        Verb::Show(args) => show::run(app, args).await,
        Verb::Artifacts(args) => artifacts::run(app, args).await,
        Verb::Delete(args) => delete::run(app, args).await,
        Verb::Prune(args) => prune::run(app, args).await,
        Verb::Reconcile(args) => reconcile::run(app, args).await,
        Verb::Begin(args) => begin::run(app, args).await,
        Verb::Boundary(args) => boundary::run(app, args).await,
        Verb::Event(args) => event::run(app, args).await,
        Verb::End(args) => end::run(app, args).await,
    }
}
