//! Directory handles: every operation is relative to one and follows no link.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags};

use super::{FileKind, Stat};
use crate::path::RelPath;

/// The longest piece of a path handed to the system in one call.
const MAX_PIECE: usize = 3000;

/// The kind a directory listing reports, when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A directory.
    Dir,
    /// Anything else.
    Other,
    /// The file system does not say.
    Unknown,
}

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn cstr(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

impl Dir {
    /// Opens a directory by host path, resolving links on the way.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(fs::open(path, flags, Mode::empty())?))
    }

    /// Opens the directory called `name`, which must not be a link.
    pub fn open_dir(&self, name: &[u8]) -> io::Result<Self> {
        Ok(Self(fs::openat(&self.0, cstr(name)?, DIR_FLAGS, Mode::empty())?))
    }

    /// Opens the directory at `path` below this one; no component may be a link.
    pub fn open_below(&self, path: &RelPath) -> io::Result<Self> {
        let mut here = Self(self.0.try_clone()?);
        for piece in pieces(path.as_bytes()) {
            here = Self(beneath(&here, piece, DIR_FLAGS)?);
        }
        Ok(here)
    }

    /// Opens the directory that holds `path` and returns it with the last name.
    pub fn open_parent<'p>(&self, path: &'p RelPath) -> io::Result<(Self, &'p [u8])> {
        let parent = path.parent().unwrap_or_default();
        Ok((self.open_below(&parent)?, path.name()))
    }

    /// Another handle on the same directory.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Calls `each` with every name but `.` and `..`. `buf` is scratch space.
    pub fn list(&self, buf: &mut Vec<u8>, mut each: impl FnMut(&[u8], NameKind)) -> io::Result<()> {
        buf.clear();
        buf.reserve(64 * 1024);
        let spare: &mut [MaybeUninit<u8>] = buf.spare_capacity_mut();
        let mut rows = fs::RawDir::new(&self.0, spare);
        while let Some(row) = rows.next() {
            let row = row?;
            let name = row.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match row.file_type() {
                fs::FileType::Directory => NameKind::Dir,
                fs::FileType::Unknown => NameKind::Unknown,
                _ => NameKind::Other,
            };
            each(name, kind);
        }
        Ok(())
    }

    /// Names in this directory, sorted.
    pub fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        let fresh = self.open_dir(b".")?;
        fresh.list(&mut Vec::new(), |n, _| out.push(n.to_vec()))?;
        out.sort();
        Ok(out)
    }

    /// `lstat` of `name`.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        // Names shorter than 255 bytes avoid the allocation of a CString.
        let mut short = [0u8; 256];
        if let Some(slot) = short.get_mut(..name.len())
            && name.len() < 256
        {
            slot.copy_from_slice(name);
            if let Ok(c) = std::ffi::CStr::from_bytes_with_nul(&short[..=name.len()]) {
                return statx(&self.0, c, AtFlags::SYMLINK_NOFOLLOW);
            }
        }
        statx(&self.0, &cstr(name)?, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// `stat` of the directory itself.
    pub fn stat_self(&self) -> io::Result<Stat> {
        statx(&self.0, c"", AtFlags::EMPTY_PATH)
    }

    /// When the directory was made, in nanoseconds since 1970, where the file system
    /// records it.
    pub fn birth_ns(&self) -> Option<i64> {
        let s = fs::statx(&self.0, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
        let known = s.stx_mask & StatxFlags::BTIME.bits() != 0;
        known.then(|| nanoseconds(&s.stx_btime))
    }

    /// The target text of the link `name`.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(&self.0, cstr(name)?, Vec::new())?.into_bytes())
    }

    /// Opens the file `name` for reading without following a link and without
    /// blocking on a pipe. Access times are left alone where allowed.
    pub fn open_file(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = cstr(name)?;
        let quiet = fs::openat(&self.0, &name, flags | OFlags::NOATIME, Mode::empty());
        let fd = match quiet {
            Err(rustix::io::Errno::PERM) => fs::openat(&self.0, &name, flags, Mode::empty()),
            other => other,
        };
        Ok(File::from(fd?))
    }

    /// Opens the file at `path` below this directory, as [`Dir::open_file`].
    pub fn open_file_below(&self, path: &RelPath) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if path.as_bytes().len() > MAX_PIECE {
            let (dir, name) = self.open_parent(path)?;
            return dir.open_file(name);
        }
        let quiet = beneath(self, path.as_bytes(), flags | OFlags::NOATIME);
        let fd = match quiet {
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) => {
                beneath(self, path.as_bytes(), flags)
            }
            other => other,
        };
        Ok(File::from(fd?))
    }

    /// `lstat` of `path` below this directory; no component may be a link.
    pub fn stat_below(&self, path: &RelPath) -> io::Result<Stat> {
        let (dir, name) = self.open_parent(path)?;
        if name.is_empty() { dir.stat_self() } else { dir.stat(name) }
    }

    /// Creates the file `name` exclusively with mode 0600, open for reading and writing.
    pub fn create_file(&self, name: &[u8]) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.0, cstr(name)?, flags, Mode::from_raw_mode(0o600))?;
        Ok(File::from(fd))
    }

    /// Makes the directory `name`; the umask applies.
    pub fn make_dir(&self, name: &[u8], mode: u32) -> io::Result<()> {
        Ok(fs::mkdirat(&self.0, cstr(name)?, Mode::from_raw_mode(mode))?)
    }

    /// Makes the link `name` with this target text.
    pub fn make_link(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        Ok(fs::symlinkat(cstr(target)?, &self.0, cstr(name)?)?)
    }

    /// Removes the file or link `name`.
    pub fn unlink(&self, name: &[u8]) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, cstr(name)?, AtFlags::empty())?)
    }

    /// Removes the empty directory `name`.
    pub fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, cstr(name)?, AtFlags::REMOVEDIR)?)
    }

    /// Renames `name` to `to_name` in `to`, replacing what is there.
    pub fn rename(&self, name: &[u8], to: &Self, to_name: &[u8]) -> io::Result<()> {
        Ok(fs::renameat(&self.0, cstr(name)?, &to.0, cstr(to_name)?)?)
    }

    /// Renames, failing with `EEXIST` when the target is there.
    pub fn rename_new(&self, name: &[u8], to: &Self, to_name: &[u8]) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        Ok(fs::renameat_with(&self.0, cstr(name)?, &to.0, cstr(to_name)?, flags)?)
    }

    /// Swaps two names atomically.
    pub fn exchange(&self, name: &[u8], other: &Self, other_name: &[u8]) -> io::Result<()> {
        let flags = RenameFlags::EXCHANGE;
        Ok(fs::renameat_with(&self.0, cstr(name)?, &other.0, cstr(other_name)?, flags)?)
    }

    /// Sets the mode of the directory itself through its handle.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    /// Syncs the directory's entries.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.0)?)
    }

    /// Syncs the whole file system that holds this directory.
    pub fn sync_filesystem(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.0)?)
    }

    /// Bytes a normal user may still allocate, and the total.
    pub fn free_bytes(&self) -> io::Result<(u64, u64)> {
        let s = fs::fstatvfs(&self.0)?;
        Ok((s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize))
    }

    /// Removes everything below and the directory `name` itself. For our own
    /// staging only: never called on a path of the user's.
    pub fn remove_tree(&self, name: &[u8]) -> io::Result<()> {
        match self.stat(name) {
            Ok(s) if s.kind == FileKind::Dir => {}
            Ok(_) => return self.unlink(name),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        }
        let dir = self.open_dir(name)?;
        if !dir.may_change() {
            dir.set_mode(0o700)?;
        }
        for child in dir.names()? {
            dir.remove_tree(&child)?;
        }
        self.remove_dir(name)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Splits a long path at separators into pieces the system accepts.
fn pieces(mut path: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    while path.len() > MAX_PIECE {
        let cut = path[..MAX_PIECE].iter().rposition(|b| *b == b'/').unwrap_or(0);
        let cut =
            if cut == 0 { path.iter().position(|b| *b == b'/').unwrap_or(path.len()) } else { cut };
        out.push(&path[..cut]);
        path = path.get(cut + 1..).unwrap_or(b"");
    }
    if !path.is_empty() {
        out.push(path);
    }
    out
}

/// Opens `path` below `dir` with `openat2`: no component may be a link or lead out.
/// Without `openat2` (old kernels, some sandboxes) each component is opened in turn.
pub fn beneath(dir: &Dir, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name = cstr(path)?;
    loop {
        match fs::openat2(&dir.0, &name, flags, Mode::empty(), resolve) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)
                if !flags.contains(OFlags::NOATIME) =>
            {
                return component_wise(dir, path, flags);
            }
            other => return Ok(other?),
        }
    }
}

