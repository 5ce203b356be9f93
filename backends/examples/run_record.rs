//! A run as another runtime keeps it: created, told of events, moved, listed.
//!
//! `cargo run -p backtrail-backends --example run_record`
#![expect(clippy::disallowed_macros, reason = "an example program")]

use std::error::Error;
use std::sync::Arc;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::run::{
    Actor, Checkpoint, Driver, EngineEvent, NewEvent, NewRun, RunRow, RunStore, Status, Transition,
};
use futures::TryStreamExt;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let store_dir = scratch.path().join("store");
    let store = open(&store_dir.to_string_lossy(), OpenOptions::default()).await?;
    let ctx = Context {
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
        host: this_host(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults: Arc::new(NoFaults),
    };
    let runs = RunStore::new(store, ctx);

    // A new run is ours until the claim is dropped; our writes carry its fencing token.
    let new = NewRun { driver: Driver::External, ..NewRun::new("deploy", "build") };
    let created = runs.create(new).await?;
    let claim = created.claim.ok_or("a running run is claimed")?;
    let (runs, mut run) = (runs.with_claim(Arc::new(claim)), created.run);

    let started = EngineEvent::NodeStarted { kind: "run".into(), iteration: 0, attempt: 1 };
    let tool = NewEvent::foreign("tool_called", serde_json::Map::new())?;
    let events = [NewEvent::engine(&started).node("build"), tool.node("build")];
    println!("first event: {}", runs.append_events(run.id(), &events).await?);

    let mut checkpoint = Checkpoint::at("ship");
    checkpoint.outputs.insert("build".into(), json!({"files": 3}));
    runs.save_checkpoint(&mut run, &checkpoint).await?;
    let done = Transition::new(Status::Finished, Actor::Engine, [Status::Running])
        .result(json!({"shipped": true}));
    println!("{:?}", runs.transition(&mut run, &done).await?);

    let rows: Vec<RunRow> = runs.list().try_collect().await?;
    for row in rows {
        match row {
            RunRow::Run(run) => println!("{} {} {}", run.id(), run.record.name, run.status()),
            RunRow::Unreadable { name, error, .. } => println!("{name}: {error}"),
        }
    }
    let followed: Vec<_> = runs.follow_events(run.id(), 0).try_collect().await?;
    println!("{} events, and the run has ended", followed.len());
    Ok(())
}
