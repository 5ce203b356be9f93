//! The root: which directory a capture takes, and what it never touches.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use backtrail_core::capture::Request;
use backtrail_tests::cli::{Sandbox, assert_same_tree, tree};
use backtrail_tests::history::run;
use serde_json::{Value, json};

use crate::lib_side::Lib;
use crate::{Mount, as_nobody, files_below, give_to_nobody, paths, sandbox, warned};

fn git(dir: &std::path::Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
    let out = command.current_dir(dir).output().expect("git");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// What does not depend on when and where a capture ran.
fn essence(done: &Value) -> Value {
    json!([
        done["counts"],
        done["coverage"],
        done["workspace"]["root"],
        done["chain"],
        done["warnings"]
    ])
}

#[test]
fn cap_044_the_environment_has_no_say() {
    let mut s = sandbox();
    s.write("src/f", "x");
    s.write(".hg/store/data", "mercurial");
    s.write(".gitignore", "*.log\n");
    s.write("a.log", "x");
    let other = s.top().join("other");
    fs::create_dir(&other).expect("mkdir");
    git(&other, &["init", "-q"]);
    fs::write(other.join("theirs"), "x").expect("write");
    git(&other, &["add", "."]);
    git(&other, &["commit", "-q", "-m", "x"]);
    let before = tree(&other);
    let clean = s.ok(["capture"]);
    let root = s.ok(["show", "latest"])["root"].clone();
    let Some(third) = Mount::new(s.top().join("third"), "size=1m") else { return };
    let store = |s: &mut Sandbox, n: u32| {
        let dir = s.top().join(format!("store{n}"));
        s.env("BACKTRAIL_STORE", &dir).env("BACKTRAIL_CACHE_DIR", dir.join("cache"));
    };
    s.env("GIT_DIR", other.join(".git")).env("GIT_WORK_TREE", "/tmp");
    s.env("GIT_INDEX_FILE", other.join(".git/index")).env("TMPDIR", &third.0);
    store(&mut s, 1);
    let set = s.ok(["capture"]);
    assert_eq!(essence(&set), essence(&clean));
    assert_eq!(s.ok(["show", "latest"])["root"], root);
    assert_same_tree(&tree(&other), &before);
    assert!(files_below(&third.0).is_empty());
    // nothing is found on PATH, and nobody says where home is
    s.env("PATH", "/nonexistent").env_remove("HOME");
    store(&mut s, 2);
    assert_eq!(essence(&s.ok(["capture"])), essence(&clean));
    assert_same_tree(&tree(&other), &before);
}

#[test]
fn k20_store_home_and_temporary_files_on_different_file_systems() {
    let mut s = sandbox();
    s.write("f", "x");
    let Some(store) = Mount::new(s.top().join("mem"), "size=8m,mode=700") else { return };
    s.env("BACKTRAIL_STORE", store.0.join("store")).env("TMPDIR", "/nonexistent");
    fs::remove_dir(s.home()).expect("remove");
    symlink("/proc", s.home()).expect("a home nobody can write to");
    let done = s.ok(["capture"]);
    assert_eq!(done["created"], true);
    assert_eq!(warned(&done, "store-tmpfs").len(), 1, "{done}");
    s.write("f", "y");
    assert_eq!(s.ok(["capture"])["delta"]["modified"], 1);
}

#[test]
fn cap_046_a_root_replaced_during_capture_publishes_nothing() {
    let s = sandbox();
    s.write("f", "x");
    for known in [false, true] {
        // also when there is nothing new: a label must not land on a stranger's head
        if known {
            s.capture();
        }
        let (w, aside) = (s.workspace().to_owned(), s.top().join(format!("aside-{known}")));
        run(async {
            let mut lib = Lib::of(&s).await;
            lib.on_phase("read", move || {
                fs::rename(&w, &aside).expect("rename");
                fs::create_dir(&w).expect("mkdir");
                fs::write(w.join("f"), "x").expect("write");
            });
            let e = lib.own().capture(&Request::default()).await.expect_err("it moved");
            assert_eq!(e.code(), "root-moved", "{e}");
        });
        let list = s.ok(["list"]);
        assert_eq!(list["snapshots"].as_array().map(Vec::len), Some(usize::from(known)));
    }
}

/// A parent with two repositories, a pointer file and a stray `.git`.
fn nested(s: &Sandbox) {
    for repo in ["be", "fe"] {
        s.write(format!("{repo}/src.rs"), "fn main() {}\n");
        git(&s.path(repo), &["init", "-q"]);
        git(&s.path(repo), &["add", "."]);
        git(&s.path(repo), &["commit", "-q", "-m", "x"]);
        s.write(format!("{repo}/edited"), "x");
    }
    git(&s.path("be"), &["worktree", "add", "-q", "../wt", "-b", "side"]);
    s.write("stray/.git", "no pointer at all\n");
    s.write("stray/f", "x");
}

fn git_data(s: &Sandbox) -> backtrail_tests::cli::Tree {
    let mut all = s.tree();
    let in_git = |p: &[u8]| p.split(|b| *b == b'/').any(|n| n == b".git");
    all.retain(|p, _| in_git(p));
    all
}

#[test]
fn cap_048_nested_repositories_are_covered_and_their_data_left_alone() {
    let s = sandbox();
    nested(&s);
    let before = git_data(&s);
    s.capture();
    let want = ["be/edited", "be/src.rs", "fe/edited", "fe/src.rs", "stray/f", "wt/src.rs"];
    assert_eq!(paths(&s, "latest"), want);
    let status = |dir: &str| git(&s.path(dir), &["status", "--porcelain"]);
    for round in 0..12_u64 {
        s.write("be/edited", round.to_string());
        let mut child = s.spawn(["capture"]);
        std::thread::sleep(Duration::from_millis(round * 5));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_same_tree(&git_data(&s), &before);
    }
    assert_eq!((status("be"), status("fe")), ("?? edited\n".into(), "?? edited\n".into()));
    assert_eq!(status("wt"), "");
    s.ok(["capture"]);
    let objects = run(async { Lib::of(&s).await.recorded("latest").await });
    assert!(!objects.keys().any(|p| p.split(|b| *b == b'/').any(|n| n == b".git")));
}

#[test]
fn cap_057_a_root_that_cannot_be_read_is_a_failure() {
    let s = sandbox();
    s.write("closed/f", "x");
    s.write("listed/f", "x");
    give_to_nobody(&s);
    s.chmod("closed", 0);
    let run = as_nobody(s.command(["capture", "-w", "closed", "--json"])).expect(1);
    assert_eq!(run.error_code(), "root-unreadable");
    // it may be passed through and not listed
    s.chmod("listed", 0o311);
    let run = as_nobody(s.command(["capture", "-w", "listed", "--json"])).expect(1);
    assert_eq!(run.error_code(), "root-unreadable");
    let list = as_nobody(s.command(["list", "-w", "closed/..", "--json"])).expect(0).json();
    assert_eq!(list["snapshots"], json!([]));
}

#[test]
fn a_workspace_that_is_or_lies_in_the_store_is_refused() {
    let mut s = sandbox();
    let inside = s.workspace().to_owned();
    s.env("BACKTRAIL_STORE", inside);
    let below = s.mkdir("runs/below");
    for dir in [s.workspace().to_owned(), below] {
        let run = s.run(["capture".as_ref(), "--json".as_ref(), "-w".as_ref(), dir.as_os_str()]);
        assert_eq!(run.expect(2).error_code(), "unsafe-root");
    }
    assert!(files_below(s.workspace()).is_empty());
}
