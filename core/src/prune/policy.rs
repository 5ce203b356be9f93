//! What a prune is asked to keep.

use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::ids::RunId;

/// Retention limits. A snapshot stays if it is protected or if all given limits hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// At most this many of each chain, newest first.
    pub keep: Option<u64>,
    /// At most this many logical bytes of each chain, newest first.
    pub max_bytes: Option<u64>,
    /// Nothing older than this.
    #[serde(serialize_with = "seconds_or_null")]
    pub older_than: Option<Duration>,
    /// What is kept of a finished run when no limit is given.
    pub default_keep: u64,
    /// Safety snapshots kept of each workspace, newest first, whatever the limits.
    pub bank_keep: u64,
    /// Safety snapshots younger than this are kept, whatever the limits.
    #[serde(serialize_with = "seconds")]
    pub bank_age: Duration,
    /// Only this run's chain.
    pub run: Option<RunId>,
    /// Apply the limits to active and resumable runs too.
    pub include_unfinished: bool,
    /// Apply the rules to the chains of every workspace.
    pub all_workspaces: bool,
    /// Snapshots to keep: ids or unique prefixes of at least four digits.
    pub protect: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            keep: None,
            max_bytes: None,
            older_than: None,
            default_keep: 20,
            bank_keep: 10,
            bank_age: Duration::from_hours(7 * 24),
            run: None,
            include_unfinished: false,
            all_workspaces: false,
            protect: Vec::new(),
        }
    }
}

impl Policy {
    /// True if any limit is given.
    pub fn has_limits(&self) -> bool {
        self.keep.is_some() || self.max_bytes.is_some() || self.older_than.is_some()
    }

    /// Fails with `bad-value` on a limit of zero, which would keep nothing.
    pub fn check(&self) -> Result<()> {
        let zero = |name: &str| {
            Err(Error::invalid(format!("{name} must be more than 0, or nothing would be kept")))
        };
        match self {
            Self { keep: Some(0), .. } => zero("--keep"),
            Self { max_bytes: Some(0), .. } => zero("--max-bytes"),
            Self { older_than: Some(Duration::ZERO), .. } => zero("--older-than"),
            Self { default_keep: 0, .. } => zero("retention.keep"),
            _ => Ok(()),
        }
    }
}

/// Serializes a duration as whole seconds.
pub(super) fn seconds<S: serde::Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_u64(d.as_secs())
}

fn seconds_or_null<S: serde::Serializer>(d: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    d.map(|d| d.as_secs()).serialize(s)
}
