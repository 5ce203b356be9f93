//! Operation ids: a capture that is asked for once more, by who cannot know whether it was
//! done, is answered with its first result, and the workspace is not looked at.

use serde_json::json;

use super::{Captured, Job, NewLabel, Recorder, Request};
use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::observe::Observed;
use crate::snapshot::chain;
use crate::snapshot::doc::{Delta, Operation};
use crate::snapshot::refs::OperationResult;
use crate::store::docs;
use crate::workspace::rules::{Limits, RuleFamily, RuleSet};

/// The longest operation id, in bytes.
const MAX_ID: usize = 2048;

impl Recorder {
    /// The digests of the request's operation id and of the request; the id itself is
    /// kept nowhere.
    pub(super) fn operation(&self, request: &Request) -> Result<Option<Operation>> {
        let Some(id) = &request.operation else { return Ok(None) };
        let fits = (1..=MAX_ID).contains(&id.len()) && !id.trim().is_empty() && !id.contains('\0');
        if !fits {
            let text = format!("an operation id is 1 to {MAX_ID} bytes, not blank, without NUL");
            return Err(Error::invalid(text));
        }
        let label = match &request.label {
            NewLabel::None => None,
            NewLabel::Named(label) => Some(label.to_string()),
            NewLabel::Numbered(name) => Some(format!("{name}:")),
        };
        let observe = &self.settings.observe;
        let asked = json!({
            "chain": self.chain,
            "label": label,
            "boundary": request.boundary,
            "message": request.message,
            "pin": request.pin,
            "root": self.root.text(),
            "max_file_bytes": observe.max_file_bytes,
            "max_files": observe.max_files,
            "cross_filesystems": observe.cross_filesystems,
        });
        Ok(Some(Operation {
            operation_digest: Digest::of(id.as_bytes()),
            request_digest: Digest::of(&docs::canonical(&asked)),
        }))
    }

    /// The result of an operation that was done. Fails with `operation-reused` when its
    /// id came with another request then.
    pub(super) async fn repeated(&self, job: &Job<'_>) -> Result<Option<Captured>> {
        let Some(operation) = &job.operation else { return Ok(None) };
        let Some(done) = job.refs.refs.operations.get(&operation.operation_digest.hex()) else {
            return Ok(None);
        };
        if done.request_digest != operation.request_digest {
            let text = "this operation id was used for another capture";
            return Err(Error::refused("operation-reused", text)
                .with_detail("snapshot", done.snapshot.as_str())
                .with_hint("give each capture an operation id of its own"));
        }
        let snapshot = chain::read_snapshot(&*self.store, &self.chain, &done.snapshot).await?;
        let limits = Limits::default();
        let observed = Observed {
            dirs: Vec::new(),
            root: snapshot.root.clone(),
            counts: snapshot.counts,
            coverage: snapshot.coverage.clone(),
            rules: RuleSet::new(RuleFamily::Git, limits, false),
            warnings: Vec::new(),
            read: (0, 0),
            reused: 0,
            started_ns: job.started.0,
        };
        let mut captured = self.captured(job, observed);
        captured.id = Some(snapshot.id.clone());
        captured.seq = snapshot.seq;
        captured.parent = snapshot.parent.clone();
        captured.workspace = snapshot.workspace.clone();
        captured.label = match &job.request.label {
            NewLabel::Named(label) => Some(label.clone()),
            _ => snapshot.label.clone(),
        };
        captured.delta = snapshot.delta;
        captured.changed_files = Some(Delta::default());
        captured.snapshot = Some(snapshot);
        Ok(Some(captured))
    }
}

impl Job<'_> {
    /// Notes in the refs what came of the operation.
    pub(super) fn note_operation(&mut self, snapshot: &crate::ids::SnapshotId, at: &str) {
        let Some(operation) = &self.operation else { return };
        let (request_digest, snapshot) = (operation.request_digest, snapshot.clone());
        let result = OperationResult { request_digest, snapshot, at: at.to_owned() };
        self.refs.refs.add_operation(&operation.operation_digest, result);
    }
}
