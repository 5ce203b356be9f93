//! Artifacts: versioned outputs of nodes, created once and never overwritten.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change::Run;
use super::checkpoint::{MAX_OUTPUT_BYTES, too_large};
use super::store::RunStore;
use crate::error::{Error, Kind, Result};
use crate::ids::{NodeId, RunId};
use crate::store::{DocKey, Listed, Prefix, docs};

/// One version of a node's artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The run.
    pub run_id: RunId,
    /// The node.
    pub node_id: NodeId,
    /// From 0, with gaps.
    pub version: u64,
    /// What the node gave.
    pub data: Value,
    /// RFC 3339.
    #[serde(default)]
    pub written_at: String,
    /// Free words about it, such as `rewound`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl RunStore {
    /// Stores an artifact as the first free version from `from` on, which is the
    /// checkpoint's `artifact_versions` of the node. Fails with `schema-validation`
    /// above 1 MiB.
    pub async fn write_artifact(
        &self,
        run: &RunId,
        node: &NodeId,
        from: u64,
        data: Value,
        labels: Vec<String>,
    ) -> Result<Artifact> {
        let len = data.to_string().len();
        if len > MAX_OUTPUT_BYTES {
            return Err(too_large(&format!("the artifact of node {node}"), len, MAX_OUTPUT_BYTES));
        }
        let mut artifact = Artifact {
            run_id: run.clone(),
            node_id: node.clone(),
            version: from,
            data,
            written_at: self.now().rfc3339(),
            labels,
            extra: Map::new(),
        };
        loop {
            if self.create_artifact(&artifact).await? {
                return Ok(artifact);
            }
            let next = artifact.version.checked_add(1);
            artifact.version = next.ok_or_else(|| Error::invalid("no artifact version is left"))?;
        }
    }

    /// False when the version is taken by another artifact.
    async fn create_artifact(&self, artifact: &Artifact) -> Result<bool> {
        let (run, node) = (&artifact.run_id, &artifact.node_id);
        let key = DocKey::Artifact(run.clone(), node.clone(), artifact.version);
        let fence = self.fence(run)?;
        let doubt = match docs::create(&*self.store, &key, artifact, fence.as_ref()).await {
            Ok(_) => return Ok(true),
            Err(e) if e.is_conflict() && e.code() != "deleted" => e,
            Err(e) if e.kind() == (Kind::Unavailable { maybe_applied: true }) => e,
            Err(e) => return self.explained(run, Err(e)).await,
        };
        // Ours may have landed although the answer says otherwise.
        match self.artifact(run, node, artifact.version).await {
            Ok(there) if there == *artifact => Ok(true),
            Ok(_) => Ok(false),
            Err(_) if doubt.is_conflict() => Ok(false),
            Err(_) => Err(doubt),
        }
    }

    /// One version of an artifact.
    pub async fn artifact(&self, run: &RunId, node: &NodeId, version: u64) -> Result<Artifact> {
        let key = DocKey::Artifact(run.clone(), node.clone(), version);
        let doc = self.store.get(&key).await?;
        let artifact: Artifact = serde_json::from_slice(&doc.body).map_err(|e| {
            Error::corrupt(format!("artifact {key} is not readable")).with_source(e)
        })?;
        let named = (&artifact.run_id, &artifact.node_id, artifact.version);
        if named != (run, node, version) {
            return Err(Error::corrupt(format!("artifact {key} names another artifact")));
        }
        Ok(artifact)
    }

    /// Node → its versions in order, from what is stored.
    pub async fn artifact_versions(&self, run: &RunId) -> Result<BTreeMap<NodeId, Vec<u64>>> {
        let mut out: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
        let mut rows = self.store.list(&Prefix::Artifacts(run.clone()));
        while let Some(row) = rows.try_next().await? {
            if let Listed::Doc { key: DocKey::Artifact(_, node, version), .. } = row {
                out.entry(node).or_default().push(version);
            }
        }
        // Keys sort as text: 10 stands before 2.
        out.values_mut().for_each(|versions| versions.sort_unstable());
        Ok(out)
    }

    /// Node → its latest version: the index of the record where it is whole, else from
    /// what is stored. An index that the checkpoint is ahead of is behind.
    pub async fn artifact_index(&self, run: &Run) -> Result<BTreeMap<String, u64>> {
        let next = run.record.checkpoint().map(|c| &c.artifact_versions);
        let is_whole = |index: &&BTreeMap<String, u64>| {
            let known = |(node, next): (&String, &u64)| {
                *next == 0 || index.get(node).is_some_and(|latest| latest + 1 >= *next)
            };
            next.is_none_or(|next| next.iter().all(known))
        };
        if let Some(index) = run.record.artifact_index.as_ref().filter(is_whole) {
            return Ok(index.clone());
        }
        let versions = self.artifact_versions(run.id()).await?;
        let latest = |(node, versions): (NodeId, Vec<u64>)| {
            Some((node.to_string(), versions.last().copied()?))
        };
        Ok(versions.into_iter().filter_map(latest).collect())
    }
}
