//! The run log: output of commands in the order of its arrival, our own lines, and a
//! limit. Best effort: what cannot be stored becomes a hole, and the run goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Mutex;

use super::pump::{Chunk, Sink, Stream};
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::redact::{Redaction, Redactor};
use crate::store::{Fence, Store};

/// Begins every line of ours.
const OURS: &str = "[backtrail] ";
/// The largest piece that is appended at once.
const MAX_PIECE: usize = 1 << 20;
/// So much may wait before it is appended without being asked.
const WAITING: usize = 256 * 1024;
/// A line of a branch is cut here, so that lines of branches can be kept apart.
const MAX_LINE: usize = 64 * 1024;

/// Where the log is stored, e.g. a store's `append_log` for one run.
#[async_trait]
pub trait Append: Send + Sync {
    /// Stores `bytes`, at most 1 MiB, at `offset`.
    async fn append(&self, offset: u64, bytes: Bytes) -> Result<()>;
}

/// The log of a run in a store.
pub struct StoreLog {
    /// Where the run is.
    pub store: Arc<dyn Store>,
    /// The run; its record must exist.
    pub run: RunId,
    /// The right with which it is written.
    pub fence: Option<Fence>,
}

#[async_trait]
impl Append for StoreLog {
    async fn append(&self, offset: u64, bytes: Bytes) -> Result<()> {
        let appended =
            self.store.append_log(&self.run, Some(offset), bytes, self.fence.as_ref()).await;
        appended.map(drop)
    }
}

/// A run log that is being written, shared by all that write to it.
pub struct RunLog {
    append: Arc<dyn Append>,
    limit: u64,
    redactor: Redactor,
    /// The limit was reached: nothing more is recorded.
    full: AtomicBool,
    state: Mutex<State>,
}

/// What went into a run log.
#[derive(Debug, Default)]
pub struct LogReport {
    /// The limit was reached for the first time: the event is due.
    pub truncated: bool,
    /// Pieces that could not be stored.
    pub holes: u64,
    /// The first reason.
    pub error: Option<Error>,
}

struct State {
    /// Where the first waiting byte will stand.
    offset: u64,
    waiting: Vec<u8>,
    line_start: bool,
    report: LogReport,
}

impl RunLog {
    /// Goes on at `offset`, the present length of the log, up to `limit` bytes in all.
    /// Our own lines pass the redactor too.
    pub fn new(append: Arc<dyn Append>, offset: u64, limit: u64, redactor: Redactor) -> Arc<Self> {
        let state = State {
            offset,
            waiting: Vec::new(),
            line_start: offset == 0,
            report: LogReport::default(),
        };
        let full = AtomicBool::new(offset >= limit);
        Arc::new(Self { append, limit, redactor, full, state: Mutex::new(state) })
    }

    /// The offset of the next byte.
    pub async fn position(&self) -> u64 {
        let state = self.state.lock().await;
        state.offset + state.waiting.len() as u64
    }

    /// Adds a line of ours for each line of `text`.
    pub async fn note(&self, text: &str) -> Result<()> {
        let text = self.redactor.text(text);
        let lines: String = text.lines().map(|l| format!("{OURS}{l}\n")).collect();
        self.add(lines.as_bytes(), true).await
    }

    /// Appends what waits.
    pub async fn flush(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.append_waiting(&mut state).await
    }

    /// What happened since the last report.
    pub async fn report(&self) -> LogReport {
        std::mem::take(&mut self.state.lock().await.report)
    }

    /// A sink for one command. In a fan-out every line begins with `<branch>| `.
    pub fn sink(self: &Arc<Self>, branch: Option<&str>) -> LogSink {
        LogSink {
            log: self.clone(),
            prefix: branch.map(|b| format!("{b}| ").into_bytes()),
            streams: HashMap::new(),
        }
    }

