//! Coverage: what a snapshot stored, skipped, excluded and could not see.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tree::Ref;
use crate::path::RelPath;

/// Above this many records the list is an object of its own, one JSON line each.
pub const MAX_INLINE_RECORDS: usize = 1000;

/// Why a path that the walk saw is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A secret by name.
    Secret,
    /// A pipe, socket or device.
    Unsupported,
    /// Listed, and gone when opened.
    Vanished,
    /// Larger than the limit.
    TooLarge,
    /// Open, list or read failed.
    Unreadable,
    /// Never the same twice while being read.
    Changing,
    /// A staging name that is not ours.
    ReservedName,
    /// On another file system.
    OtherFilesystem,
    /// Deeper than 4,096 levels.
    TooDeep,
    /// Its rule file could not be read.
    RulesUnreadable,
}

impl Reason {
    /// The text in documents and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Unsupported => "unsupported",
            Self::Vanished => "vanished",
            Self::TooLarge => "too-large",
            Self::Unreadable => "unreadable",
            Self::Changing => "changing",
            Self::ReservedName => "reserved-name",
            Self::OtherFilesystem => "other-filesystem",
            Self::TooDeep => "too-deep",
            Self::RulesUnreadable => "rules-unreadable",
        }
    }

    /// True if coverage stays complete in spite of it.
    pub fn is_benign(self) -> bool {
        matches!(self, Self::Secret | Self::Unsupported | Self::Vanished)
    }
}

/// Whether one path, or a directory and all below it, is not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Seen, not stored.
    Skipped,
    /// A directory whose inside was not seen.
    Unobserved,
}

/// What kind of thing a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Special,
}

/// One path that is not covered, with the evidence of its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The path.
    pub path: RelPath,
    /// Skipped or unobserved.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// What it is.
    pub kind: Kind,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Modification time in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_ns: Option<i64>,
    /// Change time in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime_ns: Option<i64>,
    /// Inode number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The system's error, e.g. `EACCES`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The coverage of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// False if any path was skipped or unobserved for a reason that is not benign.
    pub complete: bool,
    /// Skipped paths by reason.
    #[serde(default)]
    pub skipped: BTreeMap<Reason, u64>,
    /// Directories not seen.
    #[serde(default)]
    pub unobserved: u64,
    /// Excluded paths by class: `always`, `rule`, `default`, `marker`.
    #[serde(default)]
    pub excluded: BTreeMap<String, u64>,
    /// The records, up to [`MAX_INLINE_RECORDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<Record>>,
    /// The records as an object, above that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_ref: Option<Ref>,
}

impl Coverage {
    /// Counts `records` (sorted by path) and the excluded paths.
    pub fn new(records: Vec<Record>, excluded: BTreeMap<String, u64>) -> Self {
        let mut out = Self { complete: true, excluded, ..Self::default() };
        for r in &records {
            match r.state {
                State::Skipped => *out.skipped.entry(r.reason).or_default() += 1,
                State::Unobserved => out.unobserved += 1,
            }
            out.complete &= r.reason.is_benign();
        }
        out.records = Some(records);
        out
    }

    /// How many paths are not covered.
    pub fn uncovered(&self) -> u64 {
        self.skipped.values().sum::<u64>() + self.unobserved
    }
}

/// Records as an object: one JSON line each.
pub fn encode_records(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for r in records {
        out.extend_from_slice(serde_json::to_string(r).unwrap_or_default().as_bytes());
        out.push(b'\n');
    }
    out
}

/// Reads [`encode_records`] back.
pub fn decode_records(bytes: &[u8]) -> crate::error::Result<Vec<Record>> {
    bytes
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| {
            serde_json::from_slice(l).map_err(|e| {
                crate::error::Error::corrupt("a coverage record is not readable").with_source(e)
            })
        })
        .collect()
}
