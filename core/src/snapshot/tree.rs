//! Trees: the canonical bytes of one directory (format `BTT1`, `docs/format.md`).
//!
//! ```text
//! tree  = "BTT1" · u32 count · entry × count            all integers little-endian
//! entry = u8 kind · u16 name length · u32 mode · name · body
//! kind 1 file       body = ref
//! kind 2 directory  body = ref to that tree's bytes
//! kind 3 symlink    body = u16 length · target          mode = 0
//! ref   = u64 length · 32-byte SHA-256 · u32 n · n × (u32 length · 32-byte digest)
//! ```
//!
//! The decoder trusts nothing: in a shared store, trees are other people's input.

use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::path;
use crate::store::MAX_BYTES;

const MAGIC: &[u8; 4] = b"BTT1";
const MAX_MODE: u32 = 0o7777;
/// The smallest entry: kind, name length, mode, a one-byte name, a link of one byte.
const MIN_ENTRY: usize = 1 + 2 + 4 + 1 + 2 + 1;

/// One chunk of a content larger than 8 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// Its length in bytes.
    pub length: u32,
    /// Its name.
    pub digest: Digest,
}

/// A reference to content: its length, the SHA-256 of the whole, and its chunks
/// when it is larger than 8 MiB (else the whole is one object).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ref {
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 of the whole.
    pub digest: Digest,
    /// Empty up to 8 MiB, else at least two.
    pub chunks: Vec<Chunk>,
}

impl Ref {
    /// A reference to content held as one object.
    pub fn whole(length: u64, digest: Digest) -> Self {
        Self { length, digest, chunks: Vec::new() }
    }

    /// The objects that hold this content with their lengths; none for empty content.
    pub fn objects(&self) -> impl Iterator<Item = (Digest, u64)> + '_ {
        let whole =
            (self.chunks.is_empty() && self.length > 0).then_some((self.digest, self.length));
        whole.into_iter().chain(self.chunks.iter().map(|c| (c.digest, u64::from(c.length))))
    }

    /// Checks that length and chunks agree.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.chunks.is_empty() {
            return if self.length <= MAX_BYTES as u64 {
                Ok(())
            } else {
                Err("content above 8 MiB without chunks")
            };
        }
        if self.chunks.len() < 2 {
            return Err("a single chunk");
        }
        let mut sum = 0u64;
        for c in &self.chunks {
            if c.length == 0 || c.length as usize > MAX_BYTES {
                return Err("a chunk length out of range");
            }
            sum = sum.checked_add(u64::from(c.length)).ok_or("chunk lengths overflow")?;
        }
        if sum != self.length {
            return Err("chunk lengths that do not add up");
        }
        if self.length <= MAX_BYTES as u64 {
            return Err("chunks of content up to 8 MiB");
        }
        Ok(())
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// A regular file.
    File(Ref),
    /// A directory; the reference names its tree's bytes.
    Dir(Ref),
    /// A symbolic link and its target text, never followed.
    Symlink(Vec<u8>),
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The raw name.
    pub name: Vec<u8>,
    /// Permission bits 0..0o7777; 0 for a symlink.
    pub mode: u32,
    /// What it is.
    pub body: Body,
}

/// A directory: entries in strictly ascending order of their raw names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Tree {
    /// The entry called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|e| e.name.as_slice().cmp(name)).ok()?;
        self.entries.get(at)
    }

    /// The canonical bytes. Fails with `bad-value` on an entry the decoder would refuse.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(8 + self.entries.len() * 80);
        out.extend_from_slice(MAGIC);
        let count = u32::try_from(self.entries.len())
            .map_err(|_| Error::invalid("a directory holds more than 4 billion entries"))?;
        out.extend_from_slice(&count.to_le_bytes());
        let mut last: Option<&[u8]> = None;
        for e in &self.entries {
            check_entry(e, last).map_err(|why| {
                Error::invalid(format!("entry {} cannot be recorded: {why}", path::quoted(&e.name)))
            })?;
            last = Some(&e.name);
            encode_entry(&mut out, e);
        }
        Ok(out)
    }

    /// Reads canonical bytes; `Corrupt` names what is wrong and the entry.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader(bytes);
        decode(&mut r).map_err(|(name, why)| {
            let entry = if name.is_empty() {
                String::new()
            } else {
                format!(" at entry {}", path::quoted(&name))
            };
            Error::corrupt(format!("tree is not valid{entry}: {why}"))
        })
    }
}

fn encode_entry(out: &mut Vec<u8>, e: &Entry) {
    let kind = match e.body {
        Body::File(_) => 1u8,
        Body::Dir(_) => 2,
        Body::Symlink(_) => 3,
    };
    out.push(kind);
    out.extend_from_slice(&(e.name.len() as u16).to_le_bytes());
    out.extend_from_slice(&e.mode.to_le_bytes());
    out.extend_from_slice(&e.name);
    match &e.body {
        Body::File(r) | Body::Dir(r) => {
            out.extend_from_slice(&r.length.to_le_bytes());
            out.extend_from_slice(&r.digest.0);
            out.extend_from_slice(&(r.chunks.len() as u32).to_le_bytes());
            for c in &r.chunks {
                out.extend_from_slice(&c.length.to_le_bytes());
                out.extend_from_slice(&c.digest.0);
            }
        }
        Body::Symlink(t) => {
            out.extend_from_slice(&(t.len() as u16).to_le_bytes());
            out.extend_from_slice(t);
        }
    }
}

