//! `man`: the manual page in roff, for packagers.

use backtrail_core::error::{Error, Result};
use clap::CommandFactory as _;

use crate::args::CommandLine;
use crate::context::App;
use crate::exit::{self, Code};

/// Arguments of `man`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail man > backtrail.1
  backtrail man capture > backtrail-capture.1")]
pub(crate) struct Args {
    /// The page of this verb; without it, the page of backtrail
    #[arg(value_name = "VERB")]
    verb: Option<String>,
}

/// Prints the page.
pub(crate) fn run(app: &App, args: &Args) -> Result<Code> {
    let mut command = CommandLine::command();
    command.build();
    let command = match &args.verb {
        None => command,
        Some(verb) => {
            let found = command.find_subcommand(verb).cloned();
            let found = found.ok_or_else(|| Error::not_found(format!("no verb {verb:?}")))?;
            found.display_name(format!("backtrail-{verb}"))
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|e| Error::failed("io", "the manual page cannot be written").with_source(e))?;
    app.out.bytes(&page);
    Ok(exit::COMPLETE)
}
