//! What a transaction writes down: its journal before, its result after.

use std::collections::HashMap;

use super::apply::Applied;
use super::bank::Banked;
use super::effective_mode;
use super::journal::{
    JOURNAL_VERSION, Journal, JournalRun, JournalState, JournalWorkspace, StagingDir,
};
use super::late::Late;
use super::operation;
use super::owner::Owner;
use super::result::{RestoreResult, ResultState};
use super::run::Line;
use super::stage::{Content, StagePlace};
use super::work::Work;
use crate::diff::StateKind;
use crate::plan::{Plan, Step};
use crate::snapshot::tree::{Body, Ref};

impl Line<'_> {
    pub(super) fn journal(
        &self,
        work: &Work,
        parked: Option<JournalRun>,
        owner: Owner,
        banked: &Banked,
        plan: Ref,
    ) -> Journal {
        let to_value = |v: serde_json::Result<serde_json::Value>| v.unwrap_or_default();
        let w = &self.plan.workspace;
        let at = |p: &StagePlace| StagingDir { device: p.device, dir: p.at.clone() };
        let started_at = self.started.rfc3339();
        Journal {
            format_version: JOURNAL_VERSION,
            cas_version: 0,
            transaction: self.transaction.clone(),
            kind: self.plan.kind.as_str().to_owned(),
            state: JournalState::Prepared,
            workspace: JournalWorkspace {
                key: w.key.to_string(),
                root: w.root.clone(),
                device: w.device,
                inode: w.inode,
            },
            target: to_value(serde_json::to_value(&self.plan.target)),
            target_snapshot: Some(self.plan.target.snapshot.clone()),
            bank: Some(banked.bank.clone()),
            plan,
            plan_digest: self.plan.digest,
            request_digest: self.request.digest(),
            operation_digest: operation::digest(self.request),
            staging: work.stage.places.iter().map(at).collect(),
            narrow: work.narrow.clone(),
            special_modes: self.request.special_modes,
            run: parked,
            owner,
            command: self.request.command.clone(),
            change: self.request.change.clone(),
            scope: to_value(serde_json::to_value(&self.plan.scope)),
            counts: to_value(serde_json::to_value(self.plan.counts)),
            updated_at: started_at.clone(),
            started_at,
            third: Vec::new(),
            third_count: 0,
            result: None,
            extra: serde_json::Map::new(),
        }
    }

    pub(super) fn result(&self, done: &Applied, banked: &Banked, late: &Late) -> RestoreResult {
        let mut result = RestoreResult::of_plan(self.plan, ResultState::Closed, self.request.full);
        result.transaction = Some(self.transaction.clone());
        result.bank = Some(banked.bank.clone());
        result.bytes.banked = banked.bytes;
        result.counts.hard_links_split = done.hard_links_split;
        result.late_writes(late);
        if let Some(first) = done.owner_lost.first() {
            let (n, more) = (done.owner_lost.len(), "could not keep their owner or group");
            result.warn("owner-lost", format!("{n} files {more}, {first} first"));
        }
        let special = |s: &&Step| {
            s.after.kind == StateKind::File
                && effective_mode(s.after.mode, self.request.special_modes) != s.after.mode
        };
        let dropped = self.plan.steps.iter().filter(special).count();
        if dropped > 0 {
            let message =
                format!("{dropped} files got no setuid or setgid bit; --special-modes sets it");
            result.warn("special-modes", message);
        }
        for warning in &banked.captured.warnings {
            result.warn(warning.code, warning.hint.clone());
        }
        result
    }
}

/// What the steps put in place, by step.
pub(super) fn contents(plan: &Plan) -> HashMap<usize, Content> {
    let body = |(n, step): (usize, &Step)| {
        let content = match plan.contents.get(&step.path)? {
            Body::File(r) => Content::File(r.clone()),
            Body::Symlink(target) => Content::Link(target.clone()),
            Body::Dir(_) => return None,
        };
        step.after.is_leaf().then_some((n, content))
    };
    plan.steps.iter().enumerate().filter_map(body).collect()
}
