//! The restore that a rewind makes: which paths, and what history holds against them.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;

use super::request::{RewindRequest, RewindScope};
use super::target::Entry;
use crate::capture::Recorder;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::ids::{Chain, RunId};
use crate::path::RelPath;
use crate::plan::{ConflictKind, Foreseen, PlanKind, Scope};
use crate::restore::{RequestBase, RestoreRequest};
use crate::run::{Run, RunRow, RunStore};
use crate::scope::{self, Produced};

/// A restore, and what the walk found besides.
pub(super) struct Files {
    pub(super) restore: RestoreRequest,
    pub(super) mixed: BTreeSet<RelPath>,
    pub(super) uncovered: BTreeSet<RelPath>,
    pub(super) missed: BTreeMap<String, String>,
}

impl Files {
    /// Nothing is to be put back, and nothing that differs is to be named.
    pub(super) fn is_empty(&self) -> bool {
        let nothing = self.restore.scope.paths().is_some_and(BTreeSet::is_empty);
        nothing && self.restore.left.is_empty() && self.missed.is_empty()
    }
}

/// Which files a rewind of this run puts back when nobody says.
pub(super) fn scope_of(request: &RewindRequest, run: &Run) -> RewindScope {
    let own = run.record.extra.get("worktree").is_some_and(|w| !w.is_null());
    let default = if own { RewindScope::Full } else { RewindScope::Produced };
    request.scope.unwrap_or(default)
}

/// The restore of an entry.
pub(super) async fn files(
    runs: &RunStore,
    recorder: &Recorder,
    run: &Run,
    request: &RewindRequest,
    entry: &Entry,
) -> Result<Files> {
    let mut restore = RestoreRequest::new(entry.snapshot.clone());
    restore.kind = PlanKind::Rewind;
    restore.label = Some(entry.label.to_string());
    restore.run = Some(run.id().clone());
    restore.options = request.options.clone();
    restore.protected = protected(recorder, run, request);
    restore.dry_run = request.dry_run;
    restore.plan_digest.clone_from(&request.plan_digest);
    restore.special_modes = request.special_modes;
    restore.full = request.full;
    restore.command = String::from("rewind");
    let mut files = Files {
        restore,
        mixed: BTreeSet::new(),
        uncovered: BTreeSet::new(),
        missed: BTreeMap::new(),
    };
    if scope_of(request, run) == RewindScope::Full {
        return Ok(files);
    }
    let (store, chain) = (&**recorder.store(), recorder.chain());
    let produced = scope::walk(store, chain, &entry.snapshot, recorder.root()).await?;
    let others = others(runs, recorder, run, &entry.snapshot.created_at, &produced.paths).await?;
    let Produced { paths, mixed, mut foreseen, left, not_covered, missed } = produced;
    for (path, other) in others {
        foreseen.entry(path).or_insert(other);
    }
    files.restore.scope = Scope::Produced(paths);
    files.restore.base = RequestBase::Head;
    files.restore.foreseen = foreseen;
    files.restore.left = left;
    files.mixed = mixed;
    files.uncovered = not_covered;
    files.missed = missed;
    Ok(files)
}

/// The workflow's own files: editing one is why people rewind.
fn protected(recorder: &Recorder, run: &Run, request: &RewindRequest) -> BTreeSet<RelPath> {
    let named = request.source.as_ref().and_then(|s| s.path.clone());
    let recorded = run.record.file_path.as_deref().and_then(|p| inside(recorder, p));
    named.into_iter().chain(recorded).collect()
}

/// A recorded path, as it lies in this workspace.
fn inside(recorder: &Recorder, path: &str) -> Option<RelPath> {
    let path = std::path::Path::new(path);
    let below = match path.is_absolute() {
        true => path.strip_prefix(&recorder.root().path).ok()?,
        false => path,
    };
    RelPath::new(below.as_os_str().as_encoded_bytes()).ok().filter(|p| !p.is_root())
}

/// What other runs of this workspace changed of `paths` since the target was taken. A
/// run that started this one, or was started by it, is no other: what it changed while
/// this one executed cannot be told apart.
async fn others(
    runs: &RunStore,
    recorder: &Recorder,
    run: &Run,
    since: &str,
    paths: &BTreeSet<RelPath>,
) -> Result<BTreeMap<RelPath, Foreseen>> {
    let mut out = BTreeMap::new();
    if paths.is_empty() {
        return Ok(out);
    }
    let place = recorder.root().text();
    let start = Timestamp::parse(since).unwrap_or(Timestamp(0));
    let mut parents: BTreeMap<RunId, String> = BTreeMap::new();
    let mut here = Vec::new();
    let mut rows = runs.list();
    while let Some(row) = rows.next().await {
        let RunRow::Run(row) = row? else { continue };
        if let Some(parent) = &row.record.parent_run_id {
            parents.insert(row.id().clone(), parent.clone());
        }
        if row.record.work_dir.as_deref() == Some(&*place) && row.record.updated() >= start {
            here.push((row.id().clone(), row.record.name.clone()));
        }
    }
    drop(rows);
    for (id, name) in here {
        if descends(&parents, &id, run.id()) || descends(&parents, run.id(), &id) {
            continue;
        }
        let chain = Chain::Run(id.clone());
        let changed = scope::changed_since(&**recorder.store(), &chain, since).await?;
        for path in changed.into_iter().filter(|p| paths.contains(p)) {
            let detail = format!("run {id} ({name}) changed it since");
            out.entry(path).or_insert(Foreseen { kind: ConflictKind::OtherRun, detail });
        }
    }
    Ok(out)
}

/// True if `run` is `from`, or was started by it, however indirectly.
fn descends(parents: &BTreeMap<RunId, String>, run: &RunId, from: &RunId) -> bool {
    let mut at = run.as_str();
    for _ in 0..=parents.len() {
        if at == from.as_str() {
            return true;
        }
        match RunId::new(at).ok().and_then(|id| parents.get(&id)) {
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}
