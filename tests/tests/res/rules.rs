//! Paths that no snapshot covers: RES-004 to RES-007, RES-012.

use std::fs;

use backtrail_tests::cli::{assert_same_tree, tree};
use serde_json::json;

use crate::{counts, go, json, sandbox, stamp, strings};

/// Without the rule, with it, and back: what it kept out is nobody's to delete.
#[test]
fn res_004_k44_five_thousand_ignored_files_survive_both_restores() {
    let s = sandbox();
    s.write("src.txt", "one\n");
    let first = s.capture();
    s.write(".backtrailignore", "build/\n");
    s.write("src.txt", "two\n");
    for i in 0..5000 {
        s.write(format!("build/{}/{i}.o", i % 50), i.to_string());
    }
    let build = tree(&s.path("build"));
    let second = s.capture();
    let done = go(&s, &["restore", &first], 3);
    counts(&done, &[("written", 1), ("deleted", 1), ("kept", 1)]);
    assert_eq!(done["conflicts"][0]["path"], "build");
    assert_eq!(done["conflicts"][0]["kind"], "excluded");
    let why = done["conflicts"][0]["detail"].as_str().expect("words");
    assert!(why.contains(".backtrailignore:1: build/"), "{why}");
    assert!(!s.path(".backtrailignore").exists());
    assert_same_tree(&tree(&s.path("build")), &build);
    // Now nothing keeps them out; the capture says what came in.
    let between = s.ok(["capture"]);
    assert!(between["warnings"].to_string().contains("5000"), "{}", between["warnings"]);
    let done = go(&s, &["restore", &second], 3);
    assert_eq!(done["counts"]["written"], 2);
    assert_eq!(done["counts"]["deleted"], 0);
    assert_eq!(done["conflicts"].as_array().expect("a list").len(), 100, "lists are cut");
    assert_same_tree(&tree(&s.path("build")), &build);
    assert_eq!(fs::read(s.path("src.txt")).expect("there"), b"two\n");
}

#[test]
fn res_004_excluded_then_or_now_is_untouched() {
    let s = sandbox();
    s.write(".gitignore", "*.log\n");
    s.write("then.log", "ignored then\n");
    s.write("now.tmp", "captured then\n");
    s.write("a", "a\n");
    s.capture();
    // One line goes, another comes.
    s.write(".gitignore", "*.tmp\n");
    s.write("then.log", "changed since\n");
    s.write("made.log", "made since\n");
    s.write("now.tmp", "changed since\n");
    s.write("made.tmp", "made since\n");
    s.write("a", "edited\n");
    let kept = ["then.log", "made.log", "now.tmp", "made.tmp"];
    let before = kept.map(|p| stamp(s.path(p)));
    let done = go(&s, &["restore", "latest"], 3);
    assert_eq!(kept.map(|p| stamp(s.path(p))), before);
    assert_eq!(fs::read(s.path("a")).expect("there"), b"a\n");
    counts(&done, &[("written", 2), ("kept", 4)]);
    let all = done["conflicts"].as_array().expect("a list");
    assert!(all.iter().all(|c| c["kind"] == "excluded" && c["decision"] == "keep"), "{done}");
    let detail = |path: &str| {
        let row = all.iter().find(|c| c["path"] == path).expect("a row");
        row["detail"].as_str().expect("words").to_owned()
    };
    assert_eq!(detail("then.log"), "excluded then: .gitignore:1: *.log");
    assert_eq!(detail("now.tmp"), "excluded now: .gitignore:1: *.tmp");
    // What no flag may do: neither a path, nor --take.
    s.write(".gitignore", "*.tmp\n");
    let done = go(&s, &["restore", "latest", "now.tmp", "--take", "now.tmp"], 3);
    counts(&done, &[("kept", 1)]);
    let over = ["restore", "latest", "then.log", "--on-conflict", "overwrite"];
    go(&s, &over, 3);
    assert_eq!(kept.map(|p| stamp(s.path(p))), before);
}

