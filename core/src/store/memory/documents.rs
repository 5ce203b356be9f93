//! Documents in memory.

use std::ops::Bound;

use bytes::Bytes;
use tokio::time::Instant;

use super::{MemoryStore, PAGE, State, Stored};
use crate::error::{Error, Result};
use crate::ids::RunId;
use crate::store::docs::{absent, check_body, conflict, deleted, token_of};
use crate::store::{DocKey, Document, Expect, Fence, Listed, Prefix, Version};

impl State {
    /// Stores a body under a version that was never used before.
    pub(super) fn write(&mut self, key: &DocKey, body: Bytes) -> Version {
        self.versions += 1;
        let version = Version(format!("v{}", self.versions));
        let doc = Document { body, version: version.clone() };
        let stored = Stored { key: key.clone(), doc, at: Instant::now() };
        self.docs.insert(key.to_string(), stored);
        version
    }

    pub(super) fn document(&self, key: &DocKey) -> Option<&Document> {
        self.docs.get(&key.to_string()).map(|s| &s.doc)
    }

    /// Refuses a write below a run that is absent or deleted (CLD-D10).
    pub(super) fn check_run(&self, run: &RunId, creates: bool) -> Result<()> {
        if self.document(&DocKey::RunTombstone(run.clone())).is_some() {
            return Err(deleted(run, creates));
        }
        if creates || self.document(&DocKey::Run(run.clone())).is_some() {
            return Ok(());
        }
        Err(Error::not_found(format!("run {run} is not in the store")))
    }
}

impl MemoryStore {
    pub(super) fn get_document(&self, key: &DocKey) -> Result<Document> {
        self.backing.state().document(key).cloned().ok_or_else(|| absent(key))
    }

    pub(super) fn put_document(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: &Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        check_body(key, &body)?;
        let mut state = self.backing.state();
        if let Some(run) = key.run() {
            state.check_run(run, matches!(key, DocKey::Run(_)))?;
        }
        let current = state.document(key);
        if let (Some(fence), Some(current)) = (fence, current) {
            fence.check(&key.to_string(), token_of(&current.body))?;
        }
        let version = current.map(|c| c.version.clone());
        match expect {
            Expect::Absent if version.is_some() => return Err(conflict(key, version.as_ref())),
            Expect::Version(v) if version.as_ref() != Some(v) => {
                return Err(conflict(key, version.as_ref()));
            }
            _ => {}
        }
        let version = state.write(key, body);
        drop(state);
        self.backing.notify();
        Ok(version)
    }

    pub(super) fn delete_document(&self, key: &DocKey, version: Option<&Version>) -> Result<()> {
        let mut state = self.backing.state();
        let present = state.document(key).map(|d| d.version.clone());
        if version.is_some() && present.as_ref() != version {
            return Err(conflict(key, present.as_ref()));
        }
        state.docs.remove(&key.to_string());
        if let DocKey::Run(run) = key
            && state.document(&DocKey::RunTombstone(run.clone())).is_some()
        {
            state.events.remove(run);
            state.logs.remove(run);
        }
        drop(state);
        self.backing.notify();
        Ok(())
    }

    pub(super) fn document_page(
        &self,
        prefix: &Prefix,
        after: Option<&String>,
    ) -> Vec<(String, Listed)> {
        let top = prefix.to_string();
        let start = match after {
            Some(key) => Bound::Excluded(key.as_str()),
            None => Bound::Included(top.as_str()),
        };
        let state = self.backing.state();
        let rows = state.docs.range::<str, _>((start, Bound::Unbounded));
        let below = rows.take_while(|(key, _)| key.starts_with(&top));
        let below = below.filter(|(_, s)| prefix.holds(&s.key));
        let listed = |s: &Stored| Listed::Doc {
            key: s.key.clone(),
            version: Some(s.doc.version.clone()),
            age: s.at.elapsed(),
        };
        below.take(PAGE).map(|(key, s)| (key.clone(), listed(s))).collect()
    }
}
