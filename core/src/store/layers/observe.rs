//! Counts what goes through a store: calls, failures and bytes per kind of call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};

use super::Call;
use crate::error::Result;
use crate::ids::{Digest, RunId};
use crate::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};

/// What was counted of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls; a listing or following is one.
    pub calls: u64,
    /// Calls that failed as a whole, and rows of streams that were errors.
    pub errors: u64,
    /// Objects, rows or records that went in or came out.
    pub items: u64,
    /// Bytes of content handed to the store.
    pub sent: u64,
    /// Bytes of content that the store gave.
    pub received: u64,
}

#[derive(Default)]
struct Cell {
    calls: AtomicU64,
    errors: AtomicU64,
    items: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Running counts; cheap to share and to read at any time.
#[derive(Default)]
pub struct Counts([Cell; Call::ALL.len()]);

impl Counts {
    /// What was counted of `call` so far.
    pub fn of(&self, call: Call) -> Count {
        let cell = self.cell(call);
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Count {
            calls: get(&cell.calls),
            errors: get(&cell.errors),
            items: get(&cell.items),
            sent: get(&cell.sent),
            received: get(&cell.received),
        }
    }

    /// Every kind of call that happened, with its counts.
    pub fn all(&self) -> Vec<(Call, Count)> {
        let counts = Call::ALL.into_iter().map(|call| (call, self.of(call)));
        counts.filter(|(_, count)| count.calls > 0).collect()
    }

    fn cell(&self, call: Call) -> &Cell {
        &self.0[call as usize]
    }

    fn called(&self, call: Call, items: usize, sent: usize) {
        let cell = self.cell(call);
        cell.calls.fetch_add(1, Ordering::Relaxed);
        cell.items.fetch_add(items as u64, Ordering::Relaxed);
        cell.sent.fetch_add(sent as u64, Ordering::Relaxed);
    }

    fn received(&self, call: Call, items: usize, bytes: usize) {
        let cell = self.cell(call);
        cell.items.fetch_add(items as u64, Ordering::Relaxed);
        cell.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn done<T>(&self, call: Call, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.cell(call).errors.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

/// The layer; see the module.
pub struct Observe {
    inner: Arc<dyn Store>,
    counts: Arc<Counts>,
}

impl Observe {
    /// Counts what goes to `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, counts: Arc::default() }
    }

    /// The counts, live.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    fn rows<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        rows: BoxStream<'a, Result<T>>,
        size: fn(&T) -> usize,
    ) -> BoxStream<'a, Result<T>> {
        self.counts.called(call, 0, 0);
        let count = move |row: &Result<T>| match row {
            Ok(row) => self.counts.received(call, 1, size(row)),
            Err(_) => {
                self.counts.cell(call).errors.fetch_add(1, Ordering::Relaxed);
            }
        };
        rows.inspect(count).boxed()
    }
}

fn part_bytes(part: &LogPart) -> usize {
    match part {
        LogPart::Bytes { bytes, .. } => bytes.len(),
        LogPart::Hole { .. } => 0,
    }
}

#[async_trait]
impl Store for Observe {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.counts.called(Call::Health, 0, 0);
        self.counts.done(Call::Health, self.inner.health().await)
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        let bytes = batch.iter().map(|o| o.bytes().len()).sum();
        self.counts.called(Call::PutObjects, batch.len(), bytes);
        self.counts.done(Call::PutObjects, self.inner.put_objects(batch, mode).await)
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        self.counts.called(Call::GetObjects, 1, 0);
        let got = self.counts.done(Call::GetObjects, self.inner.get_object(digest).await)?;
        self.counts.received(Call::GetObjects, 0, got.len());
        Ok(got)
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        self.counts.called(Call::GetObjects, batch.len(), 0);
        let got = self.counts.done(Call::GetObjects, self.inner.get_objects(batch).await)?;
        let bytes = got.iter().flatten().map(Bytes::len).sum();
        self.counts.received(Call::GetObjects, 0, bytes);
        Ok(got)
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        self.counts.called(Call::Contains, batch.len(), 0);
        self.counts.done(Call::Contains, self.inner.contains(batch).await)
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.rows(Call::ListObjects, self.inner.list_objects(), |_| 0)
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.counts.called(Call::DeleteObjects, batch.len(), 0);
        self.counts.done(Call::DeleteObjects, self.inner.delete_objects(batch).await)
    }
    async fn flush(&self) -> Result<()> {
        self.counts.called(Call::Flush, 0, 0);
        self.counts.done(Call::Flush, self.inner.flush().await)
    }
    async fn maintain(&self) -> Result<()> {
        self.counts.called(Call::Maintain, 0, 0);
        self.counts.done(Call::Maintain, self.inner.maintain().await)
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        self.counts.called(Call::Get, 1, 0);
        let doc = self.counts.done(Call::Get, self.inner.get(key).await)?;
        self.counts.received(Call::Get, 0, doc.body.len());
        Ok(doc)
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        self.counts.called(Call::Put, 1, body.len());
        self.counts.done(Call::Put, self.inner.put(key, body, expect, fence).await)
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.counts.called(Call::Delete, 1, 0);
        self.counts.done(Call::Delete, self.inner.delete(key, version).await)
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        self.rows(Call::List, self.inner.list(prefix), |_| 0)
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        let bytes = events.iter().map(Bytes::len).sum();
        self.counts.called(Call::AppendEvents, events.len(), bytes);
        self.counts.done(Call::AppendEvents, self.inner.append_events(run, events, fence).await)
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.rows(Call::ReadEvents, self.inner.read_events(run, from), |e| e.body.len())
    }
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        self.counts.called(Call::ReadEvents, 0, 0);
        self.counts.done(Call::ReadEvents, self.inner.events_end(run).await)
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.rows(Call::FollowEvents, self.inner.follow_events(run, from), |e| e.body.len())
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.counts.called(Call::AppendLog, 1, bytes.len());
        self.counts.done(Call::AppendLog, self.inner.append_log(run, offset, bytes, fence).await)
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        self.counts.called(Call::ReadLog, 0, 0);
        let parts = self.counts.done(Call::ReadLog, self.inner.read_log(run, from, to).await)?;
        self.counts.received(Call::ReadLog, parts.len(), parts.iter().map(part_bytes).sum());
        Ok(parts)
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.rows(Call::FollowLog, self.inner.follow_log(run, from), part_bytes)
    }

    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.counts.called(Call::LockHolder, 1, 0);
        self.counts.done(Call::LockHolder, self.inner.lock_holder(name).await)
    }
    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        self.counts.called(Call::Lock, 1, 0);
        self.counts.done(Call::Lock, self.inner.lock(request).await)
    }
}
