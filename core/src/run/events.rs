//! Appending, reading and following events.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::event::{Event, NewEvent};
use super::store::RunStore;
use crate::error::{Error, Result};
use crate::ids::RunId;

/// How long a follower waits for an event before it looks whether the run has ended.
const QUIET: Duration = Duration::from_millis(500);

impl RunStore {
    /// Appends a batch in order; the number of its first event. Durable when it returns.
    /// An event above 10 MiB is refused and nothing of the batch is appended.
    pub async fn append_events(&self, run: &RunId, events: &[NewEvent]) -> Result<u64> {
        let now = self.now();
        let lines = events.iter().map(|e| e.line(run, now)).collect::<Result<Vec<Bytes>>>()?;
        let fence = self.fence(run)?;
        let done = self.store.append_events(run, lines, fence.as_ref()).await;
        self.explained(run, done).await
    }

    /// Events from number `from`, in order, to the present end. Corrupt lines are passed
    /// over; too many of them end it with `events-corrupted`, after what can be read.
    pub fn events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<Event>> {
        let run = run.clone();
        let rows = self.store.read_events(&run, from);
        rows.map(move |row| Event::read(&run, row?)).boxed()
    }

    /// The newest events from number `from` on, at most `count`, in order, and the error
    /// that reading them ended with. What lies before them is not read.
    pub async fn last_events(
        &self,
        run: &RunId,
        from: u64,
        count: usize,
    ) -> Result<(Vec<Event>, Option<Error>)> {
        let end = self.store.events_end(run).await?;
        let mut span = count as u64;
        loop {
            // numbers have gaps, so that a span may hold fewer events
            let start = end.saturating_sub(span).max(from);
            let mut events = VecDeque::new();
            let mut failed = None;
            let mut rows = self.events(run, start);
            while let Some(row) = rows.next().await {
                match row {
                    Ok(event) => events.push_back(event),
                    Err(e) => failed = Some(e),
                }
                if events.len() > count {
                    events.pop_front();
                }
            }
            if events.len() >= count || start <= from {
                return Ok((events.into(), failed));
            }
            span = span.saturating_mul(8);
        }
    }

    /// Events from number `from`, each once and in order, until the run has ended and
    /// all of it was given.
    pub fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<Event>> {
        let rows = self.store.follow_events(run, from);
        let state = Follow { rows: Some(rows), next: from, rest: None };
        let run = run.clone();
        stream::unfold(state, move |mut state| {
            let run = run.clone();
            async move {
                let row = state.step(self, &run).await?;
                Some((row, state))
            }
        })
        .boxed()
    }

    /// Names the deletion when the store says only that the run is not there.
    pub(super) async fn explained<T>(&self, run: &RunId, done: Result<T>) -> Result<T> {
        match done {
            Err(e) if e.is_not_found() => Err(self.missing(run).await),
            done => done,
        }
    }
}

/// Where a follower stands.
struct Follow<'a> {
    /// What comes; `None` behind an error.
    rows: Option<BoxStream<'a, Result<crate::store::EventRecord>>>,
    next: u64,
    /// What was left when the run was seen to have ended.
    rest: Option<BoxStream<'a, Result<Event>>>,
}

impl<'a> Follow<'a> {
    async fn step(&mut self, runs: &'a RunStore, run: &RunId) -> Option<Result<Event>> {
        loop {
            if let Some(rest) = &mut self.rest {
                return rest.next().await;
            }
            let rows = self.rows.as_mut()?;
            let row = match tokio::time::timeout(QUIET, rows.next()).await {
                Ok(row) => row?.and_then(|row| Event::read(run, row)),
                Err(_) => match self.ended(runs, run).await {
                    Ok(()) => continue,
                    Err(e) => Err(e),
                },
            };
            match &row {
                Ok(event) => self.next = event.seq + 1,
                Err(_) => self.rows = None,
            }
            return Some(row);
        }
    }

    /// Reads what is left once the run has ended: what was written before its last
    /// status is there then.
    async fn ended(&mut self, runs: &'a RunStore, run: &RunId) -> Result<()> {
        if runs.load(run).await?.status().is_ended() {
            self.rest = Some(runs.events(run, self.next));
        }
        Ok(())
    }
}
