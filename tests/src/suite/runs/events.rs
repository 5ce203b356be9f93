//! RUN-EV01 to EV06, EV08.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use backtrail_backends::open::OpenOptions;
use backtrail_core::clock::Faults;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::RunId;
use backtrail_core::run::{Checkpoint, EngineEvent, Event, NewEvent, Run, RunStore, Status};
use backtrail_core::store::Store;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};

use super::child::{self, Job};
use super::{context, engine, runs, started};
use crate::host::Mount;
use crate::suite::sites::Site;
use crate::suite::{SOON, refused};

fn event(n: u64) -> NewEvent {
    let mut data = Map::new();
    data.insert("n".into(), n.into());
    NewEvent::foreign("counted", data).expect("an event")
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|e| e.data("n").and_then(Value::as_u64).expect("a number")).collect()
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|e| e.seq).collect()
}

async fn all(runs: &RunStore, run: &RunId) -> Vec<Event> {
    runs.events(run, 0).try_collect().await.expect("reads")
}

/// The file of a run's events, where the store is a directory.
fn file_of(site: &Site, run: &RunId) -> std::path::PathBuf {
    site.dir().expect("a directory").join(format!("runs/{run}/events.jsonl"))
}

fn append_by_hand(site: &Site, run: &RunId, text: &[u8]) {
    let file = file_of(site, run);
    let mut file = std::fs::File::options().append(true).create(true).open(file).expect("opens");
    file.write_all(text).expect("writes");
}

/// RUN-EV01: numbers rise from 0, whoever appends.
pub async fn ev01_numbers_from_everybody(site: &Site) {
    let runs = runs(site).await;
    let (ours, run) = started(&runs, "r").await;
    for n in 0..25 {
        let batch = [event(2 * n), event(2 * n + 1)];
        assert_eq!(ours.append_events(run.id(), &batch).await.expect("appends"), 2 * n);
    }
    let there = all(&runs, run.id()).await;
    assert_eq!(seqs(&there), (0..50).collect::<Vec<_>>());
    assert_eq!(numbers(&there), (0..50).collect::<Vec<_>>());
    let last = &there[49];
    assert_eq!((last.kind(), last.fields()["run_id"].as_str()), ("counted", Some("r")));
    assert!(last.timestamp() > there[0].timestamp());
}

/// RUN-EV01: eight processes append at once.
pub async fn ev01_numbers_from_processes(site: &Site) {
    let runs = runs(site).await;
    let (_ours, run) = started(&runs, "r").await;
    let dir = site.dir().expect("a directory");
    let children: Vec<_> = (0..8).map(|_| child::start(&Job::Append(25), &dir)).collect();
    for child in children {
        assert!(child.wait_with_output().expect("ends").status.success());
    }
    let there = seqs(&all(&runs, run.id()).await);
    assert_eq!(there, (0..200).collect::<Vec<_>>());
}

/// RUN-EV02: the next number is above the highest readable, whatever lies behind it.
pub async fn ev02_numbers_go_on(site: &Site) {
    let first = runs(site).await;
    let (_ours, run) = started(&first, "r").await;
    let again =
        async || runs(site).await.append_events(run.id(), &[event(0)]).await.expect("appends");
    assert_eq!(again().await, 0, "an empty log begins at 0");
    assert_eq!(again().await, 1);
    if site.dir().is_none() {
        return;
    }
    // More garbage than the piece of the end that is looked at first.
    append_by_hand(site, run.id(), "not an event\n".repeat(9_000).as_bytes());
    append_by_hand(site, run.id(), b"{\"seq\": \"nine\"}\n{\"seq\":7}\n\xff\xfe\n{\"torn");
    assert_eq!(again().await, 8);
    append_by_hand(site, run.id(), "garbage\n".repeat(3).as_bytes());
    assert_eq!(again().await, 9);
    // Nothing readable at all: never 0 again.
    std::fs::write(file_of(site, run.id()), "garbage\ngarbage\n").expect("writes");
    assert_ne!(again().await, 0);
}

/// RUN-EV03: a torn tail is no event, and the next one has a line of its own.
pub async fn ev03_torn_tails(site: &Site) {
    let runs = runs(site).await;
    let (ours, run) = started(&runs, "r").await;
    ours.append_events(run.id(), &[event(0), event(1)]).await.expect("appends");
    append_by_hand(site, run.id(), b"{\"seq\":2,\"type\":\"tor");
    assert_eq!(numbers(&all(&runs, run.id()).await), [0, 1]);
    let seq = ours.append_events(run.id(), &[event(2)]).await.expect("appends");
    assert_eq!(seq, 2, "what is torn used no number");
    assert_eq!(numbers(&all(&runs, run.id()).await), [0, 1, 2]);
    let text = std::fs::read_to_string(file_of(site, run.id())).expect("text");
    assert_eq!(text.lines().count(), 4);
}

