//! `restore`, `undo`, `redo` on real directories.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use backtrail_tests::cli::{Entry, Sandbox, assert_same_tree, id, tree};
use serde_json::{Value, json};

use crate::sandbox;

/// Restores, agreed to beforehand.
pub(crate) fn restore(s: &Sandbox, snapshot: &str) -> Value {
    s.ok(["restore", snapshot, "--yes"])
}

fn inode(s: &Sandbox, path: &str) -> (u64, i64, i64) {
    let meta = fs::symlink_metadata(s.path(path)).expect("stat");
    (meta.ino(), meta.mtime(), meta.mtime_nsec())
}

#[test]
fn res_001_edits_creations_and_deletions_go_back_and_the_rest_stays_as_it_is() {
    let s = sandbox();
    for i in 0..20 {
        s.write(format!("same/{i}"), format!("{i}\n"));
    }
    s.write("edited", "old\n");
    s.write("deep/er/deleted", "back\n");
    let before = s.tree();
    let first = s.capture();
    let untouched = inode(&s, "same/3");
    s.write("edited", "new\n");
    s.remove("deep");
    s.write("made/nested/file", "x\n");
    s.write("made.txt", "x\n");
    let done = restore(&s, &first);
    assert_same_tree(&s.tree(), &before);
    let c = &done["counts"];
    assert_eq!((&c["written"], &c["deleted"], &c["unchanged"]), (&json!(2), &json!(2), &json!(20)));
    assert_eq!(inode(&s, "same/3"), untouched);
    assert_eq!(done["deleted_paths"], json!(["made.txt", "made/nested/file"]));
    assert_eq!(done["exit_code"], 0);
}

#[test]
fn res_002_emptied_directories_go_and_empty_ones_of_before_stay() {
    let s = sandbox();
    s.mkdir("empty-before");
    s.write("f", "1");
    let first = s.capture();
    s.write("run/made/file", "x");
    restore(&s, &first);
    let names: Vec<String> =
        s.tree().into_keys().map(|k| String::from_utf8(k).expect("text")).collect();
    assert_eq!(names, ["empty-before", "f"]);
}

#[test]
fn res_003_what_was_there_then_decides() {
    let s = sandbox();
    s.write("p", "1");
    s.write("d/q", "1");
    let with = s.capture();
    s.remove("p");
    let without = s.capture();
    s.write("p", "again");
    s.remove("d");
    restore(&s, &without);
    assert!(!s.path("p").exists());
    assert!(s.path("d/q").exists());
    restore(&s, &with);
    assert_eq!(fs::read(s.path("p")).expect("read"), b"1");
}

#[test]
fn res_004_excluded_paths_are_never_touched() {
    let s = sandbox();
    s.write(".gitignore", "cache/\n*.log\n");
    s.write("a.log", "1");
    s.write("kept", "1");
    let ruled = s.capture();
    for i in 0..300 {
        s.write(format!("cache/{i}"), "x");
    }
    s.write("a.log", "2");
    s.write(".gitignore", "*.log\n");
    s.run(["capture"]);
    let open = id(&s.ok(["show", "latest"]));
    let run = s.run(["restore", &ruled, "--yes", "--json"]).expect(3);
    assert_eq!(run.json()["counts"]["kept"], 300, "{run}");
    assert_eq!(run.json()["conflicts"].as_array().map(Vec::len), Some(100), "{run}");
    assert!(s.path("cache/299").exists());
    assert_eq!(fs::read(s.path("a.log")).expect("read"), b"2");
    s.run(["restore", &open, "--yes"]).expect(3);
    assert!(s.path("cache/299").exists());
}

#[test]
fn res_005_and_006_what_is_not_covered_stays_and_is_reported() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1000");
    s.write("f", "1");
    s.write("large", vec![1; 2000]);
    s.write(".env", "SECRET=1");
    s.run(["capture"]).expect(3);
    s.write("f", "2");
    // proven unchanged: listed, and all is well
    let done = restore(&s, "latest");
    assert_eq!(done["not_covered"].as_array().map(Vec::len), Some(2), "{done}");
    assert_eq!(done["exit_code"], 0);
    s.write("large", vec![2; 2500]);
    s.write("f", "3");
    let run = s.run(["restore", "latest", "--yes", "--json"]).expect(3);
    let large = run.json()["not_covered"][1].clone();
    assert_eq!((&large["path"], &large["unchanged"]), (&json!("large"), &json!(false)));
    assert_eq!(fs::read(s.path("large")).expect("read"), vec![2; 2500]);
    assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
    let human = s.run(["restore", "latest", "--yes"]).expect(3);
    assert!(human.out().contains("not covered: 2"), "{human}");
}

