//! `doctor`: right lines, nothing changed without `--fix`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use backtrail_tests::cli::{assert_same_tree, tree};
use serde_json::{Value, json};

use crate::sandbox;

fn rows<'a>(json: &'a Value, name: &str) -> Vec<&'a Value> {
    json["checks"].as_array().expect("checks").iter().filter(|c| c["name"] == name).collect()
}

#[test]
fn cap_103_doctor_names_what_is_wrong_and_fixes_only_when_asked() {
    let mut s = sandbox();
    s.write("a.txt", "a".repeat(100));
    s.ok(["capture", "--label", "one"]);
    let healthy = s.ok(["doctor"]);
    assert!(healthy["checks"].as_array().expect("checks").iter().all(|c| c["status"] != "fail"));
    assert_eq!(rows(&healthy, "refs")[0]["status"], "ok");
    assert_eq!(rows(&healthy, "clock")[0]["status"], "ok");

    // leftovers: lost refs, a stale cache, open modes, a damaged object
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    fs::write(s.store().join(format!("workspaces/{key}/index.json")), "").expect("write");
    let here = s.workspace().to_path_buf();
    s.set_workspace(s.top().join("gone"));
    s.write("x", "x");
    s.capture();
    fs::remove_dir_all(s.top().join("gone")).expect("remove");
    s.set_workspace(here);
    fs::set_permissions(s.store(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let digest =
        s.ok(["show", "one", "--files"])["files"][0]["digest"].as_str().expect("d").to_owned();
    fs::remove_file(s.store().join("workspace-objects").join(&digest[..2]).join(&digest[2..]))
        .expect("remove an object");
    s.run(["verify"]).expect(7);

    let before = (tree(&s.store()), tree(&s.home()));
    let sick = s.run(["doctor", "--json"]).expect(7).json();
    assert_eq!(sick["exit_code"], 7);
    assert_eq!(rows(&sick, "refs")[0]["status"], "warn");
    assert_eq!(rows(&sick, "modes")[0]["status"], "warn");
    assert_eq!(rows(&sick, "caches")[0]["status"], "warn");
    assert_eq!(rows(&sick, "damage")[0]["status"], "fail");
    // --fix asks, and there is nobody
    s.run(["doctor", "--fix"]).expect(4);
    assert_same_tree(&tree(&s.store()), &before.0);
    assert_same_tree(&tree(&s.home()), &before.1);

    let fixed = s.ok(["doctor", "--fix", "--yes"]);
    assert_eq!(fixed["fixed"].as_array().map(Vec::len), Some(4), "{fixed}");
    assert!(rows(&fixed, "caches").is_empty());
    assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
    assert_eq!(s.ok(["list"])["rebuilt"], json!(null));
    s.ok(["show", "one"]);
}

#[test]
fn doctor_without_a_store_makes_none() {
    let s = sandbox();
    let json = s.ok(["doctor"]);
    assert!(
        rows(&json, "store")[0]["detail"]
            .as_str()
            .is_some_and(|d| d.contains("does not exist yet"))
    );
    assert!(!s.store().exists());
}

#[test]
fn a_damaged_journal_keeps_nobody_from_working_and_doctor_removes_it() {
    let s = sandbox();
    s.write("a.txt", "one");
    s.ok(["capture", "--label", "one"]);
    s.write("a.txt", "two");
    s.ok(["restore", "one", "--yes"]);
    let key = s.ok(["list"])["workspace"]["key"].as_str().expect("key").to_owned();
    let journals = s.store().join(format!("workspaces/{key}/journals"));
    for journal in fs::read_dir(&journals).expect("journals").map(|e| e.expect("entry").path()) {
        fs::write(journal, "{ torn").expect("write");
    }
    s.write("b.txt", "b");
    s.ok(["capture", "--label", "two"]);
    s.ok(["restore", "one", "--yes"]);
    s.ok(["undo", "--yes"]);
    let sick = s.run(["doctor", "--json"]).expect(7).json();
    assert_eq!(rows(&sick, "restores")[0]["status"], "fail");
    let fixed = s.ok(["doctor", "--fix", "--yes"]);
    assert!(fixed["fixed"].to_string().contains("damaged journal"), "{fixed}");
    assert_eq!(rows(&fixed, "restores")[0]["status"], "ok");
}

#[test]
fn doctor_names_originals_that_nothing_explains() {
    let s = sandbox();
    s.write("a.txt", "a");
    s.capture();
    s.write(".backtrail-stage-0123456789abcdef/old/s0", "an original");
    let sick = s.run(["doctor", "--json"]).expect(1).json();
    let row = rows(&sick, "restores")[0].to_string();
    assert!(row.contains("0123456789abcdef") && row.contains("originals"), "{row}");
}
