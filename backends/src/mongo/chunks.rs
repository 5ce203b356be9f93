//! Chunks of a run log: one document each, at its offset.

use std::ops::Range;

use async_trait::async_trait;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::Fence;
use bytes::Bytes;
use futures::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};

use super::Inner;
use super::events::taken;
use super::fault::{self, DUPLICATE};
use super::space::{Write, number};
use super::tables::RUN_LOGS;
use crate::net::head::Head;
use crate::net::runlog::{Chunks, Piece, reserve};

/// The longest chunk: a longer append is cut by bytes.
const MOST: usize = 1024 * 1024;
/// Times a chunk whose answer was lost is looked at and sent again.
const TRIES: u32 = 4;

fn key_of(run: &RunId, offset: u64) -> String {
    format!("{run}/{offset:020}")
}

impl Inner {
    async fn chunk(&self, run: &RunId, at: u64) -> Result<Option<Bytes>> {
        let key = key_of(run, at);
        let what = format!("read log of run {run} at {at}");
        let filter = self.space.one(&key);
        let doc = self.space.find_one(RUN_LOGS, &what, filter, doc! { "data": 1 }).await?;
        let bytes = |doc: Document| match doc.get_binary_generic("data") {
            Ok(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            Err(_) => Err(Error::corrupt(format!("the log of run {run} has no bytes at {at}"))),
        };
        doc.map(bytes).transpose()
    }

    /// Writes one chunk where none is.
    async fn write_chunk(&self, run: &RunId, at: u64, bytes: &[u8]) -> Result<()> {
        let key = key_of(run, at);
        let what = format!("append log of run {run} at {at}");
        let mut last = None;
        for _ in 0..TRIES {
            let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
            let set = doc! {
                "run_id": run.as_str(),
                "offset": i64::try_from(at).unwrap_or(i64::MAX),
                "len": bytes.len() as i64,
                "data": data,
            };
            let filter = self.space.one(&key).and("offset", doc! { "$exists": false });
            let write = Write { filter, set, unset: Vec::new(), upsert: true, stamp: "ts" };
            let failed = match self.space.write(RUN_LOGS, &what, vec![write], true).await {
                Ok(mut done) => match done.errors.remove(&0) {
                    None => return Ok(()),
                    Some((DUPLICATE, _)) => None,
                    Some((code, text)) => {
                        Some(fault::made(fault::kind_of(code), format!("{what}: {text}")))
                    }
                },
                Err(e) => Some(e),
            };
            if let Some(e) = failed {
                if !crate::net::is_transient(&e) {
                    return Err(e);
                }
                last = Some(e);
            }
            match self.chunk(run, at).await? {
                Some(there) if there == bytes => return Ok(()),
                Some(_) => return Err(taken(&key)),
                None => self.jitter().await?,
            }
        }
        let unsure = || Error::unavailable(format!("{what}: the server did not take it"));
        Err(last.unwrap_or_else(unsure))
    }
}

#[async_trait]
impl Chunks for Inner {
    async fn chunks(&self, run: &RunId, stretch: &Range<u64>) -> Result<Vec<Range<u64>>> {
        // No chunk is longer than an append, so an earlier one does not reach in.
        let from = stretch.start.saturating_sub(backtrail_core::store::MAX_BYTES as u64);
        let filter = self.space.between(&key_of(run, from), &key_of(run, stretch.end));
        let what = format!("list log of run {run}");
        let mut rows = self.space.find(RUN_LOGS, what, filter, doc! { "offset": 1, "len": 1 });
        let mut out = Vec::new();
        while let Some(doc) = rows.try_next().await? {
            let (Some(at), Some(len)) = (number(&doc, "offset"), number(&doc, "len")) else {
                continue;
            };
            if at < stretch.end && stretch.start < at.saturating_add(len) {
                out.push(at..at + len);
            }
        }
        Ok(out)
    }

    async fn pieces(&self, run: &RunId, wanted: Vec<Piece>) -> Result<Vec<(Range<u64>, Bytes)>> {
        let mut out = Vec::with_capacity(wanted.len());
        let keys: Vec<u64> = wanted.iter().map(|(start, _)| *start).collect();
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(out) };
        let filter = self.space.between(&key_of(run, *first), &key_of(run, *last + 1));
        let what = format!("read log of run {run}");
        let mut rows = self.space.find(RUN_LOGS, what, filter, doc! { "offset": 1, "data": 1 });
        while let Some(doc) = rows.try_next().await? {
            let Some(at) = number(&doc, "offset") else { continue };
            let data = doc.get_binary_generic("data").map(Vec::as_slice).unwrap_or_default();
            for (_, range) in wanted.iter().filter(|(start, _)| *start == at) {
                let part = (range.start - at) as usize..(range.end - at) as usize;
                let Some(bytes) = data.get(part) else { continue };
                out.push((range.clone(), Bytes::copy_from_slice(bytes)));
            }
        }
        Ok(out)
    }

    async fn write(&self, run: &RunId, at: u64, bytes: &Bytes) -> Result<()> {
        let mut at = at;
        for part in bytes.chunks(MOST) {
            self.write_chunk(run, at, part).await?;
            at += part.len() as u64;
        }
        Ok(())
    }

    async fn log_head(&self, run: &RunId) -> Result<Option<Head>> {
        match self.heads.now(run).await? {
            None => self.check_run(run).await.map(|()| None),
            head => Ok(head),
        }
    }

    async fn known_end(&self, run: &RunId) -> Result<u64> {
        self.heads.size(run).await
    }

    async fn reserve_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        len: u64,
        fence: Option<&Fence>,
    ) -> Result<(u64, u64)> {
        self.reserve(run, fence, |head| reserve(run, offset, len, head)).await
    }
}
