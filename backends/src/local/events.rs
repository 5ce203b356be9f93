//! `events.jsonl`: one event a line, its number first. Appends go one at a time under
//! the run's write lock; a batch is one write, taken back whole when it fails.

use std::io;
use std::os::fd::OwnedFd;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::docs::{deleted, token_of};
use backtrail_core::store::events::{check_event, number, seq_of};
use backtrail_core::store::{DocKey, EventRecord, Fence, MAX_EVENT_BYTES};
use bytes::Bytes;
use rustix::fs::{self as rfs, OFlags};

use super::documents::{is_deleted, read, run_exists};
use super::fs::{self, Root};
use super::handle::{Handle, locked};
use super::locks;

/// How much of a log is read at once.
const READ_BYTES: usize = 1 << 20;
/// How much of a log's end is looked at first for its last number.
const TAIL_BYTES: u64 = 64 * 1024;
/// The longest line: the longest event and its number.
const MAX_LINE: usize = MAX_EVENT_BYTES + 64;

pub(super) fn path_of(run: &RunId) -> String {
    format!("runs/{run}/events.jsonl")
}

/// Opens a log for appending, making it when the run has none yet.
pub(super) fn open_log(root: &Root, rel: &str) -> Result<OwnedFd> {
    let failed = |e: io::Error| root.error("open", rel, e);
    match root.at(rel, fs::WRITE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        fd => return fd.map_err(failed),
    }
    let fd = root.at(rel, fs::WRITE | OFlags::CREATE).map_err(failed)?;
    rfs::fchmod(&fd, fs::FILE_MODE).map_err(|e| failed(e.into()))?;
    Ok(fd)
}

impl Handle {
    /// Checks that `run` may be written to under `fence`; the caller holds its stripe.
    pub(super) fn check_append(
        &self,
        root: &Root,
        run: &RunId,
        fence: Option<&Fence>,
    ) -> Result<()> {
        run_exists(root, run)?;
        if is_deleted(root, run)? {
            return Err(deleted(run, false));
        }
        let Some(fence) = fence else { return Ok(()) };
        let what = format!("run {run}");
        let record = read(root, &DocKey::Run(run.clone()).to_string())?;
        fence.check(&what, record.as_deref().and_then(token_of))?;
        fence.check(&what, locks::newest_token(root, &fence.lock))
    }

    /// Appends a batch; the number of its first event (CLD-L1, L2, L7).
    pub(super) fn append_events(
        &self,
        run: &RunId,
        events: &[Bytes],
        fence: Option<&Fence>,
    ) -> Result<u64> {
        for event in events {
            check_event(run, event)?;
        }
        let root = self.write_run(run)?;
        let _stripe = self.stripe(&root, &DocKey::Run(run.clone()))?;
        self.check_append(&root, run, fence)?;
        let rel = path_of(run);
        self.settle_events(&root, run)?;
        let fd = open_log(&root, &rel)?;
        let failed = |e: io::Error| root.write_error("append to", &rel, 0, e);
        let len = fs::len_of(&rfs::fstat(&fd).map_err(|e| failed(e.into()))?);
        let (first, torn) = tail(&fd, len).map_err(failed)?;
        let mut lines = Vec::new();
        if torn {
            lines.push(b'\n');
        }
        for (seq, event) in (first..).zip(events) {
            lines.extend_from_slice(&number(seq, event));
            lines.push(b'\n');
        }
        if events.is_empty() {
            return Ok(first);
        }
        if let Err(e) = fs::write_all_at(&fd, &lines, len) {
            // Nobody was told of these lines: take all of them back.
            let _ = rfs::ftruncate(&fd, len);
            return Err(root.write_error("append to", &rel, lines.len() as u64, e));
        }
        // The lines stay and their numbers are used up, whether or not they are durable.
        self.sync_events(&root, run, &fd, len == 0)?;
        Ok(first)
    }

