//! The bank, and the list of what can be undone: RES-030 to RES-036.

use std::fs;

use backtrail_tests::cli::{Sandbox, assert_same_tree};
use backtrail_tests::host::{Mount, as_nobody, give_to_nobody};
use serde_json::Value;

use crate::{counts, go, json, leftovers, refused, sandbox, stamp, strings};

/// K03: nothing is changed, and nothing says that a copy exists.
#[test]
fn res_030_k03_without_a_bank_nothing_is_changed() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("d/b", "b\n");
    s.capture();
    s.write("a", "edited\n");
    s.write("made", "made\n");
    let now = s.tree();
    give_to_nobody(&s.top());
    let chmod = |mode: &str| {
        let mut command = std::process::Command::new("chmod");
        command.args(["-R", mode]).arg(s.store()).arg(s.home());
        assert!(command.status().expect("chmod").success());
    };
    chmod("a-w");
    let run = as_nobody(s.command(["restore", "latest", "--yes", "--json"]));
    let text = as_nobody(s.command(["restore", "latest", "--yes"]));
    // Nothing is displaced elsewhere, so no bank is owed there.
    let into = s.workspace().join("../then");
    fs::create_dir(&into).expect("mkdir");
    give_to_nobody(&into);
    let beside =
        as_nobody(s.command(["restore", "latest", "--into", into.to_str().expect("text")]));
    chmod("u+w");
    assert!([1, 8].contains(&run.code), "{run}");
    assert_eq!(run.error_code(), "bank-failed", "{run}");
    for said in [run.out(), text.out(), text.stderr.clone()] {
        assert!(!said.contains("undo") && !said.contains("bank:"), "{said}");
    }
    assert_same_tree(&s.tree(), &now);
    assert!(leftovers(&s).is_empty());
    assert_eq!(s.ok(["list"])["snapshots"].as_array().expect("rows").len(), 1);
    beside.expect(0);
    assert_eq!(fs::read(into.join("d/b")).expect("there"), b"b\n");
}

