//! What only a store of files has: its layout, staging, links, modes and read-only places.

#![expect(clippy::disallowed_methods, reason = "tests plant files by hand")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use backtrail_core::clock::Faults;
use backtrail_core::error::{Kind, Result};
use backtrail_core::ids::{Digest, RunId, WorkspaceKey};
use backtrail_core::object::codec;
use backtrail_core::store::{
    DocKey, Expect, Listed, ListedObject, LockMode, LockName, LockRequest, Object, Prefix,
    PutObjects, PutOutcome, Store,
};
use bytes::Bytes;
use futures::TryStreamExt;

use super::LocalStore;
use crate::open::OpenOptions;

fn store(dir: &Path) -> LocalStore {
    LocalStore::new(dir, OpenOptions::default())
}

fn object(text: &str) -> Object {
    Object::new(text.as_bytes().to_vec()).expect("small")
}

async fn put(store: &LocalStore, objects: &[Object]) -> Vec<PutOutcome> {
    store.put_objects(objects.to_vec(), PutObjects::Check).await.expect("puts")
}

fn path_of(dir: &Path, digest: &Digest) -> std::path::PathBuf {
    let hex = digest.hex();
    dir.join("workspace-objects").join(&hex[..2]).join(&hex[2..])
}

fn names(dir: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(at).expect("lists") {
            let path = entry.expect("entry").path();
            if path.is_dir() && !path.is_symlink() {
                dirs.push(path.clone());
            }
            out.push(path.strip_prefix(dir).expect("below").display().to_string());
        }
    }
    out.sort();
    out
}

#[tokio::test]
async fn reading_creates_nothing() {
    let temp = tempfile::tempdir().expect("temp dir");
    let dir = temp.path().join("a/store");
    let store = store(&dir);
    let digest = object("x").digest();
    assert!(store.get_object(&digest).await.expect_err("absent").is_not_found());
    assert_eq!(store.contains(&[(digest, 1)]).await.expect("answers"), [false]);
    assert!(store.get(&DocKey::Damage).await.expect_err("absent").is_not_found());
    assert!(store.list(&Prefix::All).try_collect::<Vec<_>>().await.expect("empty").is_empty());
    assert!(store.list_objects().try_collect::<Vec<_>>().await.expect("empty").is_empty());
    store.delete(&DocKey::Damage, None).await.expect("nothing to do");
    store.delete_objects(&[digest]).await.expect("nothing to do");
    store.flush().await.expect("nothing to do");
    store.maintain().await.expect("nothing to do");
    let run: RunId = "r".parse().expect("run id");
    assert!(store.append_events(&run, vec![Bytes::from("{}")], None).await.is_err());
    let request = LockRequest::new(LockName::Objects, LockMode::Shared, Duration::ZERO, "list");
    let guard = store.lock(request.clone()).await.expect("shared");
    assert!(!temp.path().join("a").exists());
    // The first write takes the lock for real.
    put(&store, &[object("x")]).await;
    guard.check().expect("still held");
    let exclusive = LockRequest { mode: LockMode::Exclusive, ..request };
    assert_eq!(store.lock(exclusive.clone()).await.expect_err("held").kind(), Kind::Busy);
    drop(guard);
    store.lock(exclusive).await.expect("free");
}

#[tokio::test]
async fn a_lock_asked_for_before_the_store_was_made_elsewhere_is_taken_or_lost() {
    let temp = tempfile::tempdir().expect("temp dir");
    let dir = temp.path().join("store");
    let (early, other) = (store(&dir), store(&dir));
    let request = |name, mode| LockRequest::new(name, mode, Duration::ZERO, "list");
    let taken = early.lock(request(LockName::Objects, LockMode::Shared)).await.expect("shared");
    let lost = early.lock(request(LockName::Prune, LockMode::Shared)).await.expect("shared");
    let guard = other.lock(request(LockName::Prune, LockMode::Exclusive)).await.expect("free");
    taken.check().expect("taken now");
    assert_eq!(lost.check().expect_err("somebody has it").kind(), Kind::LostLease);
    let busy = other.lock(request(LockName::Objects, LockMode::Exclusive)).await;
    assert_eq!(busy.expect_err("held").kind(), Kind::Busy);
    guard.check().expect("held");
}

