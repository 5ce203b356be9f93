//! The run log as chunks: `runs/<run>/log/<20-digit offset>.log`. The head says where the
//! log ends; what lies before that and in no chunk is a hole.

use std::ops::Range;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::holes::Holes;
use backtrail_core::store::{Expect, Fence, LogPart, MAX_BYTES, check_size};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;

use super::Inner;
use super::bucket::{Part, in_order};
use super::events::{FOLLOW_POLL, GAP, taken};
use crate::net::settle;

/// How much a follower hands on at once.
const FOLLOW_BYTES: u64 = 1 << 20;

/// A stored chunk.
#[derive(Clone, Debug)]
struct Chunk {
    key: String,
    range: Range<u64>,
}

fn dir_of(run: &RunId) -> String {
    format!("runs/{run}/log/")
}

fn key_of(run: &RunId, offset: u64) -> String {
    format!("runs/{run}/log/{offset:020}.log")
}

impl Inner {
    /// The chunks that overlap `stretch`, in order.
    async fn chunks(&self, run: &RunId, stretch: &Range<u64>) -> Result<Vec<Chunk>> {
        let mut out = Vec::new();
        for row in self.bucket.list(&dir_of(run)).await? {
            let name = row.key.rsplit('/').next().and_then(|n| n.strip_suffix(".log"));
            let Some(at) = name.filter(|n| n.len() == 20).and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            let range = at..at.saturating_add(row.meta.size);
            if range.start < stretch.end && stretch.start < range.end {
                out.push(Chunk { key: row.key, range });
            }
        }
        out.sort_by_key(|chunk| chunk.range.start);
        Ok(out)
    }

    /// The parts of a stretch that lies before the end of the log.
    async fn parts(&self, run: &RunId, stretch: Range<u64>) -> Result<Vec<LogPart>> {
        let chunks = self.chunks(run, &stretch).await?;
        let mut holes = Holes::new([stretch.clone()]);
        // Each chunk gives what no earlier one gave.
        let mut wanted: Vec<(String, u64, Range<u64>)> = Vec::new();
        for chunk in chunks {
            let cut = chunk.range.start.max(stretch.start)..chunk.range.end.min(stretch.end);
            for (range, open) in holes.split(cut.clone()) {
                if open {
                    wanted.push((chunk.key.clone(), chunk.range.start, range));
                }
            }
            holes.fill(cut);
        }
        let read = |(key, start, range): (String, u64, Range<u64>)| async move {
            let part = Part::Range(range.start - start..range.end - start);
            let gone = || Error::not_found(format!("{key} went away"));
            let got = self.bucket.get_part(&key, part).await?.ok_or_else(gone)?;
            Ok::<_, Error>((range, got.bytes))
        };
        let reads: Vec<_> = wanted.into_iter().map(read).collect();
        let reads = in_order(reads, self.bucket.concurrency()).await;
        let mut got: Vec<(Range<u64>, Bytes)> = reads.into_iter().collect::<Result<_>>()?;
        got.sort_by_key(|(range, _)| range.start);
        holes.parts(stretch, |range| {
            let within = got.iter().filter(|(r, _)| range.start <= r.start && r.end <= range.end);
            let mut bytes = BytesMut::new();
            within.for_each(|(_, part)| bytes.extend_from_slice(part));
            match bytes.len() as u64 == range.end - range.start {
                true => Ok(bytes.freeze()),
                false => Err(Error::corrupt(format!("the log of run {run} came back short"))),
            }
        })
    }

