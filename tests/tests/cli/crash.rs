//! Killed, stopped and interrupted commands: what is left, and what the next one sees.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use backtrail_tests::cli::{Sandbox, Tree, assert_same_tree, finish, id};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::sandbox;

/// Runs a command with a fault armed.
fn with_fault(s: &Sandbox, fault: &str, args: &[&str]) -> i32 {
    let mut command = s.command(args);
    command.env("BACKTRAIL_FAULT", fault);
    finish(command).code
}

fn snapshots(s: &Sandbox) -> Vec<String> {
    let list = s.ok(["list"]);
    list["snapshots"].as_array().expect("rows").iter().map(id).collect()
}

fn no_staging(dir: &Path) {
    let names = fs::read_dir(dir).expect("list").map(|e| e.expect("entry").file_name());
    let left: Vec<_> =
        names.filter(|n| n.to_string_lossy().starts_with(".backtrail-stage")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn cap_087_a_capture_killed_at_any_arrow_leaves_whole_snapshots_only() {
    for point in [
        "store.object.staged:1",
        "store.object.synced:1",
        "store.object.named:2",
        "capture.objects:1",
        "capture.trees:1",
        "store.doc.staged:1",
        "store.doc.named:1",
        "capture.document:1",
        "capture.refs:1",
        "capture.cache:1",
    ] {
        let s = sandbox();
        for i in 0..12 {
            s.write(format!("d{}/f{i}", i % 3), format!("{i}").repeat(300));
        }
        let first = s.capture();
        for i in 0..12 {
            s.write(format!("d{}/f{i}", i % 3), format!("{i} new").repeat(300));
        }
        let code = with_fault(&s, &format!("{point}:kill"), &["capture"]);
        assert_eq!(code, 137, "{point} was not reached");
        let after = snapshots(&s);
        assert!(after.len() <= 2 && after.last() == Some(&first), "{point}: {after:?}");
        assert_eq!(s.ok(["verify", "--all", "--deep"])["damaged"], json!([]), "{point}");
        let next = s.ok(["capture"]);
        let counts = (&next["counts"]["files"], &next["coverage"]["skipped"]);
        assert_eq!(counts, (&json!(12), &json!({})), "{point}");
        let head = id(&next);
        assert_eq!(id(&s.ok(["show", "latest"])), head);
        s.write("d0/f0", "edit after");
        s.ok(["restore", &head, "--yes"]);
        let content = fs::read_to_string(s.path("d0/f0")).expect("read");
        assert_eq!(content, "0 new".repeat(300), "{point}");
    }
}

#[test]
fn cap_042_a_capture_that_fails_at_any_arrow_publishes_nothing() {
    for point in ["capture.objects", "capture.trees", "capture.document"] {
        let s = sandbox();
        s.write("f", "1");
        let first = s.capture();
        s.write("f", "2");
        assert_eq!(with_fault(&s, &format!("{point}:1:fail"), &["capture"]), 1, "{point}");
        assert_eq!(snapshots(&s), [first], "{point}");
        assert_eq!(s.ok(["capture"])["created"], true, "{point}");
        assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
    }
}

/// A workspace, the state to restore, and the state before the restore.
fn changed(files: usize) -> (Sandbox, Tree, Tree) {
    let s = sandbox();
    for i in 0..files {
        s.write(format!("d{}/f{i}", i % 7), format!("{i}\n"));
    }
    s.chmod("d0/f0", 0o640);
    let target = s.tree();
    s.ok(["capture", "--label", "target"]);
    for i in 0..files {
        match i % 4 {
            0 => s.remove(format!("d{}/f{i}", i % 7)),
            1 => drop(s.write(format!("d{}/f{i}", i % 7), "edited\n")),
            2 => drop(s.write(format!("new{}/f{i}", i % 3), "made\n")),
            _ => {}
        }
    }
    let now = s.tree();
    (s, target, now)
}

const ARROWS: &[&str] = &[
    "restore.banked:1",
    "restore.staged:1",
    "restore.journal:1",
    "restore.applying:1",
    "restore.step:1",
    "restore.step:9",
    "restore.deleted:1",
    "restore.applied:1",
    "restore.committed:1",
    "restore.closed:1",
];

#[test]
fn res_041_a_killed_restore_is_finished_or_rolled_back() {
    for point in ARROWS {
        for direction in ["--finish", "--roll-back"] {
            let (s, target, now) = changed(40);
            let code = with_fault(&s, &format!("{point}:kill"), &["restore", "target", "--yes"]);
            assert_eq!(code, 137, "{point} was not reached");
            let pending = s.run(["capture", "--dry-run", "--json"]);
            if pending.code == 4 {
                assert_eq!(pending.error_code(), "recovery-needed", "{point}");
                assert!(pending.out().contains("backtrail restore --finish"), "{pending}");
                for args in [&["restore", "target", "--yes"][..], &["undo", "--yes"]] {
                    s.run(args).expect(4);
                }
                // another store refuses as well; reading goes on
                let mut other = s.command(["capture"]);
                other.env("BACKTRAIL_STORE", s.top().join("other"));
                assert_eq!(finish(other).code, 4, "{point}");
                assert!(s.run(["list"]).expect(0).stderr.contains("--roll-back"));
                let done = s.ok(["restore", direction]);
                assert_eq!(done["recovered"].as_array().map(Vec::len), Some(1), "{point}");
                let want = if direction == "--finish" { &target } else { &now };
                assert_same_tree(&s.tree(), want);
            } else {
                s.run(["capture"]).expect(0);
                let tree = s.tree();
                assert!(tree == target || tree == now, "{point}: a mixture, and nobody said so");
            }
            no_staging(s.workspace());
            assert_eq!(s.ok(["verify", "--all", "--deep"])["damaged"], json!([]), "{point}");
            s.ok(["restore", "target", "--yes"]);
            assert_same_tree(&s.tree(), &target);
        }
    }
}

#[test]
fn res_040_a_restore_that_fails_at_any_arrow_changes_nothing() {
    for point in ARROWS.iter().take(8) {
        let (s, _, now) = changed(24);
        let code = with_fault(&s, &format!("{point}:fail"), &["restore", "target", "--yes"]);
        assert_eq!(code, 1, "{point}");
        assert_same_tree(&s.tree(), &now);
        no_staging(s.workspace());
        assert_eq!(s.run(["undo", "--yes"]).code, 6, "{point}: nothing was done");
    }
}

#[test]
fn a_setting_ends_interrupted_restores_unasked() {
    for (policy, finish) in [("finish", true), ("rollback", false)] {
        let (mut s, target, now) = changed(24);
        with_fault(&s, "restore.step:5:kill", &["restore", "target", "--yes"]);
        s.env("BACKTRAIL_RECOVER", policy);
        let run = s.run(["capture"]).expect(0);
        assert!(run.stderr.contains("was ended first"), "{run}");
        assert_same_tree(&s.tree(), if finish { &target } else { &now });
    }
}

/// Waits until the process has stopped itself.
fn stopped(child: &Child) {
    let stat = format!("/proc/{}/stat", child.id());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let text = fs::read_to_string(&stat).expect("stat");
        if text.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not stop");
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("pid")).expect("pid");
    kill_process(pid, signal).expect("kill");
}

#[test]
fn a_signal_ends_with_its_code_after_cleaning_up() {
    for (number, sig) in [(1, Signal::HUP), (2, Signal::INT), (15, Signal::TERM)] {
        let (s, target, now) = changed(300);
        for (point, args) in [
            ("capture.objects:1:stop", &["capture", "--json"][..]),
            ("restore.step:3:stop", &["restore", "target", "--yes", "--json"]),
        ] {
            let mut command = s.command(args);
            command.env("BACKTRAIL_FAULT", point);
            let child = command.spawn().expect("start");
            stopped(&child);
            signal(&child, sig);
            signal(&child, Signal::CONT);
            let out = child.wait_with_output().expect("wait");
            let json: Value = serde_json::from_slice(&out.stdout).expect("one JSON document");
            assert_eq!(json["exit_code"], json!(out.status.code()));
            no_staging(s.workspace());
            if out.status.success() && point.starts_with("restore") {
                // it was done before it heard the signal
                assert_same_tree(&s.tree(), &target);
                continue;
            }
            assert_eq!(out.status.code(), Some(128 + number), "{point}");
            assert_same_tree(&s.tree(), &now);
        }
    }
}

#[test]
fn cap_091_a_capture_during_a_restore_is_busy() {
    let (s, target, _) = changed(24);
    let mut command = s.command(["restore", "target", "--yes"]);
    command.env("BACKTRAIL_FAULT", "restore.step:3:stop");
    let child = command.spawn().expect("start");
    stopped(&child);
    for args in [
        &["capture", "--wait", "0", "--json"][..],
        &["restore", "target", "--yes", "--wait", "0", "--json"],
    ] {
        let run = s.run(args).expect(5);
        assert_eq!(run.error_code(), "busy");
        assert!(run.out().contains(&format!("pid {}", child.id())), "{run}");
    }
    signal(&child, Signal::CONT);
    assert!(child.wait_with_output().expect("wait").status.success());
    assert_same_tree(&s.tree(), &target);
    s.run(["capture"]).expect(0);
}

#[test]
fn cap_090_captures_at_once_make_one_chain() {
    let s = sandbox();
    s.write("f", "0");
    s.capture();
    let children: Vec<Child> = (0..8)
        .map(|i| {
            s.write("f", format!("{i}"));
            s.spawn(["capture", "--json"])
        })
        .collect();
    for child in children {
        let out = child.wait_with_output().expect("wait");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let list = s.ok(["list", "--all"]);
    let rows = list["snapshots"].as_array().expect("rows");
    for pair in rows.windows(2) {
        assert_eq!(pair[0]["parent"], pair[1]["id"]);
        assert_eq!(pair[0]["seq"].as_u64(), pair[1]["seq"].as_u64().map(|n| n + 1));
    }
    assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
    assert_eq!(s.run(["show", "latest", "--cat", "f"]).expect(0).stdout.len(), 1);
}

/// Starts a command that stops itself at a point, does `meanwhile`, and lets it go on.
fn stopped_at(s: &Sandbox, point: &str, args: &[&str], meanwhile: impl FnOnce()) -> (i32, Value) {
    let mut command = s.command(args);
    command.arg("--json").env("BACKTRAIL_FAULT", format!("{point}:1:stop"));
    let child = command.spawn().expect("start");
    stopped(&child);
    meanwhile();
    signal(&child, Signal::CONT);
    let out = child.wait_with_output().expect("wait");
    let json = serde_json::from_slice(&out.stdout).expect("one JSON document");
    (out.status.code().unwrap_or(-1), json)
}

#[test]
fn cap_046_a_root_replaced_during_a_capture_publishes_nothing() {
    let s = sandbox();
    s.write("f", "1");
    let (code, json) = stopped_at(&s, "capture.objects", &["capture"], || {
        fs::rename(s.workspace(), s.top().join("aside")).expect("rename");
        fs::create_dir(s.workspace()).expect("mkdir");
    });
    assert_eq!((code, &json["error"]["code"]), (4, &json!("root-moved")), "{json}");
    assert_eq!(s.ok(["list"])["total"], 0);
}

#[test]
fn res_046_an_edit_between_plan_and_swap_survives() {
    for point in ["restore.banked", "restore.staged", "restore.applying"] {
        let (s, _, mut now) = changed(24);
        let edited = s.path("d1/f1");
        let args = ["restore", "target", "--yes"];
        let (code, json) = stopped_at(&s, point, &args, || {
            fs::write(&edited, "edited meanwhile").expect("write");
        });
        assert_eq!(code, 4, "{point}: {json}");
        now.insert(
            b"d1/f1".to_vec(),
            backtrail_tests::cli::Entry::File(0o644, b"edited meanwhile".to_vec()),
        );
        assert_same_tree(&s.tree(), &now);
        no_staging(s.workspace());
    }
}

#[test]
fn cap_092_a_lock_file_written_by_hand_has_no_effect() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    let locks = s.store().join("locks");
    for (pid, host) in [(1, "here"), (std::process::id(), "here"), (4_000_000, "an-old-host")] {
        for name in [format!("workspace/{key}"), format!("chain/ws/{key}"), "objects".to_owned()] {
            let holder = json!({
                "guard": "by-hand", "program": "x", "host": host, "pid": pid,
                "since": "2020-01-01T00:00:00Z", "ttl_ms": 0,
            });
            let file = locks.join(format!("{name}.holder"));
            fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
            fs::write(&file, holder.to_string()).expect("write");
        }
        s.write("f", format!("edit {pid}"));
        assert_eq!(s.ok(["capture", "--wait", "0"])["created"], true);
        s.ok(["restore", "latest~1", "--yes", "--wait", "0"]);
    }
}
