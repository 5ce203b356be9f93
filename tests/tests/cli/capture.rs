//! `capture`: what it records, prints and ends with.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use backtrail_tests::cli::id;
use serde_json::json;

use crate::sandbox;

#[test]
fn cap_013_an_unchanged_workspace_adds_no_snapshot() {
    let s = sandbox();
    s.write("a.txt", "a\n");
    let first = s.ok(["capture", "--label", "one"]);
    assert_eq!(first["created"], true);
    let again = s.ok(["capture", "--label", "two", "-m", "still the same"]);
    assert_eq!((&again["created"], &again["id"]), (&json!(false), &first["id"]));
    let list = s.ok(["list"]);
    let rows = list["snapshots"].as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["label"], "one");
    assert_eq!(rows[0]["labels"], json!(["one", "two"]));
    assert_eq!(rows[0]["notes"][0]["message"], "still the same");
    let human = s.run(["capture"]).expect(0);
    assert!(human.out().starts_with(&format!("unchanged {}", &id(&first)[..8])), "{human}");
}

#[test]
fn cap_012_a_chain_has_parents_and_labels() {
    let s = sandbox();
    s.write("a.txt", "a\n");
    s.write("b.txt", "b\n");
    let first = s.ok(["capture", "--label", "one"]);
    s.write("a.txt", "changed\n");
    s.remove("b.txt");
    let second = s.ok(["capture", "--label", "two"]);
    assert_eq!(second["parent"], first["id"]);
    assert_eq!(second["delta"], json!({ "added": 0, "modified": 1, "deleted": 1 }));
    let list = s.ok(["list"]);
    assert_eq!(list["head"], second["id"]);
    assert_eq!(id(&s.ok(["show", "one"])), id(&first));
    assert_eq!(id(&s.ok(["show", "latest~1"])), id(&first));
    let files = s.ok(["show", "two", "--files"]);
    let paths: Vec<&str> = files["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter_map(|f| f["path"].as_str())
        .collect();
    assert_eq!(paths, ["a.txt"]);
    assert_eq!(s.run(["show", "one", "--cat", "b.txt"]).expect(0).out(), "b\n");
}

#[test]
fn cap_104_what_is_not_covered_is_the_same_in_text_json_and_code() {
    let s = sandbox();
    s.write("kept.txt", "kept\n");
    s.write("large.bin", vec![1; 2 << 20]);
    let run = s.run(["capture", "--max-file", "1MiB", "--json"]).expect(3);
    let json = run.json();
    assert_eq!((&json["exit_code"], &json["coverage"]["complete"]), (&json!(3), &json!(false)));
    assert_eq!(json["coverage"]["skipped"]["too-large"], 1);
    assert_eq!(json["coverage"]["records"][0]["path"], "large.bin");
    let human = s.run(["capture", "--max-file", "1MiB"]).expect(3);
    assert!(human.out().contains("not covered: 1 (1 over 1.0 MiB)"), "{human}");
    // the printed command works when pasted
    let hint = human.out().lines().find_map(|l| Some(l.split_once("backtrail ")?.1.to_owned()));
    let hint = hint.expect("a command");
    let shown = s.run(hint.split(' ')).expect(0);
    assert!(shown.out().contains("large.bin"), "{shown}");
    let list = s.run(["list"]).expect(0);
    assert!(list.out().contains("incomplete"), "{list}");
}

#[test]
fn cap_086_accept_incomplete_changes_the_code_alone() {
    let s = sandbox();
    s.write("large.bin", vec![1; 2 << 20]);
    let args = ["capture", "--max-file", "1MiB", "--accept-incomplete"];
    let json = s.ok(args);
    assert_eq!((&json["exit_code"], &json["coverage"]["complete"]), (&json!(0), &json!(false)));
}

#[test]
fn cap_020_bad_labels_are_usage_errors_at_creation_and_at_lookup() {
    let s = sandbox();
    s.write("a", "a");
    s.capture();
    let long = "x".repeat(201);
    for bad in ["", " ", "../x", "a/b", ".", "latest", "cafe12", &long, "post:x:0", "a#1"] {
        let run = s.run(["capture", "--json", "--label", bad]).expect(2);
        assert_eq!(run.error_code(), "bad-label", "{bad:?}: {run}");
        let run = s.run(["label", bad, "latest", "--json"]).expect(2);
        assert_eq!(run.error_code(), "bad-label", "{bad:?}: {run}");
    }
    for bad in ["", " ", "../x", "a/b", ".", &long, "a#1"] {
        let run = s.run(["show", bad, "--json"]).expect(2);
        assert_eq!(run.error_code(), "bad-label", "{bad:?}: {run}");
        assert!(run.out().contains("1-200 bytes"), "{run}");
    }
    for bad in ["", "..", "a\nb"] {
        s.run(["list", "--run", bad]).expect(2);
    }
}

#[test]
fn cap_043_a_subdirectory_belongs_to_the_workspace_above() {
    let mut s = sandbox();
    let top = s.workspace().to_path_buf();
    s.write("sub/f.txt", "1\n");
    let first = s.ok(["capture"]);
    s.write("a.txt", "new\n");
    s.set_workspace(top.join("sub"));
    let second = s.ok(["capture"]);
    assert_eq!((&second["chain"], &second["parent"]), (&first["chain"], &first["id"]));
    assert_eq!(second["delta"]["added"], 1);
    assert_eq!(second["workspace"]["root"], top.display().to_string());
}

#[test]
fn cap_049_a_root_may_have_any_name_but_git_s() {
    let mut s = sandbox();
    for name in ["node_modules", "target"] {
        s.set_workspace(s.top().join(name));
        s.write("f.txt", "f\n");
        assert_eq!(s.ok(["capture"])["counts"]["files"], 1);
    }
    s.set_workspace(s.top().join("w/.git"));
    s.write("f.txt", "f\n");
    let run = s.run(["capture", "-w", ".", "--json"]).expect(2);
    assert_eq!(run.error_code(), "unsafe-root");
    let home = s.home();
    for root in ["/", home.to_str().expect("text")] {
        let run = s.run(["capture", "-w", root, "--json"]).expect(2);
        assert_eq!(run.error_code(), "unsafe-root");
        assert!(run.out().contains("--any-root"), "{run}");
    }
}

#[test]
fn cap_057_missing_unreadable_and_empty_roots() {
    let s = sandbox();
    let run = s.run(["capture", "-w", "gone", "--json"]).expect(6);
    assert_eq!(run.error_code(), "not-found");
    let json = s.ok(["capture"]);
    assert_eq!(json["counts"]["files"], 0);
    assert_eq!(json["warnings"][0]["code"], "nothing-captured");
    if !rustix::process::geteuid().is_root() {
        s.mkdir("closed");
        s.chmod("closed", 0);
        let run = s.run(["capture", "-w", "closed", "--json"]).expect(1);
        assert_eq!(run.error_code(), "root-unreadable");
        s.chmod("closed", 0o755);
    }
}

#[test]
fn cap_083_the_store_is_private_and_holds_no_environment() {
    let mut s = sandbox();
    s.env("MARKER_OF_THE_TEST", "environment-text-9c1f");
    s.write("secret-ish.txt", "x\n");
    s.chmod("secret-ish.txt", 0o600);
    s.ok(["capture", "-m", "note"]);
    let mut files = 0;
    let mut todo = vec![s.store(), s.home().join(".cache")];
    while let Some(dir) = todo.pop() {
        assert_eq!(fs::metadata(&dir).expect("stat").mode() & 0o777, 0o700, "{}", dir.display());
        for entry in fs::read_dir(&dir).expect("list") {
            let path = entry.expect("entry").path();
            let meta = fs::symlink_metadata(&path).expect("lstat");
            if meta.is_dir() {
                todo.push(path);
                continue;
            }
            files += 1;
            assert_eq!(meta.mode() & 0o777, 0o600, "{}", path.display());
            let bytes = fs::read(&path).expect("read");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("environment-text-9c1f"), "{}", path.display());
        }
    }
    assert!(files > 4);
}

