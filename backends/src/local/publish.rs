//! The one way a file gets its name: stage beside it, sync, then link or rename.
//! The caller syncs the directory afterwards; only then is the name durable.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self as rfs, AtFlags};
use rustix::io::Errno;

use super::fs::{self, Sync};

/// Writes and syncs a staging file; nothing is left behind when that fails.
pub(super) fn stage(dir: impl AsFd, temp: &str, bytes: &[u8], sync: Sync) -> io::Result<()> {
    let fd = fs::create_new(&dir, temp)?;
    let done = fs::write_all(&fd, bytes).and_then(|()| sync.file(&fd));
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::unlink(&dir, temp);
    }
    done
}

/// Gives the staging file the name `name` unless that exists; true if it did. The
/// staging file is gone afterwards in either case.
pub(super) fn create(dir: impl AsFd, temp: &str, name: &str) -> io::Result<bool> {
    let linked = match rfs::linkat(&dir, temp, &dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // No hard links here (FAT, some network mounts).
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {
            return create_by_rename(dir, temp, name);
        }
        Err(e) => Err(io::Error::from(e)),
    };
    let removed = fs::unlink(&dir, temp);
    let new = linked?;
    removed?;
    Ok(new)
}

#[cfg(target_os = "linux")]
fn create_by_rename(dir: impl AsFd, temp: &str, name: &str) -> io::Result<bool> {
    use rustix::fs::RenameFlags;
    match rfs::renameat_with(&dir, temp, &dir, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => fs::unlink(&dir, temp).map(|_| false),
        Err(e) => {
            let _ = fs::unlink(&dir, temp);
            Err(e.into())
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn create_by_rename(dir: impl AsFd, temp: &str, _name: &str) -> io::Result<bool> {
    let _ = fs::unlink(&dir, temp);
    Err(Errno::OPNOTSUPP.into())
}

/// Gives the staging file the name `name`, replacing what has it.
pub(super) fn replace(dir: impl AsFd, temp: &str, name: &str) -> io::Result<()> {
    rfs::renameat(&dir, temp, &dir, name).map_err(|e| {
        let _ = fs::unlink(&dir, temp);
        e.into()
    })
}
