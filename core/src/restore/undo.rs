//! Undo and redo: ordinary transactions over exactly the paths an operation touched,
//! with banks of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::effective_mode;
use super::journal::BankRef;
use super::operations::{self, Change, Entry, EntryState, Operations};
use super::request::{Hooks, RequestBase, RestoreRequest};
use super::result::RestoreResult;
use super::run::run;
use crate::capture::Recorder;
use crate::diff::{State, StateKind};
use crate::error::{Error, Result};
use crate::object::content;
use crate::path::RelPath;
use crate::plan::{Options, Plan, PlanKind, Scope, Step};
use crate::snapshot::doc::Snapshot;
use crate::snapshot::{chain, pruned};

/// One undo or redo.
#[derive(Clone, Debug, Default)]
pub struct UndoRequest {
    /// Choices about conflicts.
    pub options: Options,
    /// Plan only.
    pub dry_run: bool,
    /// Apply only a plan whose digest begins with this.
    pub plan_digest: Option<String>,
    /// List every path in the result.
    pub full: bool,
    /// Keep setuid and setgid bits even as the superuser.
    pub special_modes: bool,
}

/// Undoes the newest operation in effect. `not-found` (exit 6) when there is none, or
/// when its bank was pruned, with when and by which rule.
pub async fn undo(
    recorder: &Recorder,
    request: &UndoRequest,
    hooks: &dyn Hooks,
) -> Result<RestoreResult> {
    let list = Operations::load(&**recorder.store(), &recorder.root().key).await?;
    let entry = list.to_undo().ok_or_else(|| Error::not_found("there is nothing to undo"))?;
    let bank = entry.bank.as_ref().ok_or_else(|| nothing_held(entry, "undo"))?;
    let target = held(recorder, entry, bank, !request.dry_run).await?;
    // What the operation left, by path: anything else is a later edit.
    let after = states(recorder, entry, |s| s.after).await?;
    let change = Change::Undo(entry.n);
    let result = again(recorder, request, hooks, target, after, change).await?;
    Ok(note_rewind(result, entry))
}

/// Does the oldest undone operation again. `not-found` (exit 6) when there is none.
pub async fn redo(
    recorder: &Recorder,
    request: &UndoRequest,
    hooks: &dyn Hooks,
) -> Result<RestoreResult> {
    let list = Operations::load(&**recorder.store(), &recorder.root().key).await?;
    let entry = list.to_redo().ok_or_else(|| Error::not_found("there is nothing to redo"))?;
    let bank = entry.undo_bank.as_ref().ok_or_else(|| nothing_held(entry, "redo"))?;
    let target = held(recorder, entry, bank, !request.dry_run).await?;
    let before = states(recorder, entry, |s| s.before).await?;
    let change = Change::Redo(entry.n);
    let result = again(recorder, request, hooks, target, before, change).await?;
    Ok(note_rewind(result, entry))
}

fn nothing_held(entry: &Entry, verb: &str) -> Error {
    Error::not_found(format!("operation {} holds nothing to {verb} it from", entry.n))
}

async fn again(
    recorder: &Recorder,
    request: &UndoRequest,
    hooks: &dyn Hooks,
    target: Snapshot,
    states: BTreeMap<RelPath, State>,
    change: Change,
) -> Result<RestoreResult> {
    let (kind, command) = match change {
        Change::Redo(_) => (PlanKind::Redo, "redo"),
        _ => (PlanKind::Undo, "undo"),
    };
    let paths: BTreeSet<RelPath> = states.keys().cloned().collect();
    let mut restore = RestoreRequest::new(target);
    restore.kind = kind;
    restore.scope = Scope::Touched(paths);
    restore.base = RequestBase::States(states);
    restore.options = request.options.clone();
    restore.dry_run = request.dry_run;
    restore.plan_digest = request.plan_digest.clone();
    restore.full = request.full;
    restore.special_modes = request.special_modes;
    restore.command = command.to_owned();
    restore.change = change.clone();
    let result = run(recorder, &restore, hooks).await?;
    if !request.dry_run && result.transaction.is_none() && result.counts.plan.kept == 0 {
        // Everything is as it shall be already: only the list moves. Where a conflict kept
        // it from that, the operation stays to be undone with --take.
        let (store, ctx, key) = (recorder.store(), recorder.context(), &recorder.root().key);
        operations::update(&**store, ctx, key, |list| match change {
            Change::Undo(n) => list.mark(n, EntryState::Undone, None),
            Change::Redo(n) => list.mark(n, EntryState::Done, None),
            Change::Add => {}
        })
        .await?;
    }
    Ok(result)
}

/// The snapshot that holds what an operation displaced.
async fn held(recorder: &Recorder, entry: &Entry, bank: &BankRef, write: bool) -> Result<Snapshot> {
    let store = &**recorder.store();
    match chain::read_snapshot(store, &bank.chain, &bank.snapshot).await {
        Err(e) if e.is_not_found() => {}
        found => return found,
    }
    if write {
        let (ctx, key, n) = (recorder.context(), &recorder.root().key, entry.n);
        operations::update(store, ctx, key, |list| {
            if let Some(entry) = list.entries.iter_mut().find(|e| e.n == n) {
                entry.state = EntryState::Expired;
            }
        })
        .await?;
    }
    let gone = pruned::load(store, &bank.chain).await?;
    let why = match gone.find(&bank.snapshot) {
        Some(line) => format!("was pruned at {} ({})", line.at, line.rule),
        None => String::from("is gone"),
    };
    let message = format!("the safety snapshot {} of operation {} {why}", bank.snapshot, entry.n);
    Err(Error::not_found(message).with_code("bank-pruned"))
}

async fn states(
    recorder: &Recorder,
    entry: &Entry,
    side: impl Fn(Step) -> State,
) -> Result<BTreeMap<RelPath, State>> {
    let body = content::read_all(&**recorder.store(), &entry.plan).await?;
    let plan: Plan = serde_json::from_slice(&body).map_err(|e| {
        Error::corrupt(format!("the plan of operation {} is not readable", entry.n)).with_source(e)
    })?;
    let written = |s: Step| {
        let path = s.path.clone();
        let mut side = side(s);
        if side.kind == StateKind::File {
            side.mode = effective_mode(side.mode, entry.special_modes);
        }
        (path, side)
    };
    Ok(plan.steps.into_iter().map(written).collect())
}

fn note_rewind(mut result: RestoreResult, entry: &Entry) -> RestoreResult {
    if entry.kind == PlanKind::Rewind.as_str() {
        result.warn(
            "record-unchanged",
            "only files were moved; the record of the run stays as it is",
        );
    }
    result
}
