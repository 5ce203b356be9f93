//! Trusts no backend: checks what goes in before it is sent and what comes out before
//! anybody believes it.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::ids::{Digest, RunId};
use crate::store::docs::check_body;
use crate::store::events::{check_event, seq_of};
use crate::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, MAX_BYTES, Object, Prefix, PutObjects,
    PutOutcome, Store, StoreHealth, StoreInfo, Version, check_size,
};

/// The layer; see the module.
pub struct Verify {
    inner: Arc<dyn Store>,
    /// The backend hashes what it reads and lists no object twice.
    hashes: bool,
}

impl Verify {
    /// Checks everything that `inner` answers.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, hashes: false }
    }

    /// Leaves the hashing of objects to a backend that does it on every read on its own
    /// threads: hashing everything twice would halve the speed of a restore.
    pub fn over_hashing(inner: Arc<dyn Store>) -> Self {
        Self { inner, hashes: true }
    }

    fn object(&self, digest: &Digest, bytes: Bytes) -> Result<Bytes> {
        if self.hashes {
            return Ok(bytes);
        }
        match Digest::of(&bytes) {
            found if found == *digest => Ok(bytes),
            found => Err(Error::corrupt(format!("object {digest} is corrupt: {found}"))
                .with_detail("digest", digest.hex())
                .with_detail("expected", digest.hex())
                .with_detail("found", found.hex())),
        }
    }
}

/// Fails unless a batch was answered item by item.
fn answered<T>(what: &str, asked: usize, answers: Vec<T>) -> Result<Vec<T>> {
    if answers.len() == asked {
        return Ok(answers);
    }
    let message = format!("{what} was asked for {asked} items and answered {}", answers.len());
    Err(Error::unavailable(message))
}

#[derive(Deserialize)]
struct Owner {
    run_id: Option<String>,
}

/// Fails when a document of one run says that it belongs to another (K82). A body that
/// cannot be read at all is the business of whoever parses it.
fn check_owner(key: &DocKey, body: &[u8]) -> Result<()> {
    let Some(run) = key.run() else { return Ok(()) };
    match serde_json::from_slice::<Owner>(body) {
        Ok(Owner { run_id: Some(other) }) if other != run.as_str() => {
            Err(Error::corrupt(format!("document {key} says that it belongs to run {other:?}")))
        }
        _ => Ok(()),
    }
}

/// Keeps rows that rise by `rank`; drops a row seen before, fails on one out of order.
fn rising<'a, T, K>(
    rows: BoxStream<'a, Result<T>>,
    what: String,
    rank: impl Fn(&T) -> K + Send + 'a,
) -> BoxStream<'a, Result<T>>
where
    T: Send + 'a,
    K: Ord + std::hash::Hash + Clone + Send + 'a,
{
    let mut last: Option<K> = None;
    let mut seen = HashSet::new();
    let judge = move |row: Result<T>| {
        let row = match row {
            Ok(row) => row,
            Err(e) => return Some(Err(e)),
        };
        let key = rank(&row);
        if !seen.insert(key.clone()) {
            return None;
        }
        if last.as_ref().is_some_and(|last| *last > key) {
            return Some(Err(Error::unavailable(format!("{what} came out of order"))));
        }
        last = Some(key);
        Some(Ok(row))
    };
    let mut judge = judge;
    rows.filter_map(move |row| std::future::ready(judge(row))).boxed()
}

#[async_trait]
impl Store for Verify {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.inner.health().await
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        let asked = batch.len();
        answered("put_objects", asked, self.inner.put_objects(batch, mode).await?)
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        if *digest == Digest::EMPTY {
            return Ok(Bytes::new());
        }
        self.object(digest, self.inner.get_object(digest).await?)
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let got = answered("get_objects", batch.len(), self.inner.get_objects(batch).await?)?;
        let check = |(digest, bytes): (&Digest, Result<Bytes>)| self.object(digest, bytes?);
        Ok(batch.iter().zip(got).map(check).collect())
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let mut out = answered("contains", batch.len(), self.inner.contains(batch).await?)?;
        for (answer, (digest, raw)) in out.iter_mut().zip(batch) {
            if *digest == Digest::EMPTY {
                *answer = *raw == 0;
            }
        }
        Ok(out)
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        if self.hashes {
            return self.inner.list_objects();
        }
        let mut seen = HashSet::new();
        let once = move |row: &Result<ListedObject>| match row {
            Ok(ListedObject::Object { digest, .. }) => seen.insert(*digest),
            _ => true,
        };
        let mut once = once;
        self.inner.list_objects().filter(move |row| std::future::ready(once(row))).boxed()
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        answered("delete_objects", batch.len(), self.inner.delete_objects(batch).await?)
    }
    async fn flush(&self) -> Result<()> {
        self.inner.flush().await
    }
    async fn maintain(&self) -> Result<()> {
        self.inner.maintain().await
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        let doc = self.inner.get(key).await?;
        check_owner(key, &doc.body)?;
        Ok(doc)
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        check_body(key, &body)?;
        self.inner.put(key, body, expect, fence).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.inner.delete(key, version).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        let name = |row: &Listed| match row {
            Listed::Doc { key, .. } => key.to_string(),
            Listed::Foreign { name } => name.clone(),
        };
        rising(self.inner.list(prefix), format!("the listing of {prefix}"), name)
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        for event in &events {
            check_event(run, event)?;
        }
        self.inner.append_events(run, events, fence).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        let rows = self.inner.read_events(run, from).map(move |row| {
            let row = row?;
            match seq_of(&row.body) {
                Some(seq) if seq == row.seq && seq >= from => Ok(row),
                _ => Err(Error::corrupt(format!("event {} has another number inside", row.seq))),
            }
        });
        let mut last = None;
        let ordered = rows.map(move |row| {
            let row: EventRecord = row?;
            if last.is_some_and(|last| last >= row.seq) {
                return Err(Error::unavailable("events came out of order"));
            }
            last = Some(row.seq);
            Ok(row)
        });
        ordered.boxed()
    }
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        self.inner.events_end(run).await
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.inner.follow_events(run, from)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        check_size("log append of run", run.as_str(), bytes.len(), MAX_BYTES)?;
        self.inner.append_log(run, offset, bytes, fence).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let parts = self.inner.read_log(run, from, to).await?;
        let mut at = from;
        for part in &parts {
            let (LogPart::Bytes { offset, .. } | LogPart::Hole { offset, .. }) = part;
            if *offset != at {
                return Err(Error::unavailable(format!("the log of run {run} has a gap at {at}")));
            }
            at = part.end();
        }
        Ok(parts)
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.inner.follow_log(run, from)
    }

    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.inner.lock_holder(name).await
    }
    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        self.inner.lock(request).await
    }
}
