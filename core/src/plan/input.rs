//! What a plan is made from.

use std::collections::{BTreeMap, BTreeSet};

use super::target::TargetView;
use super::types::{ConflictKind, LeftReason, PlanKind, PlanTarget, PlanWorkspace};
use crate::diff::{Cover, State};
use crate::ids::SnapshotId;
use crate::observe::Observed;
use crate::path::RelPath;
use crate::workspace::rules::Matcher;

/// Which paths a restore concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    Full,
    /// The paths a run changed, each by itself.
    Produced(BTreeSet<RelPath>),
    /// Paths a person named, with all below them.
    Paths(BTreeSet<RelPath>),
    /// The paths an earlier operation touched, each by itself (undo and redo).
    Touched(BTreeSet<RelPath>),
    /// None: nothing is done.
    None,
}

/// What to do about conflicts that may be overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Keep what is there.
    #[default]
    Keep,
    /// Put the target back; what is there is banked.
    Overwrite,
    /// Refuse, whatever the conflict, see [`super::Plan::refusal`].
    Abort,
}

/// Choices of the caller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Delete nothing.
    pub no_delete: bool,
    /// Paths (with all below) to take out of the plan.
    pub keep: Vec<RelPath>,
    /// Paths (with all below) whose conflicts are overwritten.
    pub take: Vec<RelPath>,
    /// For all other conflicts.
    pub on_conflict: OnConflict,
    /// Plan although there is too little room.
    pub no_space_check: bool,
    /// The size limit in force: what is above is not deleted.
    pub max_file_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            no_delete: false,
            keep: Vec::new(),
            take: Vec::new(),
            on_conflict: OnConflict::Keep,
            no_space_check: false,
            max_file_bytes: 32 << 20,
        }
    }
}

/// Whether the directory is the one the target was taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// It is.
    Same,
    /// Same machine and path, another directory: nothing is deleted.
    Recreated,
    /// Another directory, accepted by the caller: nothing is deleted.
    Foreign,
}

/// The state that present content is compared with, to find what changed after the run.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    /// Nothing is compared.
    None,
    /// The tree of the chain's head, loaded like the target.
    Tree(&'a TargetView),
    /// States by path (those an operation left); other paths are not compared.
    States(&'a BTreeMap<RelPath, State>),
}

/// A conflict that the caller found in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Which.
    pub kind: ConflictKind,
    /// Words for people.
    pub detail: String,
}

/// Free bytes for this user, when known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// In the workspace.
    pub workspace: Option<u64>,
    /// In the store.
    pub store: Option<u64>,
}

/// All that a plan depends on. Equal inputs give byte-equal plans.
pub struct PlanInput<'a> {
    /// Which operation.
    pub kind: PlanKind,
    /// Where.
    pub workspace: PlanWorkspace,
    /// What is put back, in words.
    pub target: PlanTarget,
    /// Its trees, as far as they differ from the workspace.
    pub view: &'a TargetView,
    /// What the target does not cover, and the rules then. Without rules nothing was
    /// excluded then.
    pub cover: &'a Cover,
    /// The workspace now; `None` for a directory that is not there yet.
    pub observed: Option<&'a Observed>,
    /// The rules now.
    pub now: &'a Matcher,
    /// What present content is compared with.
    pub base: Base<'a>,
    /// The chain head, for the record.
    pub base_id: Option<SnapshotId>,
    /// The paths concerned.
    pub scope: &'a Scope,
    /// Conflicts found in the history.
    pub foreseen: &'a BTreeMap<RelPath, Foreseen>,
    /// Why differing paths out of scope stay; others are `out-of-scope`.
    pub left: &'a BTreeMap<RelPath, LeftReason>,
    /// Paths that stay although in scope: the workflow's own files.
    pub protected: &'a BTreeSet<RelPath>,
    /// Choices.
    pub options: &'a Options,
    /// The directory's identity.
    pub identity: Identity,
    /// The file system takes `A` and `a` for one name.
    pub case_folding: bool,
    /// Room.
    pub free: Free,
}
