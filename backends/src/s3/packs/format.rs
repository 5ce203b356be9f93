//! The bytes of packs and index files; all numbers little-endian. docs/format.md has the
//! layout for readers of other programs.

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::Digest;
use backtrail_core::object::codec::{self, HEADER_BYTES};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::s3::loose::{Form, corrupt};

/// Stored bytes at which a pack is full.
pub(in crate::s3) const PACK_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of a table entry, and of the footer.
const ENTRY: usize = 52;
pub(super) const FOOTER: usize = 52;
const VERSION: u8 = 1;

/// Where an object lies in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::s3) struct Entry {
    pub(in crate::s3) digest: Digest,
    pub(in crate::s3) offset: u64,
    pub(in crate::s3) stored: u32,
    pub(in crate::s3) raw: u32,
    /// One zstd frame; else the raw bytes.
    pub(in crate::s3) zstd: bool,
}

impl Entry {
    fn write(&self, out: &mut BytesMut) {
        out.put_slice(&self.digest.0);
        out.put_u64_le(self.offset);
        out.put_u32_le(self.stored);
        out.put_u32_le(self.raw);
        out.put_u8(u8::from(self.zstd));
        out.put_bytes(0, 3);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (digest, rest) = bytes.split_first_chunk::<32>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (stored, rest) = rest.split_first_chunk::<4>()?;
        let (raw, rest) = rest.split_first_chunk::<4>()?;
        let zstd = match rest {
            [0, 0, 0, 0] => false,
            [1, 0, 0, 0] => true,
            _ => return None,
        };
        Some(Self {
            digest: Digest(*digest),
            offset: u64::from_le_bytes(*offset),
            stored: u32::from_le_bytes(*stored),
            raw: u32::from_le_bytes(*raw),
            zstd,
        })
    }

    /// The stretch of the pack.
    pub(in crate::s3) fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset.saturating_add(u64::from(self.stored))
    }

    /// The content. Fails with `Corrupt` unless its hash is the entry's.
    pub(in crate::s3) fn content(&self, stored: &Bytes) -> Result<Bytes> {
        if stored.len() != self.stored as usize {
            let found = format!("{} bytes of a pack, not {}", stored.len(), self.stored);
            return Err(corrupt(&self.digest, &found));
        }
        let raw = match self.zstd {
            false => stored.clone(),
            true => codec::decompress(stored, u64::from(self.raw))
                .map(Bytes::from)
                .map_err(|e| corrupt(&self.digest, e.message()))?,
        };
        match Digest::of(&raw) {
            found if found == self.digest => Ok(raw),
            found => Err(corrupt(&self.digest, &found.hex())),
        }
    }
}

fn read_table(bytes: &[u8]) -> Option<Vec<Entry>> {
    bytes.chunks(ENTRY).map(|entry| (entry.len() == ENTRY).then(|| Entry::read(entry))?).collect()
}

/// The bytes of an object as a pack holds them.
fn packed(form: &Form) -> &[u8] {
    if form.compressed { &form.stored[HEADER_BYTES..] } else { &form.stored }
}

/// A pack of these objects, in this order, and its table.
pub(super) fn pack(forms: &[Form]) -> (Bytes, Vec<Entry>) {
    let size: usize = forms.iter().map(|f| f.stored.len() + ENTRY).sum();
    let mut out = BytesMut::with_capacity(size + 8 + FOOTER);
    out.put_slice(&[b'B', b'T', b'P', b'K', VERSION, 0, 0, 0]);
    let mut entries = Vec::with_capacity(forms.len());
    for form in forms {
        let bytes = packed(form);
        entries.push(Entry {
            digest: form.digest,
            offset: out.len() as u64,
            stored: bytes.len() as u32,
            raw: form.raw as u32,
            zstd: form.compressed,
        });
        out.put_slice(bytes);
    }
    entries.sort_by_key(|entry| entry.digest);
    let at = out.len();
    entries.iter().for_each(|entry| entry.write(&mut out));
    let hash = Digest::of(&out[at..]);
    out.put_u64_le(at as u64);
    out.put_u32_le(entries.len() as u32);
    out.put_slice(&hash.0);
    out.put_slice(b"BTPE\0\0\0\0");
    (out.freeze(), entries)
}

/// Where the table of a pack of `size` bytes begins, from its footer.
pub(super) fn table_start(footer: &[u8], size: u64) -> Option<u64> {
    let footer = footer.get(footer.len().checked_sub(FOOTER)?..)?;
    let (at, rest) = footer.split_first_chunk::<8>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (at, count) = (u64::from_le_bytes(*at), u64::from(u32::from_le_bytes(*count)));
    let ends = at.checked_add(count * ENTRY as u64)?.checked_add(FOOTER as u64)? == size;
    (rest.get(32..) == Some(b"BTPE\0\0\0\0") && ends).then_some(at)
}

/// The table of a pack, from its end: table and footer.
pub(super) fn table(end: &[u8]) -> Option<Vec<Entry>> {
    let (table, footer) = end.split_at_checked(end.len().checked_sub(FOOTER)?)?;
    (Digest::of(table).0 == footer[12..44]).then(|| read_table(table))?
}

/// What one index file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexFile {
    /// Names of index files that count no more.
    pub(super) supersedes: Vec<String>,
    pub(super) packs: Vec<PackTable>,
    /// Objects given up, by pack.
    pub(super) condemned: Vec<(String, Vec<Digest>)>,
}

/// A pack and what lies in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackTable {
    pub(super) id: String,
    pub(super) size: u64,
    pub(super) entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    supersedes: Vec<String>,
    packs: Vec<PackHead>,
    condemned: Vec<CondemnedHead>,
}

