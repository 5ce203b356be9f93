//! Where the trees of a comparison come from: a store, or memory.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::object::content;
use crate::snapshot::tree::{Ref, Tree};
use crate::store::Store;

/// Gives trees by their references.
#[async_trait]
pub trait TreeSource: Send + Sync {
    /// The trees, per item in order. The outer error is one of the whole call; a tree
    /// that is missing or wrong is an error of its own item, so that the caller can
    /// name the path it was met at.
    async fn trees(&self, refs: &[Ref]) -> Result<Vec<Result<Arc<Tree>>>>;
}

/// Trees of a store, fetched in batches and re-hashed.
pub struct Stored<'a>(pub &'a dyn Store);

#[async_trait]
impl TreeSource for Stored<'_> {
    async fn trees(&self, refs: &[Ref]) -> Result<Vec<Result<Arc<Tree>>>> {
        let loaded = content::load_trees(self.0, refs).await?;
        Ok(loaded.into_iter().map(|t| t.map(Arc::new)).collect())
    }
}

/// Trees in memory: a workspace as observed, or a test's.
#[derive(Clone, Debug, Default)]
pub struct Memory(HashMap<Digest, Arc<Tree>>);

impl Memory {
    /// Adds a tree and says what names it. Fails on an entry no decoder would take.
    pub fn add(&mut self, tree: Tree) -> Result<Ref> {
        let bytes = tree.encode()?;
        let reference = Ref::whole(bytes.len() as u64, Digest::of(&bytes));
        self.insert(reference.digest, tree);
        Ok(reference)
    }

    /// Adds a tree whose name is known already.
    pub fn insert(&mut self, digest: Digest, tree: Tree) {
        self.0.insert(digest, Arc::new(tree));
    }

    /// The tree called `digest`.
    pub fn get(&self, digest: &Digest) -> Option<&Arc<Tree>> {
        self.0.get(digest)
    }
}

#[async_trait]
impl TreeSource for Memory {
    async fn trees(&self, refs: &[Ref]) -> Result<Vec<Result<Arc<Tree>>>> {
        let one = |r: &Ref| {
            let found = self.get(&r.digest).cloned();
            found.ok_or_else(|| Error::corrupt(format!("tree {} is not in memory", r.digest)))
        };
        Ok(refs.iter().map(one).collect())
    }
}
