//! From walked directories to trees: bottom up, cached trees where nothing moved.

use std::collections::{BTreeMap, HashMap};

use super::types::{ObservedDir, ObservedEntry, What, record_kind, tree_of};
use super::walk::Walked;
use crate::error::Result;
use crate::fsx::FileKind;
use crate::ids::Digest;
use crate::object::chunk;
use crate::path::RelPath;
use crate::snapshot::coverage::{Reason, Record, State};
use crate::snapshot::doc::Counts;
use crate::snapshot::tree::{Chunk, Ref};
use crate::store::MAX_BYTES;
use crate::workspace::cache::{Block, Cached, CachedStat, StatCache};

/// What the building hands on.
pub(super) struct Built {
    /// The directories, trees filled in.
    pub dirs: Vec<ObservedDir>,
    /// The cache as of now.
    pub cache: StatCache,
    /// What the tree holds.
    pub counts: Counts,
    /// Files whose content came from the cache.
    pub hits: u64,
}

/// Builds every tree from the leaves up. A directory that is exactly as cached keeps
/// its cached tree and is not encoded at all.
pub(super) fn build(walked: Vec<Walked>, cache: &StatCache, racy_from: i64) -> Result<Built> {
    let mut walked = walked;
    fail_unseen(&mut walked);
    record_ancestors(&mut walked);
    let mut clean = vec![false; walked.len()];
    let mut blocks: HashMap<Box<[u8]>, Block> = HashMap::with_capacity(walked.len());
    let mut changed = false;
    for i in (0..walked.len()).rev() {
        if !walked[i].dir.recorded {
            continue;
        }
        let known = cache.block(&walked[i].dir.path);
        let cached = known.and_then(Block::tree).filter(|_| is_clean(&walked, &clean, i));
        let block = match (cached, known) {
            (Some(tree), Some(block)) => {
                clean[i] = true;
                walked[i].dir.tree = Some(tree);
                block.clone()
            }
            _ => {
                let bytes = encode(&walked, i)?;
                let reference = reference(&bytes);
                let block = block(&walked, i, &reference, racy_from, known);
                walked[i].dir.tree = Some(reference);
                changed |= known != Some(&block);
                block
            }
        };
        blocks.insert(walked[i].dir.path.as_bytes().into(), block);
    }
    changed |= blocks.len() != cache.len();
    let counts = count(&walked);
    let hits = walked.iter().map(|w| w.hits).sum();
    let cache = cache.replaced(blocks, changed);
    let dirs = walked.into_iter().map(|w| w.dir).collect();
    Ok(Built { dirs, cache, counts, hits })
}

/// Moves a failure to look inside from the directory to its entry above.
fn fail_unseen(walked: &mut [Walked]) {
    for i in 1..walked.len() {
        let Some((reason, _)) = walked[i].failed else { continue };
        walked[i].dir.recorded = false;
        let Some(parent) = walked[i].dir.parent else { continue };
        let name: Box<[u8]> = walked[i].dir.path.name().into();
        let above = &mut walked[parent].dir.entries;
        if let Ok(at) = above.binary_search_by(|e| e.name.cmp(&name)) {
            above[at].what = match reason {
                Reason::Vanished => What::Skipped(reason),
                _ => What::Unobserved(reason),
            };
        }
    }
}

/// An excluded directory is recorded if something included lies below it.
fn record_ancestors(walked: &mut [Walked]) {
    for i in (1..walked.len()).rev() {
        let stored = |e: &ObservedEntry| matches!(e.what, What::File(_) | What::Symlink(_));
        if !walked[i].dir.recorded
            && walked[i].failed.is_none()
            && walked[i].dir.entries.iter().any(stored)
        {
            walked[i].dir.recorded = true;
        }
        if let (true, Some(parent)) = (walked[i].dir.recorded, walked[i].dir.parent) {
            walked[parent].dir.recorded = true;
        }
    }
}

