//! Another process: the test binary started again with its task in the environment, to
//! be killed or to look at what this process wrote.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backtrail_backends::local::LocalStore;
use backtrail_backends::open::OpenOptions;
use backtrail_core::clock::Faults;
use backtrail_core::error::Result;
use backtrail_core::store::{
    DocKey, Expect, LockMode, LockName, LockRequest, Object, PutObjects, Store,
};
use bytes::Bytes;

use super::{SOON, exclusive, noise, reopen};

/// The test that a child runs.
const ENTRY: &str = "child_entry";
const TASK: &str = "BACKTRAIL_SUITE_TASK";
const PLACE: &str = "BACKTRAIL_SUITE_PLACE";

/// What a child does.
#[derive(Clone, Debug)]
pub enum Task {
    /// Puts [`objects`], flushes, puts a document; dies at the nth reach of a point.
    Die(&'static str, u64),
    /// Takes the lock `prune` and keeps it.
    Hold(LockMode),
    /// Writes what [`reopen::check`] looks for.
    Fill,
    /// Looks for what [`reopen::fill`] wrote.
    Check,
    /// Work on a run, see [`super::runs::child`].
    Runs(String),
}

impl Task {
    fn text(&self) -> String {
        match self {
            Self::Die(point, nth) => format!("die {point} {nth}"),
            Self::Hold(LockMode::Shared) => "hold shared".into(),
            Self::Hold(LockMode::Exclusive) => "hold exclusive".into(),
            Self::Fill => "fill".into(),
            Self::Check => "check".into(),
            Self::Runs(job) => format!("runs {job}"),
        }
    }
}

/// The objects of [`Task::Die`].
pub fn objects() -> Vec<Object> {
    (0..20).map(|i| noise(300 + i, 900)).collect()
}

/// The command of a child on the store at `place`.
pub fn command(task: &Task, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command
        .args(["--exact", ENTRY, "--nocapture", "--test-threads=1"])
        .env(TASK, task.text())
        .env(PLACE, place)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Starts a child on the store at `place`.
pub fn start(task: &Task, place: &Path) -> Child {
    command(task, place).spawn().expect("starts")
}

/// Runs a child to its end.
pub fn run(task: &Task, place: &Path) -> ExitStatus {
    start(task, place).wait_with_output().expect("ends").status
}

/// Waits until a child says that it holds its lock.
pub fn wait_until_held(child: &mut Child) {
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let held = out.lines().map_while(std::result::Result::ok).any(|line| line.contains("held"));
    assert!(held, "the child ended before it held the lock");
}

/// Ends the process at the nth reach of a point.
pub struct DieAt {
    point: String,
    left: AtomicU64,
}

impl DieAt {
    /// Counts from 1.
    pub fn new(point: &str, nth: u64) -> Self {
        Self { point: point.to_owned(), left: AtomicU64::new(nth) }
    }
}

impl Faults for DieAt {
    fn reach(&self, point: &str) -> Result<()> {
        if point == self.point && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // As a kill does: nothing is cleaned up.
            std::process::abort();
        }
        Ok(())
    }
}

/// What a child does; returns at once when this process is none.
pub fn entry() {
    let (Ok(task), Some(place)) = (std::env::var(TASK), std::env::var_os(PLACE)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let words: Vec<&str> = task.split(' ').collect();
    runtime.expect("a runtime").block_on(async {
        match words[..] {
            ["die", point, nth] => {
                let faults = Arc::new(DieAt::new(point, nth.parse().expect("a number")));
                die(&LocalStore::new(place, OpenOptions { faults, ..Default::default() })).await;
            }
            ["hold", how] => hold(&LocalStore::new(place, OpenOptions::default()), how).await,
            ["fill"] => reopen::fill(&LocalStore::new(place, OpenOptions::default())).await,
            ["check"] => reopen::check(&LocalStore::new(place, OpenOptions::default())).await,
            ["runs", ref job @ ..] => super::runs::child::task(Path::new(&place), job).await,
            _ => panic!("unknown task {task:?}"),
        }
    });
}

async fn die(store: &dyn Store) {
    store.put_objects(objects(), PutObjects::Check).await.expect("puts");
    store.flush().await.expect("flushes");
    let body = Bytes::from("{\"by\":\"child\"}");
    store.put(&DocKey::Damage, body, Expect::Any, None).await.expect("writes");
}

async fn hold(store: &dyn Store, how: &str) {
    let mode = if how == "shared" { LockMode::Shared } else { LockMode::Exclusive };
    let request = LockRequest { mode, ..exclusive(LockName::Prune, SOON) };
    let _held = store.lock(request).await.expect("takes");
    println!("held");
    std::future::pending::<()>().await;
}
