//! What a restore does to files and directories besides moving them: modes and
//! owners through handles, creation with a known mode, and who this process is.

use std::ffi::CString;
use std::fs::File;
use std::io;

use rustix::fs::{self, Access, AtFlags, Mode, OFlags};
use rustix::process::{Gid, Uid};

use super::dir::stat_file;
use super::{Dir, FileKind, Stat};

fn cstr(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

impl Dir {
    /// Creates the file `name` exclusively for writing. The umask applies to `mode`,
    /// so the file is never wider than `mode`; see [`super::probe::umask`].
    pub fn create_file_mode(&self, name: &[u8], mode: u32) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(self, cstr(name)?, flags, Mode::from_raw_mode(mode))?;
        Ok(File::from(fd))
    }

    /// Sets the mode of the regular file or directory `name` through a handle, after
    /// checking that the handle is inode `inode`; anything else is `NotFound`.
    pub fn set_mode_of(&self, name: &[u8], inode: u64, mode: u32) -> io::Result<()> {
        let file = self.open_file(name)?;
        let stat = stat_file(&file)?;
        let right = matches!(stat.kind, FileKind::File | FileKind::Dir) && stat.inode == inode;
        if !right {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(fs::fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Gives `name` this owner and group; a link is changed itself.
    pub fn set_owner(&self, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(fs::chownat(self, cstr(name)?, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives `name` this group only, for a member who is no superuser.
    pub fn set_group(&self, name: &[u8], gid: u32) -> io::Result<()> {
        let gid = Some(Gid::from_raw(gid));
        Ok(fs::chownat(self, cstr(name)?, None, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes `to_name` in `to` another name of the file or link `name`.
    pub fn link(&self, name: &[u8], to: &Self, to_name: &[u8]) -> io::Result<()> {
        Ok(fs::linkat(self, cstr(name)?, to, cstr(to_name)?, AtFlags::empty())?)
    }

    /// True if this process may add, move and remove names in this directory.
    pub fn may_change(&self) -> bool {
        let want = Access::WRITE_OK | Access::EXEC_OK;
        fs::accessat(self, c".", want, AtFlags::EACCESS).is_ok()
    }
}

/// Sets the mode of an open file.
pub fn set_file_mode(file: &File, mode: u32) -> io::Result<()> {
    Ok(fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

/// `fstat` of an open file.
pub fn stat_open(file: &File) -> io::Result<Stat> {
    stat_file(file)
}

/// True if this process runs as the superuser.
pub fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// The start time of the process `pid` in clock ticks since boot; `None` when there
/// is no such process or it is a zombie that holds nothing any more.
pub fn process_start(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets and may hold anything.
    let rest = text.get(text.rfind(')')? + 2..)?;
    let mut fields = rest.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    // Field 22 of proc(5); the state was field 3.
    fields.nth(18)?.parse().ok()
}

/// The effective user id of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// True if the file system does not know the kind of rename that was asked for.
pub fn is_unsupported(e: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP]
        .iter()
        .any(|k| e.raw_os_error() == Some(k.raw_os_error()))
}

/// True if a path leads nowhere: a name is gone, or one on the way is no directory
/// (any more).
pub fn is_absence(e: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP]
        .iter()
        .any(|k| e.raw_os_error() == Some(k.raw_os_error()))
}