    pub(super) async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let Some(head) = self.heads.now(run).await? else {
            return self.check_run(run).await.map(|()| Vec::new());
        };
        let end = if to == 0 { head.log_size } else { to.min(head.log_size) };
        match from < end {
            true => self.parts(run, from..end).await,
            false => Ok(Vec::new()),
        }
    }

    /// Appends at `offset`, or at the end; where the bytes begin (CLD-L4, L7).
    pub(super) async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: &Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        check_size("log append of run", run.as_str(), bytes.len(), MAX_BYTES)?;
        let len = bytes.len() as u64;
        let far = |at: u64| Error::invalid(format!("log offset {at} of run {run} is too far"));
        if let Some(at) = offset {
            // What is known to be stored there is compared before anything is reserved.
            let size = self.heads.size(run).await?;
            let end = at.saturating_add(len).min(size);
            self.compare_old(run, &(at..end.max(at)), bytes).await?;
        }
        // Where the bytes begin, and the end of the log before that.
        let reserved = self.reserve(run, fence, |head| {
            let at = offset.unwrap_or(head.log_size);
            let end = at.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
            let end = end.ok_or_else(|| far(at))?;
            let before = head.log_size;
            if len > 0 {
                head.log_size = before.max(end);
            }
            Ok((at, before))
        });
        let (at, before) = reserved.await?;
        let old = at..before.clamp(at, at + len);
        self.fill_old(run, &old, bytes).await?;
        let fresh = bytes.slice((old.end - at) as usize..);
        if !fresh.is_empty() {
            self.write_chunk(run, old.end, &fresh).await?;
        }
        Ok(at)
    }

    /// Bytes at places that were reserved before: what is stored there must be equal,
    /// and what is a hole is filled.
    async fn fill_old(&self, run: &RunId, old: &Range<u64>, bytes: &Bytes) -> Result<()> {
        for hole in self.compare_old(run, old, bytes).await? {
            let ours =
                bytes.slice((hole.start - old.start) as usize..(hole.end - old.start) as usize);
            self.write_chunk(run, hole.start, &ours).await?;
        }
        Ok(())
    }

    /// The holes of a stretch. Fails with `Conflict` when other bytes are stored in it.
    async fn compare_old(
        &self,
        run: &RunId,
        old: &Range<u64>,
        bytes: &Bytes,
    ) -> Result<Vec<Range<u64>>> {
        let mut holes = Vec::new();
        if old.is_empty() {
            return Ok(holes);
        }
        for part in self.parts(run, old.clone()).await? {
            match &part {
                LogPart::Hole { offset, .. } => holes.push(*offset..part.end()),
                LogPart::Bytes { offset, bytes: there } => {
                    let from = (offset - old.start) as usize;
                    if bytes[from..from + there.len()] != there[..] {
                        let message =
                            format!("the log of run {run} has other bytes at offset {offset}");
                        return Err(Error::new(Kind::Conflict, "conflict", message));
                    }
                }
            }
        }
        Ok(holes)
    }

    async fn write_chunk(&self, run: &RunId, at: u64, bytes: &Bytes) -> Result<()> {
        let key = key_of(run, at);
        match settle(&*self.bucket, &key, bytes, &Expect::Absent).await? {
            Some(_) => Ok(()),
            None => Err(taken(&key)),
        }
    }

    pub(super) fn follow_log(&self, run: RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        // Where the follower stands, and a hole with the time since which it is seen.
        let step = move |at: Option<(u64, Option<(u64, Instant)>)>| {
            let run = run.clone();
            async move {
                let (mut at, mut gap) = at?;
                loop {
                    let mut parts = match self.read_log(&run, at, at + FOLLOW_BYTES).await {
                        Ok(parts) => parts,
                        Err(e) => return Some((vec![Err(e)], None)),
                    };
                    // A hole may be a chunk on its way.
                    let hole = parts.iter().find_map(|part| match part {
                        LogPart::Hole { offset, .. } => Some(*offset),
                        LogPart::Bytes { .. } => None,
                    });
                    if let Some(hole) = hole {
                        let (_, since) = *match &mut gap {
                            Some(gap) if gap.0 == hole => gap,
                            other => other.insert((hole, Instant::now())),
                        };
                        if since.elapsed() < GAP {
                            parts.retain(|part| part.end() <= hole);
                        }
                    }
                    if parts.is_empty() {
                        tokio::time::sleep(FOLLOW_POLL).await;
                        continue;
                    }
                    at = parts.last().map_or(at, LogPart::end);
                    return Some((parts.into_iter().map(Ok).collect(), Some((at, gap))));
                }
            }
        };
        stream::unfold(Some((from, None)), step)
            .flat_map(|parts: Vec<Result<LogPart>>| stream::iter(parts))
            .boxed()
    }
}
