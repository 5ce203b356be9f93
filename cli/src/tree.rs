//! Stored trees, flattened for people.

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::object::content;
use backtrail_core::path::RelPath;
use backtrail_core::snapshot::doc::Snapshot;
use backtrail_core::snapshot::tree::{Body, Entry, Ref};
use backtrail_core::store::Store;
use serde_json::{Value, json};

/// Directories loaded at once.
const BATCH: usize = 256;

/// One entry of a snapshot.
pub(crate) struct Row {
    /// Where.
    pub(crate) path: RelPath,
    /// What.
    pub(crate) entry: Entry,
}

impl Row {
    /// `{path, kind, mode, size, digest, target?}`.
    pub(crate) fn json(&self) -> Value {
        let mode = format!("{:04o}", self.entry.mode);
        match &self.entry.body {
            Body::File(r) => json!({
                "path": self.path, "kind": "file", "mode": mode, "size": r.length, "digest": r.digest,
            }),
            Body::Dir(r) => json!({
                "path": self.path, "kind": "dir", "mode": mode, "digest": r.digest,
            }),
            Body::Symlink(target) => json!({
                "path": self.path, "kind": "symlink", "size": target.len(),
                "target": backtrail_core::path::text(target),
            }),
        }
    }
}

/// What a walk of stored trees found, in byte order of path.
#[derive(Default)]
pub(crate) struct Listing {
    /// The entries.
    pub(crate) rows: Vec<Row>,
    /// Directories whose tree is missing or wrong; the rest is listed all the same.
    pub(crate) damaged: Vec<(RelPath, Error)>,
}

/// Lists everything at and below `under` (the root path: everything). Fails with
/// `not-found` when the snapshot holds no such path.
pub(crate) async fn list(store: &dyn Store, s: &Snapshot, under: &RelPath) -> Result<Listing> {
    let mut out = Listing::default();
    let mut todo: Vec<(RelPath, Ref)> = Vec::new();
    if under.is_root() {
        todo.push((RelPath::root(), s.root.clone()));
    } else {
        let entry = find(store, s, under).await?;
        if let Body::Dir(r) = &entry.body {
            todo.push((under.clone(), r.clone()));
        }
        out.rows.push(Row { path: under.clone(), entry });
    }
    while !todo.is_empty() {
        let batch = todo.split_off(todo.len().saturating_sub(BATCH));
        let refs: Vec<Ref> = batch.iter().map(|(_, r)| r.clone()).collect();
        let trees = content::load_trees(store, &refs).await?;
        for ((dir, _), tree) in batch.into_iter().zip(trees) {
            match tree {
                Ok(tree) => {
                    for entry in tree.entries {
                        let path = dir.join(&entry.name);
                        if let Body::Dir(r) = &entry.body {
                            todo.push((path.clone(), r.clone()));
                        }
                        out.rows.push(Row { path, entry });
                    }
                }
                Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::NotFound) => {
                    out.damaged.push((dir, e));
                }
                Err(e) => return Err(e),
            }
        }
    }
    out.rows.sort_by(|a, b| a.path.cmp(&b.path));
    out.damaged.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(out)
}

/// The entry at `path`. `not-found` when the snapshot holds none.
pub(crate) async fn find(store: &dyn Store, s: &Snapshot, path: &RelPath) -> Result<Entry> {
    let none = || {
        Error::not_found(format!("snapshot {} holds no {path}", s.id))
            .with_paths([path.text().into_owned()])
            .with_hint(format!("backtrail show {} --files", s.id))
    };
    content::entry_at(store, &s.root, path).await?.ok_or_else(none)
}
