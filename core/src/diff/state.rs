//! The state of one path on one side, as diffs and plans show it.

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::snapshot::coverage::{Kind, Record};
use crate::snapshot::tree::{Body, Entry};

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Dir,
    /// A pipe, socket or device.
    Special,
    /// Nothing.
    Absent,
}

/// Permission bits, written `"0644"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(pub u32);

impl Serialize for Mode {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let bits = u32::from_str_radix(&text, 8).ok().filter(|bits| *bits <= 0o7777);
        let bits = bits.filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        bits.map(Self).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no mode")))
    }
}

/// The state of a path: two are equal if and only if nothing need be done to make one
/// the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What it is.
    pub kind: StateKind,
    /// Bytes of content or link text; none for a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits; none for a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// SHA-256 of content or link text; none when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl State {
    /// Nothing there.
    pub const ABSENT: Self = Self { kind: StateKind::Absent, size: None, mode: None, digest: None };

    /// A directory of this mode.
    pub fn dir(mode: u32) -> Self {
        Self { kind: StateKind::Dir, size: None, mode: Some(Mode(mode)), digest: None }
    }

    /// A regular file.
    pub fn file(size: u64, mode: u32, digest: Digest) -> Self {
        let (size, mode, digest) = (Some(size), Some(Mode(mode)), Some(digest));
        Self { kind: StateKind::File, size, mode, digest }
    }

    /// A symbolic link to `target`.
    pub fn symlink(target: &[u8]) -> Self {
        let (size, digest) = (Some(target.len() as u64), Some(Digest::of(target)));
        Self { kind: StateKind::Symlink, size, mode: None, digest }
    }

    /// What a tree records.
    pub fn of_entry(entry: &Entry) -> Self {
        match &entry.body {
            Body::File(r) => Self::file(r.length, entry.mode, r.digest),
            Body::Dir(_) => Self::dir(entry.mode),
            Body::Symlink(target) => Self::symlink(target),
        }
    }

    /// What is known of a path that is not covered.
    pub fn of_record(record: &Record) -> Self {
        let kind = match record.kind {
            Kind::File => StateKind::File,
            Kind::Dir => StateKind::Dir,
            Kind::Symlink => StateKind::Symlink,
            Kind::Special => StateKind::Special,
        };
        let size = record.size.filter(|_| kind != StateKind::Dir);
        Self { kind, size, mode: record.mode.map(Mode), digest: None }
    }
}
