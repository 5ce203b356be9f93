//! What a restore does with each path: RES-001 to 003, 010, 011, 017 to 019.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use backtrail_tests::cli::assert_same_tree;
use serde_json::json;

use crate::{counts, go, json, leftovers, refused, sandbox, stamp, strings};

#[test]
fn res_001_k29_only_what_differs_is_touched() {
    let s = sandbox();
    for i in 0..100 {
        s.write(format!("d{}/f{i:02}", i % 7), format!("content {i}\n"));
    }
    let then = s.tree();
    s.capture();
    let names: Vec<_> = (0..100).map(|i| s.path(format!("d{}/f{i:02}", i % 7))).collect();
    let before: Vec<_> = names.iter().map(stamp).collect();
    s.write("d1/f01", "edited\n");
    s.remove("d2/f02");
    s.write("new.txt", "made\n");
    s.write("deep/er/new.txt", "made too\n");
    s.write("d3/beside", "made as well\n");
    let done = go(&s, &["restore", "latest"], 0);
    assert_same_tree(&s.tree(), &then);
    counts(&done, &[("written", 2), ("unchanged", 98), ("deleted", 3), ("dirs_removed", 2)]);
    assert_eq!(done["bytes"]["written"], 20);
    assert_eq!(done["bytes"]["banked"], 7 + 5 + 9 + 13);
    assert_eq!(strings(&done["written_paths"], ""), ["d1/f01", "d2/f02"]);
    let gone = ["d3/beside", "deep/er/new.txt", "new.txt"];
    assert_eq!(strings(&done["deleted_paths"], ""), gone);
    let after: Vec<_> = names.iter().map(stamp).collect();
    for i in (0..100).filter(|i| ![1, 2].contains(i)) {
        assert_eq!(after[i], before[i], "{}", names[i].display());
    }
    assert!(leftovers(&s).is_empty());
}

/// The directory part, without a run: K10 (c).
#[test]
fn res_002_directories_go_when_emptied_and_only_then() {
    let s = sandbox();
    s.mkdir("empty-then");
    s.write("a", "a\n");
    s.capture();
    s.write("made/by/run/x", "x\n");
    s.write("made/by/y", "y\n");
    s.mkdir("empty-now");
    s.mkdir("made/hollow");
    let done = go(&s, &["restore", "latest"], 0);
    // An empty directory that nothing proves to be a run's own stays, and so do those
    // above it.
    counts(&done, &[("unchanged", 1), ("deleted", 2), ("dirs_removed", 2)]);
    for (dir, stays) in
        [("empty-then", true), ("empty-now", true), ("made/hollow", true), ("made/by", false)]
    {
        assert_eq!(s.path(dir).is_dir(), stays, "{dir}");
    }
    // Named, it may go; one that the snapshot holds comes back.
    fs::remove_dir(s.path("empty-then")).expect("rmdir");
    let done = go(&s, &["restore", "latest", "empty-now", "empty-then", "made"], 0);
    counts(&done, &[("dirs_created", 1), ("dirs_removed", 3)]);
    assert!(s.path("empty-then").is_dir() && !s.path("empty-now").exists());
    assert!(!s.path("made").exists());
}

/// K10 (a) and (b).
#[test]
fn res_003_deletions_travel_in_both_directions() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("d/sub/b", "b\n");
    let full = s.tree();
    let first = s.capture();
    s.remove("a");
    s.remove("d");
    let bare = s.tree();
    let second = s.capture();
    s.write("a", "again\n");
    let done = go(&s, &["restore", &second], 0);
    counts(&done, &[("deleted", 1)]);
    assert_same_tree(&s.tree(), &bare);
    let done = go(&s, &["restore", &first], 0);
    counts(&done, &[("written", 2), ("dirs_created", 2)]);
    assert_same_tree(&s.tree(), &full);
    let done = go(&s, &["restore", &second], 0);
    counts(&done, &[("deleted", 2), ("dirs_removed", 2)]);
    assert_same_tree(&s.tree(), &bare);
}

#[test]
fn res_010_k57_a_missing_object_stops_only_what_needs_it() {
    let s = sandbox();
    s.write("lost.txt", "this content will be lost\n");
    s.write("d/other.txt", "this stays\n");
    s.capture();
    let rows = s.ok(["show", "latest", "--files"]);
    let row = rows["files"].as_array().expect("files").iter().find(|f| f["path"] == "lost.txt");
    let hex = row.expect("the file")["digest"].as_str().expect("a digest").to_owned();
    let dir = s.store().join("workspace-objects").join(&hex[..2]);
    let file = [hex[2..].to_owned(), format!("{}.zst", &hex[2..])].map(|n| dir.join(n));
    let file = file.into_iter().find(|f| f.exists()).expect("the object");
    fs::remove_file(&file).expect("remove");
    s.write("lost.txt", "edited\n");
    s.write("d/other.txt", "edited\n");
    let now = s.tree();
    let error = go(&s, &["restore", "latest"], 7)["error"].clone();
    assert_eq!(error["code"], "corrupt", "{error}");
    assert!(error.to_string().contains("lost.txt"), "the path is named: {error}");
    assert_same_tree(&s.tree(), &now);
    assert!(leftovers(&s).is_empty());
    let done = go(&s, &["restore", "latest", "--path", "d/other.txt"], 0);
    counts(&done, &[("written", 1)]);
    assert_eq!(fs::read(s.path("d/other.txt")).expect("there"), b"this stays\n");
    assert_eq!(fs::read(s.path("lost.txt")).expect("there"), b"edited\n");
}

