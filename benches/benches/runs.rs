//! The bars of runs, each beside its peer in one process: RUN-B1 what the engine adds to a
//! node, RUN-B2 a long list of events, RUN-B3 a command that prints a lot, RUN-B4 a list of
//! many runs. Stores are on disk and sync as they do for everybody.
//!
//! `cargo bench -p backtrail-benches --bench runs [-- b1|b2|b3|b4]`
//!
//! The command line is this binary itself (see [`main`]), so that what is measured is a
//! whole process of the very code that was just built.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::open::{OpenOptions, open};
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::ids::RunId;
use backtrail_core::run::{NewEvent, NewRun, RunStore};
use futures::StreamExt as _;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// As the real binary has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Set for a process that is the command line: where it writes the most memory it had.
const AS_COMMAND: &str = "BENCH_PEAK_FILE";

const NODES: u32 = 1_000;
const FILES: usize = 2_000;
const EVENTS: usize = 50_000;
const BATCH: usize = 500;
const PRINTED: u64 = 1 << 30;
const RUNS: usize = 10_000;
const MIB: f64 = 1024.0 * 1024.0;

fn main() -> ExitCode {
    if let Some(file) = std::env::var_os(AS_COMMAND) {
        let code = backtrail_cli::main();
        std::fs::write(file, peak().to_string()).expect("writes its peak");
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let wanted = |name: &str| args.is_empty() || args.iter().any(|a| a == name);
    let bars: [(&str, fn()); 4] = [("b1", b1), ("b2", b2), ("b3", b3), ("b4", b4)];
    bars.iter().filter(|(name, _)| wanted(name)).for_each(|(_, bar)| bar());
    ExitCode::SUCCESS
}

/// The most memory that this process had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kib * 1024
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Prints a measured number beside its bar.
fn row(id: &str, what: &str, measured: f64, bar: f64, unit: &str) {
    let word = if measured <= bar { "met" } else { "MISSED" };
    println!("{id}  {what:<48} {measured:>9.2} {unit:<7} bar {bar:>6} {unit:<7} {word}");
}

/// Prints a number without a bar.
fn note(id: &str, what: &str, measured: f64, unit: &str) {
    println!("{id}  {what:<48} {measured:>9.2} {unit}");
}

/// A place of its own with a store, a workspace and a home.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("workspace")).expect("a workspace");
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command line.
    fn backtrail(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.env_clear().env(AS_COMMAND, self.at("peak"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.at("home")).env("BACKTRAIL_STORE", self.at("store"));
        command.current_dir(self.at("workspace")).stdin(Stdio::null());
        command
    }

    /// What the last command line had at most.
    fn peak(&self) -> u64 {
        let text = std::fs::read_to_string(self.at("peak")).expect("a peak");
        text.parse().expect("a number")
    }

    /// What operations are handed.
    fn context() -> Context {
        Context {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            host: this_host(),
            cancel: Cancel::default(),
            progress: Arc::new(Silent),
            faults: Arc::new(NoFaults),
        }
    }

    /// The runs of the store, as a library sees them.
    fn runs(&self, rt: &Runtime, unsafe_no_fsync: bool) -> RunStore {
        let url = self.at("store").to_string_lossy().into_owned();
        let options = OpenOptions { unsafe_no_fsync, ..OpenOptions::default() };
        let store = rt.block_on(open(&url, options)).expect("a store");
        RunStore::new(store, Self::context())
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn timed(command: &mut Command) -> Duration {
    let start = Instant::now();
    let done = command.stdout(Stdio::null()).output().expect("runs");
    let took = start.elapsed();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    took
}

/// RUN-B1: a chain of `true`, less as many bare spawns of it.
fn b1() {
    let place = Place::new();
    for i in 0..FILES {
        let dir = place.at(&format!("workspace/d{}", i / 10));
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join(format!("f{i}.txt")), format!("file {i}\n")).expect("a file");
    }
    let mut flow = String::from("backtrail: 1\nname: chain\nentry: n0\nnodes:\n");
    for i in 0..NODES {
        let _ = writeln!(flow, "  n{i}: {{kind: run, command: [\"true\"]}}");
    }
    flow.push_str("  end: {kind: done}\nedges:\n");
    for i in 1..=NODES {
        let to = if i == NODES { String::from("end") } else { format!("n{i}") };
        let _ = writeln!(flow, "  - {{from: n{}, to: {to}}}", i - 1);
    }
    std::fs::write(place.at("flow.yaml"), flow).expect("a workflow");
    // as in a workspace that has been captured before and is at rest
    timed(place.backtrail().arg("capture"));
    std::thread::sleep(Duration::from_millis(2100));
    timed(place.backtrail().arg("capture"));

    let bare = || {
        let mut command = Command::new("true");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        assert!(command.output().expect("runs").status.success());
    };
    let start = Instant::now();
    (0..NODES).for_each(|_| bare());
    let spawns = start.elapsed();
    let whole = timed(place.backtrail().arg("run").arg(place.at("flow.yaml")));
    let walk = looks(&place);
    note("RUN-B1", "a bare spawn (peer)", ms(spawns) / f64::from(NODES), "ms");
    note("RUN-B1", "a look at the workspace alone (floor)", walk, "ms");
    note("RUN-B1", "peak memory", mib(place.peak()), "MiB");
    let own = ms(whole.saturating_sub(spawns)) / f64::from(NODES);
    row("RUN-B1", "a node of 1,000, less its spawn", own, 5.0, "ms");
}

/// What the walk alone costs, with the cache in memory and nothing written.
fn looks(place: &Place) -> f64 {
    use backtrail_core::observe;
    use backtrail_core::workspace::{Root, cache::StatCache};
    let rt = runtime();
    let ctx = Place::context();
    let root = Root::open(&place.at("workspace"), &ctx.host, false).expect("a root");
    let settings = observe::Settings::default();
    let look = |cache| {
        rt.block_on(observe::observe(&ctx, &root, &settings, cache, None)).expect("looks").cache
    };
    let mut cache = look(StatCache::load(None, &root));
    let start = Instant::now();
    for _ in 0..100 {
        cache = look(cache);
    }
    ms(start.elapsed()) / 100.0
}

/// RUN-B2: events appended in batches, listed, and the last ones.
fn b2() {
    let place = Place::new();
    let rt = runtime();
    let runs = place.runs(&rt, false);
    let mut new = NewRun::new("bench", "main");
    (new.id, new.queued) = (Some(String::from("events")), true);
    rt.block_on(runs.create(new)).expect("a run");
    let id: RunId = "events".parse().expect("an id");
    let data = serde_json::json!({"tool": "edit", "input_size": 1234, "path": "src/lib.rs"});
    let data = data.as_object().expect("an object");
    let before = peak();
    let start = Instant::now();
    for _ in 0..EVENTS / BATCH {
        let new = || NewEvent::foreign("tool_called", data.clone()).expect("an event").node("main");
        let batch: Vec<NewEvent> = (0..BATCH).map(|_| new()).collect();
        rt.block_on(runs.append_events(&id, &batch)).expect("appends");
    }
    note("RUN-B2", "append 50,000 events, 500 a batch", ms(start.elapsed()), "ms");
    let start = Instant::now();
    let count = rt.block_on(runs.events(&id, 0).count());
    assert_eq!(count, EVENTS);
    note("RUN-B2", "read them by the library", ms(start.elapsed()), "ms");
    row("RUN-B2", "memory of appending and reading", mib(peak() - before), 64.0, "MiB");

    let log = place.at("store/runs/events/events.jsonl");
    let peer = timed(Command::new("cat").arg(&log));
    note("RUN-B2", "cat of the log (peer)", ms(peer), "ms");
    let took = timed(place.backtrail().args(["events", "events", "--json"]));
    note("RUN-B2", "events: time", ms(took), "ms");
    row("RUN-B2", "events: peak memory", mib(place.peak()), 64.0, "MiB");
    let peer = timed(Command::new("tail").args(["-n", "20"]).arg(&log));
    note("RUN-B2", "tail -n 20 of the log (peer)", ms(peer), "ms");
    let tails = |_| timed(place.backtrail().args(["events", "events", "--tail", "20"]));
    let took = (0..5).map(tails).min().unwrap_or_default();
    row("RUN-B2", "events --tail 20: time, best of 5", ms(took), 50.0, "ms");
    row("RUN-B2", "events --tail 20: peak memory", mib(place.peak()), 64.0, "MiB");
}

/// RUN-B3: a command that prints 1 GiB.
fn b3() {
    let place = Place::new();
    let print = format!("yes 0123456789abcdef0123456789abcdef | head -c {PRINTED}");
    let start = Instant::now();
    let mut peer = Command::new("sh").args(["-c", &print]).stdout(Stdio::piped()).spawn();
    let pipe = peer.as_mut().expect("runs").stdout.take().expect("a pipe");
    let read = drain(pipe);
    peer.expect("runs").wait().expect("ends");
    assert_eq!(read, PRINTED);
    note("RUN-B3", "1 GiB through a bare pipe (peer)", ms(start.elapsed()), "ms");
    let took = timed(place.backtrail().args(["run", "--", "sh", "-c", &print]));
    note("RUN-B3", "a run that prints 1 GiB: time", ms(took), "ms");
    row("RUN-B3", "a run that prints 1 GiB: peak memory", mib(place.peak()), 64.0, "MiB");
}

fn drain(mut pipe: impl std::io::Read) -> u64 {
    let mut buf = vec![0; 64 * 1024];
    let mut sum = 0;
    loop {
        match pipe.read(&mut buf).expect("reads") {
            0 => return sum,
            n => sum += n as u64,
        }
    }
}

/// RUN-B4: the newest of many runs.
fn b4() {
    let place = Place::new();
    let rt = runtime();
    let runs = place.runs(&rt, true);
    let work_dir = place.at("workspace").canonicalize().expect("there");
    for _ in 0..RUNS {
        let mut new = NewRun::new("bench", "main");
        new.queued = true;
        new.workflow_source = Some("x".repeat(2_000));
        new.work_dir = Some(work_dir.to_string_lossy().into_owned());
        rt.block_on(runs.create(new)).expect("a run");
    }
    let peer = first_line(Command::new("ls").arg("-t").arg(place.at("store/runs")));
    note("RUN-B4", "ls -t of the directories (peer): first row", ms(peer), "ms");
    let lists = |_| first_line(place.backtrail().args(["runs", "list", "--limit", "50"]));
    let took = (0..5).map(lists).min().unwrap_or_default();
    row("RUN-B4", "runs list --limit 50: first row, best of 5", ms(took), 200.0, "ms");
    row("RUN-B4", "runs list --limit 50: peak memory", mib(place.peak()), 64.0, "MiB");
}

/// How long it takes until a command has printed its first line.
fn first_line(command: &mut Command) -> Duration {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().expect("runs");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("reads");
    let took = start.elapsed();
    assert!(!line.is_empty(), "nothing was printed");
    drain(out);
    assert!(child.wait().expect("ends").success());
    took
}
