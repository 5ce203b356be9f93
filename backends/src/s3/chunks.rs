//! Chunks of a run log: `runs/<run>/log/<20-digit offset>.log`.

use std::ops::Range;

use async_trait::async_trait;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::{Expect, Fence};
use bytes::Bytes;

use super::Inner;
use super::bucket::{Part, in_order};
use super::events::{FOLLOW_POLL, taken};
use crate::net::head::Head;
use crate::net::runlog::{Bell, Chunks, Piece, reserve};
use crate::net::settle;

fn dir_of(run: &RunId) -> String {
    format!("runs/{run}/log/")
}

fn key_of(run: &RunId, offset: u64) -> String {
    format!("runs/{run}/log/{offset:020}.log")
}

/// Looks again after a while.
pub(super) struct Poll;

#[async_trait]
impl Bell for Poll {
    async fn rung(&mut self) {
        tokio::time::sleep(FOLLOW_POLL).await;
    }
}

#[async_trait]
impl Chunks for Inner {
    async fn chunks(&self, run: &RunId, stretch: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let mut out = Vec::new();
        for row in self.bucket.list(&dir_of(run)).await? {
            let name = row.key.rsplit('/').next().and_then(|n| n.strip_suffix(".log"));
            let Some(at) = name.filter(|n| n.len() == 20).and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            let range = at..at.saturating_add(row.meta.size);
            if range.start < stretch.end && stretch.start < range.end {
                out.push(range);
            }
        }
        out.sort_by_key(|chunk| chunk.start);
        Ok(out)
    }

    async fn pieces(&self, run: &RunId, wanted: Vec<Piece>) -> Result<Vec<(Range<u64>, Bytes)>> {
        let read = |(start, range): Piece| async move {
            let key = key_of(run, start);
            let part = Part::Range(range.start - start..range.end - start);
            let gone = || Error::not_found(format!("{key} went away"));
            let got = self.bucket.get_part(&key, part).await?.ok_or_else(gone)?;
            Ok::<_, Error>((range, got.bytes))
        };
        let reads: Vec<_> = wanted.into_iter().map(read).collect();
        in_order(reads, self.bucket.concurrency()).await.into_iter().collect()
    }

    async fn write(&self, run: &RunId, at: u64, bytes: &Bytes) -> Result<()> {
        let key = key_of(run, at);
        match settle(&*self.bucket, &key, bytes, &Expect::Absent).await? {
            Some(_) => Ok(()),
            None => Err(taken(&key)),
        }
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
