//! Events and run logs in memory.

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};

use super::{MemoryStore, PAGE, State, pause, wait_for_change};
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::store::docs::token_of;
use crate::store::events::{check_event, number};
use crate::store::holes::Holes;
use crate::store::{DocKey, EventRecord, Fence, LogPart, MAX_BYTES, check_size};

/// How long a follower sleeps before it looks again, told or not.
const FOLLOW: std::time::Duration = std::time::Duration::from_millis(500);

/// The events of a run.
#[derive(Default)]
pub(super) struct Events {
    records: Vec<EventRecord>,
    next: u64,
    /// The newest token that appended anything.
    token: Option<u64>,
}

/// The log of a run.
#[derive(Default)]
pub(super) struct Log {
    bytes: Vec<u8>,
    holes: Holes,
}

impl State {
    fn check_append(&mut self, run: &RunId, fence: Option<&Fence>) -> Result<()> {
        self.check_run(run, false)?;
        let Some(fence) = fence else { return Ok(()) };
        let what = format!("run {run}");
        let record = self.document(&DocKey::Run(run.clone()));
        fence.check(&what, record.and_then(|d| token_of(&d.body)))?;
        fence.check(&what, self.locks.get(&fence.lock).map(|l| l.token))?;
        let events = self.events.entry(run.clone()).or_default();
        fence.check(&what, events.token)?;
        events.token = Some(fence.token);
        Ok(())
    }
}

impl MemoryStore {
    pub(super) fn append(
        &self,
        run: &RunId,
        events: &[Bytes],
        fence: Option<&Fence>,
    ) -> Result<u64> {
        for event in events {
            check_event(run, event)?;
        }
        let mut state = self.backing.state();
        state.check_append(run, fence)?;
        let log = state.events.entry(run.clone()).or_default();
        let first = log.next;
        for (seq, event) in (first..).zip(events) {
            log.records.push(EventRecord { seq, body: number(seq, event) });
        }
        log.next += events.len() as u64;
        drop(state);
        self.backing.notify();
        Ok(first)
    }

    pub(super) fn append_bytes(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: &[u8],
        fence: Option<&Fence>,
    ) -> Result<u64> {
        check_size("log append of run", run.as_str(), bytes.len(), MAX_BYTES)?;
        let mut state = self.backing.state();
        state.check_append(run, fence)?;
        let log = state.logs.entry(run.clone()).or_default();
        let len = log.bytes.len() as u64;
        let at = offset.unwrap_or(len);
        // Memory keeps holes as bytes: a log that would not fit is a mistake.
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end < 1 << 32);
        let end =
            end.ok_or_else(|| Error::invalid(format!("log offset {at} of run {run} is too far")))?;
        for (range, is_hole) in log.holes.split(at..end.min(len)) {
            let there = &log.bytes[range.start as usize..range.end as usize];
            let ours = &bytes[(range.start - at) as usize..(range.end - at) as usize];
            if !is_hole && there != ours {
                let message =
                    format!("the log of run {run} has other bytes at offset {}", range.start);
                return Err(Error::new(Kind::Conflict, "conflict", message));
            }
        }
        if bytes.is_empty() {
            return Ok(at);
        }
        log.bytes.resize(len.max(end) as usize, 0);
        log.bytes[at as usize..end as usize].copy_from_slice(bytes);
        if at > len {
            log.holes.add(len..at);
        }
        log.holes.fill(at..end);
        drop(state);
        self.backing.notify();
        Ok(at)
    }

    pub(super) fn log_parts(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let state = self.backing.state();
        let Some(log) = state.logs.get(run) else {
            return state.check_run(run, false).map(|()| Vec::new());
        };
        let len = log.bytes.len() as u64;
        let end = if to == 0 { len } else { to.min(len) };
        log.holes.parts(from..end.max(from), |r| {
            Ok(Bytes::copy_from_slice(&log.bytes[r.start as usize..r.end as usize]))
        })
    }

    pub(super) fn next_event(&self, run: &RunId) -> Result<u64> {
        let state = self.backing.state();
        match state.events.get(run) {
            Some(log) => Ok(log.next),
            None => state.check_run(run, false).map(|()| 0),
        }
    }

    /// A page of events from number `from`.
    fn event_page(&self, run: &RunId, from: u64) -> Result<Vec<EventRecord>> {
        let state = self.backing.state();
        let Some(log) = state.events.get(run) else {
            return state.check_run(run, false).map(|()| Vec::new());
        };
        let start = log.records.partition_point(|e| e.seq < from);
        Ok(log.records[start..].iter().take(PAGE).cloned().collect())
    }

    pub(super) fn event_stream(
        &self,
        run: RunId,
        from: u64,
        follow: bool,
    ) -> BoxStream<'_, Result<EventRecord>> {
        let seen = self.backing.changed.subscribe();
        let step = move |at: Option<(u64, tokio::sync::watch::Receiver<()>)>| {
            let run = run.clone();
            async move {
                let (from, mut seen) = at?;
                loop {
                    pause().await;
                    seen.borrow_and_update();
                    match self.event_page(&run, from) {
                        Err(e) => return Some((vec![Err(e)], None)),
                        Ok(page) => {
                            if let Some(last) = page.last() {
                                let next = Some((last.seq + 1, seen));
                                return Some((page.into_iter().map(Ok).collect(), next));
                            }
                        }
                    }
                    if !follow {
                        return None;
                    }
                    wait_for_change(&mut seen, FOLLOW).await;
                }
            }
        };
        stream::unfold(Some((from, seen)), step).flat_map(stream::iter).boxed()
    }

    pub(super) fn log_stream(&self, run: RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        let seen = self.backing.changed.subscribe();
        let step = move |at: Option<(u64, tokio::sync::watch::Receiver<()>)>| {
            let run = run.clone();
            async move {
                let (from, mut seen) = at?;
                loop {
                    pause().await;
                    seen.borrow_and_update();
                    match self.log_parts(&run, from, 0) {
                        Err(e) => return Some((vec![Err(e)], None)),
                        Ok(parts) if !parts.is_empty() => {
                            let next = parts.last().map_or(from, LogPart::end);
                            return Some((parts.into_iter().map(Ok).collect(), Some((next, seen))));
                        }
                        Ok(_) => wait_for_change(&mut seen, FOLLOW).await,
                    }
                }
            }
        };
        stream::unfold(Some((from, seen)), step).flat_map(stream::iter).boxed()
    }
}
