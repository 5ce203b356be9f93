//! Objects as files: `workspace-objects/<aa>/<62 hex>`, `.zst` added when compressed.
//!
//! A put stages its bytes in the directory they will live in and remembers them as
//! pending. The barrier syncs all pending bytes, then gives them their final names,
//! then syncs the names. So no final name appears before its bytes are durable, and
//! a barrier costs one or two file-system syncs however many objects it covers.

use std::io;
use std::os::fd::OwnedFd;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::Digest;
use backtrail_core::object::codec::{self, HEADER_BYTES, Header};
use backtrail_core::store::{DeleteOutcome, MAX_BYTES, Object, PutObjects, PutOutcome};
use bytes::Bytes;
use rustix::fs::{self as rfs, FileType};

use super::barrier::{Staged, remove};
use super::fs::{self, Root};
use super::handle::{Handle, locked};

/// The directory of all objects.
pub(super) const DIR: &str = "workspace-objects";
/// A put that makes more than this pending runs the barrier itself.
const MAX_PENDING: usize = 8_192;
const MAX_PENDING_BYTES: u64 = 512 * 1024 * 1024;
/// The unit in which local file systems hand out space.
const BLOCK: usize = 4096;

/// How an object is spelled below [`DIR`]: `aa/<62 hex>`, and `.zst` when compressed.
pub(super) fn short(digest: &Digest, compressed: bool) -> String {
    let hex = digest.hex();
    let zst = if compressed { ".zst" } else { "" };
    format!("{}/{}{zst}", &hex[..2], &hex[2..])
}

fn path_of(digest: &Digest, compressed: bool) -> String {
    format!("{DIR}/{}", short(digest, compressed))
}

/// The fan-out directory of an object.
pub(super) fn dir_of(digest: &Digest) -> String {
    format!("{DIR}/{}", &digest.hex()[..2])
}

/// What lies under one spelling of an object.
enum Found {
    Absent,
    /// The right bytes, and the file they came from.
    Right(Vec<u8>, OwnedFd),
    Wrong(Error),
}

fn corrupt(digest: &Digest, found: &str) -> Error {
    Error::corrupt(format!("object {digest} is corrupt: {found}"))
        .with_detail("digest", digest.hex())
        .with_detail("expected", digest.hex())
        .with_detail("found", found)
}

/// Reads and checks one file that should hold `digest`. An `Err` is an access error:
/// it says nothing about the object.
fn read_file(root: &Root, digest: &Digest, rel: &str, compressed: bool) -> Result<Found> {
    let fd = match root.at(rel, fs::READ) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        Err(e) => match root.error("read", rel, e) {
            e if e.kind() == Kind::Corrupt => {
                return Ok(Found::Wrong(corrupt(digest, e.message())));
            }
            e => return Err(e),
        },
    };
    let stat = rfs::fstat(&fd).map_err(|e| root.error("read", rel, e.into()))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        // No file can replace it, so this is no object to be healed.
        return Err(corrupt(digest, "a directory"));
    }
    if !fs::is_file(&stat) {
        return Ok(Found::Wrong(corrupt(digest, "no regular file")));
    }
    let len = fs::len_of(&stat);
    // No stored form is longer than the longest content.
    if len == 0 || len > MAX_BYTES as u64 {
        let wrong = corrupt(digest, &format!("{len} bytes are stored"));
        return Ok(Found::Wrong(wrong.with_detail("found_bytes", len)));
    }
    let stored = fs::read_at(&fd, 0, len as usize).map_err(|e| root.error("read", rel, e))?;
    let raw = if compressed {
        match codec::decode(&stored) {
            Ok(raw) => raw,
            Err(e) => {
                let problem = e.details().get("problem").cloned();
                let problem = problem.unwrap_or_else(|| "undecodable".into());
                let wrong = corrupt(digest, e.message()).with_detail("problem", problem);
                return Ok(Found::Wrong(wrong));
            }
        }
    } else {
        stored
    };
    let found = Digest::of(&raw);
    if found != *digest {
        let wrong = corrupt(digest, &found.hex());
        return Ok(Found::Wrong(wrong.with_detail("found_bytes", raw.len())));
    }
    Ok(Found::Right(raw, fd))
}

