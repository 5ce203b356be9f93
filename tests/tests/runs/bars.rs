//! The memory that runs may need, whatever their size. How fast they are is measured in
//! `benches/benches/runs.rs`.

use std::process::Child;

use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::run::{NewEvent, NewRun, RunStore};
use backtrail_tests::cli::Run;
use futures::StreamExt as _;

use crate::world::{World, end};

const LIMIT: u64 = 64 << 20;

/// The most memory that a process has had so far, in bytes.
fn peak(pid: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// The end of a command, and the most memory that it had.
fn measured(child: Child) -> (Run, u64) {
    let pid = child.id().to_string();
    let watch = std::thread::spawn(move || {
        let mut most = 0;
        while let Some(now) = peak(&pid) {
            most = now;
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        most
    });
    let run = end(child);
    (run, watch.join().expect("watched"))
}

/// The runs of the sandbox, as a library sees them.
async fn runs(world: &World) -> RunStore {
    let url = world.sandbox.store().to_string_lossy().into_owned();
    let options = OpenOptions { unsafe_no_fsync: true, ..OpenOptions::default() };
    RunStore::new(
        open(&url, options).await.expect("a store"),
        backtrail_tests::suite::runs::context(),
    )
}

#[tokio::test]
async fn run_b2_events_cost_no_memory() {
    let world = World::new();
    let runs = runs(&world).await;
    let mut new = NewRun::new("many", "main");
    (new.id, new.queued) = (Some(world.id("r1")), true);
    let id = runs.create(new).await.expect("a run").run.id().clone();
    let data = serde_json::json!({"tool": "edit", "input_size": 1234, "path": "src/lib.rs"});
    let data = data.as_object().expect("an object");
    let before = peak("self").expect("a peak");
    for _ in 0..100 {
        let new = || NewEvent::foreign("tool_called", data.clone()).expect("an event").node("main");
        let batch: Vec<NewEvent> = (0..500).map(|_| new()).collect();
        runs.append_events(&id, &batch).await.expect("appends");
    }
    assert_eq!(runs.events(&id, 0).count().await, 50_000);
    assert!(peak("self").expect("a peak") - before <= LIMIT);
    let (run, most) = measured(world.sandbox.spawn(["events", "r1", "--json"]));
    assert_eq!(run.expect(0).out().lines().count(), 50_000);
    assert!((1..=LIMIT).contains(&most), "{most}");
    let tail = world.json(&["events", "r1", "--tail", "20"]).expect(0).out();
    let last: Vec<serde_json::Value> =
        tail.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(
        (last.len(), &last[0]["seq"], &last[19]["seq"]),
        (20, &49_980.into(), &49_999.into())
    );
}

#[test]
fn run_b3_output_costs_no_memory() {
    let mut world = World::new();
    world.sandbox.env("BACKTRAIL_LOG_LIMIT", "16MiB");
    let print = "yes 0123456789abcdef0123456789abcdef | head -c 1073741824";
    let mut command = world.sandbox.command(["run", "--", "sh", "-c", print]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let (run, most) = measured(command.spawn().expect("started"));
    run.expect(0);
    assert!((1..=LIMIT).contains(&most), "{most}");
}

#[tokio::test]
async fn run_b4_a_list_costs_no_memory() {
    let world = World::new();
    let runs = runs(&world).await;
    for _ in 0..2_000 {
        let mut new = NewRun::new("many", "main");
        new.queued = true;
        new.workflow_source = Some("x".repeat(50_000));
        runs.create(new).await.expect("a run");
    }
    // as they were read they would take 100 MB
    let list = ["runs", "list", "--all", "--limit", "2000"];
    let (run, most) = measured(world.sandbox.spawn(list));
    assert_eq!(run.expect(0).out().lines().count(), 2_000);
    assert!((1..=LIMIT).contains(&most), "{most}");
}
