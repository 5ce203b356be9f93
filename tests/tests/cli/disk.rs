//! Captures of what file systems hold: roots, links, names, kinds, rules, limits.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use backtrail_tests::cli::{Sandbox, assert_same_tree, id, tree};
use serde_json::{Value, json};

use crate::sandbox;

fn paths(s: &Sandbox) -> Vec<String> {
    let json = s.ok(["show", "latest", "--files"]);
    let files = json["files"].as_array().expect("files");
    files.iter().map(|f| f["path"].as_str().expect("path").to_owned()).collect()
}

#[test]
fn cap_044_the_environment_of_git_and_temp_has_no_say() {
    let mut s = sandbox();
    let other = s.top().join("other");
    fs::create_dir_all(other.join(".git/objects")).expect("mkdir");
    fs::write(other.join(".git/index"), "index").expect("write");
    s.write("f", "1");
    s.write(".hg/store", "x");
    let plain = s.ok(["capture"]);
    let before = tree(&other);
    s.env("GIT_DIR", other.join(".git"));
    s.env("GIT_WORK_TREE", &other);
    s.env("GIT_INDEX_FILE", other.join(".git/index"));
    s.env("TMPDIR", "/dev/shm").env("PATH", "/nonexistent");
    let cache = s.top().join("cache");
    s.env("XDG_CACHE_HOME", cache).env_remove("HOME");
    let odd = s.ok(["capture"]);
    assert_eq!((id(&odd), &odd["counts"]), (id(&plain), &plain["counts"]));
    assert_same_tree(&tree(&other), &before);
}

#[test]
fn cap_045_a_link_replaced_by_a_directory_is_another_workspace() {
    let mut s = sandbox();
    let (real, w) = (s.top().join("real"), s.top().join("link"));
    fs::create_dir(&real).expect("mkdir");
    fs::write(real.join("theirs"), "1").expect("write");
    std::os::unix::fs::symlink(&real, &w).expect("link");
    s.set_workspace(&w);
    let first = s.ok(["capture", "-w", w.to_str().expect("text")]);
    assert_eq!(first["workspace"]["root"], real.display().to_string());
    fs::remove_file(&w).expect("remove");
    s.write("f", "1");
    let second = s.ok(["capture", "-w", w.to_str().expect("text")]);
    assert_ne!(second["chain"], first["chain"]);
    assert_eq!(paths(&s), ["f"]);
}

#[test]
fn cap_047_a_directory_made_again_at_the_same_path_is_noticed() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    fs::rename(s.workspace(), s.top().join("aside")).expect("rename");
    s.write("f", "1");
    let json = s.ok(["capture"]);
    assert_eq!(json["workspace"]["replaced"], true, "{json}");
    assert_eq!(json["warnings"][0]["code"], "workspace-replaced");
}

#[test]
fn cap_048_git_data_is_neither_read_nor_written() {
    let s = sandbox();
    s.write("be/.git/HEAD", "ref: refs/heads/main\n");
    s.write("be/.git/objects/aa/bb", "object");
    s.write("be/src", "1");
    s.write("fe/.GIT/HEAD", "x");
    s.write("fe/src", "2");
    s.write("wt/.git", "gitdir: /elsewhere\n");
    s.write("wt/src", "3");
    s.write("stray/.git", "whatever");
    let before = s.tree();
    s.capture();
    let files = paths(&s);
    assert!(!files.iter().any(|p| p.to_lowercase().contains(".git")), "{files:?}");
    assert!(["be/src", "fe/src", "wt/src"].iter().all(|p| files.iter().any(|f| f == p)));
    assert_same_tree(&s.tree(), &before);
}

