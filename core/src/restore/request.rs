//! What a restore is asked, and what it asks back.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde_json::json;

use super::journal::{BankRef, JournalRun};
use super::operations::Change;
use crate::diff::State;
use crate::error::{Error, Result};
use crate::ids::{Digest, RunId, TransactionId};
use crate::path::RelPath;
use crate::plan::{Foreseen, Identity, LeftReason, OnConflict, Options, Plan, PlanKind, Scope};
use crate::snapshot::doc::Snapshot;
use crate::store::docs;

/// The state that present content is compared with, to find what changed after the run.
#[derive(Clone, Debug, Default)]
pub enum RequestBase {
    /// Nothing is compared.
    #[default]
    None,
    /// The chain's head.
    Head,
    /// States by path: those an operation left.
    States(BTreeMap<RelPath, State>),
}

/// One restore.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// Which operation.
    pub kind: PlanKind,
    /// The snapshot to put back.
    pub target: Snapshot,
    /// The label it was asked for by.
    pub label: Option<String>,
    /// The run it belongs to.
    pub run: Option<RunId>,
    /// The paths concerned.
    pub scope: Scope,
    /// What present content is compared with.
    pub base: RequestBase,
    /// Choices.
    pub options: Options,
    /// Conflicts found in the history.
    pub foreseen: BTreeMap<RelPath, Foreseen>,
    /// Why differing paths out of scope stay.
    pub left: BTreeMap<RelPath, LeftReason>,
    /// Paths that stay although in scope.
    pub protected: BTreeSet<RelPath>,
    /// Restore a snapshot of another directory all the same; nothing is deleted.
    pub foreign: bool,
    /// This directory was rebuilt for the run, so it counts as the one recorded.
    pub rebuilt: bool,
    /// Trust no entry of the stat cache.
    pub rehash: bool,
    /// Keep setuid and setgid bits even as the superuser.
    pub special_modes: bool,
    /// Plan only.
    pub dry_run: bool,
    /// Apply only a plan whose digest begins with this.
    pub plan_digest: Option<String>,
    /// Answers a repeated request with the recorded result.
    pub operation_id: Option<String>,
    /// What it does to the list of operations.
    pub change: Change,
    /// The command, for the list of operations and for others who wait.
    pub command: String,
    /// List every path in the result.
    pub full: bool,
}

impl RestoreRequest {
    /// A full restore of `target`.
    pub fn new(target: Snapshot) -> Self {
        Self {
            kind: PlanKind::Restore,
            target,
            label: None,
            run: None,
            scope: Scope::Full,
            base: RequestBase::None,
            options: Options::default(),
            foreseen: BTreeMap::new(),
            left: BTreeMap::new(),
            protected: BTreeSet::new(),
            foreign: false,
            rebuilt: false,
            rehash: false,
            special_modes: false,
            dry_run: false,
            plan_digest: None,
            operation_id: None,
            change: Change::Add,
            command: String::from("restore"),
            full: false,
        }
    }

    /// A digest of what is asked, without times and without how it is shown.
    pub(super) fn digest(&self) -> Digest {
        let texts = |paths: &[RelPath]| -> Vec<String> {
            paths.iter().map(|p| p.text().into_owned()).collect()
        };
        let paths = self.scope.paths().map(|p| p.iter().cloned().collect::<Vec<_>>());
        let value = json!({
            "kind": self.kind.as_str(),
            "target": self.target.id.as_str(),
            "chain": self.target.chain.to_string(),
            "paths": paths.map(|p| texts(&p)),
            "no_delete": self.options.no_delete,
            "keep": texts(&self.options.keep),
            "take": texts(&self.options.take),
            "on_conflict": match self.options.on_conflict {
                OnConflict::Keep => "keep",
                OnConflict::Overwrite => "overwrite",
                OnConflict::Abort => "abort",
            },
            "foreign": self.foreign,
            "special_modes": self.special_modes,
        });
        Digest::of(&docs::canonical(&value))
    }

    /// Fails with `plan-changed` unless `plan` is the one that was asked for.
    pub(super) fn check_digest(&self, plan: &Plan) -> Result<()> {
        let Some(wanted) = &self.plan_digest else { return Ok(()) };
        if wanted.len() < 16 {
            return Err(Error::invalid("a plan digest is given by at least 16 hex digits"));
        }
        if plan.digest.hex().starts_with(wanted.as_str()) {
            return Ok(());
        }
        let counts = &plan.counts;
        let message = format!(
            "the plan is another one now, {}: {} written, {} deleted, {} kept",
            plan.digest, counts.written, counts.deleted, counts.kept
        );
        Err(Error::refused("plan-changed", message).with_detail("plan", plan.digest.hex()))
    }
}

/// What a restore asks and tells its caller on the way. A rewind changes its run's
/// record in these places; a plain restore only confirms.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// A dry run ends here: shows the plan.
    fn planned(&self, _: &Plan) {}

    /// What the operation changes beside files, in lines, for whoever shows the plan. Comes
    /// before it.
    fn also(&self, _: &[String]) {}

    /// Shows the plan and says whether to go on; an error refuses. The plan is the one
    /// that will be applied.
    async fn confirm(&self, plan: &Plan, identity: Identity) -> Result<()>;

    /// The workspace is locked, nothing is stored yet: park the run.
    async fn locked(&self, _: &TransactionId, _: &Plan) -> Result<Option<JournalRun>> {
        Ok(None)
    }

    /// All files are in place and verified: the point of decision. An error rolls back.
    async fn applied(&self, _: &TransactionId, _: &Plan, _: &BankRef) -> Result<()> {
        Ok(())
    }

    /// It is done for good. May be called again after a crash by whoever recovers.
    async fn committed(&self, _: &TransactionId, _: &Plan, _: &BankRef) -> Result<()> {
        Ok(())
    }

    /// It was rolled back, or failed before anything was changed: unpark the run.
    async fn abandoned(&self, _: &TransactionId) {}
}

/// Goes on without asking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unasked;

#[async_trait]
impl Hooks for Unasked {
    async fn confirm(&self, _: &Plan, _: Identity) -> Result<()> {
        Ok(())
    }
}
