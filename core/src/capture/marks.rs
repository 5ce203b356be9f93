//! Boundaries without a look at the workspace: names for a snapshot that is there, and
//! notes of boundaries that could not be captured.

use super::Recorder;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::snapshot::label::{Boundary, Label};
use crate::snapshot::refs::{Missing, Target};
use crate::snapshot::relabel;

/// A boundary at which nothing can have changed since a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The boundary.
    pub boundary: Boundary,
    /// The snapshot that it names.
    pub snapshot: SnapshotId,
    /// A label that exists stays where it is.
    pub keep: bool,
}

impl Recorder {
    /// Points labels at snapshots, all in one write. The head never moves.
    pub async fn alias(&self, aliases: &[Alias]) -> Result<()> {
        let mut named = Vec::new();
        for alias in aliases {
            let label = alias.boundary.label();
            named.push((label.ok_or_else(|| Error::invalid("a boundary has no label"))?, alias));
        }
        let at = self.ctx.clock.now().rfc3339();
        relabel::update(&*self.store, &*self.ctx.ids, &self.chain, |refs| {
            for (label, alias) in &named {
                if alias.keep && refs.labels.contains_key(label) {
                    continue;
                }
                let target = Target {
                    snapshot: alias.snapshot.clone(),
                    at: at.clone(),
                    attempt: alias.boundary.attempt,
                    pinned: false,
                };
                refs.labels.insert(label.clone(), target);
            }
            Ok(())
        })
        .await
    }

    /// Notes boundaries that could not be captured, and why: the next snapshot lists
    /// them.
    pub async fn missed(&self, missed: &[(Label, String)]) -> Result<()> {
        let at = self.ctx.clock.now().rfc3339();
        relabel::update(&*self.store, &*self.ctx.ids, &self.chain, |refs| {
            for (label, reason) in missed {
                let missing = Missing { at: at.clone(), reason: reason.clone() };
                refs.missing.insert(label.to_string(), missing);
            }
            Ok(())
        })
        .await
    }
}