#[tokio::test]
async fn objects_get_their_names_at_the_barrier() {
    let temp = tempfile::tempdir().expect("temp dir");
    let dir = temp.path().join("store");
    let store = store(&dir);
    let big = object(&"all work and no play\n".repeat(1000));
    let all = [object("one"), object("two"), big.clone()];
    for outcome in put(&store, &all).await {
        assert!(matches!(outcome, PutOutcome::Stored { .. }), "{outcome:?}");
    }
    let staged = names(&dir);
    assert_eq!(staged.iter().filter(|n| n.contains(".tmp-")).count(), 3, "{staged:?}");
    // The own handle sees them, another one does not.
    let other = LocalStore::new(&dir, OpenOptions::default());
    for o in &all {
        assert_eq!(store.get_object(&o.digest()).await.expect("own"), o.bytes());
        assert!(other.get_object(&o.digest()).await.expect_err("other").is_not_found());
        let question = [(o.digest(), o.bytes().len() as u64)];
        assert_eq!(store.contains(&question).await.expect("own"), [true]);
    }
    assert!(put(&store, &all).await.iter().all(|o| matches!(o, PutOutcome::Present)));
    store.flush().await.expect("flushes");
    assert!(!names(&dir).iter().any(|n| n.contains(".tmp-")));
    for o in &all {
        assert_eq!(other.get_object(&o.digest()).await.expect("named"), o.bytes());
    }
    assert_eq!(std::fs::read(path_of(&dir, &all[0].digest())).expect("raw"), b"one");
    let framed = std::fs::read(path_of(&dir, &big.digest()).with_extension("zst")).expect("framed");
    assert_eq!(codec::decode(&framed).expect("decodes"), big.bytes()[..]);
}

#[tokio::test]
async fn a_wrong_object_is_healed_whatever_its_spelling() {
    let temp = tempfile::tempdir().expect("temp dir");
    let store = store(temp.path());
    let text = "all work and no play\n".repeat(1000);
    let (small, big) = (object("small"), object(&text));
    put(&store, &[small.clone(), big.clone()]).await;
    store.flush().await.expect("flushes");
    let zst = path_of(temp.path(), &big.digest()).with_extension("zst");
    let raw_of_big = path_of(temp.path(), &big.digest());
    let spoil = |bytes: &[u8]| {
        std::fs::write(path_of(temp.path(), &small.digest()), bytes).expect("writes");
        std::fs::write(&zst, bytes).expect("writes");
    };
    let other = "x".repeat(5);
    for bytes in [&b""[..], b"sm", other.as_bytes(), &[0x50, 0x2a, 0x4d, 0x18, 16, 0, 0, 0]] {
        spoil(bytes);
        for o in [&small, &big] {
            let e = store.get_object(&o.digest()).await.expect_err("wrong");
            assert_eq!(e.kind(), Kind::Corrupt);
        }
        for outcome in put(&store, &[small.clone(), big.clone()]).await {
            assert!(matches!(outcome, PutOutcome::Healed { .. }), "{outcome:?}");
        }
        store.flush().await.expect("flushes");
        assert_eq!(store.get_object(&big.digest()).await.expect("healed"), big.bytes());
    }
    // A wrong second spelling goes away with the healing.
    std::fs::write(&raw_of_big, b"junk").expect("writes");
    assert_eq!(store.get_object(&big.digest()).await.expect("either"), big.bytes());
    let question = [(big.digest(), big.bytes().len() as u64)];
    assert_eq!(store.contains(&question).await.expect("answers"), [false]);
    put(&store, std::slice::from_ref(&big)).await;
    store.flush().await.expect("flushes");
    assert!(!raw_of_big.exists());
    assert_eq!(store.contains(&question).await.expect("answers"), [true]);
}

