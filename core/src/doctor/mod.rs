//! Doctor: whether the store and what lies around it are in order, check by check.
//!
//! Checks look and change nothing. [`plan`] says what [`fix`] would do: write refs that
//! were lost and rebuilt, and let the store remove stale staging.

mod fixes;
mod local;
mod records;

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::clock::{Context, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::store::{DocKey, LockMode, LockName, LockRequest, Store, docs};
use crate::workspace::Root;

pub use fixes::{Fix, fix, plan};

/// Less free space than this is a warning.
const LOW_BYTES: u64 = 1 << 30;
/// Clocks further apart than this are a warning; prune refuses above an hour.
const SKEW_WARN_MS: i64 = 5 * 60 * 1000;
const SKEW_FAIL_MS: i64 = 60 * 60 * 1000;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// In order.
    Ok,
    /// Works, and a person should know.
    Warn,
    /// Not in order.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name, e.g. `refs`.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What a failed check means for the exit code.
    #[serde(skip)]
    pub kind: Option<Kind>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), hint: None, kind: None }
    }
    fn warn(name: &'static str, detail: impl Into<String>) -> Self {
        Self { status: Status::Warn, ..Self::ok(name, detail) }
    }
    fn fail(name: &'static str, kind: Kind, detail: impl Into<String>) -> Self {
        Self { status: Status::Fail, kind: Some(kind), ..Self::ok(name, detail) }
    }
    fn failed(name: &'static str, e: &Error) -> Self {
        let hint = e.hint().map(str::to_owned);
        Self { hint, ..Self::fail(name, e.kind(), e.message()) }
    }
    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// The kind that decides the exit code: none when nothing failed, else the gravest of
/// corrupt (7), unavailable (8) and any other (1).
pub fn verdict(checks: &[Check]) -> Option<Kind> {
    let rank = |k: &Kind| match k {
        Kind::Corrupt => 2,
        Kind::Unavailable { .. } | Kind::Denied => 1,
        _ => 0,
    };
    checks.iter().filter_map(|c| c.kind).max_by_key(rank)
}

/// Runs every check. `root` and `cache_dir` add the checks that need them. A store that
/// cannot be reached ends the list early; that is a failed check, not an error.
pub async fn doctor(
    store: &dyn Store,
    ctx: &Context,
    root: Option<&Root>,
    cache_dir: Option<&Path>,
) -> Vec<Check> {
    let mut out = Vec::new();
    let marker = match store.get(&DocKey::Marker).await {
        Ok(doc) => Some(doc.body),
        Err(e) if e.is_not_found() => None,
        Err(e) => {
            out.push(Check::failed("store", &e));
            return out;
        }
    };
    let url = store.info().url;
    if marker.is_none() {
        out.push(Check::ok(
            "store",
            format!("{url} does not exist yet; the first capture makes it"),
        ));
    } else {
        out.push(Check::ok("store", format!("{url} can be reached")));
    }
    out.extend(marker.as_deref().map(format));
    health(store, ctx, &mut out).await;
    if marker.is_some() {
        out.push(locks(store).await);
        records::checks(store, root, &ctx.host, &mut out).await;
        out.extend(local::store_checks(store, ctx).await);
    }
    out.extend(local::workspace_checks(root, cache_dir).await);
    out
}

fn format(marker: &[u8]) -> Check {
    let map = match docs::parse_object(&DocKey::Marker, marker) {
        Ok(map) => map,
        Err(e) => return Check::failed("format", &e),
    };
    match map.get("format_version").and_then(Value::as_u64) {
        Some(1) => Check::ok("format", "version 1"),
        Some(n) => {
            let detail = format!("version {n} is newer than this build: reads work, writes do not");
            Check::fail("format", Kind::Newer, detail).hint("upgrade backtrail")
        }
        None => Check::fail("format", Kind::Corrupt, "store.json has no format_version"),
    }
}

async fn health(store: &dyn Store, ctx: &Context, out: &mut Vec<Check>) {
    let health = match store.health().await {
        Ok(health) => health,
        Err(e) => {
            out.push(Check::failed("space", &e));
            return;
        }
    };
    out.push(match (health.free_bytes, health.total_bytes) {
        (None, _) => Check::ok("space", "not known for this kind of store"),
        (Some(free), total) => {
            let low = free < LOW_BYTES || total.is_some_and(|t| free < t / 20);
            let detail = format!("{free} bytes free");
            match low {
                true => Check::warn("space", detail).hint("backtrail prune"),
                false => Check::ok("space", detail),
            }
        }
    });
    out.push(match health.volatile {
        true => Check::warn("volatile", "the store lies in memory and is lost at a reboot")
            .hint("choose another place with --store or BACKTRAIL_STORE"),
        false => Check::ok("volatile", "the store survives a reboot"),
    });
    out.extend(health.now_ns.map(|ns| clock(Timestamp(ns), ctx.clock.now())));
}

/// Both clocks are shown, whatever they say.
fn clock(store: Timestamp, host: Timestamp) -> Check {
    let skew_ms = host.0.saturating_sub(store.0) / 1_000_000;
    let detail = format!("the store says {}, this host {}", store.rfc3339(), host.rfc3339());
    let hint = "set the clock right; prune refuses above an hour";
    match skew_ms.abs() {
        s if s > SKEW_FAIL_MS => Check::fail("clock", Kind::Failed, detail).hint(hint),
        s if s > SKEW_WARN_MS => Check::warn("clock", detail).hint(hint),
        _ => Check::ok("clock", detail),
    }
}

/// Who holds the store's locks. A probe asks for Shared and gives it back at once.
async fn locks(store: &dyn Store) -> Check {
    let mut held = Vec::new();
    for name in [LockName::Prune, LockName::Objects] {
        let wait = std::time::Duration::ZERO;
        let request = LockRequest::new(name, LockMode::Shared, wait, "doctor");
        match store.lock(request).await {
            Ok(guard) => drop(guard.release().await),
            Err(e) if e.kind() == Kind::Busy => held.push(e.message().to_owned()),
            Err(e) => return Check::failed("locks", &e),
        }
    }
    match held.is_empty() {
        true => Check::ok("locks", "none is held exclusively"),
        false => Check::warn("locks", held.join("; ")),
    }
}

/// Names up to five things of many.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(5) {
        0 => shown,
        more => format!("{shown} (+{more} more)"),
    }
}

/// Reads a document's JSON members, whatever they are.
async fn json(store: &dyn Store, key: &DocKey) -> Result<Value> {
    let (map, _) = docs::get_object(store, key).await?;
    Ok(Value::Object(map))
}
