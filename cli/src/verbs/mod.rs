//! The verbs, one file each: arguments, and what they do and print.

mod completions;
mod config;
mod man;
mod reference;

use backtrail_core::error::Result;
use clap::Subcommand;

use crate::context::App;
use crate::exit::Code;
use crate::settings::Override;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Verb {
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
            Self::Config(args) => config::run(app, &args),
            Self::Completions(args) => completions::run(app, &args),
            Self::Man(args) => man::run(app, &args),
            Self::Reference => reference::run(app),
        }
    }

    /// Adds the flags of a verb that are settings.
    pub(crate) fn overrides(&self, _out: &mut Vec<Override>) {}
}
