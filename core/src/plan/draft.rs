//! A plan under way: what was decided so far.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{Base, Identity, OnConflict, PlanInput, Scope};
use super::scope::ScopeTree;
use super::steps::{Op, Step, arrange};
use super::types::{
    Conflict, ConflictDecision, ConflictKind, FORMAT_VERSION, LeftInPlace, LeftReason, NotCovered,
    Plan, PlanBytes, PlanCounts, PlanKind, PlanRules, PlanWarning,
};
use crate::diff::{State, StateKind};
use crate::error::Result;
use crate::ids::Digest;
use crate::observe::{Observed, What};
use crate::path::RelPath;
use crate::snapshot::tree::Body;
use crate::workspace::rules::{Class, RuleFamily, RuleSet};

/// Room that one new name may take besides its content.
const ENTRY_BYTES: u64 = 4096;

/// What a directory of the observation holds, all below included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Covered files and links.
    pub(super) leaves: u64,
    /// Something in it must be looked at even when the tree is as recorded.
    pub(super) odd: bool,
}

/// A plan under way.
pub(super) struct Draft<'a> {
    pub(super) scope: ScopeTree,
    pub(super) sums: Vec<Sum>,
    /// Differing paths out of scope are listed.
    pub(super) lists_left: bool,
    /// Nothing may be deleted.
    pub(super) no_delete: bool,
    /// Paths are chosen one by one, so that an empty directory among them may go.
    pub(super) chosen: bool,
    keep: BTreeSet<RelPath>,
    take: BTreeSet<RelPath>,
    on_conflict: OnConflict,
    protected: &'a BTreeSet<RelPath>,
    steps: Vec<Step>,
    conflicts: Vec<Conflict>,
    not_covered: BTreeMap<RelPath, NotCovered>,
    left: Vec<LeftInPlace>,
    reasons: &'a BTreeMap<RelPath, LeftReason>,
    warnings: Vec<PlanWarning>,
    contents: BTreeMap<RelPath, Body>,
    bytes: PlanBytes,
    pub(super) counts: PlanCounts,
    pub(super) respelled: BTreeMap<RelPath, RelPath>,
    pub(super) unread: BTreeSet<RelPath>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(input: &PlanInput<'a>) -> Self {
        let options = input.options;
        let mut warnings = Vec::new();
        let mut warn = |code: &str, message: &str| {
            warnings.push(PlanWarning { code: code.to_owned(), message: message.to_owned() });
        };
        match input.identity {
            Identity::Same => {}
            Identity::Recreated => {
                warn("recreated", "the directory was made anew: nothing is deleted");
            }
            Identity::Foreign => warn("foreign", "this is another directory: nothing is deleted"),
        }
        // a target that did not see its own root says nothing about what was absent
        let blind = input.cover.record(&RelPath::root()).is_some();
        if blind {
            warn(
                "root-unobserved",
                "the target did not see all of the directory: nothing is deleted",
            );
        }
        let no_delete = options.no_delete
            || blind
            || input.kind == PlanKind::Into
            || input.identity != Identity::Same;
        Self {
            scope: ScopeTree::new(input.scope),
            sums: input.observed.map(sums).unwrap_or_default(),
            lists_left: input.kind == PlanKind::Rewind && matches!(input.scope, Scope::Produced(_)),
            no_delete,
            chosen: *input.scope != Scope::Full,
            keep: options.keep.iter().cloned().collect(),
            take: options.take.iter().cloned().collect(),
            on_conflict: options.on_conflict,
            protected: input.protected,
            steps: Vec::new(),
            conflicts: Vec::new(),
            not_covered: BTreeMap::new(),
            left: Vec::new(),
            reasons: input.left,
            warnings,
            contents: BTreeMap::new(),
            bytes: PlanBytes {
                workspace_free: input.free.workspace,
                store_free: input.free.store,
                ..PlanBytes::default()
            },
            counts: PlanCounts::default(),
            respelled: BTreeMap::new(),
            unread: BTreeSet::new(),
        }
    }

    /// True if `--keep` names this path. Paths below one are never asked about.
    pub(super) fn is_kept(&self, path: &RelPath) -> bool {
        self.keep.contains(path)
    }

    /// True if `--keep` names something at or below `dir`.
    pub(super) fn keeps_below(&self, dir: &RelPath) -> bool {
        self.keep.iter().any(|k| k.starts_with(dir))
    }

    /// True if a conflict of `kind` at `path` is to be overwritten.
    pub(super) fn overwrites(&self, kind: ConflictKind, path: &RelPath) -> bool {
        kind.may_overwrite()
            && (self.on_conflict == OnConflict::Overwrite
                || self.take.iter().any(|t| path.starts_with(t)))
    }

    /// True for the workflow's own files.
    pub(super) fn is_protected(&self, path: &RelPath) -> bool {
        self.protected.contains(path)
    }

    pub(super) fn conflict(
        &mut self,
        path: &RelPath,
        kind: ConflictKind,
        detail: impl Into<String>,
        decision: ConflictDecision,
    ) {
        let (path, detail) = (path.clone(), detail.into());
        self.conflicts.push(Conflict { path, kind, detail, decision });
    }

    pub(super) fn clash(&mut self, a: &RelPath, b: &RelPath) {
        let detail = format!("{a} and {b} are one name on this file system");
        self.conflict(b, ConflictKind::CaseClash, detail, ConflictDecision::Keep);
    }

    pub(super) fn not_covered(&mut self, row: NotCovered) {
        self.not_covered.entry(row.path.clone()).or_insert(row);
    }

    /// A differing path out of scope.
    pub(super) fn left(&mut self, path: &RelPath) {
        let reason = self.reasons.get(path).copied().unwrap_or(LeftReason::OutOfScope);
        self.leave(path, reason);
    }

    pub(super) fn leave(&mut self, path: &RelPath, reason: LeftReason) {
        self.left.push(LeftInPlace { path: path.clone(), reason });
    }

    /// Puts a file or link in place of what is there.
    pub(super) fn put(&mut self, op: Op, path: &RelPath, before: State, after: State, body: Body) {
        self.counts.written += 1;
        self.counts.dirs_removed += u64::from(before.kind == StateKind::Dir);
        if after.kind == StateKind::File {
            self.bytes.to_write += after.size;
        }
        self.contents.insert(path.clone(), body);
        self.step(op, path, before, after);
    }

    pub(super) fn chmod(&mut self, path: &RelPath, before: State, after: State) {
        self.counts.mode_changed += 1;
        self.steps.push(Step { phase: 0, op: Op::Chmod, path: path.clone(), before, after });
    }

    pub(super) fn mkdir(&mut self, path: &RelPath, mode: u32) {
        self.counts.dirs_created += 1;
        self.step(Op::Mkdir, path, State::absent(), State::dir(mode));
    }

    /// Puts a directory in place of a file or link.
    pub(super) fn replace_by_dir(&mut self, path: &RelPath, before: State, mode: u32) {
        self.counts.dirs_created += 1;
        self.step(Op::ReplaceKind, path, before, State::dir(mode));
    }

    pub(super) fn delete(&mut self, path: &RelPath, before: State) {
        self.counts.deleted += 1;
        self.step(Op::Delete, path, before, State::absent());
    }

    pub(super) fn rmdir(&mut self, path: &RelPath, mode: u32) {
        self.counts.dirs_removed += 1;
        self.step(Op::Rmdir, path, State::dir(mode), State::absent());
    }

    fn step(&mut self, op: Op, path: &RelPath, before: State, after: State) {
        if before.kind == StateKind::File {
            self.bytes.displaced += before.size;
        }
        self.steps.push(Step { phase: 0, op, path: path.clone(), before, after });
    }

    /// Checks for room, sorts, counts and seals.
    pub(super) fn finish(mut self, input: &PlanInput<'_>) -> Result<Plan> {
        arrange(&mut self.steps);
        let not_covered: Vec<NotCovered> = self.not_covered.into_values().collect();
        self.counts.not_covered = not_covered.len() as u64;
        self.counts.left_in_place = self.left.len() as u64;
        self.left.sort_by(|a, b| a.path.cmp(&b.path));
        let covered = input.observed.map_or(0, |o| o.counts.files + o.counts.symlinks);
        let empty = || RuleSet::new(RuleFamily::Git, Default::default(), false);
        let then = input.cover.rules().map_or_else(|| empty().digest(), |m| m.rule_set().digest());
        let mut plan = Plan {
            format_version: FORMAT_VERSION,
            kind: input.kind,
            workspace: input.workspace.clone(),
            target: input.target.clone(),
            base: input.base_id.clone().filter(|_| !matches!(input.base, Base::None)),
            scope: input.scope.record(),
            rules: PlanRules { then, now: input.now.rule_set().digest() },
            steps: self.steps,
            conflicts: self.conflicts,
            not_covered,
            left_in_place: self.left,
            counts: self.counts,
            bytes: self.bytes,
            warnings: self.warnings,
            digest: Digest::EMPTY,
            contents: self.contents,
            respelled: self.respelled,
            unread: self.unread,
            covered_now: covered,
        };
        plan.respelled.retain(|path, _| plan.steps.iter().any(|s| s.path == *path));
        let (need, free) = (plan.space_needed(), plan.bytes.workspace_free);
        if let Some(free) = free.filter(|f| *f < need && !input.options.no_space_check) {
            let detail = format!("{need} bytes are needed and {free} are free");
            plan.conflicts.push(Conflict {
                path: RelPath::root(),
                kind: ConflictKind::NoSpace,
                detail,
                decision: ConflictDecision::Keep,
            });
        }
        plan.seal()?;
        Ok(plan)
    }
}

impl Plan {
    /// Bytes the workspace needs: new content, and a block for each new name.
    pub fn space_needed(&self) -> u64 {
        let new = |s: &&Step| !s.after.is_absent() && s.op != Op::Chmod;
        self.bytes.to_write + ENTRY_BYTES * self.steps.iter().filter(new).count() as u64
    }
}

/// Sums per directory. A child's number is above its parent's, so that one way back
/// sees each child before its parent.
fn sums(observed: &Observed) -> Vec<Sum> {
    let mut out = vec![Sum::default(); observed.dirs.len()];
    for (i, dir) in observed.dirs.iter().enumerate().rev() {
        for entry in &dir.entries {
            let add = match &entry.what {
                What::File(_) | What::Symlink(_) => Sum { leaves: 1, odd: false },
                What::Dir(child) if observed.dirs[*child].recorded => out[*child],
                // excluded by name or content then as now: never a matter of the plan
                What::Excluded(Class::Always | Class::Default | Class::Marker) => Sum::default(),
                _ => Sum { leaves: 0, odd: true },
            };
            out[i].leaves += add.leaves;
            out[i].odd |= add.odd;
        }
    }
    out
}
