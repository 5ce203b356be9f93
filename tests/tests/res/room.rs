//! Full and foreign file systems: RES-048, RES-049.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use backtrail_tests::cli::{Sandbox, assert_same_tree, finish, tree};
use backtrail_tests::host::Mount;
use rustix::process::{Pid, Signal, kill_process};

use crate::{go, json, leftovers, refused, sandbox, strings};

/// Bytes that do not compress.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Writes until the disk is full.
fn fill(s: &Sandbox, name: &str) {
    let mut file = fs::File::create(s.path(name)).expect("create");
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// K18: a workspace of 3 MiB; `f` was 2.5 MiB and is 1 MiB now; the rest is full.
#[test]
fn res_048_k18_a_full_disk_leaves_the_old_file_whole() {
    let s = sandbox();
    let Some(_mount) = Mount::new(s.workspace(), "size=3m,mode=755") else { return };
    s.write(".gitignore", "filler\n");
    s.write("f", noise(1, 5 << 19));
    s.capture();
    s.write("f", noise(2, 1 << 20));
    fill(&s, "filler");
    let now = s.tree();
    // Refused by estimate, in the preview and for real.
    for form in [vec!["restore", "latest", "--dry-run"], vec!["restore", "latest", "--yes"]] {
        let error = refused(&s, &form, 1);
        assert_eq!(error["code"], "no-space", "{error}");
        assert_same_tree(&s.tree(), &now);
    }
    assert_eq!(s.ok(["list"])["snapshots"].as_array().expect("rows").len(), 1, "no bank");
    // Met only while staging.
    let error = go(&s, &["restore", "latest", "--no-space-check"], 1)["error"].clone();
    assert!(
        ["no-space", "bank-failed"].contains(&error["code"].as_str().expect("code")),
        "{error}"
    );
    assert_same_tree(&s.tree(), &now);
    assert!(leftovers(&s).is_empty());
    // Half of the room is enough to begin staging.
    let half = fs::File::options().write(true).open(s.path("filler")).expect("open");
    half.set_len(200 << 10).expect("cut");
    let now = s.tree();
    let error = go(&s, &["restore", "latest", "--no-space-check"], 1)["error"].clone();
    assert_eq!(error["code"], "no-space", "{error}");
    assert_same_tree(&s.tree(), &now);
    assert!(leftovers(&s).is_empty());
    s.ok(["verify", "--deep"]);
    // Elsewhere there is room; here too, once it is made.
    let into = s.top().join("into");
    json(&s, &["restore", "latest", "--into", into.to_str().expect("text")], 0);
    assert_eq!(fs::read(into.join("f")).expect("there"), noise(1, 5 << 19));
}

/// K20: nothing depends on where TMPDIR and HOME are.
#[test]
fn res_049_k20_three_mounts_and_a_home_that_is_read_only() {
    let mut s = sandbox();
    let tmp = s.top().join("tmp");
    let mounts = [
        Mount::new(s.store(), "size=32m,mode=700"),
        Mount::new(s.workspace(), "size=32m,mode=755"),
        Mount::new(&tmp, "size=1m,mode=700"),
        Mount::new(s.home(), "size=1m,mode=755"),
    ];
    if mounts.iter().any(Option::is_none) {
        return;
    }
    mounts[3].as_ref().expect("mounted").remount("ro");
    s.env("TMPDIR", &tmp);
    s.write("a", noise(1, 100_000));
    s.write("d/b", "b\n");
    let then = s.tree();
    let id = s.capture();
    s.write("a", noise(2, 50_000));
    s.remove("d");
    s.write("made/c", "c\n");
    let now = s.tree();
    go(&s, &["restore", &id], 0);
    assert_same_tree(&s.tree(), &then);
    go(&s, &["undo"], 0);
    assert_same_tree(&s.tree(), &now);
    s.ok(["prune", "--keep", "1", "--instant", "--yes"]);
    s.ok(["verify", "--deep"]);
    assert!(fs::read_dir(&tmp).expect("list").next().is_none(), "TMPDIR was used");
}

/// K22: 30 first commands are killed; what they left is in nobody's way.
#[test]
fn res_049_k22_killed_first_commands_block_nothing() {
    let s = sandbox();
    for i in 0..60 {
        s.write(format!("d{}/f{i}", i % 5), format!("{i}\n").repeat(200));
    }
    let then = s.tree();
    for n in 0..30u64 {
        let mut child = s.spawn(["capture"]);
        std::thread::sleep(Duration::from_millis(n * 5 % 97));
        let pid = Pid::from_child(&child);
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
        child.wait().expect("ended");
    }
    s.ok(["capture"]);
    // And a restore that is killed before it changed anything.
    for i in 0..60 {
        s.write(format!("d{}/f{i}", i % 5), "edited\n");
    }
    for point in ["restore.banked", "restore.staged", "restore.journal"] {
        let mut command = s.command(["restore", "latest", "--yes"]);
        command.env("BACKTRAIL_FAULT", format!("{point}:1:kill"));
        assert_eq!(finish(command).code, 137, "{point}");
        let plan = json(&s, &["restore", "latest", "--dry-run"], 0);
        assert!(!plan.to_string().contains("backtrail-stage"), "{plan}");
        let found = s.ok(["capture"]);
        let files = s.ok(["show", found["id"].as_str().expect("an id"), "--files"]);
        assert!(!files.to_string().contains("backtrail-stage"), "{files}");
        assert!(leftovers(&s).is_empty(), "swept by the capture");
    }
    let list = s.ok(["list"]);
    let oldest = *strings(&list["snapshots"], "id").last().expect("one");
    go(&s, &["restore", oldest], 0);
    assert_same_tree(&s.tree(), &then);
    assert_same_tree(&tree(s.workspace()), &then);
    s.ok(["verify", "--deep"]);
}
