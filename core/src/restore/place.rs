//! Where a recovery works: store, workspace, and who ends the part of a run.

use std::sync::Arc;

use super::journal::Journal;
use super::side::RunSide;
use crate::clock::Context;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::workspace::Root;

/// What every step of a recovery works with.
#[derive(Clone)]
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The operation's context.
    pub ctx: Context,
    /// The workspace.
    pub root: Root,
    /// Ends the part of a rewind that concerns its run.
    pub runs: Option<Arc<dyn RunSide>>,
}

impl Place {
    /// A place without runs: a rewind that was interrupted cannot be ended there.
    pub fn new(store: Arc<dyn Store>, ctx: Context, root: Root) -> Self {
        Self { store, ctx, root, runs: None }
    }

    /// The same place, where a rewind is ended by `runs`.
    #[must_use]
    pub fn with_runs(self, runs: Arc<dyn RunSide>) -> Self {
        Self { runs: Some(runs), ..self }
    }

    fn side(&self, journal: &Journal) -> Result<Option<&dyn RunSide>> {
        match (&journal.run, &self.runs) {
            (None, _) => Ok(None),
            (Some(_), Some(side)) => Ok(Some(&**side)),
            (Some(run), None) => Err(Error::refused(
                "recovery-needed",
                format!("a rewind of run {} was interrupted and is half done", run.id),
            )
            .with_hint("run `backtrail restore --finish`")
            .with_detail("transaction", journal.transaction.to_string())),
        }
    }

    /// Ends the run's part of what is done for good.
    pub(super) async fn committed(&self, journal: &Journal) -> Result<()> {
        match self.side(journal)? {
            Some(side) => side.committed(self, journal).await,
            None => Ok(()),
        }
    }

    /// Ends the run's part of what was rolled back.
    pub(super) async fn abandoned(&self, journal: &Journal) -> Result<()> {
        match self.side(journal)? {
            Some(side) => side.abandoned(self, journal).await,
            None => Ok(()),
        }
    }
}
