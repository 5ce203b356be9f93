//! A file locked as a whole; the lock lives as long as any copy of its descriptor.

use std::fs::File;
use std::io;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::Dir;

/// Opens the lock file `name`, which is made with mode 0600 when it is not there, and
/// must be no link.
pub fn open_lock(dir: &Dir, name: &str) -> io::Result<File> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?))
}

/// Takes the lock, shared or exclusive, unless somebody holds it; true if it was taken.
pub fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    let how = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match fs::flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
