//! Several at once: captures, restores, and what hand-written lock files are worth.

use std::collections::BTreeSet;
use std::fs;
use std::process::Child;

use backtrail_core::store::{LockMode, LockName, LockRequest};
use backtrail_tests::cli::{Sandbox, id};
use backtrail_tests::history::run;
use serde_json::{Value, json};

use crate::lib_side::Lib;
use crate::sandbox;
use crate::snapshots::wait_for;

/// The JSON results of commands that must all succeed.
fn results(children: Vec<Child>) -> Vec<Value> {
    let one = |c: Child| {
        let out = c.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_str(&text).expect("JSON")
    };
    children.into_iter().map(one).collect()
}

/// One chain: no number twice, each the child of the one before.
fn assert_linear(s: &Sandbox) -> Vec<Value> {
    let list = s.ok(["list", "--all"]);
    assert_eq!(list["unreadable"], json!([]));
    let rows = list["snapshots"].as_array().expect("rows").clone();
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row["seq"], rows.len() - 1 - i, "{list}");
        assert_eq!(row["parent"], json!(rows.get(i + 1).map(|r| &r["id"])), "{list}");
    }
    rows
}

#[test]
fn cap_090_twenty_captures_at_once_make_one_chain() {
    let s = sandbox();
    s.write("f", "0");
    s.ok(["capture", "--label", "now"]);
    let mut children = Vec::new();
    for i in 0..20 {
        s.write("f", format!("state {i}"));
        let own = format!("own-{i}");
        children.push(s.spawn(["capture", "--label", &own, "--wait", "120s", "--json"]));
        children.push(s.spawn(["capture", "--label", "now", "--move", "--wait", "120s", "--json"]));
    }
    let done = results(children);
    let rows = assert_linear(&s);
    let listed: BTreeSet<&str> = rows.iter().filter_map(|r| r["id"].as_str()).collect();
    assert!(done.iter().all(|d| listed.contains(d["id"].as_str().expect("an id"))));
    for i in 0..20 {
        let own = id(&s.ok(["show", &format!("own-{i}")]));
        assert!(listed.contains(own.as_str()));
    }
    // whoever came last moved the label to what was the head then
    let now = id(&s.ok(["show", "now"]));
    let newest = done.iter().filter(|d| d["label"] == "now").max_by_key(|d| d["seq"].as_u64());
    assert_eq!(newest.expect("one")["id"], now);
    run(async { Lib::of(&s).await.assert_clean().await });
}

#[test]
fn cap_090_sixteen_workspaces_share_one_new_store() {
    let mut s = sandbox();
    let dirs: Vec<_> = (0..16).map(|i| s.top().join(format!("w{i}"))).collect();
    let mut children = Vec::new();
    for dir in &dirs {
        for i in 0..30 {
            fs::create_dir_all(dir.join("d")).expect("mkdir");
            fs::write(dir.join(format!("d/f{i}")), format!("shared {i}\n")).expect("write");
        }
    }
    for dir in &dirs {
        s.set_workspace(dir);
        children.push(s.spawn(["capture", "--wait", "120s", "--json"]));
    }
    let done = results(children);
    assert!(done.iter().all(|d| d["created"] == true && d["seq"] == 0));
    let objects = crate::files_below(&s.store().join("workspace-objects"));
    assert_eq!(objects.len(), 30 + 2 + 1, "each content, the two trees and the rules once");
    for dir in &dirs {
        s.set_workspace(dir);
        assert_eq!(assert_linear(&s).len(), 1);
        run(async { Lib::of(&s).await.assert_clean().await });
    }
}

#[test]
fn cap_091_a_capture_waits_for_a_restore_or_is_busy() {
    let s = sandbox();
    s.write("f", "x");
    s.capture();
    s.write("f", "y");
    run(async {
        let lib = Lib::of(&s).await;
        let name = LockName::Workspace(lib.root.key.clone());
        let request = LockRequest::new(name, LockMode::Exclusive, Default::default(), "restore");
        let guard = lib.store.lock(request).await.expect("a lock");
        let busy = s.run(["capture", "--wait", "200ms", "--json"]).expect(5);
        assert_eq!(busy.error_code(), "busy");
        let pid = std::process::id().to_string();
        assert!(busy.out().contains("restore") && busy.out().contains(&pid), "{busy}");
        let waiting = s.spawn(["capture", "--wait", "60s", "--json"]);
        let asked = format!("/proc/{}/fd", waiting.id());
        wait_for("the capture to ask for the lock", || {
            let fds = fs::read_dir(&asked).into_iter().flatten().flatten();
            fds.filter_map(|f| fs::read_link(f.path()).ok())
                .any(|p| p.to_string_lossy().contains("/locks/"))
        });
        guard.release().await.expect("release");
        assert_eq!(results(vec![waiting])[0]["created"], true);
    });
}

#[test]
fn cap_091_after_a_killed_restore_a_capture_says_how_to_end_it() {
    let mut s = sandbox();
    for i in 0..20 {
        s.write(format!("f{i}"), "old");
    }
    let first = s.capture();
    for i in 0..20 {
        s.write(format!("f{i}"), "new");
    }
    s.env("BACKTRAIL_FAULT", "restore.step:5:kill");
    s.run(["restore", &first, "--yes"]).expect(137);
    s.env_remove("BACKTRAIL_FAULT");
    let refused = s.run(["capture", "--json"]).expect(4);
    assert_eq!(refused.error_code(), "recovery-needed");
    for command in ["restore --finish", "restore --roll-back"] {
        assert!(refused.out().contains(command), "{refused}");
    }
    s.run(["restore", "--roll-back", "--yes"]).expect(0);
    let after = s.ok(["capture"]);
    assert_eq!(after["counts"]["files"], 20);
    assert!((0..20).all(|i| fs::read(s.path(format!("f{i}"))).expect("read") == b"new"));
}

#[test]
fn cap_092_lock_files_written_by_hand_hold_nothing() {
    let s = sandbox();
    s.write("f", "0");
    s.capture();
    let dir = s.store().join("locks");
    let names = crate::files_below(&dir);
    assert!(names.iter().any(|n| n.extension() == Some("holder".as_ref())), "{names:?}");
    let own = std::process::id();
    let hosts = [rustix::system::uname().nodename().to_string_lossy().into_owned(), "old".into()];
    for (n, pid) in [1, own, std::os::unix::process::parent_id()].into_iter().enumerate() {
        for host in &hosts {
            let holder = json!({
                "guard": "0".repeat(32), "program": "backtrail 0.1.0 restore", "host": host,
                "pid": pid, "since": "2026-01-01T00:00:00.000000000Z", "ttl_ms": 0, "refs": [],
            });
            for name in &names {
                let is_token = name.extension() == Some("token".as_ref());
                fs::write(name, if is_token { "junk".into() } else { holder.to_string() })
                    .expect("write");
            }
            s.write("f", format!("{n} {host}"));
            let done = s.run(["capture", "--wait", "0", "--json"]).expect(0).json();
            assert_eq!(done["created"], true);
        }
    }
    assert_eq!(assert_linear(&s).len(), 7);
}