/// The rules both encoder and decoder hold an entry to.
fn check_entry(e: &Entry, last: Option<&[u8]>) -> Result<(), &'static str> {
    path::check_name(&e.name)?;
    if path::is_git_name(&e.name) {
        return Err("a .git name is never recorded");
    }
    if path::is_staging_name(&e.name) {
        return Err("a staging name is never recorded");
    }
    if last.is_some_and(|l| l >= e.name.as_slice()) {
        return Err("names out of order or repeated");
    }
    if e.mode > MAX_MODE {
        return Err("a mode above 0o7777");
    }
    match &e.body {
        Body::File(r) | Body::Dir(r) => r.check(),
        Body::Symlink(_) if e.mode != 0 => Err("a symlink with a mode"),
        Body::Symlink(t) if t.is_empty() => Err("an empty link target"),
        Body::Symlink(t) if t.contains(&0) => Err("a NUL in a link target"),
        Body::Symlink(t) if t.len() > usize::from(u16::MAX) => Err("a link target too long"),
        Body::Symlink(_) => Ok(()),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], &'static str> {
        if n > self.0.len() {
            return Err("ends early");
        }
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }
    fn u16(&mut self) -> Result<u16, &'static str> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(u32::from_le_bytes)
    }
    fn content(&mut self) -> Result<Ref, &'static str> {
        let length = u64::from_le_bytes(self.array()?);
        let digest = Digest(self.array()?);
        let n = self.u32()? as usize;
        if n > self.0.len() / 36 {
            return Err("a chunk count beyond its bytes");
        }
        let mut chunks = Vec::with_capacity(n);
        for _ in 0..n {
            chunks.push(Chunk { length: self.u32()?, digest: Digest(self.array()?) });
        }
        Ok(Ref { length, digest, chunks })
    }
}

type Fault = (Vec<u8>, &'static str);

fn decode(r: &mut Reader<'_>) -> Result<Tree, Fault> {
    let top = |why| (Vec::new(), why);
    if r.take(4).map_err(top)? != MAGIC {
        return Err(top("wrong magic"));
    }
    let count = r.u32().map_err(top)? as usize;
    if count > r.0.len() / MIN_ENTRY {
        return Err(top("an entry count beyond its bytes"));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = decode_entry(r)?;
        let last = entries.last().map(|e| e.name.as_slice());
        if let Err(why) = check_entry(&entry, last) {
            return Err((entry.name, why));
        }
        entries.push(entry);
    }
    if !r.0.is_empty() {
        return Err(top("trailing bytes"));
    }
    Ok(Tree { entries })
}

fn decode_entry(r: &mut Reader<'_>) -> Result<Entry, Fault> {
    let top = |why| (Vec::new(), why);
    let kind = r.array::<1>().map_err(top)?[0];
    let name_len = usize::from(r.u16().map_err(top)?);
    let mode = r.u32().map_err(top)?;
    let name = r.take(name_len).map_err(top)?.to_vec();
    let body = match kind {
        1 => r.content().map(Body::File),
        2 => r.content().map(Body::Dir),
        3 => r.u16().and_then(|n| r.take(usize::from(n))).map(|t| Body::Symlink(t.to_vec())),
        _ => Err("an unknown kind"),
    };
    match body {
        Ok(body) => Ok(Entry { name, mode, body }),
        Err(why) => Err((name, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, mode: u32, content: &[u8]) -> Entry {
        let body = Body::File(Ref::whole(content.len() as u64, Digest::of(content)));
        Entry { name: name.into(), mode, body }
    }

    fn golden() -> Tree {
        let empty = Tree::default().encode().expect("empty tree");
        let dir = Ref::whole(empty.len() as u64, Digest::of(&empty));
        Tree {
            entries: vec![
                file("a.txt", 0o644, b"hello\n"),
                Entry { name: b"d".to_vec(), mode: 0o755, body: Body::Dir(dir) },
                Entry { name: b"l".to_vec(), mode: 0, body: Body::Symlink(b"a.txt".to_vec()) },
            ],
        }
    }

    #[test]
    fn cap_010_golden_trees_have_their_digests() {
        let empty = Tree::default().encode().expect("encodes");
        assert_eq!(
            Digest::of(&empty).hex(),
            "4ca78b9619727f3dbe01c7efdef98430d7fbb8022bf64c86d47d36fb50da29cf"
        );
        let bytes = golden().encode().expect("encodes");
        assert_eq!(bytes.len(), 131);
        assert_eq!(
            Digest::of(&bytes).hex(),
            "a5f421de285e32629bd9ce6fb60a3a848188282c94adfad365fe27bef91a23c6"
        );
        assert_eq!(Tree::decode(&bytes).expect("decodes"), golden());
    }

    #[test]
    fn cap_011_hostile_trees_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/abs",
            ".git",
            ".GIT",
            "a\0b",
            ".backtrail-stage-0123456789abcdef",
        ] {
            let tree = Tree { entries: vec![file(name, 0o644, b"x")] };
            assert!(tree.encode().is_err(), "encoder took {name:?}");
            let mut raw = b"BTT1\x01\0\0\0".to_vec();
            encode_entry(&mut raw, &tree.entries[0]);
            let e = Tree::decode(&raw).expect_err(name);
            assert_eq!(e.kind(), crate::error::Kind::Corrupt);
        }
        let mut twice = b"BTT1\x02\0\0\0".to_vec();
        encode_entry(&mut twice, &file("a", 0o644, b"x"));
        encode_entry(&mut twice, &file("a", 0o644, b"x"));
        assert!(Tree::decode(&twice).is_err());
        assert!(Tree::decode(b"BTT1\x00\xe1\xf5\x05").is_err(), "a count of 100 million");
        let mut trailing = golden().encode().expect("encodes");
        trailing.push(0);
        assert!(Tree::decode(&trailing).is_err());
        for cut in 0..131 {
            assert!(Tree::decode(&trailing[..cut]).is_err(), "cut at {cut}");
        }
    }
}
