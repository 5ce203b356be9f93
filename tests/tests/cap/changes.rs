//! What a capture reads again and what the stat cache may answer.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use backtrail_core::capture::Request;
use backtrail_core::ids::Digest;
use backtrail_core::store::memory::MemoryStore;
use backtrail_tests::cli::{Entry, Sandbox, assert_same_tree, id};
use backtrail_tests::history::run;
use serde_json::json;

use crate::lib_side::{Lib, Moved};
use crate::{as_nobody, files_below, give_to_nobody, sandbox, warned};

/// The one cache file of the sandbox.
fn cache_file(s: &Sandbox) -> std::path::PathBuf {
    let files = files_below(&s.home().join(".cache/backtrail"));
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).expect("open").set_modified(time).expect("a time");
}

#[test]
fn cap_031_no_edit_is_missed_inside_the_grain_of_the_clock_heavy() {
    let s = sandbox();
    let file = s.write("f", "");
    let whole_second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    run(async {
        let mut lib = Lib::of(&s).await;
        lib.settings.observe.safety_window_ns = 2_000_000_000;
        lib.store = Arc::new(MemoryStore::new()); // what is seen has nothing to do with it
        let recorder = lib.own();
        for round in 0..2000 {
            for content in ["AAAA", "BBBB"] {
                fs::write(&file, content).expect("write");
                if round % 2 == 1 {
                    set_time(&file, whole_second);
                }
                let done = recorder.capture(&Request::default()).await.expect("a capture");
                assert!(done.created, "round {round}: {content} was missed");
            }
            if round % 50 == 0 {
                let tree = lib.recorded("latest").await;
                assert_eq!(tree[&b"f"[..]], Entry::File(0o644, b"BBBB".to_vec()));
            }
        }
    });
}

#[test]
fn cap_032_a_cache_that_cannot_be_used_costs_time_only() {
    let mut s = sandbox();
    for i in 0..20 {
        s.write(format!("f{i}"), i.to_string());
    }
    let first = id(&s.ok(["capture"]));
    let good = fs::read(cache_file(&s)).expect("cache");
    let resealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut body = good[..good.len() - 32].to_vec();
        change(&mut body);
        let sum = Digest::of(&body);
        body.extend_from_slice(&sum.0);
        body
    };
    let other_version = resealed(&|b| b[4] = b[4].wrapping_add(1));
    let other_root = resealed(&|b| b[20] ^= 1);
    let other_inode = resealed(&|b| b[8] ^= 1);
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let half = good[..good.len() / 2].to_vec();
    for bad in [Vec::new(), half, flipped, other_version, other_root, other_inode, b"x".to_vec()] {
        fs::write(cache_file(&s), bad).expect("write");
        let again = s.ok(["capture"]);
        assert_eq!((&again["read"]["files"], &again["created"]), (&json!(20), &json!(false)));
        assert_eq!(s.ok(["capture"])["read"]["files"], 0, "the cache is good again");
    }
    fs::remove_file(cache_file(&s)).expect("remove");
    assert_eq!(s.ok(["capture"])["read"]["files"], 20);
    // a directory nobody may write to
    s.env("BACKTRAIL_CACHE_DIR", s.mkdir("../closed"));
    give_to_nobody(&s);
    s.chmod("../closed", 0o555);
    let run = as_nobody(s.command(["capture", "--json"])).expect(0);
    let closed = run.json();
    assert_eq!((&closed["id"], &closed["read"]["files"]), (&json!(first), &json!(20)));
    assert_eq!(warned(&closed, "cache-unwritable").len(), 1, "{run}");
}

#[test]
fn cap_034_a_second_run_reads_and_sends_nothing() {
    let s = sandbox();
    for i in 0..200 {
        s.write(format!("d{}/f{i}", i % 7), format!("content {i}\n"));
    }
    run(async {
        let lib = Lib::of(&s).await;
        let first = lib.run_chain("one").await;
        lib.of_chain(first).capture(&Request::default()).await.expect("a capture");
        let second = lib.run_chain("two").await;
        let done = lib.of_chain(second).capture(&Request::default()).await.expect("a capture");
        assert!(done.created);
        assert_eq!((done.read.count, done.reused, done.stored.objects), (0, 200, 0));
        lib.assert_clean().await;
    });
}

#[test]
fn cap_035_a_clock_set_back_misses_nothing() {
    let s = sandbox();
    s.write("f", "1111");
    run(async {
        let mut lib = Lib::of(&s).await;
        let clock = Arc::new(Moved::default());
        lib.ctx.clock = clock.clone();
        lib.settings.observe.safety_window_ns = 2_000_000_000;
        lib.capture().await;
        clock.0.store(-86_400_000_000_000, Ordering::SeqCst);
        s.write("f", "2222");
        assert!(lib.capture().await.created);
        s.write("f", "3333");
        assert!(lib.capture().await.created);
        assert!(!lib.capture().await.created);
        clock.0.store(0, Ordering::SeqCst);
        s.write("f", "4444");
        assert!(lib.capture().await.created);
        assert_same_tree(&lib.recorded("latest").await, &s.tree());
        assert_eq!(lib.own().snapshots().await.expect("snapshots").len(), 4);
    });
}
