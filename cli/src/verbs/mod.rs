//! The verbs, one file each: arguments, and what they do and print.

mod capture;
mod completions;
mod config;
mod diff;
mod explain;
mod label;
mod list;
mod man;
mod reference;
mod show;

use backtrail_core::error::Result;
use clap::Subcommand;

use crate::context::App;
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
    /// Name a snapshot, move a name, or take it away
    Label(label::Args),
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
            Self::Diff(args) => diff::run(app, &args).await,
            Self::Explain(args) => explain::run(app, &args).await,
            Self::Label(args) => label::run(app, &args).await,
            Self::Config(args) => config::run(app, &args),
            Self::Completions(args) => completions::run(app, &args),
            Self::Man(args) => man::run(app, &args),
            Self::Reference => reference::run(app),
        }
    }

    /// Adds the flags of a verb that are settings.
    pub(crate) fn overrides(&self, out: &mut Vec<Override>) {
        match self {
            Self::Capture(args) => args.overrides(out),
            Self::Diff(args) => args.overrides(out),
            _ => {}
        }
    }
}
