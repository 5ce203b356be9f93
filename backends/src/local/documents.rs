//! Documents as files under their key strings. Writes to one run, and to one key
//! elsewhere, go one at a time: under a striped lock file a write reads, compares and
//! renames, so a compare-and-swap holds between processes.

use std::io;
use std::os::fd::OwnedFd;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::store::docs::{absent, check_body, conflict, deleted, token_of};
use backtrail_core::store::{
    DocKey, Document, Expect, Fence, Listed, LockName, MAX_BYTES, Prefix, Version,
};
use bytes::Bytes;
use rustix::fs::{self as rfs, AtFlags, FlockOperation, OFlags};

use super::fs::{self, Root};
use super::handle::Handle;
use super::listing::STALE;
use super::publish;

/// The lock files of document writes; their number bounds how many writers of
/// different runs can go at once.
const STRIPES: &str = "locks/documents";
const STRIPE_COUNT: u8 = 64;

/// The version of a body: equal bytes, equal version; mutable documents never have
/// equal bytes twice.
pub(super) fn version_of(body: &[u8]) -> Version {
    Version(Digest::of(body).hex())
}

/// Reads the document at `key`; `None` when it does not exist.
pub(super) fn read(root: &Root, key: &str) -> Result<Option<Bytes>> {
    let fd = match root.at(key, fs::READ) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A name this file system cannot hold is certainly not there.
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => return Ok(None),
        Err(e) => return Err(root.error("read", key, e)),
    };
    let stat = rfs::fstat(&fd).map_err(|e| root.error("read", key, e.into()))?;
    if !fs::is_file(&stat) {
        return Err(Error::corrupt(format!(
            "{} is no regular file",
            root.path.join(key).display()
        )));
    }
    let len = fs::len_of(&stat);
    if len > MAX_BYTES as u64 {
        return Err(Error::corrupt(format!(
            "document {key} has {len} bytes, above the limit of {MAX_BYTES}"
        )));
    }
    let body = fs::read_at(&fd, 0, len as usize).map_err(|e| root.error("read", key, e))?;
    Ok(Some(Bytes::from(body)))
}

/// The stripe that serializes writes to `key`: one per run, so that a tombstone, the
/// documents and the logs of a run are never written at the same time.
fn stripe_of(key: &DocKey) -> u8 {
    let owner = match (key.run(), key) {
        (Some(run), _) | (None, DocKey::RunTombstone(run)) => format!("runs/{run}"),
        _ => key.to_string(),
    };
    Digest::of(owner.as_bytes()).0[0] % STRIPE_COUNT
}

