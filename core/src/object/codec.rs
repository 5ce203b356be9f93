//! The stored form of an object: raw, or a small header and one zstd frame.
//!
//! The header is a zstd *skippable* frame, so that any zstd tool reads the whole:
//! magic, the length 16, the raw length and the length of what follows, all
//! little-endian. The decoder trusts nothing: it allocates what the header says, at
//! most [`MAX_BYTES`], and stops there.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::error::{Error, Result};
use crate::store::MAX_BYTES;

/// Bytes before the zstd frame.
pub const HEADER_BYTES: usize = 24;
/// Content below this is never compressed.
pub const MIN_BYTES: usize = 512;
/// The level every writer uses. Level 1 and not the usual 3: on source-like trees level
/// 3 was half of all the time of a first capture and saved a few percent of space.
pub const LEVEL: i32 = 1;

const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Above this length the first bytes decide whether compression is worth it.
const PROBE_BYTES: usize = 64 * 1024;

thread_local! {
    // A context costs more to make than a small object costs to compress.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// What a header says about the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the content.
    pub raw: u64,
    /// Length of the zstd frame that follows.
    pub frame: u64,
}

impl Header {
    /// Reads a header; `None` when the bytes are none.
    ///
    /// ```
    /// use backtrail_core::object::codec::Header;
    /// let header = Header { raw: 9, frame: 4 };
    /// assert_eq!(Header::parse(&header.bytes()), Some(header));
    /// assert_eq!(Header::parse(b"short"), None);
    /// ```
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let (raw, rest) = rest.split_first_chunk::<8>()?;
        let (frame, _) = rest.split_first_chunk::<8>()?;
        let known =
            u32::from_le_bytes(*magic) == SKIPPABLE_MAGIC && u32::from_le_bytes(*size) == 16;
        known.then(|| Self { raw: u64::from_le_bytes(*raw), frame: u64::from_le_bytes(*frame) })
    }

    /// The 24 bytes.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&SKIPPABLE_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&16_u32.to_le_bytes());
        out[8..16].copy_from_slice(&self.raw.to_le_bytes());
        out[16..].copy_from_slice(&self.frame.to_le_bytes());
        out
    }

    /// True if an object of `raw` bytes may be stored in `stored` bytes under this header.
    pub fn fits(&self, raw: u64, stored: u64) -> bool {
        self.raw == raw && stored.checked_sub(HEADER_BYTES as u64) == Some(self.frame)
    }
}

/// Header and zstd frame of `raw`, when keeping them is worth it: at least 12.5 %
/// smaller than `raw`, header included. `None` says: store the raw bytes.
pub fn encode(raw: &[u8]) -> Option<Vec<u8>> {
    let limit = worth_trying(raw)?;
    let mut out = vec![0; limit];
    let frame = frame_into(raw, &mut out[HEADER_BYTES..])?;
    let header = Header { raw: raw.len() as u64, frame: frame as u64 };
    out[..HEADER_BYTES].copy_from_slice(&header.bytes());
    out.truncate(HEADER_BYTES + frame);
    // The buffer was sized for the limit; do not carry that around.
    out.shrink_to_fit();
    Some(out)
}

/// The zstd frame alone, for backends that keep encoding and raw length as fields.
pub fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; worth_trying(raw)?];
    let frame = frame_into(raw, &mut out)?;
    out.truncate(frame);
    out.shrink_to_fit();
    Some(out)
}

/// The most bytes a compressed form of `raw` may have; `None` when it is not worth a try.
fn worth_trying(raw: &[u8]) -> Option<usize> {
    if raw.len() < MIN_BYTES || raw.len() > MAX_BYTES {
        return None;
    }
    if raw.len() > PROBE_BYTES {
        let mut probe = vec![0; PROBE_BYTES - PROBE_BYTES / 20];
        frame_into(&raw[..PROBE_BYTES], &mut probe)?;
    }
    Some(raw.len() - raw.len().div_ceil(8))
}

/// Compresses into `out`; `None` when it does not fit.
fn frame_into(raw: &[u8], out: &mut [u8]) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Compressor::new(LEVEL).ok();
        }
        slot.as_mut()?.compress_to_buffer(raw, out).ok()
    })
}

/// The content of a header and frame as [`encode`] made them. Fails with `Corrupt`
/// when anything disagrees; the caller still has to check the hash.
pub fn decode(stored: &[u8]) -> Result<Vec<u8>> {
    let header = Header::parse(stored).ok_or_else(|| Error::corrupt("no compression header"))?;
    if !header.fits(header.raw, stored.len() as u64) {
        let (found, said) = (stored.len() as u64, header.frame.saturating_add(HEADER_BYTES as u64));
        let problem = match found.cmp(&said) {
            std::cmp::Ordering::Less => "short",
            std::cmp::Ordering::Equal => "undecodable",
            std::cmp::Ordering::Greater => "long",
        };
        let message = format!("{found} bytes are stored, the header says {said}");
        return Err(Error::corrupt(message).with_detail("problem", problem));
    }
    decompress(&stored[HEADER_BYTES..], header.raw)
}

