//! What snapshots reach: every tree below some roots, read once per digest, in
//! batches; and the way back, from an object to the snapshots and paths that need it.

pub mod hits;

use std::collections::HashSet;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::clock::Cancel;
use crate::error::Result;
use crate::ids::Digest;
use crate::object::content::{batch_len, load_trees};
use crate::snapshot::tree::{Body, Ref, Tree};
use crate::store::Store;

pub use hits::{Hit, hits};

/// Batches of trees in flight; each is bounded in bytes by [`batch_len`].
const PARALLEL: usize = 4;

/// Reads every tree at and below `roots` whose digest is not in `seen`, which grows.
///
/// `visit` hears of each tree once, in no particular order. A tree that is missing or
/// wrong is an `Err` of its visit and the walk goes on; an error of the store ends it.
pub async fn walk_trees(
    store: &dyn Store,
    cancel: &Cancel,
    roots: impl IntoIterator<Item = Ref>,
    seen: &mut HashSet<Digest>,
    mut visit: impl FnMut(&Ref, Result<Tree>),
) -> Result<()> {
    let mut queue: Vec<Ref> = roots.into_iter().filter(|r| seen.insert(r.digest)).collect();
    let mut running = FuturesUnordered::new();
    loop {
        cancel.check()?;
        while running.len() < PARALLEL && !queue.is_empty() {
            let n = batch_len(queue.iter().rev().map(|r| r.length));
            let batch = queue.split_off(queue.len() - n);
            running.push(async move {
                let trees = load_trees(store, &batch).await?;
                Ok::<_, crate::error::Error>((batch, trees))
            });
        }
        let Some(done) = running.next().await else { return Ok(()) };
        let (batch, trees) = done?;
        for (reference, tree) in batch.iter().zip(trees) {
            if let Ok(tree) = &tree {
                queue.extend(dirs(tree).filter(|r| seen.insert(r.digest)).cloned());
            }
            visit(reference, tree);
        }
    }
}

/// The references to directories in a tree.
pub fn dirs(tree: &Tree) -> impl Iterator<Item = &Ref> {
    tree.entries.iter().filter_map(|e| match &e.body {
        Body::Dir(r) => Some(r),
        _ => None,
    })
}

/// The references to files and directories in a tree.
pub fn contents(tree: &Tree) -> impl Iterator<Item = &Ref> {
    tree.entries.iter().filter_map(|e| match &e.body {
        Body::Dir(r) | Body::File(r) => Some(r),
        Body::Symlink(_) => None,
    })
}
