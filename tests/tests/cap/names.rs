//! Names, links, pipes, mounts and depth.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use backtrail_core::path::RelPath;
use backtrail_tests::cli::{Entry, Run, Sandbox, assert_same_tree, finish};
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

#[test]
fn cap_050_links_are_recorded_and_never_followed() {
    let s = sandbox();
    s.write("f", "x");
    let absolute = s.path("f");
    s.link(".", "loop");
    s.link("/", "root");
    s.link("/etc", "etc");
    s.link(&absolute, "abs");
    s.link("nowhere", "dangling");
    s.mkdir("d");
    s.link("..", "d/parent");
    s.mkdir("ign");
    s.link("../..", "ign/up");
    s.write(".backtrailignore", "ign/\n");
    let done = bounded(&s, &["capture", "--json"], None).expect(0).json();
    assert_eq!((&done["counts"]["symlinks"], &done["counts"]["files"]), (&json!(6), &json!(2)));
    let mut want = s.tree();
    want.retain(|path, _| !path.starts_with(b"ign"));
    run(async { assert_same_tree(&Lib::of(&s).await.recorded("latest").await, &want) });
}

#[test]
fn cap_051_pipes_and_sockets_do_not_hold_a_capture_up() {
    let s = sandbox();
    s.write("f", "x");
    assert!(Command::new("mkfifo").arg(s.path("p")).status().expect("mkfifo").success());
    let _socket = UnixListener::bind(s.path("s")).expect("bind");
    let done = bounded(&s, &["capture", "--json"], None).expect(0).json();
    assert_eq!(records(&done), [("p", "unsupported"), ("s", "unsupported")]);
    assert_eq!(
        (&done["counts"]["files"], &done["coverage"]["complete"]),
        (&json!(1), &json!(true))
    );
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
fn cap_054_names_that_are_not_utf8_are_stored_exactly() {
    let s = sandbox();
    s.write("good.txt", "good");
    s.write(OsStr::from_bytes(b"bad\xff.txt"), "bad");
    s.write(OsStr::from_bytes(b"d\xfe/f"), "x");
    s.write(OsStr::from_bytes(b"back\\slash"), "y");
    s.capture();
    run(async { assert_same_tree(&Lib::of(&s).await.recorded("latest").await, &s.tree()) });
    let listed = paths(&s, "latest");
    assert_eq!(listed, ["back\\\\slash", "bad\\xff.txt", "d\\xfe/f", "good.txt"]);
    let raw = |text: &String| RelPath::parse_text(text).expect("a path").as_bytes().to_vec();
    let bytes: Vec<Vec<u8>> = listed.iter().map(raw).collect();
    assert_eq!(bytes, [&b"back\\slash"[..], b"bad\xff.txt", b"d\xfe/f", b"good.txt"]);
    let args =
        ["show".as_ref(), "latest".as_ref(), "--cat".as_ref(), OsStr::from_bytes(b"bad\xff.txt")];
    assert_eq!(s.run(args).expect(0).out(), "bad");
}

#[test]
fn cap_055_names_differ_by_case() {
    let s = sandbox();
    s.write("README", "upper");
    s.write("readme", "lower");
    s.write("a.txt", "x");
    s.capture();
    assert_eq!(paths(&s, "latest"), ["README", "a.txt", "readme"]);
    fs::rename(s.path("a.txt"), s.path("A.txt")).expect("rename");
    let done = s.ok(["capture"]);
    assert_eq!(done["delta"], json!({ "added": 1, "modified": 0, "deleted": 1 }));
    assert_eq!(paths(&s, "latest"), ["A.txt", "README", "readme"]);
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
