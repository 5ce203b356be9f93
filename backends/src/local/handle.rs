//! What one open handle on a local store shares between its operations: where the
//! store lies, its marker, and what this handle has put but not yet made durable.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::StoreInfo;
use rustix::fs::{self as rfs, Mode, OFlags};

use super::barrier::Pending;
use super::deferred::Deferred;
use super::fs::{self, Root, Sync};
use super::publish;
use crate::marker::{Marker, MarkerHead};
use crate::open::OpenOptions;

/// What a store directory may hold before it has a marker: all that we make, and the
/// marker that another process makes while we look.
const OUR_NAMES: &[&str] = &[
    "store.json",
    "workspace-objects",
    "runs",
    "run-tombstones",
    "workspaces",
    "checkpoints",
    "worktree-manifests",
    "locks",
    "tenants",
    "damage.json",
    "lost+found",
];

/// State of an open handle.
pub(super) struct Handle {
    pub(super) path: PathBuf,
    pub(super) options: OpenOptions,
    pub(super) sync: Sync,
    /// Objects staged by this handle and not yet under their final names.
    pub(super) pending: Mutex<Pending>,
    /// Held while a barrier runs: one at a time.
    pub(super) barrier: Mutex<()>,
    /// Shared locks asked for while the store did not exist.
    pub(super) deferred: Mutex<Vec<Deferred>>,
    /// Runs whose events were written and could not be synced.
    pub(super) unsynced: Mutex<HashSet<RunId>>,
    /// It is no store: it gets no marker.
    pub(super) locks_only: bool,
    marker: Mutex<Checked>,
}

/// Which directory the marker was checked in, and what it said.
#[derive(Debug, Default)]
struct Checked {
    directory: Option<(u64, u64)>,
    store_id: String,
}

/// Locks a mutex whose holder cannot leave it half changed.
pub(super) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Handle {
    /// A handle on the store at `path`; touches nothing.
    pub(super) fn new(path: PathBuf, options: OpenOptions) -> Self {
        Self {
            sync: Sync(!options.unsafe_no_fsync),
            path,
            options,
            pending: Mutex::default(),
            barrier: Mutex::default(),
            deferred: Mutex::default(),
            unsynced: Mutex::default(),
            locks_only: false,
            marker: Mutex::default(),
        }
    }

    pub(super) fn info(&self) -> StoreInfo {
        StoreInfo {
            url: format!("file://{}", self.path.display()),
            kind: "file",
            store_id: locked(&self.marker).store_id.clone(),
            local_dir: Some(self.path.clone()),
        }
    }

    /// Learns the store id when there is a store; creates nothing.
    pub(super) fn look(&self) -> Result<bool> {
        let Some(root) = Root::open(&self.path)? else {
            return Ok(false);
        };
        // An unreadable marker does not keep anybody from reading the rest.
        if let Ok(Some(head)) = read_marker(&root) {
            locked(&self.marker).store_id = head.store_id;
        }
        Ok(true)
    }

    /// The store for reading; `None` when it does not exist. Fails with `unavailable` when
    /// it was there and is gone: what it held is not absent, and a new one in its place
    /// would begin an empty history.
    pub(super) fn read(&self) -> Result<Option<Root>> {
        let root = Root::open(&self.path)?;
        match root.is_none() && !locked(&self.marker).store_id.is_empty() {
            true => Err(self.gone("its directory is not there any more")),
            false => Ok(root),
        }
    }

    fn gone(&self, why: &str) -> Error {
        Error::unavailable(format!("store {} went away: {why}", self.path.display()))
            .with_hint("put it back, then try again")
    }

    /// The store for writing: created with its marker by the first write, refused when
    /// a newer build made it.
    pub(super) fn write(&self) -> Result<Root> {
        let root = match self.read()? {
            Some(root) => root,
            None => {
                create_root(&self.path, self.sync)?;
                Root::open(&self.path)?.ok_or_else(|| self.gone("somebody removes it"))?
            }
        };
        let stat = rfs::fstat(&root.fd).map_err(|e| root.error("look at", "", e.into()))?;
        let directory = Some((stat.st_dev, stat.st_ino));
        let mut checked = locked(&self.marker);
        if checked.directory != directory && !self.locks_only {
            let known = std::mem::take(&mut checked.store_id);
            let found = self.check_marker(&root, &known);
            checked.store_id = found.as_ref().unwrap_or(&known).clone();
            found?;
            checked.directory = directory;
        }
        drop(checked);
        self.take_deferred(&root);
        Ok(root)
    }

    /// The id of the store, which is made a store when it is none; `known` is the one that
    /// this handle has seen before.
    fn check_marker(&self, root: &Root, known: &str) -> Result<String> {
        if let Some(head) = read_marker(root)? {
            return match known.is_empty() || head.store_id == known {
                true => newer_refused(root, head),
                false => Err(self.gone("another store lies in its place")),
            };
        }
        if !known.is_empty() {
            return Err(self.gone("its marker is not there any more"));
        }
        refuse_foreign(root)?;
        let marker = Marker::fresh("file", &self.options)?;
        let body = marker.body()?;
        let temp = fs::staging_name(&*self.options.ids)?;
        let made = publish::stage(&root.fd, &temp, &body, self.sync)
            .and_then(|()| publish::create(&root.fd, &temp, "store.json"))
            .and_then(|new| self.sync.dir(&root.fd).map(|()| new))
            .map_err(|e| root.write_error("write", "store.json", body.len() as u64, e))?;
        if made {
            return Ok(marker.store_id);
        }
        // Another process was faster: its marker counts.
        let lost = || Error::corrupt(format!("{} has no store.json", root.path.display()));
        newer_refused(root, read_marker(root)?.ok_or_else(lost)?)
    }

    /// Fails at a named point when a test asks for it.
    pub(super) fn reach(&self, point: &str) -> Result<()> {
        self.options.faults.reach(point)
    }
}

