//! What the network stores share, over a small trait that each of them implements:
//! locks as documents with a token and a heartbeat ([`lease`]), kept alive on a thread of
//! their own ([`keeper`]), and the head that orders the appends of a run ([`head`]).

pub mod head;
pub mod keeper;
pub mod lease;
pub(crate) mod runlog;

use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::clock::IdSource;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::store::{Expect, Version};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

/// A small document as read.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its text.
    pub body: Bytes,
    /// Its version.
    pub version: Version,
    /// How long ago it was written, where the server itself can judge that (MongoDB):
    /// then the expiry of a lock needs no observer.
    pub idle: Option<Duration>,
    /// How long ago it was written as far as anybody can tell. Evidence, never proof.
    pub age: Option<Duration>,
}

/// The name of a small document in a listing.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its key.
    pub key: String,
    /// Its version.
    pub version: Version,
    /// As [`Found::idle`].
    pub idle: Option<Duration>,
}

/// Conditional access to small documents: locks, heads and the refs that a broken lock
/// names. One try each, no retries: an answer that may be wrong is settled above.
#[async_trait]
pub trait Small: Send + Sync + 'static {
    /// Reads a document; `None` when it is not there.
    async fn read(&self, key: &str) -> Result<Option<Found>>;
    /// Writes under a condition; a refusal is `Conflict`.
    async fn write(&self, key: &str, body: Bytes, expect: &Expect) -> Result<Version>;
    /// Deletes; an absent key is success.
    async fn remove(&self, key: &str) -> Result<()>;
    /// Every document whose key begins with `dir`, which ends in `/`.
    async fn below(&self, dir: &str) -> Result<Vec<Named>>;
}

/// Tries of a conditional write before the caller hears that nobody knows.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// Writes, and settles any answer but plain success by reading back: our bytes mean it
/// happened, the earlier state means send again, other bytes that somebody else was
/// faster (`None`). Each body must be unique ([`stamped`]).
pub async fn settle(
    small: &dyn Small,
    key: &str,
    body: &Bytes,
    expect: &Expect,
) -> Result<Option<Version>> {
    let mut tried = 0;
    loop {
        let doubt = match small.write(key, body.clone(), expect).await {
            Ok(version) => return Ok(Some(version)),
            Err(e) if is_doubtful(&e) => e,
            Err(e) => return Err(e),
        };
        tried += 1;
        match small.read(key).await {
            Ok(Some(found)) if found.body == *body => return Ok(Some(found.version)),
            Ok(found) => {
                let unchanged = match (expect, &found) {
                    (Expect::Any, _) => true,
                    (Expect::Absent, found) => found.is_none(),
                    (Expect::Version(v), found) => found.as_ref().is_some_and(|f| f.version == *v),
                };
                if !unchanged {
                    return Ok(None);
                }
            }
            Err(e) if is_transient(&e) => {}
            Err(e) => return Err(e),
        }
        if tried == TRIES {
            let message = doubt.message().to_owned();
            return Err(Error::unavailable(message)
                .with_kind(Kind::Unavailable { maybe_applied: true })
                .with_source(doubt));
        }
        tokio::time::sleep(PAUSE * (1 << tried)).await;
    }
}

/// True when trying again may help.
pub(crate) fn is_transient(e: &Error) -> bool {
    matches!(e.kind(), Kind::Unavailable { .. })
}

fn is_doubtful(e: &Error) -> bool {
    is_transient(e) || e.is_conflict()
}

/// The text of a small document: `value` with a fresh `write_id`, so that no two writes
/// have equal bytes.
pub fn stamped<T: Serialize>(ids: &dyn IdSource, key: &str, value: &T) -> Result<Bytes> {
    let unwritable = |e| Error::invalid(format!("{key} cannot be written")).with_source(e);
    let mut map = match serde_json::to_value(value).map_err(unwritable)? {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    map.insert("write_id".into(), ids.hex(16)?.into());
    let text = serde_json::to_vec(&map).map_err(unwritable)?;
    Ok(Bytes::from(text))
}

/// Reads a small document's text.
pub(crate) fn parsed<T: serde::de::DeserializeOwned>(key: &str, body: &[u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|e| Error::corrupt(format!("{key} is not readable")).with_source(e))
}
