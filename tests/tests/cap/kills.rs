//! Captures that are cut short, and the order in which things become durable.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use backtrail_core::ids::Digest;
use backtrail_core::object::codec;
use backtrail_tests::cli::{Run, Sandbox, assert_same_tree, finish};
use backtrail_tests::history::run;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::lib_side::Lib;
use crate::snapshots::wait_for;
use crate::{files_below, noise, sandbox, warned};

/// Every point that a capture of this workspace reaches, the times at which it is killed
/// there, and at which of those the snapshot is published by then. A first capture writes
/// 17 objects and three documents, a later one 16 and two.
fn points(first: bool) -> Vec<(&'static str, Vec<u32>, u32)> {
    let (objects, docs) = if first { (17, 3) } else { (16, 2) };
    let never = u32::MAX;
    vec![
        ("capture.objects", vec![1], never),
        ("capture.trees", vec![1], never),
        ("capture.document", vec![1], never),
        ("capture.refs", vec![1], 1),
        ("capture.cache", vec![1], 1),
        ("store.object.staged", vec![1, 9, objects], never),
        ("store.object.synced", vec![1], never),
        ("store.object.named", vec![1, 9, objects], never),
        ("store.doc.staged", (1..=docs).collect(), never),
        ("store.doc.named", (1..=docs).collect(), docs),
    ]
}

fn fill(s: &Sandbox, state: u32) {
    for i in 0..12_u32 {
        s.write(format!("d{}/f{i}", i % 3), format!("state {state} of {i}\n"));
    }
}

fn ids(list: &Value) -> Vec<String> {
    let rows = list["snapshots"].as_array().expect("rows");
    rows.iter().map(|r| r["id"].as_str().expect("an id").to_owned()).collect()
}

fn staging(s: &Sandbox) -> Vec<std::path::PathBuf> {
    let mut files = files_below(&s.store());
    files.retain(|f| f.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".tmp-")));
    files
}

/// What must hold after any end of a capture: only whole snapshots are listed, the next
/// capture works without anybody's help and is all that the workspace holds.
fn assert_recovers(s: &Sandbox, before: &[String], what: &str) {
    let list = s.ok(["list", "--all"]);
    assert_eq!(list["rebuilt"], json!(null), "{what}");
    let listed = ids(&list);
    assert!(listed.ends_with(before), "{what}: {listed:?} after {before:?}");
    assert!(listed.len() <= before.len() + 1, "{what}: {listed:?}");
    match listed.first() {
        Some(newest) => assert_eq!(s.ok(["show", "latest"])["id"], **newest, "{what}"),
        None => drop(s.run(["show", "latest"]).expect(6)),
    }
    let next = s.ok(["capture"]);
    assert!(warned(&next, "refs-rebuilt").is_empty() && next["healed"] == 0, "{what}: {next}");
    if next["created"] == true {
        assert_eq!(next["parent"], json!(listed.first()), "{what}");
    }
    run(async {
        let lib = Lib::of(s).await;
        lib.assert_clean().await;
        let mut want = s.tree();
        want.retain(|path, _| path != b"history" && !path.starts_with(b"history/"));
        assert_same_tree(&lib.recorded("latest").await, &want);
    });
}

#[test]
fn cap_087_a_kill_at_any_point_leaves_whole_snapshots_only() {
    for first in [true, false] {
        for (point, times, published) in points(first) {
            for nth in times {
                killed_at(point, nth, first, nth >= published);
            }
        }
    }
}

fn killed_at(point: &str, nth: u32, first: bool, published: bool) {
    let what = format!("{point} {nth}, first: {first}");
    let mut s = sandbox();
    fill(&s, 0);
    let mut before = Vec::new();
    if !first {
        s.ok(["capture", "--label", "kept"]);
        before = ids(&s.ok(["list"]));
        fill(&s, 1);
    }
    s.env("BACKTRAIL_FAULT", format!("{point}:{nth}:kill"));
    let killed = s.run(["capture", "--label", "new"]);
    assert_eq!(killed.code, 137, "{what}: {killed}");
    s.env_remove("BACKTRAIL_FAULT");
    let listed = ids(&s.ok(["list"]));
    assert_eq!(listed.len() > before.len(), published, "{what}");
    assert_recovers(&s, &before, &what);
}

