//! What a restore reports: the JSON of the verb, and what an operation id answers.

use serde::{Deserialize, Serialize};

use super::journal::{BankRef, Third};
use super::late::Late;
use crate::ids::{Digest, TransactionId};
use crate::path::RelPath;
use crate::plan::{
    Conflict, LeftInPlace, NotCovered, Op, Plan, PlanCounts, PlanKind, PlanScope, PlanTarget,
    PlanWarning, PlanWorkspace, Step,
};

/// The most entries of a list, unless all are asked for.
pub const MAX_LISTED: usize = 100;

/// How far a restore came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultState {
    /// A dry run.
    Planned,
    /// There was nothing to do.
    Unchanged,
    /// Done.
    Closed,
    /// Done; the record of it could not be closed and is by the next command.
    Committed,
    /// Undone.
    RolledBack,
}

/// The plan's counts and those only known afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreCounts {
    /// As planned.
    #[serde(flatten)]
    pub plan: PlanCounts,
    /// Files that had other names and became their own.
    pub hard_links_split: u64,
    /// Displaced files that somebody wrote on; banked once more.
    pub late_writes: u64,
}

/// Bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreBytes {
    /// Content written.
    pub written: u64,
    /// Displaced content that the bank holds.
    pub banked: u64,
}

/// The result of a restore, undo, redo or rewind. Lists hold at most [`MAX_LISTED`]
/// entries unless all were asked for; `counts` is exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestoreResult {
    /// 1.
    pub format_version: u64,
    /// Which operation.
    pub kind: PlanKind,
    /// Null for a dry run, for nothing to do, and for `into`.
    pub transaction: Option<TransactionId>,
    /// How far it came.
    pub state: ResultState,
    /// Where.
    pub workspace: PlanWorkspace,
    /// What was put back.
    pub target: PlanTarget,
    /// The snapshot that undoes it.
    pub bank: Option<BankRef>,
    /// The plan's digest.
    pub plan: Digest,
    /// The paths concerned.
    pub scope: PlanScope,
    /// Totals.
    pub counts: RestoreCounts,
    /// Sizes.
    pub bytes: RestoreBytes,
    /// Files and links written: as many as `counts.written`.
    pub written_paths: Vec<RelPath>,
    /// Files and links deleted: as many as `counts.deleted`.
    pub deleted_paths: Vec<RelPath>,
    /// Conflicts.
    pub conflicts: Vec<Conflict>,
    /// Paths in scope that are not covered.
    pub not_covered: Vec<NotCovered>,
    /// Paths a rewind left.
    pub left_in_place: Vec<LeftInPlace>,
    /// Paths recovery left.
    pub third: Vec<Third>,
    /// What a person should know.
    pub warnings: Vec<PlanWarning>,
    /// How long it took.
    pub elapsed_ms: u64,
    /// The exit code.
    pub exit_code: u8,
}

impl RestoreResult {
    /// The result of doing nothing but this plan.
    pub(super) fn of_plan(plan: &Plan, state: ResultState, full: bool) -> Self {
        let limit = if full { usize::MAX } else { MAX_LISTED };
        fn first<T: Clone>(all: &[T], limit: usize) -> Vec<T> {
            all.iter().take(limit).cloned().collect()
        }
        let paths = |which: &dyn Fn(&Step) -> bool| {
            let all = plan.steps.iter().filter(|s| which(s)).map(|s| s.path.clone());
            let mut all: Vec<RelPath> = all.collect();
            all.sort();
            all.truncate(limit);
            all
        };
        let written = paths(&|s| s.after.is_leaf() && s.op != Op::Chmod);
        let deleted = paths(&|s| s.before.is_leaf() && s.after.is_absent());
        Self {
            format_version: 1,
            kind: plan.kind,
            transaction: None,
            state,
            workspace: plan.workspace.clone(),
            target: plan.target.clone(),
            bank: None,
            plan: plan.digest,
            scope: plan.scope.clone(),
            counts: RestoreCounts { plan: plan.counts, ..RestoreCounts::default() },
            bytes: RestoreBytes { written: plan.bytes.to_write, banked: 0 },
            written_paths: written,
            deleted_paths: deleted,
            conflicts: first(&plan.conflicts, limit),
            not_covered: first(&plan.not_covered, limit),
            left_in_place: first(&plan.left_in_place, limit),
            third: Vec::new(),
            warnings: plan.warnings.clone(),
            elapsed_ms: 0,
            exit_code: plan.exit_code(),
        }
    }

    /// Counts files that were written on after they were displaced, and says so.
    pub(super) fn late_writes(&mut self, late: &Late) {
        if let (Some(bank), Some(first)) = (&late.bank, late.files.first()) {
            let count = late.files.len();
            self.counts.late_writes += count as u64;
            let what = "were written on while they were replaced";
            let back = format!("`backtrail restore {bank} {first}` puts it back");
            let message = format!("{count} files {what}, {first} first: {back}");
            self.warn("late-write", message);
        }
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, code: &str, message: impl Into<String>) {
        self.warnings.push(PlanWarning { code: code.to_owned(), message: message.into() });
    }
}
