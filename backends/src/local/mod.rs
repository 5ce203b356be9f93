//! The local store: objects, documents, logs and locks as files below one directory.
//! Its layout is the reference for every other backend.

mod barrier;
mod deferred;
mod documents;
mod events;
mod fs;
mod handle;
mod holders;
mod listing;
mod locks;
mod objects;
mod publish;
mod runlog;
#[cfg(test)]
mod tests;

pub use holders::holders;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::store::{
    DeleteOutcome, DocKey, Document, EventRecord, Expect, Fence, Guard, Holder, Listed,
    ListedObject, LockName, LockRequest, LogPart, Object, Prefix, PutObjects, PutOutcome, Store,
    StoreHealth, StoreInfo, Version,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};

use crate::open::OpenOptions;
use handle::{Handle, locked};

/// How often a follower looks for more.
const FOLLOW_POLL: Duration = Duration::from_millis(100);
/// How much of a run log a follower hands on at once.
const FOLLOW_BYTES: u64 = 1 << 20;

/// A store in a directory. Opening it touches nothing: the first write creates it.
pub struct LocalStore(Arc<Handle>);

/// Runs `work` where blocking is allowed: one crossing for a whole operation.
async fn blocking<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => match e.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::unavailable("the store was shut down")),
        },
    }
}

impl LocalStore {
    /// A handle on the store at `path`.
    pub fn new(path: impl Into<PathBuf>, options: OpenOptions) -> Self {
        Self(Arc::new(Handle::new(path.into(), options)))
    }

    /// A directory for the locks of this host alone, for stores that lie elsewhere.
    pub fn for_locks(path: impl Into<PathBuf>, options: OpenOptions) -> Self {
        let mut handle = Handle::new(path.into(), options);
        handle.locks_only = true;
        Self(Arc::new(handle))
    }

    /// Creates the store with its marker when it is not there.
    pub async fn init(&self) -> Result<()> {
        self.run(|h| h.write().map(drop)).await
    }

    /// Whether the store exists; learns its id, creates nothing.
    pub async fn exists(&self) -> Result<bool> {
        self.run(Handle::look).await
    }

    async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Handle) -> Result<T> + Send + 'static,
    {
        let handle = self.0.clone();
        blocking(move || work(&handle)).await
    }
}

#[async_trait]
impl Store for LocalStore {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }
    async fn health(&self) -> Result<StoreHealth> {
        self.run(Handle::health).await
    }

    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.run(move |h| h.put_objects(&batch, mode)).await
    }
    async fn get_object(&self, digest: &Digest) -> Result<Bytes> {
        let digest = *digest;
        self.run(move |h| h.get_object(h.read()?.as_ref(), &digest)).await
    }
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let batch = batch.to_vec();
        self.run(move |h| {
            let root = h.read()?;
            Ok(batch.iter().map(|d| h.get_object(root.as_ref(), d)).collect())
        })
        .await
    }
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let batch = batch.to_vec();
        self.run(move |h| h.contains(&batch)).await
    }
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        // One step a fan-out directory, then what lies beside them.
        stream::iter(0..=256_u32)
            .then(|step| {
                self.run(move |h| match step {
                    256 => h.list_odd(),
                    fan => h.list_fan(&format!("{fan:02x}")),
                })
            })
            .flat_map(|rows| match rows {
                Ok(rows) => stream::iter(rows.into_iter().map(Ok)).left_stream(),
                Err(e) => stream::iter([Err(e)]).right_stream(),
            })
            .boxed()
    }
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        let batch = batch.to_vec();
        self.run(move |h| {
            if h.read()?.is_none() {
                return Ok(batch.iter().map(|_| DeleteOutcome::Absent).collect());
            }
            let root = h.write()?;
            // What a barrier is about to name must not come back after we answered.
            let _barrier = locked(&h.barrier);
            let delete = |d| h.delete_one(Some(&root), d).unwrap_or_else(DeleteOutcome::Failed);
            Ok(batch.iter().map(delete).collect())
        })
        .await
    }
    async fn flush(&self) -> Result<()> {
        self.run(Handle::flush).await
    }
    async fn maintain(&self) -> Result<()> {
        self.run(Handle::sweep).await?;
        self.run(Handle::sweep_runs).await
    }

    async fn get(&self, key: &DocKey) -> Result<Document> {
        let key = key.clone();
        self.run(move |h| h.get_document(&key)).await
    }
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        let (key, fence) = (key.clone(), fence.cloned());
        self.run(move |h| h.put_document(&key, &body, &expect, fence.as_ref())).await
    }
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        let (key, version) = (key.clone(), version.cloned());
        self.run(move |h| h.delete_document(&key, version.as_ref())).await
    }
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        let prefix = prefix.clone();
        stream::once(self.run(move |h| h.list_documents(&prefix)))
            .flat_map(|rows| match rows {
                Ok(rows) => stream::iter(rows.into_iter().map(Ok)).left_stream(),
                Err(e) => stream::iter([Err(e)]).right_stream(),
            })
            .boxed()
    }

    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        let (run, fence) = (run.clone(), fence.cloned());
        self.run(move |h| h.append_events(&run, &events, fence.as_ref())).await
    }
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.event_stream(events::Reader::new(run.clone(), from), false)
    }
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        let run = run.clone();
        self.run(move |h| h.events_end(&run)).await
    }
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>> {
        self.event_stream(events::Reader::new(run.clone(), from), true)
    }
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64> {
        let (run, fence) = (run.clone(), fence.cloned());
        self.run(move |h| h.append_log(&run, offset, &bytes, fence.as_ref())).await
    }
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let run = run.clone();
        self.run(move |h| h.read_log(&run, from, to)).await
    }
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        let run = run.clone();
        let step = move |at: Option<u64>| {
            let run = run.clone();
            async move {
                let mut at = at?;
                loop {
                    match self.read_log(&run, at, at.saturating_add(FOLLOW_BYTES)).await {
                        Err(e) => return Some((vec![Err(e)], None)),
                        Ok(parts) if parts.is_empty() => tokio::time::sleep(FOLLOW_POLL).await,
                        Ok(parts) => {
                            at = parts.last().map_or(at, LogPart::end);
                            return Some((parts.into_iter().map(Ok).collect(), Some(at)));
                        }
                    }
                }
            }
        };
        stream::unfold(Some(from), step).flat_map(stream::iter).boxed()
    }

    async fn lock(&self, request: LockRequest) -> Result<Guard> {
        self.take_lock(request).await
    }
    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let name = name.clone();
        self.run(move |h| h.lock_holder(&name)).await
    }
}

