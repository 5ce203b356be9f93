//! `diff`: statuses, coverage, text.

use serde_json::{Value, json};

use crate::sandbox;

fn rows(json: &Value) -> Vec<(String, String)> {
    let changes = json["changes"].as_array().expect("changes");
    let text = |v: &Value| v.as_str().expect("text").to_owned();
    changes.iter().map(|c| (text(&c["status"]), text(&c["path"]))).collect()
}

fn pairs(want: &[(&str, &str)]) -> Vec<(String, String)> {
    want.iter().map(|(s, p)| ((*s).to_owned(), (*p).to_owned())).collect()
}

#[test]
fn cap_094_each_change_has_its_letter_and_both_sides() {
    let s = sandbox();
    for name in ["changed", "deleted", "modes", "same"] {
        s.write(name, format!("{name}\nline 2\n"));
    }
    s.capture();
    s.write("added", "new\n");
    s.write("changed", "changed\nline two\n");
    s.remove("deleted");
    s.chmod("modes", 0o755);
    let want = pairs(&[("A", "added"), ("M", "changed"), ("D", "deleted"), ("m", "modes")]);
    let now = s.ok(["diff"]);
    assert_eq!(rows(&now), want);
    let changed = &now["changes"][1];
    assert_eq!(changed["from"]["kind"], "file");
    assert_eq!((&changed["from"]["size"], &changed["to"]["size"]), (&json!(15), &json!(17)));
    let lines = changed["hunks"][0]["lines"].as_array().expect("lines");
    let deleted = lines.iter().find(|l| l["kind"] == "delete").expect("a deleted line");
    assert_eq!((&deleted["text"], &deleted["old_line"]), (&json!("line 2"), &json!(2)));
    assert_eq!(now["changes"][3]["to"]["mode"], "0755");
    s.capture();
    assert_eq!(rows(&s.ok(["diff", "latest~1", "latest"])), want);
    assert_eq!(rows(&s.ok(["diff"])), []);
    let out = s.run(["diff", "latest~1"]).expect(0).out();
    assert_eq!(out, "A added\nM changed\nD deleted\nm modes\n");
    let names = s.run(["diff", "latest~1", "--name-only", "--path", "changed"]).expect(0).out();
    assert_eq!(names, "changed\n");
    let patch = s.run(["diff", "latest~1", "--patch"]).expect(0).out();
    assert!(patch.contains("\n-line 2\n+line two\n"), "{patch}");
    let stat = s.run(["diff", "latest~1", "latest", "--stat"]).expect(0).out();
    assert!(stat.contains("M changed  +1 -1\n"), "{stat}");
}

#[test]
fn cap_095_an_empty_file_has_no_hunk() {
    let s = sandbox();
    s.capture();
    s.write("empty", "");
    let json = s.ok(["diff"]);
    assert_eq!(rows(&json), pairs(&[("A", "empty")]));
    assert_eq!(json["changes"][0]["hunks"], json!([]));
}

#[test]
fn cap_096_what_is_not_covered_is_never_absent() {
    let s = sandbox();
    s.write("grows", "small\n");
    s.write("stays-large", vec![0; 3000]);
    s.write("gets-excluded", "x\n");
    s.run(["capture", "--max-file", "2000", "--json"]).expect(3);
    s.write("grows", vec![1; 3000]);
    s.write("new-large", vec![2; 3000]);
    s.write(".backtrailignore", "gets-excluded\n");
    let json = s.ok(["diff", "--max-file", "2000"]);
    let find = |path: &str| {
        let all = json["changes"].as_array().expect("changes");
        all.iter().find(|c| c["path"] == path).cloned().unwrap_or_default()
    };
    for (path, status) in [("grows", "M"), ("new-large", "A")] {
        let row = find(path);
        assert_eq!((&row["status"], &row["uncovered"]), (&json!(status), &json!("to")), "{row}");
    }
    assert_eq!(find("stays-large"), Value::Null);
    let row = find("gets-excluded");
    assert_eq!(row["uncovered"], "to", "{row}");
    assert_ne!(row["status"], "D");
    assert!(
        s.run(["diff", "--max-file", "2000"])
            .expect(0)
            .out()
            .contains("M grows  (not covered: to)")
    );
}

#[test]
fn cap_097_binary_and_oversized_contents_are_named_not_shown() {
    let s = sandbox();
    s.write("binary", b"a\0b");
    s.write("long", "x\n".repeat(3 << 20));
    s.capture();
    s.write("binary", b"a\0c");
    s.write("long", "y\n".repeat(3 << 20));
    let json = s.ok(["diff"]);
    assert_eq!(json["changes"][0]["binary"], true);
    assert_eq!(json["changes"][1]["oversized"], true);
    assert!(json["changes"][1]["hunks"].is_null());
}

#[test]
fn cap_098_kinds_change() {
    let s = sandbox();
    s.write("file-to-dir", "x");
    s.write("dir-to-link/f", "x");
    s.link("nowhere", "link-to-file");
    s.capture();
    s.remove("file-to-dir");
    s.write("file-to-dir/f", "x");
    s.remove("dir-to-link");
    s.link("file-to-dir", "dir-to-link");
    s.remove("link-to-file");
    s.write("link-to-file", "x");
    let json = s.ok(["diff"]);
    let kinds: Vec<String> =
        rows(&json).into_iter().filter(|(s, _)| s == "T").map(|(_, path)| path).collect();
    assert_eq!(kinds, ["dir-to-link", "file-to-dir", "link-to-file"]);
}

#[test]
fn a_diff_writes_nothing() {
    let s = sandbox();
    s.write("a", "1");
    s.capture();
    s.write("a", "2");
    let before = backtrail_tests::cli::tree(&s.store());
    let cache = backtrail_tests::cli::tree(&s.home().join(".cache"));
    s.ok(["diff"]);
    let after = backtrail_tests::cli::tree(&s.store());
    backtrail_tests::cli::assert_same_tree(&after, &before);
    backtrail_tests::cli::assert_same_tree(
        &backtrail_tests::cli::tree(&s.home().join(".cache")),
        &cache,
    );
}
