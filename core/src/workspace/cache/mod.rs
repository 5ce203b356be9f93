//! The stat cache: which content a path had when its `lstat` was this. Local,
//! derived, disposable; it never proves that a store holds an object.
//!
//! One file per workspace root: `BTC1`, version, root, then a block per directory
//! in byte order of paths, then a SHA-256 of all that. Blocks stay undecoded until
//! the walk meets their directory, so loading costs a hash and an index.

mod block;
mod vanished;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use block::Reader;
pub use block::{Block, Cached, CachedStat, Names};
use bytes::Bytes;
pub use vanished::{remove_vanished, vanished};

use super::root::{Root, path_bytes};
use crate::error::{Error, Result};
use crate::fsx::{self, Dir, FileKind, Stat};
use crate::ids::{Chain, Digest, SnapshotId};
use crate::path::RelPath;
use crate::snapshot::tree::Ref;

const MAGIC: &[u8; 4] = b"BTC1";
const VERSION: u32 = 1;

/// The cache of one workspace root.
#[derive(Clone, Debug)]
pub struct StatCache {
    file: Option<PathBuf>,
    root: Vec<u8>,
    inode: u64,
    blocks: HashMap<Box<[u8]>, Block>,
    published: BTreeMap<String, (Chain, SnapshotId)>,
    dirty: bool,
}

/// New entries of one directory by name; `None` forgets.
type Changes<'a> = BTreeMap<&'a [u8], Option<&'a (Stat, Ref)>>;

impl StatCache {
    /// Loads the cache of `root` from `dir`; empty when absent, damaged, of another
    /// version or root. Blocks.
    pub fn load(dir: Option<&Path>, root: &Root) -> Self {
        let bytes = path_bytes(&root.path);
        let file = dir.map(|d| d.join("stat").join(&Digest::of(bytes).hex()[..32]));
        let mut cache = Self {
            file,
            root: bytes.to_vec(),
            inode: root.stat.inode,
            blocks: HashMap::new(),
            published: BTreeMap::new(),
            dirty: true,
        };
        let Some(stored) = cache.read_file() else { return cache };
        if let Some((blocks, published)) = cache.parse(&stored) {
            cache.blocks = blocks;
            cache.published = published;
            cache.dirty = false;
        }
        cache
    }

    fn read_file(&self) -> Option<Bytes> {
        let file = self.file.as_ref()?;
        let dir = Dir::open(file.parent()?).ok()?;
        let name = path_bytes(Path::new(file.file_name()?));
        let bytes = fsx::read_small(&dir, name, u64::MAX).ok()??;
        let body = bytes.len().checked_sub(32)?;
        (Digest::of(&bytes[..body]).0 == bytes[body..]).then(|| Bytes::from(bytes).slice(..body))
    }

    #[expect(clippy::type_complexity, reason = "the two halves of the struct, used once")]
    fn parse(
        &self,
        bytes: &Bytes,
    ) -> Option<(HashMap<Box<[u8]>, Block>, BTreeMap<String, (Chain, SnapshotId)>)> {
        let mut r = Reader(bytes);
        if r.take(4)? != MAGIC || r.u32()? != VERSION || r.u64()? != self.inode {
            return None;
        }
        let root = r.u32()? as usize;
        if r.take(root)? != self.root {
            return None;
        }
        let published_len = r.u32()? as usize;
        let published = serde_json::from_slice(r.take(published_len)?).ok()?;
        let count = r.u32()? as usize;
        let mut blocks = HashMap::with_capacity(count.min(1 << 20));
        for _ in 0..count {
            let path_len = r.u32()? as usize;
            let path = r.take(path_len)?;
            let len = r.u32()? as usize;
            let at = bytes.len() - r.0.len();
            r.take(len)?;
            blocks.insert(path.into(), Block(bytes.slice(at..at + len)));
        }
        r.0.is_empty().then_some((blocks, published))
    }

    /// Whether this is the cache of `root`.
    pub fn is_of(&self, root: &Root) -> bool {
        self.root == path_bytes(&root.path) && self.inode == root.stat.inode
    }

    /// Whether it changed since it was loaded or saved.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Writes the cache by rename, if it changed. Blocks.
    pub fn save(&mut self, temp: &str) -> Result<()> {
        self.write(temp).map_err(|e| {
            Error::failed("cache", format!("the stat cache cannot be written: {e}"))
        })?;
        self.dirty = false;
        Ok(())
    }

