//! `store.json`, the marker of a store: what made it, when, and for whom. Every kind of
//! store has the same one.

use backtrail_core::clock::IdSource;
use backtrail_core::error::{Error, Kind, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::open::OpenOptions;

/// The store format this build writes.
pub const FORMAT_VERSION: u64 = 1;

/// `store.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Marker {
    /// Above [`FORMAT_VERSION`]: made by a later build.
    pub format_version: u64,
    /// A UUID of its own.
    pub store_id: String,
    /// When it was made.
    pub created_at: String,
    /// What made it.
    pub created_by: String,
    /// `file`, `s3` or `mongodb`.
    pub kind: String,
    /// Whose store.
    pub tenant: String,
    /// The id of the documents store whose objects half this is.
    pub objects_of: Option<String>,
}

/// The part of a marker that any build can read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MarkerHead {
    /// See [`Marker::format_version`].
    pub format_version: u64,
    /// See [`Marker::store_id`].
    #[serde(default)]
    pub store_id: String,
    /// See [`Marker::objects_of`].
    #[serde(default)]
    pub objects_of: Option<String>,
}

impl Marker {
    /// The marker of a new store.
    pub fn fresh(kind: &str, options: &OpenOptions) -> Result<Self> {
        let now = options.clock.now();
        Ok(Self {
            format_version: FORMAT_VERSION,
            store_id: uuid_v7(now.0, &*options.ids)?,
            created_at: now.rfc3339(),
            created_by: options.host.program.clone(),
            kind: kind.to_owned(),
            tenant: options.tenant.clone(),
            objects_of: options.objects_of.clone(),
        })
    }

    /// Its text.
    pub fn body(&self) -> Result<Bytes> {
        let mut body = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::invalid("the store marker cannot be written").with_source(e))?;
        body.push(b'\n');
        Ok(Bytes::from(body))
    }
}

impl MarkerHead {
    /// Reads a marker. `Corrupt` says which.
    pub fn parse(place: impl std::fmt::Display, body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body)
            .map_err(|e| Error::corrupt(format!("{place} is not readable")).with_source(e))
    }

    /// Fails with `store-newer` when a later build made the store: it must not be
    /// written to.
    pub fn check_writable(&self, url: impl std::fmt::Display) -> Result<()> {
        if self.format_version <= FORMAT_VERSION {
            return Ok(());
        }
        let message = format!(
            "store {url} has format {}, this build writes format {FORMAT_VERSION}",
            self.format_version
        );
        Err(Error::new(Kind::Newer, "store-newer", message)
            .with_hint("upgrade backtrail; reading still works"))
    }
}

/// A time-ordered UUID.
fn uuid_v7(now_ns: i64, ids: &dyn IdSource) -> Result<String> {
    let mut bytes = [0; 16];
    ids.fill(&mut bytes)?;
    let millis = u64::try_from(now_ns / 1_000_000).unwrap_or(0);
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = backtrail_core::ids::to_hex(&bytes);
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// What a store without a marker is told: it is not made in passing, so that a mistyped
/// place cannot begin an empty history.
pub(crate) fn no_store(url: &str) -> Error {
    // A URL with a password cannot be printed whole; its variable can.
    let place = if url.contains("***") { "\"$BACKTRAIL_STORE\"" } else { url };
    Error::not_found(format!("there is no store at {url}"))
        .with_code("no-store")
        .with_hint(format!("backtrail store init {place}"))
}
