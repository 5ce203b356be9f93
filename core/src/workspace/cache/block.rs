//! The block of one directory in the stat cache, and the reader of both.

use bytes::Bytes;

use crate::fsx::{FileKind, Stat};
use crate::ids::Digest;
use crate::snapshot::tree::{Chunk, Ref};

const RACY: u8 = 0x80;

/// One name as it was when its content was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached<'a> {
    /// The raw name.
    pub name: &'a [u8],
    /// Kind: file, directory or symlink.
    pub kind: FileKind,
    /// Its file may have changed within the clock's grain after it was read.
    pub racy: bool,
    /// Size, times, inode and mode of then.
    pub stat: CachedStat,
    /// A file's content.
    pub content: Option<Ref>,
    /// A link's target.
    pub target: &'a [u8],
}

/// The evidence a hit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedStat {
    /// Apparent size.
    pub size: u64,
    /// Modification time.
    pub mtime_ns: i64,
    /// Change time.
    pub ctime_ns: i64,
    /// Inode.
    pub inode: u64,
    /// Permission bits.
    pub mode: u32,
}

impl From<&Stat> for CachedStat {
    fn from(s: &Stat) -> Self {
        let Stat { size, mtime_ns, ctime_ns, inode, mode, .. } = *s;
        Self { size, mtime_ns, ctime_ns, inode, mode }
    }
}

/// The encoded block of one directory: its tree and its recorded names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block(pub(super) Bytes);

impl Block {
    /// Encodes a directory.
    pub fn encode<'a>(tree: Option<&Ref>, names: impl Iterator<Item = Cached<'a>>) -> Self {
        let mut out = Vec::new();
        match tree {
            Some(r) => {
                out.push(1);
                out.extend_from_slice(&r.length.to_le_bytes());
                put_content(&mut out, r);
            }
            None => out.push(0),
        }
        for n in names {
            put_name(&mut out, &n);
        }
        Self(Bytes::from(out))
    }

    /// The directory's tree, when nothing below it was touched since.
    pub fn tree(&self) -> Option<Ref> {
        let mut r = Reader(&self.0);
        read_tree(&mut r)?
    }

    /// The names in byte order.
    pub fn names(&self) -> Names<'_> {
        let mut r = Reader(&self.0);
        if read_tree(&mut r).is_none() {
            r.0 = b"";
        }
        Names(r)
    }

    pub(super) fn without_tree(&self) -> Self {
        Self::encode(None, self.names())
    }
}

/// Iterates over a block's names; ends early on bytes that cannot be read.
pub struct Names<'a>(Reader<'a>);

impl<'a> Iterator for Names<'a> {
    type Item = Cached<'a>;
    fn next(&mut self) -> Option<Cached<'a>> {
        if self.0.0.is_empty() {
            return None;
        }
        let found = read_name(&mut self.0);
        if found.is_none() {
            self.0.0 = b"";
        }
        found
    }
}

fn put_content(out: &mut Vec<u8>, r: &Ref) {
    out.extend_from_slice(&r.digest.0);
    out.extend_from_slice(&(r.chunks.len() as u32).to_le_bytes());
    for c in &r.chunks {
        out.extend_from_slice(&c.length.to_le_bytes());
        out.extend_from_slice(&c.digest.0);
    }
}

fn put_name(out: &mut Vec<u8>, n: &Cached<'_>) {
    let kind = match n.kind {
        FileKind::File => 1,
        FileKind::Dir => 2,
        _ => 3,
    };
    out.push(if n.racy { kind | RACY } else { kind });
    out.extend_from_slice(&(n.name.len() as u16).to_le_bytes());
    out.extend_from_slice(n.name);
    out.extend_from_slice(&n.stat.size.to_le_bytes());
    out.extend_from_slice(&n.stat.mtime_ns.to_le_bytes());
    out.extend_from_slice(&n.stat.ctime_ns.to_le_bytes());
    out.extend_from_slice(&n.stat.inode.to_le_bytes());
    out.extend_from_slice(&n.stat.mode.to_le_bytes());
    match &n.content {
        Some(r) if n.kind == FileKind::File => put_content(out, r),
        _ if n.kind == FileKind::Symlink => {
            out.extend_from_slice(&(n.target.len() as u16).to_le_bytes());
            out.extend_from_slice(n.target);
        }
        _ => {}
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn content(&mut self, length: u64) -> Option<Ref> {
        let digest = Digest(self.array()?);
        let n = self.u32()? as usize;
        let mut chunks = Vec::with_capacity(n.min(self.0.len() / 36));
        for _ in 0..n {
            chunks.push(Chunk { length: self.u32()?, digest: Digest(self.array()?) });
        }
        Some(Ref { length, digest, chunks })
    }
}

/// The outer `None` is a block that cannot be read.
fn read_tree(r: &mut Reader<'_>) -> Option<Option<Ref>> {
    match r.take(1)?[0] {
        0 => Some(None),
        _ => {
            let length = r.u64()?;
            Some(Some(r.content(length)?))
        }
    }
}

fn read_name<'a>(r: &mut Reader<'a>) -> Option<Cached<'a>> {
    let kind = r.take(1)?[0];
    let len = usize::from(r.u16()?);
    let name = r.take(len)?;
    let stat = CachedStat {
        size: r.u64()?,
        mtime_ns: r.u64()? as i64,
        ctime_ns: r.u64()? as i64,
        inode: r.u64()?,
        mode: r.u32()?,
    };
    let racy = kind & RACY != 0;
    let mut found = Cached { name, kind: FileKind::Dir, racy, stat, content: None, target: b"" };
    match kind & !RACY {
        1 => {
            found.kind = FileKind::File;
            found.content = Some(r.content(stat.size)?);
        }
        2 => {}
        3 => {
            found.kind = FileKind::Symlink;
            let n = usize::from(r.u16()?);
            found.target = r.take(n)?;
        }
        _ => return None,
    }
    Some(found)
}
