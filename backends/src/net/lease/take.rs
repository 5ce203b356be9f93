//! Taking a lock.

use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::store::{DocKey, Expect, Holder, LockMode, LockName, LockRequest, docs};
use tokio::sync::oneshot;

use super::held::{Held, Own};
use super::{LockDoc, Room, base_of, monotonic, term};
use crate::net::keeper::Keeper;
use crate::net::{Found, parsed, settle, stamped};

const FIRST_POLL: Duration = Duration::from_millis(250);
/// Times that refs are rewritten while others write to them.
const REWRITES: u32 = 50;
const LAST_POLL: Duration = Duration::from_secs(2);

/// What one try came to.
enum Try {
    Taken(Held),
    /// This one is in the way.
    Busy(Holder),
}

/// A request on its way to a lock.
struct Attempt {
    request: LockRequest,
    base: String,
    holder: Holder,
    floor: u64,
    keeper: Arc<Keeper>,
    /// An Exclusive that has the holder field and waits for the Shared ones to go.
    announced: Option<Held>,
    /// A Shared that found an Exclusive: until that has gone, it only looks.
    blocked: bool,
}

/// The lock document as found.
struct Main {
    doc: LockDoc,
    expect: Expect,
    found: Option<Found>,
}

impl Room {
    /// Takes a lock, polling up to the request's limit or until the caller has gone.
    pub(super) async fn take(
        self: Arc<Self>,
        request: LockRequest,
        floor: u64,
        keeper: Arc<Keeper>,
        mut caller: oneshot::Receiver<()>,
    ) -> Result<Held> {
        let end = monotonic() + request.wait;
        let holder = self.describe(&request)?;
        let base = base_of(&request.name);
        let mut attempt =
            Attempt { request, base, holder, floor, keeper, announced: None, blocked: false };
        let mut poll = FIRST_POLL;
        loop {
            let busy = match attempt.once(&self).await? {
                Try::Taken(held) => return Ok(held),
                Try::Busy(holder) => holder,
            };
            let left = end.saturating_sub(monotonic());
            if left.is_zero() {
                attempt.withdraw().await;
                return Err(self.busy(&attempt.request.name, &busy));
            }
            tokio::select! {
                () = tokio::time::sleep(self.jitter(poll)?.min(left)) => {}
                _ = &mut caller => {
                    attempt.withdraw().await;
                    return Err(self.busy(&attempt.request.name, &busy));
                }
            }
            poll = (poll * 2).min(LAST_POLL);
        }
    }

