//! `restore` against what file systems do: links, kinds, modes, names, places.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use backtrail_tests::cli::{assert_same_tree, tree};
use serde_json::json;

use crate::restore::restore;
use crate::sandbox;

#[test]
fn res_055_and_056_bytes_come_back_and_are_not_shared_with_the_store() {
    let s = sandbox();
    let all: Vec<u8> = (0..=255).collect();
    s.write("all", &all);
    s.write("utf16", b"\xff\xfea\0\r\0\n\0");
    s.write("cr", "a\rb\r\nc");
    s.write("twin", &all);
    s.write(".gitattributes", "* text=auto\n");
    s.write(".git/config", "[core]\n\tautocrlf = true\n");
    let before = s.tree();
    s.capture();
    for name in ["all", "utf16", "cr"] {
        s.write(name, "other");
    }
    restore(&s, "latest");
    assert_same_tree(&s.tree(), &before);
    fs::OpenOptions::new().append(true).open(s.path("all")).expect("open");
    s.write("all", "edited in place");
    assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
    assert_eq!(fs::read(s.path("twin")).expect("read"), all);
}

#[test]
fn res_056_bytes_of_every_kind() {
    let s = sandbox();
    s.write("nul", b"a\0b");
    s.write("no-newline", "x");
    let before = s.tree();
    s.capture();
    s.remove("nul");
    s.write("no-newline", "x\n");
    restore(&s, "latest");
    assert_same_tree(&s.tree(), &before);
}

#[test]
fn res_057_pipes_and_sockets_are_left_and_named() {
    let s = sandbox();
    s.write("f", "1");
    s.write("was-file", "1");
    s.capture();
    s.write("f", "2");
    s.remove("was-file");
    let made =
        std::process::Command::new("mkfifo").arg(s.path("was-file")).status().expect("mkfifo");
    assert!(made.success());
    let _socket = UnixListener::bind(s.path("socket")).expect("bind");
    let run = s.run(["restore", "latest", "--yes", "--json"]).expect(3);
    assert_eq!(run.json()["conflicts"][0]["kind"], "special-file");
    assert!(s.path("socket").exists());
    assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
}

#[test]
fn res_050_a_link_at_a_recorded_path_is_not_followed() {
    let s = sandbox();
    s.write("f", "mine\n");
    s.link(".", "dot");
    s.link("/", "root");
    s.link("nowhere", "dangling");
    let before = s.tree();
    s.capture();
    let victim = s.top().join("victim");
    fs::write(&victim, "do not touch\n").expect("write");
    s.remove("f");
    s.link(&victim, "f");
    for name in ["dot", "root", "dangling"] {
        s.remove(name);
    }
    restore(&s, "latest");
    assert_same_tree(&s.tree(), &before);
    assert_eq!(fs::read(&victim).expect("read"), b"do not touch\n");
    // a link in the place of a directory on the way
    s.write("d/f", "1");
    s.capture();
    let outside = s.top().join("outside");
    fs::create_dir(&outside).expect("mkdir");
    fs::write(outside.join("f"), "outside\n").expect("write");
    s.remove("d");
    s.link(&outside, "d");
    s.run(["restore", "latest", "--yes"]);
    assert_eq!(fs::read(outside.join("f")).expect("read"), b"outside\n");
}

#[test]
fn res_051_kinds_change_unless_something_uncovered_is_in_the_way() {
    let s = sandbox();
    s.write(".gitignore", "*.secret\n");
    s.write("x", "file");
    s.write("y/f", "dir");
    s.write("z", "file");
    s.capture();
    s.remove("x");
    s.write("x/inside", "1");
    s.remove("y");
    s.write("y", "now a file");
    s.remove("z");
    s.write("z/kept.secret", "precious");
    let run = s.run(["restore", "latest", "--yes", "--json"]).expect(3);
    let json = run.json();
    assert_eq!(json["conflicts"][0]["kind"], "uncovered-content", "{run}");
    assert_eq!(fs::read(s.path("x")).expect("read"), b"file");
    assert_eq!(fs::read(s.path("y/f")).expect("read"), b"dir");
    assert_eq!(fs::read(s.path("z/kept.secret")).expect("read"), b"precious");
}

