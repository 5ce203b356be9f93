//! The one helper that reads and writes JSON documents: canonical bytes for
//! digests, and `cas_version` and `write_id` in every mutable document.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DocKey, Expect, Fence, Store, Version};
use crate::clock::IdSource;
use crate::error::{Error, Result};
use crate::ids::Digest;

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

/// Parses a body as a JSON object. `Corrupt` names the key when it is none.
pub fn parse_object(key: &DocKey, body: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::corrupt(format!("document {key} is not a JSON object"))),
        Err(e) => Err(Error::corrupt(format!("document {key} is not readable")).with_source(e)),
    }
}

/// Reads a document into a type. `None` when it does not exist.
pub async fn load<T: DeserializeOwned>(
    store: &dyn Store,
    key: &DocKey,
) -> Result<Option<(T, Version)>> {
    let doc = match store.get(key).await {
        Ok(doc) => doc,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e),
    };
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
    let Value::Object(mut map) = to_value(key, value)? else {
        return Err(Error::invalid(format!("document {key} must be a JSON object")));
    };
    let next = map.get("cas_version").and_then(Value::as_u64).unwrap_or(0) + 1;
    map.insert("cas_version".into(), next.into());
    map.insert("write_id".into(), ids.hex(16)?.into());
    store.put(key, body(&map), expect, fence).await
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