    /// Adds bytes; `whole` ones begin a line and end one.
    async fn add(&self, bytes: &[u8], whole: bool) -> Result<()> {
        let mut state = self.state.lock().await;
        if self.is_full() || bytes.is_empty() {
            return Ok(());
        }
        if whole && !state.line_start {
            state.waiting.push(b'\n');
        }
        let used = state.offset + state.waiting.len() as u64;
        let room = usize::try_from(self.limit.saturating_sub(used)).unwrap_or(usize::MAX);
        let taken = &bytes[..room.min(bytes.len())];
        state.waiting.extend_from_slice(taken);
        state.line_start = taken.last().map_or(state.line_start, |b| *b == b'\n');
        if taken.len() < bytes.len() {
            self.close(&mut state);
        }
        if state.waiting.len() >= WAITING {
            self.append_waiting(&mut state).await?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    fn close(&self, state: &mut State) {
        let start = if state.line_start { "" } else { "\n" };
        let notice = format!(
            "{start}{OURS}the log reached its limit of {} bytes; what follows is not recorded\n",
            self.limit
        );
        state.waiting.extend_from_slice(notice.as_bytes());
        self.full.store(true, Ordering::SeqCst);
        state.report.truncated = true;
    }

    /// Fails only when the right to write was lost; any other failure leaves a hole.
    async fn append_waiting(&self, state: &mut State) -> Result<()> {
        let waiting = Bytes::from(std::mem::take(&mut state.waiting));
        let mut lost = None;
        for start in (0..waiting.len()).step_by(MAX_PIECE) {
            let piece = waiting.slice(start..(start + MAX_PIECE).min(waiting.len()));
            let (at, len) = (state.offset, piece.len() as u64);
            state.offset += len;
            if let Err(e) = self.append.append(at, piece).await {
                state.report.holes += 1;
                match e.kind() {
                    Kind::LostLease => lost = Some(e),
                    _ => drop(state.report.error.get_or_insert(e)),
                }
            }
        }
        lost.map_or(Ok(()), Err)
    }
}

/// Writes the output of one command to a run log, redacted.
pub struct LogSink {
    log: Arc<RunLog>,
    prefix: Option<Vec<u8>>,
    streams: HashMap<Stream, Output>,
}

struct Output {
    redaction: Redaction,
    /// The line that has not ended, in a fan-out.
    line: Vec<u8>,
}

impl LogSink {
    async fn pass_on(&mut self, stream: Stream, clear: Vec<u8>) -> Result<()> {
        let Some(prefix) = &self.prefix else { return self.log.add(&clear, false).await };
        let Some(output) = self.streams.get_mut(&stream) else { return Ok(()) };
        let mut lines = Vec::new();
        let mut rest = &clear[..];
        while !rest.is_empty() {
            let room = MAX_LINE - output.line.len();
            let end = rest.iter().take(room).position(|b| *b == b'\n').map(|i| i + 1);
            let taken = end.unwrap_or(room.min(rest.len()));
            output.line.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if end.is_some() || output.line.len() >= MAX_LINE {
                whole_line(prefix, &mut output.line, &mut lines);
            }
        }
        self.log.add(&lines, true).await
    }
}

/// Moves a line to `lines`, with its prefix and an end.
fn whole_line(prefix: &[u8], line: &mut Vec<u8>, lines: &mut Vec<u8>) {
    lines.extend_from_slice(prefix);
    lines.append(line);
    if lines.last() != Some(&b'\n') {
        lines.push(b'\n');
    }
}

#[async_trait]
impl Sink for LogSink {
    async fn chunk(&mut self, chunk: Chunk) -> Result<()> {
        if self.log.is_full() {
            return Ok(());
        }
        let redactor = &self.log.redactor;
        let output = self
            .streams
            .entry(chunk.stream)
            .or_insert_with(|| Output { redaction: redactor.start(), line: Vec::new() });
        let mut clear = Vec::new();
        output.redaction.push(&chunk.bytes, &mut clear);
        self.pass_on(chunk.stream, clear).await
    }

    async fn tick(&mut self) -> Result<()> {
        self.log.flush().await
    }

    async fn end(&mut self) -> Result<()> {
        for stream in [Stream::Out, Stream::Err] {
            let Some(output) = self.streams.get_mut(&stream) else { continue };
            let mut clear = Vec::new();
            output.redaction.finish(&mut clear);
            self.pass_on(stream, clear).await?;
            if let (Some(prefix), Some(output)) = (&self.prefix, self.streams.get_mut(&stream))
                && !output.line.is_empty()
            {
                let mut last = Vec::new();
                whole_line(prefix, &mut output.line, &mut last);
                self.log.add(&last, true).await?;
            }
        }
        self.log.flush().await
    }
}
