//! Doctor's checks of the store: CAP-103.

use std::path::Path;
use std::time::{Duration, SystemTime};

use backtrail_core::doctor::{Check, Fix, Status, doctor, fix, plan, verdict};
use backtrail_core::error::Kind;
use backtrail_core::store::DocKey;
use backtrail_core::workspace::Root;
use backtrail_tests::history::{History, Spec, run};

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no check {name}: {checks:#?}"))
}

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true if path.ends_with("locks") => {}
            true => out.extend(files(&path)),
            false => out.push((path.display().to_string(), std::fs::read(&path).expect("a file"))),
        }
    }
    out.sort();
    out
}

#[test]
fn cap_103_doctor_says_what_is_wrong_and_changes_nothing_without_fix() {
    run(async {
        let h = History::new().await;
        std::fs::create_dir(&h.root).expect("a workspace");
        std::fs::write(h.root.join("a"), b"a").expect("a file");
        let root = Root::open(&h.root, &h.ctx.host, false).expect("a root");
        let before = doctor(&*h.store, &h.ctx, Some(&root), None).await;
        assert!(!h.store_dir().exists(), "looking made a store");
        assert!(find(&before, "store").detail.contains("does not exist yet"));

        let chain = h.own();
        let first = h.snapshot(&chain, Spec::of(&[("a", "1")]).label("mine")).await;
        h.many(&chain, 2).await;
        let healthy = doctor(&*h.store, &h.ctx, Some(&root), None).await;
        assert!(healthy.iter().all(|c| c.status != Status::Fail), "{healthy:#?}");
        assert_eq!(verdict(&healthy), None);
        for name in ["store", "format", "space", "clock", "locks", "refs", "restores", "staging"] {
            assert_eq!(find(&healthy, name).status, Status::Ok, "{name}");
        }

        // leftovers of every kind
        let stale = h.store_dir().join("workspace-objects").join(".tmp-0123456789abcdef");
        std::fs::write(&stale, b"half").expect("staged");
        let old = SystemTime::now() - Duration::from_secs(48 * 3600);
        let file = std::fs::File::options().write(true).open(&stale).expect("staged");
        file.set_modified(old).expect("a time");
        std::fs::write(h.doc_file(&DocKey::Refs(chain.clone())), b"").expect("emptied");
        let journal = DocKey::Journal(h.key(), "tx-0123456789abcdef".parse().expect("an id"));
        h.put(&journal, &serde_json::json!({ "format_version": 1, "state": "applying" })).await;
        let stored = files(&h.store_dir());
        let ill = doctor(&*h.store, &h.ctx, None, None).await;
        assert_eq!(find(&ill, "refs").status, Status::Warn);
        assert_eq!(find(&ill, "staging").status, Status::Warn);
        assert!(find(&ill, "restores").detail.contains("tx-0123456789abcdef"));
        let fixes = plan(&*h.store).await.expect("a plan");
        assert_eq!(fixes, [Fix::RebuildRefs(chain), Fix::Maintain]);
        assert_eq!(files(&h.store_dir()), stored, "something changed");

        fix(&*h.store, &h.ctx, &fixes).await.expect("fixed");
        let after = doctor(&*h.store, &h.ctx, None, None).await;
        assert_eq!(find(&after, "refs").status, Status::Ok);
        assert_eq!(find(&after, "staging").status, Status::Ok);
        assert!(!stale.exists());

        std::fs::remove_file(h.doc_file(&first.key())).expect("removed");
        let dangling = doctor(&*h.store, &h.ctx, None, None).await;
        assert!(find(&dangling, "refs").detail.contains("mine"));
        assert_eq!(verdict(&dangling), Some(Kind::Corrupt));
    });
}

#[test]
fn cap_103_a_skewed_clock_shows_both_times() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 1).await;
        for (minutes, status) in [(1, Status::Ok), (10, Status::Warn), (180, Status::Fail)] {
            let ctx = h.at(Duration::from_secs(minutes * 60));
            let checks = doctor(&*h.store, &ctx, None, None).await;
            let clock = find(&checks, "clock");
            assert_eq!(clock.status, status, "{clock:?}");
            assert_eq!(clock.detail.matches("Z").count(), 2, "{clock:?}");
        }
    });
}

#[test]
fn cap_103_a_store_in_memory_is_warned_about() {
    let Some(place) = Some(Path::new("/dev/shm")).filter(|p| p.is_dir()) else {
        println!("skipped: no /dev/shm here");
        return;
    };
    run(async {
        let h = History::below(place).await;
        h.many(&h.own(), 1).await;
        let checks = doctor(&*h.store, &h.ctx, None, None).await;
        assert_eq!(find(&checks, "volatile").status, Status::Warn);
    });
}
