//! The system calls of the local store: everything happens beneath one directory
//! handle and follows no link below it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backtrail_core::clock::IdSource;
use backtrail_core::error::{Error, Kind, Result};
use rustix::fs::{self as rfs, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Mode of every directory of a store.
pub(super) const DIR_MODE: Mode = Mode::RWXU;
/// Mode of every file of a store.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Opening to read: no link, and no waiting for the writer of a pipe.
pub(super) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Opening to append or patch.
pub(super) const WRITE: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The open store directory.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
}

impl Root {
    /// Opens the store directory; `None` when there is none. The way to the store may
    /// lead through links, what lies below may not.
    pub(super) fn open(path: &Path) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rfs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path: path.to_owned() })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => {
                Err(Error::invalid(format!("store {} is not a directory", path.display())))
            }
            Err(e) => {
                Err(Error::store_io(format!("failed to open store {}", path.display()), e.into()))
            }
        }
    }

    /// Opens `rel` below the store, following no link on the way.
    pub(super) fn at(&self, rel: &str, flags: OFlags) -> io::Result<OwnedFd> {
        open_beneath(&self.fd, rel, flags, FILE_MODE)
    }

    /// Opens a directory below the store.
    pub(super) fn dir(&self, rel: &str) -> io::Result<OwnedFd> {
        self.at(if rel.is_empty() { "." } else { rel }, DIR_FLAGS)
    }

    /// What lies at `rel`, links not followed; `None` when nothing does.
    pub(super) fn stat(&self, rel: &str) -> io::Result<Option<Stat>> {
        let (dir, name) = split(rel);
        match self.dir(dir) {
            Ok(fd) => stat_in(&fd, name),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens a directory, making it and its parents (0700) where they are missing.
    pub(super) fn make_dir(&self, rel: &str, sync: Sync) -> io::Result<OwnedFd> {
        match self.dir(rel) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        let mut at = self.fd.try_clone()?;
        for name in rel.split('/') {
            match rfs::mkdirat(&at, name, DIR_MODE) {
                Ok(()) => sync.dir(&at)?,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            at = rfs::openat(&at, name, DIR_FLAGS, Mode::empty())?;
        }
        Ok(at)
    }

    /// Turns an I/O error at `rel` into one of ours: a link or a wrong kind of file in
    /// a record's place is corruption, a full disk says how much is free.
    pub(super) fn error(&self, what: &str, rel: &str, e: io::Error) -> Error {
        let place = self.path.join(rel);
        let place = place.display();
        match Errno::from_io_error(&e) {
            Some(Errno::LOOP | Errno::XDEV) => {
                Error::corrupt(format!("{place} is or lies behind a link")).with_source(e)
            }
            Some(Errno::NOTDIR) => {
                Error::corrupt(format!("{place} lies below something that is no directory"))
                    .with_source(e)
            }
            Some(Errno::NAMETOOLONG) => {
                Error::invalid(format!("{rel} is longer than this file system allows"))
                    .with_source(e)
            }
            _ => Error::store_io(format!("failed to {what} {place}"), e),
        }
    }

    /// [`Root::error`] of a write of `need` bytes.
    pub(super) fn write_error(&self, what: &str, rel: &str, need: u64, e: io::Error) -> Error {
        let error = self.error(what, rel, e);
        if error.code() != "store-full" {
            return error;
        }
        let free =
            rfs::fstatvfs(&self.fd).map(|s| s.f_bavail.saturating_mul(s.f_frsize)).unwrap_or(0);
        let place = self.path.join(rel);
        let message =
            format!("failed to {what} {}: needs {need} bytes, {free} are free", place.display());
        Error::new(Kind::Failed, "store-full", message)
            .with_detail("need", need)
            .with_detail("free", free)
            .with_source(error)
    }
}

/// The directory part and the name of a relative path.
pub(super) fn split(rel: &str) -> (&str, &str) {
    rel.rsplit_once('/').unwrap_or(("", rel))
}

/// What `name` is, links not followed; `None` when it is not there.
pub(super) fn stat_in(dir: impl AsFd, name: &str) -> io::Result<Option<Stat>> {
    match rfs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Opens the directory `name`, no link.
pub(super) fn dir_in(dir: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(rfs::openat(dir, name, DIR_FLAGS, Mode::empty())?)
}

/// True for a regular file.
pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether anything lies at `path`, links followed; used only to find a parent.
pub(super) fn exists(path: &Path) -> bool {
    rfs::stat(path).is_ok()
}

/// The length of a regular file.
pub(super) fn len_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// How long ago `stat` was modified, by the clock that stamps files; never negative.
pub(super) fn age_of(stat: &Stat, now: Duration) -> Duration {
    let secs = u64::try_from(stat.st_mtime).unwrap_or(0);
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    now.saturating_sub(Duration::new(secs, nanos))
}

/// The clock with which the kernel stamps files, since 1970.
pub(super) fn file_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(target_os = "linux")]
fn open_beneath(root: &OwnedFd, rel: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // The kernel refuses a mode for an open that cannot create.
    let create_mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    loop {
        match rfs::openat2(root, rel, flags, create_mode, resolve) {
            // A rename elsewhere made the kernel give up the walk: walk again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Old kernels have no such call, and some sandboxes forbid it.
            Err(Errno::NOSYS | Errno::PERM) => return walk_beneath(root, rel, flags, mode),
            done => return Ok(done?),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(root: &OwnedFd, rel: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    walk_beneath(root, rel, flags, mode)
}

/// Opens name by name; each step refuses a link.
fn walk_beneath(root: &OwnedFd, rel: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let (dirs, name) = split(rel);
    let mut at: Option<OwnedFd> = None;
    for dir in dirs.split('/').filter(|s| !s.is_empty()) {
        if dir == ".." {
            return Err(Errno::XDEV.into());
        }
        let from = at.as_ref().unwrap_or(root);
        at = Some(rfs::openat(from, dir, DIR_FLAGS, Mode::empty())?);
    }
    let from = at.as_ref().unwrap_or(root);
    Ok(rfs::openat(from, name, flags | OFlags::NOFOLLOW, mode)?)
}

/// Whether files are handed to stable storage; off only by `unsafe_no_fsync`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sync(pub(super) bool);

impl Sync {
    /// Makes the bytes of a file durable.
    pub(super) fn file(self, fd: impl AsFd) -> io::Result<()> {
        if self.0 {
            rfs::fdatasync(fd)?;
        }
        Ok(())
    }
    /// Makes the names in a directory durable.
    pub(super) fn dir(self, fd: impl AsFd) -> io::Result<()> {
        if self.0 {
            rfs::fsync(fd)?;
        }
        Ok(())
    }
    /// Makes everything on the file system of `fd` durable.
    pub(super) fn everything(self, fd: impl AsFd) -> io::Result<()> {
        if !self.0 {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        rfs::syncfs(fd)?;
        #[cfg(not(target_os = "linux"))]
        {
            let _ = fd;
            rfs::sync();
        }
        Ok(())
    }
}

/// Writes all of `bytes` at the file's position.
pub(super) fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write_all_at(fd: impl AsFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(&fd, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// At most `len` bytes from `offset`; fewer only at the end of the file.
pub(super) fn read_at(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let at = offset + out.len() as u64;
        match rustix::io::pread(&fd, rustix::buffer::spare_capacity(&mut out), at) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    out.truncate(len);
    Ok(out)
}

/// Creates a file that must not exist, 0600 whatever the umask.
pub(super) fn create_new(dir: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rfs::openat(&dir, name, flags, FILE_MODE)?;
    rfs::fchmod(&fd, FILE_MODE)?;
    Ok(fd)
}

/// A fresh staging name: random, never derived from the target.
pub(super) fn staging_name(ids: &dyn IdSource) -> Result<String> {
    Ok(format!(".tmp-{}", ids.hex(8)?))
}

/// True for a staging name.
pub(super) fn is_staging(name: &str) -> bool {
    name.strip_prefix(".tmp-").is_some_and(|hex| backtrail_core::ids::is_hex(hex, 16))
}

/// A row of a directory.
pub(super) struct Entry {
    /// The name; bytes that are not UTF-8 are replaced, so such a name is no key.
    pub(super) name: String,
    /// False when the name is not UTF-8.
    pub(super) exact: bool,
}

/// The names in a directory, `.` and `..` left out.
pub(super) fn entries(dir: impl AsFd) -> io::Result<Vec<Entry>> {
    let mut out = Vec::new();
    for entry in rfs::Dir::read_from(dir)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        let exact = std::str::from_utf8(bytes).is_ok();
        let name = std::ffi::OsStr::from_bytes(bytes).to_string_lossy().into_owned();
        out.push(Entry { name, exact });
    }
    Ok(out)
}

/// Removes `name`; true if it was there.
pub(super) fn unlink(dir: impl AsFd, name: &str) -> io::Result<bool> {
    match rfs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
