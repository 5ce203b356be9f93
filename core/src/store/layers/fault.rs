//! Makes a store fail on purpose: before or after the effect, late, or with listing
//! pages cut or repeated. Seeded, so a failing run can be had again. With nothing armed
//! it is transparent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};

use super::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{Digest, RunId};
use crate::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and did nothing.
    Before,
    /// The call does its work and its answer is lost.
    After,
    /// The call does its work and answers a refusal, as a store does that repeats a
    /// conditional write by itself.
    AfterConflict,
    /// The call is held up first.
    Delay(Duration),
    /// Item `.0` of a batch fails, the others go through.
    Item(usize),
    /// A listing ends with an error behind this many rows.
    Cut(usize),
    /// A listing gives its first rows, this many, twice.
    Repeat(usize),
}

/// Which calls a fault meets.
#[derive(Clone, Debug)]
struct Rule {
    call: Call,
    /// Calls of this kind to let through first.
    skip: u64,
    /// Calls of this kind to meet then.
    times: u64,
    fault: Fault,
}

/// The layer; see the module.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    rules: Vec<Rule>,
    random: Option<Random>,
    met: u64,
}

struct Random {
    state: u64,
    per_mille: u64,
}

impl Random {
    /// splitmix64: any seed is a good one.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn draw(&mut self, listing: bool) -> Option<Fault> {
        if self.next() % 1000 >= self.per_mille {
            return None;
        }
        let rows = (self.next() % 10) as usize;
        Some(match (listing, self.next() % 3) {
            (true, 0) => Fault::Cut(rows),
            (true, 1) => Fault::Repeat(rows + 1),
            (_, 0 | 2) => Fault::Before,
            (true, _) => Fault::Before,
            (false, _) => Fault::After,
        })
    }
}

impl FaultStore {
    /// Wraps `inner`, nothing armed.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// Arms `fault` for the `nth` next call of a kind, counted from 1.
    pub fn arm(&self, call: Call, nth: u64, fault: Fault) {
        self.arm_times(call, nth, 1, fault);
    }

    /// Arms `fault` for `times` calls of a kind from the `nth` next one on.
    pub fn arm_times(&self, call: Call, nth: u64, times: u64, fault: Fault) {
        let rule = Rule { call, skip: nth.saturating_sub(1), times, fault };
        self.plan().rules.push(rule);
    }

    /// Lets `per_mille` of all calls fail before or after their effect, by chance from
    /// `seed`. Print the seed when a test fails: the same seed gives the same draws.
    pub fn arm_random(&self, seed: u64, per_mille: u64) {
        self.plan().random = Some(Random { state: seed, per_mille });
    }

    /// Disarms everything.
    pub fn disarm(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.random = None;
    }

    /// How many calls met a fault so far.
    pub fn met(&self) -> u64 {
        self.plan().met
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The fault that the next call of this kind meets.
    fn meet(&self, call: Call) -> Option<Fault> {
        let mut plan = self.plan();
        let mut met = None;
        for rule in plan.rules.iter_mut().filter(|r| r.call == call) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 && met.is_none() {
                rule.times -= 1;
                met = Some(rule.fault.clone());
            }
        }
        plan.rules.retain(|r| r.times > 0);
        let listing = matches!(call, Call::List | Call::ListObjects);
        let met = met.or_else(|| plan.random.as_mut()?.draw(listing));
        plan.met += u64::from(met.is_some());
        met
    }

    /// Runs a call under the fault it meets.
    async fn run<T: Send>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let fault = self.meet(call);
        self.under(call, fault, work).await
    }

    async fn under<T: Send>(
        &self,
        call: Call,
        fault: Option<Fault>,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match fault {
            Some(Fault::Before) => Err(lost(call, "before")),
            Some(Fault::After) => {
                work.await?;
                Err(lost(call, "after"))
            }
            Some(Fault::AfterConflict) => {
                work.await?;
                let message = format!("injected refusal after {call}");
                Err(Error::new(Kind::Conflict, "conflict", message))
            }
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                work.await
            }
            _ => work.await,
        }
    }

    fn rows<'a, T: Clone + Send + 'a>(
        &self,
        call: Call,
        rows: BoxStream<'a, Result<T>>,
    ) -> BoxStream<'a, Result<T>> {
        match self.meet(call) {
            Some(Fault::Before | Fault::After | Fault::AfterConflict) => {
                stream::iter([Err(lost(call, "before"))]).boxed()
            }
            Some(Fault::Delay(time)) => {
                let late = stream::once(tokio::time::sleep(time)).filter_map(async |()| None);
                late.chain(rows).boxed()
            }
            Some(Fault::Cut(n)) => {
                rows.take(n).chain(stream::iter([Err(lost(call, "in the middle of"))])).boxed()
            }
            Some(Fault::Repeat(n)) => stream::once(async move {
                let mut rows = rows;
                let first: Vec<Result<T>> = rows.by_ref().take(n).collect().await;
                let again: Vec<Result<T>> = first.iter().flatten().cloned().map(Ok).collect();
                stream::iter(first).chain(stream::iter(again)).chain(rows)
            })
            .flatten()
            .boxed(),
            Some(Fault::Item(_)) | None => rows,
        }
    }
}