#[test]
fn cap_050_and_051_links_are_text_and_pipes_are_left() {
    let s = sandbox();
    let targets = [("dot", "."), ("root", "/"), ("etc", "/etc"), ("gone", "nowhere"), ("up", "..")];
    for (name, to) in targets {
        s.link(to, name);
    }
    s.link("/etc/passwd", "passwd");
    s.write("f", "1");
    let made = std::process::Command::new("mkfifo").arg(s.path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let _socket = UnixListener::bind(s.path("socket")).expect("bind");
    let json = s.ok(["capture"]);
    assert_eq!((&json["counts"]["symlinks"], &json["counts"]["files"]), (&json!(6), &json!(1)));
    assert_eq!(json["coverage"]["skipped"], json!({ "unsupported": 2 }));
    let shown = s.ok(["show", "latest", "--files"]);
    for (name, to) in targets {
        let row = shown["files"].as_array().expect("files").iter().find(|f| f["path"] == name);
        assert_eq!(row.expect("row")["target"], to);
    }
}

#[test]
fn cap_051_pipes_and_sockets_do_not_make_it_incomplete() {
    let s = sandbox();
    let _socket = UnixListener::bind(s.path("socket")).expect("bind");
    let json = s.ok(["capture"]);
    assert_eq!((&json["coverage"]["complete"], &json["exit_code"]), (&json!(true), &json!(0)));
}

#[test]
fn cap_052_heavy_home_and_root_are_refused_at_once() {
    let s = sandbox();
    for i in 0..3000 {
        let dir = s.home().join(format!("d{}", i % 30));
        fs::create_dir_all(&dir).expect("mkdir");
        fs::write(dir.join(format!("f{i}")), "x").expect("write");
    }
    fs::File::create(s.home().join("sparse")).expect("create").set_len(2 << 30).expect("grow");
    let home = s.home();
    for root in [home.to_str().expect("text"), "/"] {
        let begun = std::time::Instant::now();
        let run = s.run(["capture", "-w", root]).expect(2);
        assert!(begun.elapsed().as_secs() < 2 && run.stderr.contains("--any-root"), "{run}");
    }
    assert!(!s.store().exists());
}

#[test]
fn cap_053_long_names_deep_paths_and_few_handles() {
    let s = sandbox();
    for len in [240, 254, 255] {
        s.write("n".repeat(len), "x");
    }
    // deeper than PATH_MAX: made step by step, each from its parent's handle
    let deep = "d".repeat(200);
    let mut dir = backtrail_core::fsx::Dir::open(s.workspace()).expect("open");
    for _ in 0..25 {
        dir.make_dir(deep.as_bytes(), 0o755).expect("mkdir");
        dir = dir.open_dir(deep.as_bytes()).expect("open");
    }
    dir.create_file(b"bottom").expect("create");
    let own = s.command(["capture", "--json"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 64; exec \"$0\" capture --json"]).arg(own.get_program());
    shell.current_dir(s.workspace()).env_clear();
    shell.envs(own.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let run = backtrail_tests::cli::finish(shell).expect(0);
    assert_eq!(run.json()["counts"]["files"], 4, "{run}");
    let mut remove = std::process::Command::new("rm");
    assert!(remove.arg("-rf").arg(s.path(&deep)).status().expect("rm").success());
}

#[test]
fn cap_054_names_that_are_not_utf_8_are_exact() {
    let s = sandbox();
    let odd = |b: &'static [u8]| Path::new(std::ffi::OsStr::from_bytes(b));
    s.write(odd(b"bad\xff.txt"), "1");
    s.write(odd(b"d\xfe/f"), "2");
    s.write("good.txt", "3");
    s.write("back\\slash", "4");
    s.capture();
    assert_eq!(paths(&s), ["back\\\\slash", "bad\\xff.txt", "d\\xfe", "d\\xfe/f", "good.txt"]);
}

#[test]
fn cap_055_case_is_kept() {
    let s = sandbox();
    s.write("README", "1");
    s.write("readme", "2");
    s.write("a.txt", "3");
    s.capture();
    fs::rename(s.path("a.txt"), s.path("A.txt")).expect("rename");
    let json = s.ok(["diff"]);
    let rows: Vec<(&Value, &Value)> = json["changes"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|c| (&c["status"], &c["path"]))
        .collect();
    assert_eq!(rows, [(&json!("A"), &json!("A.txt")), (&json!("D"), &json!("a.txt"))]);
    s.capture();
    assert_eq!(paths(&s), ["A.txt", "README", "readme"]);
}

#[test]
fn cap_067_git_and_staging_names_cannot_be_negated() {
    let s = sandbox();
    s.write(".backtrailignore", "!.git\n!vendor/.git\n!.backtrail-stage-*\n");
    s.write("vendor/.git", "x");
    s.write("sub/.backtrail-stage-0123456789abcdef", "x");
    let run = s.run(["capture", "--json"]).expect(3);
    assert_eq!(run.json()["coverage"]["skipped"], json!({ "reserved-name": 1 }));
    assert_eq!(paths(&s), [".backtrailignore", "sub", "vendor"]);
}

#[test]
fn cap_068_a_store_in_the_workspace_is_known_by_any_name() {
    let mut s = sandbox();
    let store = s.path("odd name");
    s.env("BACKTRAIL_STORE", &store);
    s.write(".backtrailignore", "!odd name/**\n");
    s.write("f", "1");
    for _ in 0..3 {
        assert_eq!(s.ok(["capture"])["counts"]["files"], 2);
        s.link("odd name", format!("link{}", fs::read_dir(s.workspace()).expect("list").count()));
    }
    assert!(!paths(&s).iter().any(|p| p.starts_with("odd name")));
}

#[test]
fn cap_072_excludes_outside_the_workspace_have_no_effect() {
    let s = sandbox();
    fs::write(s.home().join(".gitconfig"), "[core]\n\texcludesFile = ~/.gitignore\n")
        .expect("write");
    fs::write(s.home().join(".gitignore"), "*\n").expect("write");
    fs::write(s.top().join(".gitignore"), "*\n").expect("write");
    s.write(".git/info/exclude", "*\n");
    s.write("f", "1");
    s.capture();
    assert_eq!(paths(&s), ["f"]);
}

#[test]
fn cap_074_a_rule_taken_away_is_told_with_its_count() {
    let s = sandbox();
    s.write(".gitignore", "out/\n");
    for i in 0..500 {
        s.write(format!("out/{i}"), "x");
    }
    s.capture();
    s.write(".gitignore", "");
    let json = s.ok(["capture"]);
    let grew =
        json["warnings"].as_array().expect("warnings").iter().find(|w| w["code"] == "scope-grew");
    let grew = grew.unwrap_or_else(|| panic!("no warning: {json}"));
    assert_eq!(grew["files"], 500);
    assert!(grew["hint"].as_str().is_some_and(|h| h.contains("out/")), "{grew}");
}

#[test]
fn cap_076_and_077_the_size_limit_is_exact_and_may_be_raised() {
    let s = sandbox();
    let sized = |name: &str, len: u64| {
        fs::File::create(s.path(name)).expect("create").set_len(len).expect("grow");
    };
    sized("exact", 32 << 20);
    sized("over", (32 << 20) + 1);
    let run = s.run(["capture", "--json"]).expect(3).json();
    let record = &run["coverage"]["records"][0];
    assert_eq!((&record["path"], &record["reason"]), (&json!("over"), &json!("too-large")));
    assert_eq!(record["size"], (32 << 20) + 1);
    assert_eq!(paths(&s), ["exact"]);
    s.ok(["capture", "--max-file", "40MiB"]);
    assert_eq!(paths(&s), ["exact", "over"]);
}

#[test]
fn cap_077_one_byte_more_than_the_limit_is_skipped() {
    let s = sandbox();
    s.write("exact", "12345");
    s.write("over", "123456");
    s.run(["capture", "--max-file", "5"]).expect(3);
    assert_eq!(paths(&s), ["exact"]);
}

#[test]
fn cap_079_too_many_files_are_refused_with_lines_that_work() {
    let s = sandbox();
    for i in 0..12 {
        s.write(format!("many/f{i}"), "x");
    }
    for i in 0..300 {
        s.write(format!("node_modules/f{i}"), "x");
    }
    for _ in 0..2 {
        let run = s.run(["capture", "--max-files", "5", "--json"]).expect(4);
        assert_eq!(run.error_code(), "too-many-files");
        assert!(run.out().contains("many/ 12"), "{run}");
    }
    assert_eq!(s.ok(["list"])["total"], 0);
    let hint = s.run(["capture", "--max-files", "5", "--json"]).json()["error"]["hint"].clone();
    let line = hint.as_str().expect("hint").lines().find(|l| l.contains("echo ")).expect("a line");
    let status = std::process::Command::new("sh")
        .args(["-c", line])
        .current_dir(s.workspace())
        .status()
        .expect("sh");
    assert!(status.success(), "{line}");
    let json = s.ok(["capture", "--max-files", "5"]);
    assert_eq!(json["counts"]["files"], 1);
}

#[test]
fn cap_080_a_mass_of_new_files_is_told_with_a_rule_that_works() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    for i in 0..2100 {
        s.write(format!(".direnv/lib/f{i}"), "x");
    }
    let json = s.ok(["capture"]);
    let bulk: Vec<&Value> = json["warnings"]
        .as_array()
        .expect("w")
        .iter()
        .filter(|w| w["code"] == "bulk-added")
        .collect();
    assert_eq!(bulk.len(), 1, "{json}");
    assert_eq!(bulk[0]["path"], ".direnv/lib");
    let hint = bulk[0]["hint"].as_str().expect("hint");
    let (_, line) = hint.split_once("leave them out: ").expect("a command");
    let mut shell = std::process::Command::new("sh");
    assert!(shell.args(["-c", line]).current_dir(s.workspace()).status().expect("sh").success());
    assert_eq!(s.ok(["capture"])["counts"]["files"], 2);
}

#[test]
fn cap_081_every_skipped_path_is_recorded() {
    let s = sandbox();
    for i in 0..2000 {
        s.write(format!("d{}/{i}.pem", i % 20), "x");
    }
    let json = s.ok(["capture"]);
    assert_eq!(json["coverage"]["skipped"]["secret"], 2000);
    assert_eq!(json["coverage"]["records"].as_array().map(Vec::len), Some(100));
    let shown = s.ok(["show", "latest", "--skipped"]);
    assert_eq!(shown["records"].as_array().map(Vec::len), Some(2000));
    assert!(shown["coverage"]["records_ref"]["digest"].is_string());
    assert_eq!(s.ok(["capture"])["created"], false);
}

#[test]
fn cap_084_hard_links_are_entries_of_their_own() {
    let s = sandbox();
    s.write("a", "1");
    fs::hard_link(s.path("a"), s.path("b")).expect("link");
    let json = s.ok(["capture"]);
    assert_eq!((&json["counts"]["files"], &json["counts"]["hard_linked"]), (&json!(2), &json!(2)));
}

#[test]
fn cap_107_what_shells_do_is_in_the_next_snapshot() {
    let s = sandbox();
    s.write("a", "1");
    s.write("b", "1");
    s.capture();
    let script = "mv a c; rm b; printf x >> c; mkdir -p n/m; cp c n/m/d; ln -s c l; chmod 755 c";
    let mut shell = std::process::Command::new("sh");
    assert!(shell.args(["-c", script]).current_dir(s.workspace()).status().expect("sh").success());
    s.capture();
    assert_eq!(paths(&s), ["c", "l", "n", "n/m", "n/m/d"]);
}
