//! Events of a run as segments: `runs/<run>/events/<20-digit number>.jsonl`, one a batch,
//! named by its first number, written create-only at the place that the head reserved.

use std::collections::VecDeque;
use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::events::{check_event, number, seq_of};
use backtrail_core::store::{EventRecord, Expect, Fence};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;

use super::Inner;
use super::bucket::in_order;
use crate::net::runlog::GAP;
use crate::net::settle;

/// How often a follower looks for more.
pub(super) const FOLLOW_POLL: Duration = Duration::from_millis(500);
/// Segments read ahead.
const AHEAD: usize = 8;

fn dir_of(run: &RunId) -> String {
    format!("runs/{run}/events/")
}

fn key_of(run: &RunId, first: u64) -> String {
    format!("runs/{run}/events/{first:020}.jsonl")
}

/// The first number of the segment at a key.
fn first_of(key: &str) -> Option<u64> {
    let name = key.rsplit('/').next()?.strip_suffix(".jsonl")?;
    (name.len() == 20).then(|| name.parse().ok()).flatten()
}

/// Lines that could be read and lines that could not.
#[derive(Default)]
struct Tally {
    valid: u64,
    corrupt: u64,
    last: Option<u64>,
}

impl Tally {
    fn take(&mut self, segment: &Bytes, from: u64, out: &mut VecDeque<EventRecord>) {
        let mut start = 0;
        for line in segment.split_inclusive(|b| *b == b'\n') {
            let body = segment.slice(start..start + line.trim_ascii_end().len());
            start += line.len();
            match seq_of(&body) {
                Some(seq) if self.last.is_none_or(|last| seq > last) => {
                    self.valid += 1;
                    self.last = Some(seq);
                    if seq >= from {
                        out.push_back(EventRecord { seq, body });
                    }
                }
                _ if body.is_empty() => {}
                _ => self.corrupt += 1,
            }
        }
    }

    /// Fails with `events-corrupted` when too many lines could not be read.
    fn verdict(&self, run: &RunId) -> Result<()> {
        if self.corrupt > 100 || (self.corrupt > 1 && self.corrupt > 2 * self.valid) {
            let message = format!("{} event lines of run {run} cannot be read", self.corrupt);
            return Err(Error::corrupt(message).with_code("events-corrupted"));
        }
        Ok(())
    }
}

