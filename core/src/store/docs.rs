//! The one helper that reads and writes JSON documents: canonical bytes for
//! digests, and `cas_version` and `write_id` in every mutable document.

use bytes::Bytes;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DocKey, Expect, Fence, MAX_BYTES, Store, Version, check_size};
use crate::clock::IdSource;
use crate::error::{Error, Kind, Result};
use crate::ids::{Digest, RunId};

/// Canonical JSON: keys sorted by bytes, no white space, integers only.
/// `serde_json`'s map is a B-tree over strings, whose order is byte order.
pub fn canonical(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// SHA-256 of [`canonical`] without the members named in `without`.
pub fn digest_without(value: &Map<String, Value>, without: &[&str]) -> Digest {
    let mut map = value.clone();
    for name in without {
        map.remove(*name);
    }
    Digest::of(&canonical(&Value::Object(map)))
}

/// Reads a document as a JSON object. `Corrupt` names the key when it is none.
pub async fn get_object(store: &dyn Store, key: &DocKey) -> Result<(Map<String, Value>, Version)> {
    let doc = store.get(key).await?;
    Ok((parse_object(key, &doc.body)?, doc.version))
}

/// Fails with `store-newer` when a document says that a later build wrote it. Looked at
/// before anything else of the document: a later format may have another shape, and
/// reading that as damage would let this build replace it.
pub fn check_format(key: &DocKey, body: &[u8], max: u64) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(default)]
        format_version: u64,
    }
    match serde_json::from_slice::<Head>(body) {
        Ok(head) if head.format_version > max => Err(Error::new(
            Kind::Newer,
            "store-newer",
            format!(
                "document {key} has format version {}, newer than this build",
                head.format_version
            ),
        )
        .with_hint("upgrade backtrail")),
        _ => Ok(()), // what cannot be read at all is for the caller to judge
    }
}

/// Parses a body as a JSON object. `Corrupt` names the key when it is none.
pub fn parse_object(key: &DocKey, body: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::corrupt(format!("document {key} is not a JSON object"))),
        Err(e) => Err(Error::corrupt(format!("document {key} is not readable")).with_source(e)),
    }
}

/// Checks a body before it is sent: a JSON object of at most [`MAX_BYTES`].
pub fn check_body(key: &DocKey, body: &[u8]) -> Result<()> {
    check_size("document", &key.to_string(), body.len(), MAX_BYTES)?;
    let object = body.trim_ascii_start().starts_with(b"{");
    if object && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        return Ok(());
    }
    Err(Error::invalid(format!("document {key} must be a JSON object")))
}

#[derive(Deserialize)]
struct Tokens {
    token: Option<u64>,
    holder: Option<HolderToken>,
}

#[derive(Deserialize)]
struct HolderToken {
    token: Option<u64>,
}

/// The fencing token that a stored body carries: member `token`, else `holder.token`.
pub fn token_of(body: &[u8]) -> Option<u64> {
    let tokens: Tokens = serde_json::from_slice(body).ok()?;
    tokens.token.or(tokens.holder.and_then(|h| h.token))
}

/// `Conflict` of a conditional write, with the version that is there in its details.
pub fn conflict(key: &DocKey, present: Option<&Version>) -> Error {
    let message = match present {
        Some(_) => format!("{key} was written by somebody else"),
        None => format!("{key} is not there any more"),
    };
    let error = Error::new(Kind::Conflict, "conflict", message);
    match present {
        Some(v) => error.with_detail("version", v.0.clone()),
        None => error,
    }
}

/// `NotFound` of a document.
pub fn absent(key: &DocKey) -> Error {
    Error::not_found(format!("{key} is not in the store"))
}

/// The answer to a write below a deleted run (CLD-D10): `Conflict` when it would make
/// the run again, else `NotFound`; the code is `deleted`.
pub fn deleted(run: &RunId, creates: bool) -> Error {
    let kind = if creates { Kind::Conflict } else { Kind::NotFound };
    Error::new(kind, "deleted", format!("run {run} was deleted"))
}