#[derive(Serialize, Deserialize)]
struct PackHead {
    id: String,
    size: u64,
    count: usize,
}

#[derive(Serialize, Deserialize)]
struct CondemnedHead {
    pack: String,
    count: usize,
}

impl IndexFile {
    /// The bytes of the file.
    pub(super) fn encode(&self) -> Result<Bytes> {
        let pack =
            |p: &PackTable| PackHead { id: p.id.clone(), size: p.size, count: p.entries.len() };
        let gone = |(pack, digests): &(String, Vec<Digest>)| CondemnedHead {
            pack: pack.clone(),
            count: digests.len(),
        };
        let header = Header {
            supersedes: self.supersedes.clone(),
            packs: self.packs.iter().map(pack).collect(),
            condemned: self.condemned.iter().map(gone).collect(),
        };
        let header = serde_json::to_vec(&header)
            .map_err(|e| Error::invalid("a pack index cannot be written").with_source(e))?;
        let mut out = BytesMut::new();
        out.put_slice(&[b'B', b'T', b'I', b'X', VERSION, 0, 0, 0]);
        out.put_u32_le(header.len() as u32);
        out.put_slice(&header);
        self.packs.iter().flat_map(|p| &p.entries).for_each(|entry| entry.write(&mut out));
        self.condemned.iter().flat_map(|(_, d)| d).for_each(|digest| out.put_slice(&digest.0));
        let hash = Digest::of(&out);
        out.put_slice(&hash.0);
        Ok(out.freeze())
    }

    /// Reads a file. `Newer` when a later build wrote it, `Corrupt` when it is none.
    pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let bad = || Error::corrupt(format!("pack index {name} is not readable"));
        match bytes.get(..8) {
            Some([b'B', b'T', b'I', b'X', version, ..]) if *version > VERSION => {
                let message = format!("pack index {name} has format {version}");
                return Err(
                    Error::new(Kind::Newer, "store-newer", message).with_hint("upgrade backtrail")
                );
            }
            Some([b'B', b'T', b'I', b'X', VERSION, 0, 0, 0]) => {}
            _ => return Err(bad()),
        }
        let (body, hash) = bytes.split_at(bytes.len().checked_sub(32).ok_or_else(bad)?);
        if Digest::of(body).0 != hash {
            return Err(bad());
        }
        Self::parse(body).ok_or_else(bad)
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let (len, rest) = body.get(8..)?.split_first_chunk::<4>()?;
        let (header, mut rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let header: Header = serde_json::from_slice(header).ok()?;
        let mut take = |len: usize| {
            let (head, tail) = rest.split_at_checked(len)?;
            rest = tail;
            Some(head)
        };
        let mut out = Self { supersedes: header.supersedes, ..Self::default() };
        for pack in header.packs {
            let entries = read_table(take(pack.count.checked_mul(ENTRY)?)?)?;
            out.packs.push(PackTable { id: pack.id, size: pack.size, entries });
        }
        for gone in header.condemned {
            let bytes = take(gone.count.checked_mul(32)?)?;
            let digests = bytes.chunks_exact(32).map(|d| d.try_into().map(Digest).ok());
            out.condemned.push((gone.pack, digests.collect::<Option<_>>()?));
        }
        rest.is_empty().then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms() -> Vec<Form> {
        let form = |text: String| {
            let raw = Bytes::from(text);
            let framed = codec::encode(&raw).map(Bytes::from);
            Form {
                digest: Digest::of(&raw),
                raw: raw.len() as u64,
                compressed: framed.is_some(),
                stored: framed.unwrap_or(raw),
            }
        };
        vec![form("short".into()), form("long ".repeat(999)), form("other".into())]
    }

    #[test]
    fn packs_come_back() {
        let forms = forms();
        let (bytes, entries) = pack(&forms);
        let start = table_start(&bytes, bytes.len() as u64).expect("a footer");
        assert_eq!(table(&bytes[start as usize..]).expect("a table"), entries);
        assert!(entries.is_sorted_by_key(|e| e.digest));
        for entry in &entries {
            let range = entry.range();
            let stored = bytes.slice(range.start as usize..range.end as usize);
            let raw = entry.content(&stored).expect("right");
            assert_eq!(Digest::of(&raw), entry.digest);
            let mut wrong = stored.to_vec();
            wrong[0] ^= 1;
            assert_eq!(entry.content(&wrong.into()).expect_err("wrong").kind(), Kind::Corrupt);
        }
        assert_eq!(table_start(&bytes[..bytes.len() - 1], bytes.len() as u64 - 1), None);
        let mut torn = bytes.to_vec();
        torn[start as usize] ^= 1;
        assert!(table(&torn[start as usize..]).is_none());
    }

    #[test]
    fn index_files_come_back() {
        let (bytes, entries) = pack(&forms());
        let file = IndexFile {
            supersedes: vec!["a".into()],
            packs: vec![PackTable { id: "p".into(), size: bytes.len() as u64, entries }],
            condemned: vec![("q".into(), vec![Digest::EMPTY])],
        };
        let bytes = file.encode().expect("encodes");
        assert_eq!(IndexFile::decode("x", &bytes).expect("decodes"), file);
        for cut in [0, 7, 20, bytes.len() - 1] {
            let e = IndexFile::decode("x", &bytes[..cut]).expect_err("cut");
            assert_eq!(e.kind(), Kind::Corrupt);
        }
        let mut newer = bytes.to_vec();
        newer[4] = 2;
        assert_eq!(IndexFile::decode("x", &newer).expect_err("newer").kind(), Kind::Newer);
    }
}