impl Handle {
    /// Puts a batch; runs the barrier when too much is pending.
    pub(super) fn put_objects(
        &self,
        batch: &[Object],
        mode: PutObjects,
    ) -> Result<Vec<PutOutcome>> {
        let root = self.write()?;
        let mut seed = [0; 8];
        self.options.ids.fill(&mut seed)?;
        let mut name = u64::from_le_bytes(seed);
        let mut out = Vec::with_capacity(batch.len());
        for object in batch {
            // An odd step visits every number before it repeats one.
            name = name.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let temp = format!(".tmp-{name:016x}");
            let put = self.put_one(&root, object, mode, temp);
            out.push(put.unwrap_or_else(PutOutcome::Failed));
        }
        let full = {
            let pending = locked(&self.pending);
            pending.fresh > MAX_PENDING || pending.fresh_bytes > MAX_PENDING_BYTES
        };
        if full {
            self.run_barrier(&root)?;
        }
        Ok(out)
    }

    fn put_one(
        &self,
        root: &Root,
        object: &Object,
        mode: PutObjects,
        temp: String,
    ) -> Result<PutOutcome> {
        let digest = object.digest();
        if object.bytes().is_empty() || locked(&self.pending).staged.contains_key(&digest) {
            return Ok(PutOutcome::Present);
        }
        let mut wrong = [false; 2];
        if mode == PutObjects::Check {
            let mut right = None;
            for compressed in [false, true] {
                match read_file(root, &digest, &path_of(&digest, compressed), compressed)? {
                    Found::Absent => {}
                    Found::Wrong(_) => wrong[usize::from(compressed)] = true,
                    Found::Right(_, fd) => right = Some(fd),
                }
            }
            if let (Some(fd), [false, false]) = (right, wrong) {
                refresh(&fd);
                locked(&self.pending).lost.remove(&digest);
                return Ok(PutOutcome::Present);
            }
        } else {
            wrong = [true; 2];
        }
        let stored = self.stage(root, object, temp, wrong)?;
        let healed = mode == PutObjects::Check && wrong != [false; 2];
        Ok(if healed { PutOutcome::Healed { stored } } else { PutOutcome::Stored { stored } })
    }

    /// Writes the bytes under a staging name; the bytes written.
    fn stage(&self, root: &Root, object: &Object, temp: String, wrong: [bool; 2]) -> Result<u64> {
        let raw = object.bytes();
        let framed = (self.options.compression && raw.len() > BLOCK)
            .then(|| codec::encode(raw))
            .flatten()
            // It must free at least one block, else it only costs time.
            .filter(|f| f.len().div_ceil(BLOCK) < raw.len().div_ceil(BLOCK));
        let compressed = framed.is_some();
        let bytes = framed.as_deref().unwrap_or(raw);
        let dir = dir_of(&object.digest());
        let rel = format!("{dir}/{temp}");
        let need = bytes.len() as u64;
        let failed = |e| root.write_error("write", &rel, need, e);
        let fd = self.create_staging(root, &dir, &rel).map_err(failed)?;
        let written = rfs::fchmod(&fd, fs::FILE_MODE)
            .map_err(io::Error::from)
            .and_then(|()| fs::write_all(&fd, bytes))
            .map_err(failed)
            .and_then(|()| self.reach("store.object.staged"));
        if let Err(e) = written {
            remove(root, &dir, &temp);
            return Err(e.with_detail("digest", object.digest().hex()));
        }
        let staged = Staged {
            temp: temp.clone(),
            compressed,
            raw: raw.len() as u64,
            stored: need,
            drop_other: wrong[usize::from(!compressed)],
        };
        let mut pending = locked(&self.pending);
        pending.lost.remove(&object.digest());
        if let Some(first) = pending.staged.get_mut(&object.digest()) {
            // Another task of this handle staged the same content meanwhile. Its file
            // stays: a barrier may be about to give it its name.
            first.drop_other |= first.compressed == compressed && staged.drop_other;
            drop(pending);
            remove(root, &dir, &temp);
        } else {
            pending.staged.insert(object.digest(), staged);
            pending.fresh += 1;
            pending.fresh_bytes += need;
        }
        Ok(need)
    }

    fn create_staging(&self, root: &Root, dir: &str, rel: &str) -> io::Result<OwnedFd> {
        use rustix::fs::OFlags;
        let flags = fs::WRITE | OFlags::CREATE | OFlags::EXCL;
        match root.at(rel, flags) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        // The barrier syncs the directory above, so that many puts share one sync.
        root.make_dir(dir, fs::Sync(false))?;
        root.at(rel, flags)
    }

