//! Locks as OS file locks in `locks/`: the system frees them when the holder dies, and
//! no file content has a say in who holds what. A name has four files: `.lock` is held,
//! `.gate` is held by an announced Exclusive so that no later Shared passes it,
//! `.token` counts, and `.holder` tells others whom they wait for.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Digest;
use backtrail_core::store::docs::token_of;
use backtrail_core::store::{DocKey, Guard, HeldLock, Holder, LockMode, LockName, LockRequest};
use rustix::fs::{self as rfs, Access, AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use tokio::time::Instant;

use super::deferred::defer;
use super::documents::read;
use super::fs::{self, Root};
use super::handle::Handle;
use super::{LocalStore, blocking};

const DIR: &str = "locks";
const FIRST_POLL: Duration = Duration::from_millis(5);
const LAST_POLL: Duration = Duration::from_millis(100);

/// The file name of a lock, without its ending: its text with every byte that could
/// mean something to a path escaped, shortened by a digest when it is too long.
fn file_of(name: &LockName) -> String {
    let text = name.to_string();
    let mut out = String::new();
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(b)),
            _ => out.push_str(&format!("%{b:02x}")),
        }
    }
    if out.len() > 200 {
        out.truncate(120);
        out = format!("{out}~{}", Digest::of(text.as_bytes()));
    }
    format!("{DIR}/{out}")
}

/// The newest token given out for a lock, when one is known.
pub(super) fn newest_token(root: &Root, name: &LockName) -> Option<u64> {
    let fd = root.at(&format!("{}.token", file_of(name)), fs::READ).ok()?;
    parse_token(&fs::read_at(fd, 0, 64).ok()?)
}

