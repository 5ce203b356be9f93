//! What captures store: objects, chunks, snapshots, and what the stat cache saves.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use backtrail_tests::cli::{Sandbox, id};
use serde_json::{Value, json};

use crate::sandbox;

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend(next());
    }
    out.truncate(len);
    out
}

fn objects(s: &Sandbox) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for dir in fs::read_dir(s.store().join("workspace-objects")).expect("objects") {
        let files = fs::read_dir(dir.expect("entry").path()).expect("list");
        out.extend(files.map(|f| f.expect("entry").path()));
    }
    out.sort();
    out
}

fn cat(s: &Sandbox, path: &str) -> Vec<u8> {
    s.run(["show", "latest", "--cat", path]).expect(0).stdout
}

fn root(json: &Value) -> Value {
    json["root"]["digest"].clone()
}

#[test]
fn cap_001_equal_content_is_stored_once() {
    let mut s = sandbox();
    for name in ["a", "b", "d/c"] {
        s.write(name, noise(5000, 7));
    }
    s.capture();
    let big = |s: &Sandbox| {
        let len = |p: &PathBuf| fs::metadata(p).expect("stat").len();
        objects(s).iter().filter(|p| len(p) == 5000).count()
    };
    assert_eq!(big(&s), 1);
    s.set_workspace(s.top().join("other"));
    s.write("same", noise(5000, 7));
    s.capture();
    assert_eq!(big(&s), 1);
}

#[test]
fn cap_003_and_004_bytes_are_exact_and_empty_files_store_nothing() {
    let s = sandbox();
    let all: Vec<u8> = (0..=255).collect();
    let contents: [(&str, &[u8]); 7] = [
        ("all", &all),
        ("utf16", b"\xff\xfea\0\r\0\n\0"),
        ("latin1", b"caf\xe9"),
        ("cr", b"a\rb"),
        ("crlf", b"a\r\nb\r\n"),
        ("no-newline", b"x"),
        ("nul", b"\0"),
    ];
    s.write(".gitattributes", "* text=auto\n");
    s.write(".git/config", "[core]\n\tautocrlf = true\n");
    for (name, bytes) in contents {
        s.write(name, bytes);
    }
    s.capture();
    for (name, bytes) in contents {
        assert_eq!(cat(&s, name), bytes, "{name}");
    }
}

#[test]
fn cap_004_an_empty_file_is_no_object() {
    let s = sandbox();
    s.write("empty", "");
    s.capture();
    assert_eq!(cat(&s, "empty"), b"");
    let files = s.ok(["show", "latest", "--files"]);
    let digest = files["files"][0]["digest"].as_str().expect("digest").to_owned();
    assert!(digest.starts_with("e3b0c442"), "{digest}");
    assert!(!objects(&s).iter().any(|p| p.to_string_lossy().contains(&digest[2..])));
}

#[test]
fn cap_005_heavy_large_files_are_cut_and_a_small_edit_stores_little() {
    let s = sandbox();
    let mib = 1 << 20;
    for (name, len) in [
        ("exact", 8 * mib),
        ("one-more", 8 * mib + 1),
        ("near", 16 * mib - 100),
        ("large", 20 * mib),
    ] {
        s.write(name, noise(len, len as u64));
    }
    s.capture();
    for (name, len) in [("exact", 8 * mib), ("one-more", 8 * mib + 1), ("large", 20 * mib)] {
        assert!(cat(&s, name) == noise(len, len as u64), "{name}");
    }
    assert!(objects(&s).iter().all(|p| fs::metadata(p).expect("stat").len() <= 8 << 20));
    let mut large = noise(20 * mib, 20 * mib as u64);
    large.insert(9 * mib, b'!');
    s.write("large", &large);
    let edit = s.ok(["capture"]);
    // at most three chunks and the root tree
    assert!(edit["stored"]["objects"].as_u64() <= Some(4), "{edit}");
    assert!(cat(&s, "large") == large);
}

#[test]
fn cap_006_compression_changes_no_name() {
    let digests = |s: &Sandbox| {
        let files = s.ok(["show", "latest", "--files"]);
        let rows = files["files"].as_array().expect("files").clone();
        rows.into_iter().map(|f| f["digest"].clone()).collect::<Vec<_>>()
    };
    let mut by_setting = Vec::new();
    for setting in ["zstd", "off"] {
        let mut s = sandbox();
        s.env("BACKTRAIL_COMPRESSION", setting);
        s.write("text", "the same words again\n".repeat(2000));
        s.write("noise", noise(50_000, 3));
        s.write("small", "ab".repeat(300));
        s.capture();
        let packed =
            objects(&s).iter().filter(|p| p.extension().is_some_and(|e| e == "zst")).count();
        assert_eq!(packed, usize::from(setting == "zstd"), "{setting}");
        assert_eq!(cat(&s, "text"), "the same words again\n".repeat(2000).into_bytes());
        by_setting.push(digests(&s));
    }
    assert_eq!(by_setting[0], by_setting[1]);
}

#[test]
fn cap_009_an_object_with_other_bytes_is_rewritten() {
    let s = sandbox();
    s.write("f", noise(3000, 1));
    s.capture();
    let files = s.ok(["show", "latest", "--files"]);
    let digest = files["files"][0]["digest"].as_str().expect("digest").to_owned();
    let object = objects(&s).into_iter().find(|p| p.ends_with(&digest[2..])).expect("raw object");
    fs::write(&object, noise(3000, 2)).expect("write");
    s.write("f", noise(3000, 1));
    s.write("g", "new");
    let done = s.ok(["capture"]);
    assert_eq!(done["healed"], 1, "{done}");
    assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
}