#[test]
fn res_006_a_large_file_made_later_survives() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1000");
    s.write("f", "1");
    s.capture();
    s.write("later", vec![1; 2000]);
    s.write("f", "2");
    let run = s.run(["restore", "latest", "--yes", "--json"]);
    assert!(s.path("later").exists(), "{run}");
    assert!(run.out().contains("later"), "{run}");
}

#[test]
fn res_007_a_scoped_restore_reports_its_own_scope_alone() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1000");
    s.write("d/f", "1");
    s.write("large", vec![1; 2000]);
    s.run(["capture"]).expect(3);
    s.write("d/f", "2");
    s.write("large", vec![2; 2000]);
    let done = s.ok(["restore", "latest", "d", "--yes"]);
    assert_eq!(
        (&done["counts"]["not_covered"], &done["counts"]["written"]),
        (&json!(0), &json!(1))
    );
    s.write("d/f", "3");
    let run = s.run(["restore", "latest", "--yes", "--json"]).expect(3);
    assert_eq!(run.json()["counts"]["not_covered"], 1);
}

#[test]
fn res_008_ids_that_mean_nothing_change_nothing() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.write("f", "2");
    for (text, code) in
        [("0123456789abcdef", 6), ("nope", 6), ("", 2), ("../../etc/passwd", 2), ("a/b", 2)]
    {
        s.run(["restore", text, "--yes"]).expect(code);
        assert_eq!(fs::read(s.path("f")).expect("read"), b"2");
    }
}

#[test]
fn res_011_paths_outside_are_usage_errors_and_unknown_ones_not_found() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.run(["restore", "latest", "../x", "--yes"]).expect(2);
    s.run(["restore", "latest", "/etc/passwd", "--yes"]).expect(2);
    s.run(["restore", "latest", "gone", "--yes"]).expect(6);
}

#[test]
fn res_014_a_plan_is_bound_by_its_digest() {
    let s = sandbox();
    s.write("f", "1");
    s.write("g", "1");
    s.capture();
    s.write("f", "2");
    let digest = |s: &Sandbox| s.ok(["restore", "latest", "--dry-run"])["plan"].clone();
    let first = digest(&s);
    let now = fs::File::options().write(true).open(s.path("f")).expect("open");
    now.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("touch");
    assert_eq!(digest(&s), first);
    s.write("g", "2");
    let old = first.as_str().expect("text");
    let run = s.run(["restore", "latest", "--yes", "--json", "--plan", old]).expect(4);
    assert_eq!(run.error_code(), "plan-changed");
    assert_eq!(fs::read(s.path("f")).expect("read"), b"2");
    let new = digest(&s);
    s.ok(["restore", "latest", "--yes", "--plan", &new.as_str().expect("text")[..16]]);
    assert_eq!(fs::read(s.path("g")).expect("read"), b"1");
}

#[test]
fn res_015_a_dry_run_changes_nothing_anywhere() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.write("f", "2");
    s.write("g", "2");
    let all = || (s.tree(), tree(&s.store()), tree(&s.home()));
    let before = all();
    let plan = s.ok(["restore", "latest", "--dry-run"]);
    assert_eq!((&plan["state"], &plan["bank"]), (&json!("planned"), &json!(null)));
    let human = s.run(["restore", "latest", "--dry-run"]).expect(0);
    assert!(human.out().contains("delete (1):\n  g"), "{human}");
    let after = all();
    assert_same_tree(&after.0, &before.0);
    assert_same_tree(&after.1, &before.1);
    assert_same_tree(&after.2, &before.2);
}

#[test]
fn res_016_the_same_numbers_in_text_json_and_dry_run() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1000");
    for name in ["w1", "w2", "same"] {
        s.write(name, "1");
    }
    s.write("large", vec![1; 2000]);
    s.run(["capture"]).expect(3);
    let edit = || {
        for name in ["w1", "w2"] {
            s.write(name, "2");
        }
        for name in ["d1", "d2", "d3", "kept"] {
            s.write(name, "2");
        }
        s.write("large", vec![2; 2000]);
    };
    edit();
    let args = ["restore", "latest", "--keep", "kept"];
    let plan = s.run(args.iter().chain(&["--dry-run", "--json"])).expect(3).json();
    let done = s.run(args.iter().chain(&["--yes", "--json"])).expect(3).json();
    assert_eq!(plan["counts"], done["counts"]);
    let c = &done["counts"];
    assert_eq!(
        (&c["written"], &c["deleted"], &c["not_covered"]),
        (&json!(2), &json!(3), &json!(1))
    );
    edit();
    let text = s.run(args.iter().chain(&["--yes"])).expect(3).out();
    assert!(text.contains("2 written, 3 deleted"), "{text}");
    assert!(text.contains("not covered: 1 (over the size limit)"), "{text}");
}

