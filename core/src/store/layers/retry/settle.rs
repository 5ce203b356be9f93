//! Settling writes that must not happen twice, by reading back.

use bytes::Bytes;
use futures::stream::TryStreamExt;

use super::tries::{Tries, is_transient};
use super::{Ends, Retry};
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::store::docs::conflict;
use crate::store::events::number;
use crate::store::{DocKey, Document, EventRecord, Expect, Fence, LogPart, Version};

/// True for an answer after which only a read tells what happened. A refusal with a
/// code of its own (a deleted run) is an answer, not a doubt.
fn is_doubtful(e: &Error) -> bool {
    is_transient(e) || (e.kind() == Kind::Conflict && e.code() == "conflict")
}

/// The error to repeat a write with that was refused although nothing had changed.
fn transient(e: Error) -> Error {
    if is_transient(&e) {
        return e;
    }
    let message = e.message().to_owned();
    Error::unavailable(message).with_source(e)
}

impl Retry {
    /// What is there now; `None` when nothing is. One try: the caller counts.
    async fn look(&self, key: &DocKey) -> Result<Option<Document>> {
        match self.inner.get(key).await {
            Ok(doc) => Ok(Some(doc)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) async fn settled_put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        let mut tries = self.tries(format!("put {key}"));
        loop {
            let work = self.inner.put(key, body.clone(), expect.clone(), fence);
            let doubt = match tries.attempt(body.len(), work).await {
                Ok(version) => return Ok(version),
                Err(e) if expect == Expect::Any || !is_doubtful(&e) => {
                    // The last writer wins, so writing again is right.
                    tries.again(if is_doubtful(&e) { transient(e) } else { e }).await?;
                    continue;
                }
                Err(e) => e,
            };
            // A read that fails too tells nothing: try again as if it had not been made.
            if let Ok(there) = self.look(key).await {
                match &there {
                    Some(doc) if doc.body == body => return Ok(doc.version.clone()),
                    _ => {}
                }
                let there = there.map(|doc| doc.version);
                let unchanged = match &expect {
                    Expect::Version(v) => there.as_ref() == Some(v),
                    _ => there.is_none(),
                };
                if !unchanged {
                    return Err(conflict(key, there.as_ref()));
                }
            }
            tries.again(transient(doubt)).await?;
        }
    }

    pub(super) async fn settled_delete(
        &self,
        key: &DocKey,
        version: Option<&Version>,
    ) -> Result<()> {
        let mut tries = self.tries(format!("delete {key}"));
        let mut unsure = false;
        loop {
            let doubt = match tries.attempt(0, self.inner.delete(key, version)).await {
                Ok(()) => return Ok(()),
                Err(e) if version.is_none() || !is_doubtful(&e) => {
                    tries.again(e).await?;
                    continue;
                }
                Err(e) => e,
            };
            unsure |= is_transient(&doubt);
            if let Ok(there) = self.look(key).await {
                match there.map(|doc| doc.version) {
                    // Gone, and it may well have been us.
                    None if unsure => return Ok(()),
                    there if there.as_ref() != version => {
                        return Err(conflict(key, there.as_ref()));
                    }
                    _ => {}
                }
            }
            tries.again(transient(doubt)).await?;
        }
    }

    fn ends(&self, run: &RunId) -> Ends {
        let ends = self.ends.lock().unwrap_or_else(|e| e.into_inner());
        ends.get(run).copied().unwrap_or_default()
    }

    fn set_ends(&self, run: &RunId, set: impl FnOnce(&mut Ends)) {
        let mut ends = self.ends.lock().unwrap_or_else(|e| e.into_inner());
        set(ends.entry(run.clone()).or_default());
    }

    /// An event batch has no key to write to again, so it is looked for behind this
    /// handle's last append: events carry their time and are not equal by chance.
    pub(super) async fn settled_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        let mut tries = self.tries(format!("append to the events of run {run}"));
        let bytes = events.iter().map(Bytes::len).sum();
        loop {
            let work = self.inner.append_events(run, events.clone(), fence);
            let first = match tries.attempt(bytes, work).await {
                Ok(first) => first,
                Err(e) if is_doubtful(&e) && !events.is_empty() => {
                    let Some(first) = self.find_events(&mut tries, run, &events, e).await? else {
                        continue;
                    };
                    first
                }
                Err(e) => {
                    tries.again(e).await?;
                    continue;
                }
            };
            self.set_ends(run, |ends| ends.event = Some(first + events.len() as u64));
            return Ok(first);
        }
    }

