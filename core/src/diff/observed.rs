//! A workspace as observed, as one side of a comparison.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::source::TreeSource;
use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::observe::Observed;
use crate::snapshot::tree::{Ref, Tree};

/// The trees of an observation, made from its entries when asked for.
pub struct ObservedTrees<'a> {
    observed: &'a Observed,
    by_digest: HashMap<Digest, usize>,
}

impl<'a> ObservedTrees<'a> {
    /// Indexes the recorded directories of `observed`.
    pub fn new(observed: &'a Observed) -> Self {
        let dirs = observed.dirs.iter().enumerate();
        let by_digest = dirs.filter_map(|(i, d)| d.tree.as_ref().map(|t| (t.digest, i))).collect();
        Self { observed, by_digest }
    }

    /// The tree called `digest`, when the observation has it.
    pub fn tree(&self, digest: &Digest) -> Option<Tree> {
        self.by_digest.get(digest).map(|i| self.observed.tree(*i))
    }
}

#[async_trait]
impl TreeSource for ObservedTrees<'_> {
    async fn trees(&self, refs: &[Ref]) -> Result<Vec<Result<Arc<Tree>>>> {
        let find = |r: &Ref| {
            self.tree(&r.digest)
                .map(Arc::new)
                .ok_or_else(|| Error::not_found(format!("the workspace has no tree {}", r.digest)))
        };
        Ok(refs.iter().map(find).collect())
    }
}