/// Reads a document of format version `max` at most into a type. `None` when it does
/// not exist, `store-newer` when a later build wrote it.
pub async fn load<T: DeserializeOwned>(
    store: &dyn Store,
    key: &DocKey,
    max: u64,
) -> Result<Option<(T, Version)>> {
    let doc = match store.get(key).await {
        Ok(doc) => doc,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e),
    };
    check_format(key, &doc.body, max)?;
    let value = serde_json::from_slice(&doc.body)
        .map_err(|e| Error::corrupt(format!("document {key} is not readable")).with_source(e))?;
    Ok(Some((value, doc.version)))
}

/// Writes a mutable document: raises `cas_version`, draws a fresh `write_id`.
///
/// `value` must serialize to an object. The version to replace is in `expect`;
/// a `Conflict` means somebody else wrote in between.
pub async fn save<T: Serialize>(
    store: &dyn Store,
    ids: &dyn IdSource,
    key: &DocKey,
    value: &T,
    expect: Expect,
    fence: Option<&Fence>,
) -> Result<Version> {
    let (map, _) = stamped(ids, key, value)?;
    store.put(key, body(&map), expect, fence).await
}

/// What a write of a mutable document left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The version to replace next.
    pub version: Version,
    /// Writes so far.
    pub cas_version: u64,
    /// The token of this write.
    pub write_id: String,
}

/// [`save`], and when the answer is lost or odd the document is read back: our
/// `write_id` means success, the version we meant to replace that nothing happened
/// (the error stays), anything else `Conflict`.
pub async fn save_settled<T: Serialize>(
    store: &dyn Store,
    ids: &dyn IdSource,
    key: &DocKey,
    value: &T,
    expect: Expect,
    fence: Option<&Fence>,
) -> Result<Saved> {
    let (map, mut saved) = stamped(ids, key, value)?;
    let doubt = match store.put(key, body(&map), expect.clone(), fence).await {
        Ok(version) => {
            saved.version = version;
            return Ok(saved);
        }
        Err(e) if e.is_conflict() || e.kind() == (Kind::Unavailable { maybe_applied: true }) => e,
        Err(e) => return Err(e),
    };
    match get_object(store, key).await {
        Ok((found, version)) => {
            if found.get("write_id").and_then(Value::as_str) == Some(&saved.write_id) {
                saved.version = version;
                return Ok(saved);
            }
            let untouched = expect == Expect::Version(version.clone());
            Err(if doubt.is_conflict() || untouched {
                doubt
            } else {
                conflict(key, Some(&version))
            })
        }
        // Nothing is there, or nobody can tell: the first answer stands.
        Err(_) => Err(doubt),
    }
}

/// `value` with its write counted and a fresh token.
fn stamped<T: Serialize>(
    ids: &dyn IdSource,
    key: &DocKey,
    value: &T,
) -> Result<(Map<String, Value>, Saved)> {
    let Value::Object(mut map) = to_value(key, value)? else {
        return Err(Error::invalid(format!("document {key} must be a JSON object")));
    };
    let cas_version = map.get("cas_version").and_then(Value::as_u64).unwrap_or(0) + 1;
    let write_id = ids.hex(16)?;
    map.insert("cas_version".into(), cas_version.into());
    map.insert("write_id".into(), write_id.clone().into());
    Ok((map, Saved { version: Version(String::new()), cas_version, write_id }))
}

/// A mutable document's text with its write counted and a fresh token, and nothing else
/// changed: a new version of the same content.
pub fn restamped(ids: &dyn IdSource, key: &DocKey, text: &[u8]) -> Result<Bytes> {
    let (map, _) = stamped(ids, key, &parse_object(key, text)?)?;
    Ok(body(&map))
}

/// Writes a create-only document.
pub async fn create<T: Serialize>(
    store: &dyn Store,
    key: &DocKey,
    value: &T,
    fence: Option<&Fence>,
) -> Result<Version> {
    let Value::Object(map) = to_value(key, value)? else {
        return Err(Error::invalid(format!("document {key} must be a JSON object")));
    };
    store.put(key, body(&map), Expect::Absent, fence).await
}

fn to_value<T: Serialize>(key: &DocKey, value: &T) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|e| Error::invalid(format!("document {key} cannot be written")).with_source(e))
}

fn body(map: &Map<String, Value>) -> Bytes {
    let mut text = serde_json::to_string_pretty(map).unwrap_or_default();
    text.push('\n');
    Bytes::from(text)
}
