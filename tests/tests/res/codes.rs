//! Every kind of failure with its exit code, in text and JSON: RES-021; names that are
//! no snapshot's: RES-008.

use std::fs;
use std::process::Stdio;

use backtrail_tests::cli::{assert_same_tree, finish};
use backtrail_tests::host::{as_nobody, give_to_nobody};

use crate::{forge, go, json, refused, sandbox};

/// K32.
#[test]
fn res_008_what_is_no_snapshot_is_never_a_path() {
    let s = sandbox();
    s.write("a", "a\n");
    let first = s.capture();
    s.write("a", "edited\n");
    let now = s.tree();
    fs::create_dir_all(s.top().join("x")).expect("mkdir");
    for (name, codes) in [
        ("0000000000000000", vec![6]),
        ("ffff", vec![6]),
        ("no-such-label", vec![6]),
        ("", vec![2, 6]),
        (" ", vec![2, 6]),
        (".", vec![2, 6]),
        ("..", vec![2, 6]),
        ("../x", vec![2, 6]),
        ("a/b", vec![2, 6]),
        ("/etc/passwd", vec![2, 6]),
        ("latest~9", vec![6]),
        ("latest~x", vec![2]),
        ("a\nb", vec![2, 6]),
        (&first[..3], vec![2, 6]),
    ] {
        for verb in [vec!["restore", name, "--yes"], vec!["restore", name, "--dry-run"]] {
            let run = s.run([verb, vec!["--json"]].concat());
            assert!(codes.contains(&run.code), "{name:?}: {run}");
            assert!(!run.error_code().is_empty());
        }
    }
    assert_same_tree(&s.tree(), &now);
    go(&s, &["restore", &first[..4]], 0);
    // Two whose ids begin alike: refused, both named.
    let twins = forge::alike(&s);
    let error = refused(&s, &["restore", &twins[0][..4], "--yes"], 2);
    let said = error.to_string();
    assert!(twins.iter().all(|id| said.contains(id)), "{said}");
    go(&s, &["restore", &twins[0]], 0);
}

/// K76.
#[test]
fn res_021_each_failure_has_its_code_in_text_and_json() {
    let s = sandbox();
    s.write("a", "a\n");
    s.write("b", "b\n");
    s.capture();
    s.write("a", "edited\n");
    let now = s.tree();
    // 1: failed in the middle, and rolled back.
    let mut command = s.command(["restore", "latest", "--yes", "--json"]);
    command.env("BACKTRAIL_FAULT", "restore.step:1:fail");
    let failed = finish(command).expect(1);
    assert_eq!(failed.error_code(), "fault");
    assert!(failed.out().contains("nothing was changed"), "{failed}");
    assert_same_tree(&s.tree(), &now);
    // 2: usage.
    for args in [
        vec!["restore"],
        vec!["restore", "latest", "--on-conflict", "maybe"],
        vec!["restore", "latest", "--plan", "12"],
        vec!["restore", "--finish", "--roll-back"],
        vec!["undo", "0"],
        vec!["restore", "latest", "--yes", "-w", "/"],
    ] {
        let run = s.run([args, vec!["--json"]].concat()).expect(2);
        run.error_code();
    }
    // 4: refused.
    refused(&s, &["restore", "latest"], 4);
    refused(&s, &["restore", "latest", "--yes", "--plan", &"0".repeat(16)], 4);
    refused(&s, &["restore", "latest", "--into", s.workspace().to_str().expect("text")], 4);
    // 6: not found.
    refused(&s, &["restore", "nothing", "--yes"], 6);
    refused(&s, &["restore", "latest", "nothing", "--yes"], 6);
    refused(&s, &["undo", "--yes"], 6);
    refused(&s, &["redo", "--yes"], 6);
    refused(&s, &["restore", "--finish"], 6);
    refused(&s, &["restore", "latest", "--yes", "--run", "no-such-run"], 6);
    assert_same_tree(&s.tree(), &now);
    // 0 and 3 are results, not failures.
    go(&s, &["restore", "latest"], 0);
    assert_eq!(go(&s, &["restore", "latest"], 0)["state"], "unchanged");
    s.write(".gitignore", "b\n");
    s.write("b", "edited\n");
    go(&s, &["restore", "latest"], 3);
    let human = s.run(["restore", "latest", "b", "--yes"]);
    assert_eq!(human.code, 0, "the rule went with the first restore: {human}");
}

#[test]
fn res_021_busy_damaged_and_unreachable() {
    let s = sandbox();
    s.write("a", "a\n");
    s.capture();
    s.write("a", "edited\n");
    // 5: somebody else holds the workspace, and is named.
    let mut command = s.command(["restore", "latest", "--yes"]);
    command.env("BACKTRAIL_FAULT", "restore.staged:1:stop").stdout(Stdio::null());
    let mut stopped = command.stderr(Stdio::null()).spawn().expect("starts");
    while !crate::leftovers(&s).iter().any(|n| s.path(n).join("new/0").exists()) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let error = refused(&s, &["restore", "latest", "--yes", "--wait", "0"], 5);
    assert!(error.to_string().contains(&stopped.id().to_string()), "who: {error}");
    stopped.kill().expect("killed");
    stopped.wait().expect("ended");
    go(&s, &["restore", "latest"], 0);
    assert!(crate::leftovers(&s).is_empty(), "what it left is swept");
    // 7: a document that is not what it was.
    s.write("a", "edited\n");
    let first = s.ok(["show", "latest"])["id"].as_str().expect("an id").to_owned();
    let document = forge::document(&s, &first);
    let text = fs::read(&document).expect("there");
    fs::write(&document, &text[..text.len() / 2]).expect("damaged");
    let error = refused(&s, &["restore", &first, "--yes"], 7);
    assert_eq!(error["code"], "corrupt");
    // 8: a store that may not be read.
    let gone = sandbox();
    gone.write("a", "a\n");
    gone.capture();
    gone.write("a", "edited\n");
    give_to_nobody(gone.workspace());
    for args in [vec!["restore", "latest", "--yes", "--json"], vec!["undo", "--yes", "--json"]] {
        let run = as_nobody(gone.command(args)).expect(8);
        assert_eq!(run.error_code(), "denied");
    }
    json(&gone, &["restore", "latest", "--yes"], 0);
}
