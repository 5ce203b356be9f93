//! What a path is now, by reading it.

use std::io;

use crate::diff::State;
use crate::fsx::{self, Dir, FileKind, ReadFailure, Stat};
use crate::ids::Digest;
use crate::path::RelPath;

/// A path as it is on disk.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Kind, mode and content.
    pub(super) side: State,
    /// Its stat, when it is there.
    pub(super) stat: Option<Stat>,
}

impl Look {
    /// The stat of something that is there.
    pub(super) fn inode(&self) -> u64 {
        self.stat.map_or(0, |s| s.inode)
    }
}

/// Reads what `path` is. `None` when it is something no plan holds (a pipe, a device)
/// or moves while it is read: it equals neither side of any step.
pub(super) fn look(root: &Dir, path: &RelPath) -> io::Result<Option<Look>> {
    let (dir, name) = match root.open_parent(path) {
        Ok(found) => found,
        Err(e) if fsx::is_absence(&e) => return Ok(Some(absent())),
        Err(e) => return Err(e),
    };
    look_at(&dir, name)
}

/// As [`look`], for a name in an open directory.
pub(super) fn look_at(dir: &Dir, name: &[u8]) -> io::Result<Option<Look>> {
    let stat = match dir.stat(name) {
        Ok(stat) => stat,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(absent())),
        Err(e) => return Err(e),
    };
    let side = match stat.kind {
        FileKind::Special => return Ok(None),
        FileKind::Dir => State::dir(stat.mode),
        FileKind::Symlink => State::symlink(&dir.read_link(name)?),
        FileKind::File => match read(dir, name)? {
            Some((digest, read)) if read.inode == stat.inode => {
                let side = State::file(read.mode, read.size, digest);
                return Ok(Some(Look { side, stat: Some(read) }));
            }
            _ => return Ok(None),
        },
    };
    Ok(Some(Look { side, stat: Some(stat) }))
}

fn absent() -> Look {
    Look { side: State::absent(), stat: None }
}

fn read(dir: &Dir, name: &[u8]) -> io::Result<Option<(Digest, Stat)>> {
    let Ok(name) = RelPath::new(name) else { return Ok(None) };
    match fsx::read_stable(dir, &name, |file, _| Ok(fsx::hash_open_file(file)?)) {
        Ok((digest, stat)) => Ok(Some((digest, stat))),
        Err(ReadFailure::Io(e)) => Err(e),
        Err(_) => Ok(None),
    }
}

/// True if the two stats are of one unmoved inode, whatever its names: a rename
/// changes the ctime and no more. A directory's time, and on some file systems its
/// size, move with the names in it.
pub(super) fn same_inode(a: &Stat, b: &Stat) -> bool {
    a.kind == b.kind
        && a.device == b.device
        && a.inode == b.inode
        && (a.kind == FileKind::Dir || (a.size == b.size && a.mtime_ns == b.mtime_ns))
}

/// True if a look equals this side in kind and content.
pub(super) fn is_side(look: Option<&Look>, side: &State) -> bool {
    look.is_some_and(|l| l.side.same_content(side))
}
