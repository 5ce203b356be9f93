//! A taken lock: its heartbeat, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::Result;
use backtrail_core::store::{Expect, HeldLock, Holder, Version};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{LockDoc, Room, monotonic};
use crate::net::keeper::Keeper;
use crate::net::{settle, stamped};

/// How long a dropped guard waits for its release before it leaves that to its term.
const RELEASE: Duration = Duration::from_secs(5);

/// Whether a hold can still be trusted.
pub(super) struct Vital {
    lost: AtomicBool,
    /// Milliseconds of [`monotonic`] at which the last successful renewal was sent.
    renewed: AtomicU64,
    ttl: Duration,
}

impl Vital {
    pub(super) fn new(ttl: Duration, sent: Duration) -> Self {
        let renewed = AtomicU64::new(millis(sent));
        Self { lost: AtomicBool::new(false), renewed, ttl }
    }

    /// Others may take our place after the whole TTL; we stop earlier (CLD-G6).
    pub(super) fn is_lost(&self) -> bool {
        let renewed = Duration::from_millis(self.renewed.load(Ordering::SeqCst));
        let trusted = monotonic().saturating_sub(renewed) < self.ttl * 3 / 4;
        self.lost.load(Ordering::SeqCst) || !trusted
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Our document of a hold, and how it is written.
pub(super) struct Own {
    pub(super) key: String,
    pub(super) version: Version,
    pub(super) holder: Holder,
    /// The token of an Exclusive hold; a Shared one owns its document alone.
    pub(super) exclusive: Option<u64>,
}

impl Own {
    fn body(&self, room: &Room) -> Result<Bytes> {
        let ids = &*room.config.ids;
        match self.exclusive {
            None => stamped(ids, &self.key, &self.holder),
            Some(token) => {
                let doc = LockDoc { token, holder: Some(self.holder.clone()) };
                stamped(ids, &self.key, &doc)
            }
        }
    }

    /// Renews the hold; false when somebody else has it now.
    async fn renew(&mut self, room: &Room, vital: &Vital) -> Result<bool> {
        let body = self.body(room)?;
        let sent = monotonic();
        let expect = Expect::Version(self.version.clone());
        let Some(version) = settle(&*room.small, &self.key, &body, &expect).await? else {
            return Ok(false);
        };
        self.version = version;
        vital.renewed.store(millis(sent), Ordering::SeqCst);
        Ok(true)
    }

    /// Gives the hold back; nothing happens when somebody else has it (CLD-G3).
    pub(super) async fn give_back(self, room: &Room) -> Result<()> {
        let Some(token) = self.exclusive else {
            return room.small.remove(&self.key).await;
        };
        let body = stamped(&*room.config.ids, &self.key, &LockDoc { token, holder: None })?;
        settle(&*room.small, &self.key, &body, &Expect::Version(self.version)).await.map(drop)
    }
}

/// What the end of a hold is told to.
type Ended = Box<dyn FnOnce(Result<()>) + Send>;

/// A hold that renews itself until it ends.
pub(super) struct Held {
    pub(super) token: u64,
    pub(super) vital: Arc<Vital>,
    end: mpsc::Sender<Ended>,
    // Its thread does the renewals.
    keeper: Arc<Keeper>,
}

impl Held {
    /// Starts the heartbeat of a hold taken by a write sent at `sent`.
    pub(super) fn new(
        room: Arc<Room>,
        keeper: Arc<Keeper>,
        own: Own,
        sent: Duration,
        token: u64,
    ) -> Self {
        let vital = Arc::new(Vital::new(room.config.ttl, sent));
        let (end, ended) = mpsc::channel(1);
        keeper.spawn(beat(room, own, vital.clone(), ended));
        Self { token, vital, end, keeper }
    }
}

/// Renews a hold every third of its time to live, sooner after a failure, until it ends.
async fn beat(room: Arc<Room>, mut own: Own, vital: Arc<Vital>, mut ended: mpsc::Receiver<Ended>) {
    let ttl = room.config.ttl;
    let mut pause = ttl / 3;
    loop {
        let end = tokio::select! {
            end = ended.recv() => end,
            () = tokio::time::sleep(pause) => {
                match own.renew(&room, &vital).await {
                    Ok(true) => pause = ttl / 3,
                    Ok(false) => vital.lost.store(true, Ordering::SeqCst),
                    Err(_) => pause = ttl / 12,
                }
                if !vital.is_lost() {
                    continue;
                }
                // What is lost stays lost, even if the server answers again.
                vital.lost.store(true, Ordering::SeqCst);
                ended.recv().await
            }
        };
        let lost = vital.lost.load(Ordering::SeqCst);
        let done =
            if lost && own.exclusive.is_some() { Ok(()) } else { own.give_back(&room).await };
        if let Some(tell) = end {
            tell(done);
        }
        return;
    }
}

#[async_trait]
impl HeldLock for Held {
    fn token(&self) -> u64 {
        self.token
    }
    fn is_lost(&self) -> bool {
        self.vital.is_lost()
    }
    async fn release(self: Box<Self>) -> Result<()> {
        let (tell, told) = oneshot::channel();
        let ended: Ended = Box::new(move |done| drop(tell.send(done)));
        if self.end.try_send(ended).is_err() {
            return Ok(());
        }
        told.await.unwrap_or(Ok(()))
    }
}

impl Drop for Held {
    /// Waits a little, so that a command that ends with an error leaves no lock behind.
    fn drop(&mut self) {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let ended: Ended = Box::new(move |done| drop(tell.try_send(done)));
        if self.end.try_send(ended).is_ok() && !self.keeper.is_here() {
            let _ = told.recv_timeout(RELEASE);
        }
    }
}
