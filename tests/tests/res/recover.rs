//! After a kill in the middle: RES-043, RES-045, K24.

use std::fs;

use backtrail_tests::cli::{Sandbox, Tree, assert_same_tree, finish};
use serde_json::json as value;

use crate::{go, json, leftovers, refused, sandbox};

/// A restore of forty files killed after twenty steps, with both trees.
fn killed() -> (Sandbox, Tree, Tree) {
    let s = sandbox();
    for i in 0..40 {
        s.write(format!("d{}/f{i:02}", i % 4), format!("then {i}\n"));
    }
    let then = s.tree();
    s.capture();
    for i in 0..40 {
        let path = format!("d{}/f{i:02}", i % 4);
        if i % 8 == 7 {
            s.remove(&path);
        } else {
            s.write(&path, format!("now {i}\n"));
        }
    }
    s.write("made/x", "made\n");
    let now = s.tree();
    let mut command = s.command(["restore", "latest", "--yes"]);
    command.env("BACKTRAIL_FAULT", "restore.step:20:kill");
    assert_eq!(finish(command).code, 137);
    assert_eq!(leftovers(&s).len(), 1);
    (s, then, now)
}

const WAYS: [&str; 2] = ["--finish", "--roll-back"];

#[test]
fn res_043_content_of_one_side_with_another_mode_is_that_side() {
    for way in WAYS {
        let (s, then, now) = killed();
        for i in 0..40 {
            let path = format!("d{}/f{i:02}", i % 4);
            if s.path(&path).exists() {
                s.chmod(&path, if i % 2 == 0 { 0o600 } else { 0o444 });
            }
        }
        let done = json(&s, &["restore", way], 0);
        assert_eq!(done["recovered"][0]["third_count"], 0, "{done}");
        assert_same_tree(&s.tree(), if way == "--finish" { &then } else { &now });
        assert!(leftovers(&s).is_empty());
        refused(&s, &["restore", way], 6);
    }
}

#[test]
fn res_045_without_its_store_a_restore_rolls_back() {
    for gone in ["absent", "empty"] {
        let (s, then, now) = killed();
        let moved = s.top().join("moved");
        fs::rename(s.store(), &moved).expect("moved");
        if gone == "empty" {
            fs::create_dir(s.store()).expect("mkdir");
        }
        json(&s, &["restore", "--roll-back"], 0);
        assert_same_tree(&strip(s.tree()), &now);
        if s.store().exists() {
            fs::remove_dir_all(s.store()).expect("remove");
        }
        // Back again, it learns of it, and nothing is left to decide.
        fs::rename(&moved, s.store()).expect("back");
        go(&s, &["restore", "latest"], 0);
        assert_same_tree(&s.tree(), &then);
        assert!(leftovers(&s).is_empty(), "{gone}");
        s.ok(["verify", "--deep"]);
    }
}

/// Without our staging.
fn strip(mut tree: Tree) -> Tree {
    tree.retain(|path, _| !path.starts_with(b".backtrail-stage-"));
    tree
}

/// K24: every command says so, and prune keeps what the journal needs.
#[test]
fn res_041_k24_other_commands_leave_a_half_done_restore_alone() {
    for way in WAYS {
        let (mut s, then, now) = killed();
        let half = s.tree();
        for args in [
            vec!["capture"],
            vec!["restore", "latest", "--yes"],
            vec!["restore", "latest~1", "--yes"],
            vec!["undo", "--yes"],
            vec!["redo", "--yes"],
        ] {
            // The second has no such target; which of the two is told does not matter.
            let run = s.run([args.clone(), vec!["--json"]].concat());
            assert!(run.code == 4 || (run.code == 6 && args[1] == "latest~1"), "{run}");
            if run.code == 4 {
                assert_eq!(run.error_code(), "recovery-needed");
                let hint = run.json()["error"]["hint"].to_string();
                assert!(WAYS.iter().all(|w| hint.contains(w)), "{hint}");
            }
        }
        for args in [vec!["list"], vec!["diff"], vec!["show", "latest"], vec!["undo", "--list"]] {
            let run = s.run(&args).expect(0);
            assert!(run.stderr.contains("--roll-back"), "{run}");
        }
        s.env("BACKTRAIL_BANK_KEEP", "1").env("BACKTRAIL_BANK_AGE", "1ms");
        let pruned = s.run(["prune", "--keep", "1", "--instant", "--yes"]).expect(0);
        assert!(pruned.stderr.contains("--roll-back"), "{pruned}");
        assert_same_tree(&s.tree(), &half);
        let done = json(&s, &["restore", way], 0);
        assert_eq!(done["recovered"].as_array().expect("rows").len(), 1);
        assert_eq!(done["exit_code"], value!(0));
        assert_same_tree(&s.tree(), if way == "--finish" { &then } else { &now });
        s.ok(["verify", "--deep"]);
    }
}
