//! The stream head of a run: `runs/<run>/head.json`. An append first reserves its place
//! here by one conditional update, then writes create-only at that place. A newer token
//! in the head cuts off every older holder, and a head that is gone or marked deleted
//! refuses every append, at no extra request (CLD-D10, L7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backtrail_core::clock::IdSource;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::docs::deleted;
use backtrail_core::store::{Expect, Fence, Version};
use serde::{Deserialize, Serialize};

use super::{Small, parsed, settle, stamped};

/// Times a head that others write to is tried before the caller is told.
const TRIES: u32 = 60;

/// What a head says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The newest token that wrote anything.
    pub token: u64,
    /// The next event number.
    pub next_seq: u64,
    /// Where the log ends, reserved bytes included.
    pub log_size: u64,
    /// Stretches reserved and given up, `[offset, length]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<(u64, u64)>,
    /// The run has a tombstone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Writes so far.
    pub cas_version: u64,
}

type Known = Arc<tokio::sync::Mutex<Option<(Version, Head)>>>;

/// The heads of a store, as this handle last saw them.
pub struct Heads {
    small: Arc<dyn Small>,
    ids: Arc<dyn IdSource>,
    known: Mutex<HashMap<RunId, Known>>,
}

/// The key of a run's head.
pub fn key_of(run: &RunId) -> String {
    format!("runs/{run}/head.json")
}

impl Heads {
    /// Heads over `small`.
    pub fn new(small: Arc<dyn Small>, ids: Arc<dyn IdSource>) -> Self {
        Self { small, ids, known: Mutex::default() }
    }

    fn known(&self, run: &RunId) -> Known {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        known.entry(run.clone()).or_default().clone()
    }

    async fn read(&self, run: &RunId) -> Result<Option<(Version, Head)>> {
        let key = key_of(run);
        let Some(found) = self.small.read(&key).await? else { return Ok(None) };
        Ok(Some((found.version, parsed(&key, &found.body)?)))
    }

    /// The head as it is now; `None` when there is none.
    pub async fn now(&self, run: &RunId) -> Result<Option<Head>> {
        Ok(self.read(run).await?.map(|(_, head)| head))
    }

    /// Where the log of a run ends at least; 0 without a head.
    pub async fn size(&self, run: &RunId) -> Result<u64> {
        let known = self.known(run);
        let mut known = known.lock().await;
        if known.is_none() {
            *known = self.read(run).await?;
        }
        Ok(known.as_ref().map_or(0, |(_, head)| head.log_size))
    }

    /// Gives a new run its head. One that a deleted run of this id left is replaced.
    pub async fn make(&self, run: &RunId) -> Result<()> {
        let known = self.known(run);
        let mut known = known.lock().await;
        let mut expect = Expect::Absent;
        for _ in 0..TRIES {
            let head = Head { cas_version: 1, ..Head::default() };
            let key = key_of(run);
            let body = stamped(&*self.ids, &key, &head)?;
            if let Some(version) = settle(&*self.small, &key, &body, &expect).await? {
                *known = Some((version, head));
                return Ok(());
            }
            match self.read(run).await? {
                Some((version, head)) if head.deleted => expect = Expect::Version(version),
                Some(found) => {
                    *known = Some(found);
                    return Ok(());
                }
                None => expect = Expect::Absent,
            }
        }
        Err(contended(run))
    }

    /// Changes the head under `fence`. `None` when the run has no head. `change` may be
    /// called again on a newer head; what it gives of the last call is given back.
    pub async fn update<T>(
        &self,
        run: &RunId,
        fence: Option<&Fence>,
        change: impl Fn(&mut Head) -> Result<T>,
    ) -> Result<Option<T>> {
        let known = self.known(run);
        let mut known = known.lock().await;
        for tried in 0..TRIES {
            let cached = known.take();
            let remembered = cached.is_some();
            let current = match cached {
                Some(current) => Some(current),
                None => self.read(run).await?,
            };
            let Some((version, mut head)) = current else { return Ok(None) };
            let before = head.clone();
            if head.deleted {
                return Err(deleted(run, false));
            }
            if let Some(fence) = fence {
                fence.check(&format!("run {run}"), Some(head.token))?;
                head.token = head.token.max(fence.token);
            }
            let done = change(&mut head)?;
            if head == before && remembered {
                // Nothing will be written that could be refused, so it is read again.
                continue;
            }
            if head == before {
                *known = Some((version, head));
                return Ok(Some(done));
            }
            head.cas_version += 1;
            let key = key_of(run);
            let body = stamped(&*self.ids, &key, &head)?;
            if let Some(version) =
                settle(&*self.small, &key, &body, &Expect::Version(version)).await?
            {
                *known = Some((version, head));
                return Ok(Some(done));
            }
            self.pause(tried).await?;
        }
        Err(contended(run))
    }

    /// [`Heads::update`] on a run that must be there, as `there` tells: one without a head
    /// gets one.
    pub async fn reserve<T>(
        &self,
        run: &RunId,
        fence: Option<&Fence>,
        change: impl Fn(&mut Head) -> Result<T>,
        there: impl Future<Output = Result<()>>,
    ) -> Result<T> {
        if let Some(done) = self.update(run, fence, &change).await? {
            return Ok(done);
        }
        there.await?;
        self.make(run).await?;
        let gone = || Error::not_found(format!("run {run} is not in the store"));
        self.update(run, fence, &change).await?.ok_or_else(gone)
    }

    /// Cuts off every holder older than `token`. Nothing happens without a head.
    pub async fn raise(&self, run: &RunId, token: u64) -> Result<()> {
        let known = self.known(run);
        if known.lock().await.as_ref().is_some_and(|(_, head)| head.token >= token) {
            return Ok(());
        }
        self.update(run, None, |head| {
            head.token = head.token.max(token);
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Refuses every later append. Nothing happens without a head.
    pub async fn mark_deleted(&self, run: &RunId) -> Result<()> {
        let marked = self.update(run, None, |head| {
            head.deleted = true;
            Ok(())
        });
        match marked.await {
            Err(e) if e.code() == "deleted" => Ok(()),
            done => done.map(drop),
        }
    }

    /// Removes the head, behind everything else of a deleted run.
    pub async fn remove(&self, run: &RunId) -> Result<()> {
        let known = self.known(run);
        let mut known = known.lock().await;
        *known = None;
        self.small.remove(&key_of(run)).await
    }

    /// A little, and longer the more often others were faster.
    async fn pause(&self, tried: u32) -> Result<()> {
        let mut byte = [0];
        self.ids.fill(&mut byte)?;
        let most = Duration::from_millis(10 << tried.min(5));
        tokio::time::sleep(most * u32::from(byte[0]) / 255).await;
        Ok(())
    }
}

fn contended(run: &RunId) -> Error {
    Error::unavailable(format!("too many write to the head of run {run} at once"))
}
