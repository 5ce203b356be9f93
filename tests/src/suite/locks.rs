//! CLD-G1 to CLD-G9, in their form for OS locks where the network has another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backtrail_backends::open::OpenOptions;
use backtrail_core::clock::{Clock, Timestamp};
use backtrail_core::error::Kind;
use backtrail_core::ids::{Chain, WorkspaceKey};
use backtrail_core::store::{DocKey, LockName, LockRequest};

use super::{SOON, Site, at_once, exclusive, handles, refused, run_id, shared};

const NOW: Duration = Duration::ZERO;

/// CLD-G1: Exclusive excludes all, Shared only Exclusive; who announced itself is next.
pub async fn g1_exclusive_and_shared(site: &Site) {
    let stores = handles(site, 3).await;
    let names = [
        LockName::Objects,
        LockName::Run(run_id("a/b".replace('/', " ").as_str())),
        LockName::Workspace("00112233445566aa".parse().expect("a key")),
        LockName::Chain(Chain::Run(run_id(&"r".repeat(255)))),
    ];
    for name in &names {
        // Nothing can be held in a store that does not exist: make it exist.
        drop(stores[0].lock(exclusive(name.clone(), NOW)).await.expect("free"));
        let one = stores[0].lock(shared(name.clone(), NOW)).await.expect("shared");
        let two = stores[1].lock(shared(name.clone(), NOW)).await.expect("shared as well");
        refused(stores[2].lock(exclusive(name.clone(), NOW)).await, Kind::Busy);
        // Another name is another lock.
        drop(stores[2].lock(exclusive(LockName::Prune, NOW)).await.expect("free"));
        let (store, asked) = (stores[2].clone(), exclusive(name.clone(), SOON));
        let waiting = tokio::spawn(async move { store.lock(asked).await });
        // Once it is announced, no later Shared passes it.
        while stores[0].lock(shared(name.clone(), NOW)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!waiting.is_finished());
        drop(one);
        drop(two);
        let guard = waiting.await.expect("no panic").expect("gets in");
        refused(stores[0].lock(shared(name.clone(), NOW)).await, Kind::Busy);
        refused(stores[0].lock(exclusive(name.clone(), NOW)).await, Kind::Busy);
        guard.release().await.expect("frees");
        drop(stores[0].lock(shared(name.clone(), NOW)).await.expect("free"));
    }
}

/// CLD-G2: tokens rise over releases and handles.
pub async fn g2_tokens_rise(site: &Site) {
    let mut last = 0;
    for i in 0..10 {
        let store = site.open().await;
        let guard = store.lock(exclusive(LockName::Prune, NOW)).await.expect("free");
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        assert_eq!(guard.fence().token, last);
        if i % 2 == 0 {
            guard.release().await.expect("frees");
        }
    }
}

/// CLD-G3: releasing a lost hold leaves the successor's alone.
pub async fn g3_release_is_conditional(site: &Site) {
    let store = site.open().await;
    let first = store.lock(exclusive(LockName::Prune, NOW)).await.expect("free");
    let Some(dir) = site.dir() else {
        // A hold in memory cannot be lost.
        first.check().expect("held");
        return;
    };
    std::fs::remove_file(dir.join("locks/prune.lock")).expect("removes");
    let second = store.lock(exclusive(LockName::Prune, NOW)).await.expect("another file");
    refused(first.check(), Kind::LostLease);
    first.release().await.expect("a no-op");
    second.check().expect("still held");
    let busy = refused(store.lock(exclusive(LockName::Prune, NOW)).await, Kind::Busy);
    assert!(busy.message().contains("suite"), "names the second holder: {busy}");
}

/// CLD-G4: a dropped or abandoned hold is free at once.
pub async fn g4_dead_holders_are_gone(site: &Site) {
    let store = site.open().await;
    let held = site.open().await.lock(exclusive(LockName::Prune, NOW)).await.expect("free");
    let task = tokio::spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    refused(store.lock(exclusive(LockName::Prune, NOW)).await, Kind::Busy);
    task.abort();
    let _ = task.await;
    store.lock(exclusive(LockName::Prune, SOON)).await.expect("free");
}

struct Shifted(i64);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000_000_000 + self.0)
    }
}

/// CLD-G5: no wall clock has a say.
pub async fn g5_clocks_are_not_compared(site: &Site) {
    let hours = 3 * 3_600_000_000_000;
    let mut last = 0;
    for shift in [hours, -hours, 0] {
        let options = OpenOptions { clock: Arc::new(Shifted(shift)), ..Default::default() };
        let odd = site.open_with(options).await;
        let plain = site.open().await;
        for (holder, other) in [(&odd, &plain), (&plain, &odd)] {
            let guard = holder.lock(exclusive(LockName::Prune, NOW)).await.expect("free");
            refused(other.lock(exclusive(LockName::Prune, NOW)).await, Kind::Busy);
            guard.check().expect("held");
            assert!(guard.token() > last);
            last = guard.token();
        }
    }
}