fn component_wise(dir: &Dir, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut here = dir.0.try_clone()?;
    let mut names = path.split(|b| *b == b'/').peekable();
    while let Some(name) = names.next() {
        if name == b".." || name.is_empty() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let how = if names.peek().is_some() { DIR_FLAGS } else { flags | OFlags::NOFOLLOW };
        here = fs::openat(&here, cstr(name)?, how, Mode::empty())?;
    }
    Ok(here)
}

fn statx(fd: impl AsFd, name: &std::ffi::CStr, flags: AtFlags) -> io::Result<Stat> {
    let want = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let s = fs::statx(fd, name, flags | AtFlags::NO_AUTOMOUNT, want)?;
    let device = rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor);
    let kind = match fs::FileType::from_raw_mode(u32::from(s.stx_mode)) {
        fs::FileType::RegularFile => FileKind::File,
        fs::FileType::Directory => FileKind::Dir,
        fs::FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    };
    let has_mount = s.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Stat {
        kind,
        mode: u32::from(s.stx_mode) & 0o7777,
        size: s.stx_size,
        mtime_ns: nanoseconds(&s.stx_mtime),
        ctime_ns: nanoseconds(&s.stx_ctime),
        inode: s.stx_ino,
        device,
        mount: if has_mount { s.stx_mnt_id } else { device },
        links: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
    })
}

fn nanoseconds(t: &rustix::fs::StatxTimestamp) -> i64 {
    t.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(t.tv_nsec))
}

/// `stat` of a host path, links resolved.
pub(super) fn stat_path(path: &Path) -> io::Result<Stat> {
    use std::os::unix::ffi::OsStrExt;
    statx(rustix::fs::CWD, &cstr(path.as_os_str().as_bytes())?, AtFlags::empty())
}

/// `fstat` of an open file.
pub(super) fn stat_file(file: &File) -> io::Result<Stat> {
    statx(file, c"", AtFlags::EMPTY_PATH)
}