#[tokio::test]
async fn files_are_private_and_odd_ones_are_foreign() {
    let temp = tempfile::tempdir().expect("temp dir");
    let dir = temp.path().join("store");
    let store = store(&dir);
    put(&store, &[object("x")]).await;
    store.flush().await.expect("flushes");
    let body = Bytes::from("{}\n");
    store.put(&DocKey::Damage, body.clone(), Expect::Absent, None).await.expect("creates");
    for name in names(&dir) {
        let meta = std::fs::metadata(dir.join(&name)).expect("stat");
        let want = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.permissions().mode() & 0o777, want, "{name}");
    }
    std::fs::write(dir.join("workspace-objects/notes"), "x").expect("writes");
    std::fs::create_dir_all(dir.join("workspace-objects/aa/sub")).expect("makes");
    let rows: Vec<_> = store.list_objects().try_collect().await.expect("lists");
    let foreign = rows.iter().filter(|r| matches!(r, ListedObject::Foreign(_))).count();
    assert_eq!((rows.len(), foreign), (3, 2), "{rows:?}");

    let key: WorkspaceKey = "00112233445566aa".parse().expect("key");
    let operations = DocKey::Operations(key);
    let place = dir.join(operations.to_string());
    std::fs::create_dir_all(&place).expect("makes");
    assert_eq!(store.get(&operations).await.expect_err("directory").kind(), Kind::Corrupt);
    let rows: Vec<_> = store.list(&Prefix::Workspaces).try_collect().await.expect("lists");
    assert!(matches!(&rows[..], [Listed::Foreign { .. }]), "{rows:?}");
    std::fs::remove_dir(&place).expect("removes");
    symlink(dir.join("damage.json"), &place).expect("links");
    assert_eq!(store.get(&operations).await.expect_err("link").kind(), Kind::Corrupt);
    let put = store.put(&operations, body, Expect::Any, None).await;
    assert_eq!(put.expect_err("link").kind(), Kind::Corrupt);
}

#[tokio::test]
async fn a_foreign_directory_and_a_newer_store_are_refused() {
    let temp = tempfile::tempdir().expect("temp dir");
    let foreign = temp.path().join("project");
    std::fs::create_dir(&foreign).expect("makes");
    std::fs::write(foreign.join("main.c"), "int main;").expect("writes");
    let put = store(&foreign).put_objects(vec![object("x")], PutObjects::Check).await;
    assert_eq!(put.expect_err("foreign").code(), "not-a-store");
    assert_eq!(names(&foreign), ["main.c"]);

    let newer = temp.path().join("newer");
    let first = store(&newer);
    put_one_document(&first).await.expect("writes");
    let marker = newer.join("store.json");
    let text = std::fs::read_to_string(&marker).expect("reads");
    std::fs::write(&marker, text.replace("\"format_version\": 1", "\"format_version\": 2"))
        .expect("writes");
    let second = store(&newer);
    assert!(second.exists().await.expect("reads"));
    second.get(&DocKey::Damage).await.expect("reading goes on");
    let e = put_one_document(&second).await.expect_err("newer");
    assert_eq!((e.kind(), e.code()), (Kind::Newer, "store-newer"));
    let locks = LockRequest::new(LockName::Prune, LockMode::Exclusive, Duration::ZERO, "prune");
    assert_eq!(second.lock(locks).await.expect_err("newer").kind(), Kind::Newer);
}

async fn put_one_document(store: &LocalStore) -> backtrail_core::error::Result<()> {
    store.put(&DocKey::Damage, Bytes::from("{}"), Expect::Any, None).await.map(|_| ())
}

/// A store that went away holds what it held: it is neither empty nor made anew.
#[tokio::test]
async fn a_store_that_went_away_is_not_begun_again() {
    let temp = tempfile::tempdir().expect("temp dir");
    let (here, away) = (temp.path().join("store"), temp.path().join("away"));
    let store = store(&here);
    put_one_document(&store).await.expect("written");
    std::fs::rename(&here, &away).expect("moves");
    let unavailable = Kind::Unavailable { maybe_applied: false };
    assert_eq!(put_one_document(&store).await.expect_err("gone").kind(), unavailable);
    let read = store.get(&DocKey::Damage).await.expect_err("gone");
    assert_eq!(read.kind(), unavailable, "nothing was said to be absent: {read}");
    assert!(!here.exists());
    // neither is another store in its place written to
    put_one_document(&super::tests::store(&here)).await.expect("another store");
    assert_eq!(put_one_document(&store).await.expect_err("another").kind(), unavailable);
    std::fs::remove_dir_all(&here).expect("removes");
    std::fs::rename(&away, &here).expect("moves back");
    put_one_document(&store).await.expect("there again");
}