#[test]
fn cap_085_modes_are_recorded_exactly() {
    let s = sandbox();
    let modes = [0o755, 0o600, 0o700, 0o4755, 0o2775, 0o444];
    for mode in modes {
        s.write(format!("f{mode:o}"), "x\n");
        s.chmod(format!("f{mode:o}"), mode);
    }
    s.mkdir("d");
    s.chmod("d", 0o711);
    s.capture();
    let json = s.ok(["show", "latest", "--files"]);
    let files = json["files"].as_array().expect("files");
    for mode in modes {
        let row = files.iter().find(|f| f["path"] == format!("f{mode:o}")).expect("row");
        assert_eq!(row["mode"], format!("{mode:04o}"));
    }
    assert_eq!(files.iter().find(|f| f["path"] == "d").expect("d")["mode"], "0711");
    let before = id(&json);
    fs::set_permissions(s.path("d"), fs::Permissions::from_mode(0o755)).expect("chmod");
    assert_ne!(s.capture(), before);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_it_would_store() {
    let s = sandbox();
    s.write("a.txt", "a\n");
    let json = s.ok(["capture", "--dry-run"]);
    assert_eq!((&json["dry_run"], &json["counts"]["files"]), (&json!(true), &json!(1)));
    assert_eq!(s.ok(["list"])["snapshots"], json!([]));
    assert!(!s.home().join(".cache/backtrail").exists());
}

#[test]
fn a_store_inside_the_workspace_is_never_captured() {
    let mut s = sandbox();
    let store = s.path("history");
    let cache = s.path("cache");
    s.env("BACKTRAIL_STORE", &store).env("BACKTRAIL_CACHE_DIR", &cache);
    s.write("a.txt", "a\n");
    let first = s.ok(["capture"]);
    assert_eq!(first["counts"]["files"], 1);
    assert_eq!(first["coverage"]["excluded"]["always"], 2);
    assert_eq!(s.ok(["capture"])["created"], false);
}