    fn write(&self, temp: &str) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.dirty) else { return Ok(()) };
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
        fsx::make_private_dirs(parent)?;
        let dir = Dir::open(parent)?;
        let temp = format!(".tmp-{temp}");
        fsx::publish(&dir, path_bytes(Path::new(name)), temp.as_bytes(), &self.encode(), false)
    }

    fn encode(&self) -> Vec<u8> {
        let size: usize = self.blocks.iter().map(|(p, b)| p.len() + b.0.len() + 8).sum();
        let mut out = Vec::with_capacity(size + 4096);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.inode.to_le_bytes());
        put_sized(&mut out, &self.root);
        put_sized(&mut out, &serde_json::to_vec(&self.published).unwrap_or_default());
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        for (path, block) in &self.blocks {
            put_sized(&mut out, path);
            put_sized(&mut out, &block.0);
        }
        let sum = Digest::of(&out);
        out.extend_from_slice(&sum.0);
        out
    }

    /// The block of a directory.
    pub fn block(&self, dir: &RelPath) -> Option<&Block> {
        self.blocks.get(dir.as_bytes())
    }

    /// The number of directories known.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A cache of the same root that holds `blocks` instead. `changed` says that they
    /// differ from what is stored.
    #[must_use]
    pub fn replaced(&self, blocks: HashMap<Box<[u8]>, Block>, changed: bool) -> Self {
        let dirty = self.dirty || changed;
        Self { blocks, dirty, ..self.without_blocks() }
    }

    fn without_blocks(&self) -> Self {
        Self {
            file: self.file.clone(),
            root: self.root.clone(),
            inode: self.inode,
            blocks: HashMap::new(),
            published: self.published.clone(),
            dirty: self.dirty,
        }
    }

    /// The newest snapshot published to a store from here.
    pub fn published(&self, store_id: &str) -> Option<&(Chain, SnapshotId)> {
        self.published.get(store_id)
    }

    /// Remembers the newest snapshot published to a store.
    pub fn set_published(&mut self, store_id: &str, chain: &Chain, id: &SnapshotId) {
        let value = (chain.clone(), id.clone());
        if self.published.get(store_id) != Some(&value) {
            self.published.insert(store_id.to_owned(), value);
            self.dirty = true;
        }
    }

    /// Sets the content of files, for a restore that wrote them; `None` forgets what is
    /// known of a path. The trees above are forgotten, so the next capture builds them
    /// again without reading a file.
    pub fn note(&mut self, entries: &[(RelPath, Option<(Stat, Ref)>)]) {
        let mut by_dir: BTreeMap<RelPath, Changes<'_>> = BTreeMap::new();
        for (path, entry) in entries {
            if let Some(dir) = path.parent() {
                by_dir.entry(dir).or_default().insert(path.name(), entry.as_ref());
            }
        }
        let mut above = BTreeSet::new();
        for (dir, names) in by_dir {
            self.edit(&dir, &names);
            let mut up = dir.parent();
            // Once one directory was met, so was all above it.
            while let Some(d) = up.take_if(|d| !above.contains(d)) {
                up = d.parent();
                above.insert(d);
            }
        }
        for dir in above {
            if let Some(block) = self.blocks.get_mut(dir.as_bytes()) {
                *block = block.without_tree();
            }
        }
    }

    fn edit(&mut self, dir: &RelPath, changes: &Changes<'_>) {
        let empty = Block::encode(None, std::iter::empty());
        let old = self.blocks.get(dir.as_bytes()).unwrap_or(&empty).clone();
        let kept = old.names().filter(|n| !changes.contains_key(n.name));
        let new = changes.iter().filter_map(|(name, entry)| {
            let (stat, content) = (*entry)?;
            Some(Cached {
                name,
                kind: FileKind::File,
                racy: false,
                stat: stat.into(),
                content: Some(content.clone()),
                target: b"",
            })
        });
        let mut names: Vec<Cached<'_>> = kept.chain(new).collect();
        names.sort_by(|a, b| a.name.cmp(b.name));
        let block = Block::encode(None, names.into_iter());
        self.blocks.insert(dir.as_bytes().into(), block);
        self.dirty = true;
    }
}

fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