impl Handle {
    /// Takes the write lock of a key; freed when the file closes.
    pub(super) fn stripe(&self, root: &Root, key: &DocKey) -> Result<OwnedFd> {
        let rel = format!("{STRIPES}/{:02x}", stripe_of(key));
        let failed = |e: io::Error| root.error("lock", &rel, e);
        let flags = fs::WRITE | OFlags::CREATE;
        let fd = match root.at(&rel, flags) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                root.make_dir(STRIPES, fs::Sync(false)).map_err(failed)?;
                root.at(&rel, flags)
            }
            done => done,
        }
        .map_err(failed)?;
        loop {
            // Held for one write at a time, so waiting here is short.
            match rfs::flock(&fd, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(failed(e.into())),
                Ok(()) => return Ok(fd),
            }
        }
    }

    pub(super) fn get_document(&self, key: &DocKey) -> Result<Document> {
        let body = match self.read()? {
            Some(root) => read(&root, &key.to_string())?,
            None => None,
        };
        let body = body.ok_or_else(|| absent(key))?;
        Ok(Document { version: version_of(&body), body })
    }

    pub(super) fn put_document(
        &self,
        key: &DocKey,
        body: &Bytes,
        expect: &Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        let text = key.to_string();
        check_body(key, body)?;
        let root = self.write()?;
        let _stripe = self.stripe(&root, key)?;
        check_run(&root, key)?;
        if let DocKey::Run(run) = key {
            self.settle_events(&root, run)?;
        }
        let current = read(&root, &text)?;
        let version = current.as_ref().map(|b| version_of(b));
        if let (Some(fence), Some(current)) = (fence, &current) {
            fence.check(&text, token_of(current))?;
        }
        match expect {
            Expect::Absent if version.is_some() => return Err(conflict(key, version.as_ref())),
            Expect::Version(v) if version.as_ref() != Some(v) => {
                return Err(conflict(key, version.as_ref()));
            }
            _ => {}
        }
        self.publish(&root, key, &text, body, *expect == Expect::Absent)?;
        Ok(version_of(body))
    }

    fn publish(
        &self,
        root: &Root,
        key: &DocKey,
        text: &str,
        body: &[u8],
        create: bool,
    ) -> Result<()> {
        let failed = |e| root.write_error("write", text, body.len() as u64, e);
        let (dir, name) = fs::split(text);
        let temp = fs::staging_name(&*self.options.ids)?;
        let mut tries = 0;
        let fd = loop {
            let fd = match dir {
                "" => root.dir(""),
                dir => root.make_dir(dir, self.sync),
            };
            tries += 1;
            match fd.and_then(|fd| publish::stage(&fd, &temp, body, self.sync).map(|()| fd)) {
                Ok(fd) => break fd,
                // A deletion beside us removed the directory while it was empty.
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < 10 => {}
                Err(e) => return Err(failed(e)),
            }
        };
        if let Err(e) = self.reach("store.doc.staged") {
            let _ = fs::unlink(&fd, &temp);
            return Err(e);
        }
        if create {
            if !publish::create(&fd, &temp, name).map_err(failed)? {
                // Somebody who does not take our lock was faster.
                let present = read(root, text)?;
                return Err(conflict(key, present.as_ref().map(|b| version_of(b)).as_ref()));
            }
        } else {
            publish::replace(&fd, &temp, name).map_err(failed)?;
        }
        self.reach("store.doc.named")?;
        // The name is there: the write happened, only its durability is unknown.
        let unsure = Kind::Unavailable { maybe_applied: true };
        self.sync.dir(&fd).map_err(|e| failed(e).with_kind(unsure))
    }

    pub(super) fn delete_document(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        let text = key.to_string();
        let Some(root) = self.read()? else {
            return version.map_or(Ok(()), |_| Err(conflict(key, None)));
        };
        let found = root.stat(&text).map_err(|e| root.error("delete", &text, e))?;
        let run = match key {
            DocKey::Run(run) if is_deleted(&root, run)? => Some(run),
            _ => None,
        };
        if found.is_none() && version.is_none() {
            // A crash may have come between the document and what goes with it.
            return run.map_or(Ok(()), |run| self.finish_run(run));
        }
        let root = self.write()?;
        let _stripe = self.stripe(&root, key)?;
        if let Some(wanted) = version {
            let present = read(&root, &text)?.map(|b| version_of(&b));
            if present.as_ref() != Some(wanted) {
                return Err(conflict(key, present.as_ref()));
            }
        }
        let (dir, name) = fs::split(&text);
        let failed = |e: io::Error| root.error("delete", &text, e);
        let fd = match root.dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            fd => fd.map_err(failed)?,
        };
        fs::unlink(&fd, name).map_err(failed)?;
        self.sync.dir(&fd).map_err(failed)?;
        if let Some(run) = run {
            remove_records(&root, &format!("runs/{run}"))?;
        }
        remove_empty_dirs(&root, dir);
        Ok(())
    }

    /// Removes places of runs that do not exist: a day old, unlocked, without a record or
    /// any other document. What holds documents is for a person to look at.
    pub(super) fn sweep_runs(&self) -> Result<()> {
        let Some(root) = self.read()? else { return Ok(()) };
        for row in self.list_documents(&Prefix::RunRecords)? {
            let Listed::Foreign { name } = row else { continue };
            let run = name.strip_prefix("runs/").and_then(|run| run.parse::<RunId>().ok());
            let Some(run) = run else { continue };
            let documents = self.list_documents(&Prefix::Run(run.clone()))?;
            let holds = documents.iter().any(|row| matches!(row, Listed::Doc { .. }));
            let age = match root.stat(&name).map_err(|e| root.error("look at", &name, e))? {
                Some(stat) if fs::is_dir(&stat) => fs::age_of(&stat, fs::file_clock()),
                _ => continue,
            };
            let held = self.lock_holder(&LockName::Run(run.clone()))?.is_some();
            if holds || age < STALE || held {
                continue;
            }
            let _stripe = self.stripe(&root, &DocKey::Run(run.clone()))?;
            if run_exists(&root, &run).is_err_and(|e| e.is_not_found()) {
                remove_records(&root, &name)?;
                remove_empty_dirs(&root, &name);
            }
        }
        Ok(())
    }

    /// Removes what a deleted run still has beside documents.
    fn finish_run(&self, run: &RunId) -> Result<()> {
        let root = self.write()?;
        let _stripe = self.stripe(&root, &DocKey::Run(run.clone()))?;
        let dir = format!("runs/{run}");
        remove_records(&root, &dir)?;
        remove_empty_dirs(&root, &dir);
        Ok(())
    }
}

