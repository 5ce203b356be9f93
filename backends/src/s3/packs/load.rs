//! Loading the index: files are immutable, so each is read once a handle.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::ids::is_hex;
use backtrail_core::store::Expect;
use backtrail_core::store::{LockMode, LockName, LockRequest};

use super::format::{FOOTER, IndexFile, PackTable, table, table_start};
use super::index::Index;
use super::{INDEX, PACKS, index_key, pack_of};
use crate::s3::Inner;
use crate::s3::bucket::{Part, Row, in_order};
use crate::s3::loose;

/// Index files above which whoever notices merges them.
const MANY: usize = 256;
/// Times that loading begins anew because a file went away.
const RESTARTS: usize = 5;

/// The index files as they were last listed.
#[derive(Default)]
pub(in crate::s3) struct Loaded {
    pub(super) ready: bool,
    pub(super) files: BTreeMap<String, Arc<IndexFile>>,
    pub(super) index: Arc<Index>,
    /// A file of a later build: what it says is not known.
    pub(super) newer: Option<String>,
    /// Every loose object there is, unless there are too many to know.
    pub(super) loose: Option<HashSet<String>>,
}

impl Loaded {
    pub(super) fn merge(&mut self) {
        self.index = Arc::new(Index::of(&self.files));
    }
}

impl Inner {
    /// Lists and reads what is new. A file that goes away meanwhile was superseded:
    /// loading begins anew.
    pub(super) async fn load(&self, loaded: &mut Loaded) -> Result<()> {
        for _ in 0..RESTARTS {
            let (names, loose) =
                futures::future::try_join(self.index_names(), self.bucket.some(loose::DIR)).await?;
            loaded.loose = loose.map(|rows| rows.into_iter().map(|row| row.key).collect());
            loaded.files.retain(|name, _| names.contains(name));
            let missing: Vec<&String> =
                names.iter().filter(|name| !loaded.files.contains_key(*name)).collect();
            let reads: Vec<_> = missing.iter().map(|name| self.read_index(name)).collect();
            let mut whole = true;
            loaded.newer = None;
            for (name, read) in missing.iter().zip(in_order(reads, self.bucket.concurrency()).await)
            {
                match read {
                    Ok(Some(file)) => {
                        loaded.files.insert((*name).clone(), Arc::new(file));
                    }
                    Ok(None) => whole = false,
                    Err(e) if e.kind() == Kind::Newer => loaded.newer = Some((*name).clone()),
                    Err(e) => return Err(e),
                }
            }
            if !whole {
                continue;
            }
            if names.is_empty() {
                self.rebuild(loaded).await?;
            }
            if !missing.is_empty() {
                self.prune_cache(names.clone()).await;
            }
            loaded.merge();
            loaded.ready = true;
            if loaded.files.len() > MANY && loaded.newer.is_none() {
                self.merge_index(loaded).await?;
            }
            return Ok(());
        }
        Err(Error::unavailable("the pack index changes faster than it can be read"))
    }

    async fn index_names(&self) -> Result<Vec<String>> {
        let name = |row: Row| {
            let name = row.key.strip_prefix(INDEX)?.strip_suffix(".idx")?;
            is_hex(name, 32).then(|| name.to_owned())
        };
        Ok(self.bucket.list(INDEX).await?.into_iter().filter_map(name).collect())
    }

    async fn read_index(&self, name: &str) -> Result<Option<IndexFile>> {
        if let Some(bytes) = self.cached_index(name).await
            && let Ok(file) = IndexFile::decode(name, &bytes)
        {
            return Ok(Some(file));
        }
        let Some(got) = self.bucket.get(&index_key(name)).await? else { return Ok(None) };
        let file = IndexFile::decode(name, &got.bytes)?;
        self.cache_index(name, &got.bytes).await;
        Ok(Some(file))
    }

    /// Writes an index file under a new name, and counts it in.
    pub(super) async fn write_index(&self, loaded: &mut Loaded, file: IndexFile) -> Result<String> {
        let name = self.open.ids.hex(16)?;
        self.bucket.put(&index_key(&name), file.encode()?, &Expect::Any).await?;
        loaded.files.insert(name.clone(), Arc::new(file));
        loaded.merge();
        Ok(name)
    }

    /// Without any index file, the packs themselves say what lies in them.
    async fn rebuild(&self, loaded: &mut Loaded) -> Result<()> {
        let rows = self.bucket.list(PACKS).await?;
        let reads: Vec<_> = rows.iter().map(|row| self.read_table(row)).collect();
        let mut packs = Vec::new();
        for read in in_order(reads, self.bucket.concurrency()).await {
            packs.extend(read?);
        }
        if packs.is_empty() {
            return Ok(());
        }
        self.write_index(loaded, IndexFile { packs, ..IndexFile::default() }).await.map(drop)
    }

    /// The table of a pack from its end; `None` when it is no whole pack.
    pub(super) async fn read_table(&self, row: &Row) -> Result<Option<PackTable>> {
        let (Some(id), size) = (pack_of(&row.key), row.meta.size) else { return Ok(None) };
        let end = Part::Suffix((64 << 10).min(size));
        let Some(got) = self.bucket.get_part(&row.key, end).await? else { return Ok(None) };
        if got.bytes.len() < FOOTER {
            return Ok(None);
        }
        let Some(start) = table_start(&got.bytes, size) else { return Ok(None) };
        let have = size - got.bytes.len() as u64;
        let bytes = if start >= have {
            got.bytes.slice((start - have) as usize..)
        } else {
            let Some(got) = self.bucket.get_part(&row.key, Part::Range(start..size)).await? else {
                return Ok(None);
            };
            got.bytes
        };
        Ok(table(&bytes).map(|entries| PackTable { id: id.to_owned(), size, entries }))
    }

    /// Makes one file of many: the new one first, then the superseded are deleted. Who
    /// cannot have the lock at once leaves it to whoever has it.
    async fn merge_index(&self, loaded: &mut Loaded) -> Result<()> {
        let request = LockRequest::new(
            LockName::PackIndex,
            LockMode::Exclusive,
            std::time::Duration::ZERO,
            "merge of the pack index",
        );
        let guard = match self.lock(request).await {
            Ok(guard) => guard,
            Err(e) if e.kind() == Kind::Busy => return Ok(()),
            Err(e) => return Err(e),
        };
        let done = self.compact(loaded).await;
        guard.release().await?;
        done
    }

    /// Replaces all files by one that says the same; packs in which nothing is live are
    /// left out.
    pub(super) async fn compact(&self, loaded: &mut Loaded) -> Result<()> {
        let old: Vec<String> = loaded.files.keys().cloned().collect();
        let file = IndexFile { supersedes: old.clone(), ..loaded.index.to_file() };
        self.open.faults.reach("s3.index.merge")?;
        self.write_index(loaded, file).await?;
        self.open.faults.reach("s3.index.merged")?;
        let keys: Vec<String> = old.iter().map(|name| index_key(name)).collect();
        for done in self.bucket.delete_many(&keys).await? {
            done?;
        }
        loaded.files.retain(|name, _| !old.contains(name));
        loaded.merge();
        Ok(())
    }
}
