//! The moves of a restore: put in, swap, take away. Each either did its whole work or
//! left the path as it was; what it takes out of the way is kept, never unlinked.

use std::io;

use super::look::same_inode;
use crate::fsx::{self, Dir, FileKind, Stat};

/// Why a move did not happen.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The path is not what was looked at and banked.
    Changed,
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Self {
        // The name went, appeared, or a directory on the way became something else.
        if fsx::is_absence(&e) || e.kind() == io::ErrorKind::AlreadyExists {
            return Self::Changed;
        }
        Self::Io(e)
    }
}

/// A name in the workspace and the name of its step in `new` and `old`.
pub(super) struct Spot<'a> {
    /// The directory in the workspace.
    pub(super) dir: &'a Dir,
    /// The name there.
    pub(super) name: &'a [u8],
    /// The name to put something in place under, where the file system folds case and
    /// that is another spelling.
    pub(super) last: Option<&'a [u8]>,
    /// The staging's `new`.
    pub(super) new: &'a Dir,
    /// The staging's `old`.
    pub(super) old: &'a Dir,
    /// The step's name in both.
    pub(super) n: &'a [u8],
}

impl Spot<'_> {
    /// Moves the staged thing to a name that must be free.
    pub(super) fn put(&self) -> Result<(), Refusal> {
        self.put_from(self.new)
    }

    /// Moves `from/<n>` to a name that must be free.
    pub(super) fn put_from(&self, from: &Dir) -> Result<(), Refusal> {
        self.put_as(from, self.last.unwrap_or(self.name))
    }

    fn put_as(&self, from: &Dir, name: &[u8]) -> Result<(), Refusal> {
        match from.rename_new(self.n, self.dir, name) {
            Err(e) if fsx::is_unsupported(&e) => {
                if from.stat(self.n)?.kind == FileKind::Dir {
                    // `mkdir` is the one way to claim a free name for a directory; a
                    // rename then replaces it while it is empty.
                    self.dir.make_dir(name, 0o700)?;
                    return Ok(from.rename(self.n, self.dir, name)?);
                }
                from.link(self.n, self.dir, name)?;
                Ok(from.unlink(self.n)?)
            }
            other => Ok(other?),
        }
    }

    /// Swaps the staged thing with what is there, which must be `banked`; that ends up
    /// in `old`. The name never vanishes.
    pub(super) fn swap(&self, banked: &Stat) -> Result<(), Refusal> {
        if self.last.is_some() {
            // An exchange would keep the present spelling.
            self.take(banked)?;
            return match self.put() {
                Err(e) => self.put_as(self.old, self.name).and(Err(e)),
                done => done,
            };
        }
        match self.new.exchange(self.n, self.dir, self.name) {
            Err(e) if fsx::is_unsupported(&e) => return self.swap_by_link(banked),
            other => other?,
        }
        match self.displaced_is(self.new, banked) {
            Ok(true) => Ok(self.new.rename(self.n, self.old, self.n)?),
            found => {
                // Not what the bank holds: it goes back where it was.
                self.new.exchange(self.n, self.dir, self.name)?;
                Err(found.map_or_else(Refusal::Io, |_| Refusal::Changed))
            }
        }
    }

    /// Where no exchange exists: a second name keeps the old inode, then the new one
    /// replaces the first. A directory has to be moved aside instead.
    fn swap_by_link(&self, banked: &Stat) -> Result<(), Refusal> {
        let linked =
            banked.kind != FileKind::Dir && self.dir.link(self.name, self.old, self.n).is_ok();
        if !linked {
            self.dir.rename(self.name, self.old, self.n)?;
        }
        if !self.displaced_is(self.old, banked).unwrap_or(false) {
            if linked {
                self.old.unlink(self.n)?;
            } else {
                self.put_from(self.old)?;
            }
            return Err(Refusal::Changed);
        }
        let put = match linked {
            true => self.new.rename(self.n, self.dir, self.name).map_err(Refusal::from),
            false => self.put(),
        };
        if put.is_err() && !linked {
            self.put_from(self.old)?;
        }
        put
    }

    /// Takes away what is there, which must be `banked`, into `old`.
    pub(super) fn take(&self, banked: &Stat) -> Result<(), Refusal> {
        self.dir.rename(self.name, self.old, self.n)?;
        match self.displaced_is(self.old, banked) {
            Ok(true) => Ok(()),
            found => {
                self.put_as(self.old, self.name)?;
                Err(found.map_or_else(Refusal::Io, |_| Refusal::Changed))
            }
        }
    }

    /// A directory must have been emptied: what else it holds nobody banked.
    fn displaced_is(&self, dir: &Dir, banked: &Stat) -> io::Result<bool> {
        let now = dir.stat(self.n)?;
        if !same_inode(&now, banked) {
            return Ok(false);
        }
        Ok(now.kind != FileKind::Dir || dir.open_dir(self.n)?.names()?.is_empty())
    }
}
