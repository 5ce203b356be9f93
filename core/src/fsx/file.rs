//! Whole files: stable reads, publishing by rename, hashing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use sha2::Digest as _;

use super::dir::{Dir, stat_file};
use super::{FileKind, Stat};
use crate::ids::Digest;
use crate::path::RelPath;

/// Why a file could not be read as one state of it that existed.
#[derive(Debug)]
pub enum ReadFailure {
    /// It moved while it was read; try again.
    Moved,
    /// The name is gone.
    Gone,
    /// The name leads to something that is no regular file now.
    NotAFile(Stat),
    /// The system refused.
    Io(io::Error),
    /// The consumer refused.
    Sink(crate::error::Error),
}

impl From<io::Error> for ReadFailure {
    fn from(e: io::Error) -> Self {
        // The name is gone, or a directory above it is a link or no directory now.
        if super::is_absence(&e) { Self::Gone } else { Self::Io(e) }
    }
}

/// Opens `path` below `root` and checks that it is a regular file. Hands the open
/// file and its stat to `consume`, then checks that nothing moved meanwhile and
/// that exactly `stat.size` bytes were consumed.
pub fn read_stable<T>(
    root: &Dir,
    path: &RelPath,
    consume: impl FnOnce(&mut File, &Stat) -> Result<(T, u64), ReadFailure>,
) -> Result<(T, Stat), ReadFailure> {
    let mut file = match root.open_file_below(path) {
        Ok(f) => f,
        Err(e) => {
            if let Ok(s) = root.stat_below(path)
                && s.kind != FileKind::File
            {
                return Err(ReadFailure::NotAFile(s));
            }
            return Err(e.into());
        }
    };
    let before = stat_file(&file)?;
    if before.kind != FileKind::File {
        return Err(ReadFailure::NotAFile(before));
    }
    let (out, read) = consume(&mut file, &before)?;
    let after = stat_file(&file)?;
    if read != before.size || !before.same_file_state(&after) {
        return Err(ReadFailure::Moved);
    }
    Ok((out, after))
}

/// Memory set aside for a file before any of it was read.
const MAX_RESERVE: u64 = 256 << 20;

/// Reads up to `limit` bytes of a file below `dir` that must be regular.
/// `Ok(None)` when it does not exist or is not a regular file.
pub fn read_small(dir: &Dir, name: &[u8], limit: u64) -> io::Result<Option<Vec<u8>>> {
    let size = match dir.stat(name) {
        Ok(s) if s.kind == FileKind::File => s.size,
        Ok(_) => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let file = dir.open_file(name)?;
    // Growing step by step would touch several times the memory.
    let mut out = Vec::with_capacity(size.min(limit).min(MAX_RESERVE) as usize + 1);
    file.take(limit).read_to_end(&mut out)?;
    Ok(Some(out))
}

/// Hashes the rest of an open file; the digest and the number of bytes.
pub fn hash_open_file(file: &mut File) -> io::Result<(Digest, u64)> {
    let mut hasher = sha2::Sha256::new();
    let mut buf = vec![0u8; 256 * 1024];
    let mut total = 0u64;
    loop {
        let n = file.read(&mut buf)?;
        if n == 0 {
            return Ok((Digest(hasher.finalize().into()), total));
        }
        hasher.update(&buf[..n]);
        total += n as u64;
    }
}

/// Writes `bytes` at the file's position, leaving runs of 64 KiB zeros as holes.
pub fn write_all(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    const BLOCK: usize = 64 * 1024;
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    if bytes.len() < BLOCK {
        return file.write_all(bytes);
    }
    let mut pending = 0;
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + BLOCK).min(bytes.len());
        if end - at == BLOCK && bytes[at..end] == ZEROS {
            file.write_all(&bytes[pending..at])?;
            file.seek(SeekFrom::Current(BLOCK as i64))?;
            pending = end;
        }
        at = end;
    }
    file.write_all(&bytes[pending..])?;
    // A hole at the end does not grow the file by itself.
    let end = file.stream_position()?;
    if pending == bytes.len() && file.metadata()?.len() < end {
        file.set_len(end)?;
    }
    Ok(())
}

/// Replaces `name` in `dir` by a file of these bytes and mode 0600, through a
/// sibling temp and a rename. With `durable`, file and directory are synced.
pub fn publish(dir: &Dir, name: &[u8], temp: &[u8], bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut file = dir.create_file(temp)?;
    let written = (|| {
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        dir.rename(temp, dir, name)?;
        if durable { dir.sync() } else { Ok(()) }
    })();
    if written.is_err() {
        let _ = dir.unlink(temp); // the first error is the one to report
    }
    written
}
