//! Cutting content larger than one object: FastCDC of 2020, normalisation 1. The
//! three sizes are format constants: other sizes would store everything again.

use std::io::{self, Read};

use bytes::Bytes;
use fastcdc::v2020::{Normalization, StreamCDC};

use crate::error::{Error, Result};
use crate::store::{MAX_BYTES, Object};

/// The shortest chunk but the last, in bytes.
pub const MIN_CHUNK: u32 = 512 * 1024;
/// The length aimed at, in bytes.
pub const AVG_CHUNK: u32 = 2 * 1024 * 1024;
/// The longest chunk, in bytes: the largest object.
pub const MAX_CHUNK: u32 = MAX_BYTES as u32;

/// The chunks of a stream, in order; holds at most two chunks in memory.
pub struct Chunks<R: Read>(StreamCDC<R>);

/// Cuts `source`. Content of at most 8 MiB is one object and needs no cutting; the
/// caller decides by the length it read from the file.
pub fn chunks<R: Read>(source: R) -> Chunks<R> {
    let level = Normalization::Level1;
    Chunks(StreamCDC::with_level(source, MIN_CHUNK, AVG_CHUNK, MAX_CHUNK, level))
}

impl<R: Read> Iterator for Chunks<R> {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.0.next()?;
        Some(chunk.map(|c| Bytes::from(c.data)).map_err(io::Error::from))
    }
}

/// Some bytes in memory as objects: none, one, or chunks above 8 MiB.
pub fn objects(bytes: impl Into<Bytes>) -> Result<Vec<Object>> {
    let bytes = bytes.into();
    match bytes.len() {
        0 => Ok(Vec::new()),
        1..=MAX_BYTES => Ok(vec![Object::new(bytes)?]),
        _ => chunks(&*bytes)
            .map(|part| {
                let failed = |e| Error::failed("io", "cutting failed").with_source(e);
                Object::new(part.map_err(failed)?)
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Digest;

    /// Deterministic bytes: xorshift64 from a fixed seed.
    fn golden_input(n: usize) -> Vec<u8> {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        let mut out = Vec::with_capacity(n + 8);
        while out.len() < n {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            out.extend_from_slice(&x.to_le_bytes());
        }
        out.truncate(n);
        out
    }

    /// Hands out bytes in small odd pieces, as a pipe would.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(buf.len()).min(70_001);
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    /// Format constants: these lines may never change.
    const GOLDEN: &[(usize, &str)] = &[
        (532_150, "6957cd0bd4aa31e9"),
        (3_450_386, "ae176bce1ca26b43"),
        (604_807, "f3b8ca0ce4008ef7"),
        (3_505_714, "5fb90440a655c8d2"),
        (5_544_227, "7ca61890ae8a0dc7"),
        (2_389_069, "d7c86bf7d7109e79"),
        (721_798, "505009f9c669b53f"),
        (1_282_640, "1c4a5df4a1fae00d"),
        (2_381_630, "83e263e1efbdb1fc"),
        (559_099, "103a6d4c7d48718c"),
    ];

    #[test]
    fn cuts_are_those_of_the_golden_fixture() {
        let input = golden_input(20 << 20);
        let cut: Vec<Bytes> = chunks(Dribble(&input)).map(|c| c.expect("reads")).collect();
        let got: Vec<(usize, String)> =
            cut.iter().map(|c| (c.len(), Digest::of(c).hex()[..16].to_owned())).collect();
        let want: Vec<(usize, String)> =
            GOLDEN.iter().map(|(n, d)| (*n, (*d).to_owned())).collect();
        assert_eq!(got, want);
        assert_eq!(cut.concat(), input);
    }

    #[test]
    fn an_insertion_changes_few_chunks() {
        let input = golden_input(20 << 20);
        let mut edited = input.clone();
        edited.splice(5 << 20..5 << 20, *b"inserted");
        let names = |bytes: &[u8]| -> Vec<Digest> {
            chunks(bytes).map(|c| Digest::of(&c.expect("reads"))).collect()
        };
        let (before, after) = (names(&input), names(&edited));
        let new = after.iter().filter(|d| !before.contains(d)).count();
        assert!(new <= 3, "{new} of {} chunks are new", after.len());
    }

    #[test]
    fn a_failing_reader_is_an_error() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("pulled the disk"))
            }
        }
        assert!(chunks(Fails).next().expect("an item").is_err());
        assert!(chunks(&b""[..]).next().is_none());
    }
}
