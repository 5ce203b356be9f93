//! Event lines: what an event must be, and how its number gets into it. Shared by the
//! backends that keep events as JSON text.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{MAX_EVENT_BYTES, check_size};
use crate::error::{Error, Result};
use crate::ids::RunId;

#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

#[derive(Deserialize)]
struct Unnumbered {
    seq: Option<IgnoredAny>,
}

/// The number of a line; `None` when it is no whole event.
pub fn seq_of(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Numbered>(line).ok().map(|n| n.seq)
}

/// Checks an event before it is numbered: a JSON object without member `seq`, of at
/// most [`MAX_EVENT_BYTES`].
pub fn check_event(run: &RunId, event: &[u8]) -> Result<()> {
    check_size("event of run", run.as_str(), event.len(), MAX_EVENT_BYTES)?;
    let object = event.trim_ascii_start().starts_with(b"{");
    match serde_json::from_slice::<Unnumbered>(event) {
        Ok(Unnumbered { seq: None }) if object => Ok(()),
        _ => Err(Error::invalid(format!(
            "an event of run {run} must be a JSON object without a member seq"
        ))),
    }
}

/// A checked event with its number put first, in one line without a line end. Its own
/// members stay as they are, byte for byte.
///
/// ```
/// use backtrail_core::store::events::number;
/// assert_eq!(number(7, b"{\n \"a\": 1e2 }"), r#"{"seq":7,"a": 1e2 }"#);
/// assert_eq!(number(0, b"{}"), r#"{"seq":0}"#);
/// ```
pub fn number(seq: u64, event: &[u8]) -> Bytes {
    let body = event.trim_ascii();
    let members = body.get(1..).unwrap_or_default().trim_ascii_start();
    let comma = if members == b"}" { "" } else { "," };
    let mut out = format!("{{\"seq\":{seq}{comma}").into_bytes();
    // Between members a line break is white space and must not end the line; inside a
    // string JSON allows none.
    out.extend(members.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
    Bytes::from(out)
}