impl LocalStore {
    /// Events as they are read; a follower waits for more at the end.
    fn event_stream(
        &self,
        reader: events::Reader,
        follow: bool,
    ) -> BoxStream<'_, Result<EventRecord>> {
        let next = move |reader: Option<events::Reader>| async move {
            let mut reader = reader?;
            loop {
                let stepped = self.run(move |h| {
                    let step = reader.step(h);
                    Ok((reader, step))
                });
                let step;
                (reader, step) = match stepped.await {
                    Ok(done) => done,
                    Err(e) => return Some((vec![Err(e)], None)),
                };
                let step = match step {
                    Ok(step) => step,
                    Err(e) => return Some((vec![Err(e)], None)),
                };
                let mut rows: Vec<Result<EventRecord>> = step.events.into_iter().map(Ok).collect();
                if step.at_end && !follow {
                    // What could be read comes before the verdict.
                    rows.extend(reader.verdict().err().map(Err));
                    return Some((rows, None));
                }
                if !rows.is_empty() {
                    return Some((rows, Some(reader)));
                }
                if step.at_end {
                    tokio::time::sleep(FOLLOW_POLL).await;
                }
            }
        };
        stream::unfold(Some(reader), next).flat_map(stream::iter).boxed()
    }
}

impl Handle {
    /// Free space, clock, and whether a reboot loses the store.
    fn health(&self) -> Result<StoreHealth> {
        use rustix::fs as rfs;
        // A store that does not exist yet will lie where its nearest parent lies.
        let place = self.path.ancestors().find(|p| fs::exists(p)).unwrap_or(&self.path);
        let failed = |e: rustix::io::Errno| {
            Error::store_io(format!("failed to look at {}", place.display()), e.into())
        };
        let space = rfs::statvfs(place).map_err(failed)?;
        let now = i64::try_from(fs::file_clock().as_nanos()).unwrap_or(i64::MAX);
        Ok(StoreHealth {
            free_bytes: Some(space.f_bavail.saturating_mul(space.f_frsize)),
            total_bytes: Some(space.f_blocks.saturating_mul(space.f_frsize)),
            volatile: is_volatile(place)?,
            now_ns: Some(now),
        })
    }
}

/// True on a file system that lives in memory.
#[cfg(target_os = "linux")]
fn is_volatile(place: &std::path::Path) -> Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let stat = rustix::fs::statfs(place)
        .map_err(|e| Error::store_io(format!("failed to look at {}", place.display()), e.into()))?;
    let kind = u64::try_from(stat.f_type).unwrap_or(0) & 0xffff_ffff;
    Ok(kind == TMPFS || kind == RAMFS)
}

#[cfg(not(target_os = "linux"))]
fn is_volatile(_: &std::path::Path) -> Result<bool> {
    Ok(false)
}