/// RUN-EV03: a write that does not fit leaves the log as it was.
pub async fn ev03_short_writes() {
    let temp = tempfile::tempdir().expect("a directory");
    let Some(_mount) = Mount::new(temp.path().join("small"), "size=2m") else { return };
    let place = temp.path().join("small/store");
    let store = backtrail_backends::local::LocalStore::new(&place, OpenOptions::default());
    let runs = RunStore::new(Arc::new(store), context());
    let (ours, run) = started(&runs, "r").await;
    ours.append_events(run.id(), &[event(0)]).await.expect("appends");
    let file = place.join("runs/r/events.jsonl");
    let before = std::fs::read(&file).expect("reads");
    let mut data = Map::new();
    data.insert("n".into(), json!(1));
    data.insert("text".into(), "x".repeat(3 << 20).into());
    let large = NewEvent::foreign("large", data).expect("an event");
    let e = ours.append_events(run.id(), &[event(1), large]).await.expect_err("no room");
    assert_eq!(e.code(), "store-full", "{e:?}");
    assert_eq!(std::fs::read(&file).expect("reads"), before);
    assert_eq!(ours.append_events(run.id(), &[event(1)]).await.expect("fits"), 1);
    assert_eq!(numbers(&all(&runs, run.id()).await), [0, 1]);
}

/// Fails at one point for as long as it is told to.
#[derive(Default)]
struct Failing(std::sync::atomic::AtomicBool);

