//! The run log as chunks behind a head: the head says where the log ends; what lies
//! before that and in no chunk is a hole. How chunks are stored is for each backend.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::holes::Holes;
use backtrail_core::store::{Fence, LogPart, MAX_BYTES, check_size};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;

use super::head::Head;

/// How much a follower hands on at once.
const FOLLOW_BYTES: u64 = 1 << 20;
/// How long a gap is waited for that a reserved place leaves until it is written.
pub(crate) const GAP: Duration = Duration::from_secs(2);

/// A piece of a stored chunk: where the chunk begins, and what of the log is wanted of it.
pub(crate) type Piece = (u64, Range<u64>);

/// Where chunks lie.
#[async_trait]
pub(crate) trait Chunks: Send + Sync {
    /// What the stored chunks that overlap `stretch` cover, in order.
    async fn chunks(&self, run: &RunId, stretch: &Range<u64>) -> Result<Vec<Range<u64>>>;
    /// The bytes of some pieces, in any order.
    async fn pieces(&self, run: &RunId, wanted: Vec<Piece>) -> Result<Vec<(Range<u64>, Bytes)>>;
    /// Writes a chunk where none begins. Other bytes there are `Conflict`, equal ones
    /// success.
    async fn write(&self, run: &RunId, at: u64, bytes: &Bytes) -> Result<()>;
    /// The head of a run that can be read; `None` when there is nothing yet.
    async fn log_head(&self, run: &RunId) -> Result<Option<Head>>;
    /// Where the log ends at least; 0 when there is none.
    async fn known_end(&self, run: &RunId) -> Result<u64>;
    /// Reserves `len` bytes at `offset`, or at the end: where they begin, and the end of
    /// the log before.
    async fn reserve_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        len: u64,
        fence: Option<&Fence>,
    ) -> Result<(u64, u64)>;
}

/// What [`Chunks::reserve_log`] does to a head.
pub(crate) fn reserve(
    run: &RunId,
    offset: Option<u64>,
    len: u64,
    head: &mut Head,
) -> Result<(u64, u64)> {
    let at = offset.unwrap_or(head.log_size);
    let end = at.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
    let far = || Error::invalid(format!("log offset {at} of run {run} is too far"));
    let end = end.ok_or_else(far)?;
    let before = head.log_size;
    if len > 0 {
        head.log_size = before.max(end);
    }
    Ok((at, before))
}

/// Appends at `offset`, or at the end; where the bytes begin (CLD-L4, L7).
pub(crate) async fn append(
    room: &dyn Chunks,
    run: &RunId,
    offset: Option<u64>,
    bytes: &Bytes,
    fence: Option<&Fence>,
) -> Result<u64> {
    check_size("log append of run", run.as_str(), bytes.len(), MAX_BYTES)?;
    let len = bytes.len() as u64;
    // What disagrees with what is stored must reserve nothing.
    if let Some(at) = offset {
        let end = at.saturating_add(len).min(room.known_end(run).await?);
        compare(room, run, &(at..end.max(at)), bytes).await?;
    }
    let (at, before) = room.reserve_log(run, offset, len, fence).await?;
    let old = at..before.clamp(at, at + len);
    fill_old(room, run, &old, bytes).await?;
    let fresh = bytes.slice((old.end - at) as usize..);
    if !fresh.is_empty() {
        room.write(run, old.end, &fresh).await?;
    }
    Ok(at)
}

/// What lies at places that were reserved before. Fails with `Conflict` when other bytes
/// are stored there.
async fn compare(
    room: &dyn Chunks,
    run: &RunId,
    old: &Range<u64>,
    bytes: &Bytes,
) -> Result<Vec<LogPart>> {
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let parts = parts(room, run, old.clone()).await?;
    for part in &parts {
        if let LogPart::Bytes { offset, bytes: there } = part
            && *there != cut(bytes, old.start, part)
        {
            let message = format!("the log of run {run} has other bytes at offset {offset}");
            return Err(Error::new(Kind::Conflict, "conflict", message));
        }
    }
    Ok(parts)
}

