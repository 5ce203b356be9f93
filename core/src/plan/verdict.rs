//! What follows from a plan: its digest, its exit code, whether it must be refused, and
//! whether it deletes so much that a person must say so twice.

use std::collections::BTreeSet;

use serde_json::Value;

use super::input::{OnConflict, Options};
use super::types::{Conflict, ConflictDecision, ConflictKind, Plan, ScopeMode};
use crate::diff::StateKind;
use crate::error::{Error, Result};
use crate::path::RelPath;
use crate::store::docs;

/// Fewer deletions than this are never a mass.
const MASS_DELETE: u64 = 20;

/// How much a plan would delete, when that is more than half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassDelete {
    /// Files and links that would go.
    pub deletes: u64,
    /// Files and links that are covered now.
    pub covered: u64,
}

impl Plan {
    /// Sorts and counts the conflicts and sets the digest.
    pub(super) fn seal(&mut self) -> Result<()> {
        self.conflicts.sort_by(|a, b| (&a.path, a.kind).cmp(&(&b.path, b.kind)));
        let kept = self.conflicts.iter().filter(|c| c.decision == ConflictDecision::Keep);
        self.counts.kept = kept.count() as u64;
        let value = serde_json::to_value(&*self)
            .map_err(|e| Error::failed("internal", "the plan cannot be written").with_source(e))?;
        let Value::Object(mut map) = value else {
            return Err(Error::failed("internal", "the plan is no JSON object"));
        };
        if let Some(Value::Object(bytes)) = map.get_mut("bytes") {
            bytes.remove("workspace_free");
            bytes.remove("store_free");
        }
        self.digest = docs::digest_without(&map, &["digest", "warnings"]);
        Ok(())
    }

    /// Adds a conflict that refuses the whole, found by looking at the host
    /// (`no-permission`, `no-staging`, `no-space`), and seals the plan anew.
    pub fn refuse(
        &mut self,
        path: RelPath,
        kind: ConflictKind,
        detail: impl Into<String>,
    ) -> Result<()> {
        let (detail, decision) = (detail.into(), ConflictDecision::Keep);
        self.conflicts.push(Conflict { path, kind, detail, decision });
        self.seal()
    }

    /// True if nothing would be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// True if something that is there would be overwritten, re-moded or deleted, so
    /// that it needs a bank and a person's word.
    pub fn displaces(&self) -> bool {
        self.steps.iter().any(super::Step::displaces)
    }

    /// Every path a step touches.
    pub fn touched(&self) -> BTreeSet<RelPath> {
        self.steps.iter().map(|s| s.path.clone()).collect()
    }

    /// Why the whole must be refused, when it must: two names that are one, no right,
    /// no room, or any conflict under `--on-conflict abort`.
    pub fn refusal(&self, options: &Options) -> Option<Error> {
        let abort = options.on_conflict == OnConflict::Abort;
        let first = self.conflicts.iter().find(|c| c.kind.refuses());
        let first = first.or_else(|| self.conflicts.iter().find(|_| abort))?;
        let place =
            if first.path.is_root() { "the workspace".into() } else { first.path.to_string() };
        let message = format!("{place}: {} ({})", first.detail, first.kind.as_str());
        let error = match first.kind {
            ConflictKind::NoSpace => Error::failed("no-space", message),
            kind => {
                Error::refused(if kind.refuses() { kind.as_str() } else { "conflict" }, message)
            }
        };
        let paths = self.conflicts.iter().take(100).map(|c| c.path.text().into_owned());
        Some(error.with_paths(paths))
    }

    /// The exit code of a restore that does what the plan says: 3 when a conflict was
    /// kept or a path in scope is not covered and may differ, else 0.
    pub fn exit_code(&self) -> u8 {
        let open = self.not_covered.iter().any(|n| !n.unchanged);
        if self.counts.kept > 0 || open { 3 } else { 0 }
    }

    /// Set when a full restore would delete at least 20 files and more than half of
    /// those covered. A run's own worktree is excused by the caller.
    pub fn mass_delete(&self) -> Option<MassDelete> {
        let found = MassDelete { deletes: self.counts.deleted, covered: self.covered_now };
        let mass = self.scope.mode == ScopeMode::Full
            && found.deletes >= MASS_DELETE
            && found.deletes * 2 > found.covered;
        mass.then_some(found)
    }

    /// Paths that would be deleted, in byte order.
    pub fn deletions(&self) -> Vec<&RelPath> {
        let mut out: Vec<&RelPath> = self
            .steps
            .iter()
            .filter(|s| s.after.kind == StateKind::Absent)
            .map(|s| &s.path)
            .collect();
        out.sort();
        out
    }
}