#[test]
fn res_011_paths_outside_or_unknown_are_told() {
    let mut s = sandbox();
    s.write("a", "a\n");
    s.write("sub/b", "b\n");
    s.capture();
    s.write("a", "edited\n");
    let now = s.tree();
    for outside in ["../x", "/etc/passwd", "sub/../../x"] {
        for form in
            [vec!["restore", "latest", outside], vec!["restore", "latest", "--path", outside]]
        {
            let error = refused(&s, &form, 2);
            assert_eq!(error["code"], "outside-workspace", "{error}");
        }
    }
    let error = refused(&s, &["restore", "latest", "a", "nothing-here"], 6);
    assert_eq!(error["paths"], json!(["nothing-here"]));
    assert_same_tree(&s.tree(), &now);
    // From a subdirectory a relative path starts there.
    let sub = s.path("sub");
    s.set_workspace(&sub);
    let done = go(&s, &["restore", "latest", "../a"], 0);
    assert_eq!(strings(&done["written_paths"], ""), ["a"]);
}

#[test]
fn res_017_a_mode_alone_is_one_chmod() {
    let s = sandbox();
    s.write("run.sh", "#!/bin/sh\n");
    s.write("d/x", "x\n");
    s.chmod("run.sh", 0o755);
    s.capture();
    s.chmod("run.sh", 0o600);
    s.chmod("d", 0o700);
    let (file, dir) = (stamp(s.path("run.sh")), stamp(s.path("d")));
    let done = go(&s, &["restore", "latest"], 0);
    counts(&done, &[("unchanged", 1), ("mode_changed", 2)]);
    assert_eq!(done["bytes"]["written"], 0);
    assert_eq!((stamp(s.path("run.sh")), stamp(s.path("d"))), (file, dir));
    assert_eq!(fs::metadata(s.path("run.sh")).expect("there").mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(s.path("d")).expect("there").mode() & 0o7777, 0o755);
    let undone = go(&s, &["undo"], 0);
    counts(&undone, &[("mode_changed", 2)]);
    assert_eq!(fs::metadata(s.path("run.sh")).expect("there").mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(s.path("d")).expect("there").mode() & 0o7777, 0o700);
}

#[test]
fn res_018_kept_paths_leave_the_plan() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("d/b", "b\n");
    s.write("d/c", "c\n");
    s.capture();
    s.write("a", "edited\n");
    s.write("d/b", "edited\n");
    s.write("d/c", "edited\n");
    s.write("added.txt", "mine\n");
    s.write("other.txt", "made\n");
    for wrong in [
        vec!["--keep", "nothing-here"],
        vec!["--take", "nothing-here"],
        vec!["--keep", "a", "--take", "a"],
        vec!["--keep", "a", "--keep", "a"],
    ] {
        let args = [vec!["restore", "latest", "--yes"], wrong].concat();
        let error = refused(&s, &args, 2);
        assert!(error["message"].as_str().expect("text").contains("path"), "{error}");
    }
    assert_eq!(fs::read(s.path("a")).expect("there"), b"edited\n");
    let done = go(&s, &["restore", "latest", "--keep", "added.txt", "--keep", "d"], 0);
    counts(&done, &[("written", 1), ("deleted", 1)]);
    assert_eq!(fs::read(s.path("a")).expect("there"), b"a\n");
    assert_eq!(fs::read(s.path("d/b")).expect("there"), b"edited\n");
    assert_eq!(fs::read(s.path("d/c")).expect("there"), b"edited\n");
    assert!(s.path("added.txt").exists() && !s.path("other.txt").exists());
    let done = go(&s, &["restore", "latest", "--no-delete"], 0);
    counts(&done, &[("written", 2), ("unchanged", 1)]);
    assert!(s.path("added.txt").exists());
}

#[test]
fn res_019_an_empty_file_is_content() {
    let s = sandbox();
    s.write("empty-then", "");
    s.write("a", "a\n");
    s.capture();
    s.remove("empty-then");
    s.write("empty-now", "");
    s.write("a", "");
    let plan = json(&s, &["restore", "latest", "--dry-run"], 0);
    counts(&plan, &[("written", 2), ("deleted", 1)]);
    let done = go(&s, &["restore", "latest"], 0);
    counts(&done, &[("written", 2), ("deleted", 1)]);
    assert_eq!(fs::read(s.path("empty-then")).expect("back"), b"");
    assert!(!s.path("empty-now").exists());
    assert_eq!(fs::read(s.path("a")).expect("there"), b"a\n");
    go(&s, &["undo"], 0);
    assert!(s.path("empty-now").exists() && !s.path("empty-then").exists());
    assert_eq!(fs::read(s.path("a")).expect("there"), b"");
}
