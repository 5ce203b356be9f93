//! A run whose engine is gone: nothing of it may live any more; then its half-written
//! files are captured as a late `fail:`, and it becomes resumable.

use std::sync::Arc;
use std::time::Duration;

use super::Place;
use super::captures::Captures;
use super::holds::Holds;
use super::watch::HEARTBEAT;
use crate::capture::{Alias, Late, NewLabel, Request};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::fsx::{self, Dir};
use crate::ids::{Chain, RunId, SnapshotId};
use crate::process::{RunKey, Scratch, survivors};
use crate::run::{
    self, Actor, Checkpoint, Current, Driver, EngineEvent, FailureCode, Liveness, NewEvent, Run,
    RunStore, Status, Transition,
};
use crate::snapshot::chain::{load_refs, read_snapshot};
use crate::snapshot::label::{Boundary, Phase};
use crate::snapshot::refs::Refs;
use crate::store::Store;
use crate::tasks::blocking;
use crate::workflow::file::definition::CaptureMode;

/// Longer than the slowest tick of a kernel (10 ms), in nanoseconds.
const TICK: i64 = 20_000_000;

/// What became of a run that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// Nothing was to be done.
    Fine,
    /// Its engine was gone: it is resumable now.
    Orphan {
        /// Why its last state could not be captured.
        uncaptured: Option<String>,
    },
}

/// Puts a run in order whose record says running while nobody executes it. Fails with
/// `busy` naming a process of it that still lives. A run of another runtime is left to
/// its owner unless that is known to be gone.
pub async fn reconcile(place: &Place, run: &RunId) -> Result<Reconciled> {
    let found = place.runs.load(run).await?;
    if place.runs.liveness(&found).await? != Liveness::OwnerGone {
        return Ok(Reconciled::Fine);
    }
    let _holds = Holds::take(place).await?;
    let claim = place.runs.claim(run, Duration::ZERO, &place.settings.command).await?;
    let runs = place.runs.with_claim(Arc::new(claim));
    let mut found = runs.load(run).await?;
    if *found.status() != Status::Running {
        return Ok(Reconciled::Fine);
    }
    let uncaptured = put_in_order(place, &runs, &mut found).await?;
    Ok(Reconciled::Orphan { uncaptured })
}

/// The same for who holds the locks already: why the last state could not be captured.
pub(super) async fn put_in_order(
    place: &Place,
    runs: &RunStore,
    run: &mut Run,
) -> Result<Option<String>> {
    let mut traces = Traces::look(place, run).await?;
    if traces.alive_until.is_none() && matches!(run.record.driver, Some(Driver::External)) {
        // another runtime keeps no heartbeat: it lived when it wrote last
        traces.alive_until = Some(runs.heard_at(run).await?.rfc3339());
    }
    let mut checkpoint = run.record.checkpoint().cloned().unwrap_or_default();
    let entered = enter(place, run.id(), &traces, &mut checkpoint).await?;
    let mut uncaptured = None;
    if let Some(boundary) = entered {
        let late = Late { alive_until: traces.alive_until.as_deref().map(surely) };
        uncaptured = capture(place, run.id(), boundary, late).await.err();
    }
    let uncaptured = uncaptured.map(|e| e.message().to_owned());
    let event = EngineEvent::RunInterrupted {
        reason: Some(String::from("the process that executed it is gone")),
    };
    runs.append_events(run.id(), &[NewEvent::engine(&event)]).await?;
    let text = "the process that executed it is gone";
    let change = Transition::new(Status::FailedResumable, Actor::Automation, [Status::Running])
        .failure(FailureCode::PROCESS_ORPHANED, text)
        .checkpoint(checkpoint);
    runs.transition(run, &change).await?;
    Ok(uncaptured)
}

/// A moment before which whatever has an earlier file time was changed: file times come
/// from a clock that lags by up to a tick.
pub(super) fn surely(moment: &str) -> String {
    match Timestamp::parse(moment) {
        Ok(at) => Timestamp(at.0.saturating_sub(TICK)).rfc3339(),
        // whose the changes are cannot be told then
        Err(_) => moment.to_owned(),
    }
}

/// What a lost engine left on this host.
#[derive(Default)]
struct Traces {
    alive_until: Option<String>,
    /// Iteration and attempt of the node that it executed last.
    executed: Option<(u64, u64)>,
}

impl Traces {
    /// Fails with `busy` while a process of the run lives.
    async fn look(place: &Place, run: &Run) -> Result<Self> {
        let store = place.runs.store().info();
        let (places, key) = (place.settings.scratch.clone(), RunKey::new(run.id(), &store));
        let node = run.record.checkpoint().map(|c| c.node_id.clone()).unwrap_or_default();
        let store = store.local_dir;
        blocking(move || {
            let scratch = Scratch::find(&places, &key.scratch())?;
            let dir = scratch.as_ref().map(Scratch::dir);
            if let Some(living) = survivors(dir, &key)?.into_iter().next() {
                return Err(living.busy(&key.run));
            }
            if let Some(store) = store {
                // it is evidence for people, and without the lock it proves nothing
                if let Ok(dir) = Dir::open(&store.join("runs").join(&key.run)) {
                    let _ = run::remove_pid(&dir);
                }
            }
            let mut out = Self::default();
            if let Some(dir) = dir {
                let beat = fsx::read_small(dir, HEARTBEAT.as_bytes(), 64).ok().flatten();
                out.alive_until = beat.and_then(|b| String::from_utf8(b).ok());
                out.executed = executed(dir, &node);
            }
            Ok(out)
        })
        .await
    }
}

