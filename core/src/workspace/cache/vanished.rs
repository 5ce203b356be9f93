//! Caches of workspaces that are gone: `doctor` names and removes them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{MAGIC, Reader, VERSION};
use crate::fsx::{self, Dir};

/// Longer beginnings of a cache file than this are not needed to know its root.
const HEAD: u64 = 64 * 1024;

/// File name and root of each cache below `dir` whose root does not exist any more.
/// Blocks.
pub fn vanished(dir: &Path) -> Vec<(Vec<u8>, PathBuf)> {
    let Ok(stat) = Dir::open(&dir.join("stat")) else { return Vec::new() };
    let root_of = |name: &[u8]| {
        let bytes = fsx::read_small(&stat, name, HEAD).ok()??;
        let mut r = Reader(&bytes);
        if r.take(4)? != MAGIC || r.u32()? != VERSION {
            return None;
        }
        r.u64()?;
        let len = r.u32()? as usize;
        Some(PathBuf::from(OsStr::from_bytes(r.take(len)?)))
    };
    let gone = |root: &PathBuf| matches!(fsx::stat_path(root), Err(e) if e.kind() == std::io::ErrorKind::NotFound);
    let names = stat.names().unwrap_or_default();
    names.into_iter().filter_map(|n| root_of(&n).filter(gone).map(|root| (n, root))).collect()
}

/// Removes the cache file `name` below `dir`. Blocks.
pub fn remove_vanished(dir: &Path, name: &[u8]) -> std::io::Result<()> {
    Dir::open(&dir.join("stat"))?.unlink(name)
}
