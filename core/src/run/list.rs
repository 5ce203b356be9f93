//! Listing runs, newest first. A record that cannot be read is a row with the reason.

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::change::Run;
use super::store::RunStore;
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::store::{DocKey, Listed, Prefix};

/// How many records are read at once.
const READS: usize = 16;

/// One row of a listing.
#[derive(Debug)]
pub enum RunRow {
    /// A run.
    Run(Box<Run>),
    /// A record that cannot be read: shown, and never deleted by anybody.
    Unreadable {
        /// Its name in the store.
        name: String,
        /// The run, when the name has the form of one.
        id: Option<RunId>,
        /// Why.
        error: Error,
    },
}

/// What lies at the places of run records.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Runs that have a record.
    pub(super) runs: Vec<RunId>,
    /// What lies in the place of a record.
    pub(super) odd: Vec<String>,
}

impl RunStore {
    /// Every run, newest first, one record in memory at a time (and sixteen on their
    /// way). Reads only. Places without a record are no rows.
    pub fn list(&self) -> BoxStream<'_, Result<RunRow>> {
        let rows = stream::once(async move {
            let places = match self.places().await {
                Ok(places) => places,
                Err(e) => return stream::iter([Err(e)]).boxed(),
            };
            let odd = places.odd.into_iter().map(|name| {
                let error = Error::corrupt(format!("{name} is no run record"));
                let id = name.split('/').nth(1).and_then(|id| id.parse().ok());
                Ok(RunRow::Unreadable { name, id, error })
            });
            let runs = match self.newest_first(places.runs).await {
                Ok(runs) => runs,
                Err(e) => return stream::iter([Err(e)]).boxed(),
            };
            let rows = stream::iter(runs).map(|id| self.row(id)).buffered(READS);
            rows.filter_map(async |row| row.transpose()).chain(stream::iter(odd)).boxed()
        });
        rows.flatten().boxed()
    }

    pub(super) async fn places(&self) -> Result<Places> {
        let mut places = Places::default();
        let mut rows = self.store.list(&Prefix::RunRecords);
        while let Some(row) = rows.next().await {
            match row? {
                Listed::Doc { key: DocKey::Run(run), .. } => places.runs.push(run),
                Listed::Doc { .. } => {}
                Listed::Foreign { name } if name.ends_with("/run.json") => places.odd.push(name),
                // A place without a record is no run; doctor names it.
                Listed::Foreign { .. } => {}
            }
        }
        Ok(places)
    }

    /// The row of a run; `None` when it was deleted since.
    pub(super) async fn row(&self, id: RunId) -> Result<Option<RunRow>> {
        match self.load(&id).await {
            Ok(run) => Ok(Some(RunRow::Run(Box::new(run)))),
            Err(e) if e.is_not_found() => Ok(None),
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Newer | Kind::Denied) => {
                let name = DocKey::Run(id.clone()).to_string();
                Ok(Some(RunRow::Unreadable { name, id: Some(id), error }))
            }
            Err(e) => Err(e),
        }
    }

    /// Sorts by creation. A default id carries its time; for any other the record is
    /// looked at, and forgotten again.
    async fn newest_first(&self, runs: Vec<RunId>) -> Result<Vec<RunId>> {
        let timed = stream::iter(runs).map(|id| async move {
            if let Some(ms) = uuid_time(&id) {
                return Ok((ms, id));
            }
            match self.load(&id).await {
                Ok(run) => Ok((run.record.created().0 / 1_000_000, id)),
                Err(e) if matches!(e.kind(), Kind::Unavailable { .. } | Kind::Interrupted) => {
                    Err(e)
                }
                Err(_) => Ok((0, id)),
            }
        });
        let timed: Vec<Result<(i64, RunId)>> = timed.buffer_unordered(READS).collect().await;
        let mut timed = timed.into_iter().collect::<Result<Vec<_>>>()?;
        timed.sort_by(|a, b| b.cmp(a));
        Ok(timed.into_iter().map(|(_, id)| id).collect())
    }
}

/// The time of a UUID of version 7 in milliseconds since 1970.
fn uuid_time(id: &RunId) -> Option<i64> {
    let id = id.as_str();
    let form = id.len() == 36
        && id.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            14 => b == b'7',
            _ => b.is_ascii_hexdigit(),
        });
    if !form {
        return None;
    }
    i64::from_str_radix(&format!("{}{}", &id[..8], &id[9..13]), 16).ok()
}
