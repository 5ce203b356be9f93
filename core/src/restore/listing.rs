//! A target tree as flat lists: directories from the top down, files and links by the
//! number of their directory.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};

use super::fill::NewFile;
use crate::diff;
use crate::error::{Error, Result};
use crate::object::content;
use crate::path::RelPath;
use crate::snapshot::tree::{Body, Ref};
use crate::store::Store;

/// Trees of one call.
const TREES: usize = 256;

/// One directory of a listing; number 0 is the root.
#[derive(Clone, Debug)]
pub(super) struct ListedDir {
    /// Its path.
    pub(super) path: RelPath,
    /// Its recorded mode; of no meaning for the root.
    pub(super) mode: u32,
}

/// One symbolic link of a listing.
#[derive(Clone, Debug)]
pub(super) struct ListedLink {
    /// The number of its directory.
    pub(super) dir: u32,
    /// Its name there.
    pub(super) name: Box<[u8]>,
    /// Its target text.
    pub(super) target: Vec<u8>,
}

/// What a target holds, as far as it was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    /// Directories, each after the one that holds it.
    pub(super) dirs: Vec<ListedDir>,
    /// Files.
    pub(super) files: Vec<NewFile>,
    /// Links.
    pub(super) links: Vec<ListedLink>,
}

impl Listing {
    /// Reads the trees below `root`, level by level. With `paths`, only those and what
    /// lies below them (and the directories on the way); a path the target does not
    /// hold is `NotFound`.
    pub(super) async fn load(
        store: &dyn Store,
        root: &Ref,
        paths: &BTreeSet<RelPath>,
        threads: usize,
    ) -> Result<Self> {
        let mut out = Self::default();
        out.dirs.push(ListedDir { path: RelPath::root(), mode: 0 });
        let mut missing = paths.clone();
        let mut level = vec![(0u32, root.clone())];
        while !level.is_empty() {
            let calls = level.chunks(TREES).map(|part| async move {
                let refs: Vec<Ref> = part.iter().map(|(_, r)| r.clone()).collect();
                content::load_trees(store, &refs).await
            });
            let mut calls = stream::iter(calls).buffered(threads.max(1));
            let mut next = Vec::new();
            let mut numbers = level.iter().map(|(n, _)| *n);
            while let Some(trees) = calls.next().await {
                for (tree, dir) in trees?.into_iter().zip(&mut numbers) {
                    let path = &out.dirs[dir as usize].path;
                    for entry in tree.map_err(|e| diff::at(path, e))?.entries {
                        out.add(dir, entry, paths, &mut missing, &mut next);
                    }
                }
            }
            drop(calls);
            level = next;
        }
        match missing.first() {
            Some(path) => Err(Error::not_found(format!("the snapshot holds no {path}"))
                .with_paths([path.text().into_owned()])),
            None => Ok(out),
        }
    }

    fn add(
        &mut self,
        dir: u32,
        entry: crate::snapshot::tree::Entry,
        paths: &BTreeSet<RelPath>,
        missing: &mut BTreeSet<RelPath>,
        next: &mut Vec<(u32, Ref)>,
    ) {
        // The filter costs a path per entry, so it is only looked at when there is one.
        if !paths.is_empty() {
            let path = self.dirs[dir as usize].path.join(&entry.name);
            missing.remove(&path);
            let wanted = paths.iter().any(|p| path.starts_with(p));
            let on_the_way =
                matches!(entry.body, Body::Dir(_)) && paths.iter().any(|p| p.starts_with(&path));
            if !wanted && !on_the_way {
                return;
            }
        }
        let name = entry.name.into_boxed_slice();
        match entry.body {
            Body::File(content) => {
                self.files.push(NewFile { dir, name, mode: entry.mode, content });
            }
            Body::Symlink(target) => self.links.push(ListedLink { dir, name, target }),
            Body::Dir(tree) => {
                let path = self.dirs[dir as usize].path.join(&name);
                next.push((self.dirs.len() as u32, tree));
                self.dirs.push(ListedDir { path, mode: entry.mode });
            }
        }
    }

    /// Content bytes plus 4 KiB an entry: what it takes on disk at most, roughly.
    pub(super) fn space(&self) -> u64 {
        let entries = (self.dirs.len() + self.files.len() + self.links.len()) as u64;
        let bytes = self.files.iter().fold(0u64, |n, f| n.saturating_add(f.content.length));
        bytes.saturating_add(entries.saturating_mul(4096))
    }

    /// The path of a name in a directory.
    pub(super) fn path(&self, dir: u32, name: &[u8]) -> RelPath {
        self.dirs[dir as usize].path.join(name)
    }
}
