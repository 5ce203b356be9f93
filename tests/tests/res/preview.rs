//! The preview is the effect: RES-013 to RES-016, RES-020.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use backtrail_tests::cli::{Sandbox, assert_same_tree, id, tree};
use backtrail_tests::host::{as_nobody, at_terminal, give_to_nobody};

use crate::{Stamp, agreeing, counts, go, json, refused, sandbox, stamp, strings};

/// K09: what was interrupted is never offered; what deletes most says so and asks.
#[test]
fn res_013_k09_an_incomplete_capture_is_never_a_target() {
    let s = sandbox();
    for i in 0..40 {
        s.write(format!("f{i:02}"), format!("{i}\n"));
    }
    let first = s.capture();
    s.write("f00", "changed\n");
    for point in ["capture.objects", "capture.trees", "capture.document"] {
        let mut command = s.command(["capture", "--label", "half"]);
        command.env("BACKTRAIL_FAULT", format!("{point}:1:kill"));
        let run = backtrail_tests::cli::finish(command);
        assert_eq!(run.code, 128 + 9, "{point}: {run}");
        let list = s.ok(["list"]);
        assert_eq!(strings(&list["snapshots"], "id"), [first.as_str()], "{point}");
        assert_eq!(id(&s.ok(["show", "latest"])), first);
        refused(&s, &["restore", "half", "--yes"], 6);
    }
    // Nearly everything goes: --yes alone is not enough.
    let bare = sandbox();
    bare.write("a", "a\n");
    bare.capture();
    for i in 0..40 {
        bare.write(format!("f{i:02}"), format!("{i}\n"));
    }
    let now = bare.tree();
    let plan = bare.run(["restore", "latest", "--dry-run"]).expect(0);
    assert!(plan.out().contains("40"), "{plan}");
    let error = refused(&bare, &["restore", "latest", "--yes"], 4);
    assert!(error["hint"].as_str().expect("text").contains("--allow-mass-delete"), "{error}");
    assert!(error["message"].as_str().expect("text").contains("deletes 40 of 41"), "{error}");
    assert_same_tree(&bare.tree(), &now);
    let asked = at_terminal(bare.command(["restore", "latest", "--yes"]), "39");
    assert_eq!(asked.code, 4, "{asked}");
    assert!(asked.stderr.contains("deletes 40 of 41 files"), "{asked}");
    assert_same_tree(&bare.tree(), &now);
    let asked = at_terminal(bare.command(["restore", "latest"]), "40");
    assert_eq!(asked.code, 0, "{asked}");
    assert_eq!(bare.tree().len(), 1);
    go(&bare, &["undo"], 0);
    assert_same_tree(&bare.tree(), &now);
    let done = go(&bare, &["restore", "latest", "--allow-mass-delete"], 0);
    counts(&done, &[("unchanged", 1), ("deleted", 40)]);
}

#[test]
fn res_014_a_plan_is_bound_to_its_digest() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("same", "same\n");
    s.capture();
    s.write("a", "edited\n");
    let dry = ["restore", "latest", "--dry-run"];
    let first = json(&s, &dry, 0);
    for path in ["a", "same"] {
        let file = fs::File::options().write(true).open(s.path(path)).expect("open");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("touch");
    }
    let second = json(&s, &dry, 0);
    assert_eq!(first["plan"], second["plan"]);
    let old = first["plan"].as_str().expect("a digest");
    s.write("a", "edited otherwise\n");
    let error = refused(&s, &["restore", "latest", "--yes", "--plan", old], 4);
    assert_eq!(error["code"], "plan-changed");
    let now = json(&s, &dry, 0)["plan"].as_str().expect("a digest").to_owned();
    assert!(error["message"].as_str().expect("text").contains(&now), "{error}");
    assert_eq!(fs::read(s.path("a")).expect("there"), b"edited otherwise\n");
    refused(&s, &["restore", "latest", "--yes", "--plan", &now[..15]], 2);
    let human = s.run(dry).expect(0).out();
    let printed = human.lines().find_map(|l| l.trim().strip_prefix("plan "));
    let printed = printed.unwrap_or_else(|| panic!("a digest in {human}")).trim();
    assert!(now.starts_with(printed) && printed.len() >= 16, "{human}");
    let done = go(&s, &["restore", "latest", "--plan", printed], 0);
    assert_eq!(done["plan"], now);
}

/// Everything below a directory with what moves when it is touched.
fn picture(top: &Path) -> Vec<(Vec<u8>, String, Stamp)> {
    let row = |(path, entry): (Vec<u8>, backtrail_tests::cli::Entry)| {
        let at = top.join(String::from_utf8(path.clone()).expect("text"));
        (path, format!("{entry:?}"), stamp(at))
    };
    tree(top).into_iter().map(row).collect()
}

fn each(top: &Path, change: impl Fn(u32) -> u32) {
    let mut paths: Vec<_> = tree(top).into_keys().collect();
    paths.push(Vec::new());
    for path in paths {
        let at = top.join(String::from_utf8(path).expect("text"));
        let mode = fs::metadata(&at).expect("there").permissions().mode();
        fs::set_permissions(&at, fs::Permissions::from_mode(change(mode))).expect("chmod");
    }
}