/// K02, and a secret.
#[test]
fn res_005_what_the_snapshot_skipped_is_untouched_and_told() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1MiB");
    s.write("big.bin", vec![7; 3 << 20]);
    s.write(".env", "TOKEN=then\n");
    s.write("a", "a\n");
    json(&s, &["capture"], 3);
    s.write("a", "edited\n");
    // Proven unchanged: listed, and no reason for another exit code.
    let done = go(&s, &["restore", "latest"], 0);
    counts(&done, &[("written", 1), ("not_covered", 2)]);
    let rows = done["not_covered"].as_array().expect("a list");
    let row = |n: usize| (rows[n]["path"].clone(), rows[n]["reason"].clone());
    assert_eq!(row(0), (json!(".env"), json!("secret")));
    assert_eq!(row(1), (json!("big.bin"), json!("too-large")));
    assert_eq!((&rows[1]["size"], &rows[1]["unchanged"]), (&json!(3 << 20), &json!(true)));
    assert_eq!(rows[0]["unchanged"], true, "{done}");
    // It may differ now: exit 3.
    let mut big = vec![7; 3 << 20];
    big.extend_from_slice(b"more");
    s.write("big.bin", &big);
    s.write(".env", "TOKEN=now\n");
    s.write("a", "edited\n");
    let (was, secret) = (stamp(s.path("big.bin")), stamp(s.path(".env")));
    let plan = json(&s, &["restore", "latest", "--dry-run"], 3);
    let done = go(&s, &["restore", "latest"], 3);
    for found in [&plan, &done] {
        counts(found, &[("written", 1), ("not_covered", 2)]);
        let rows = found["not_covered"].as_array().expect("a list");
        assert!(rows.iter().all(|r| r["unchanged"] == false), "{found}");
    }
    assert_eq!((stamp(s.path("big.bin")), stamp(s.path(".env"))), (was, secret));
    assert_eq!(fs::read(s.path("big.bin")).expect("there"), big);
    let human = s.run(["restore", "latest", "--yes"]).expect(3);
    assert!(human.out().contains("not covered: 2"), "{human}");
    assert!(human.out().contains("1 over the size limit"), "{human}");
}

#[test]
fn res_006_a_large_file_made_later_survives() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1MiB");
    s.write("a", "a\n");
    s.write("d/x", "x\n");
    s.capture();
    s.write("big.bin", vec![7; 2 << 20]);
    s.write("made/big.bin", vec![8; 2 << 20]);
    s.write("made/small", "goes\n");
    let done = go(&s, &["restore", "latest"], 3);
    counts(&done, &[("unchanged", 2), ("deleted", 1), ("not_covered", 2)]);
    assert_eq!(strings(&done["not_covered"], "path"), ["big.bin", "made/big.bin"]);
    assert_eq!(fs::metadata(s.path("big.bin")).expect("stays").len(), 2 << 20);
    assert_eq!(fs::metadata(s.path("made/big.bin")).expect("stays").len(), 2 << 20);
}

#[test]
fn res_007_a_scope_reports_only_its_own_gaps() {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1MiB");
    s.write("big.bin", vec![7; 2 << 20]);
    s.write("d/x", "x\n");
    json(&s, &["capture"], 3);
    s.write("d/x", "edited\n");
    s.write("big.bin", vec![8; 3 << 20]);
    let done = go(&s, &["restore", "latest", "d"], 0);
    counts(&done, &[("written", 1)]);
    assert_eq!(done["not_covered"], json!([]));
    let done = go(&s, &["restore", "latest"], 3);
    counts(&done, &[("unchanged", 1), ("not_covered", 1)]);
    let done = go(&s, &["restore", "latest", "big.bin"], 3);
    counts(&done, &[("not_covered", 1)]);
}

#[test]
fn res_012_a_store_in_the_workspace_is_in_no_plan() {
    for name in ["store", ".history", "deep/er/place"] {
        let mut s = sandbox();
        let store = s.path(name);
        s.env("BACKTRAIL_STORE", &store);
        s.write("a", "one\n");
        let first = s.capture();
        s.write("a", "two\n");
        s.capture();
        s.write("made", "made\n");
        let plan = json(&s, &["restore", &first, "--dry-run"], 0);
        counts(&plan, &[("written", 1), ("deleted", 1)]);
        let done = go(&s, &["restore", &first], 0);
        counts(&done, &[("written", 1), ("deleted", 1)]);
        assert_eq!(fs::read(s.path("a")).expect("there"), b"one\n");
        // Named, it is known to nobody.
        let paths = done["deleted_paths"].to_string() + &done["conflicts"].to_string();
        assert!(!paths.contains(name), "{name}: {done}");
        go(&s, &["undo"], 0);
        assert_eq!(fs::read(s.path("a")).expect("there"), b"two\n");
        let rows = s.ok(["list"]);
        assert!(rows["snapshots"].as_array().expect("rows").len() >= 2, "{name}");
        s.ok(["verify", "--deep"]);
    }
}