/// The bytes of ours, which begin at `start`, for a part.
fn cut(bytes: &Bytes, start: u64, part: &LogPart) -> Bytes {
    let (LogPart::Bytes { offset, .. } | LogPart::Hole { offset, .. }) = part;
    bytes.slice((offset - start) as usize..(part.end() - start) as usize)
}

/// [`compare`], and what is a hole is filled.
async fn fill_old(room: &dyn Chunks, run: &RunId, old: &Range<u64>, bytes: &Bytes) -> Result<()> {
    for part in compare(room, run, old, bytes).await? {
        if let LogPart::Hole { offset, .. } = part {
            room.write(run, offset, &cut(bytes, old.start, &part)).await?;
        }
    }
    Ok(())
}

/// The log from `from` to `to` (0: the end), holes included (CLD-L4, L5).
pub(crate) async fn read(
    room: &dyn Chunks,
    run: &RunId,
    from: u64,
    to: u64,
) -> Result<Vec<LogPart>> {
    let Some(head) = room.log_head(run).await? else { return Ok(Vec::new()) };
    let end = if to == 0 { head.log_size } else { to.min(head.log_size) };
    match from < end {
        true => parts(room, run, from..end).await,
        false => Ok(Vec::new()),
    }
}

/// The parts of a stretch that lies before the end of the log.
async fn parts(room: &dyn Chunks, run: &RunId, stretch: Range<u64>) -> Result<Vec<LogPart>> {
    let mut holes = Holes::new([stretch.clone()]);
    // Each chunk gives what no earlier one gave.
    let mut wanted: Vec<Piece> = Vec::new();
    for chunk in room.chunks(run, &stretch).await? {
        let cut = chunk.start.max(stretch.start)..chunk.end.min(stretch.end);
        let open = holes.split(cut.clone()).into_iter().filter(|(_, open)| *open);
        wanted.extend(open.map(|(range, _)| (chunk.start, range)));
        holes.fill(cut);
    }
    let mut got = room.pieces(run, wanted).await?;
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

/// Where a follower stands.
struct Follower<B> {
    at: u64,
    /// A hole, and since when it is seen.
    gap: Option<(u64, Instant)>,
    bell: B,
}

/// What tells a follower that there may be more.
#[async_trait]
pub(crate) trait Bell: Send {
    /// Returns when it may be worth looking again.
    async fn rung(&mut self);
}

/// The log from `from`, then each part as it comes. A hole may be a chunk on its way: it
/// is waited for, then passed.
pub(crate) fn follow<'a, B: Bell + 'a>(
    room: &'a dyn Chunks,
    run: RunId,
    from: u64,
    bell: B,
) -> BoxStream<'a, Result<LogPart>> {
    let start = Follower { at: from, gap: None, bell };
    let step = move |follower: Option<Follower<B>>| {
        let run = run.clone();
        async move {
            let mut follower = follower?;
            loop {
                match come(room, &run, &mut follower.gap, follower.at).await {
                    Err(e) => return Some((vec![Err(e)], None)),
                    Ok(parts) if parts.is_empty() => follower.bell.rung().await,
                    Ok(parts) => {
                        follower.at = parts.last().map_or(follower.at, LogPart::end);
                        return Some((parts.into_iter().map(Ok).collect(), Some(follower)));
                    }
                }
            }
        }
    };
    stream::unfold(Some(start), step)
        .flat_map(|parts: Vec<Result<LogPart>>| stream::iter(parts))
        .boxed()
}

/// What has come behind `at`.
async fn come(
    room: &dyn Chunks,
    run: &RunId,
    gap: &mut Option<(u64, Instant)>,
    at: u64,
) -> Result<Vec<LogPart>> {
    let mut parts = read(room, run, at, at + FOLLOW_BYTES).await?;
    let hole = parts.iter().find_map(|part| match part {
        LogPart::Hole { offset, .. } => Some(*offset),
        LogPart::Bytes { .. } => None,
    });
    if let Some(hole) = hole {
        let (_, since) = *match gap {
            Some(gap) if gap.0 == hole => gap,
            other => other.insert((hole, Instant::now())),
        };
        if since.elapsed() < GAP {
            parts.retain(|part| part.end() <= hole);
        }
    }
    Ok(parts)
}
