//! The plan and its parts: exactly what its JSON holds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::steps::Step;
use crate::ids::{Digest, RunId, SnapshotId, WorkspaceKey};
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::snapshot::tree::Body;

/// The format this build writes.
pub const FORMAT_VERSION: u64 = 1;

/// Which operation a plan is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanKind {
    /// `restore`.
    Restore,
    /// `undo`.
    Undo,
    /// `redo`.
    Redo,
    /// `rewind`.
    Rewind,
    /// `restore --into`.
    Into,
}

impl PlanKind {
    /// The word in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Undo => "undo",
            Self::Redo => "redo",
            Self::Rewind => "rewind",
            Self::Into => "into",
        }
    }
}

/// The directory a plan is for, as it was identified when observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanWorkspace {
    /// Its key.
    pub key: WorkspaceKey,
    /// Its canonical path, in path text.
    pub root: String,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// What is put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTarget {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The label it was asked for by, when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Its root tree.
    pub root_tree: Digest,
}

/// How the paths concerned were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeMode {
    /// All.
    Full,
    /// What the run changed.
    Produced,
    /// Named ones.
    Paths,
    /// None.
    None,
}

/// The scope in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanScope {
    /// How it was chosen.
    pub mode: ScopeMode,
    /// How many paths it lists; null for `full`.
    pub count: Option<u64>,
    /// SHA-256 of the listed paths in byte order, each followed by a NUL; null for `full`.
    pub digest: Option<Digest>,
}

/// The digests of the two rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRules {
    /// The target snapshot's.
    pub then: Digest,
    /// The workspace's.
    pub now: Digest,
}

/// Why a path cannot simply be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictKind {
    /// It differs from the last recorded state, or its newest change is not the run's.
    ChangedAfterRun,
    /// Another run changed it after the target was taken.
    OtherRun,
    /// The rules keep it out, then or now.
    Excluded,
    /// A directory must give way, but holds something no snapshot covers.
    UncoveredContent,
    /// A pipe, socket or device is there.
    SpecialFile,
    /// A repository of its own is in the way.
    NestedRepo,
    /// The name is reserved for restore's staging.
    ReservedName,
    /// The disk moved between plan and swap.
    ChangedSincePlan,
    /// Two target paths are one name on this file system.
    CaseClash,
    /// The file system or its rights do not allow it.
    NoPermission,
    /// Nothing can be staged there.
    NoStaging,
    /// There is not enough room.
    NoSpace,
}

impl ConflictKind {
    /// The word in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChangedAfterRun => "changed-after-run",
            Self::OtherRun => "other-run",
            Self::Excluded => "excluded",
            Self::UncoveredContent => "uncovered-content",
            Self::SpecialFile => "special-file",
            Self::NestedRepo => "nested-repo",
            Self::ReservedName => "reserved-name",
            Self::ChangedSincePlan => "changed-since-plan",
            Self::CaseClash => "case-clash",
            Self::NoPermission => "no-permission",
            Self::NoStaging => "no-staging",
            Self::NoSpace => "no-space",
        }
    }

    /// True if `--take` and `--on-conflict overwrite` put the path back all the same.
    pub fn may_overwrite(self) -> bool {
        matches!(self, Self::ChangedAfterRun | Self::OtherRun)
    }

    /// True if it refuses the whole restore.
    pub fn refuses(self) -> bool {
        matches!(
            self,
            Self::ChangedSincePlan
                | Self::CaseClash
                | Self::NoPermission
                | Self::NoStaging
                | Self::NoSpace
        )
    }
}

/// What is done about a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConflictDecision {
    /// The path stays as it is.
    Keep,
    /// It is put back; its present content is banked.
    Overwrite,
}

/// A path that cannot simply be put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub kind: ConflictKind,
    /// Words for people: the rule, the run, the path in the way.
    pub detail: String,
    /// What is done.
    pub decision: ConflictDecision,
}

/// A path in scope that is not covered, then or now, and stays untouched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCovered {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub reason: Reason,
    /// Its present size in bytes, else the recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The snapshot's evidence equals the present stat.
    pub unchanged: bool,
}

/// Why a rewind leaves a path that differs from the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftReason {
    /// The run did not change it.
    OutOfScope,
    /// It changed while the run was parked.
    Parked,
    /// Who changed it cannot be told.
    Unattributed,
    /// The workflow's own file.
    Protected,
}

impl LeftReason {
    /// The word in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfScope => "out-of-scope",
            Self::Parked => "parked",
            Self::Unattributed => "unattributed",
            Self::Protected => "protected",
        }
    }
}

/// A path that a rewind leaves although it differs from the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftInPlace {
    /// Where.
    pub path: RelPath,
    /// Why.
    pub reason: LeftReason,
}

/// How many paths end in which way. Files and links, unless it says directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCounts {
    /// Put back.
    pub written: u64,
    /// As recorded already.
    pub unchanged: u64,
    /// Taken away.
    pub deleted: u64,
    /// Of whatever kind, given another mode and nothing else.
    pub mode_changed: u64,
    /// Directories made.
    pub dirs_created: u64,
    /// Directories taken away.
    pub dirs_removed: u64,
    /// Conflicts that were kept.
    pub kept: u64,
    /// Not covered.
    pub not_covered: u64,
    /// Left by a rewind.
    pub left_in_place: u64,
}

/// Bytes to move, and room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBytes {
    /// Content to write.
    pub to_write: u64,
    /// Content that is displaced, and banked.
    pub displaced: u64,
    /// Free for this user in the workspace, when known. Not part of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_free: Option<u64>,
    /// Free in the store, when known. Not part of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_free: Option<u64>,
}

/// Something a person should know. Not part of the digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanWarning {
    /// Stable code.
    pub code: String,
    /// Words.
    pub message: String,
}

/// What a restore would do. See [`super::make`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// 1.
    pub format_version: u64,
    /// Which operation.
    pub kind: PlanKind,
    /// Where.
    pub workspace: PlanWorkspace,
    /// What is put back.
    pub target: PlanTarget,
    /// The chain head that later edits are judged against.
    pub base: Option<SnapshotId>,
    /// The paths concerned.
    pub scope: PlanScope,
    /// The rules then and now.
    pub rules: PlanRules,
    /// The steps in the order in which they are applied, see [`super::order`].
    pub steps: Vec<Step>,
    /// In byte order of path.
    pub conflicts: Vec<Conflict>,
    /// In byte order of path.
    pub not_covered: Vec<NotCovered>,
    /// In byte order of path; rewind only.
    pub left_in_place: Vec<LeftInPlace>,
    /// Totals.
    pub counts: PlanCounts,
    /// Sizes.
    pub bytes: PlanBytes,
    /// What a person should know.
    pub warnings: Vec<PlanWarning>,
    /// SHA-256 of the canonical JSON without this, free space and warnings.
    pub digest: Digest,
    /// What the steps put in place, by path: content to fetch, or a link's text. Empty
    /// in a plan that was read back.
    #[serde(skip)]
    pub contents: BTreeMap<RelPath, Body>,
    /// On a file system that folds case: paths of steps, as they are spelled now, with
    /// the spelling that is recorded. A file or link ends with that one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub respelled: BTreeMap<RelPath, RelPath>,
    /// Present files above the size limit that the target would overwrite, and that
    /// were kept because their content is not known. Observe again with these as
    /// `must_store`, and plan again, to have them put back.
    #[serde(skip)]
    pub unread: BTreeSet<RelPath>,
    /// Files and links that the workspace holds now and that are covered.
    #[serde(skip)]
    pub covered_now: u64,
}