impl Inner {
    /// Reserves a place in the head of a run. A run without a head gets one, when there
    /// is such a run.
    pub(super) async fn reserve<T>(
        &self,
        run: &RunId,
        fence: Option<&Fence>,
        change: impl Fn(&mut crate::net::head::Head) -> Result<T> + Send + Sync,
    ) -> Result<T> {
        self.check_fence(fence)?;
        self.heads.reserve(run, fence, change, self.check_run(run)).await
    }

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
        if events.is_empty() {
            return Ok(first);
        }
        let mut lines = Vec::new();
        for (seq, event) in (first..).zip(events) {
            lines.extend_from_slice(&number(seq, event));
            lines.push(b'\n');
        }
        let key = key_of(run, first);
        match settle(&*self.bucket, &key, &Bytes::from(lines), &Expect::Absent).await? {
            Some(_) => Ok(first),
            None => Err(taken(&key)),
        }
    }

    /// Segments that may hold numbers from `from` on, in order.
    async fn segments(&self, run: &RunId, from: u64) -> Result<Vec<(u64, String)>> {
        let rows = self.bucket.list(&dir_of(run)).await?;
        if rows.is_empty() {
            self.check_run(run).await?;
        }
        let named = |row: super::bucket::Row| Some((first_of(&row.key)?, row.key));
        let mut all: Vec<(u64, String)> = rows.into_iter().filter_map(named).collect();
        all.sort();
        let begin = all.partition_point(|(first, _)| *first <= from).saturating_sub(1);
        Ok(all.split_off(begin.min(all.len())))
    }

    async fn segment(&self, key: &str) -> Result<Bytes> {
        let gone = || Error::not_found(format!("{key} went away"));
        Ok(self.bucket.get(key).await?.ok_or_else(gone)?.bytes)
    }

    /// Some segments ahead, then the next ones, to the end that was there at the start.
    pub(super) fn read_events(&self, run: RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        let start = Reader { run, from, keys: None, tally: Tally::default() };
        let step = move |reader: Option<Reader>| async move {
            let mut reader = reader?;
            match self.read_some(&mut reader).await {
                Err(e) => Some((vec![Err(e)], None)),
                Ok(Some(rows)) => Some((rows.into_iter().map(Ok).collect(), Some(reader))),
                // What could be read comes before the verdict.
                Ok(None) => {
                    let verdict = reader.tally.verdict(&reader.run);
                    Some((verdict.err().map(Err).into_iter().collect(), None))
                }
            }
        };
        stream::unfold(Some(start), step)
            .flat_map(|rows: Vec<Result<EventRecord>>| stream::iter(rows))
            .boxed()
    }

    async fn read_some(&self, reader: &mut Reader) -> Result<Option<VecDeque<EventRecord>>> {
        let keys = match &mut reader.keys {
            Some(keys) => keys,
            none => none.insert(self.segments(&reader.run, reader.from).await?.into()),
        };
        if keys.is_empty() {
            return Ok(None);
        }
        let ahead: Vec<_> = keys.drain(..AHEAD.min(keys.len())).collect();
        let reads: Vec<_> = ahead.iter().map(|(_, key)| self.segment(key)).collect();
        let mut out = VecDeque::new();
        for segment in in_order(reads, AHEAD).await {
            reader.tally.take(&segment?, reader.from, &mut out);
        }
        Ok(Some(out))
    }

    pub(super) fn follow_events(
        &self,
        run: RunId,
        from: u64,
    ) -> BoxStream<'_, Result<EventRecord>> {
        let start = Follower { run, next: from, after: None, gap: None, tally: Tally::default() };
        let step = move |follower: Option<Follower>| async move {
            let mut follower = follower?;
            loop {
                match self.follow_once(&mut follower).await {
                    Err(e) => return Some((vec![Err(e)], None)),
                    Ok(rows) if rows.is_empty() => tokio::time::sleep(FOLLOW_POLL).await,
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
    async fn follow_once(&self, follower: &mut Follower) -> Result<VecDeque<EventRecord>> {
        let keys = match &follower.after {
            None => self.segments(&follower.run, follower.next).await?,
            Some(after) => {
                let rows = self.bucket.list_after(&dir_of(&follower.run), Some(after)).await?;
                rows.into_iter().filter_map(|row| Some((first_of(&row.key)?, row.key))).collect()
            }
        };
        let mut out = VecDeque::new();
        for (first, key) in keys {
            if first > follower.next {
                let since = *follower.gap.get_or_insert_with(Instant::now);
                if since.elapsed() < GAP {
                    break;
                }
            }
            let segment = self.segment(&key).await?;
            follower.tally.take(&segment, follower.next, &mut out);
            follower.next = follower.tally.last.map_or(follower.next, |last| last + 1);
            follower.after = Some(key);
            follower.gap = None;
        }
        Ok(out)
    }
}

/// Where a reader stands.
struct Reader {
    run: RunId,
    from: u64,
    /// Segments to read, once they are listed.
    keys: Option<VecDeque<(u64, String)>>,
    tally: Tally,
}

/// Where a follower stands.
struct Follower {
    run: RunId,
    /// The number that comes next.
    next: u64,
    /// The last segment taken.
    after: Option<String>,
    /// Since when a number is missing.
    gap: Option<Instant>,
    tally: Tally,
}

/// Somebody wrote where only we may write.
pub(super) fn taken(key: &str) -> Error {
    Error::new(Kind::Conflict, "conflict", format!("{key} holds something else"))
}
