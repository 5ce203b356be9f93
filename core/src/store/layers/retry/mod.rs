//! The one layer that tries again. An operation that only reads or may be repeated is
//! repeated; a conditional write whose answer is anything but plain success is settled
//! by reading back: our bytes mean it happened, the earlier state means send again,
//! other bytes mean conflict. No third answer goes up before the budget ends.

mod settle;
mod streams;
mod tries;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::error::{Error, Result};
use crate::ids::{Digest, RunId};
use crate::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, MAX_BYTES, Object, Prefix, PutObjects,
    PutOutcome, Store, StoreHealth, StoreInfo, Version,
};
pub use tries::RetryPolicy;
use tries::{Tries, is_transient};

/// The layer; see the module.
pub struct Retry {
    inner: Arc<dyn Store>,
    policy: RetryPolicy,
    /// Where this handle's last append to a run ended: what settling starts from.
    ends: Mutex<HashMap<RunId, Ends>>,
}

#[derive(Clone, Copy, Default)]
struct Ends {
    event: Option<u64>,
    offset: Option<u64>,
}

impl Retry {
    /// Repeats what `inner` fails to do.
    pub fn new(inner: Arc<dyn Store>, policy: RetryPolicy) -> Self {
        Self { inner, policy, ends: Mutex::default() }
    }

    fn tries(&self, what: impl Into<String>) -> Tries<'_> {
        Tries::new(&self.policy, what.into())
    }

    /// Repeats what may be repeated.
    async fn repeat<T, F>(&self, what: String, bytes: usize, work: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut tries = self.tries(what);
        loop {
            match tries.attempt(bytes, work()).await {
                Ok(done) => return Ok(done),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    /// Repeats the items of a batch that failed in a way that may pass. `split` takes
    /// an answer apart, `fail` makes the answer of a failed item.
    async fn batch<I: Clone, T, F>(
        &self,
        what: String,
        items: Vec<(I, usize)>,
        split: impl Fn(T) -> Result<T>,
        fail: impl Fn(Error) -> T,
        work: impl Fn(Vec<I>) -> F,
    ) -> Result<Vec<T>>
    where
        F: Future<Output = Result<Vec<T>>>,
    {
        let mut tries = self.tries(what);
        let mut slots: Vec<Option<T>> = items.iter().map(|_| None).collect();
        let mut todo: Vec<usize> = (0..items.len()).collect();
        loop {
            let bytes = todo.iter().map(|i| items[*i].1).sum();
            let now = todo.iter().map(|i| items[*i].0.clone()).collect();
            let failed = match tries.attempt(bytes, work(now)).await {
                Err(e) => e,
                Ok(answers) => {
                    let mut last = None;
                    for (i, answer) in std::mem::take(&mut todo).into_iter().zip(answers) {
                        match split(answer) {
                            Ok(done) => slots[i] = Some(done),
                            Err(e) if is_transient(&e) => {
                                todo.push(i);
                                last = Some(e);
                            }
                            Err(e) => slots[i] = Some(fail(e)),
                        }
                    }
                    match last {
                        Some(e) => e,
                        None => return Ok(slots.into_iter().flatten().collect()),
                    }
                }
            };
            if let Err(e) = tries.again(failed).await {
                if todo.len() == items.len() {
                    return Err(e);
                }
                // The rest of the batch is done and is reported as done.
                for i in todo {
                    slots[i] = Some(fail(Error::new(e.kind(), e.code(), e.message())));
                }
                return Ok(slots.into_iter().flatten().collect());
            }
        }
    }
}

#[async_trait]
impl Store for Retry {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.repeat("health".into(), 0, || self.inner.health()).await
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        let what = format!("put of {} objects", batch.len());
        let items = batch.into_iter().map(|o| (o.clone(), o.bytes().len())).collect();
        let split = |outcome| match outcome {
            PutOutcome::Failed(e) => Err(e),
            done => Ok(done),
        };
        let work = |now| self.inner.put_objects(now, mode);
        self.batch(what, items, split, PutOutcome::Failed, work).await
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        let what = format!("get of object {digest}");
        self.repeat(what, MAX_BYTES, || self.inner.get_object(digest)).await
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let what = format!("get of {} objects", batch.len());
        let items = batch.iter().map(|d| (*d, MAX_BYTES)).collect();
        let split = |answer: Result<Bytes>| answer.map(Ok);
        let work = |now: Vec<Digest>| async move { self.inner.get_objects(&now).await };
        self.batch(what, items, split, Err, work).await
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let what = format!("look for {} objects", batch.len());
        self.repeat(what, batch.len() * 40, || self.inner.contains(batch)).await
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.object_rows()
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        let what = format!("delete of {} objects", batch.len());
        let items = batch.iter().map(|d| (*d, 40)).collect();
        let split = |outcome| match outcome {
            DeleteOutcome::Failed(e) => Err(e),
            done => Ok(done),
        };
        let work = |now: Vec<Digest>| async move { self.inner.delete_objects(&now).await };
        self.batch(what, items, split, DeleteOutcome::Failed, work).await
    }
    async fn flush(&self) -> Result<()> {
        self.repeat("flush".into(), 0, || self.inner.flush()).await
    }
    async fn maintain(&self) -> Result<()> {
        self.repeat("maintain".into(), 0, || self.inner.maintain()).await
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        self.repeat(format!("get {key}"), MAX_BYTES, || self.inner.get(key)).await
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        self.settled_put(key, body, expect, fence).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.settled_delete(key, version).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        self.document_rows(prefix.clone())
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.settled_events(run, events, fence).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.event_rows(run.clone(), from, false)
    }
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        let what = format!("look at the events of run {run}");
        self.repeat(what, 0, || self.inner.events_end(run)).await
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.event_rows(run.clone(), from, true)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.settled_log(run, offset, bytes, fence).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let what = format!("read of the log of run {run}");
        self.repeat(what, MAX_BYTES, || self.inner.read_log(run, from, to)).await
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.log_rows(run.clone(), from)
    }

    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.repeat(format!("look at lock {name}"), 0, || self.inner.lock_holder(name)).await
    }
    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        let mut tries = self.tries(format!("lock {}", request.name));
        loop {
            // Waiting for a lock is no stall, so it has no limit of its own here.
            match self.inner.lock(request.clone()).await {
                Ok(guard) => return Ok(guard),
                Err(e) => {
                    tries.count();
                    tries.again(e).await?;
                }
            }
        }
    }
}