#[test]
fn cap_016_a_mode_alone_makes_a_snapshot() {
    let s = sandbox();
    s.write("f", "1");
    s.mkdir("d");
    s.capture();
    let first = s.ok(["show", "latest"]);
    for path in ["f", "d"] {
        let before = fs::metadata(s.path(path)).expect("stat").permissions();
        s.chmod(path, 0o700);
        assert_eq!(s.ok(["capture"])["created"], true);
        assert_ne!(root(&s.ok(["show", "latest"])), root(&first));
        fs::set_permissions(s.path(path), before).expect("chmod");
        assert_eq!(s.ok(["capture"])["created"], true);
        assert_eq!(root(&s.ok(["show", "latest"])), root(&first));
    }
}

#[test]
fn cap_017_empty_directories_count() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.mkdir("empty");
    assert_eq!(s.ok(["capture"])["created"], true);
    s.remove("empty");
    assert_eq!(s.ok(["capture"])["created"], true);
    assert_eq!(s.ok(["capture"])["created"], false);
}

#[test]
fn cap_029_what_did_not_change_is_not_read() {
    let s = sandbox();
    for i in 0..2000 {
        s.write(format!("d{}/f{i}", i % 40), format!("{i}"));
    }
    s.capture();
    let again = s.ok(["capture"]);
    assert_eq!((&again["read"]["files"], &again["reused"]), (&json!(0), &json!(2000)));
    for i in 0..5 {
        s.write(format!("d{i}/f{i}"), "edited");
    }
    let edited = s.ok(["capture"]);
    assert_eq!((&edited["read"]["files"], &edited["reused"]), (&json!(5), &json!(1995)));
}

#[test]
fn cap_030_an_edit_with_its_time_put_back_is_seen() {
    let s = sandbox();
    s.write("a", "one");
    s.write("b", "one");
    s.capture();
    for (path, renamed) in [("a", false), ("b", true)] {
        let time = fs::metadata(s.path(path)).expect("stat").modified().expect("time");
        let at = if renamed { "prepared" } else { path };
        s.write(at, "two");
        fs::File::options()
            .write(true)
            .open(s.path(at))
            .expect("open")
            .set_modified(time)
            .expect("touch");
        if renamed {
            fs::rename(s.path(at), s.path(path)).expect("rename");
        }
        assert_eq!(s.ok(["capture"])["delta"]["modified"], 1, "{path}");
        assert_eq!(cat(&s, path), b"two");
    }
}

#[test]
fn cap_031_edits_as_fast_as_the_disk_allows_are_all_seen() {
    let mut s = sandbox();
    s.env_remove("BACKTRAIL_SAFETY_WINDOW");
    for round in 0..60 {
        let text = format!("{round:04}");
        s.write("f", &text);
        s.run(["capture", "-q"]).expect(0);
        assert_eq!(cat(&s, "f"), text.as_bytes());
        let file = fs::File::options().write(true).open(s.path("f")).expect("open");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("touch");
    }
}

#[test]
fn cap_032_a_cache_that_cannot_be_used_costs_only_time() {
    let s = sandbox();
    s.write("f", "1");
    let first = s.capture();
    let dir = s.home().join(".cache/backtrail/stat");
    let file = fs::read_dir(&dir).expect("list").next().expect("a cache").expect("entry").path();
    let bytes = fs::read(&file).expect("read");
    for broken in [&bytes[..bytes.len() / 2], b"BTC1", b"", b"other"] {
        fs::write(&file, broken).expect("write");
        let done = s.ok(["capture"]);
        assert_eq!((id(&done), &done["read"]["files"]), (first.clone(), &json!(1)));
    }
    fs::remove_dir_all(&dir).expect("remove");
    assert_eq!(s.ok(["capture"])["read"]["files"], 1);
    // something else lies where the cache should
    fs::remove_dir_all(&dir).expect("remove");
    fs::write(&dir, "in the way").expect("write");
    s.write("f", "2");
    let done = s.ok(["capture"]);
    assert_eq!(done["warnings"][0]["code"], "cache-unwritable", "{done}");
}

#[test]
fn cap_033_a_warm_cache_proves_nothing_about_another_store() {
    let mut s = sandbox();
    for i in 0..30 {
        s.write(format!("f{i}"), noise(2000, i));
    }
    s.capture();
    s.env("BACKTRAIL_STORE", s.top().join("second"));
    s.ok(["capture"]);
    assert_eq!(s.ok(["verify", "--deep"])["damaged"], json!([]));
    assert_eq!(cat(&s, "f7"), noise(2000, 7));
}

#[test]
fn cap_089_prune_during_a_capture_takes_nothing_it_needs() {
    use rustix::process::{Pid, Signal, kill_process};
    let s = sandbox();
    s.write("f", noise(4000, 1));
    s.capture();
    for i in 0..20 {
        s.write(format!("g{i}"), noise(4000, 100 + i));
    }
    let mut command = s.command(["capture", "--json"]);
    command.env("BACKTRAIL_FAULT", "capture.objects:1:stop");
    let child = command.spawn().expect("start");
    let stat = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&stat).expect("stat").contains(") T ") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let prune = s.run(["prune", "--instant", "--yes", "--wait", "500ms", "--json"]);
    assert!([0, 5].contains(&prune.code), "{prune}");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("pid")).expect("pid");
    kill_process(pid, Signal::CONT).expect("cont");
    let out = child.wait_with_output().expect("wait");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    assert_eq!(s.ok(["verify", "--all", "--deep"])["damaged"], json!([]));
    assert_eq!(cat(&s, "g3"), noise(4000, 103));
}
