//! The snapshot document: one recorded state, with a digest over it all.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::coverage::Coverage;
use super::label::{Boundary, Label};
use super::tree::{Chunk, Ref};
use crate::error::{Error, Result};
use crate::ids::{Chain, Digest, SnapshotId};
use crate::path::RelPath;
use crate::store::{DocKey, docs};

/// The format version this build writes.
pub const FORMAT_VERSION: u64 = 1;

/// Which directory a snapshot is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    /// Canonical path, in path text.
    pub root: String,
    /// Device number: evidence only, it may change at a reboot.
    pub device: u64,
    /// Inode number of the root.
    pub inode: u64,
    /// When the root was made, in nanoseconds since 1970, where the file system knows:
    /// inode numbers are used again, at once on some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub birth_ns: Option<i64>,
    /// Host name.
    pub host: String,
    /// Machine id, else the host name.
    pub machine: String,
    /// The repository's common directory, when recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_common_dir: Option<String>,
    /// Same machine and path, another inode than the parent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

impl Workspace {
    /// True for the same path on the same machine.
    pub fn same_place(&self, other: &Self) -> bool {
        self.machine == other.machine && self.root == other.root
    }

    /// True for the same directory: the place, the inode, and the birth when both know it.
    pub fn same_directory(&self, other: &Self) -> bool {
        let births = self.birth_ns.zip(other.birth_ns);
        self.same_place(other) && self.inode == other.inode && births.is_none_or(|(a, b)| a == b)
    }
}

/// What a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Regular files stored.
    pub files: u64,
    /// Directories recorded, the root not counted.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sum of file lengths.
    pub bytes: u64,
    /// Files with more than one link.
    pub hard_linked: u64,
}

/// Paths changed against the parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Paths that were not there.
    pub added: u64,
    /// Paths whose content, mode or kind changed.
    pub modified: u64,
    /// Paths that are gone.
    pub deleted: u64,
}

/// A boundary that could not be captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Its label.
    pub label: String,
    /// Why.
    pub reason: String,
    /// When, RFC 3339.
    pub at: String,
}

/// Evidence of a safety snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankNote {
    /// The restore it was taken for.
    pub transaction: String,
    /// The snapshot that restore was to put back.
    pub target: String,
    /// The digest of that restore's plan.
    pub plan_digest: String,
    /// Only the paths of the plan could be stored for sure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// The operation that asked for this snapshot; only digests are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// SHA-256 of the operation id.
    pub operation_digest: Digest,
    /// SHA-256 of the request.
    pub request_digest: Digest,
}

/// One recorded state: root tree and evidence. Fields: `docs/format.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// 1.
    pub format_version: u64,
    /// First 16 hex of `digest`.
    pub id: SnapshotId,
    /// SHA-256 of the canonical JSON without `id` and `digest`.
    pub digest: Digest,
    /// Its chain.
    pub chain: Chain,
    /// From 0, the parent's plus 1.
    pub seq: u64,
    /// The snapshot before it.
    pub parent: Option<SnapshotId>,
    /// The label given at capture; never changes.
    pub label: Option<Label>,
    /// The label in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// A person's note, at most 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// RFC 3339 UTC with nine digits; for people only.
    pub created_at: String,
    /// Name and version of the program that wrote it.
    pub tool: String,
    /// Which directory.
    pub workspace: Workspace,
    /// The root tree.
    pub root: Ref,
    /// What it holds.
    pub counts: Counts,
    /// Against the parent; null for the first.
    pub delta: Option<Delta>,
    /// The rule set in force, as an object.
    pub rules: Ref,
    /// What is and is not covered.
    pub coverage: Coverage,
    /// Labels that pointed at the parent when this was published.
    #[serde(default)]
    pub parent_labels: Vec<Label>,
    /// Boundaries not captured since the parent.
    #[serde(default)]
    pub missed: Vec<Missed>,
    /// The operation that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// Makes this a safety snapshot, whatever its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank: Option<BankNote>,
    /// The snapshot a rewind went back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewound_to: Option<SnapshotId>,
    /// A `fail:` boundary that was captured after the run's process had died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// RFC 3339: until when that process is known to have lived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive_until: Option<String>,
    /// What differs from the parent and was changed after that: noted when it was captured,
    /// since whatever is written there again has another time. Absent: not noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_later: Option<Vec<RelPath>>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Snapshot {
    /// Where it lives.
    pub fn key(&self) -> DocKey {
        DocKey::Snapshot(self.chain.clone(), self.id.clone())
    }

    /// Sets `digest` and `id` from the rest.
    pub fn seal(&mut self) -> Result<()> {
        let value = serde_json::to_value(&*self).map_err(|e| {
            Error::invalid("the snapshot document cannot be written").with_source(e)
        })?;
        let Value::Object(map) = value else { unreachable!("a struct serializes to an object") };
        self.digest = docs::digest_without(&map, &["id", "digest"]);
        self.id = SnapshotId::of(&self.digest);
        Ok(())
    }

    /// Reads and validates a document found at `key`: digest, id, chain and key agree.
    /// `Newer` for a later format, `Corrupt` naming the key for anything else.
    pub fn read(key: &DocKey, body: &[u8]) -> Result<Self> {
        let map = docs::parse_object(key, body)?;
        docs::check_format(key, body, FORMAT_VERSION)?;
        let digest = docs::digest_without(&map, &["id", "digest"]);
        let bad =
            |why: &str| Error::corrupt(format!("snapshot document {key} is not valid: {why}"));
        let snapshot: Self = serde_json::from_value(Value::Object(map))
            .map_err(|e| bad("a field is missing or malformed").with_source(e))?;
        if snapshot.digest != digest {
            return Err(bad("its digest does not match its content"));
        }
        if snapshot.id != SnapshotId::of(&digest) {
            return Err(bad("its id does not match its digest"));
        }
        if snapshot.key() != *key {
            return Err(bad("it belongs under another key"));
        }
        snapshot.root.check().and_then(|()| snapshot.rules.check()).map_err(bad)?;
        Ok(snapshot)
    }

    /// True for a safety snapshot.
    pub fn is_bank(&self) -> bool {
        self.bank.is_some()
    }
}

#[derive(Serialize, Deserialize)]
struct RefText {
    digest: Digest,
    length: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<ChunkText>,
}

#[derive(Serialize, Deserialize)]
struct ChunkText {
    digest: Digest,
    length: u32,
}

impl Serialize for Ref {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let chunk = |c: &Chunk| ChunkText { digest: c.digest, length: c.length };
        let chunks = self.chunks.iter().map(chunk).collect();
        RefText { digest: self.digest, length: self.length, chunks }.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Ref {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let t = RefText::deserialize(d)?;
        let chunk = |c: ChunkText| Chunk { length: c.length, digest: c.digest };
        let chunks = t.chunks.into_iter().map(chunk).collect();
        Ok(Self { length: t.length, digest: t.digest, chunks })
    }
}