/// The error of an injected fault. It never says whether the work was done: a caller
/// that trusts such a word would not survive a real network.
fn lost(call: Call, when: &str) -> Error {
    Error::unavailable(format!("injected failure {when} {call}"))
        .with_kind(Kind::Unavailable { maybe_applied: true })
}

#[async_trait]
impl Store for FaultStore {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.run(Call::Health, self.inner.health()).await
    }

    async fn put_objects(
        &self,
        mut batch: Vec<Object>,
        mode: PutObjects,
    ) -> Result<Vec<PutOutcome>> {
        let fault = self.meet(Call::PutObjects);
        let failing = match fault {
            Some(Fault::Item(n)) if n < batch.len() => Some((n, batch.remove(n))),
            _ => None,
        };
        let work = self.inner.put_objects(batch, mode);
        let mut out = self.under(Call::PutObjects, fault, work).await?;
        if let Some((n, object)) = failing {
            let e = lost(Call::PutObjects, "of an item of");
            out.insert(n, PutOutcome::Failed(e.with_detail("digest", object.digest().hex())));
        }
        Ok(out)
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        self.run(Call::GetObjects, self.inner.get_object(digest)).await
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let fault = self.meet(Call::GetObjects);
        let item = match fault {
            Some(Fault::Item(n)) => Some(n),
            _ => None,
        };
        let work = self.inner.get_objects(batch);
        let mut out = self.under(Call::GetObjects, fault, work).await?;
        if let Some(slot) = item.and_then(|n| out.get_mut(n)) {
            *slot = Err(lost(Call::GetObjects, "of an item of"));
        }
        Ok(out)
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        self.run(Call::Contains, self.inner.contains(batch)).await
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.rows(Call::ListObjects, self.inner.list_objects())
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        let fault = self.meet(Call::DeleteObjects);
        let item = match fault {
            Some(Fault::Item(n)) if n < batch.len() => Some(n),
            _ => None,
        };
        let mut batch = batch.to_vec();
        if let Some(n) = item {
            batch.remove(n);
        }
        let work = self.inner.delete_objects(&batch);
        let mut out = self.under(Call::DeleteObjects, fault, work).await?;
        if let Some(n) = item {
            out.insert(n, DeleteOutcome::Failed(lost(Call::DeleteObjects, "of an item of")));
        }
        Ok(out)
    }
    async fn flush(&self) -> Result<()> {
        self.run(Call::Flush, self.inner.flush()).await
    }
    async fn maintain(&self) -> Result<()> {
        self.run(Call::Maintain, self.inner.maintain()).await
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        self.run(Call::Get, self.inner.get(key)).await
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        self.run(Call::Put, self.inner.put(key, body, expect, fence)).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.run(Call::Delete, self.inner.delete(key, version)).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        self.rows(Call::List, self.inner.list(prefix))
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.run(Call::AppendEvents, self.inner.append_events(run, events, fence)).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.rows(Call::ReadEvents, self.inner.read_events(run, from))
    }
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        self.run(Call::ReadEvents, self.inner.events_end(run)).await
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.rows(Call::FollowEvents, self.inner.follow_events(run, from))
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.run(Call::AppendLog, self.inner.append_log(run, offset, bytes, fence)).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        self.run(Call::ReadLog, self.inner.read_log(run, from, to)).await
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.rows(Call::FollowLog, self.inner.follow_log(run, from))
    }

    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.run(Call::LockHolder, self.inner.lock_holder(name)).await
    }
    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        self.run(Call::Lock, self.inner.lock(request)).await
    }
}
