//! The closed set of document keys. One function maps a key to its string, one
//! reads it back; local files and S3 share the spelling. No key is a path prefix
//! of another.

use std::fmt;

use crate::ids::{
    Chain, CheckpointId, InteractionId, NodeId, RunId, SnapshotId, SubjectId, TransactionId,
    WorkspaceKey,
};

/// The name of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DocKey {
    /// `store.json`: the marker.
    Marker,
    /// `damage.json` (mutable): objects known to be missing or wrong.
    Damage,
    /// `runs/<run>/run.json` (mutable).
    Run(RunId),
    /// `runs/<run>/interactions/<id>.json` (mutable).
    Interaction(RunId, InteractionId),
    /// `runs/<run>/artifacts/<node>/<version>.json`.
    Artifact(RunId, NodeId, u64),
    /// `run-tombstones/<run>.json`.
    RunTombstone(RunId),
    /// `<place>/index.json` (mutable): head and labels.
    Refs(Chain),
    /// `<place>/pruned.json` (mutable).
    Pruned(Chain),
    /// `<place>/snapshots/<id>.json`.
    Snapshot(Chain, SnapshotId),
    /// `workspaces/<key>/operations.json` (mutable): the undo list.
    Operations(WorkspaceKey),
    /// `workspaces/<key>/journals/<transaction>.json` (mutable).
    Journal(WorkspaceKey, TransactionId),
    /// `checkpoints/<subject>/subject.json`.
    Subject(SubjectId),
    /// `checkpoints/<subject>/refs.json` (mutable).
    SubjectRefs(SubjectId),
    /// `checkpoints/<subject>/<id>.json`.
    Checkpoint(SubjectId, CheckpointId),
    /// `checkpoints/<subject>/rewinds/<id>.json` (mutable).
    CheckpointRewind(SubjectId, CheckpointId),
    /// `worktree-manifests/<run>.json` (mutable).
    WorktreeManifest(RunId),
}

fn place(chain: &Chain) -> String {
    match chain {
        Chain::Run(r) => format!("runs/{r}/workspace"),
        Chain::Workspace(k) => format!("workspaces/{k}"),
        Chain::Checkpoint(s) => format!("checkpoints/{s}/workspace"),
    }
}

impl fmt::Display for DocKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marker => f.write_str("store.json"),
            Self::Damage => f.write_str("damage.json"),
            Self::Run(r) => write!(f, "runs/{r}/run.json"),
            Self::Interaction(r, i) => write!(f, "runs/{r}/interactions/{i}.json"),
            Self::Artifact(r, n, v) => write!(f, "runs/{r}/artifacts/{n}/{v}.json"),
            Self::RunTombstone(r) => write!(f, "run-tombstones/{r}.json"),
            Self::Refs(c) => write!(f, "{}/index.json", place(c)),
            Self::Pruned(c) => write!(f, "{}/pruned.json", place(c)),
            Self::Snapshot(c, s) => write!(f, "{}/snapshots/{s}.json", place(c)),
            Self::Operations(k) => write!(f, "workspaces/{k}/operations.json"),
            Self::Journal(k, t) => write!(f, "workspaces/{k}/journals/{t}.json"),
            Self::Subject(s) => write!(f, "checkpoints/{s}/subject.json"),
            Self::SubjectRefs(s) => write!(f, "checkpoints/{s}/refs.json"),
            Self::Checkpoint(s, c) => write!(f, "checkpoints/{s}/{c}.json"),
            Self::CheckpointRewind(s, c) => write!(f, "checkpoints/{s}/rewinds/{c}.json"),
            Self::WorktreeManifest(r) => write!(f, "worktree-manifests/{r}.json"),
        }
    }
}

impl DocKey {
    /// Reads a key string back; `None` for anything that no key spells.
    pub fn parse(s: &str) -> Option<Self> {
        let parts: Vec<&str> = s.split('/').collect();
        let (last, dirs) = parts.split_last()?;
        let stem = last.strip_suffix(".json")?;
        Some(match dirs {
            [] if stem == "store" => Self::Marker,
            [] if stem == "damage" => Self::Damage,
            ["run-tombstones"] => Self::RunTombstone(stem.parse().ok()?),
            ["worktree-manifests"] => Self::WorktreeManifest(stem.parse().ok()?),
            ["runs", r, rest @ ..] => Self::parse_run(r.parse().ok()?, rest, stem)?,
            ["workspaces", k, rest @ ..] => {
                let key: WorkspaceKey = k.parse().ok()?;
                match rest {
                    [] if stem == "operations" => Self::Operations(key),
                    ["journals"] => Self::Journal(key, stem.parse().ok()?),
                    _ => Self::parse_place(Chain::Workspace(key), rest, stem)?,
                }
            }
            ["checkpoints", c, rest @ ..] => Self::parse_subject(c.parse().ok()?, rest, stem)?,
            _ => return None,
        })
    }

    fn parse_run(run: RunId, rest: &[&str], stem: &str) -> Option<Self> {
        match rest {
            [] if stem == "run" => Some(Self::Run(run)),
            ["interactions"] => Some(Self::Interaction(run, stem.parse().ok()?)),
            ["artifacts", n] => {
                let version: u64 = stem.parse().ok()?;
                (version.to_string() == stem).then_some(Self::Artifact(
                    run,
                    n.parse().ok()?,
                    version,
                ))
            }
            ["workspace", rest @ ..] => Self::parse_place(Chain::Run(run), rest, stem),
            _ => None,
        }
    }