    fn describe(&self, request: &LockRequest) -> Result<Holder> {
        let config = &self.config;
        Ok(Holder {
            guard: config.ids.hex(16)?,
            program: format!("{} {}", config.host.program, request.command).trim().to_owned(),
            host: config.host.name.clone(),
            pid: config.host.pid,
            runner_id: None,
            run_id: request.run_id.as_ref().map(ToString::to_string),
            refs: request.refs.iter().map(ToString::to_string).collect(),
            since: config.clock.now().rfc3339(),
            ttl_ms: u64::try_from(config.ttl.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn busy(&self, name: &LockName, holder: &Holder) -> Error {
        let limit = term(name, Duration::from_millis(holder.ttl_ms));
        holder.busy(name).with_hint(format!(
            "if that process is dead, the lock is free {} s after its last sign of life",
            limit.as_secs().max(1)
        ))
    }

    fn jitter(&self, poll: Duration) -> Result<Duration> {
        let mut byte = [0];
        self.config.ids.fill(&mut byte)?;
        Ok(poll / 2 + poll / 2 * u32::from(byte[0]) / 255)
    }

    async fn main(&self, base: &str, floor: u64) -> Result<Main> {
        let key = format!("{base}.json");
        Ok(match self.small.read(&key).await? {
            None => Main {
                doc: LockDoc { token: floor, holder: None },
                expect: Expect::Absent,
                found: None,
            },
            Some(found) => Main {
                doc: parsed(&key, &found.body)?,
                expect: Expect::Version(found.version.clone()),
                found: Some(found),
            },
        })
    }

    /// The holder in a lock's document that is, or must be taken to be, alive.
    fn alive(&self, name: &LockName, base: &str, main: &Main) -> Option<Holder> {
        let (holder, found) = (main.doc.holder.as_ref()?, main.found.as_ref()?);
        let seen = self.watch.saw(&format!("{base}.json"), &found.version, holder);
        let unchanged = found.idle.unwrap_or(seen);
        (unchanged < term(name, Duration::from_millis(holder.ttl_ms))).then(|| holder.clone())
    }

    /// A Shared holder that is alive. The dead ones are taken out of the way: first the
    /// refs that one names are rewritten, so that a writer that only was away long fails
    /// its compare-and-swap and looks at its objects again (CLD-G9).
    async fn shared(&self, name: &LockName, base: &str) -> Result<Option<Holder>> {
        let mut alive = None;
        let dir = format!("{base}.shared/");
        let there = self.small.below(&dir).await?;
        self.watch.keep(&dir, &there);
        for named in there {
            let Some(sight) = self.sight(&named).await? else { continue };
            if sight.unchanged < term(name, Duration::from_millis(sight.holder.ttl_ms)) {
                alive.get_or_insert(sight.holder);
                continue;
            }
            for refs in &sight.holder.refs {
                self.rewrite(refs).await?;
            }
            self.small.remove(&named.key).await?;
            self.watch.forget(&named.key);
        }
        Ok(alive)
    }

    /// Gives a document a new version.
    async fn rewrite(&self, key: &str) -> Result<()> {
        let Some(doc) = DocKey::parse(key) else { return Ok(()) };
        for _ in 0..REWRITES {
            let Some(found) = self.small.read(key).await? else { return Ok(()) };
            let body = docs::restamped(&*self.config.ids, &doc, &found.body)?;
            let expect = Expect::Version(found.version);
            if settle(&*self.small, key, &body, &expect).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::unavailable(format!("too many write to {key} at once")))
    }

    /// Who holds a lock Exclusive now; a holder that gave no sign of life is none.
    pub(super) async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let main = self.main(&base_of(name), 0).await?;
        let Some(holder) = main.doc.holder else { return Ok(None) };
        let age = main.found.and_then(|f| f.idle.or(f.age)).unwrap_or_default();
        let dead = age >= term(name, Duration::from_millis(holder.ttl_ms));
        Ok((!dead).then_some(holder))
    }
}

impl Attempt {
    async fn once(&mut self, room: &Arc<Room>) -> Result<Try> {
        match self.request.mode {
            LockMode::Exclusive => self.exclusive(room).await,
            LockMode::Shared => self.share(room).await,
        }
    }

    async fn exclusive(&mut self, room: &Arc<Room>) -> Result<Try> {
        let name = self.request.name.clone();
        if self.announced.as_ref().is_some_and(|held| held.vital.is_lost()) {
            self.withdraw().await;
        }
        if self.announced.is_none() {
            let main = room.main(&self.base, self.floor).await?;
            if let Some(holder) = room.alive(&name, &self.base, &main) {
                return Ok(Try::Busy(holder));
            }
            // Who will not wait does not announce itself.
            if self.request.wait.is_zero()
                && let Some(holder) = room.shared(&name, &self.base).await?
            {
                return Ok(Try::Busy(holder));
            }
            let Some(held) = self.announce(room, &main).await? else {
                let main = room.main(&self.base, self.floor).await?;
                return Ok(Try::Busy(main.doc.holder.unwrap_or_default()));
            };
            self.announced = Some(held);
        }
        match room.shared(&name, &self.base).await? {
            Some(holder) => Ok(Try::Busy(holder)),
            None => match self.announced.take() {
                Some(held) => Ok(Try::Taken(held)),
                None => Ok(Try::Busy(Holder::default())),
            },
        }
    }

    /// Takes the holder field; `None` when somebody else was faster.
    async fn announce(&self, room: &Arc<Room>, main: &Main) -> Result<Option<Held>> {
        let token = main.doc.token.max(self.floor) + 1;
        let doc = LockDoc { token, holder: Some(self.holder.clone()) };
        let key = format!("{}.json", self.base);
        let body = stamped(&*room.config.ids, &key, &doc)?;
        let sent = monotonic();
        let Some(version) = settle(&*room.small, &key, &body, &main.expect).await? else {
            return Ok(None);
        };
        room.watch.forget(&key);
        let own = Own { key, version, holder: self.holder.clone(), exclusive: Some(token) };
        Ok(Some(Held::new(room.clone(), self.keeper.clone(), own, sent, token)))
    }

    async fn share(&mut self, room: &Arc<Room>) -> Result<Try> {
        let name = self.request.name.clone();
        if self.blocked
            && let Err(holder) = self.look(room, &name).await?
        {
            return Ok(Try::Busy(holder));
        }
        self.blocked = false;
        let key = format!("{}.shared/{}.json", self.base, self.holder.guard);
        let body = stamped(&*room.config.ids, &key, &self.holder)?;
        let sent = monotonic();
        let Some(version) = settle(&*room.small, &key, &body, &Expect::Absent).await? else {
            return Err(Error::corrupt(format!("{key} is somebody else's")));
        };
        let own = Own { key, version, holder: self.holder.clone(), exclusive: None };
        let looked = self.look(room, &name).await;
        match looked {
            Ok(Ok(token)) => {
                let held = Held::new(room.clone(), self.keeper.clone(), own, sent, token);
                Ok(Try::Taken(held))
            }
            Ok(Err(holder)) => {
                own.give_back(room).await?;
                self.holder.guard = room.config.ids.hex(16)?;
                self.blocked = true;
                Ok(Try::Busy(holder))
            }
            Err(e) => {
                let _ = own.give_back(room).await;
                Err(e)
            }
        }
    }

    /// The newest token when nobody holds the lock Exclusive, else who does.
    async fn look(&self, room: &Room, name: &LockName) -> Result<Result<u64, Holder>> {
        let main = room.main(&self.base, self.floor).await?;
        if let Some(holder) = room.alive(name, &self.base, &main) {
            return Ok(Err(holder));
        }
        let token = main.doc.token;
        if let Some(dead) = main.doc.holder {
            let key = format!("{}.json", self.base);
            let doc = LockDoc { token, holder: None };
            let body = stamped(&*room.config.ids, &key, &doc)?;
            if settle(&*room.small, &key, &body, &main.expect).await?.is_none() {
                return Ok(Err(dead));
            }
        }
        Ok(Ok(token))
    }

    /// Gives the holder field back.
    async fn withdraw(&mut self) {
        if let Some(held) = self.announced.take() {
            let _ = backtrail_core::store::HeldLock::release(Box::new(held)).await;
        }
    }
}
