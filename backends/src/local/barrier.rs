//! What a handle has put and not yet made durable, and the barrier that does: sync all
//! pending bytes, then give the final names, then sync the names.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Digest;
use backtrail_core::tasks;

use super::fs::{self, Root};
use super::handle::{Handle, locked};
use super::objects::{DIR, dir_of, short};
use super::publish;

/// Up to this many objects a barrier syncs file by file, above it once for all.
const SYNC_EACH: usize = 8;
/// Threads that give names, and how many names one of them gives at least.
const NAMERS: usize = 4;
const NAME_ALONE: usize = 512;

/// An object staged and not yet under its final name.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    /// Staging name, in the fan-out directory.
    pub(super) temp: String,
    pub(super) compressed: bool,
    pub(super) raw: u64,
    pub(super) stored: u64,
    /// The other spelling exists and is wrong.
    pub(super) drop_other: bool,
}

/// All that one handle has staged.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) staged: HashMap<Digest, Staged>,
    /// Objects and bytes staged since the last barrier began. What a running barrier
    /// names is not among them, so that nobody who puts meanwhile waits for it.
    pub(super) fresh: usize,
    pub(super) fresh_bytes: u64,
    /// Objects that a failed barrier gave up, and why: `flush` must not be Ok before
    /// they were put again.
    pub(super) lost: HashMap<Digest, String>,
}

impl Pending {
    pub(super) fn take(&mut self, digest: &Digest) -> Option<Staged> {
        self.staged.remove(digest)
    }
}

impl Handle {
    /// The durability barrier (CLD-O5).
    pub(super) fn flush(&self) -> Result<()> {
        {
            let pending = locked(&self.pending);
            if pending.staged.is_empty() && pending.lost.is_empty() {
                drop(pending);
                // A barrier that another task runs may still be on its way.
                drop(locked(&self.barrier));
                return self.lost_check();
            }
        }
        let root = self.write()?;
        self.run_barrier(&root)?;
        self.lost_check()
    }

    fn lost_check(&self) -> Result<()> {
        let pending = locked(&self.pending);
        let Some((digest, why)) = pending.lost.iter().next() else {
            return Ok(());
        };
        Err(Error::failed(
            "not-stored",
            format!("{} objects were not stored, among them {digest}: {why}", pending.lost.len()),
        ))
    }

    pub(super) fn run_barrier(&self, root: &Root) -> Result<()> {
        let _one = locked(&self.barrier);
        let work: Vec<(Digest, Staged)> = {
            let mut pending = locked(&self.pending);
            (pending.fresh, pending.fresh_bytes) = (0, 0);
            pending.staged.iter().map(|(d, s)| (*d, s.clone())).collect()
        };
        if work.is_empty() {
            return Ok(());
        }
        let done = self.make_durable(root, &work);
        if let Err(e) = &done {
            self.give_up(root, &work, e.message());
        }
        done
    }

    fn make_durable(&self, root: &Root, work: &[(Digest, Staged)]) -> Result<()> {
        let failed = |e| root.error("sync", DIR, e);
        let top = root.dir(DIR).map_err(failed)?;
        if work.len() <= SYNC_EACH {
            for (digest, staged) in work {
                let rel = format!("{}/{}", dir_of(digest), staged.temp);
                let fd = root.at(&rel, fs::READ).map_err(|e| root.error("sync", &rel, e))?;
                self.sync.file(fd).map_err(|e| root.error("sync", &rel, e))?;
            }
        } else {
            self.sync.everything(&top).map_err(failed)?;
        }
        self.reach("store.object.synced")?;
        let dirs = self.name_all(root, &top, work)?;
        self.sync_names(root, &top, &dirs).map_err(failed)
    }

    /// Names everything, on a few threads: renames in different directories do not wait
    /// for each other. The directories that got names.
    fn name_all(
        &self,
        root: &Root,
        top: &OwnedFd,
        work: &[(Digest, Staged)],
    ) -> Result<BTreeSet<String>> {
        let name_some = |work: &[(Digest, Staged)]| {
            let mut dirs = Vec::with_capacity(work.len());
            for (digest, staged) in work {
                match self.name(root, top, digest, staged) {
                    Ok(dir) => dirs.push(dir),
                    // One object without a name keeps no other from its own.
                    Err(e) => self.lose(root, digest, e.message()),
                }
                self.reach("store.object.named")?;
            }
            Ok(dirs)
        };
        Ok(tasks::split(work, NAMERS, NAME_ALONE, name_some)?.into_iter().collect())
    }

    fn sync_names(&self, root: &Root, top: &OwnedFd, dirs: &BTreeSet<String>) -> io::Result<()> {
        if dirs.len() > SYNC_EACH {
            return self.sync.everything(top);
        }
        for dir in dirs {
            self.sync.dir(root.dir(dir)?)?;
        }
        // Another process may have made a fan-out directory and not synced it yet. Where
        // nothing is new, the system answers at once.
        self.sync.dir(top)?;
        self.sync.dir(&root.fd)
    }

    fn lose(&self, root: &Root, digest: &Digest, why: &str) {
        let mut pending = locked(&self.pending);
        if let Some(staged) = pending.take(digest) {
            remove(root, &dir_of(digest), &staged.temp);
        }
        pending.lost.insert(*digest, why.to_owned());
    }

    /// Gives a staged object its final name; its fan-out directory. The names lead
    /// through a directory that staging has shown to be no link.
    fn name(&self, root: &Root, top: &OwnedFd, digest: &Digest, staged: &Staged) -> Result<String> {
        let name = short(digest, staged.compressed);
        let failed = |e| root.error("name", &format!("{DIR}/{name}"), e);
        let temp = format!("{}/{}", &name[..2], staged.temp);
        publish::replace(top, &temp, &name).map_err(failed)?;
        if staged.drop_other {
            fs::unlink(top, &short(digest, !staged.compressed)).map_err(failed)?;
        }
        locked(&self.pending).take(digest);
        Ok(format!("{DIR}/{}", &name[..2]))
    }

    /// After a failed barrier nothing of it may be taken for stored: the kernel may
    /// have dropped the bytes, so syncing once more would prove nothing.
    fn give_up(&self, root: &Root, work: &[(Digest, Staged)], why: &str) {
        for (digest, _) in work {
            self.lose(root, digest, why);
        }
    }

    /// Removes all staged files; what cannot be removed is swept after a day.
    pub(super) fn drop_staged(&self) {
        let staged = std::mem::take(&mut locked(&self.pending).staged);
        if staged.is_empty() {
            return;
        }
        if let Ok(Some(root)) = self.read() {
            for (digest, staged) in staged {
                remove(&root, &dir_of(&digest), &staged.temp);
            }
        }
    }

    /// The digests staged by this handle whose name begins with `fan`, for listings.
    pub(super) fn staged_below(&self, fan: &str) -> Vec<(Digest, u64)> {
        let pending = locked(&self.pending);
        let ours = pending.staged.iter().filter(|(d, _)| d.hex().starts_with(fan));
        ours.map(|(d, s)| (*d, s.stored)).collect()
    }
}

/// Removes a staging file where possible: what stays is swept after a day.
pub(super) fn remove(root: &Root, dir: &str, temp: &str) {
    if let Ok(fd) = root.dir(dir) {
        let _ = fs::unlink(fd, temp);
    }
}