    /// The number that the next event gets.
    pub(super) fn events_end(&self, run: &RunId) -> Result<u64> {
        let Some((fd, failed)) = open_to_read(self, run)? else { return Ok(0) };
        let len = rfs::fstat(&fd).map_err(io::Error::from).map(|stat| fs::len_of(&stat));
        len.and_then(|len| tail(&fd, len)).map(|(next, _)| next).map_err(failed)
    }

    /// Makes an event log durable, with its name when it is new. A log for which that
    /// failed is remembered, and the run's next document tries again first.
    fn sync_events(&self, root: &Root, run: &RunId, fd: &OwnedFd, new: bool) -> Result<()> {
        let rel = path_of(run);
        let synced = self.reach("store.events.sync").and_then(|()| {
            let name = || root.dir(fs::split(&rel).0).and_then(|dir| self.sync.dir(dir));
            let done = self.sync.file(fd).and_then(|()| if new { name() } else { Ok(()) });
            done.map_err(|e| root.write_error("sync", &rel, 0, e))
        });
        match synced {
            Ok(()) => locked(&self.unsynced).remove(run),
            Err(_) => locked(&self.unsynced).insert(run.clone()),
        };
        synced.map_err(|e| e.with_kind(Kind::Unavailable { maybe_applied: true }))
    }

    /// Syncs the events of a run whose last sync failed: no record may be ahead of them.
    pub(super) fn settle_events(&self, root: &Root, run: &RunId) -> Result<()> {
        if !locked(&self.unsynced).contains(run) {
            return Ok(());
        }
        let rel = path_of(run);
        let fd = root.at(&rel, fs::WRITE).map_err(|e| root.error("sync", &rel, e))?;
        let unsure = Kind::Unavailable { maybe_applied: false };
        self.sync_events(root, run, &fd, true).map_err(|e| e.with_kind(unsure))
    }

    /// The store for writing below a run: never creates a store for a run it cannot have.
    pub(super) fn write_run(&self, run: &RunId) -> Result<Root> {
        match self.read()? {
            Some(_) => self.write(),
            None => Err(Error::not_found(format!("run {run} is not in the store"))),
        }
    }
}

/// The next number, and whether the last line lacks its end. The number is behind the
/// last readable line, found from the end; a log without one never starts at 0 again.
fn tail(fd: &OwnedFd, len: u64) -> io::Result<(u64, bool)> {
    if len == 0 {
        return Ok((0, false));
    }
    let mut window = TAIL_BYTES.min(len);
    loop {
        let start = len - window;
        let bytes = fs::read_at(fd, start, usize::try_from(window).unwrap_or(usize::MAX))?;
        let torn = bytes.last() != Some(&b'\n');
        // The first line of a window may have begun before it.
        let whole = match start {
            0 => &bytes[..],
            _ => bytes.iter().position(|b| *b == b'\n').map_or(&[][..], |at| &bytes[at + 1..]),
        };
        if let Some(seq) = whole.rsplit(|b| *b == b'\n').find_map(seq_of) {
            return Ok((seq + 1, torn));
        }
        if start == 0 {
            let lines = bytes.iter().filter(|b| **b == b'\n').count() as u64;
            return Ok((lines.max(1), torn));
        }
        window = window.saturating_mul(8).min(len);
    }
}

/// The log of a run; `None` when it has none yet.
fn open_to_read(
    handle: &Handle,
    run: &RunId,
) -> Result<Option<(OwnedFd, impl Fn(io::Error) -> Error + use<>)>> {
    let missing = || Error::not_found(format!("run {run} is not in the store"));
    let root = handle.read()?.ok_or_else(missing)?;
    let rel = path_of(run);
    match root.at(&rel, fs::READ) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => run_exists(&root, run).map(|()| None),
        fd => {
            let failed = move |e| root.error("read", &rel, e);
            let fd = fd.map_err(&failed)?;
            Ok(Some((fd, failed)))
        }
    }
}