    /// The number of our batch when it is there; `None` after a pause when it is not.
    async fn find_events(
        &self,
        tries: &mut Tries<'_>,
        run: &RunId,
        events: &[Bytes],
        doubt: Error,
    ) -> Result<Option<u64>> {
        let from = self.ends(run).event.unwrap_or(0);
        let mut doubt = doubt;
        loop {
            let there: Result<Vec<EventRecord>> =
                self.inner.read_events(run, from).try_collect().await;
            match there {
                Ok(there) => {
                    let ours = |rows: &&[EventRecord]| {
                        rows.iter().zip(events).all(|(r, e)| r.body == number(r.seq, e))
                    };
                    if let Some(rows) = there.windows(events.len()).find(ours) {
                        return Ok(Some(rows[0].seq));
                    }
                    tries.again(transient(doubt)).await?;
                    return Ok(None);
                }
                // Appending again on no knowledge could double the batch: ask until
                // there is an answer.
                Err(e) => {
                    tries.again(transient(doubt)).await?;
                    tries.count();
                    doubt = e;
                }
            }
        }
    }

    pub(super) async fn settled_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        let mut tries = self.tries(format!("append to the log of run {run}"));
        loop {
            let work = self.inner.append_log(run, offset, bytes.clone(), fence);
            let at = match tries.attempt(bytes.len(), work).await {
                Ok(at) => at,
                Err(e) if is_doubtful(&e) && !bytes.is_empty() => {
                    match self.find_log(run, offset, &bytes).await {
                        Ok(Some(at)) => at,
                        Ok(None) => {
                            // At a place of its own a refusal stands once a read has
                            // shown other bytes there.
                            let final_word = offset.is_some() && e.is_conflict();
                            tries.again(if final_word { e } else { transient(e) }).await?;
                            continue;
                        }
                        // Repeating at a place is harmless, at the end it is not.
                        Err(_) if offset.is_some() => {
                            tries.again(transient(e)).await?;
                            continue;
                        }
                        Err(again) => return Err(self.unsettled(e, again)),
                    }
                }
                Err(e) => {
                    tries.again(e).await?;
                    continue;
                }
            };
            self.set_ends(run, |ends| ends.offset = Some(at + bytes.len() as u64));
            return Ok(at);
        }
    }

    fn unsettled(&self, doubt: Error, read: Error) -> Error {
        let message = format!("{}, and reading back failed: {}", doubt.message(), read.message());
        Error::unavailable(message).with_kind(Kind::Unavailable { maybe_applied: true })
    }

    /// Where our bytes are in the log, when they are there.
    async fn find_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: &Bytes,
    ) -> Result<Option<u64>> {
        let len = bytes.len() as u64;
        if let Some(at) = offset {
            let end = at.saturating_add(len);
            let parts = self.read_log_again(run, at, end).await?;
            let found = matches!(&parts[..], [LogPart::Bytes { bytes: b, .. }] if b == bytes);
            return Ok(found.then_some(at));
        }
        let from = self.ends(run).offset.unwrap_or(0);
        let parts = self.read_log_again(run, from, 0).await?;
        // Right behind our last append, or, when others appended too, at the end.
        if let Some(LogPart::Bytes { offset, bytes: b }) = parts.first()
            && self.ends(run).offset == Some(*offset)
            && b.starts_with(bytes)
        {
            return Ok(Some(*offset));
        }
        Ok(match parts.last() {
            Some(part @ LogPart::Bytes { bytes: b, .. }) if b.ends_with(bytes) => {
                Some(part.end() - len)
            }
            _ => None,
        })
    }

    async fn read_log_again(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let what = format!("read of the log of run {run}");
        self.repeat(what, bytes_of(from, to), || self.inner.read_log(run, from, to)).await
    }
}

fn bytes_of(from: u64, to: u64) -> usize {
    usize::try_from(to.saturating_sub(from)).unwrap_or(0)
}