fn is_clean(walked: &[Walked], clean: &[bool], i: usize) -> bool {
    let w = &walked[i];
    if !w.clean {
        return false;
    }
    let mut cached = w.cached_dirs.iter().copied().peekable();
    for (at, entry) in w.dir.entries.iter().enumerate() {
        let was = cached.next_if_eq(&at).is_some();
        let is = match entry.what {
            What::Dir(child) if walked[child].dir.recorded => {
                if !clean[child] {
                    return false;
                }
                true
            }
            _ => false,
        };
        if was != is {
            return false;
        }
    }
    true
}

fn encode(walked: &[Walked], i: usize) -> Result<Vec<u8>> {
    tree_of(&walked[i].dir, |child| &walked[child].dir).encode()
}

/// The reference to some tree's bytes: chunked above 8 MiB by the same rule as a file.
pub(crate) fn reference(bytes: &[u8]) -> Ref {
    let mut out = Ref::whole(bytes.len() as u64, Digest::of(bytes));
    if bytes.len() > MAX_BYTES {
        // Reading from memory cannot fail.
        for part in chunk::chunks(bytes).flatten() {
            out.chunks.push(Chunk { length: part.len() as u32, digest: Digest::of(&part) });
        }
    }
    out
}

fn block(walked: &[Walked], i: usize, tree: &Ref, racy_from: i64, known: Option<&Block>) -> Block {
    let mut old = known.map(Block::names).into_iter().flatten().peekable();
    let names = walked[i].dir.entries.iter().filter_map(|e| {
        while old.next_if(|c| c.name < &*e.name).is_some() {}
        let trusted = old.next_if(|c| c.name == &*e.name).filter(|c| !c.racy);
        let mut cached = Cached {
            name: &e.name,
            kind: e.stat.kind,
            racy: false,
            stat: CachedStat::from(&e.stat),
            content: None,
            target: b"",
        };
        match &e.what {
            What::File(content) => {
                cached.kind = FileKind::File;
                cached.content = Some(content.clone());
                // What was trusted stays so: restore vouches for files it just wrote.
                cached.racy = trusted.as_ref() != Some(&cached)
                    && e.stat.mtime_ns.max(e.stat.ctime_ns) >= racy_from;
            }
            What::Symlink(target) => {
                cached.kind = FileKind::Symlink;
                cached.target = target;
            }
            What::Dir(child) if walked[*child].dir.recorded => {
                // A directory's own times decide nothing; leaving them out keeps the
                // block equal when only they moved.
                let mode = walked[*child].dir.stat.mode;
                cached.kind = FileKind::Dir;
                cached.stat = CachedStat { size: 0, mtime_ns: 0, ctime_ns: 0, inode: 0, mode };
            }
            _ => return None,
        }
        Some(cached)
    });
    Block::encode(Some(tree), names)
}

fn count(walked: &[Walked]) -> Counts {
    let mut counts = Counts::default();
    for w in walked.iter().filter(|w| w.dir.recorded) {
        counts.directories += u64::from(w.dir.parent.is_some());
        for e in &w.dir.entries {
            match &e.what {
                What::File(content) => {
                    counts.files += 1;
                    counts.bytes += content.length;
                    counts.hard_linked += u64::from(e.stat.links > 1);
                }
                What::Symlink(_) => counts.symlinks += 1,
                _ => {}
            }
        }
    }
    counts
}

/// The coverage records of everything that is not covered, sorted by path.
pub(super) fn records(dirs: &[ObservedDir], errors: &BTreeMap<RelPath, String>) -> Vec<Record> {
    let mut out = Vec::new();
    for dir in dirs {
        for e in &dir.entries {
            let (state, reason) = match e.what {
                What::Skipped(reason) => (State::Skipped, reason),
                What::Unobserved(reason) => (State::Unobserved, reason),
                _ => continue,
            };
            let path = dir.path.join(&e.name);
            let error = errors.get(&path).cloned();
            let known = e.stat.inode != 0;
            out.push(Record {
                path,
                state,
                reason,
                kind: record_kind(e.stat.kind),
                size: (known && e.stat.kind == FileKind::File).then_some(e.stat.size),
                mtime_ns: known.then_some(e.stat.mtime_ns),
                ctime_ns: known.then_some(e.stat.ctime_ns),
                inode: known.then_some(e.stat.inode),
                mode: known.then_some(e.stat.mode),
                error,
            });
        }
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}
