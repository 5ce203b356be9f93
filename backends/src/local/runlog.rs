//! `run.log`: bytes by offset. Not synced: it is best effort by contract, and a sync
//! for each piece of a child's output would slow the child down. Its holes are kept in
//! `run.log.holes`, written before the bytes behind a hole.

use std::io;
use std::os::fd::OwnedFd;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::holes::Holes;
use backtrail_core::store::{DocKey, Fence, LogPart, MAX_BYTES, check_size};
use bytes::Bytes;
use rustix::fs as rfs;

use super::documents::run_exists;
use super::events::open_log;
use super::fs::{self, Root};
use super::handle::Handle;
use super::publish;

fn path_of(run: &RunId) -> String {
    format!("runs/{run}/run.log")
}

fn holes_path(run: &RunId) -> String {
    format!("runs/{run}/run.log.holes")
}

fn length(root: &Root, rel: &str, fd: &OwnedFd) -> Result<u64> {
    let stat = rfs::fstat(fd).map_err(|e| root.error("read", rel, e.into()))?;
    Ok(fs::len_of(&stat))
}

fn read_holes(root: &Root, run: &RunId) -> Result<Holes> {
    let rel = holes_path(run);
    let fd = match root.at(&rel, fs::READ) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Holes::default()),
        fd => fd.map_err(|e| root.error("read", &rel, e))?,
    };
    let len = length(root, &rel, &fd)?.min(MAX_BYTES as u64);
    let body = fs::read_at(&fd, 0, len as usize).map_err(|e| root.error("read", &rel, e))?;
    let pairs: Vec<(u64, u64)> = serde_json::from_slice(&body)
        .map_err(|e| Error::corrupt(format!("{rel} is not readable")).with_source(e))?;
    Ok(Holes::new(pairs.into_iter().map(|(at, len)| at..at.saturating_add(len))))
}

impl Handle {
    fn write_holes(&self, root: &Root, run: &RunId, holes: &Holes) -> Result<()> {
        let rel = holes_path(run);
        let (dir, name) = fs::split(&rel);
        let failed = |e| root.error("write", &rel, e);
        let fd = root.dir(dir).map_err(failed)?;
        let temp = fs::staging_name(&*self.options.ids)?;
        let pairs: Vec<(u64, u64)> =
            holes.ranges().iter().map(|r| (r.start, r.end - r.start)).collect();
        let body = serde_json::to_vec(&pairs)
            .map_err(|e| Error::invalid("holes cannot be written").with_source(e))?;
        publish::stage(&fd, &temp, &body, fs::Sync(false)).map_err(failed)?;
        publish::replace(&fd, &temp, name).map_err(failed)
    }

    /// Appends at `offset`, or at the end; where the bytes begin (CLD-L4, L7).
    pub(super) fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: &[u8],
        fence: Option<&Fence>,
    ) -> Result<u64> {
        check_size("log append of run", run.as_str(), bytes.len(), MAX_BYTES)?;
        let root = self.write_run(run)?;
        let _stripe = self.stripe(&root, &DocKey::Run(run.clone()))?;
        self.check_append(&root, run, fence)?;
        let rel = path_of(run);
        let fd = open_log(&root, &rel)?;
        let len = length(&root, &rel, &fd)?;
        let at = offset.unwrap_or(len);
        let end = at.checked_add(bytes.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| {
            Error::invalid(format!("log offset {at} of run {run} is out of range"))
        })?;
        if bytes.is_empty() {
            return Ok(at);
        }
        let mut holes = read_holes(&root, run)?;
        let new = missing(&root, run, &fd, len, at..end, bytes, &holes)?;
        if !new {
            return Ok(at);
        }
        if at > len {
            holes.add(len..at);
            self.write_holes(&root, run, &holes)?;
        }
        if let Err(e) = fs::write_all_at(&fd, bytes, at) {
            if end > len {
                let _ = rfs::ftruncate(&fd, len);
            }
            return Err(root.write_error("append to", &rel, bytes.len() as u64, e));
        }
        let before = holes.clone();
        holes.fill(at..end);
        if holes != before {
            self.write_holes(&root, run, &holes)?;
        }
        Ok(at)
    }

    /// The log from `from` to `to`, or to the end when that is 0 (CLD-L4, L5).
    pub(super) fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>> {
        let missing = || Error::not_found(format!("run {run} is not in the store"));
        let root = self.read()?.ok_or_else(missing)?;
        let rel = path_of(run);
        let fd = match root.at(&rel, fs::READ) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                run_exists(&root, run)?;
                return Ok(Vec::new());
            }
            fd => fd.map_err(|e| root.error("read", &rel, e))?,
        };
        let len = length(&root, &rel, &fd)?;
        let end = if to == 0 { len } else { to.min(len) };
        if from >= end {
            return Ok(Vec::new());
        }
        read_holes(&root, run)?.parts(from..end, |r| {
            let len = usize::try_from(r.end - r.start).unwrap_or(usize::MAX);
            let bytes = fs::read_at(&fd, r.start, len).map_err(|e| root.error("read", &rel, e))?;
            Ok(Bytes::from(bytes))
        })
    }
}

/// Whether any of `bytes` is not stored yet. Fails with `Conflict` when other bytes are.
fn missing(
    root: &Root,
    run: &RunId,
    fd: &OwnedFd,
    len: u64,
    stretch: std::ops::Range<u64>,
    bytes: &[u8],
    holes: &Holes,
) -> Result<bool> {
    let mut new = stretch.end > len;
    for (range, is_hole) in holes.split(stretch.start..stretch.end.min(len)) {
        if is_hole {
            new = true;
            continue;
        }
        let ours = (range.start - stretch.start) as usize..(range.end - stretch.start) as usize;
        let there = fs::read_at(fd, range.start, ours.len())
            .map_err(|e| root.error("read", &path_of(run), e))?;
        if there != bytes[ours] {
            let message = format!("the log of run {run} has other bytes at offset {}", range.start);
            return Err(Error::new(Kind::Conflict, "conflict", message));
        }
    }
    Ok(new)
}
