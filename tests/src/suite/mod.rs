//! The store suite: the contract of `core/src/store` as functions over any store. Each
//! takes a [`Site`], a place with a fresh store that can be opened again and again.

pub mod child;
pub mod documents;
pub mod hostile;
pub mod limits;
pub mod locks;
pub mod logs;
pub mod mongo;
pub mod objects;
pub mod races;
pub mod reopen;
pub mod runs;
pub mod s3;
pub mod settle;
pub mod sites;
pub mod stories;

use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::store::{
    DocKey, Expect, LockMode, LockName, LockRequest, Object, PutObjects, PutOutcome, Store, Version,
};
use bytes::Bytes;

pub use sites::Site;

/// An object of `len` bytes that no other seed gives; noise, so it does not compress.
pub fn noise(seed: u64, len: usize) -> Object {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    Object::new(std::iter::repeat_with(step).take(len).collect::<Vec<u8>>()).expect("not too long")
}

/// An object of `len` bytes that compresses well.
pub fn text(seed: u64, len: usize) -> Object {
    let line = format!("{seed}: all work and no play makes jack a dull boy\n");
    Object::new(line.bytes().cycle().take(len).collect::<Vec<u8>>()).expect("not too long")
}

/// The question of `contains` about an object.
pub fn question(object: &Object) -> (Digest, u64) {
    (object.digest(), object.bytes().len() as u64)
}

/// Puts and flushes; every item must be stored or there.
pub async fn store_all(store: &dyn Store, objects: &[Object]) {
    let outcomes = store.put_objects(objects.to_vec(), PutObjects::Check).await.expect("puts");
    assert_eq!(outcomes.len(), objects.len());
    for outcome in outcomes {
        assert!(!matches!(outcome, PutOutcome::Failed(_)), "{outcome:?}");
    }
    store.flush().await.expect("flushes");
}

/// A run id that must be valid.
pub fn run_id(id: &str) -> RunId {
    id.parse().expect("a run id")
}

/// Creates a run's document, so that the run exists.
pub async fn make_run(store: &dyn Store, id: &str) -> RunId {
    let run = run_id(id);
    put(store, &DocKey::Run(run.clone()), &format!("{{\"run_id\":{id:?}}}\n"), Expect::Absent)
        .await
        .expect("a new run");
    run
}

/// Puts a document without a fence.
pub async fn put(store: &dyn Store, key: &DocKey, body: &str, expect: Expect) -> Result<Version> {
    store.put(key, Bytes::from(body.to_owned()), expect, None).await
}

/// The body at `key`.
pub async fn body(store: &dyn Store, key: &DocKey) -> String {
    let doc = store.get(key).await.expect("a document");
    String::from_utf8(doc.body.to_vec()).expect("text")
}

/// An exclusive request for a lock.
pub fn exclusive(name: LockName, wait: Duration) -> LockRequest {
    LockRequest::new(name, LockMode::Exclusive, wait, "suite")
}

/// A shared request for a lock.
pub fn shared(name: LockName, wait: Duration) -> LockRequest {
    LockRequest::new(name, LockMode::Shared, wait, "suite")
}

/// Long enough for anything that comes at all.
pub const SOON: Duration = Duration::from_secs(20);

/// Fails unless `result` is an error of `kind`; the error.
pub fn refused<T: std::fmt::Debug>(result: Result<T>, kind: Kind) -> Error {
    let e = result.expect_err("must be refused");
    assert_eq!(e.kind(), kind, "{e:?}");
    e
}

/// Runs `n` tasks at once and gives their results in order.
pub async fn at_once<T, F>(n: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..n).map(|i| tokio::spawn(task(i))).collect();
    let mut out = Vec::with_capacity(n);
    for task in tasks {
        out.push(task.await.expect("the task ends well"));
    }
    out
}

/// `n` handles on the store of a site.
pub async fn handles(site: &Site, n: usize) -> Arc<Vec<Arc<dyn Store>>> {
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        out.push(site.open().await);
    }
    Arc::new(out)
}
