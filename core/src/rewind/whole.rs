//! `--restore-snapshot`: the full tree of one of a run's snapshots. The larger operation:
//! it looks at no interval. The record never changes.

use std::collections::BTreeMap;

use super::hooks::RunHooks;
use super::result::RunPart;
use super::run::check_idle;
use super::side::settle;
use crate::capture::Recorder;
use crate::error::{Error, Result};
use crate::plan::Options;
use crate::restore::{self, Hooks, RestoreRequest, RestoreResult};
use crate::run::{Run, RunStore};
use crate::snapshot::chain;
use crate::snapshot::label;

/// One restore of a run's snapshot.
#[derive(Clone, Debug, Default)]
pub struct WholeRequest {
    /// Which: a label, an id or its beginning.
    pub snapshot: String,
    /// Choices about conflicts.
    pub options: Options,
    /// Plan only.
    pub dry_run: bool,
    /// Apply only a plan whose digest begins with this.
    pub plan_digest: Option<String>,
    /// Keep setuid and setgid bits even as the superuser.
    pub special_modes: bool,
    /// List every path in the result.
    pub full: bool,
}

/// Puts the tree of a snapshot of `run` back; `recorder` is of the run's chain. Banked and
/// undoable like any other. `busy` (5) while the run executes.
pub async fn restore_snapshot(
    runs: &RunStore,
    recorder: &Recorder,
    run: &Run,
    request: &WholeRequest,
    ask: &dyn Hooks,
) -> Result<RestoreResult> {
    let mut run = run.clone();
    if !request.dry_run {
        settle(runs, recorder, &mut run).await?;
    }
    check_idle(runs, &run).await?;
    let store = &**recorder.store();
    let target = chain::resolve(store, recorder.chain(), &request.snapshot).await?;
    if target.chain != *recorder.chain() {
        let message = format!("snapshot {} is none of run {}", target.id, run.id());
        return Err(Error::not_found(message).with_hint("backtrail rewind --list-snapshots"));
    }
    let name = request.snapshot.split('~').next().unwrap_or_default();
    let restore = RestoreRequest {
        label: (!label::is_id_like(name)).then(|| request.snapshot.clone()),
        run: Some(run.id().clone()),
        options: request.options.clone(),
        dry_run: request.dry_run,
        plan_digest: request.plan_digest.clone(),
        special_modes: request.special_modes,
        full: request.full,
        command: String::from("rewind"),
        ..RestoreRequest::new(target)
    };
    let hooks = RunHooks {
        ask,
        runs,
        recorder,
        run: tokio::sync::Mutex::new(run),
        edit: None,
        part: nothing(),
        scope: ("full", None),
        tells: false,
        claim: std::sync::Mutex::new(None),
    };
    restore::run(recorder, &restore, &hooks).await
}

/// The run stays as it is.
fn nothing() -> RunPart {
    RunPart {
        from_node: None,
        to_node: String::new(),
        iteration: 0,
        transaction: None,
        record: "unchanged",
        dropped_nodes: Vec::new(),
        tombstoned_artifacts: BTreeMap::new(),
        retired_interactions: Vec::new(),
        orphaned_child_runs: Vec::new(),
        promoted_from: None,
    }
}
