//! A sandbox with a workflow file beside its workspace.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use backtrail_tests::cli::{Run, Sandbox};
use serde_json::Value;

/// A sandbox for runs.
pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
}

impl World {
    /// A workspace with one file.
    pub(crate) fn new() -> Self {
        let sandbox = Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"));
        sandbox.write("a.txt", "one\n");
        Self { sandbox }
    }

    /// The whole id of a run: processes are told apart by it on the whole host, and tests
    /// run side by side.
    pub(crate) fn id(&self, id: &str) -> String {
        let top = self.sandbox.top();
        let name = top.file_name().expect("a name").to_string_lossy().into_owned();
        format!("{id}-{}", name.rsplit('-').next().unwrap_or_default().replace('.', "_"))
    }

    /// The workflow file.
    pub(crate) fn file(&self) -> PathBuf {
        self.sandbox.top().join("flow.yaml")
    }

    /// Writes a workflow: its body below version and name.
    pub(crate) fn flow(&self, body: &str) -> &Self {
        let text = format!("backtrail: 1\nname: flow\n{body}");
        std::fs::write(self.file(), text).expect("write");
        self
    }

    /// Runs the workflow under an id.
    pub(crate) fn run(&self, id: &str, more: &[&str]) -> Run {
        let file = self.file().display().to_string();
        let id = self.id(id);
        let mut args = vec!["run", &file, "--run-id", &id, "--json"];
        args.extend(more);
        self.sandbox.run(args)
    }

    /// Starts the workflow under an id, and leaves it running.
    pub(crate) fn start(&self, id: &str) -> Child {
        let file = self.file().display().to_string();
        self.sandbox.spawn(["run", &file, "--run-id", &self.id(id), "--json"])
    }

    /// Runs one command under an id.
    pub(crate) fn command(&self, id: &str, flags: &[&str], argv: &[&str]) -> Run {
        let id = self.id(id);
        let args = ["run", "--run-id", &id, "--json"].into_iter().chain(flags.iter().copied());
        self.sandbox.run(args.chain(["--"]).chain(argv.iter().copied()))
    }

    /// Any command, with `--json`.
    pub(crate) fn json(&self, args: &[&str]) -> Run {
        self.sandbox.run(args.iter().chain(&["--json"]))
    }

    /// The record of a run.
    #[track_caller]
    pub(crate) fn record(&self, id: &str) -> Value {
        self.json(&["runs", "show", id]).expect(0).json()["run"].clone()
    }

    /// The whole id of a run that is there.
    #[track_caller]
    fn whole(&self, id: &str) -> String {
        self.record(id)["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    pub(crate) fn status(&self, id: &str) -> String {
        self.record(id)["status"].as_str().expect("a status").to_owned()
    }

    /// The events of a run.
    #[track_caller]
    pub(crate) fn events(&self, id: &str) -> Vec<Value> {
        let run = self.json(&["events", id]).expect(0);
        run.out().lines().map(|l| serde_json::from_str(l).expect("an event")).collect()
    }

    /// The types of the events of a run, each with its node.
    #[track_caller]
    pub(crate) fn kinds(&self, id: &str) -> Vec<String> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let kind = |e: &Value| format!("{} {}", text(&e["type"]), text(&e["node_id"]));
        self.events(id).iter().map(|e| kind(e).trim().to_owned()).collect()
    }

    /// Label → snapshot of a run.
    #[track_caller]
    pub(crate) fn labels(&self, id: &str) -> Vec<(String, String)> {
        let shown = self.json(&["runs", "show", id]).expect(0).json();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let rows = shown["boundaries"].as_array().expect("a list");
        rows.iter().map(|b| (text(&b["label"]), text(&b["snapshot"]))).collect()
    }

    /// The snapshot that a label of a run names.
    #[track_caller]
    pub(crate) fn label(&self, id: &str, label: &str) -> String {
        let labels = self.labels(id);
        let found = labels.iter().find(|(l, _)| l == label);
        found.unwrap_or_else(|| panic!("no {label} in {labels:?}")).1.clone()
    }

    /// The bytes that a file has in a boundary; `None` when it is not there.
    pub(crate) fn at(&self, id: &str, label: &str, path: &str) -> Option<String> {
        let snapshot = self.label(id, label);
        let run = self.sandbox.run(["show", &snapshot, "--cat", path, "--run", &self.whole(id)]);
        (run.code == 0).then(|| run.out())
    }

    /// The snapshots of a run, oldest first.
    #[track_caller]
    pub(crate) fn snapshots(&self, id: &str) -> Vec<Value> {
        let list = self.json(&["list", "--run", &self.whole(id), "--all"]).expect(0).json();
        let mut rows = list["snapshots"].as_array().expect("snapshots").clone();
        rows.reverse();
        rows
    }

    /// What the commands of a run printed.
    #[track_caller]
    pub(crate) fn log(&self, id: &str) -> String {
        self.sandbox.run(["logs", id]).expect(0).out()
    }
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("signal");
}

/// True while a process lives and is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

/// The end of a started command.
pub(crate) fn end(child: Child) -> Run {
    use std::os::unix::process::ExitStatusExt as _;
    let out = child.wait_with_output().expect("wait");
    Run {
        args: vec!["started".into()],
        code: out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(0)),
        stdout: out.stdout,
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

pub(crate) fn pid_in(world: &World, name: &str) -> u32 {
    let path = world.sandbox.path(name);
    until("a pid is written", || {
        std::fs::read_to_string(&path).is_ok_and(|t| t.trim().parse::<u32>().is_ok())
    });
    std::fs::read_to_string(&path).expect("read").trim().parse().expect("a pid")
}