impl Failing {
    fn set(&self, on: bool) {
        self.0.store(on, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Faults for Failing {
    fn reach(&self, point: &str) -> Result<()> {
        if point == "store.events.sync" && self.0.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(Error::unavailable("the disk does not sync"));
        }
        Ok(())
    }
}

/// RUN-EV03: a failed sync uses its number, and no checkpoint goes ahead of it.
pub async fn ev03_failed_syncs(site: &Site) {
    let faults = Arc::new(Failing::default());
    let options = OpenOptions { faults: faults.clone(), attempts: 1, ..OpenOptions::default() };
    let path = site.dir().expect("a directory");
    let store = backtrail_backends::local::LocalStore::new(path, options);
    let runs = RunStore::new(Arc::new(store), context());
    let (ours, mut run) = started(&runs, "r").await;
    faults.set(true);
    let e = ours.append_events(run.id(), &[event(0)]).await.expect_err("not synced");
    assert_eq!(e.kind(), Kind::Unavailable { maybe_applied: true });
    let before = run.record.cas_version();
    let checkpoint = Checkpoint::at("b");
    let e = ours.save_checkpoint(&mut run, &checkpoint).await.expect_err("would be ahead");
    assert!(matches!(e.kind(), Kind::Unavailable { .. }), "{e:?}");
    assert_eq!(runs.load(run.id()).await.expect("loads").record.cas_version(), before);
    faults.set(false);
    ours.save_checkpoint(&mut run, &checkpoint).await.expect("syncs first");
    assert_eq!(ours.append_events(run.id(), &[event(1)]).await.expect("appends"), 1);
    assert_eq!(numbers(&all(&runs, run.id()).await), [0, 1]);
}

/// RUN-EV04: corrupt lines are skipped and counted; too many are an error, after what
/// can be read.
pub async fn ev04_corrupt_lines(site: &Site) {
    let runs = runs(site).await;
    let (ours, run) = started(&runs, "r").await;
    let long =
        NewEvent::foreign("long", Map::from_iter([("x".into(), "x".repeat(11 << 20).into())]));
    let refusal = ours.append_events(run.id(), &[event(0), long.expect("an event")]).await;
    refused(refusal, Kind::Invalid);
    assert!(all(&runs, run.id()).await.is_empty(), "nothing of the batch");
    if site.dir().is_none() {
        return;
    }
    let batch: Vec<NewEvent> = (0..1000).map(event).collect();
    ours.append_events(run.id(), &batch).await.expect("appends");
    append_by_hand(site, run.id(), b"{\"seq\": 1000, \"type\": \n");
    assert_eq!(all(&runs, run.id()).await.len(), 1000);
    let huge = format!("{{\"seq\":1001,\"x\":\"{}\"}}\n", "x".repeat(11 << 20));
    append_by_hand(site, run.id(), huge.as_bytes());
    let next = ours.append_events(run.id(), &[event(1000)]).await.expect("appends");
    assert!(next >= 1000, "{next}");
    assert_eq!(numbers(&all(&runs, run.id()).await), (0..=1000).collect::<Vec<_>>());
    append_by_hand(site, run.id(), "bad\n".repeat(98).as_bytes());
    assert_eq!(all(&runs, run.id()).await.len(), 1001, "100 bad lines are still few");
    append_by_hand(site, run.id(), b"bad\n");
    too_many(&runs, run.id(), 1001).await;
    std::fs::write(file_of(site, run.id()), "bad\n").expect("writes");
    assert!(all(&runs, run.id()).await.is_empty(), "one bad line alone is skipped");
    std::fs::write(file_of(site, run.id()), "bad\nbad\n").expect("writes");
    too_many(&runs, run.id(), 0).await;
}

async fn too_many(runs: &RunStore, run: &RunId, readable: usize) {
    let rows: Vec<Result<Event>> = runs.events(run, 0).collect().await;
    assert_eq!(rows.len(), readable + 1);
    let last = rows.into_iter().last().expect("a row");
    assert_eq!(refused(last, Kind::Corrupt).code(), "events-corrupted");
}

/// RUN-EV05: what this build does not know is the same everywhere.
pub async fn ev05_unknown_events_are_kept(site: &Site) {
    let runs = runs(site).await;
    let (ours, run) = started(&runs, "r").await;
    let (_copy, copy) = started(&runs, "copy").await;
    let odd = json!({
        "type": "hologram.rendered", "timestamp": "2026-01-01T00:00:00+02:00", "node_id": "n",
        "data": {"$x": [1, [2, {"a.b": null}]], "": {"max": i64::MAX}}, "new": {"deep": [true]},
    });
    let store = &**runs.store();
    let line = Bytes::from(odd.to_string());
    store.append_events(run.id(), vec![line], None).await.expect("appends");
    ours.append_events(run.id(), &[event(1)]).await.expect("appends");
    let listed = all(&runs, run.id()).await;
    let mut want = odd.clone();
    want["seq"] = json!(0);
    assert_eq!(Value::Object(listed[0].fields().clone()), want);
    assert_eq!(serde_json::from_slice::<Value>(&listed[0].body).expect("JSON"), want);
    assert_eq!((listed[0].kind(), listed[0].node_id()), ("hologram.rendered", Some("n")));
    let followed: Vec<Event> =
        runs.follow_events(run.id(), 0).take(2).try_collect().await.expect("follows");
    assert_eq!(followed, listed);
    copy_of(store, &runs, &listed[0], copy).await;
}

async fn copy_of(store: &dyn Store, runs: &RunStore, event: &Event, to: Run) {
    let mut fields = event.fields().clone();
    fields.remove("seq");
    let line = Bytes::from(Value::Object(fields).to_string());
    store.append_events(to.id(), vec![line], None).await.expect("appends");
    assert_eq!(all(runs, to.id()).await[0].fields(), event.fields());
}

/// RUN-EV06: followers begun before, during and after get all of it once, and end.
pub async fn ev06_followers_end_with_the_run(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    let id = run.id().clone();
    let other = super::runs(site).await;
    let follow = |from: u64| {
        let (runs, id) = (other.clone(), id.clone());
        tokio::spawn(async move {
            let rows = runs.follow_events(&id, from).try_collect::<Vec<Event>>();
            tokio::time::timeout(SOON, rows).await.expect("ends").expect("no error")
        })
    };
    let before = follow(0);
    ours.append_events(run.id(), &[event(0), event(1)]).await.expect("appends");
    let during = follow(1);
    for n in 2..30 {
        ours.append_events(run.id(), &[event(n)]).await.expect("appends");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Quiet for longer than a look at the status: the run still executes.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!before.is_finished() && !during.is_finished());
    let last = NewEvent::engine(&EngineEvent::RunFinished { reason: None });
    ours.append_events(run.id(), &[last]).await.expect("appends");
    engine(&ours, &mut run, Status::Finished).await;
    let after = follow(0);
    let want = all(&runs, run.id()).await;
    assert_eq!(want.len(), 31);
    assert_eq!(want[30].kind(), "run_finished");
    assert_eq!(before.await.expect("ends well"), want);
    assert_eq!(during.await.expect("ends well"), want[1..]);
    assert_eq!(after.await.expect("ends well"), want);
}

/// RUN-EV08: an absent or empty log is empty, not an error.
pub async fn ev08_no_events(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    assert!(all(&runs, run.id()).await.is_empty());
    if site.dir().is_some() {
        std::fs::write(file_of(site, run.id()), "").expect("writes");
        assert!(all(&runs, run.id()).await.is_empty());
    }
    assert_eq!(ours.append_events(run.id(), &[]).await.expect("nothing"), 0);
    assert!(all(&runs, run.id()).await.is_empty());
    engine(&ours, &mut run, Status::Failed).await;
    let followed: Vec<Event> =
        runs.follow_events(run.id(), 0).try_collect().await.expect("ends at once");
    assert!(followed.is_empty());
    let absent = crate::suite::run_id("absent");
    refused(runs.events(&absent, 0).try_collect::<Vec<_>>().await, Kind::NotFound);
}