fn parse_token(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// A hold on a store that nobody can write to.
struct Unlocked;

#[async_trait]
impl HeldLock for Unlocked {
    fn token(&self) -> u64 {
        0
    }
    fn is_lost(&self) -> bool {
        false
    }
    async fn release(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A taken lock. Closing the file frees it.
pub(super) struct Hold {
    root: Arc<Root>,
    base: String,
    file: OwnedFd,
    pub(super) token: u64,
    guard: String,
}

impl Hold {
    /// Somebody removed or replaced the lock file: others lock another file now.
    pub(super) fn is_lost(&self) -> bool {
        !is_current(&self.root, &self.base, &self.file)
    }
}

#[async_trait]
impl HeldLock for Hold {
    fn token(&self) -> u64 {
        self.token
    }
    fn is_lost(&self) -> bool {
        Self::is_lost(self)
    }
    async fn release(self: Box<Self>) -> Result<()> {
        blocking(move || Ok(drop(self))).await
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Only our own entry: a later holder's stays (CLD-G3).
        let rel = format!("{}.holder", self.base);
        if read_holder(&self.root, &self.base).guard == self.guard
            && let Ok(fd) = self.root.at(&rel, fs::WRITE)
        {
            let _ = rfs::ftruncate(fd, 0);
        }
    }
}

/// Whether the lock file we hold is still the one that others find.
fn is_current(root: &Root, base: &str, file: &OwnedFd) -> bool {
    let path = root.path.join(format!("{base}.lock"));
    match (rfs::fstat(file), rfs::lstat(&path)) {
        (Ok(ours), Ok(there)) => (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino),
        _ => false,
    }
}

pub(super) fn read_holder(root: &Root, base: &str) -> Holder {
    let read = || -> Option<Holder> {
        let fd = root.at(&format!("{base}.holder"), fs::READ).ok()?;
        let body = fs::read_at(fd, 0, 64 * 1024).ok()?;
        serde_json::from_slice(&body).ok()
    };
    read().unwrap_or_default()
}

/// What one try came to.
enum Try {
    Taken(Box<dyn HeldLock>),
    NotNow,
}

/// A request on its way to a lock.
pub(super) struct Attempt {
    request: LockRequest,
    base: String,
    /// The gate, once we hold it: later Shared ones wait behind us.
    announced: Option<OwnedFd>,
}

impl LocalStore {
    /// Takes a lock, polling up to the request's limit (CLD-G1 to G9).
    pub(super) async fn take_lock(&self, request: LockRequest) -> Result<Guard> {
        let name = request.name.clone();
        let end = Instant::now() + request.wait;
        let mut poll = FIRST_POLL;
        let mut attempt = Attempt::new(request);
        loop {
            let handle = self.0.clone();
            let (tried, back) = blocking(move || {
                let tried = attempt.once(&handle)?;
                Ok((tried, attempt))
            })
            .await?;
            attempt = back;
            if let Try::Taken(held) = tried {
                return Ok(Guard::new(name, held));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let handle = self.0.clone();
                return blocking(move || Err(attempt.busy(&handle))).await;
            }
            tokio::time::sleep(self.0.jitter(poll)?.min(left)).await;
            poll = (poll * 2).min(LAST_POLL);
        }
    }
}

impl Attempt {
    pub(super) fn new(request: LockRequest) -> Self {
        Self { base: file_of(&request.name), request, announced: None }
    }

    /// Takes the lock Shared when nobody has it Exclusive.
    pub(super) fn shared_now(&self, handle: &Handle, root: Arc<Root>) -> Result<Option<Hold>> {
        let Some(file) = self.open(&root, "lock")? else { return Ok(None) };
        let free = flock(&file, FlockOperation::NonBlockingLockShared)?;
        if !free || !is_current(&root, &self.base, &file) {
            return Ok(None);
        }
        self.taken(handle, root, file).map(Some)
    }

    fn once(&mut self, handle: &Arc<Handle>) -> Result<Try> {
        let exclusive = self.request.mode == LockMode::Exclusive;
        let root = match handle.read()? {
            None if !exclusive => return Ok(Try::Taken(defer(handle, &self.request))),
            _ if exclusive => handle.write()?,
            None => handle.write()?,
            Some(root) => root,
        };
        let root = Arc::new(root);
        // Who will not wait does not announce itself.
        let patient = !self.request.wait.is_zero();
        if exclusive && patient && self.announced.is_none() {
            let Some(gate) = self.open(&root, "gate")? else {
                return Ok(Try::NotNow);
            };
            if !flock(&gate, FlockOperation::NonBlockingLockExclusive)? {
                return Ok(Try::NotNow);
            }
            self.announced = Some(gate);
        }
        let _passing = if exclusive {
            None
        } else {
            match self.open(&root, "gate")? {
                Some(gate) if !flock(&gate, FlockOperation::NonBlockingLockShared)? => {
                    return Ok(Try::NotNow);
                }
                gate => gate,
            }
        };
        let Some(file) = self.open(&root, "lock")? else {
            return Ok(Try::Taken(Box::new(Unlocked)));
        };
        let how = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        if !flock(&file, how)? || !is_current(&root, &self.base, &file) {
            return Ok(Try::NotNow);
        }
        let hold = self.taken(handle, root, file)?;
        self.announced = None;
        Ok(Try::Taken(Box::new(hold)))
    }

    /// Opens one of the lock's files, making it where that is possible. `None` on a
    /// store that nobody can write to: there a Shared lock excludes nobody anyway.
    fn open(&self, root: &Root, ending: &str) -> Result<Option<OwnedFd>> {
        let rel = format!("{}.{ending}", self.base);
        let flags = fs::WRITE | OFlags::CREATE;
        let mut opened = root.at(&rel, flags);
        if matches!(&opened, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            opened = root.make_dir(DIR, fs::Sync(false)).and_then(|_| root.at(&rel, flags));
        }
        let error = match opened {
            Ok(fd) => return Ok(Some(fd)),
            Err(e) => e,
        };
        let denied = matches!(
            error.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        );
        if denied && self.request.mode == LockMode::Shared {
            // A lock can be taken on a file opened for reading.
            if let Ok(fd) = root.at(&rel, fs::READ) {
                return Ok(Some(fd));
            }
            if rfs::accessat(&root.fd, ".", Access::WRITE_OK, AtFlags::empty()).is_err() {
                return Ok(None);
            }
        }
        Err(root.error("open lock", &rel, error))
    }

    /// Counts the token up and tells others who we are.
    fn taken(&self, handle: &Handle, root: Arc<Root>, file: OwnedFd) -> Result<Hold> {
        let request = &self.request;
        let token = match request.mode {
            LockMode::Shared => newest_token(&root, &request.name).unwrap_or(0),
            LockMode::Exclusive => self.next_token(handle, &root)?,
        };
        let host = &handle.options.host;
        let holder = Holder {
            guard: handle.options.ids.hex(16)?,
            program: format!("{} {}", host.program, request.command).trim().to_owned(),
            host: host.name.clone(),
            pid: host.pid,
            runner_id: None,
            run_id: request.run_id.as_ref().map(ToString::to_string),
            refs: request.refs.iter().map(ToString::to_string).collect(),
            since: handle.options.clock.now().rfc3339(),
            ttl_ms: 0,
        };
        // For messages only: a holder that cannot be written down holds all the same.
        let rel = format!("{}.holder", self.base);
        if let (Ok(fd), Ok(body)) =
            (root.at(&rel, fs::WRITE | OFlags::CREATE), serde_json::to_vec(&holder))
        {
            let _ = rfs::ftruncate(&fd, 0)
                .map_err(io::Error::from)
                .and_then(|()| fs::write_all_at(&fd, &body, 0));
        }
        Ok(Hold { root, base: self.base.clone(), file, token, guard: holder.guard })
    }

    /// One above every earlier token (CLD-G2), also when the file was lost or spoiled:
    /// a run's record remembers its newest, and for the rest the clock is far above
    /// any count.
    fn next_token(&self, handle: &Handle, root: &Root) -> Result<u64> {
        let rel = format!("{}.token", self.base);
        let failed = |e: io::Error| root.error("count", &rel, e);
        let fd = root.at(&rel, fs::WRITE | OFlags::CREATE).map_err(failed)?;
        let text = fs::read_at(&fd, 0, 64).map_err(failed)?;
        let spoiled = || u64::try_from(handle.options.clock.now().0 / 1000).unwrap_or(0);
        let mut last = match parse_token(&text) {
            Some(token) => token,
            None if text.is_empty() => 0,
            None => spoiled(),
        };
        if let LockName::Run(run) = &self.request.name {
            let record = read(root, &DocKey::Run(run.clone()).to_string()).ok().flatten();
            last = last.max(record.as_deref().and_then(token_of).unwrap_or(0));
        }
        let token =
            last.checked_add(1).ok_or_else(|| Error::corrupt(format!("{rel} has run out")))?;
        // One short write in place: a kill leaves the old number or the new one.
        fs::write_all_at(&fd, format!("{token:020}\n").as_bytes(), 0).map_err(failed)?;
        rfs::ftruncate(&fd, 21).map_err(|e| failed(e.into()))?;
        if !self.request.name.is_host_lock() {
            // Host locks fence nothing, and every capture takes one.
            handle.sync.file(&fd).map_err(failed)?;
        }
        Ok(token)
    }

    fn busy(&self, handle: &Handle) -> Error {
        let holder = match handle.read() {
            Ok(Some(root)) => read_holder(&root, &self.base),
            _ => Holder::default(),
        };
        holder.busy(&self.request.name)
    }
}

/// Tries to lock; false when somebody else holds it.
fn flock(fd: &OwnedFd, how: FlockOperation) -> Result<bool> {
    loop {
        return match rfs::flock(fd, how) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(Errno::INTR) => continue,
            Err(e) => Err(Error::store_io("failed to lock a file of the store", e.into())),
        };
    }
}

impl Handle {
    /// Who holds a lock Exclusive now. The look takes the lock Shared for a moment, by a
    /// file opened for reading: it makes no file and tells nobody.
    pub(super) fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let Some(root) = self.read()? else { return Ok(None) };
        let base = file_of(name);
        let rel = format!("{base}.lock");
        let file = match root.at(&rel, fs::READ) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|e| root.error("look at", &rel, e))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockShared)? {
            true => Ok(None),
            false => Ok(Some(read_holder(&root, &base))),
        }
    }

    /// Between half of `poll` and all of it, so that waiters do not march in step.
    fn jitter(&self, poll: Duration) -> Result<Duration> {
        let mut byte = [0];
        self.options.ids.fill(&mut byte)?;
        Ok(poll / 2 + poll / 2 * u32::from(byte[0]) / 255)
    }
}
