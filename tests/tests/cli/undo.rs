//! `undo`, `redo` and the bank they work with.

use std::fs;

use backtrail_tests::cli::assert_same_tree;
use serde_json::json;

use crate::restore::restore;
use crate::sandbox;

#[test]
fn res_031_the_bank_of_a_captured_state_is_that_snapshot() {
    let s = sandbox();
    s.write("f", "1");
    let first = s.capture();
    s.write("f", "2");
    let second = s.capture();
    let done = restore(&s, &first);
    assert_eq!(done["bank"]["snapshot"], second);
    assert_eq!(done["bank"]["new"], false);
    let list = s.ok(["list"]);
    assert_eq!(list["snapshots"][0]["labels"], json!(["bank:0"]));
    assert_eq!(list["total"], 2);
}

#[test]
fn res_033_undo_and_redo_are_exact() {
    let s = sandbox();
    s.write("edited", "1");
    s.write("deleted/f", "1");
    s.write("mode", "1");
    s.capture();
    s.write("edited", "2");
    s.remove("deleted");
    s.chmod("mode", 0o755);
    s.write("extra", "2");
    let later = s.tree();
    let first = restore(&s, "latest");
    assert!(first["bank"]["snapshot"].is_string());
    let restored = s.tree();
    for _ in 0..2 {
        s.ok(["undo", "--yes"]);
        assert_same_tree(&s.tree(), &later);
        s.ok(["redo", "--yes"]);
        assert_same_tree(&s.tree(), &restored);
    }
    s.run(["redo", "--yes"]).expect(6);
    s.ok(["undo", "1", "--yes"]);
    s.run(["undo", "--yes"]).expect(6);
    let list = s.ok(["undo", "--list"]);
    assert_eq!(list["operations"][0]["state"], "undone");
}

#[test]
fn res_034_an_edit_after_the_restore_is_kept_by_undo() {
    let s = sandbox();
    s.write("a", "1");
    s.write("b", "1");
    s.capture();
    s.write("a", "2");
    s.write("b", "2");
    restore(&s, "latest");
    s.write("a", "mine");
    let run = s.run(["undo", "--yes", "--json"]).expect(3);
    let json = run.json();
    assert_eq!(json["conflicts"][0]["kind"], "changed-after-run");
    assert_eq!(fs::read(s.path("a")).expect("read"), b"mine");
    assert_eq!(fs::read(s.path("b")).expect("read"), b"2");
}

#[test]
fn undo_of_several_goes_back_one_by_one() {
    let s = sandbox();
    for n in ["1", "2", "3"] {
        s.write("f", n);
        s.capture();
    }
    restore(&s, "latest~1");
    restore(&s, "latest~2");
    assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
    let json = s.ok(["undo", "2", "--yes"]);
    assert_eq!(json["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(fs::read(s.path("f")).expect("read"), b"3");
    let run = s.run(["redo", "3", "--yes", "--json"]).expect(6);
    assert_eq!(run.error_code(), "not-found");
    assert_eq!(run.json()["results"].as_array().map(Vec::len), Some(2));
}

#[test]
fn res_037_an_operation_id_is_done_once() {
    let s = sandbox();
    s.write("f", "1");
    let first = s.capture();
    s.write("f", "2");
    s.capture();
    let args = ["restore", &first, "--yes", "--operation-id", "op-1"];
    let done = s.ok(args);
    s.write("f", "3");
    let again = s.ok(args);
    assert_eq!(again["transaction"], done["transaction"]);
    assert_eq!(fs::read(s.path("f")).expect("read"), b"3");
    let other = s.run(["restore", "latest", "--yes", "--operation-id", "op-1", "--json"]).expect(4);
    assert_eq!(other.error_code(), "operation-reused");
}

#[test]
fn a_damaged_list_of_operations_is_found_before_anything_changes() {
    let s = sandbox();
    s.write("a.txt", "one");
    s.ok(["capture", "--label", "one"]);
    s.write("a.txt", "two");
    s.ok(["restore", "one", "--yes"]);
    s.write("a.txt", "three");
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    let list = s.store().join(format!("workspaces/{key}/operations.json"));
    std::fs::write(&list, "{ torn").expect("write");
    let before = s.tree();
    let refused = s.run(["restore", "one", "--yes", "--json"]).expect(7);
    assert!(refused.out().contains("operations.json"), "{refused}");
    assert_same_tree(&s.tree(), &before);
}

#[test]
fn a_printed_command_works_when_pasted_elsewhere() {
    let s = sandbox();
    s.write("a.txt", "one");
    let (workspace, store) = (s.workspace().display().to_string(), s.top().join("st ore"));
    let there = ["-w", &workspace, "--store", &store.display().to_string()].map(str::to_owned);
    let run = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).chain(there.clone()).collect();
        s.run(args).expect(0)
    };
    run(&["capture", "--label", "one"]);
    s.write("a.txt", "two");
    let said = run(&["restore", "one", "--yes"]).out();
    let hint = said.lines().find_map(|l| l.split_once("undo with: ")).expect("a hint").1;
    let mut shell = std::process::Command::new("sh");
    let binary = s.command(["--version"]).get_program().to_owned();
    let alias = format!("backtrail() {{ \"$BINARY\" \"$@\" --yes; }}; {hint}");
    shell.arg("-c").arg(alias).env("BINARY", binary).env("HOME", s.home());
    shell.current_dir(s.home());
    let pasted = backtrail_tests::cli::finish(shell).expect(0);
    assert_eq!(std::fs::read_to_string(s.path("a.txt")).expect("there"), "two", "{pasted}");
}

#[test]
fn latest_behind_a_bank_says_when_it_was_pruned() {
    let s = sandbox();
    s.write("a.txt", "one");
    s.ok(["capture"]);
    s.write("a.txt", "two");
    s.ok(["restore", "latest", "--yes"]);
    s.ok(["prune", "--keep", "1", "--instant", "--yes"]);
    let gone = s.run(["show", "latest", "--json"]).expect(6);
    assert_eq!(gone.error_code(), "pruned");
}