#[tokio::test]
async fn stale_staging_is_swept_and_fresh_staging_kept() {
    let temp = tempfile::tempdir().expect("temp dir");
    let store = store(temp.path());
    put(&store, &[object("x")]).await;
    store.flush().await.expect("flushes");
    let old = temp.path().join("workspace-objects/aa");
    std::fs::create_dir_all(&old).expect("makes");
    let (stale, fresh) = (old.join(".tmp-0123456789abcdef"), old.join(".tmp-0123456789abcdee"));
    for path in [&stale, &fresh] {
        std::fs::write(path, "x").expect("writes");
    }
    let file = std::fs::File::options().write(true).open(&stale).expect("opens");
    let day = Duration::from_secs(25 * 3600);
    file.set_modified(std::time::SystemTime::now() - day).expect("ages");
    store.maintain().await.expect("sweeps");
    assert!(!stale.exists() && fresh.exists());
}

#[tokio::test]
async fn garbage_in_lock_files_breaks_no_lock() {
    let temp = tempfile::tempdir().expect("temp dir");
    let store = store(temp.path());
    let request = LockRequest::new(LockName::Prune, LockMode::Exclusive, Duration::ZERO, "prune");
    let first = store.lock(request.clone()).await.expect("takes");
    let busy = store.lock(request.clone()).await.expect_err("held");
    assert!(busy.message().contains("backtrail"), "{busy}");
    let before = first.token();
    first.release().await.expect("frees");
    for ending in ["lock", "gate", "token", "holder"] {
        std::fs::write(temp.path().join(format!("locks/prune.{ending}")), b"\xff{garbage")
            .expect("writes");
    }
    let second = store.lock(request.clone()).await.expect("takes");
    assert!(second.token() > before);
    // A lock file replaced under its holder: the hold is lost, and says so.
    std::fs::remove_file(temp.path().join("locks/prune.lock")).expect("removes");
    assert_eq!(second.check().expect_err("lost").kind(), Kind::LostLease);
    let third = store.lock(request).await.expect("takes");
    assert!(third.token() > second.token());
    drop(second);
    third.check().expect("still held");
}

/// Holds the first put back until a barrier has chosen what it will name.
struct Race {
    first: AtomicBool,
    staged: mpsc::Sender<()>,
    release: Mutex<mpsc::Receiver<()>>,
    synced: mpsc::Sender<()>,
    stored: Mutex<mpsc::Receiver<()>>,
}

impl Faults for Race {
    fn reach(&self, point: &str) -> Result<()> {
        if point == "store.object.staged" && !self.first.swap(true, Ordering::SeqCst) {
            self.staged.send(()).expect("heard");
            self.release.lock().expect("a lock").recv().expect("released");
        }
        if point == "store.object.synced" {
            self.synced.send(()).expect("heard");
            self.stored.lock().expect("a lock").recv().expect("stored");
        }
        Ok(())
    }
}

/// Two tasks of one handle stage the same content, and the barrier that names the one
/// runs when the other comes.
#[tokio::test]
async fn content_staged_twice_gets_its_name() {
    let temp = tempfile::tempdir().expect("temp dir");
    let ((staged, was_staged), (synced, release)) = (mpsc::channel(), mpsc::channel());
    let (done, stored) = mpsc::channel();
    let (release, stored) = (Mutex::new(release), Mutex::new(stored));
    let race = Race { first: AtomicBool::new(false), staged, release, synced, stored };
    let options = OpenOptions { faults: Arc::new(race), ..OpenOptions::default() };
    let store = Arc::new(LocalStore::new(temp.path(), options));
    let slow = Arc::clone(&store);
    let slow = tokio::spawn(async move {
        put(&slow, &[object("twice")]).await;
        done.send(()).expect("heard");
    });
    tokio::task::spawn_blocking(move || was_staged.recv()).await.expect("joins").expect("staged");
    put(&store, &[object("twice")]).await;
    store.flush().await.expect("named");
    slow.await.expect("joins");
    store.flush().await.expect("nothing lost");
    assert_eq!(store.get_object(&object("twice").digest()).await.expect("there"), "twice");
    let left = names(temp.path()).into_iter().filter(|n| n.contains(".tmp-"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}
