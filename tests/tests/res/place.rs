//! Where it is, and who else is there: RES-071, RES-073, RES-075, RES-077; a prompt that
//! waits while the workspace goes on.

use std::fs;

use backtrail_tests::cli::{Sandbox, assert_same_tree, finish, id};
use backtrail_tests::host::{as_nobody, at_terminal_after, give_to_nobody};

use crate::{counts, go, json, leftovers, refused, sandbox};

/// Killed at any point, DIR is absent or whole, and the next try works.
#[test]
fn res_071_a_killed_restore_into_leaves_all_or_nothing() {
    let s = sandbox();
    for i in 0..30 {
        s.write(format!("d{}/f{i}", i % 3), format!("{i}\n"));
    }
    let then = s.tree();
    s.capture();
    for present in [false, true] {
        for delay in [0, 3, 9, 20, 40, 80] {
            let dir = s.top().join(format!("into-{present}-{delay}"));
            if present {
                fs::create_dir(&dir).expect("mkdir");
            }
            let args = ["restore", "latest", "--into", dir.to_str().expect("text")];
            let mut child = s.spawn(args);
            std::thread::sleep(std::time::Duration::from_millis(delay));
            child.kill().expect("killed or ended");
            child.wait().expect("ended");
            let whole = dir.exists() && fs::read_dir(&dir).expect("list").next().is_some();
            if !whole {
                json(&s, &args, 0);
            }
            assert_same_tree(&backtrail_tests::cli::tree(&dir), &then);
        }
        let dir = s.top().join(format!("fault-{present}"));
        let args = ["restore", "latest", "--into", dir.to_str().expect("text")];
        let mut command = s.command(args);
        command.env("BACKTRAIL_FAULT", "restore.staged:1:kill");
        assert_eq!(finish(command).code, 137);
        assert!(!dir.exists());
        json(&s, &args, 0);
    }
}

/// K13: the link that named the workspace is a directory now.
#[test]
fn res_073_k13_a_link_replaced_by_a_directory() {
    let mut s = sandbox();
    let (real, w) = (s.top().join("real"), s.top().join("W"));
    fs::create_dir(&real).expect("mkdir");
    fs::write(real.join("f"), "old\n").expect("write");
    std::os::unix::fs::symlink(&real, &w).expect("link");
    let at = w.to_str().expect("text").to_owned();
    s.set_workspace(s.top());
    let first = id(&s.ok(["capture", "-w", &at]));
    // Through the link it is the real one.
    fs::write(real.join("f"), "edited\n").expect("write");
    go(&s, &["restore", "latest", "-w", &at], 0);
    assert_eq!(fs::read(real.join("f")).expect("there"), b"old\n");
    fs::remove_file(&w).expect("unlink");
    fs::create_dir(&w).expect("mkdir");
    fs::write(w.join("f"), "new\n").expect("write");
    // Before it was captured it has no history of its own.
    refused(&s, &["restore", "latest", "-w", &at, "--yes"], 6);
    refused(&s, &["restore", &first, "-w", &at, "--yes"], 4);
    s.ok(["capture", "-w", &at]);
    fs::write(w.join("f"), "v2\n").expect("write");
    let done = go(&s, &["restore", "latest", "-w", &at], 0);
    counts(&done, &[("written", 1)]);
    assert_eq!(fs::read(w.join("f")).expect("there"), b"new\n");
    assert_eq!(fs::read(real.join("f")).expect("there"), b"old\n");
    // And a directory that is a link now.
    fs::rename(&w, s.top().join("moved")).expect("rename");
    std::os::unix::fs::symlink(&real, &w).expect("link");
    fs::write(real.join("f"), "edited\n").expect("write");
    go(&s, &["restore", "latest", "-w", &at], 0);
    assert_eq!(fs::read(real.join("f")).expect("there"), b"old\n");
    assert_eq!(fs::read(s.top().join("moved/f")).expect("there"), b"new\n");
}

/// K79: no git, no home, nothing in it.
#[test]
fn res_075_k79_nothing_else_is_needed() {
    let round = |s: &Sandbox| {
        s.write("a", "a\n");
        s.mkdir(".hg");
        s.write(".hg/store", "of another tool\n");
        s.capture();
        s.write("a", "edited\n");
        go(s, &["restore", "latest"], 0);
        assert_eq!(fs::read(s.path("a")).expect("there"), b"a\n");
        go(s, &["undo"], 0);
        assert_eq!(fs::read(s.path("a")).expect("there"), b"edited\n");
    };
    let mut s = sandbox();
    let cache = s.top().join("cache");
    s.env("PATH", "/nonexistent").env_remove("HOME").env("BACKTRAIL_CACHE_DIR", cache);
    round(&s);
    let mut s = sandbox();
    s.env("PATH", "/nonexistent").env("HOME", "/proc/nowhere");
    round(&s);
    // Without a home and a store there is nowhere to keep it, and that is said.
    let mut s = sandbox();
    s.env("HOME", "/proc/nowhere").env_remove("BACKTRAIL_STORE");
    s.write("a", "a\n");
    give_to_nobody(&s.top());
    for verb in [vec!["capture", "--json"], vec!["restore", "latest", "--yes", "--json"]] {
        let run = as_nobody(s.command(verb));
        assert!([1, 6, 8].contains(&run.code), "{run}");
        assert!(run.json()["error"]["message"].is_string(), "{run}");
    }
    // An empty workspace is a state like any other.
    let s = sandbox();
    refused(&s, &["restore", "latest", "--yes"], 6);
    s.capture();
    json(&s, &["restore", "latest"], 0);
    s.write("a", "a\n");
    let done = go(&s, &["restore", "latest"], 0);
    counts(&done, &[("deleted", 1)]);
    assert!(s.tree().is_empty());
    go(&s, &["undo"], 0);
    assert_eq!(s.tree().len(), 1);
}

