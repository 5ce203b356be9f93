//! Listing documents: what no key names is reported as foreign, what a bucket holds
//! beside documents is left out.

use backtrail_core::error::Result;
use backtrail_core::store::{DocKey, Listed, Prefix, Version};

use super::Inner;
use super::bucket::{Row, in_order};

/// The directories of documents.
const DOCUMENTS: &[&str] =
    &["checkpoints/", "run-tombstones/", "runs/", "workspaces/", "worktree-manifests/"];
/// What lies at the top beside them.
const OTHERS: &[&str] =
    &["workspace-objects/", "packs/", "pack-index/", "locks/", "tenants/", "probe/"];

/// True for a directory at the top of a store.
pub(super) fn is_ours(dir: &str) -> bool {
    DOCUMENTS.contains(&dir) || OTHERS.contains(&dir)
}

/// True for what a run has beside documents.
fn is_record(key: &str) -> bool {
    let Some((run, rest)) = key.strip_prefix("runs/").and_then(|k| k.split_once('/')) else {
        return false;
    };
    !run.is_empty()
        && (rest == "head.json" || rest.starts_with("events/") || rest.starts_with("log/"))
}

/// A row of a listing as a document, or as what it is not; `None` for what is neither.
fn listed(row: Row) -> Option<(String, Listed)> {
    if is_record(&row.key) {
        return None;
    }
    let out = match DocKey::parse(&row.key) {
        Some(key) => Listed::Doc { key, version: Some(Version(row.meta.etag)), age: row.meta.age },
        None => Listed::Foreign { name: row.key.clone() },
    };
    Some((row.key, out))
}

impl Inner {
    pub(super) async fn list_documents(&self, prefix: &Prefix) -> Result<Vec<Listed>> {
        let mut found = match prefix {
            Prefix::All => self.list_all().await?,
            Prefix::RunRecords => self.list_records().await?,
            _ => {
                let rows = self.bucket.list(&prefix.to_string()).await?;
                rows.into_iter().filter_map(listed).collect()
            }
        };
        // Servers that keep keys as files have an order of their own.
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    /// Everything, without walking through objects and locks.
    async fn list_all(&self) -> Result<Vec<(String, Listed)>> {
        let top = self.bucket.list_dir("").await?;
        let mut found: Vec<_> = top.rows.into_iter().filter_map(listed).collect();
        for dir in top.dirs {
            if DOCUMENTS.contains(&dir.as_str()) {
                found.extend(self.bucket.list(&dir).await?.into_iter().filter_map(listed));
            } else if !OTHERS.contains(&dir.as_str()) {
                found.push((dir.clone(), Listed::Foreign { name: dir }));
            }
        }
        Ok(found)
    }

    /// The run documents: a look at each run, for a run may have thousands of segments.
    async fn list_records(&self) -> Result<Vec<(String, Listed)>> {
        let top = self.bucket.list_dir("runs/").await?;
        let mut found: Vec<_> = top.rows.into_iter().filter_map(listed).collect();
        let looks: Vec<_> = top.dirs.into_iter().map(|dir| self.record_of(dir)).collect();
        for row in in_order(looks, self.bucket.concurrency()).await {
            found.extend(row?);
        }
        Ok(found)
    }

    async fn record_of(&self, dir: String) -> Result<Option<(String, Listed)>> {
        let text = format!("{dir}run.json");
        if let Some(meta) = self.bucket.head(&text).await? {
            return Ok(listed(Row { key: text, meta }));
        }
        let name = dir.trim_end_matches('/').to_owned();
        // A server may show a directory that holds nothing any more. A head alone is what
        // the creation of a run left that never came to its record.
        let rest = self.bucket.list(&dir).await?;
        match rest.iter().all(|row| row.key == format!("{dir}head.json")) {
            true => Ok(None),
            false => Ok(Some((name.clone(), Listed::Foreign { name }))),
        }
    }
}
