//! Two stores as one: objects in one, everything else, the `objects` lock included, in
//! the other. An error says which half it comes from.

use std::sync::Arc;

use async_trait::async_trait;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};

use crate::s3::S3Store;

/// A pair of stores.
pub(crate) struct Composite {
    pub(crate) documents: Arc<dyn Store>,
    pub(crate) objects: Arc<dyn Store>,
    /// The objects half when it remembers what it looked up.
    pub(crate) remembers: Option<Arc<S3Store>>,
}

impl Composite {
    fn of_objects(&self, e: Error) -> Error {
        e.context(format!("objects store {}", self.objects.info().url))
    }
}

#[async_trait]
impl Store for Composite {
    fn info(&self) -> StoreInfo {
        let (documents, objects) = (self.documents.info(), self.objects.info());
        StoreInfo {
            url: format!("{} with objects in {}", documents.url, objects.url),
            kind: "composite",
            store_id: documents.store_id,
            local_dir: documents.local_dir.or(objects.local_dir),
        }
    }
    async fn health(&self) -> Result<StoreHealth> {
        let objects = self.objects.health().await.map_err(|e| self.of_objects(e))?;
        let documents = self.documents.health().await?;
        Ok(StoreHealth {
            free_bytes: objects.free_bytes.or(documents.free_bytes),
            total_bytes: objects.total_bytes.or(documents.total_bytes),
            volatile: objects.volatile || documents.volatile,
            now_ns: documents.now_ns,
        })
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        let done = self.objects.put_objects(batch, mode).await.map_err(|e| self.of_objects(e))?;
        let named = |outcome| match outcome {
            PutOutcome::Failed(e) => PutOutcome::Failed(self.of_objects(e)),
            done => done,
        };
        Ok(done.into_iter().map(named).collect())
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        self.objects.get_object(digest).await.map_err(|e| self.of_objects(e))
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let got = self.objects.get_objects(batch).await.map_err(|e| self.of_objects(e))?;
        Ok(got.into_iter().map(|one| one.map_err(|e| self.of_objects(e))).collect())
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        self.objects.contains(batch).await.map_err(|e| self.of_objects(e))
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        self.objects.list_objects().map(|row| row.map_err(|e| self.of_objects(e))).boxed()
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.objects.delete_objects(batch).await.map_err(|e| self.of_objects(e))
    }
    async fn flush(&self) -> Result<()> {
        self.objects.flush().await.map_err(|e| self.of_objects(e))?;
        self.documents.flush().await
    }
    async fn maintain(&self) -> Result<()> {
        self.objects.maintain().await.map_err(|e| self.of_objects(e))?;
        self.documents.maintain().await
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        self.documents.get(key).await
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        self.documents.put(key, body, expect, fence).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        self.documents.delete(key, version).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        self.documents.list(prefix)
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.documents.append_events(run, events, fence).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.documents.read_events(run, from)
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.documents.follow_events(run, from)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        self.documents.append_log(run, offset, bytes, fence).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        self.documents.read_log(run, from, to).await
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        self.documents.follow_log(run, from)
    }

    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        let objects = request.name == LockName::Objects;
        let guard = self.documents.lock(request).await?;
        if let (true, Some(half)) = (objects, &self.remembers) {
            half.doubt();
        }
        Ok(guard)
    }
    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.documents.lock_holder(name).await
    }
}