/// K60: each is done in turn, or refused; what was reported captured restores.
#[test]
fn res_077_k60_twenty_at_once() {
    let s = sandbox();
    s.write("a", "first\n");
    s.write("d/b", "b\n");
    let first = s.capture();
    let then = s.tree();
    s.write("a", "second\n");
    let now = s.tree();
    let start = |n: usize| match n % 2 {
        0 => s.spawn(["capture", "--json", "--label", &format!("l-{n}")]),
        _ => s.spawn(["restore", &first, "--yes", "--json"]),
    };
    let children: Vec<_> = (0..20).map(start).collect();
    let mut captured = Vec::new();
    for (n, child) in children.into_iter().enumerate() {
        let out = child.wait_with_output().expect("ended");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        match (out.status.code(), n % 2) {
            (Some(0), 0) => captured.push((format!("l-{n}"), id(&json))),
            (Some(0 | 5), _) => {}
            // Planned from a state that another one put back meanwhile.
            (Some(4), 1) => assert_eq!(json["error"]["code"], "changed-since-plan", "{said}"),
            _ => panic!("{n} ended with {:?}: {said}", out.status),
        }
    }
    assert_same_tree(&s.tree(), &then);
    assert!(!captured.is_empty());
    let list = s.ok(["list", "--all"]);
    for (label, id) in &captured {
        let row = list["snapshots"].as_array().expect("rows").iter().find(|r| r["id"] == **id);
        let labels = row.unwrap_or_else(|| panic!("{id} is not listed"))["labels"].to_string();
        assert!(labels.contains(label.as_str()), "{label} in {labels}");
    }
    for row in list["snapshots"].as_array().expect("rows") {
        go(&s, &["restore", row["id"].as_str().expect("an id")], 0);
        let tree = s.tree();
        assert!(tree == then || tree == now, "neither of the two: {tree:?}");
    }
    assert!(leftovers(&s).is_empty());
    s.ok(["verify", "--deep"]);
}

/// What was agreed to is what is done, or nothing; a head that moved meanwhile is no
/// reason against it.
#[test]
fn res_046_what_happens_while_a_prompt_waits() {
    let s = sandbox();
    s.write("a", "then\n");
    s.write("b", "then\n");
    let then = s.capture();
    s.write("a", "now\n");
    s.write("b", "now\n");
    let edit = || {
        s.write("b", "edited meanwhile\n");
    };
    let asked = at_terminal_after(s.command(["restore", "latest"]), edit, "y");
    assert_eq!(asked.code, 4, "{asked}");
    assert!(asked.stderr.contains("b changed after the restore was planned"), "{asked}");
    assert_eq!(fs::read(s.path("a")).expect("there"), b"now\n");
    assert_eq!(fs::read(s.path("b")).expect("there"), b"edited meanwhile\n");
    assert!(leftovers(&s).is_empty());
    let mut moved = String::new();
    let capture = || moved = s.capture();
    let asked = at_terminal_after(s.command(["restore", &then]), capture, "y");
    assert_eq!(asked.code, 0, "{asked}");
    assert_eq!(fs::read(s.path("b")).expect("there"), b"then\n");
    let list = s.ok(["undo", "--list"]);
    assert_eq!(list["operations"][0]["bank"]["snapshot"], moved, "the new head is the bank");
    go(&s, &["undo"], 0);
    assert_eq!(fs::read(s.path("b")).expect("there"), b"edited meanwhile\n");
}

/// K48: one large file stops nothing else, and the hint works as printed.
#[test]
fn k48_an_oversize_file_is_skipped_alone() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1MiB");
    s.write("a", "a\n");
    let first = s.capture();
    s.write("big.bin", vec![1; 2 << 20]);
    s.write("a", "edited\n");
    let run = s.run(["capture"]).expect(3);
    let hint = run.out().lines().find_map(|l| Some(l.split_once("backtrail ")?.1.to_owned()));
    let hint = hint.unwrap_or_else(|| panic!("a command: {run}"));
    assert!(s.run(hint.split(' ')).expect(0).out().contains("big.bin"), "{hint}");
    s.run(["list"]).expect(0);
    s.run(["diff", &first]).expect(0);
    let done = go(&s, &["restore", &first], 3);
    counts(&done, &[("written", 1), ("not_covered", 1)]);
    assert_eq!(fs::metadata(s.path("big.bin")).expect("stays").len(), 2 << 20);
    go(&s, &["undo"], 0);
    json(&s, &["capture"], 3);
}