#[test]
fn k22_thirty_kills_of_the_first_capture_in_a_store_inside_the_workspace() {
    for round in 0..30_u64 {
        let mut s = sandbox();
        let history = s.path("history");
        s.env("BACKTRAIL_STORE", &history);
        fill(&s, 0);
        for i in 0..40 {
            s.write(format!("n/{i}"), noise(i, 20_000));
        }
        let mut child = s.spawn(["capture"]);
        std::thread::sleep(Duration::from_micros(round * 3100 % 100_000)); // any moment
        child.kill().expect("kill");
        child.wait().expect("wait");
        let next = s.ok(["capture"]);
        assert_eq!(next["counts"]["files"], 52, "round {round}: {next}");
        assert_eq!(s.ok(["capture"])["created"], false);
        fs::rename(&history, s.store()).expect("rename");
        s.env("BACKTRAIL_STORE", s.store());
        assert_recovers(&s, &ids(&s.ok(["list"])), &format!("round {round}"));
    }
}

/// Ends a capture of 800 files that has stored some of them.
fn interrupted(signal: Option<Signal>) -> (Sandbox, i32) {
    let mut s = sandbox();
    for i in 0..800 {
        s.write(format!("d{}/f{i}", i % 20), format!("{i}\n"));
    }
    s.env("BACKTRAIL_FAULT", "capture.objects:2:stop");
    if signal.is_none() {
        s.env("BACKTRAIL_CAPTURE_TIMEOUT", "1s");
    }
    let mut child = s.spawn(["capture"]);
    let pid = Pid::from_child(&child);
    wait_for("the capture to be halfway", || {
        let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    });
    match signal {
        Some(signal) => kill_process(pid, signal).expect("signal"),
        None => std::thread::sleep(Duration::from_millis(1100)), // the limit itself
    }
    kill_process(pid, Signal::CONT).expect("continue");
    let code = child.wait().expect("an end").code();
    s.env_remove("BACKTRAIL_FAULT").env_remove("BACKTRAIL_CAPTURE_TIMEOUT");
    (s, code.unwrap_or(137))
}

#[test]
fn k09_a_capture_interrupted_halfway_is_never_listed() {
    let cases =
        [(Some(Signal::INT), 130), (Some(Signal::TERM), 143), (None, 1), (Some(Signal::KILL), 137)];
    for (signal, want) in cases {
        let (s, code) = interrupted(signal);
        assert_eq!(code, want, "{signal:?}");
        assert_eq!(s.ok(["list"])["snapshots"], json!([]));
        s.run(["show", "latest"]).expect(6);
        if code != 137 {
            assert_eq!(staging(&s).len(), 0, "{signal:?}: {:?}", staging(&s).first());
        }
        assert_recovers(&s, &[], &format!("{signal:?}"));
    }
}

/// One finished system call that makes something durable or gives it a name.
#[derive(Debug)]
struct Call {
    name: String,
    args: String,
}

/// The calls of a traced capture: syncs where they ended, names where they began.
fn traced(s: &Sandbox) -> (Vec<Call>, Run) {
    let log = s.top().join("trace");
    let inner = s.command(["capture", "--json"]);
    let mut command = Command::new("strace");
    let calls = "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2,link,linkat";
    command.args(["-f", "-y", "-s", "4096", "-e", calls, "-o"]).arg(&log).arg("--");
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(s.workspace()).env_clear();
    command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let run = finish(command);
    let mut open = std::collections::BTreeMap::new();
    let mut out = Vec::new();
    for line in fs::read_to_string(log).expect("a trace").lines() {
        let (pid, rest) = line.split_once(' ').expect("a pid");
        let rest = rest.trim_start();
        let call = if let Some(more) = rest.strip_prefix("<... ") {
            let Some(begun) = open.remove(pid) else { continue };
            let _ = more;
            begun
        } else {
            let Some((name, args)) = rest.split_once('(') else { continue };
            let call = Call { name: name.to_owned(), args: args.to_owned() };
            if args.contains("<unfinished") && name.contains("sync") {
                open.insert(pid.to_owned(), call);
                continue;
            }
            call
        };
        out.push(call);
    }
    (out, run)
}

