//! `store`: make a store, say what one is, copy one into another.

mod copy;
mod info;
mod init;

use backtrail_core::error::Result;
use clap::Subcommand;

use crate::context::App;
use crate::exit::Code;

/// Arguments of `store`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  backtrail store init s3://bucket/prefix
  backtrail store init mongodb://host/db --objects s3://bucket/prefix
  backtrail store info
  backtrail store copy /old/store s3://bucket/prefix")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a store, or bring one up to date; what is there stays
    Init(init::Args),
    /// Show what the store is, and who holds its locks
    Info(info::Args),
    /// Copy one store into another
    Copy(copy::Args),
}

/// Does it.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    match &args.verb {
        Verb::Init(args) => init::run(app, args).await,
        Verb::Info(args) => info::run(app, args).await,
        Verb::Copy(args) => copy::run(app, args).await,
    }
}
