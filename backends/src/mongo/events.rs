//! Events: one document each, written in order at the place that the head reserved.

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::events::{check_event, number as numbered};
use backtrail_core::store::{EventRecord, Fence};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mongodb::bson::{Bson, Document, doc};
use tokio::time::Instant;

use super::Inner;
use super::fault::{self, DUPLICATE};
use super::follow::Pushed;
use super::objects::MOST_BYTES;
use super::space::{Filter, Write, number};
use super::tables::EVENTS;
use crate::net::runlog::{Bell, GAP};

/// Times a batch whose answer was lost is looked at and sent again.
const TRIES: u32 = 4;
/// Events in one command, and what a follower takes at once.
const MOST: usize = 1_000;

fn key_of(run: &RunId, seq: u64) -> String {
    format!("{run}/{seq:020}")
}

fn record(mut doc: Document) -> Result<EventRecord> {
    let seq = number(&doc, "seq");
    match (seq, doc.remove("body")) {
        (Some(seq), Some(Bson::String(body))) => Ok(EventRecord { seq, body: Bytes::from(body) }),
        _ => Err(Error::corrupt("an event has no number or no body")),
    }
}

impl Inner {
    pub(super) async fn append_events(
        &self,
        run: &RunId,
        events: &[Bytes],
        fence: Option<&Fence>,
    ) -> Result<u64> {
        for event in events {
            check_event(run, event)?;
        }
        let count = events.len() as u64;
        let first = self
            .reserve(run, fence, |head| {
                let first = head.next_seq;
                head.next_seq += count;
                Ok(first)
            })
            .await?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (seq, event) in (first..).zip(events) {
            let line = numbered(seq, event);
            if !batch.is_empty() && (batch.len() >= MOST || bytes + line.len() > MOST_BYTES) {
                self.write_events(run, std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += line.len();
            batch.push((seq, line));
        }
        if !batch.is_empty() {
            self.write_events(run, batch).await?;
        }
        Ok(first)
    }

    /// Writes events in order. An odd answer is settled by reading back: what is there
    /// with our bytes happened, the rest is sent again.
    async fn write_events(&self, run: &RunId, mut batch: Vec<(u64, Bytes)>) -> Result<()> {
        let what = format!("append events of run {run}");
        for _ in 0..TRIES {
            let writes =
                batch.iter().map(|(seq, line)| self.event(run, *seq, line)).collect::<Result<_>>();
            let failed = match self.space.write(EVENTS, &what, writes?, true).await {
                Ok(done) => match done.errors.into_iter().min_by_key(|(i, _)| *i) {
                    None => return Ok(()),
                    Some((_, (DUPLICATE, _))) => None,
                    Some((_, (code, text))) => {
                        Some(fault::made(fault::kind_of(code), format!("{what}: {text}")))
                    }
                },
                Err(e) => Some(e),
            };
            if let Some(e) = failed
                && !crate::net::is_transient(&e)
            {
                return Err(e);
            }
            let (Some((first, _)), Some((last, _))) = (batch.first(), batch.last()) else { break };
            let there = self.event_rows(run, *first, *last + 1).try_collect::<Vec<_>>().await?;
            for row in there {
                let Some(at) = batch.iter().position(|(seq, _)| *seq == row.seq) else { continue };
                let (seq, line) = batch.remove(at);
                if line != row.body {
                    return Err(taken(&key_of(run, seq)));
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.jitter().await?;
        }
        Err(Error::unavailable(format!("{what}: the server did not take them")))
    }

    fn event(&self, run: &RunId, seq: u64, line: &Bytes) -> Result<Write> {
        let text = String::from_utf8(line.to_vec())
            .map_err(|_| Error::invalid(format!("event {seq} of run {run} is not UTF-8")))?;
        let kind: Option<Kind> = serde_json::from_slice(line).ok();
        let set = doc! {
            "run_id": run.as_str(),
            "seq": i64::try_from(seq).unwrap_or(i64::MAX),
            "type": kind.map(|k| k.kind),
            "body": text,
        };
        // Create-only: what is there has a number, so the insert that follows is refused.
        let filter = self.space.one(&key_of(run, seq)).and("seq", doc! { "$exists": false });
        Ok(Write { filter, set, unset: Vec::new(), upsert: true, stamp: "ts" })
    }

    fn event_rows(&self, run: &RunId, from: u64, to: u64) -> BoxStream<'_, Result<EventRecord>> {
        let filter: Filter = match to {
            u64::MAX => self.space.between(&key_of(run, from), &format!("{run}0")),
            to => self.space.between(&key_of(run, from), &key_of(run, to)),
        };
        let what = format!("read events of run {run}");
        let rows = self.space.find(EVENTS, what, filter, doc! { "seq": 1, "body": 1 });
        rows.map(|row| record(row?)).boxed()
    }

    /// Events to the present end; a run that is not there is not found.
    pub(super) fn read_events(&self, run: RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        let opened = async move {
            let mut rows = self.event_rows(&run, from, u64::MAX);
            match rows.next().await {
                Some(first) => stream::iter([first]).chain(rows).boxed(),
                None => {
                    let there = self.check_run(&run).await;
                    stream::iter(there.err().map(Err)).boxed()
                }
            }
        };
        stream::once(opened).flatten().boxed()
    }

    pub(super) fn follow_events(
        &self,
        run: RunId,
        from: u64,
    ) -> BoxStream<'_, Result<EventRecord>> {
        let bell = Pushed::new(self.space.clone(), EVENTS, &run);
        let start = Follower { run, next: from, gap: None, bell, told: false };
        let step = move |follower: Option<Follower>| async move {
            let mut follower = follower?;
            loop {
                match self.follow_once(&mut follower).await {
                    Err(e) => return Some((vec![Err(e)], None)),
                    Ok(rows) if rows.is_empty() => follower.bell.rung().await,
                    Ok(rows) => {
                        return Some((rows.into_iter().map(Ok).collect(), Some(follower)));
                    }
                }
            }
        };
        stream::unfold(Some(start), step)
            .flat_map(|rows: Vec<Result<EventRecord>>| stream::iter(rows))
            .boxed()
    }

    /// What has come since the last look. A gap in the numbers is a batch on its way: it
    /// is waited for, then passed.
    async fn follow_once(&self, follower: &mut Follower) -> Result<Vec<EventRecord>> {
        if !follower.told {
            self.check_run(&follower.run).await?;
            follower.told = true;
            // Opened before the backlog is read.
            follower.bell.open().await;
        }
        let mut rows = self.event_rows(&follower.run, follower.next, u64::MAX).take(MOST);
        let mut out = Vec::new();
        while let Some(row) = rows.try_next().await? {
            if row.seq > follower.next {
                let since = *follower.gap.get_or_insert_with(Instant::now);
                if since.elapsed() < GAP {
                    break;
                }
            }
            follower.next = row.seq + 1;
            follower.gap = None;
            out.push(row);
        }
        Ok(out)
    }
}

#[derive(serde::Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

/// Where a follower stands.
struct Follower {
    run: RunId,
    /// The number that comes next.
    next: u64,
    /// Since when a number is missing.
    gap: Option<Instant>,
    bell: Pushed,
    /// The run was there.
    told: bool,
}

/// Somebody wrote where only we may write.
pub(super) fn taken(key: &str) -> Error {
    Error::new(
        backtrail_core::error::Kind::Conflict,
        "conflict",
        format!("{key} holds something else"),
    )
}