/// A place in a log, at the start of a line, before which every number is below `from`:
/// at most a piece before the first that is not, where numbers can be read.
fn place_of(fd: &OwnedFd, from: u64) -> io::Result<u64> {
    let mut low = 0;
    let mut high = fs::len_of(&rfs::fstat(fd)?);
    while high - low > READ_BYTES as u64 {
        let middle = low + (high - low) / 2;
        let bytes = fs::read_at(fd, middle, TAIL_BYTES as usize)?;
        let mut lines = bytes.split_inclusive(|b| *b == b'\n');
        let mut at = middle + lines.next().map_or(0, |cut| cut.len() as u64);
        let mut below = None;
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            if let Some(seq) = seq_of(line) {
                below = (seq < from).then_some(at);
                break;
            }
            at += line.len() as u64;
        }
        match below {
            Some(at) => low = at,
            None => high = middle,
        }
    }
    Ok(low)
}

/// Reads a log piece by piece. It keeps no bytes between steps but the place behind
/// the last whole line, so a batch taken back leaves no trace in it.
pub(super) struct Reader {
    run: RunId,
    offset: u64,
    from: u64,
    last: Option<u64>,
    valid: u64,
    corrupt: u64,
    /// Inside a line that is too long.
    skipping: bool,
}

/// One step of a [`Reader`].
pub(super) struct Step {
    pub(super) events: Vec<EventRecord>,
    /// Nothing more is there now.
    pub(super) at_end: bool,
}

impl Reader {
    pub(super) fn new(run: RunId, from: u64) -> Self {
        Self { run, offset: 0, from, last: None, valid: 0, corrupt: 0, skipping: false }
    }

    /// The next events.
    pub(super) fn step(&mut self, handle: &Handle) -> Result<Step> {
        let Some((fd, failed)) = open_to_read(handle, &self.run)? else {
            return Ok(Step { events: Vec::new(), at_end: true });
        };
        if self.offset == 0 && self.from > 0 {
            self.offset = place_of(&fd, self.from).map_err(&failed)?;
        }
        let mut want = READ_BYTES;
        loop {
            let bytes = fs::read_at(&fd, self.offset, want).map_err(&failed)?;
            let at_end = bytes.len() < want;
            let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            if whole == 0 && !at_end && !self.skipping && want <= MAX_LINE {
                want = (want * 4).min(MAX_LINE + 1);
                continue;
            }
            let mut events = Vec::new();
            if whole == 0 && (self.skipping || bytes.len() > MAX_LINE) {
                // Too long to be an event: forget it as we go.
                self.skipping = true;
                self.offset += bytes.len() as u64;
            } else {
                self.take_lines(&bytes[..whole], &mut events);
                self.offset += whole as u64;
            }
            return Ok(Step { events, at_end });
        }
    }

    fn take_lines(&mut self, whole: &[u8], events: &mut Vec<EventRecord>) {
        for line in whole.split_inclusive(|b| *b == b'\n') {
            let line = &line[..line.len() - 1];
            let too_long = std::mem::take(&mut self.skipping) || line.len() > MAX_LINE;
            let seq = if too_long { None } else { seq_of(line) };
            match seq {
                // A number that does not rise is as good as none.
                Some(seq) if self.last.is_none_or(|last| seq > last) => {
                    self.valid += 1;
                    self.last = Some(seq);
                    if seq >= self.from {
                        events.push(EventRecord { seq, body: Bytes::copy_from_slice(line) });
                    }
                }
                _ if line.is_empty() => {}
                _ => self.corrupt += 1,
            }
        }
    }

    /// Fails with `events-corrupted` when too many lines could not be read.
    pub(super) fn verdict(&self) -> Result<()> {
        if self.corrupt > 100 || (self.corrupt > 1 && self.corrupt > 2 * self.valid) {
            let message =
                format!("{} event lines of run {} cannot be read", self.corrupt, self.run);
            return Err(Error::corrupt(message).with_code("events-corrupted"));
        }
        Ok(())
    }
}
