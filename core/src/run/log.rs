//! The run log: what children print, by byte offset. Best effort: it may have holes, and
//! it ends at a limit without holding anybody up.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::engine_event::EngineEvent;
use super::event::NewEvent;
use super::store::RunStore;
use crate::error::{Kind, Result};
use crate::ids::RunId;
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

    /// A writer at the end of the run log that stops at `limit` bytes.
    pub async fn log_writer(&self, run: &RunId, limit: u64) -> Result<LogWriter> {
        let offset = self.log_size(run).await?;
        let (runs, run) = (self.clone(), run.clone());
        // Beyond the limit lies only the notice that said so.
        Ok(LogWriter { runs, run, offset, limit, full: offset > limit, line_open: false })
    }
}

/// What became of bytes given to a [`LogWriter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Bytes stored.
    pub stored: u64,
    /// Bytes that could not be stored: a hole in the log.
    pub lost: u64,
    /// Bytes beyond the limit, dropped.
    pub dropped: u64,
}

/// Appends a run's output in order. It never fails for the sake of the log alone, and
/// never makes a child wait for more than the tries of one piece.
pub struct LogWriter {
    runs: RunStore,
    run: RunId,
    offset: u64,
    limit: u64,
    full: bool,
    line_open: bool,
}

impl LogWriter {
    /// Where the next byte goes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Appends output. Errors are those of the run, not of the log: a lost lease, a
    /// deleted run. At the limit one notice is written and one event, and all that
    /// follows is dropped.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<Logged> {
        let mut done = Logged::default();
        if self.full {
            done.dropped = bytes.len() as u64;
            return Ok(done);
        }
        let room = usize::try_from(self.limit.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let (kept, dropped) = bytes.split_at(bytes.len().min(room));
        for chunk in kept.chunks(MAX_CHUNK_BYTES) {
            match self.store(chunk).await? {
                true => done.stored += chunk.len() as u64,
                false => done.lost += chunk.len() as u64,
            }
        }
        if let Some(last) = kept.last() {
            self.line_open = *last != b'\n';
        }
        if !dropped.is_empty() {
            done.dropped = dropped.len() as u64;
            self.end_at_limit().await?;
        }
        Ok(done)
    }

    /// Appends a line of ours, which begins `[backtrail] `.
    pub async fn notice(&mut self, text: &str) -> Result<Logged> {
        let line = self.line(text);
        self.write(line.as_bytes()).await
    }

    fn line(&self, text: &str) -> String {
        let start = if self.line_open { "\n" } else { "" };
        format!("{start}[backtrail] {text}\n")
    }

    async fn end_at_limit(&mut self) -> Result<()> {
        self.full = true;
        let limit = self.limit;
        let line = self.line(&format!("the log is full at {limit} bytes; what follows is dropped"));
        self.store(line.as_bytes()).await?;
        let event = NewEvent::engine(&EngineEvent::LogTruncated { limit });
        self.runs.append_events(&self.run, &[event.log_offset(self.offset)]).await?;
        Ok(())
    }

    /// True when the piece is stored; false when it became a hole.
    async fn store(&mut self, chunk: &[u8]) -> Result<bool> {
        let bytes = Bytes::copy_from_slice(chunk);
        for tries in 1..=TRIES {
            match self.runs.append_log(&self.run, Some(self.offset), bytes.clone()).await {
                Ok(_) => {
                    self.offset += chunk.len() as u64;
                    return Ok(true);
                }
                // Somebody else wrote a line there: ours goes behind it.
                Err(e) if e.kind() == Kind::Conflict => {
                    self.offset = self.runs.log_size(&self.run).await?;
                }
                Err(e) if is_the_logs(e.kind()) => {
                    self.runs.pause(Duration::from_millis(20) * tries).await?;
                }
                Err(e) => return Err(e),
            }
        }
        self.offset += chunk.len() as u64;
        Ok(false)
    }
}

/// True for failures that concern the log alone.
fn is_the_logs(kind: Kind) -> bool {
    matches!(kind, Kind::Unavailable { .. } | Kind::Failed | Kind::Busy)
}
