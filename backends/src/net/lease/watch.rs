//! What this process has seen of other holders: since when a document is unchanged.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use backtrail_core::error::Result;
use backtrail_core::store::{Holder, Version};

use super::{Room, monotonic};
use crate::net::{Named, parsed};

/// Documents of other holders, by key.
#[derive(Default)]
pub(super) struct Watch(Mutex<HashMap<String, Seen>>);

struct Seen {
    version: Version,
    since: Duration,
    holder: Holder,
}

/// A holder and for how long its document has not changed.
pub(super) struct Sight {
    pub(super) holder: Holder,
    pub(super) unchanged: Duration,
}

impl Watch {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes what was just read.
    pub(super) fn saw(&self, key: &str, version: &Version, holder: &Holder) -> Duration {
        let now = monotonic();
        let mut all = self.all();
        match all.get_mut(key) {
            Some(seen) if seen.version == *version => now.saturating_sub(seen.since),
            _ => {
                let seen = Seen { version: version.clone(), since: now, holder: holder.clone() };
                all.insert(key.to_owned(), seen);
                Duration::ZERO
            }
        }
    }

    /// The holder of a document seen before; a newer version starts its time anew.
    fn known(&self, key: &str, version: &Version) -> Option<Sight> {
        let now = monotonic();
        let mut all = self.all();
        let seen = all.get_mut(key)?;
        if seen.version != *version {
            seen.version = version.clone();
            seen.since = now;
        }
        Some(Sight { holder: seen.holder.clone(), unchanged: now.saturating_sub(seen.since) })
    }

    /// Forgets holders below `dir` that are no more.
    pub(super) fn keep(&self, dir: &str, there: &[Named]) {
        self.all().retain(|key, _| !key.starts_with(dir) || there.iter().any(|n| n.key == *key));
    }

    pub(super) fn forget(&self, key: &str) {
        self.all().remove(key);
    }
}

impl Room {
    /// Looks at a Shared holder's document that a listing named; `None` when it is gone.
    pub(super) async fn sight(&self, named: &Named) -> Result<Option<Sight>> {
        if let Some(mut sight) = self.watch.known(&named.key, &named.version) {
            sight.unchanged = named.idle.unwrap_or(sight.unchanged);
            return Ok(Some(sight));
        }
        let Some(found) = self.small.read(&named.key).await? else { return Ok(None) };
        let holder: Holder = parsed(&named.key, &found.body)?;
        let unchanged = self.watch.saw(&named.key, &found.version, &holder);
        Ok(Some(Sight { holder, unchanged: found.idle.unwrap_or(unchanged) }))
    }
}
