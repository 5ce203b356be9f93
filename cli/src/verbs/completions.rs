//! `completions`: a script that completes verbs and flags.

use backtrail_core::error::Result;
use clap::CommandFactory as _;

use crate::args::CommandLine;
use crate::context::App;
use crate::exit::{self, Code};

/// Arguments of `completions`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail completions bash > ~/.local/share/bash-completion/completions/backtrail
  backtrail completions zsh > ~/.zfunc/_backtrail
  backtrail completions fish > ~/.config/fish/completions/backtrail.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn run(app: &App, args: &Args) -> Result<Code> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "backtrail", &mut script);
    app.out.bytes(&script);
    Ok(exit::COMPLETE)
}
