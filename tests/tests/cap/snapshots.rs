//! Snapshots and refs: order, modes, directories, colliding ids, heads that cannot be read.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backtrail_core::capture::{NewLabel, Request};
use backtrail_core::snapshot::doc::BankNote;
use backtrail_core::store::{DocKey, Expect};
use backtrail_tests::cli::id;
use backtrail_tests::history::run;
use serde_json::json;

use crate::lib_side::{Lib, Moved, Still};
use crate::sandbox;

#[test]
fn cap_014_a_bank_as_head_does_not_change_what_latest_means() {
    let s = sandbox();
    s.write("f", "1");
    let first = s.capture();
    s.write("f", "2");
    let bank = run(async {
        let note = json!({ "transaction": "tx-0", "target": first, "plan_digest": "p" });
        let note: BankNote = serde_json::from_value(note).expect("a note");
        let label = NewLabel::Numbered("bank");
        let request = Request { bank: Some(note), label, ..Request::default() };
        let done = Lib::of(&s).await.own().capture(&request).await.expect("a bank");
        done.id.expect("an id").to_string()
    });
    let list = s.ok(["list"]);
    assert_eq!(list["head"], bank);
    assert_eq!(id(&s.ok(["show", "latest"])), first);
    assert_eq!(id(&s.ok(["show", "bank:0"])), bank);
    s.write("f", "3");
    let third = s.ok(["capture"]);
    assert_eq!(third["parent"], bank);
    assert_eq!(id(&s.ok(["show", "latest~1"])), first);
}

#[test]
fn cap_015_a_clock_that_steps_back_changes_no_order() {
    let s = sandbox();
    let ids: Vec<String> = run(async {
        let mut lib = Lib::of(&s).await;
        let clock = Arc::new(Moved::default());
        lib.ctx.clock = clock.clone();
        let mut ids = Vec::new();
        for (n, hours) in [0, 5, -30, 2, -60, -61].into_iter().enumerate() {
            clock.0.store(hours * 3_600_000_000_000, Ordering::SeqCst);
            s.write("f", n.to_string());
            ids.push(lib.capture().await.id.expect("an id").to_string());
        }
        ids
    });
    for limit in 1..=6 {
        let list = s.ok(["list", "--limit", &limit.to_string()]);
        let rows = list["snapshots"].as_array().expect("rows");
        let got: Vec<&str> = rows.iter().filter_map(|r| r["id"].as_str()).collect();
        let want: Vec<&String> = ids.iter().rev().take(limit).collect();
        assert_eq!(got, want);
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(row["seq"], 5 - i);
            let parent = (i < 5).then(|| &ids[4 - i]);
            assert_eq!(row["parent"], json!(parent));
        }
    }
}

#[test]
fn cap_019_a_head_of_a_newer_format_is_not_written_on() {
    let s = sandbox();
    for n in ["1", "2"] {
        s.write("f", n);
        s.capture();
    }
    let list = s.ok(["list"]);
    let key = list["workspace"]["key"].as_str().expect("key");
    let head = list["head"].as_str().expect("head");
    let place = s.store().join("workspaces").join(key).join("snapshots");
    let file = place.join(format!("{head}.json"));
    let text = fs::read_to_string(&file).expect("document");
    let newer = text.replace("\"format_version\":1,", "\"format_version\":99,");
    let newer = newer.replace("\"format_version\": 1,", "\"format_version\": 99,");
    assert_ne!(newer, text);
    fs::write(&file, newer).expect("write");
    s.write("f", "3");
    let refused = s.run(["capture", "--json"]).expect(4);
    assert_eq!(refused.error_code(), "store-newer");
    let shown = s.run(["list", "--json"]).json();
    assert_eq!(shown["unreadable"].as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(shown["snapshots"].as_array().map(Vec::len), Some(1), "{shown}");
}

#[test]
fn cap_028_an_id_that_is_taken_moves_the_time_on() {
    let (s, mut t) = (sandbox(), sandbox());
    s.write("f", "x");
    let at = 1_700_000_000_000_000_000;
    let still = || Arc::new(Still(at));
    let taken = run(async {
        let mut lib = Lib::of(&s).await;
        lib.ctx.clock = still();
        lib.capture().await.id.expect("an id")
    });
    // the same workspace at the same moment into another store, where the id is taken
    t.set_workspace(s.workspace());
    run(async {
        let mut lib = Lib::of(&t).await;
        lib.ctx.clock = still();
        lib.settings.cache_dir = None;
        let key = DocKey::Snapshot(lib.root.chain(), taken.clone());
        lib.store.put(&key, "{}".into(), Expect::Absent, None).await.expect("taken");
        let done = lib.capture().await.snapshot.expect("a document");
        assert_ne!(done.id, taken);
        assert!(done.created_at.ends_with(".000000001Z"), "{}", done.created_at);
        assert_eq!(&lib.store.get(&key).await.expect("still there").body[..], b"{}");
        assert_eq!(lib.own().resolve("latest").await.expect("it").id, done.id);
    });
}

#[test]
fn cap_093_a_capture_past_its_limit_publishes_nothing_and_the_next_works() {
    let mut s = sandbox();
    s.write("f", "x");
    s.env("BACKTRAIL_FAULT", "capture.trees:1:stop").env("BACKTRAIL_CAPTURE_TIMEOUT", "1s");
    let mut stopped = s.spawn(["capture", "--json"]);
    let pid = stopped.id();
    wait_for("the process to stop", || {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    });
    std::thread::sleep(Duration::from_millis(1100)); // the limit itself passes
    let pid = rustix::process::Pid::from_child(&stopped);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("continue");
    let code = stopped.wait().expect("an end").code();
    assert_eq!(code, Some(1));
    s.env_remove("BACKTRAIL_FAULT").env_remove("BACKTRAIL_CAPTURE_TIMEOUT");
    assert_eq!(s.ok(["list"])["snapshots"], json!([]));
    assert_eq!(s.ok(["capture"])["seq"], 0);
}

/// Waits until `done` is true, a minute at most.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
