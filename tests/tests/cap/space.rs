//! Stores that are full or read-only.

use std::fs;

use backtrail_tests::cli::assert_same_tree;
use backtrail_tests::history::run;
use serde_json::json;

use crate::lib_side::Lib;
use crate::{Mount, as_nobody, files_below, give_to_nobody, noise, sandbox};

#[test]
fn cap_042_a_full_store_fails_whole_and_the_next_capture_is_complete() {
    let mut s = sandbox();
    let Some(disk) = Mount::new(s.top().join("disk"), "size=4m,mode=700") else { return };
    s.env("BACKTRAIL_STORE", disk.0.join("store"));
    for i in 0..64_u64 {
        s.write(format!("d{}/f{i}", i % 5), noise(i, 128 << 10));
    }
    let full = s.run(["capture", "--json"]).expect(1);
    assert_eq!(full.error_code(), "store-full");
    let error = &full.json()["error"];
    assert!(error["need"].is_u64() && error["free"].is_u64(), "{full}");
    assert!(full.out().contains("disk/store"), "{full}");
    assert_eq!(s.ok(["list"])["snapshots"], json!([]));
    let left = files_below(&disk.0);
    let staged = |f: &&std::path::PathBuf| f.to_string_lossy().contains("/.tmp-");
    assert_eq!(left.iter().filter(staged).count(), 0, "{left:?}");
    disk.remount("size=64m");
    // a disk that lost power when it was full: short objects under their names
    let objects = files_below(&disk.0.join("store/workspace-objects"));
    for file in objects.iter().take(3) {
        fs::File::options().write(true).open(file).expect("open").set_len(10).expect("cut");
    }
    let done = s.ok(["capture"]);
    assert_eq!((&done["created"], &done["coverage"]["complete"]), (&json!(true), &json!(true)));
    std::os::unix::fs::symlink(disk.0.join("store"), s.store()).expect("link");
    run(async {
        let lib = Lib::of(&s).await;
        lib.assert_clean().await;
        assert_same_tree(&lib.recorded("latest").await, &s.tree());
    });
}

#[test]
fn cap_042_a_full_store_keeps_the_head_it_has() {
    let mut s = sandbox();
    let Some(disk) = Mount::new(s.top().join("disk"), "size=4m,mode=700") else { return };
    s.env("BACKTRAIL_STORE", disk.0.join("store"));
    s.write("f", "first");
    let first = s.capture();
    for i in 0..64_u64 {
        s.write(format!("n{i}"), noise(i, 128 << 10));
    }
    let full = s.run(["capture", "--label", "new", "--json"]).expect(1);
    assert_eq!(full.error_code(), "store-full");
    let list = s.ok(["list"]);
    assert_eq!(
        (&list["head"], list["snapshots"].as_array().map(Vec::len)),
        (&json!(first), Some(1))
    );
    s.run(["show", "new"]).expect(6);
    disk.remount("size=64m");
    let done = s.ok(["capture", "--label", "new"]);
    assert_eq!(done["parent"], first);
    assert_eq!(done["counts"]["files"], 65);
}

#[test]
fn cap_042_a_read_only_store_lists_nothing_new() {
    let mut s = sandbox();
    let place = s.top().join("place");
    fs::create_dir(&place).expect("mkdir");
    s.env("BACKTRAIL_STORE", place.join("store"));
    s.write("f", "x");
    give_to_nobody(&s);
    s.chmod("../place", 0o555);
    let refused = as_nobody(s.command(["capture", "--json"]));
    assert!([1, 8].contains(&refused.code), "{refused}");
    assert!(refused.out().contains("place/store"), "{refused}");
    let list = as_nobody(s.command(["list", "--json"])).expect(0).json();
    assert_eq!(list["snapshots"], json!([]));
    s.chmod("../place", 0o755);
    assert_eq!(as_nobody(s.command(["capture", "--json"])).expect(0).json()["seq"], 0);
    // and one that is there, made read-only
    for dir in ["", "/locks", "/workspace-objects", "/workspaces"] {
        s.chmod(format!("../place/store{dir}"), 0o555);
    }
    s.write("f", "changed");
    let refused = as_nobody(s.command(["capture", "--json"]));
    assert!([1, 8].contains(&refused.code), "{refused}");
    let list = as_nobody(s.command(["list", "--json"])).expect(0).json();
    assert_eq!(list["snapshots"].as_array().map(Vec::len), Some(1));
}