/// True when the run has a tombstone.
pub(super) fn is_deleted(root: &Root, run: &RunId) -> Result<bool> {
    let key = DocKey::RunTombstone(run.clone()).to_string();
    let stat = match root.stat(&key) {
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => None,
        stat => stat.map_err(|e| root.error("look at", &key, e))?,
    };
    Ok(stat.is_some())
}

/// Refuses a write below a run that does not exist or was deleted (CLD-D10). Only the
/// creation of the run document may make a run.
fn check_run(root: &Root, key: &DocKey) -> Result<()> {
    let Some(run) = key.run() else { return Ok(()) };
    let creates = matches!(key, DocKey::Run(_));
    if is_deleted(root, run)? {
        return Err(deleted(run, creates));
    }
    if creates { Ok(()) } else { run_exists(root, run) }
}

/// Fails with `NotFound`, or `deleted`, unless the run document exists.
pub(super) fn run_exists(root: &Root, run: &RunId) -> Result<()> {
    let key = DocKey::Run(run.clone()).to_string();
    match root.stat(&key) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(missing_run(root, run)),
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => Err(missing_run(root, run)),
        Err(e) => Err(root.error("look at", &key, e)),
    }
}

fn missing_run(root: &Root, run: &RunId) -> Error {
    match is_deleted(root, run) {
        Ok(true) => deleted(run, false),
        _ => Error::not_found(format!("run {run} is not in the store")),
    }
}

/// Removes what no key names from a deleted run's directory `rel` and below: its logs,
/// its `.pid` and unknown files. Documents are deleted under their own keys.
fn remove_records(root: &Root, rel: &str) -> Result<()> {
    let failed = |e: io::Error| root.error("delete", rel, e);
    let fd = match root.dir(rel) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        fd => fd.map_err(failed)?,
    };
    for entry in fs::entries(&fd).map_err(failed)? {
        let path = format!("{rel}/{}", entry.name);
        if entry.exact && DocKey::parse(&path).is_some() {
            continue;
        }
        match rfs::unlinkat(&fd, &entry.name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {
                remove_records(root, &path)?;
                // It stays while documents lie in it.
                let _ = rfs::unlinkat(&fd, &entry.name, AtFlags::REMOVEDIR);
            }
            Err(e) => return Err(failed(e.into())),
        }
    }
    Ok(())
}

/// Removes `dir` and its parents below the store while they are empty; the top ones stay.
fn remove_empty_dirs(root: &Root, dir: &str) {
    let mut dir = dir;
    while let Some((parent, name)) = dir.rsplit_once('/') {
        let Ok(fd) = root.dir(parent) else { return };
        if rfs::unlinkat(&fd, name, AtFlags::REMOVEDIR).is_err() {
            return;
        }
        dir = parent;
    }
}