/// CLD-G6: a hold that cannot be trusted says so before anything is written through it.
pub async fn g6_lost_holds_say_so(site: &Site) {
    let store = site.open().await;
    drop(store.lock(exclusive(LockName::Objects, NOW)).await.expect("free"));
    let guard = store.lock(shared(LockName::Objects, NOW)).await.expect("free");
    guard.check().expect("held");
    let Some(dir) = site.dir() else { return };
    let lock = dir.join("locks/objects.lock");
    std::fs::rename(&lock, dir.join("locks/elsewhere")).expect("moves");
    refused(guard.check(), Kind::LostLease);
    std::fs::write(&lock, "").expect("writes");
    refused(guard.check(), Kind::LostLease);
}

/// CLD-G7: no wait is Busy at once, naming the holder; a wait ends with the hold.
pub async fn g7_busy_names_the_holder(site: &Site) {
    let (store, other) = (site.open().await, site.open().await);
    let name = LockName::Run(run_id("r-7"));
    let request = LockRequest { run_id: Some(run_id("r-7")), ..exclusive(name.clone(), NOW) };
    let guard = store.lock(request).await.expect("free");
    let e = refused(other.lock(exclusive(name.clone(), NOW)).await, Kind::Busy);
    for part in ["run/r-7", "suite", "r-7"] {
        assert!(e.message().contains(part), "{part}: {e}");
    }
    let holder = &e.details()["holder"];
    assert!(holder["host"].as_str().is_some_and(|h| !h.is_empty()), "{holder}");
    assert!(holder["since"].as_str().is_some_and(|s| s.contains('T')), "{holder}");
    if site.dir().is_some() {
        assert_eq!(holder["pid"], std::process::id());
    }
    let short = Duration::from_millis(30);
    refused(other.lock(exclusive(name.clone(), short)).await, Kind::Busy);
    let waiting = tokio::spawn(async move { other.lock(exclusive(name, SOON)).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(guard);
    waiting.await.expect("no panic").expect("gets in");
}

/// CLD-G8: never two inside, and a second Exclusive of one handle is Busy.
pub async fn g8_never_two_inside(site: &Site) {
    let stores = handles(site, site.writers(16)).await;
    let guard = stores[0].lock(exclusive(LockName::Prune, NOW)).await.expect("free");
    refused(stores[0].lock(exclusive(LockName::Prune, NOW)).await, Kind::Busy);
    drop(guard);
    let (inside, tokens) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let enter = |i: usize| {
        let (stores, inside, tokens) = (stores.clone(), inside.clone(), tokens.clone());
        async move {
            for _ in 0..3 {
                let asked = exclusive(LockName::Prune, Duration::from_secs(100));
                let guard = stores[i].lock(asked).await.expect("gets in");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                assert!(tokens.swap(guard.token(), Ordering::SeqCst) < guard.token());
                tokio::task::yield_now().await;
                guard.check().expect("held");
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            }
        }
    };
    at_once(stores.len(), enter).await;
}

/// CLD-G9, where the system frees the locks of the dead: nobody has to break a guard,
/// and the refs it would name are told to whoever waits.
pub async fn g9_guards_name_their_refs(site: &Site) {
    let store = site.open().await;
    let key: WorkspaceKey = "00112233445566aa".parse().expect("a key");
    let refs = DocKey::Refs(Chain::Workspace(key));
    let request = LockRequest { refs: vec![refs.clone()], ..shared(LockName::Objects, NOW) };
    // The store must exist for a Shared lock to leave a trace.
    drop(store.lock(exclusive(LockName::Objects, NOW)).await.expect("free"));
    let guard = store.lock(request).await.expect("free");
    let e = refused(store.lock(exclusive(LockName::Objects, NOW)).await, Kind::Busy);
    assert_eq!(e.details()["holder"]["refs"][0], refs.to_string());
    drop(guard);
    store.lock(exclusive(LockName::Objects, NOW)).await.expect("free at once");
}

/// Who holds a lock can be asked without taking it: Exclusive ones alone, and neither an
/// answer nor a question leaves a trace.
pub async fn holders_are_seen_without_a_trace(site: &Site) {
    let (store, other) = (site.open().await, site.open().await);
    let name = LockName::Run(run_id("r"));
    assert!(other.lock_holder(&name).await.expect("asks").is_none());
    if let Some(dir) = site.dir() {
        assert!(!dir.exists(), "a question made a store");
    }
    let request = LockRequest { run_id: Some(run_id("r")), ..exclusive(name.clone(), NOW) };
    let guard = store.lock(request).await.expect("free");
    let holder = other.lock_holder(&name).await.expect("asks").expect("held");
    assert_eq!(holder.run_id.as_deref(), Some("r"));
    assert!(other.lock_holder(&LockName::Prune).await.expect("asks").is_none());
    let token = guard.token();
    guard.check().expect("still held");
    drop(guard);
    assert!(other.lock_holder(&name).await.expect("asks").is_none());
    let guard = store.lock(shared(name.clone(), NOW)).await.expect("free");
    assert!(other.lock_holder(&name).await.expect("asks").is_none(), "Shared excludes nobody here");
    drop(guard);
    let guard = store.lock(exclusive(name, NOW)).await.expect("free");
    assert_eq!(guard.token(), token + 1, "questions count no token");
}