/// The newest attempt of `node` that has files in the scratch.
fn executed(scratch: &Dir, node: &str) -> Option<(u64, u64)> {
    let node = scratch.open_dir(b"nodes").ok()?.open_dir(node.as_bytes()).ok()?;
    let names = node.names().ok()?;
    let attempt = |name: &Vec<u8>| {
        let (iteration, attempt) = std::str::from_utf8(name).ok()?.split_once('.')?;
        Some((iteration.parse().ok()?, attempt.parse().ok()?))
    };
    names.iter().filter_map(attempt).max()
}

/// Notes in the checkpoint that its node was entered, when a `pre:` or the scratch says
/// so: the boundary that closes the interrupted interval.
async fn enter(
    place: &Place,
    run: &RunId,
    traces: &Traces,
    checkpoint: &mut Checkpoint,
) -> Result<Option<Boundary>> {
    let node = checkpoint.node_id.clone();
    let next = checkpoint.node_visits.get(&node).copied().unwrap_or(0);
    let refs = load_refs(&**place.runs.store(), &Chain::Run(run.clone())).await?.refs;
    let labelled = refs.labels.keys().filter_map(Boundary::parse).filter_map(|b| {
        (b.phase == Phase::Pre && b.node.as_deref() == Some(node.as_str())).then_some(b.iteration?)
    });
    if checkpoint.current.is_some() && checkpoint.executing().is_none() {
        return Ok(None); // its attempt ended, and was captured
    }
    let known = checkpoint.current.as_ref().map(|c| (c.iteration, c.attempt));
    let at = labelled
        .map(|iteration| (iteration, 1))
        .chain(traces.executed)
        .filter(|(iteration, _)| *iteration >= next || known.is_some_and(|k| k.0 == *iteration))
        .chain(known)
        .max();
    let Some((iteration, attempt)) = at else { return Ok(None) };
    checkpoint.current = Some(Current { iteration, attempt, ..Current::default() });
    let visits = checkpoint.node_visits.entry(node.clone()).or_insert(0);
    *visits = (*visits).max(iteration.saturating_add(1));
    let (node, iteration, attempt) = (Some(node), Some(iteration), Some(attempt));
    Ok(Some(Boundary { phase: Phase::Fail, node, iteration, attempt, gate: None }))
}

/// Captures the end of an attempt that nobody was there to see.
pub(super) async fn capture(
    place: &Place,
    run: &RunId,
    boundary: Boundary,
    late: Late,
) -> Result<()> {
    let Some(label) = boundary.label() else { return Ok(()) };
    let chain = Chain::Run(run.clone());
    // without a snapshot nothing is recorded of the run, and there is nothing to close
    let refs = load_refs(&**place.runs.store(), &chain).await?.refs;
    let Some(head) = &refs.head else { return Ok(()) };
    let entry = entry(&**place.runs.store(), &chain, &refs, head, &boundary).await?;
    let request = Request {
        label: NewLabel::Named(label.clone()),
        move_label: true,
        boundary: Some(boundary),
        locked: true,
        late: Some(late),
        ..Request::default()
    };
    let (_calm, hurry) = tokio::sync::watch::channel(false);
    let place = Arc::new(place.clone());
    let mut captures = Captures::new(place, chain, CaptureMode::BestEffort, hurry, None);
    if let Some(entry) = entry {
        captures.recorder(crate::clock::Cancel::default()).alias(&[entry]).await?;
    }
    match captures.take_request(&request).await {
        Ok(_) => Ok(()),
        Err(e) => {
            let missed = [(label, e.message().to_owned())];
            captures.recorder(crate::clock::Cancel::default()).missed(&missed).await?;
            Err(e)
        }
    }
}

/// The entry that `end` closes, when the engine was lost before it named it: names of
/// what is captured already may run behind. Between the last boundary and the entry
/// nothing executed; what nested commands captured lies behind the entry.
async fn entry(
    store: &dyn Store,
    chain: &Chain,
    refs: &Refs,
    head: &SnapshotId,
    end: &Boundary,
) -> Result<Option<Alias>> {
    let boundary = Boundary { phase: Phase::Pre, attempt: None, ..end.clone() };
    let Some(label) = boundary.label().filter(|_| end.attempt == Some(1)) else { return Ok(None) };
    if refs.labels.contains_key(&label) || refs.missing.contains_key(label.as_str()) {
        return Ok(None);
    }
    let mut at = read_snapshot(store, chain, head).await?;
    while at.boundary.as_ref().is_some_and(|b| b.phase == Phase::Inside)
        && let Some(parent) = at.parent.clone()
    {
        at = read_snapshot(store, chain, &parent).await?;
    }
    let own =
        at.boundary.as_ref().is_some_and(|b| b.node == end.node && b.iteration == end.iteration);
    Ok((!own).then_some(Alias { boundary, snapshot: at.id, keep: true }))
}
