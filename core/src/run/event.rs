//! Events of a run: as they are read and as they are appended.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::engine_event::{EngineEvent, is_engine_type};
use super::record::cut;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::ids::RunId;
use crate::redact::Redactor;
use crate::store::{EventRecord, MAX_EVENT_BYTES, check_size};

/// The longest value of an engine event, as JSON, in bytes: 64 KiB. A longer one becomes
/// a preview and its size.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// The length of a preview in bytes: 4 KiB.
pub const PREVIEW_BYTES: usize = 4 * 1024;

/// An event as it is stored. Types and keys that this build does not know are as good as
/// any other.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its number in the run, rising from 0, with gaps. Order is by number, never by time.
    pub seq: u64,
    /// Its line, byte for byte.
    pub body: Bytes,
    fields: Map<String, Value>,
}

impl Event {
    /// Reads a stored event; the store has looked at its number already.
    pub(super) fn read(run: &RunId, record: EventRecord) -> Result<Self> {
        let EventRecord { seq, body } = record;
        let fields = serde_json::from_slice(&body).map_err(|e| {
            Error::corrupt(format!("event {seq} of run {run} is not readable")).with_source(e)
        })?;
        Ok(Self { seq, body, fields })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }
    /// Its type; empty when it has none.
    pub fn kind(&self) -> &str {
        self.text("type").unwrap_or_default()
    }
    /// When it was appended, RFC 3339; empty when it does not say.
    pub fn timestamp(&self) -> &str {
        self.text("timestamp").unwrap_or_default()
    }
    /// The node, when it has one.
    pub fn node_id(&self) -> Option<&str> {
        self.text("node_id")
    }
    /// The branch of a fan-out, when it has one.
    pub fn branch_id(&self) -> Option<&str> {
        self.text("branch_id")
    }
    /// One of its data.
    pub fn data(&self, key: &str) -> Option<&Value> {
        self.fields.get("data")?.get(key)
    }
    /// Where the run log stood when it was emitted, in bytes.
    pub fn log_offset(&self) -> Option<u64> {
        self.fields.get("log_offset").and_then(Value::as_u64)
    }
    /// Every member, `seq` included.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }
}

/// An event to be appended. `seq`, `timestamp` and `run_id` are added on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    kind: String,
    node_id: Option<String>,
    branch_id: Option<String>,
    data: Map<String, Value>,
    log_offset: Option<u64>,
    active_ms: Option<u64>,
    tenant_id: Option<String>,
    at: Option<Timestamp>,
    owned: bool,
}

impl NewEvent {
    /// An event of another runtime: any type but those that only the engine emits
    /// (`engine-event`), so that nobody can forge a boundary.
    pub fn foreign(kind: impl Into<String>, data: Map<String, Value>) -> Result<Self> {
        let kind = kind.into();
        if is_engine_type(&kind) {
            return Err(Error::invalid(format!("event type {kind:?} is the engine's alone"))
                .with_code("engine-event"));
        }
        if kind.is_empty() {
            return Err(Error::invalid("an event must have a type"));
        }
        Ok(Self::raw(kind, data, false))
    }

    /// An event of our engine. Values above [`MAX_VALUE_BYTES`] become
    /// `<key>_preview` and `<key>_size`.
    pub fn engine(event: &EngineEvent) -> Self {
        Self::engine_redacted(event, &Redactor::none())
    }

    /// The same without secrets, which are looked for before anything is cut.
    pub fn engine_redacted(event: &EngineEvent, redactor: &Redactor) -> Self {
        let (kind, data) = event.parts();
        let mut data = redactor.object(data);
        shorten(&mut data);
        Self::raw(kind, data, true)
    }

    fn raw(kind: String, data: Map<String, Value>, owned: bool) -> Self {
        Self {
            kind,
            node_id: None,
            branch_id: None,
            data,
            log_offset: None,
            active_ms: None,
            tenant_id: None,
            at: None,
            owned,
        }
    }

    /// The node it is about.
    #[must_use]
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.node_id = Some(node.into());
        self
    }
    /// The branch of a fan-out: its start node.
    #[must_use]
    pub fn branch(mut self, branch: impl Into<String>) -> Self {
        self.branch_id = Some(branch.into());
        self
    }
    /// Where the run log stands now, in bytes.
    #[must_use]
    pub fn log_offset(mut self, offset: u64) -> Self {
        self.log_offset = Some(offset);
        self
    }
    /// How long the run was active so far, in milliseconds.
    #[must_use]
    pub fn active_ms(mut self, ms: u64) -> Self {
        self.active_ms = Some(ms);
        self
    }
    /// Whose run it is.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant.into());
        self
    }
    /// When it happened, when that is not the moment at which it is appended.
    #[must_use]
    pub fn at(mut self, at: Timestamp) -> Self {
        self.at = Some(at);
        self
    }
    /// Its type.
    pub fn kind(&self) -> &str {
        &self.kind
    }
    /// True if only the engine emits it.
    pub fn is_engines(&self) -> bool {
        self.owned
    }

    /// The line without its number.
    pub(super) fn line(&self, run: &RunId, now: Timestamp) -> Result<Bytes> {
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| map.insert(name.to_owned(), value);
        put("timestamp", self.at.unwrap_or(now).rfc3339().into());
        put("type", self.kind.clone().into());
        put("run_id", run.as_str().into());
        let texts = [
            ("branch_id", &self.branch_id),
            ("node_id", &self.node_id),
            ("tenant_id", &self.tenant_id),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                put(name, value.clone().into());
            }
        }
        for (name, value) in [("log_offset", self.log_offset), ("active_ms", self.active_ms)] {
            if let Some(value) = value {
                put(name, value.into());
            }
        }
        if !self.data.is_empty() {
            put("data", self.data.clone().into());
        }
        let line = Value::Object(map).to_string();
        check_size("event of run", run.as_str(), line.len(), MAX_EVENT_BYTES)?;
        Ok(Bytes::from(line))
    }
}

/// Puts a preview and the size in the place of each value that is too long.
fn shorten(data: &mut Map<String, Value>) {
    let text_of = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let long: Vec<(String, String)> = data
        .iter()
        .map(|(key, value)| (key.clone(), text_of(value)))
        .filter(|(_, text)| text.len() > MAX_VALUE_BYTES)
        .collect();
    for (key, text) in long {
        data.remove(&key);
        data.insert(format!("{key}_preview"), cut(&text, PREVIEW_BYTES).into());
        data.insert(format!("{key}_size"), (text.len() as u64).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_become_a_preview_and_their_size() {
        let long = "\u{e9}".repeat(40_000);
        let event = EngineEvent::RunFailed { error: long, code: "X".into(), resumable: None };
        let (_, data) = {
            let new = NewEvent::engine(&event);
            (new.kind.clone(), new.data)
        };
        assert_eq!(data["error_size"], 80_000);
        assert_eq!(data["error_preview"].as_str().map(str::len), Some(4096));
        assert_eq!(data["code"], "X");
        assert!(!data.contains_key("error") && !data.contains_key("resumable"));
    }
}