/// The `raw` bytes of exactly one zstd frame. Fails with `Corrupt` when the frame
/// yields more or less, or when `raw` is above [`MAX_BYTES`].
pub fn decompress(frame: &[u8], raw: u64) -> Result<Vec<u8>> {
    let Some(raw) = usize::try_from(raw).ok().filter(|n| *n <= MAX_BYTES) else {
        return Err(Error::corrupt(format!(
            "a frame of {raw} bytes, above the limit of {MAX_BYTES}"
        )));
    };
    let one = frame.starts_with(&FRAME_MAGIC)
        && zstd::zstd_safe::find_frame_compressed_size(frame) == Ok(frame.len());
    if !one {
        return Err(Error::corrupt("not exactly one zstd frame"));
    }
    let mut out = Vec::with_capacity(raw);
    DECOMPRESSOR
        .with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = Some(Decompressor::new()?);
            }
            match slot.as_mut() {
                Some(d) => d.decompress_to_buffer(frame, &mut out),
                None => Ok(0),
            }
        })
        .map_err(|e| Error::corrupt("the zstd frame cannot be read").with_source(e))?;
    if out.len() != raw {
        return Err(Error::corrupt(format!("the frame holds {} bytes, not {raw}", out.len())));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: usize) -> Vec<u8> {
        b"all work and no play makes jack a dull boy\n".iter().copied().cycle().take(n).collect()
    }

    fn noise(n: usize) -> Vec<u8> {
        let mut x = 7_u64;
        let step = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        };
        std::iter::repeat_with(step).take(n).collect()
    }

    #[test]
    fn text_round_trips_and_noise_stays_raw() {
        for n in [512, 513, 65_536, 65_537, 3 << 20, MAX_BYTES] {
            let raw = text(n);
            let stored = encode(&raw).expect("worth it");
            assert!(stored.len() <= n - n / 8);
            assert_eq!(decode(&stored).expect("decodes"), raw);
            let frame = compress(&raw).expect("worth it");
            assert_eq!(stored[HEADER_BYTES..], frame);
            assert!(encode(&noise(n)).is_none());
        }
        assert!(encode(&text(511)).is_none());
        assert!(encode(&text(MAX_BYTES + 1)).is_none());
    }

    #[test]
    fn the_first_64_kib_decide() {
        let mut raw = noise(65_536);
        raw.extend(text(1 << 20));
        assert!(encode(&raw).is_none());
    }

    #[test]
    fn any_zstd_tool_reads_the_whole() {
        let raw = text(5_000);
        let stored = encode(&raw).expect("worth it");
        assert_eq!(zstd::stream::decode_all(&stored[..]).expect("plain zstd"), raw);
    }

    #[test]
    fn a_wrong_header_or_frame_is_corrupt() {
        let raw = text(9_000);
        let good = encode(&raw).expect("worth it");
        let with_raw = |n: u64| {
            let mut bad = good.clone();
            bad[8..16].copy_from_slice(&n.to_le_bytes());
            bad
        };
        let mut trailing = good.clone();
        trailing.push(0);
        let mut two = good.clone();
        two.extend_from_slice(&good[HEADER_BYTES..]);
        let frame = (2 * (good.len() - HEADER_BYTES)) as u64;
        two[..HEADER_BYTES].copy_from_slice(&Header { raw: 18_000, frame }.bytes());
        let mut flipped = good.clone();
        flipped[HEADER_BYTES] ^= 1;
        let bad = [
            Vec::new(),
            good[..good.len() - 1].to_vec(),
            good[..20].to_vec(),
            raw.clone(),
            trailing,
            two,
            flipped,
            with_raw(8_999),
            with_raw(9_001),
            with_raw(MAX_BYTES as u64 + 1),
            with_raw(u64::MAX),
        ];
        for (i, bytes) in bad.iter().enumerate() {
            let e = decode(bytes).expect_err(&format!("case {i}"));
            assert_eq!(e.kind(), crate::error::Kind::Corrupt, "case {i}");
        }
    }

    #[test]
    fn a_bomb_stops_at_the_recorded_length() {
        let frame = zstd::bulk::compress(&vec![0; 64 << 20], 3).expect("compresses");
        let mut bomb = Header { raw: 1_000, frame: frame.len() as u64 }.bytes().to_vec();
        bomb.extend(frame);
        assert!(decode(&bomb).is_err());
    }
}