    /// One object, re-hashed (CLD-O6).
    pub(super) fn get_object(&self, root: Option<&Root>, digest: &Digest) -> Result<Bytes> {
        if *digest == Digest::EMPTY {
            return Ok(Bytes::new());
        }
        let mut wrong = None;
        let mut look = |rel: &str, compressed| -> Result<Option<Bytes>> {
            let Some(root) = root else { return Ok(None) };
            match read_file(root, digest, rel, compressed)? {
                Found::Absent => Ok(None),
                Found::Right(raw, _) => Ok(Some(Bytes::from(raw))),
                Found::Wrong(e) => {
                    wrong.get_or_insert(e);
                    Ok(None)
                }
            }
        };
        // A staged object may get its name while we look: then it is found below.
        let staged = locked(&self.pending).staged.get(digest).cloned();
        if let Some(s) = staged {
            let rel = format!("{}/{}", dir_of(digest), s.temp);
            if let Some(bytes) = look(&rel, s.compressed)? {
                return Ok(bytes);
            }
        }
        for compressed in [false, true] {
            if let Some(bytes) = look(&path_of(digest, compressed), compressed)? {
                return Ok(bytes);
            }
        }
        Err(wrong
            .unwrap_or_else(|| Error::not_found(format!("object {digest} is not in the store"))))
    }

    /// Whether each object of this raw length is there (CLD-O7).
    pub(super) fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let root = self.read()?;
        let top = match root.as_ref().map(|root| root.dir(DIR)) {
            Some(Ok(top)) => Some(top),
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::store_io(format!("failed to open {DIR}"), e));
            }
            _ => None,
        };
        let place = root.as_ref().zip(top.as_ref());
        batch.iter().map(|(digest, raw)| self.contains_one(place, digest, *raw)).collect()
    }

    fn contains_one(
        &self,
        place: Option<(&Root, &OwnedFd)>,
        digest: &Digest,
        raw: u64,
    ) -> Result<bool> {
        if *digest == Digest::EMPTY {
            return Ok(raw == 0);
        }
        if let Some(staged) = locked(&self.pending).staged.get(digest) {
            return Ok(staged.raw == raw);
        }
        let Some((root, top)) = place else {
            return Ok(false);
        };
        let name = short(digest, false);
        let rel = format!("{DIR}/{name}");
        let stat = |name: &str| fs::stat_in(top, name).map_err(|e| root.error("look at", &rel, e));
        let plain = stat(&name)?.map(|s| fs::is_file(&s) && fs::len_of(&s) == raw && raw > 0);
        let framed = match stat(&short(digest, true))? {
            None => None,
            Some(s) if !fs::is_file(&s) => Some(false),
            Some(s) => Some(header_fits(root, &format!("{rel}.zst"), raw, fs::len_of(&s))?),
        };
        // Two spellings that disagree are a reason to put again.
        Ok(match (plain, framed) {
            (None, None) => false,
            (a, b) => a.unwrap_or(true) && b.unwrap_or(true),
        })
    }

    /// Deletes one object, both spellings and what is staged of it (CLD-O10).
    pub(super) fn delete_one(&self, root: Option<&Root>, digest: &Digest) -> Result<DeleteOutcome> {
        let Some(root) = root else {
            return Ok(DeleteOutcome::Absent);
        };
        let staged = locked(&self.pending).take(digest);
        let mut gone = staged.is_some();
        let dir = dir_of(digest);
        if let Some(staged) = staged {
            remove(root, &dir, &staged.temp);
        }
        let fd = match root.dir(&dir) {
            Ok(fd) => fd,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(DeleteOutcome::Absent),
            Err(e) => return Err(root.error("delete", &dir, e)),
        };
        for compressed in [false, true] {
            let rel = path_of(digest, compressed);
            let (_, name) = fs::split(&rel);
            gone |= fs::unlink(&fd, name).map_err(|e| root.error("delete", &rel, e))?;
        }
        Ok(if gone { DeleteOutcome::Deleted } else { DeleteOutcome::Absent })
    }
}

/// Whether the header of a compressed file names this raw length and its own size.
fn header_fits(root: &Root, rel: &str, raw: u64, stored: u64) -> Result<bool> {
    let fd = match root.at(rel, fs::READ) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(root.error("read", rel, e)),
    };
    let head = fs::read_at(&fd, 0, HEADER_BYTES).map_err(|e| root.error("read", rel, e))?;
    Ok(Header::parse(&head).is_some_and(|h| h.fits(raw, stored)))
}

/// Reuse is a write as far as age is concerned. Safety never rests on age, so a
/// store that forbids it is no error.
fn refresh(fd: &OwnedFd) {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ };
    let _ = rfs::futimens(fd, &Timestamps { last_access: now, last_modification: now });
}
