//! The part of a rewind that concerns its run, as whoever ends an interrupted one calls
//! it. Restore knows no runs; [`crate::rewind`] does.

use async_trait::async_trait;

use super::journal::Journal;
use super::place::Place;
use crate::error::Result;

/// Ends the run's part of transactions whose journal names a run. Every call may be
/// repeated after a crash.
#[async_trait]
pub trait RunSide: Send + Sync {
    /// The files are where they should be for good; the journal closes after this.
    async fn committed(&self, place: &Place, journal: &Journal) -> Result<()>;

    /// The files are back where they were, or were never moved: unparks the run.
    async fn abandoned(&self, place: &Place, journal: &Journal) -> Result<()>;
}
