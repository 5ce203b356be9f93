//! What another process does to the runs of a store: append, die in the middle of a
//! write, be started without a home.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

use backtrail_backends::local::LocalStore;
use backtrail_backends::open::OpenOptions;
use backtrail_core::clock::{Context, Faults};
use backtrail_core::run::{DeleteOptions, NewEvent, RunStore};
use serde_json::{Map, json};

use super::{context, new_run, started};
use crate::suite::child::{DieAt, Task, command};
use crate::suite::run_id;

/// A piece of work on run `r`.
#[derive(Clone, Debug)]
pub enum Job {
    /// Appends so many events, one by one.
    Append(u64),
    /// Creates the run and dies at the nth reach of a point of the store.
    CreateAndDie(&'static str, u64),
    /// Sets `result` to "new" and dies at a point of the store.
    PatchAndDie(&'static str),
    /// Deletes it and dies at the nth reach of a point of the deletion.
    DeleteAndDie(&'static str, u64),
    /// Creates it, appends and logs, with no mask for modes.
    Unmasked,
}

impl Job {
    fn text(&self) -> String {
        match self {
            Self::Append(n) => format!("append {n}"),
            Self::CreateAndDie(point, nth) => format!("create {point} {nth}"),
            Self::PatchAndDie(point) => format!("patch {point} 1"),
            Self::DeleteAndDie(point, nth) => format!("delete {point} {nth}"),
            Self::Unmasked => "unmasked".into(),
        }
    }
}

/// The command of a child that does `job` on the store at `place`.
pub fn with_job(job: &Job, place: &Path) -> Command {
    command(&Task::Runs(job.text()), place)
}

/// Starts a child.
pub fn start(job: &Job, place: &Path) -> Child {
    with_job(job, place).spawn().expect("starts")
}

/// Runs a child to its end; true when it ended well.
pub fn run(job: &Job, place: &Path) -> bool {
    start(job, place).wait_with_output().expect("ends").status.success()
}

fn open(place: &Path, faults: Option<Arc<dyn Faults>>, ctx: Context) -> RunStore {
    let mut options = OpenOptions::default();
    if let Some(faults) = faults {
        options.faults = faults;
    }
    RunStore::new(Arc::new(LocalStore::new(place, options)), ctx)
}

/// What a child does.
pub async fn task(place: &Path, words: &[&str]) {
    let die = |point: &str, nth: &str| Arc::new(DieAt::new(point, nth.parse().expect("a number")));
    let id = run_id("r");
    match words {
        ["append", n] => {
            let runs = open(place, None, context());
            for _ in 0..n.parse().expect("a number") {
                let event = NewEvent::foreign("counted", Map::new()).expect("an event");
                runs.append_events(&id, &[event]).await.expect("appends");
            }
        }
        ["create", point, nth] => {
            let runs = open(place, Some(die(point, nth)), context());
            runs.create(new_run("r")).await.expect("creates");
        }
        ["patch", point, nth] => {
            let runs = open(place, Some(die(point, nth)), context());
            let mut run = runs.load(&id).await.expect("loads");
            let set = |r: &mut backtrail_core::run::RunRecord| {
                r.result = Some(json!("new"));
                Ok(())
            };
            runs.patch(&mut run, set).await.expect("patches");
        }
        ["delete", point, nth] => {
            let ctx = Context { faults: die(point, nth), ..context() };
            let runs = open(place, None, ctx);
            runs.delete(&id, &DeleteOptions::default()).await.expect("deletes");
        }
        ["unmasked"] => {
            rustix::process::umask(rustix::fs::Mode::empty());
            let runs = open(place, None, context());
            let (ours, run) = started(&runs, "r").await;
            let event = NewEvent::foreign("counted", Map::new()).expect("an event");
            ours.append_events(run.id(), &[event]).await.expect("appends");
            let text = bytes::Bytes::from_static(b"hello\n");
            ours.append_log(run.id(), None, text).await.expect("logs");
        }
        other => panic!("unknown work {other:?}"),
    }
}