    fn parse_subject(subject: SubjectId, rest: &[&str], stem: &str) -> Option<Self> {
        match rest {
            [] if stem == "subject" => Some(Self::Subject(subject)),
            [] if stem == "refs" => Some(Self::SubjectRefs(subject)),
            [] => Some(Self::Checkpoint(subject, stem.parse().ok()?)),
            ["rewinds"] => Some(Self::CheckpointRewind(subject, stem.parse().ok()?)),
            ["workspace", rest @ ..] => Self::parse_place(Chain::Checkpoint(subject), rest, stem),
            _ => None,
        }
    }

    fn parse_place(chain: Chain, rest: &[&str], stem: &str) -> Option<Self> {
        match rest {
            [] if stem == "index" => Some(Self::Refs(chain)),
            [] if stem == "pruned" => Some(Self::Pruned(chain)),
            ["snapshots"] => Some(Self::Snapshot(chain, stem.parse().ok()?)),
            _ => None,
        }
    }

    /// The run whose record this document belongs to.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Run(r) | Self::Interaction(r, _) | Self::Artifact(r, _, _) => Some(r),
            Self::Refs(Chain::Run(r))
            | Self::Pruned(Chain::Run(r))
            | Self::Snapshot(Chain::Run(r), _) => Some(r),
            _ => None,
        }
    }
}

/// What [`super::Store::list`] lists: every document below one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Every document of the store.
    All,
    /// All that belongs to one chain (for a workspace: operations and journals too).
    Place(Chain),
    /// The snapshot documents of one chain.
    Snapshots(Chain),
    /// The journals of one workspace.
    Journals(WorkspaceKey),
    /// Everything below `runs/`.
    Runs,
    /// The run documents alone, and as foreign what lies in their place or in a run's
    /// place without one.
    RunRecords,
    /// Everything of one run.
    Run(RunId),
    /// The artifacts of a run.
    Artifacts(RunId),
    /// The interactions of a run.
    Interactions(RunId),
    /// Everything below `workspaces/`.
    Workspaces,
    /// Everything below `checkpoints/`.
    Checkpoints,
    /// Everything of one checkpoint subject.
    Subject(SubjectId),
    /// The tombstones of deleted runs.
    RunTombstones,
}

impl Prefix {
    /// True for a document that belongs into the listing, of those below the directory.
    pub fn holds(&self, key: &DocKey) -> bool {
        !matches!(self, Self::RunRecords) || matches!(key, DocKey::Run(_))
    }
}

impl fmt::Display for Prefix {
    /// The directory, empty or ending in `/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Place(c) => write!(f, "{}/", place(c)),
            Self::Snapshots(c) => write!(f, "{}/snapshots/", place(c)),
            Self::Journals(k) => write!(f, "workspaces/{k}/journals/"),
            Self::Runs | Self::RunRecords => f.write_str("runs/"),
            Self::Run(r) => write!(f, "runs/{r}/"),
            Self::Artifacts(r) => write!(f, "runs/{r}/artifacts/"),
            Self::Interactions(r) => write!(f, "runs/{r}/interactions/"),
            Self::Workspaces => f.write_str("workspaces/"),
            Self::Checkpoints => f.write_str("checkpoints/"),
            Self::Subject(s) => write!(f, "checkpoints/{s}/"),
            Self::RunTombstones => f.write_str("run-tombstones/"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spelled_as_documented_and_read_back() {
        let run: RunId = "r-1".parse().expect("run id");
        let ws: WorkspaceKey = "00112233445566aa".parse().expect("key");
        let snap: SnapshotId = "ffeeddccbbaa0099".parse().expect("snapshot id");
        let tx: TransactionId = "tx-0123456789abcdef".parse().expect("transaction");
        let chain = Chain::Workspace(ws.clone());
        let golden = [
            (DocKey::Marker, "store.json"),
            (DocKey::Damage, "damage.json"),
            (DocKey::Run(run.clone()), "runs/r-1/run.json"),
            (DocKey::Refs(Chain::Run(run)), "runs/r-1/workspace/index.json"),
            (DocKey::Refs(chain.clone()), "workspaces/00112233445566aa/index.json"),
            (DocKey::Pruned(chain.clone()), "workspaces/00112233445566aa/pruned.json"),
            (
                DocKey::Snapshot(chain, snap),
                "workspaces/00112233445566aa/snapshots/ffeeddccbbaa0099.json",
            ),
            (DocKey::Operations(ws.clone()), "workspaces/00112233445566aa/operations.json"),
            (
                DocKey::Journal(ws, tx),
                "workspaces/00112233445566aa/journals/tx-0123456789abcdef.json",
            ),
        ];
        for (key, text) in golden {
            assert_eq!(key.to_string(), text);
            assert_eq!(DocKey::parse(text), Some(key));
        }
        assert_eq!(DocKey::parse("workspaces/../index.json"), None);
        assert_eq!(DocKey::parse("runs/r/artifacts/n/007.json"), None);
    }
}
