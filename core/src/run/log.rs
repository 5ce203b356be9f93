//! The run log: what children print, by byte offset. Best effort: it may have holes, and
//! it ends at a limit without holding anybody up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::store::RunStore;
use crate::error::{Kind, Result};
use crate::ids::RunId;
use crate::process::{Append, RunLog, StoreLog};
use crate::redact::Redactor;
use crate::store::LogPart;

/// The longest piece stored at once, in bytes: 1 MiB, however long a line.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;
/// The default limit of a run's log in bytes: 256 MiB.
pub const LOG_LIMIT: u64 = 256 * 1024 * 1024;
/// How often a piece is tried before it becomes a hole.
const TRIES: u32 = 3;
/// How long a follower waits for bytes before it looks whether the run has ended.
const QUIET: Duration = Duration::from_millis(500);

impl RunStore {
    /// Appends bytes to the run log at `offset` (`None`: the end); where they begin. The
    /// same bytes at the same place again are success, others `conflict`.
    pub async fn append_log(&self, run: &RunId, offset: Option<u64>, bytes: Bytes) -> Result<u64> {
        let fence = self.fence(run)?;
        let mut first = None;
        let mut at = offset;
        let mut rest = bytes;
        loop {
            let chunk = rest.split_to(rest.len().min(MAX_CHUNK_BYTES));
            let len = chunk.len() as u64;
            let done = self.store.append_log(run, at, chunk, fence.as_ref()).await;
            let begin = self.explained(run, done).await?;
            first.get_or_insert(begin);
            at = Some(begin + len);
            if rest.is_empty() {
                return Ok(first.unwrap_or(begin));
            }
        }
    }

    /// The run log from byte `from` to `to` (0: the end), holes included. Past the end it
    /// is empty.
    pub async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let done = self.store.read_log(run, from, to).await;
        self.explained(run, done).await
    }

    /// The length of the run log in bytes, found by looking at single bytes.
    pub async fn log_size(&self, run: &RunId) -> Result<u64> {
        let there = async |at: u64| {
            Ok::<_, crate::error::Error>(!self.read_log(run, at, at + 1).await?.is_empty())
        };
        if !there(0).await? {
            return Ok(0);
        }
        let (mut last, mut end) = (0, 1);
        while there(end).await? {
            (last, end) = (end, end.saturating_mul(2));
        }
        // The byte at `last` is there, the one at `end` is not.
        while end - last > 1 {
            let middle = last + (end - last) / 2;
            match there(middle).await? {
                true => last = middle,
                false => end = middle,
            }
        }
        Ok(end)
    }

    /// The run log from byte `from`, then what comes, until the run has ended and all of
    /// it was given.
    pub fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        let state = (Some(self.store.follow_log(run, from)), from, Vec::new());
        let run = run.clone();
        stream::unfold(state, move |(rows, next, mut rest)| {
            let run = run.clone();
            async move {
                if let Some(part) = rest.pop() {
                    return Some((Ok(part), (None, next, rest)));
                }
                let mut rows = rows?;
                loop {
                    if let Ok(row) = tokio::time::timeout(QUIET, rows.next()).await {
                        let row = row?;
                        let next = row.as_ref().map_or(next, LogPart::end);
                        let rows = row.is_ok().then_some(rows);
                        return Some((row, (rows, next, rest)));
                    }
                    match self.rest_of_log(&run, next).await {
                        Err(e) => return Some((Err(e), (None, next, rest))),
                        Ok(None) => {}
                        Ok(Some(mut parts)) => {
                            parts.reverse();
                            let part = parts.pop()?;
                            return Some((Ok(part), (None, next, parts)));
                        }
                    }
                }
            }
        })
        .boxed()
    }

    /// What is left behind `from` once the run has ended.
    async fn rest_of_log(&self, run: &RunId, from: u64) -> Result<Option<Vec<LogPart>>> {
        match self.load(run).await?.status().is_ended() {
            true => Ok(Some(self.read_log(run, from, 0).await?)),
            false => Ok(None),
        }
    }

    /// The run log for what children print, from its present end up to `limit` bytes in
    /// all. The limit is told once, also over restarts. When the report of the log says
    /// that it was reached, [`super::EngineEvent::LogTruncated`] is due.
    pub async fn open_log(
        &self,
        run: &RunId,
        limit: u64,
        redactor: Redactor,
    ) -> Result<Arc<RunLog>> {
        let offset = self.log_size(run).await?;
        let log = StoreLog { store: self.store.clone(), run: run.clone(), fence: self.fence(run)? };
        Ok(RunLog::new(Arc::new(Tried { runs: self.clone(), log }), offset, limit, redactor))
    }
}

/// Stores what a run log hands on, while the claim holds, with more than one try.
struct Tried {
    runs: RunStore,
    log: StoreLog,
}

#[async_trait]
impl Append for Tried {
    /// Three tries; what fails then becomes a hole.
    async fn append(&self, offset: u64, bytes: Bytes) -> Result<()> {
        let mut tries = 1;
        loop {
            self.runs.fence(&self.log.run)?;
            match self.log.append(offset, bytes.clone()).await {
                Ok(()) => return Ok(()),
                Err(e) if tries == TRIES || !may_pass(e.kind()) => return Err(e),
                Err(_) => self.runs.pause(Duration::from_millis(20) * tries).await?,
            }
            tries += 1;
        }
    }
}

/// True for failures after which another try may work.
fn may_pass(kind: Kind) -> bool {
    matches!(kind, Kind::Unavailable { .. } | Kind::Failed | Kind::Busy)
}
