//! The only place in core that touches the file system: handles below which
//! nothing follows a link, whole-file helpers that publish by rename, and probes.
//!
//! Every function blocks; async code crosses to a blocking thread once per
//! operation, whole.
#![expect(clippy::disallowed_methods, reason = "the only place that uses std::fs")]

mod change;
mod dir;
mod file;
mod lock;
pub mod probe;
pub mod proc;

pub use change::{
    is_absence, is_superuser, is_unsupported, process_start, set_file_mode, stat_open, user_id,
};
pub use dir::{Dir, NameKind, beneath};
pub use file::{ReadFailure, hash_open_file, publish, read_small, read_stable, write_all};
pub use lock::{open_lock, try_lock};

use std::io;
use std::path::{Path, PathBuf};

/// Resolves every link in a host path.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// `stat` of a host path, links resolved.
pub fn stat_path(path: &Path) -> io::Result<Stat> {
    dir::stat_path(path)
}

/// Whether a host path leads to a file that we may execute.
pub fn is_program(path: &Path) -> bool {
    stat_path(path).is_ok_and(|stat| stat.kind == FileKind::File)
        && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Makes a host directory and its missing parents with mode 0700.
pub fn make_private_dirs(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Kind of a file system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Special,
}

/// What `lstat` says of a path, as far as the engine uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits 0..0o7777.
    pub mode: u32,
    /// Apparent size in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time, nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Inode number.
    pub inode: u64,
    /// Device number.
    pub device: u64,
    /// Mount id where the system has one, else the device number.
    pub mount: u64,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Stat {
    /// Stands in where `lstat` itself failed.
    pub fn unknown() -> Self {
        Self {
            kind: FileKind::Special,
            mode: 0,
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            inode: 0,
            device: 0,
            mount: 0,
            links: 0,
            uid: 0,
            gid: 0,
        }
    }

    /// True if both describe the same, unmoved file.
    pub fn same_file_state(&self, other: &Self) -> bool {
        self.device == other.device
            && self.inode == other.inode
            && self.size == other.size
            && self.mtime_ns == other.mtime_ns
            && self.ctime_ns == other.ctime_ns
    }
}

/// The name of a system error, e.g. `EACCES`.
pub fn errno_name(e: &io::Error) -> String {
    use rustix::io::Errno;
    let Some(code) = e.raw_os_error() else { return e.kind().to_string() };
    let known = [
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::IO, "EIO"),
        (Errno::NOENT, "ENOENT"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::STALE, "ESTALE"),
        (Errno::ROFS, "EROFS"),
        (Errno::BUSY, "EBUSY"),
    ];
    let found = known.iter().find(|(k, _)| k.raw_os_error() == code);
    found.map_or_else(|| format!("errno {code}"), |(_, n)| (*n).to_owned())
}

/// True for running out of handles or memory: a failure of the host that must stop
/// the operation, not a property of one path.
pub fn is_exhaustion(e: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM]
        .iter()
        .any(|k| e.raw_os_error() == Some(k.raw_os_error()))
}