#[test]
fn res_052_recorded_modes_come_back_whatever_the_umask() {
    let s = sandbox();
    let modes = [0o755, 0o600, 0o700, 0o2775, 0o444];
    for mode in modes {
        s.write(format!("f{mode:o}"), "old");
        s.chmod(format!("f{mode:o}"), mode);
    }
    let before = s.tree();
    s.capture();
    for umask in ["000", "022", "077"] {
        for mode in modes {
            let path = s.path(format!("f{mode:o}"));
            fs::remove_file(&path).expect("remove");
            fs::write(&path, "new content").expect("write");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("chmod");
        }
        let mut shell = std::process::Command::new("sh");
        let own = s.command([""]);
        let line = format!("umask {umask}; exec \"$0\" restore latest --yes --special-modes");
        shell.args(["-c", &line]).arg(own.get_program()).current_dir(s.workspace()).env_clear();
        shell.envs(own.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let run = shell.output().expect("run");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_same_tree(&s.tree(), &before);
    }
}

#[test]
fn res_058_and_061_odd_and_long_names_come_back() {
    use std::os::unix::ffi::OsStrExt as _;
    let s = sandbox();
    let odd = std::ffi::OsStr::from_bytes(b"bad\xff.txt");
    s.write(std::path::Path::new(odd), "1");
    s.write("n".repeat(255), "1");
    let before = s.tree();
    s.capture();
    s.remove(std::path::Path::new(odd));
    s.write("n".repeat(255), "2");
    restore(&s, "latest");
    assert_same_tree(&s.tree(), &before);
}

#[test]
fn res_062_the_next_capture_reads_no_restored_file() {
    let s = sandbox();
    for i in 0..50 {
        s.write(format!("f{i}"), format!("{i}"));
    }
    let first = s.capture();
    for i in 0..50 {
        s.write(format!("f{i}"), "edited");
    }
    s.capture();
    restore(&s, &first);
    let next = s.ok(["capture"]);
    assert_eq!(next["read"]["files"], 0, "{next}");
    assert_eq!(next["counts"]["files"], 50);
}

#[test]
fn res_063_latest_means_the_same_after_a_restore() {
    let s = sandbox();
    s.write("f", "1");
    let first = s.capture();
    for edit in ["2", "3"] {
        s.write("f", edit);
        let done = restore(&s, "latest");
        assert_eq!(done["target"]["snapshot"], first);
        assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
    }
}

#[test]
fn res_070_into_takes_only_an_empty_place_unless_told() {
    let s = sandbox();
    s.write("f", "1");
    s.write("d/g", "1");
    let before = s.tree();
    s.capture();
    let out = s.top().join("out");
    let path = out.to_str().expect("text").to_owned();
    s.ok(["restore", "latest", "--into", &path]);
    assert_same_tree(&tree(&out), &before);
    fs::write(out.join("sibling"), "stays").expect("write");
    fs::write(out.join("f"), "differs").expect("write");
    let run = s.run(["restore", "latest", "--into", &path, "--json"]).expect(4);
    assert_eq!(run.error_code(), "not-empty");
    let done = s.ok(["restore", "latest", "--into", &path, "--overwrite", "--yes"]);
    assert_eq!(done["kind"], "into");
    assert_eq!(fs::read(out.join("f")).expect("read"), b"1");
    assert_eq!(fs::read(out.join("sibling")).expect("read"), b"stays");
    for root in ["/", s.home().to_str().expect("text")] {
        s.run(["restore", "latest", "--into", root]).expect(2);
    }
}

#[test]
fn res_072_a_directory_made_anew_loses_nothing() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    // kept aside, so that the new directory cannot get the old one's inode
    fs::rename(s.workspace(), s.top().join("aside")).expect("rename");
    s.write("other", "mine");
    s.write("f", "2");
    let run = s.run(["restore", "latest"]).expect(4);
    assert!(run.stderr.contains("made anew"), "{run}");
    s.ok(["restore", "latest", "--yes"]);
    assert_eq!(fs::read(s.path("other")).expect("read"), b"mine");
    assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
}

#[test]
fn res_074_a_subdirectory_gives_the_same_plan() {
    let mut s = sandbox();
    let top = s.workspace().to_path_buf();
    s.write("f", "1");
    s.write("sub/g", "1");
    s.capture();
    s.write("f", "2");
    let plan = s.ok(["restore", "latest", "--dry-run"])["plan"].clone();
    s.set_workspace(top.join("sub"));
    assert_eq!(s.ok(["restore", "latest", "--dry-run"])["plan"], plan);
    // paths are relative to where they are typed
    fs::write(top.join("sub/g"), "2").expect("write");
    s.ok(["restore", "latest", "g", "--yes"]);
    assert_eq!(fs::read(top.join("sub/g")).expect("read"), b"1");
    assert_eq!(fs::read(top.join("f")).expect("read"), b"2");
}