impl Drop for Handle {
    /// Removes what was staged and never named: nobody else knows of it.
    fn drop(&mut self) {
        self.drop_staged();
    }
}

fn newer_refused(root: &Root, head: MarkerHead) -> Result<String> {
    head.check_writable(root.path.display())?;
    Ok(head.store_id)
}

fn read_marker(root: &Root) -> Result<Option<MarkerHead>> {
    let fd = match root.at("store.json", fs::READ) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(root.error("read", "store.json", e)),
    };
    let body = fs::read_at(&fd, 0, 1 << 20).map_err(|e| root.error("read", "store.json", e))?;
    MarkerHead::parse(root.path.join("store.json").display(), &body).map(Some)
}

/// A directory with other people's files and no marker is no store of ours: refusing
/// it keeps a mistyped path from filling somebody's project.
fn refuse_foreign(root: &Root) -> Result<()> {
    let dir = root.dir("").map_err(|e| root.error("list", "", e))?;
    let names = fs::entries(dir).map_err(|e| root.error("list", "", e))?;
    let foreign = |name: &str| !name.starts_with('.') && !OUR_NAMES.contains(&name);
    match names.iter().find(|e| !e.exact || foreign(&e.name)) {
        None => Ok(()),
        Some(odd) => Err(Error::refused(
            "not-a-store",
            format!("{} has no store.json and holds {:?}", root.path.display(), odd.name),
        )
        .with_hint("give --store an empty or new directory")),
    }
}

/// Makes the store directory and its missing parents, 0700, each name made durable.
fn create_root(path: &Path, sync: Sync) -> Result<()> {
    let failed =
        |at: &Path, e: io::Error| Error::store_io(format!("failed to create {}", at.display()), e);
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !fs::exists(p)).collect();
    for dir in missing.into_iter().rev() {
        match rfs::mkdir(dir, fs::DIR_MODE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => continue,
            Err(e) => return Err(failed(dir, e.into())),
        }
        let parent = dir.parent().unwrap_or(dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rfs::open(parent, flags, Mode::empty()).map_err(|e| failed(dir, e.into()))?;
        sync.dir(fd).map_err(|e| failed(dir, e))?;
    }
    Ok(())
}
