//! Small objects, many to a pack: `packs/<aa>/<32 hex>.pack` with an index in
//! `pack-index/<32 hex>.idx`. Pack names are random, never content hashes, so a pack that
//! is being deleted cannot share its name with one that is being written. A pack is
//! written before the index that names it: an index never names a missing pack.

pub(super) mod format;
pub(super) mod index;
mod load;
mod maintain;
mod read;
mod write;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use backtrail_core::error::Result;

use super::Inner;
use super::bucket::Row;
use index::Index;
use load::Loaded;
use read::Cache;
use write::Open;

/// Where packs lie, and where their index files.
pub(super) const PACKS: &str = "packs/";
const INDEX: &str = "pack-index/";

/// What a handle knows of packs, and what it has put that is in none yet.
#[derive(Default)]
pub(super) struct Packs {
    loaded: tokio::sync::Mutex<Loaded>,
    /// The index must be listed again before it is used.
    stale: AtomicBool,
    open: Mutex<Open>,
    cache: Cache,
    /// Uploads hold it for reading, so that a flush waits for those under way.
    uploads: tokio::sync::RwLock<()>,
}

impl Packs {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What is known of packs may be old from now on.
    pub(super) fn doubt(&self) {
        self.stale.store(true, Ordering::SeqCst);
    }
}

/// The key of a pack.
fn pack_key(id: &str) -> String {
    format!("{PACKS}{}/{id}.pack", id.get(..2).unwrap_or("00"))
}

/// The pack at a key.
fn pack_of(key: &str) -> Option<&str> {
    let id = key.strip_prefix(PACKS)?.split_once('/')?.1.strip_suffix(".pack")?;
    backtrail_core::ids::is_hex(id, 32).then_some(id)
}

fn index_key(name: &str) -> String {
    format!("{INDEX}{name}.idx")
}

impl Inner {
    /// The age of every pack.
    pub(super) async fn pack_ages(&self) -> Result<HashMap<String, Duration>> {
        let age = |row: Row| Some((pack_of(&row.key)?.to_owned(), row.meta.age));
        Ok(self.bucket.list(PACKS).await?.into_iter().filter_map(age).collect())
    }

    /// The index as it was when it was last in doubt, or later.
    pub(super) async fn index(&self) -> Result<Arc<Index>> {
        let mut loaded = self.packs.loaded.lock().await;
        let due = !loaded.ready || self.packs.stale.swap(false, Ordering::SeqCst);
        if due && let Err(e) = self.load(&mut loaded).await {
            self.packs.doubt();
            return Err(e);
        }
        Ok(loaded.index.clone())
    }
}
