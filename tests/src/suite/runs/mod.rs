//! The run record and what belongs to it, over any store: the cases RUN-RS, EV, LG, AR,
//! IN and DL as functions over a [`Site`].

pub mod child;
pub mod delete;
pub mod disk;
pub mod events;
pub mod moves;
pub mod parts;
pub mod record;
pub mod resolve;
pub mod writers;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use backtrail_backends::host::{RandomIds, this_host};
use backtrail_core::clock::{Cancel, Clock, Context, NoFaults, Silent, Timestamp};
use backtrail_core::ids::RunId;
use backtrail_core::run::{Actor, Moved, NewRun, Run, RunStore, Status, Transition};
use backtrail_core::store::{DocKey, Store};
use serde_json::Value;

use super::{Site, body};

/// A clock that goes on by a second at each look, from the year 2026.
#[derive(Debug)]
pub struct Ticks(pub AtomicI64);

/// The first moment of [`Ticks`], in nanoseconds.
pub const START: i64 = 1_767_225_600_000_000_000;
/// A second in nanoseconds.
pub const SECOND: i64 = 1_000_000_000;

impl Default for Ticks {
    fn default() -> Self {
        Self(AtomicI64::new(START))
    }
}

impl Clock for Ticks {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(SECOND, Ordering::SeqCst))
    }
}

/// What a run store is handed, with a clock of its own.
pub fn context() -> Context {
    context_at(Arc::new(Ticks::default()))
}

/// The same with a given clock.
pub fn context_at(clock: Arc<dyn Clock>) -> Context {
    Context {
        clock,
        ids: Arc::new(RandomIds),
        host: this_host(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults: Arc::new(NoFaults),
    }
}

/// The runs of a site, by a handle of its own.
pub async fn runs(site: &Site) -> RunStore {
    RunStore::new(site.open().await, context())
}

/// A run with an id that begins at node `a`.
pub fn new_run(id: &str) -> NewRun {
    NewRun { id: Some(id.to_owned()), ..NewRun::new("flow", "a") }
}

/// Creates a running run; the handle has its claim.
pub async fn started(runs: &RunStore, id: &str) -> (RunStore, Run) {
    let created = runs.create(new_run(id)).await.expect("creates");
    let claim = created.claim.expect("a running run is claimed");
    (runs.with_claim(Arc::new(claim)), created.run)
}

/// Moves a run on behalf of the engine, out of `running`.
pub async fn engine(runs: &RunStore, run: &mut Run, to: Status) -> Moved {
    let change = Transition::new(to, Actor::Engine, [Status::Running]);
    runs.transition(run, &change).await.expect("a move of the engine")
}

/// Moves a run on behalf of a person, out of wherever it stands.
pub async fn person(runs: &RunStore, run: &mut Run, to: Status) -> Moved {
    let change = Transition::new(to, Actor::Person, [run.status().clone()]).answered();
    runs.transition(run, &change).await.expect("a move of a person")
}

/// The record as it is stored.
pub async fn stored(store: &dyn Store, run: &RunId) -> Value {
    serde_json::from_str(&body(store, &DocKey::Run(run.clone())).await).expect("JSON")
}

/// Writes a record by hand, with members that replace those of a valid one; `null` takes
/// a member away.
pub async fn forge(store: &dyn Store, id: &str, members: Value) -> RunId {
    let mut record = serde_json::json!({
        "format_version": 1, "id": id, "workflow_name": "flow", "status": "running",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        "checkpoint": {"node_id": "a"}, "cas_version": 1, "write_id": "by hand",
    });
    let map = record.as_object_mut().expect("a map");
    for (name, value) in members.as_object().expect("members") {
        if value.is_null() {
            map.remove(name);
        } else {
            map.insert(name.clone(), value.clone());
        }
    }
    let run = super::run_id(id);
    let key = DocKey::Run(run.clone());
    let text = record.to_string();
    super::put(store, &key, &text, backtrail_core::store::Expect::Any).await.expect("writes");
    run
}