#[test]
fn res_015_a_dry_run_needs_to_write_nothing() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("d/b", "b\n");
    s.capture();
    s.write("a", "edited\n");
    s.write("made", "made\n");
    s.remove("d");
    json(&s, &["restore", "latest", "--dry-run"], 0);
    give_to_nobody(&s.top());
    each(&s.top(), |mode| mode & !0o222);
    let before = picture(&s.top());
    let dry = as_nobody(s.command(["restore", "latest", "--dry-run", "--json"]));
    let text = as_nobody(s.command(["restore", "latest", "--dry-run"]));
    let after = picture(&s.top());
    each(&s.top(), |mode| mode | 0o200);
    let found = agreeing(dry, 0);
    counts(&found, &[("written", 2), ("deleted", 1), ("dirs_created", 1)]);
    assert_eq!(found["state"], "planned");
    assert_eq!((&found["bank"], &found["transaction"]), (&().into(), &().into()));
    text.expect(0);
    assert_eq!(after, before);
    // An absent store is not made by looking.
    let mut other = sandbox();
    other.env("BACKTRAIL_STORE", other.top().join("nowhere"));
    other.write("a", "a\n");
    json(&other, &["restore", "latest", "--dry-run"], 6);
    assert!(!other.top().join("nowhere").exists());
}

/// 2 written, 3 deleted, 1 kept, 1 skipped.
fn numbers() -> Sandbox {
    let mut s = sandbox();
    s.env("BACKTRAIL_MAX_FILE", "1MiB");
    s.write(".gitignore", "*.log\n");
    s.write("keep.me", "then\n");
    s.write("a", "a\n");
    s.write("same", "same\n");
    s.write("big.bin", vec![1; 2 << 20]);
    json(&s, &["capture"], 3);
    s.write(".gitignore", "*.log\nkeep.me\n");
    s.write("keep.me", "now\n");
    s.write("a", "edited\n");
    s.write("big.bin", vec![2; 2 << 20]);
    for name in ["n1", "n2", "n3"] {
        s.write(name, "made\n");
    }
    s
}

#[test]
fn res_016_k78_the_numbers_are_the_same_everywhere() {
    let s = numbers();
    let want = [("written", 2), ("unchanged", 1), ("deleted", 3), ("kept", 1), ("not_covered", 1)];
    let plan = json(&s, &["restore", "latest", "--dry-run"], 3);
    counts(&plan, &want);
    let text = s.run(["restore", "latest", "--dry-run"]).expect(3).out();
    for part in ["2 written", "3 deleted", "1 kept", "1 not covered"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Deletions first, then overwrites, conflicts, gaps.
    let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in {text}"));
    assert!(at("n1") < at("keep.me") && at("keep.me") < at("big.bin"), "{text}");
    let again = numbers();
    let done = go(&again, &["restore", "latest"], 3);
    counts(&done, &want);
    assert_eq!(done["bytes"]["written"], plan["bytes"]["written"]);
    for list in ["written_paths", "deleted_paths", "conflicts", "not_covered"] {
        assert_eq!(done[list], plan[list], "{list}");
    }
    let human = s.run(["restore", "latest", "--yes"]).expect(3).out();
    assert!(human.contains("2 written, 3 deleted, 1 same"), "{human}");
    assert!(human.contains("kept: 1 ") && human.contains("not covered: 1 "), "{human}");
    // The commands it prints work.
    let bank = done["bank"]["snapshot"].as_str().expect("a bank");
    assert!(go(&again, &["restore", bank, "--dry-run"], 3)["counts"]["written"].as_u64() > Some(0));
    let hint = human.lines().find_map(|l| Some(l.split_once("   backtrail ")?.1.to_owned()));
    let hint = hint.unwrap_or_else(|| panic!("a command in {human}"));
    assert!(s.run(hint.split(' ')).code <= 3, "{hint}");
}

#[test]
fn res_020_k81_a_prompt_says_what_yes_does() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("b", "b\n");
    s.capture();
    // Nothing is lost by writing what is absent, so nobody is asked.
    s.remove("b");
    json(&s, &["restore", "latest"], 0);
    s.write("a", "edited\n");
    s.write("b", "edited\n");
    s.write("made", "made\n");
    let (now, listed) = (s.tree(), s.run(["list"]).expect(0).out());
    let error = refused(&s, &["restore", "latest"], 4);
    assert_eq!(error["code"], "confirmation-needed");
    assert!(error["hint"].as_str().expect("text").contains("--yes"), "{error}");
    for answer in ["n", "", "maybe"] {
        let asked = at_terminal(s.command(["restore", "latest"]), answer);
        assert_eq!(asked.code, 4, "{asked}");
        assert!(asked.stderr.contains("nothing was changed"), "{asked}");
    }
    assert_same_tree(&s.tree(), &now);
    assert_eq!(s.run(["list"]).expect(0).out().lines().count(), listed.lines().count(), "no bank");
    let asked = at_terminal(s.command(["restore", "latest"]), "y");
    assert_eq!(asked.code, 0, "{asked}");
    assert!(asked.stderr.contains("Write 2 and delete 1?"), "{asked}");
    assert!(asked.stderr.contains("made"), "the plan is shown first: {asked}");
    assert!(asked.out().contains("2 written, 1 deleted"), "{asked}");
    let error = refused(&s, &["undo"], 4);
    assert_eq!(error["code"], "confirmation-needed");
    let asked = at_terminal(s.command(["undo"]), "yes");
    assert_eq!(asked.code, 0, "{asked}");
    assert_same_tree(&s.tree(), &now);
}
