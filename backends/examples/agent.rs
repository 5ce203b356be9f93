//! A runtime of its own that records what its steps do: a run, steps in it, a person's
//! edit between them, and a rewind that takes back the steps and leaves the edit.
//!
//! `cargo run -p backtrail-backends --example agent`
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "an example program")]

use std::error::Error;
use std::sync::Arc;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::capture;
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::run::{Driver, FailureCode, NewRun, RunStore};
use backtrail_core::workflow::drive::external::{End, Entry, ExternalRun};
use backtrail_core::workflow::drive::{Place, Settings, Unwatched};
use backtrail_core::workspace::Root;
use serde_json::{Map, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let workspace = scratch.path().join("workspace");
    std::fs::create_dir(&workspace)?;
    std::fs::write(workspace.join("notes.txt"), "mine\n")?;
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
    let place = Place {
        runs: RunStore::new(store, ctx.clone()),
        root: Root::open(&workspace, &ctx.host, false)?,
        ctx,
        capture: capture::Settings::default(),
        settings: Settings::embedded("example"),
        watcher: Arc::new(Unwatched),
    };
    let runs = place.runs.clone();

    let new = NewRun { driver: Driver::External, ..NewRun::new("deploy", "build") };
    let run = ExternalRun::create(place, new, Default::default()).await?;
    let step = run.enter("build", Entry::Resumed).await?;
    std::fs::write(workspace.join("built.txt"), "built\n")?;
    step.event("tool_called", Map::from_iter([("tool".into(), json!("write"))])).await?;
    step.finish(Map::from_iter([("files".into(), json!(1))])).await?;

    // between two steps everybody may edit, and none of it is the run's
    std::fs::write(workspace.join("notes.txt"), "mine, edited\n")?;

    let step = run.enter("ship", Entry::Resumed).await?;
    std::fs::write(workspace.join("half.txt"), "half\n")?;
    step.fail(FailureCode::NETWORK_TRANSIENT, "the server is gone").await?;
    let step = run.enter("ship", Entry::Continuous).await?;
    println!("ship {}, attempt {}", step.iteration(), step.attempt());
    step.finish(Map::new()).await?;

    let id = run.id().clone();
    let report = run.finish(End::finished(json!({"shipped": true}))).await?;
    println!("{} {} {:?}", report.run_id, report.status, report.changes);
    println!("{:?}", runs.load(&id).await?.record.checkpoint());
    Ok(())
}