/// Where in the calls one is found.
fn at(calls: &[Call], what: &str, is: impl Fn(&Call) -> bool) -> usize {
    calls.iter().position(is).unwrap_or_else(|| panic!("no {what} in {calls:#?}"))
}

fn assert_ordered(s: &Sandbox, objects: usize) {
    let (calls, run) = traced(s);
    let run = run.expect(0);
    let names = |c: &Call| c.name.starts_with("rename") || c.name.starts_with("link");
    let is_object = |c: &Call| names(c) && c.args.contains("workspace-objects>");
    let named: Vec<usize> = (0..calls.len()).filter(|i| is_object(&calls[*i])).collect();
    assert!(named.len() >= objects, "{calls:#?}");
    let document = at(&calls, "document", |c| {
        names(c) && c.args.contains("/snapshots>") && c.args.contains(".json\"")
    });
    let refs = (0..calls.len())
        .rev()
        .find(|i| names(&calls[*i]) && calls[*i].args.contains("\"index.json\""));
    let refs = refs.expect("refs");
    assert!(*named.last().expect("objects") < document && document < refs, "{run}{calls:#?}");
    let everything = |c: &Call| c.name == "syncfs";
    for i in &named {
        // renameat(5</…/workspace-objects>, "aa/.tmp-…", …
        let temp = calls[*i].args.split('"').nth(1).expect("a name").to_owned();
        let own = |c: &Call| c.name == "fdatasync" && c.args.contains(&temp);
        assert!(calls[..*i].iter().any(|c| own(c) || everything(c)), "{temp} was not synced first");
        let dir = format!("/{}>", &temp[..2]);
        let dir_synced = |c: &Call| c.name == "fsync" && c.args.contains(&dir);
        let after = &calls[*i + 1..document];
        assert!(after.iter().any(|c| dir_synced(c) || everything(c)), "{dir} was not synced");
    }
    for i in [document, refs] {
        let temp = calls[i].args.split('"').nth(1).expect("a name").to_owned();
        let own = |c: &Call| c.name == "fdatasync" && c.args.contains(&temp);
        assert!(calls[..i].iter().any(own), "{temp} was not synced first: {calls:#?}");
    }
    let between = &calls[document + 1..refs];
    let dir = |c: &Call| c.name == "fsync" && c.args.contains("/snapshots>");
    assert!(between.iter().any(dir), "{between:#?}");
    let end = |c: &Call| c.name == "fsync";
    assert!(calls[refs + 1..].iter().any(end), "the name of the refs is not durable");
}

#[test]
fn cap_088_everything_is_durable_before_it_is_named() {
    let s = sandbox();
    s.write("f", "x");
    assert_ordered(&s, 3);
    for i in 0..300 {
        s.write(format!("d{}/f{i}", i % 9), format!("{i}\n"));
    }
    assert_ordered(&s, 300);
}

/// The digests under whose name other bytes lie.
fn partial(objects: &Path) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for file in files_below(objects) {
        let name = file.file_name().expect("a name").to_str().expect("UTF-8");
        let Ok(bytes) = fs::read(&file) else { continue };
        let dir = file.parent().and_then(Path::file_name).expect("a fan").to_str().expect("UTF-8");
        let (hex, raw) = match name.strip_suffix(".zst") {
            _ if name.starts_with(".tmp-") => continue,
            Some(hex) => (hex, codec::decode(&bytes).unwrap_or_default()),
            None => (name, bytes),
        };
        if Digest::of(&raw).hex() != format!("{dir}{hex}") {
            out.insert(format!("{dir}{hex}"));
        }
    }
    out
}

#[test]
fn k25_a_reader_never_sees_part_of_an_object() {
    let s = sandbox();
    for i in 0..60_u64 {
        s.write(format!("noise{i}"), noise(i, 300_000));
        s.write(format!("text{i}"), format!("line {i}\n").repeat(5000));
    }
    let mut child = s.spawn(["capture", "--json"]);
    let objects = s.store().join("workspace-objects");
    while child.try_wait().expect("wait").is_none() {
        assert_eq!(partial(&objects), BTreeSet::new());
    }
    assert!(child.wait().expect("wait").success());
    assert_eq!(partial(&objects), BTreeSet::new());
    assert!(files_below(&objects).len() >= 120);
}
