//! The narrow waist: one object-safe trait in four small groups — objects,
//! documents, logs, locks. Each promise below carries the id of its conformance
//! test (`CLD-…`), run against every backend and every layer.

pub mod docs;
pub mod events;
pub mod holes;
pub mod hold;
pub mod key;
pub mod layers;
mod lock;
pub mod memory;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

pub use key::{DocKey, Prefix};
pub use lock::{Fence, Guard, HeldLock, Holder, LockMode, LockName, LockRequest};

use crate::error::{Error, Result};
use crate::ids::{Digest, RunId};

/// The largest object, document body and log append: 8 MiB. A format constant.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// The largest event line: 10 MiB.
pub const MAX_EVENT_BYTES: usize = 10 * 1024 * 1024;

/// Immutable bytes and their name. Made only by hashing, so that no backend can be
/// handed a digest that disagrees with its bytes.
#[derive(Clone, Debug)]
pub struct Object {
    digest: Digest,
    bytes: Bytes,
}

impl Object {
    /// Hashes `bytes`. Fails with `bad-value` above [`MAX_BYTES`].
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        check_size("object", &digest.hex(), bytes.len(), MAX_BYTES)?;
        Ok(Self { digest, bytes })
    }
    /// The name.
    pub fn digest(&self) -> Digest {
        self.digest
    }
    /// The content.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Fails with `bad-value` naming key, size and limit when `len` is above `limit`.
pub fn check_size(what: &str, key: &str, len: usize, limit: usize) -> Result<()> {
    if len <= limit {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} {key} has {len} bytes, above the limit of {limit}"))
        .with_detail("bytes", len as u64))
}

/// How [`Store::put_objects`] treats an object that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutObjects {
    /// Check what is there, keep it when right, rewrite it when wrong.
    Check,
    /// Store again without looking.
    Rewrite,
}

/// What became of one object of a batch.
#[derive(Debug)]
pub enum PutOutcome {
    /// It was not there; `stored` bytes were written.
    Stored {
        /// Bytes as stored, after compression.
        stored: u64,
    },
    /// It was there and right.
    Present,
    /// It was there and wrong, and was rewritten.
    Healed {
        /// Bytes as stored, after compression.
        stored: u64,
    },
    /// It is not stored.
    Failed(Error),
}

/// One row of [`Store::list_objects`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedObject {
    /// An object.
    Object {
        /// Its name.
        digest: Digest,
        /// Bytes as stored.
        stored: u64,
        /// Age by the store's own clock.
        age: Duration,
    },
    /// A name that is no object of ours; counted, never an object.
    Foreign(String),
}

/// What became of one object of [`Store::delete_objects`].
#[derive(Debug)]
pub enum DeleteOutcome {
    /// Gone now.
    Deleted,
    /// Was not there.
    Absent,
    /// Still there.
    Failed(Error),
}

/// A document's version: opaque, compared for equality only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub String);

/// A document as read.
#[derive(Clone, Debug)]
pub struct Document {
    /// The JSON text, byte for byte as put.
    pub body: Bytes,
    /// Its version.
    pub version: Version,
}

/// The condition of a document write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Last writer wins; for derived documents only.
    Any,
    /// Create; fails with Conflict when the key exists.
    Absent,
    /// Replace exactly this version; fails with Conflict otherwise.
    Version(Version),
}

/// One row of [`Store::list`].
#[derive(Clone, Debug)]
pub enum Listed {
    /// A document.
    Doc {
        /// Its key.
        key: DocKey,
        /// Its version; `None` only under [`Prefix::RunRecords`], where a store that would
        /// have to read the document for it leaves it out.
        version: Option<Version>,
        /// Age by the store's own clock.
        age: Duration,
    },
    /// Something below the prefix that no key names: an odd file, a directory in a
    /// document's place. Callers must not read its absence as "nothing there".
    Foreign {
        /// Its name in the store.
        name: String,
    },
}

/// One event of a run: its number and its JSON line, `seq` included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The number, from 0.
    pub seq: u64,
    /// The JSON object.
    pub body: Bytes,
}

