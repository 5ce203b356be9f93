//! Names, links, pipes, mounts and depth.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use backtrail_tests::cli::{Entry, Run, Sandbox, finish};
use backtrail_tests::history::run;
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use serde_json::json;

use crate::lib_side::Lib;
use crate::{Mount, paths, records, sandbox};

/// A command under `timeout 20` and, with `handles`, under `ulimit -n`.
fn bounded(s: &Sandbox, args: &[&str], handles: Option<u32>) -> Run {
    let inner = s.command(args);
    let limit = handles.map(|n| format!("ulimit -n {n}; ")).unwrap_or_default();
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("{limit}exec timeout 60 \"$@\"")).arg("sh");
    command.arg(inner.get_program()).args(inner.get_args());
    command.current_dir(s.workspace()).env_clear();
    command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    finish(command)
}

/// Makes `depth` directories `name` in each other, and a file in the deepest.
fn deep(s: &Sandbox, name: &str, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(s.workspace(), flags, Mode::empty()).expect("open");
    for _ in 0..depth {
        mkdirat(&at, name, Mode::from_raw_mode(0o755)).expect("mkdir");
        at = openat(&at, name, flags, Mode::empty()).expect("open");
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = openat(&at, "deepest", create, Mode::from_raw_mode(0o644)).expect("create");
    rustix::io::write(&file, b"deep").expect("write");
}

/// Removes what [`deep`] made: paths of that length defeat most tools.
fn remove_deep(s: &Sandbox, name: &str) {
    let done = Command::new("rm").args(["-rf", name]).current_dir(s.workspace()).status();
    assert!(done.expect("rm").success());
}

#[test]
fn cap_053_long_names_deep_paths_and_few_handles() {
    let s = sandbox();
    for len in 240..=255 {
        s.write("n".repeat(len), len.to_string());
    }
    s.write("語".repeat(85), "255 bytes");
    let name = "x".repeat(200);
    deep(&s, &name, 30); // 6,000 bytes
    for d in 0..400 {
        s.write(format!("wide/{d}/f"), d.to_string());
    }
    for handles in [None, Some(64)] {
        fs::remove_dir_all(s.home().join(".cache")).ok();
        let done = bounded(&s, &["capture", "--json"], handles).expect(0);
        let done = done.json();
        assert_eq!(done["counts"]["files"], 16 + 1 + 1 + 400, "{handles:?}");
        assert_eq!(done["coverage"]["complete"], true);
    }
    let listed = paths(&s, "latest");
    let deepest = listed.iter().find(|p| p.ends_with("/deepest")).expect("the deepest");
    assert!(deepest.len() > 6000);
    assert_eq!(s.run(["show", "latest", "--cat", &"n".repeat(255)]).expect(0).out(), "255");
    run(async { Lib::of(&s).await.assert_clean().await });
    remove_deep(&s, &name);
}

#[test]
fn cap_056_a_mount_is_entered_only_when_asked() {
    let s = sandbox();
    s.write("f", "x");
    let Some(_mount) = Mount::new(s.path("mnt"), "size=1m,mode=755") else { return };
    s.write("mnt/inside", "y");
    let done = s.run(["capture", "--json"]).expect(3).json();
    assert_eq!(records(&done), [("mnt", "other-filesystem")]);
    assert_eq!((&done["coverage"]["unobserved"], &done["counts"]["files"]), (&json!(1), &json!(1)));
    assert!(s.run(["capture"]).expect(3).out().contains("other-filesystem"));
    let crossed = s.ok(["capture", "--cross-filesystems"]);
    assert_eq!(crossed["counts"]["files"], 2);
    let tree = run(async { Lib::of(&s).await.recorded("latest").await });
    assert_eq!(tree[&b"mnt/inside"[..]], Entry::File(0o644, b"y".to_vec()));
}
