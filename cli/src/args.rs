//! The command line as typed. Parsing checks only its shape; values that are
//! settings are checked with the settings, so that each names its source.

use std::path::PathBuf;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Chain, RunId};
use clap::{Args, Parser};

use crate::settings::Override;
use crate::verbs::Verb;

const ABOUT: &str = "Puts a working directory back";
const LONG_ABOUT: &str = "Puts a working directory back.

Records the states of a directory while agents, bots and scripts work in it, shows what they
changed, and restores any state: previewed, all or nothing, and undoable. History lies in a
store outside the directory and outside git.";
const AFTER: &str = "Examples:
  backtrail capture -m 'before refactor'   record the state now
  backtrail diff                           what changed since
  backtrail restore latest                 put it back, after a preview
  backtrail undo                           take that back

Exit codes:
  0 complete                          5 busy
  1 failed                            6 not found
  2 usage                             7 stored data is corrupt
  3 done, something was kept or not   8 store unavailable
    covered                           9 waiting for a person
  4 conflict or refused, nothing      128+n ended by signal n
    was changed";

/// The whole command line.
#[derive(Parser)]
#[command(
    name = "backtrail",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = AFTER,
    propagate_version = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct CommandLine {
    /// Flags that every verb knows.
    #[command(flatten)]
    pub(crate) common: Common,
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags that every verb knows.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The directory to work on; found upwards from here when not given
    #[arg(short, long, global = true, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Where history is kept: a directory or a URL
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Where objects are kept, when not in the store
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) objects: Option<String>,
    /// Whose store it is [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no notices, warnings, progress or summaries
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// How long to wait for a lock [default: 30s]
    #[arg(long, global = true, value_name = "DUR")]
    pub(crate) wait: Option<String>,
    /// The chain of this run instead of the workspace's own
    #[arg(long, global = true, value_name = "RUN", conflicts_with = "chain")]
    pub(crate) run: Option<String>,
    /// This chain: a workspace key, or run/RUN, ws/KEY, cp/SUBJECT
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) chain: Option<String>,
}

impl Common {
    /// The run asked for by `--run`.
    pub(crate) fn run(&self) -> Result<Option<RunId>> {
        let run = self.run.clone().map(RunId::new).transpose();
        run.map_err(|e| e.context("bad value for --run"))
    }

    /// The chain asked for by `--run` or `--chain`.
    pub(crate) fn chain(&self) -> Result<Option<Chain>> {
        if let Some(run) = self.run()? {
            return Ok(Some(Chain::Run(run)));
        }
        let Some(text) = &self.chain else { return Ok(None) };
        let bad = |e: Error| e.context("bad value for --chain");
        if text.contains('/') {
            text.parse().map(Some).map_err(bad)
        } else {
            Ok(Some(Chain::Workspace(text.parse().map_err(bad)?)))
        }
    }
}

impl CommandLine {
    /// The flags that are settings.
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let mut out = Vec::new();
        push(&mut out, "store", "--store", &self.common.store);
        push(&mut out, "objects", "--objects", &self.common.objects);
        push(&mut out, "tenant", "--tenant", &self.common.tenant);
        push(&mut out, "wait", "--wait", &self.common.wait);
        self.verb.overrides(&mut out);
        out
    }
}

/// Adds a flag that was given to the overrides of settings.
pub(crate) fn push(
    out: &mut Vec<Override>,
    key: &'static str,
    flag: &'static str,
    value: &Option<String>,
) {
    out.extend(value.clone().map(|v| (key, flag, v)));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_chain_may_be_given_in_short() {
        let common = |chain: &str| Common { chain: Some(chain.into()), ..Common::default() };
        let chain = common("00112233445566aa").chain().expect("key");
        assert_eq!(chain.expect("some").to_string(), "ws/00112233445566aa");
        assert!(common("run/../x").chain().is_err());
    }
}
