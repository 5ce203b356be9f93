//! The user's git is never written: RES-064.

use std::fs;
use std::path::Path;
use std::process::Command;

use backtrail_tests::cli::{Sandbox, Tree, assert_same_tree, tree};

use crate::{counts, go, sandbox};

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
    command.current_dir(dir).env_remove("GIT_DIR").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("HOME", dir).env("XDG_CONFIG_HOME", dir);
    let out = command.output().expect("git");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// What git says, and every byte of its directory.
fn evidence(s: &Sandbox) -> (Vec<String>, Tree) {
    let asked = [
        vec!["rev-parse", "HEAD"],
        vec!["reflog"],
        vec!["diff", "--cached"],
        vec!["stash", "list"],
        vec!["for-each-ref"],
    ];
    let bytes = tree(&s.path(".git"));
    (asked.iter().map(|a| git(s.workspace(), a)).collect(), bytes)
}

/// K16: two commits, a stash, a file staged in half.
fn repository() -> (Sandbox, String) {
    let s = sandbox();
    let w = s.workspace().to_owned();
    git(&w, &["init", "-q", "-b", "main"]);
    s.write("tracked", "one\ntwo\nthree\n");
    s.write("edited", "committed\n");
    s.write("deleted", "committed\n");
    s.write("moded", "committed\n");
    s.write(".gitattributes", "* text=auto\n");
    s.write("crlf", "a\r\nb\r\n");
    git(&w, &["config", "core.autocrlf", "true"]);
    git(&w, &["add", "-A"]);
    git(&w, &["commit", "-qm", "first"]);
    let id = s.capture();
    s.write("edited", "stashed\n");
    git(&w, &["stash", "-q"]);
    s.write("edited", "second\n");
    git(&w, &["commit", "-qam", "second"]);
    s.write("tracked", "one\nstaged\nthree\n");
    git(&w, &["add", "tracked"]);
    s.write("tracked", "one\nstaged\nthree and more\n");
    s.write("edited", "by hand\n");
    s.remove("deleted");
    s.chmod("moded", 0o755);
    (s, id)
}

#[test]
fn res_064_k16_only_working_files_move() {
    let (s, id) = repository();
    let mut first = s.tree();
    let before = evidence(&s);
    let done = go(&s, &["restore", &id], 0);
    let names = ["crlf", "deleted", "edited", "tracked"];
    assert_eq!(done["counts"]["mode_changed"], 1, "{done}");
    let after = evidence(&s);
    assert_eq!(after.0, before.0);
    assert_same_tree(&after.1, &before.1);
    assert_eq!(fs::read(s.path("tracked")).expect("there"), b"one\ntwo\nthree\n");
    assert_eq!(fs::read(s.path("edited")).expect("there"), b"committed\n");
    assert_eq!(fs::read(s.path("crlf")).expect("there"), b"a\r\nb\r\n", "{names:?}");
    go(&s, &["undo"], 0);
    first.retain(|path, _| !path.starts_with(b".git/"));
    let mut back = s.tree();
    back.retain(|path, _| !path.starts_with(b".git/"));
    assert_same_tree(&back, &first);
    assert_eq!(evidence(&s).0, before.0);
}

/// K12: the environment of a hook or a rebase changes nothing.
#[test]
fn res_064_k12_variables_of_git_have_no_say() {
    let (mut s, id) = repository();
    let other = s.top().join("other");
    fs::create_dir(&other).expect("mkdir");
    git(&other, &["init", "-q", "--bare"]);
    let before = (evidence(&s), tree(&other));
    s.env("GIT_DIR", &other).env("GIT_WORK_TREE", "/tmp");
    s.env("GIT_INDEX_FILE", s.top().join("index")).env("GIT_OBJECT_DIRECTORY", &other);
    let done = go(&s, &["restore", &id], 0);
    assert!(done["counts"]["written"].as_u64() > Some(2), "{done}");
    assert_eq!(fs::read(s.path("edited")).expect("there"), b"committed\n");
    let after = evidence(&s);
    assert_eq!(after.0, before.0.0);
    assert_same_tree(&after.1, &before.0.1);
    assert_same_tree(&tree(&other), &before.1);
    assert!(!s.top().join("index").exists());
}

/// K14, K15: repositories within, pointer files, and a stray file of that name.
#[test]
fn res_064_k14_k15_nested_git_data_is_not_ours() {
    let s = sandbox();
    for name in ["be", "fe"] {
        let dir = s.mkdir(name);
        git(&dir, &["init", "-q", "-b", "main"]);
        s.write(format!("{name}/src"), "source\n");
        git(&dir, &["add", "-A"]);
        git(&dir, &["commit", "-qm", "x"]);
    }
    s.write("wt/.git", "gitdir: ../be/.git/worktrees/wt\n");
    s.write("wt/src", "source\n");
    s.write("stray/.git", "some other text\n");
    s.write("stray/src", "source\n");
    s.capture();
    let data = |s: &Sandbox| -> Tree {
        let git = |path: &[u8]| path.split(|b| *b == b'/').any(|n| n == b".git");
        s.tree().into_iter().filter(|(path, _)| git(path)).collect()
    };
    for name in ["be", "fe", "wt", "stray"] {
        s.write(format!("{name}/src"), "edited\n");
        s.write(format!("{name}/made"), "made\n");
    }
    git(&s.path("be"), &["commit", "-qam", "second"]);
    s.write("wt/.git", "gitdir: elsewhere\n");
    let before = data(&s);
    let done = go(&s, &["restore", "latest"], 0);
    counts(&done, &[("written", 4), ("deleted", 4)]);
    assert_same_tree(&data(&s), &before);
    git(&s.path("be"), &["status", "--short"]);
    go(&s, &["undo"], 0);
    git(&s.path("fe"), &["fsck", "--no-progress"]);
}