/// A stretch of a run log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// Bytes as appended.
    Bytes {
        /// Where they begin.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Reserved and never stored.
    Hole {
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
}

impl LogPart {
    /// The offset behind it.
    pub fn end(&self) -> u64 {
        match self {
            Self::Bytes { offset, bytes } => offset + bytes.len() as u64,
            Self::Hole { offset, len } => offset + len,
        }
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// Redacted URL, for messages.
    pub url: String,
    /// `file`, `memory`, `s3`, `mongodb`, `composite`.
    pub kind: &'static str,
    /// From the marker; empty until a first write created it.
    pub store_id: String,
    /// The store's own directory on this host, which no capture may enter.
    pub local_dir: Option<std::path::PathBuf>,
}

/// Free space and clock of a store, for warnings and `doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Free bytes, when known.
    pub free_bytes: Option<u64>,
    /// Total bytes, when known.
    pub total_bytes: Option<u64>,
    /// The store lies in memory (tmpfs) and is lost at a reboot.
    pub volatile: bool,
    /// The store's clock now, in nanoseconds since 1970, when it has one.
    pub now_ns: Option<i64>,
}

/// Where history lives. See the module documentation and `docs/store.md`.
///
/// Errors never mean "not found" unless the backend said so positively.
#[async_trait]
pub trait Store: Send + Sync {
    /// What this store is.
    fn info(&self) -> StoreInfo;
    /// Free space and clock. Reads only (a network store may write a probe document).
    async fn health(&self) -> Result<StoreHealth>;

    /// Makes the right bytes be there, reporting per item in order (CLD-O1, O2, O4).
    /// An `Err` means the call failed as a whole; each item may or may not be stored.
    async fn put_objects(&self, batch: Vec<Object>, mode: PutObjects) -> Result<Vec<PutOutcome>>;
    /// The exact bytes, re-hashed (CLD-O6). `NotFound` or `Corrupt` otherwise.
    async fn get_object(&self, digest: &Digest) -> Result<Bytes>;
    /// [`Store::get_object`] for many, per item in order.
    async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>>;
    /// Whether each object of this raw length is there, in order (CLD-O7).
    async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>>;
    /// Every object once, or an error at the end (CLD-O8).
    fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>>;
    /// Deletes, per item in order (CLD-O10).
    async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>>;
    /// Durability barrier: all put before on this handle survives a crash (CLD-O5).
    async fn flush(&self) -> Result<()>;
    /// Frees what deletions left behind and removes stale staging.
    async fn maintain(&self) -> Result<()> {
        Ok(())
    }

    /// Reads a document, byte for byte (CLD-D1).
    async fn get(&self, key: &DocKey) -> Result<Document>;
    /// Writes a document under a condition (CLD-D2 to D5, D9). Ok is durable.
    async fn put(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: Expect,
        fence: Option<&Fence>,
    ) -> Result<Version>;
    /// Deletes; an absent key is success, a version makes it conditional (CLD-D8).
    /// Deleting the document of a run that has a tombstone takes its events and log
    /// along, which have no keys of their own.
    async fn delete(&self, key: &DocKey, version: Option<&Version>) -> Result<()>;
    /// Everything below `prefix`, sorted by key, or an error at the end (CLD-D6, D7).
    fn list(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>>;

    /// Appends JSON objects without `seq` as one batch; the first number (CLD-L1, L2, L7).
    async fn append_events(
        &self,
        run: &RunId,
        events: Vec<Bytes>,
        fence: Option<&Fence>,
    ) -> Result<u64>;
    /// Events from number `from`, ordered, to the present end (CLD-L3).
    fn read_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>>;
    /// The number that the next event gets, unless somebody else appends: 0 for an empty
    /// log (CLD-L3). A backend that can tell without reading all of it should.
    async fn events_end(&self, run: &RunId) -> Result<u64> {
        let mut rows = self.read_events(run, 0);
        let mut end = 0;
        while let Some(row) = rows.next().await {
            end = row?.seq + 1;
        }
        Ok(end)
    }
    /// Events from number `from`, then each as it comes, for ever (CLD-L6).
    fn follow_events(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<EventRecord>>;
    /// Appends bytes at `offset` (`None`: the end); where they begin (CLD-L4, L7).
    async fn append_log(
        &self,
        run: &RunId,
        offset: Option<u64>,
        bytes: Bytes,
        fence: Option<&Fence>,
    ) -> Result<u64>;
    /// The log from `from` to `to` (0: the end), holes included (CLD-L4, L5).
    async fn read_log(&self, run: &RunId, from: u64, to: u64) -> Result<Vec<LogPart>>;
    /// The log from `from`, then each part as it comes, for ever (CLD-L6).
    fn follow_log(&self, run: &RunId, from: u64) -> BoxStream<'_, Result<LogPart>>;

    /// Takes a lock, waiting up to the request's limit; `Busy` names the holder
    /// (CLD-G1 to G9).
    async fn lock(&self, request: LockRequest) -> Result<Guard>;
    /// Who holds a lock Exclusive now; `None` when nobody does. Takes nothing for good,
    /// writes nothing, creates nothing: whether somebody lives can be asked by a reader.
    async fn lock_holder(&self, name: &LockName) -> Result<Option<Holder>>;
}
