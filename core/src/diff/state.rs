//! The state of one path on one side, as diffs and plans show it.

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::Digest;
use crate::snapshot::coverage::{Kind, Record};
use crate::snapshot::tree::{Body, Entry};

/// What a path is, or shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Dir,
    /// A pipe, socket or device: never in a plan's step.
    Special,
    /// Nothing.
    Absent,
}

/// The state of a path. Two are equal if and only if nothing need be done to make one
/// the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct State {
    /// What it is.
    pub kind: StateKind,
    /// Bytes of content or of link text; 0 otherwise.
    #[serde(default)]
    pub size: u64,
    /// Permission bits; 0 for a link and for nothing.
    #[serde(default, deserialize_with = "octal")]
    pub mode: u32,
    /// SHA-256 of the content or the link text, when known.
    #[serde(default)]
    pub digest: Option<Digest>,
}

impl State {
    /// Nothing there.
    pub fn absent() -> Self {
        Self { kind: StateKind::Absent, size: 0, mode: 0, digest: None }
    }

    /// A directory of this mode.
    pub fn dir(mode: u32) -> Self {
        Self { kind: StateKind::Dir, size: 0, mode, digest: None }
    }

    /// A file of this mode, length and content.
    pub fn file(mode: u32, size: u64, digest: Digest) -> Self {
        Self { kind: StateKind::File, size, mode, digest: Some(digest) }
    }

    /// A link with this target text.
    pub fn symlink(target: &[u8]) -> Self {
        let (size, digest) = (target.len() as u64, Some(Digest::of(target)));
        Self { kind: StateKind::Symlink, size, mode: 0, digest }
    }

    /// What a tree records.
    pub fn of_entry(entry: &Entry) -> Self {
        match &entry.body {
            Body::File(r) => Self::file(entry.mode, r.length, r.digest),
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
        let size = record.size.filter(|_| kind != StateKind::Dir).unwrap_or(0);
        Self { kind, size, mode: record.mode.unwrap_or(0), digest: None }
    }

    /// True for a file or a link.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, StateKind::File | StateKind::Symlink)
    }

    /// True if nothing is there.
    pub fn is_absent(&self) -> bool {
        self.kind == StateKind::Absent
    }

    /// Equal kind and content, whatever the mode.
    pub fn same_content(&self, other: &Self) -> bool {
        self.kind == other.kind && self.size == other.size && self.digest == other.digest
    }
}

/// Only the members that mean something for the kind: no size of a directory, no mode
/// of a link.
impl Serialize for State {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use StateKind::{Absent, Dir, Symlink};
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("kind", &self.kind)?;
        if !matches!(self.kind, Dir | Absent) {
            map.serialize_entry("size", &self.size)?;
        }
        if !matches!(self.kind, Symlink | Absent) {
            map.serialize_entry("mode", &format!("{:04o}", self.mode))?;
        }
        if let Some(digest) = &self.digest {
            map.serialize_entry("digest", digest)?;
        }
        map.end()
    }
}

fn octal<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    let text = String::deserialize(d)?;
    let digits = !text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    let bits = u32::from_str_radix(&text, 8).ok().filter(|bits| digits && *bits <= 0o7777);
    bits.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no mode")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_as_written() {
        let all = [
            State::absent(),
            State::dir(0o2775),
            State::file(0, 3, Digest::EMPTY),
            State::symlink(b"x"),
        ];
        for state in all {
            let text = serde_json::to_string(&state).expect("json");
            assert_eq!(serde_json::from_str::<State>(&text).expect("reads"), state, "{text}");
        }
        let text = serde_json::to_string(&State::dir(0o755)).expect("json");
        assert_eq!(text, r#"{"kind":"dir","mode":"0755"}"#);
        assert!(serde_json::from_str::<State>(r#"{"kind":"dir","mode":"+755"}"#).is_err());
    }
}
