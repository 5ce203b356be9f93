//! Locks as documents. `locks/<name>.json` holds the newest token and the Exclusive
//! holder; each Shared holder has a document of its own below `locks/<name>.shared/`, so
//! hundreds do not contend on one key. Names, pids and clocks prove nothing: a holder is
//! alive while its document changes, and who waits must itself have seen it unchanged
//! for the whole term (CLD-G5), unless the server judges that.
//!
//! A Shared taker writes its document, then looks for a holder; an Exclusive taker writes
//! the holder, then looks for Shared documents. Whoever comes second sees the first.

mod held;
mod take;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use backtrail_core::clock::{Clock, Host, IdSource};
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::store::{Fence, Guard, Holder, LockName, LockRequest};
use serde::{Deserialize, Serialize};

use super::Small;
use super::keeper::Keeper;
use held::Vital;
use watch::Watch;

/// What every lock of a store needs.
pub struct Leases {
    keeper: Arc<Keeper>,
    room: Arc<Room>,
    /// Guards given out, for [`Leases::check`].
    given: Mutex<Vec<(LockName, u64, Weak<Vital>)>>,
}

/// What the tasks on the keeper's thread share.
struct Room {
    small: Arc<dyn Small>,
    config: Config,
    watch: Watch,
}

/// Who we are and how long a hold lasts.
#[derive(Clone)]
pub struct Config {
    /// Time to live of a hold without renewal.
    pub ttl: Duration,
    /// For `since`; no decision rests on it.
    pub clock: Arc<dyn Clock>,
    /// For guards and jitter.
    pub ids: Arc<dyn IdSource>,
    /// For messages to others.
    pub host: Host,
}

/// `locks/<name>.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LockDoc {
    token: u64,
    #[serde(default)]
    holder: Option<Holder>,
}

/// The key of a lock's document without its ending.
fn base_of(name: &LockName) -> String {
    format!("locks/{name}")
}

/// How long a holder's document must stay unchanged before others may take its place.
fn term(name: &LockName, ttl: Duration) -> Duration {
    match name {
        // A request sent under an Exclusive may still be on its way for 15 s.
        LockName::Objects => ttl + Duration::from_secs(20),
        _ => ttl + ttl / 4,
    }
}

/// A clock that only goes forward and runs while the machine sleeps.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Leases {
    /// Locks over `small`, whose connections must belong to the runtime of `keeper`.
    pub fn new(keeper: Arc<Keeper>, small: Arc<dyn Small>, config: Config) -> Self {
        let room = Room { small, config, watch: Watch::default() };
        Self { keeper, room: Arc::new(room), given: Mutex::default() }
    }

    /// Takes a lock (CLD-G1 to G9). `floor` is a token that is known to be used up.
    pub async fn lock(&self, request: LockRequest, floor: u64) -> Result<Guard> {
        let name = request.name.clone();
        let (room, keeper) = (self.room.clone(), self.keeper.clone());
        let (gone, caller) = tokio::sync::oneshot::channel::<()>();
        let work = async move { room.take(request, floor, keeper, caller).await };
        let held = self.keeper.run(work).await;
        drop(gone);
        let held = held?;
        let mut given = self.given();
        given.retain(|(_, _, vital)| vital.strong_count() > 0);
        given.push((name.clone(), held.token, Arc::downgrade(&held.vital)));
        Ok(Guard::new(name, Box::new(held)))
    }

    /// Who holds a lock Exclusive, as far as anybody can tell without waiting.
    pub async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let (room, name) = (self.room.clone(), name.clone());
        self.keeper.run(async move { room.holder(&name).await }).await
    }

    /// Fails with `LostLease` when the guard behind `fence` is one of ours and lost: what
    /// is written through it must not even be sent (CLD-G6).
    pub fn check(&self, fence: &Fence) -> Result<()> {
        let given = self.given();
        let ours =
            given.iter().find(|(name, token, _)| *name == fence.lock && *token == fence.token);
        match ours.and_then(|(_, _, vital)| vital.upgrade()) {
            Some(vital) if vital.is_lost() => Err(Error::new(
                Kind::LostLease,
                "lost-lease",
                format!("the hold on lock {} was lost", fence.lock),
            )),
            _ => Ok(()),
        }
    }

    fn given(&self) -> MutexGuard<'_, Vec<(LockName, u64, Weak<Vital>)>> {
        self.given.lock().unwrap_or_else(|e| e.into_inner())
    }
}
