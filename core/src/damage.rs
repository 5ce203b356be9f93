//! The damage list (`damage.json`): objects known to be missing or wrong, so that
//! the next capture that meets their content stores it again.
//!
//! Any command that finds damage adds to it; capture reads it first, treats those
//! digests as not held, and drops what it healed. The list is a help, not a record:
//! one that cannot be read is treated as empty and says so, because a lost list costs
//! one `verify`, while a refusal would stop every capture.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::IdSource;
use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::store::{DocKey, Expect, Store, Version, docs};

/// The format version this build writes.
const FORMAT_VERSION: u64 = 1;
/// Lost races before a writer gives up.
const MAX_TRIES: usize = 32;
/// The most digests kept, so that the document stays below the size limit.
pub const MAX_DIGESTS: usize = 100_000;

/// The damage list as loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Objects that are missing or wrong.
    pub digests: BTreeSet<Digest>,
    /// Why the stored list could not be read; `digests` is empty then.
    pub unreadable: Option<String>,
}

impl Damage {
    /// True if `digest` must not be relied on.
    pub fn contains(&self, digest: &Digest) -> bool {
        self.digests.contains(digest)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Body {
    format_version: u64,
    #[serde(default)]
    cas_version: u64,
    #[serde(default)]
    digests: BTreeSet<Digest>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Body {
    fn empty() -> Self {
        Self {
            format_version: FORMAT_VERSION,
            cas_version: 0,
            digests: BTreeSet::new(),
            extra: Map::new(),
        }
    }
}

struct Loaded {
    body: Body,
    version: Option<Version>,
    unreadable: Option<String>,
}

/// Loads the list; empty when there is none.
pub async fn load(store: &dyn Store) -> Result<Damage> {
    let loaded = load_body(store).await?;
    Ok(Damage { digests: loaded.body.digests, unreadable: loaded.unreadable })
}

/// Adds `digests`. Writes nothing when all are listed already.
pub async fn add(store: &dyn Store, ids: &dyn IdSource, digests: &[Digest]) -> Result<()> {
    change(store, ids, |list| {
        let before = list.len();
        let room = MAX_DIGESTS.saturating_sub(before);
        let new: Vec<Digest> =
            digests.iter().filter(|d| !list.contains(d)).take(room).copied().collect();
        list.extend(new);
        list.len() != before
    })
    .await
}

/// Drops `digests`, which are healed or needed by nobody any more. Writes nothing
/// when none is listed.
pub async fn remove(store: &dyn Store, ids: &dyn IdSource, digests: &[Digest]) -> Result<()> {
    change(store, ids, |list| {
        let before = list.len();
        for d in digests {
            list.remove(d);
        }
        list.len() != before
    })
    .await
}

/// Applies `edit` by compare-and-swap until it wins; `edit` says whether it changed
/// anything and may run several times.
async fn change(
    store: &dyn Store,
    ids: &dyn IdSource,
    edit: impl Fn(&mut BTreeSet<Digest>) -> bool,
) -> Result<()> {
    let mut last = None;
    for _ in 0..MAX_TRIES {
        let mut loaded = load_body(store).await?;
        if !edit(&mut loaded.body.digests) {
            return Ok(());
        }
        let expect = loaded.version.map_or(Expect::Absent, Expect::Version);
        match docs::save(store, ids, &DocKey::Damage, &loaded.body, expect, None).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_conflict() => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| Error::new(Kind::Conflict, "conflict", "damage.json kept changing")))
}

async fn load_body(store: &dyn Store) -> Result<Loaded> {
    let doc = match store.get(&DocKey::Damage).await {
        Ok(doc) => doc,
        Err(e) if e.is_not_found() => {
            return Ok(Loaded { body: Body::empty(), version: None, unreadable: None });
        }
        Err(e) => return Err(e),
    };
    let version = Some(doc.version);
    docs::check_format(&DocKey::Damage, &doc.body, FORMAT_VERSION)?;
    match serde_json::from_slice::<Body>(&doc.body) {
        Ok(body) => Ok(Loaded { body, version, unreadable: None }),
        Err(e) => {
            let why = format!("damage.json is not readable ({e}); verify --deep fills it again");
            Ok(Loaded { body: Body::empty(), version, unreadable: Some(why) })
        }
    }
}