#[test]
fn res_030_k03_a_full_store_is_no_bank() {
    let s = sandbox();
    let Some(_mount) = Mount::new(s.store(), "size=3m,mode=700") else { return };
    s.write("a", "a\n");
    s.capture();
    let mut noise = Vec::new();
    for i in 0..(1u64 << 19) {
        noise.extend_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    s.write("a", &noise);
    let now = s.tree();
    let run = s.run(["restore", "latest", "--yes", "--json"]).expect(1);
    assert_eq!(run.error_code(), "bank-failed", "{run}");
    let said = run.json()["error"]["message"].as_str().expect("text").to_owned();
    assert!(!said.contains("undo"), "{said}");
    assert_same_tree(&s.tree(), &now);
    assert!(leftovers(&s).is_empty());
    assert_eq!(s.ok(["list"])["snapshots"].as_array().expect("rows").len(), 1);
    s.ok(["verify", "--deep"]);
}

#[test]
fn res_031_what_the_head_holds_needs_no_new_bank() {
    let s = sandbox();
    s.write("a", "one\n");
    let first = s.capture();
    s.write("a", "two\n");
    let second = s.capture();
    let done = go(&s, &["restore", &first], 0);
    assert_eq!(
        (&done["bank"]["snapshot"], &done["bank"]["new"]),
        (&second.clone().into(), &false.into())
    );
    let list = s.ok(["list"]);
    assert_eq!(strings(&list["snapshots"], "id"), [second.as_str(), first.as_str()]);
    assert_eq!(strings(&list["snapshots"][0]["labels"], ""), ["bank:0"]);
    go(&s, &["undo"], 0);
    assert_eq!(fs::read(s.path("a")).expect("there"), b"two\n");
}

#[test]
fn res_032_two_restores_of_one_snapshot_leave_two_banks() {
    let s = sandbox();
    s.write("a", "then\n");
    let then = s.capture();
    let mut banks = Vec::new();
    for text in ["mine 1\n", "mine 2\n"] {
        s.write("a", text);
        let done = go(&s, &["restore", &then], 0);
        let bank = &done["bank"];
        assert_eq!(bank["new"], true, "{bank}");
        let text = |v: &Value| v.as_str().expect("text").to_owned();
        banks.push((text(&bank["label"]), text(&bank["snapshot"])));
    }
    assert_eq!((banks[0].0.as_str(), banks[1].0.as_str()), ("bank:0", "bank:1"));
    assert_ne!(banks[0].1, banks[1].1);
    let list = s.ok(["list"]);
    for ((label, id), content) in banks.iter().zip(["mine 1\n", "mine 2\n"]) {
        let row = list["snapshots"].as_array().expect("rows").iter().find(|r| r["id"] == **id);
        assert!(strings(&row.expect("listed")["labels"], "").contains(&label.as_str()));
        for name in [label, id] {
            assert_eq!(s.run(["show", name, "--cat", "a"]).expect(0).out(), content);
        }
        go(&s, &["restore", label], 0);
        assert_eq!(fs::read(s.path("a")).expect("there"), content.as_bytes());
    }
}

/// A tree with one of each kind, captured, and another made of it.
fn changed() -> (Sandbox, String) {
    let s = sandbox();
    s.write("edited", "then\n");
    s.write("gone/deep/file", "gone\n");
    s.write("moded", "same\n");
    s.write("kind", "a file\n");
    s.link("edited", "link");
    s.write("bin", (0..=255).collect::<Vec<u8>>());
    s.mkdir("empty");
    s.chmod("moded", 0o640);
    let id = s.capture();
    s.write("edited", "now\n");
    s.remove("gone");
    s.chmod("moded", 0o755);
    s.remove("kind");
    s.write("kind/inside", "a directory now\n");
    s.chmod("kind", 0o750);
    s.remove("link");
    s.link("bin", "link");
    s.write("bin", vec![0; 70_000]);
    s.write("made/by/me", "made\n");
    (s, id)
}

/// K07.
#[test]
fn res_033_k07_undo_and_redo_are_exact() {
    let (s, id) = changed();
    let now = s.tree();
    let done = go(&s, &["restore", &id], 0);
    let then = s.tree();
    let text = s.run(["undo", "--list"]).expect(0).out();
    assert!(text.contains(&done["bank"]["snapshot"].as_str().expect("id")[..8]), "{text}");
    for _ in 0..2 {
        let undone = go(&s, &["undo"], 0);
        assert_eq!(undone["kind"], "undo");
        assert!(undone["bank"]["snapshot"].is_string(), "{undone}");
        assert_same_tree(&s.tree(), &now);
        let redone = go(&s, &["redo"], 0);
        assert_eq!(redone["kind"], "redo");
        assert_same_tree(&s.tree(), &then);
    }
    let human = s.run(["undo", "--yes"]).expect(0);
    assert!(human.out().contains("backtrail redo"), "{human}");
    assert_same_tree(&s.tree(), &now);
    refused(&s, &["undo", "--yes"], 6);
    // By the id that the restore printed.
    go(&s, &["redo"], 0);
    go(&s, &["restore", done["bank"]["snapshot"].as_str().expect("id")], 0);
    assert_same_tree(&s.tree(), &now);
    s.ok(["verify", "--deep"]);
}

#[test]
fn res_034_what_was_edited_since_stays() {
    let s = sandbox();
    s.write("a", "then a\n");
    s.write("b", "then b\n");
    s.capture();
    s.write("a", "now a\n");
    s.write("b", "now b\n");
    s.write("c", "now c\n");
    go(&s, &["restore", "latest"], 0);
    s.write("a", "mine\n");
    s.write("c", "mine too\n");
    let before = [stamp(s.path("a")), stamp(s.path("c"))];
    let undone = go(&s, &["undo"], 3);
    counts(&undone, &[("written", 1), ("kept", 2)]);
    assert_eq!(strings(&undone["conflicts"], "path"), ["a", "c"]);
    assert!(
        undone["conflicts"]
            .as_array()
            .expect("rows")
            .iter()
            .all(|c| c["kind"] == "changed-after-run")
    );
    assert_eq!([stamp(s.path("a")), stamp(s.path("c"))], before);
    assert_eq!(fs::read(s.path("b")).expect("there"), b"now b\n");
    // Asked for, it is overwritten, and banked.
    go(&s, &["redo"], 0);
    s.write("a", "mine again\n");
    let undone = go(&s, &["undo", "--take", "a"], 0);
    assert_eq!(fs::read(s.path("a")).expect("there"), b"mine\n", "as before the redo");
    let bank = undone["bank"]["snapshot"].as_str().expect("a bank");
    assert_eq!(s.run(["show", bank, "--cat", "a"]).expect(0).out(), "mine again\n");
    s.write("b", "mine\n");
    refused(&s, &["redo", "--yes", "--on-conflict", "abort"], 4);
}

#[test]
fn res_035_a_new_operation_abandons_the_undone_tail() {
    let s = sandbox();
    s.write("a", "one\n");
    let one = s.capture();
    s.write("a", "two\n");
    s.write("b", "two\n");
    let two = s.capture();
    s.write("a", "three\n");
    let first = go(&s, &["restore", &one], 0);
    let undone = go(&s, &["undo"], 0);
    go(&s, &["restore", &two], 0);
    refused(&s, &["redo", "--yes"], 6);
    let list = s.ok(["undo", "--list"]);
    assert_eq!(strings(&list["operations"], "state"), ["done", "abandoned"]);
    // Its banks are still there, by id.
    for (bank, a) in [(&first["bank"], "three\n"), (&undone["bank"], "one\n")] {
        let id = bank["snapshot"].as_str().expect("a bank");
        go(&s, &["restore", id], 0);
        assert_eq!(fs::read_to_string(s.path("a")).expect("there"), a);
    }
}

#[test]
fn res_036_a_pruned_bank_is_explained() {
    let mut s = sandbox();
    s.env("BACKTRAIL_BANK_KEEP", "1").env("BACKTRAIL_BANK_AGE", "1ms");
    s.write("a", "then\n");
    let then = s.capture();
    for i in 0..3 {
        s.write("a", format!("mine {i}\n"));
        go(&s, &["restore", &then], 0);
    }
    let oldest = s.ok(["undo", "--list"])["operations"][2]["bank"]["snapshot"].clone();
    s.ok(["prune", "--keep", "1", "--yes", "--protect", &then, "--instant"]);
    go(&s, &["undo"], 0);
    assert_eq!(fs::read(s.path("a")).expect("there"), b"mine 2\n");
    s.write("a", "then\n");
    let now = s.tree();
    let error = refused(&s, &["undo", "--yes"], 6);
    assert_eq!(error["code"], "bank-pruned", "{error}");
    let said = error["message"].as_str().expect("text");
    assert!(said.contains("was pruned at 20") && said.contains("newest 1"), "{said}");
    assert_same_tree(&s.tree(), &now);
    let gone = json(&s, &["restore", oldest.as_str().expect("id"), "--yes"], 6);
    assert!(
        gone["error"]["message"].as_str().expect("text").contains("was pruned at 20"),
        "{gone}"
    );
    assert_eq!(gone["error"]["code"], "pruned");
    refused(&s, &["show", oldest.as_str().expect("id")], 6);
    s.ok(["verify", "--deep"]);
}