#[test]
fn res_017_a_mode_alone_is_set_on_the_same_file() {
    let s = sandbox();
    s.write("f", "1");
    s.chmod("f", 0o640);
    s.capture();
    let (ino, mtime, ns) = inode(&s, "f");
    s.chmod("f", 0o600);
    let done = restore(&s, "latest");
    assert_eq!(
        (&done["counts"]["mode_changed"], &done["counts"]["written"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(fs::metadata(s.path("f")).expect("stat").mode() & 0o7777, 0o640);
    assert_eq!(inode(&s, "f"), (ino, mtime, ns));
}

#[test]
fn res_018_keep_takes_a_path_out() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.write("f", "2");
    s.write("added.txt", "x");
    s.ok(["restore", "latest", "--yes", "--keep", "added.txt"]);
    assert!(s.path("added.txt").exists());
    assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
    s.run(["restore", "latest", "--yes", "--keep", "unknown"]).expect(2);
    s.write("f", "3");
    s.run(["restore", "latest", "--yes", "--keep", "f", "--take", "f"]).expect(2);
}

#[test]
fn res_019_empty_files_are_content() {
    let s = sandbox();
    s.write("empty", "");
    s.capture();
    s.remove("empty");
    s.write("other-empty", "");
    restore(&s, "latest");
    assert_eq!(s.tree(), [(b"empty".to_vec(), Entry::File(0o644, Vec::new()))].into());
}

#[test]
fn res_020_without_a_person_and_yes_it_ends_at_once() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.write("f", "2");
    let run = s.run(["restore", "latest", "--json"]).expect(4);
    assert_eq!(run.error_code(), "confirmation-needed");
    assert_eq!(fs::read(s.path("f")).expect("read"), b"2");
    // nothing overwritten or deleted: nobody need agree
    s.write("f", "1");
    s.write("g", "1");
    s.capture();
    s.remove("g");
    s.ok(["restore", "latest"]);
    assert!(s.path("g").exists());
}

#[test]
fn res_013_deleting_most_of_the_workspace_needs_its_own_agreement() {
    let s = sandbox();
    s.write("f", "1");
    let small = s.capture();
    for i in 0..40 {
        s.write(format!("f{i}"), "x");
    }
    s.capture();
    let run = s.run(["restore", &small, "--yes"]).expect(4);
    assert!(run.stderr.contains("--allow-mass-delete"), "{run}");
    assert!(run.stderr.contains("deletes 40 of 41 files"), "{run}");
    assert!(s.path("f7").exists());
    s.ok(["restore", &small, "--yes", "--allow-mass-delete"]);
    assert!(!s.path("f7").exists());
}

#[test]
fn a_moved_directory_takes_up_its_chain_and_restores_from_it() {
    let mut s = sandbox();
    s.write("f", "1");
    s.ok(["capture", "--label", "one"]);
    s.write("f", "2");
    s.write("later", "made after");
    s.capture();
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    let moved = s.top().join("moved");
    std::fs::rename(s.workspace(), &moved).expect("moved");
    s.set_workspace(&moved);
    let foreign = s.run(["restore", "one", "--chain", &key, "--yes", "--json"]).expect(4);
    assert_eq!(foreign.error_code(), "foreign-workspace");
    s.ok(["capture", "--chain", &key, "--adopt"]);
    s.ok(["restore", "one", "--chain", &key, "--yes"]);
    assert_eq!(std::fs::read_to_string(moved.join("f")).expect("there"), "1");
    assert!(!moved.join("later").exists());
    s.ok(["undo", "--yes"]);
    assert_eq!(std::fs::read_to_string(moved.join("later")).expect("there"), "made after");
}

#[test]
fn a_recovery_refuses_the_flags_it_would_not_heed() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    for way in ["--finish", "--roll-back"] {
        for flags in [
            &["--dry-run"][..],
            &["--keep", "f"],
            &["--take", "f"],
            &["--on-conflict", "abort"],
            &["--no-delete"],
            &["--into", "elsewhere"],
            &["--plan", "0123456789abcdef"],
            &["--path", "f"],
            &["--special-modes"],
        ] {
            let args = ["restore", way].into_iter().chain(flags.iter().copied());
            s.run(args.collect::<Vec<_>>()).expect(2);
        }
        s.run(["restore", way]).expect(6);
    }
}
