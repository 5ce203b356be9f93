//! Documents: the keys of the local store, If-None-Match to create and If-Match to
//! replace. The ETag is the version: no two bodies of a mutable document are equal.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::docs::{absent, check_body, conflict, deleted, token_of};
use backtrail_core::store::{DocKey, Document, Expect, Fence, LockName, Version};
use bytes::Bytes;
use futures::future::try_join;

use super::{Inner, refused};

/// Documents of which the token is remembered.
const REMEMBERED: usize = 4_096;

/// The fencing tokens of documents as this handle last saw them.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<DocKey, (Version, Option<u64>)>>);

impl Known {
    fn all(&self) -> MutexGuard<'_, HashMap<DocKey, (Version, Option<u64>)>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn saw(&self, key: &DocKey, version: &Version, body: &[u8]) {
        let mut all = self.all();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        // Only documents of runs are fenced.
        if key.run().is_some() {
            all.insert(key.clone(), (version.clone(), token_of(body)));
        }
    }

    fn token(&self, key: &DocKey, version: &Version) -> Option<Option<u64>> {
        self.all().get(key).filter(|(v, _)| v == version).map(|(_, token)| *token)
    }
}

impl Inner {
    async fn look(&self, key: &DocKey) -> Result<Option<Document>> {
        let Some(got) = self.bucket.get(&key.to_string()).await? else { return Ok(None) };
        let version = Version(got.meta.etag);
        self.known.saw(key, &version, &got.bytes);
        Ok(Some(Document { body: got.bytes, version }))
    }

    pub(super) async fn get_document(&self, key: &DocKey) -> Result<Document> {
        self.look(key).await?.ok_or_else(|| absent(key))
    }

    pub(super) async fn put_document(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: &Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        check_body(key, &body)?;
        self.check_fence(fence)?;
        self.check_place(key, fence).await?;
        if let DocKey::Run(run) = key {
            // The head comes first, so that no run is ever without one.
            if !matches!(expect, Expect::Version(_)) {
                self.heads.make(run).await?;
            }
            if let Some(token) = token_of(&body) {
                self.heads.raise(run, token).await?;
            }
        }
        let version = match fence {
            Some(fence) => self.put_fenced(key, &body, expect, fence).await?,
            None => self.write(key, &body, expect, None).await?,
        };
        self.known.saw(key, &version, &body);
        if let DocKey::RunTombstone(run) = key {
            self.heads.mark_deleted(run).await?;
        }
        Ok(version)
    }

    /// Refuses a write below a run that does not exist or was deleted (CLD-D10). Who
    /// holds the run's guard is not asked: deletion takes that first.
    async fn check_place(&self, key: &DocKey, fence: Option<&Fence>) -> Result<()> {
        let Some(run) = key.run() else { return Ok(()) };
        if fence.is_some_and(|f| f.lock == LockName::Run(run.clone())) {
            return Ok(());
        }
        match key {
            DocKey::Run(_) if self.is_deleted(run).await? => Err(deleted(run, true)),
            DocKey::Run(_) => Ok(()),
            _ => self.check_run(run).await,
        }
    }

    pub(super) async fn is_deleted(&self, run: &RunId) -> Result<bool> {
        let key = DocKey::RunTombstone(run.clone()).to_string();
        Ok(self.bucket.head(&key).await?.is_some())
    }

    /// Fails with `NotFound`, or `deleted`, unless the run is there to be written to.
    pub(super) async fn check_run(&self, run: &RunId) -> Result<()> {
        let key = DocKey::Run(run.clone()).to_string();
        match try_join(self.is_deleted(run), self.bucket.head(&key)).await? {
            (true, _) => Err(deleted(run, false)),
            (false, Some(_)) => Ok(()),
            (false, None) => Err(Error::not_found(format!("run {run} is not in the store"))),
        }
    }

    /// A write that must not pass a newer token in what it replaces (CLD-D9).
    async fn put_fenced(
        &self,
        key: &DocKey,
        body: &Bytes,
        expect: &Expect,
        fence: &Fence,
    ) -> Result<Version> {
        let text = key.to_string();
        match expect {
            Expect::Absent => self.write(key, body, expect, Some(fence)).await,
            Expect::Version(version) => {
                let token = match self.known.token(key, version) {
                    Some(token) => token,
                    None => self.look(key).await?.and_then(|doc| token_of(&doc.body)),
                };
                fence.check(&text, token)?;
                self.write(key, body, expect, Some(fence)).await
            }
            Expect::Any => loop {
                let there = self.look(key).await?;
                if let Some(doc) = &there {
                    fence.check(&text, token_of(&doc.body))?;
                }
                let at = there.map_or(Expect::Absent, |doc| Expect::Version(doc.version));
                match self.bucket.put(&text, body.clone(), &at).await {
                    Err(e) if refused(&e) => {}
                    done => return done,
                }
            },
        }
    }

    /// Writes; a refusal names what is there.
    async fn write(
        &self,
        key: &DocKey,
        body: &Bytes,
        expect: &Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        let text = key.to_string();
        let e = match self.bucket.put(&text, body.clone(), expect).await {
            Err(e) if refused(&e) => e,
            done => return done,
        };
        // Whether that was our own earlier try is for the retry layer to find out.
        let Ok(there) = self.look(key).await else { return Err(e) };
        if let (Some(fence), Some(doc)) = (fence, &there) {
            fence.check(&text, token_of(&doc.body))?;
        }
        Err(conflict(key, there.map(|doc| doc.version).as_ref()))
    }

    pub(super) async fn delete_document(
        &self,
        key: &DocKey,
        version: Option<&Version>,
    ) -> Result<()> {
        let text = key.to_string();
        match version {
            None => self.bucket.delete(&text).await?,
            Some(version) => {
                // Not every server knows a condition here, so it is looked at as well.
                let there = self.bucket.head(&text).await?.map(|meta| Version(meta.etag));
                if there.as_ref() != Some(version) {
                    return Err(conflict(key, there.as_ref()));
                }
                match self.bucket.delete_at(&text, Some(version)).await {
                    Err(e) if refused(&e) || e.is_not_found() => return Err(conflict(key, None)),
                    done => done?,
                }
            }
        }
        self.known.all().remove(key);
        match key {
            DocKey::Run(run) if self.is_deleted(run).await? => self.finish_run(run).await,
            _ => Ok(()),
        }
    }

    /// Removes what a deleted run still has beside documents; the head goes last, so
    /// that a late append finds it marked until there is nothing left.
    async fn finish_run(&self, run: &RunId) -> Result<()> {
        let mut keys = Vec::new();
        for dir in ["events", "log"] {
            let rows = self.bucket.list(&format!("runs/{run}/{dir}/")).await?;
            keys.extend(rows.into_iter().map(|row| row.key));
        }
        for done in self.bucket.delete_many(&keys).await? {
            done?;
        }
        self.heads.remove(run).await
    }
}
