//! What the file system below a directory can do.

use std::io;

use super::Dir;

/// True if two names that differ only by ASCII case are one file in `dir`.
/// `name` must exist in `dir` and hold a letter.
pub fn folds_case(dir: &Dir, name: &[u8]) -> io::Result<bool> {
    let swapped: Vec<u8> =
        name.iter()
            .map(|b| {
                if b.is_ascii_lowercase() { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() }
            })
            .collect();
    if swapped == name {
        return Ok(false);
    }
    let own = dir.stat(name)?;
    match dir.stat(&swapped) {
        Ok(other) => Ok(own.inode == other.inode && own.device == other.device),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// True if the file system of `dir` lies in memory (tmpfs, ramfs).
pub fn is_volatile(dir: &Dir) -> io::Result<bool> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let kind = rustix::fs::fstatfs(dir)?.f_type as i64;
    Ok(kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// The bits that this process's umask (or the directory's default ACL) takes from the
/// mode of a new file: makes and removes `temp` in `dir`, which must be our own.
pub fn umask(dir: &Dir, temp: &[u8]) -> io::Result<u32> {
    let file = dir.create_file_mode(temp, 0o777)?;
    let mode = super::stat_open(&file)?.mode;
    dir.unlink(temp)?;
    Ok(0o777 & !mode)
}

/// How many files this process may have open at once.
pub fn max_open_files() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
