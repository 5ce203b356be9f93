//! The locks of an executing run, in their order: the workspace, the right to be the one
//! that executes there, the run itself.

use crate::error::Result;
use crate::store::{Guard, LockMode, LockName, LockRequest};

use super::Place;

/// Held while anything of a run executes; freed when dropped.
#[derive(Debug)]
pub(super) struct Holds {
    _workspace: Guard,
    _executing: Option<Guard>,
}

impl Holds {
    /// Takes both locks of the workspace. Fails with `busy` naming who executes there,
    /// and with `recovery-needed` when a restore was cut short.
    pub(super) async fn take(place: &Place) -> Result<Self> {
        let lock = async |name, mode, wait| {
            let request = LockRequest::new(name, mode, wait, &place.settings.command);
            place.runs.store().lock(request).await
        };
        let key = place.root.key.clone();
        let workspace =
            lock(LockName::Workspace(key.clone()), LockMode::Shared, place.settings.wait).await?;
        let executing = match place.settings.share_workspace {
            true => None,
            // another run lasts: it is not waited for, and a glance at the lock passes
            false => {
                let glance = std::time::Duration::from_millis(250);
                let taken = lock(LockName::Executing(key), LockMode::Exclusive, glance).await;
                Some(taken.map_err(|e| {
                    e.with_hint("wait for it, cancel it, or give --share-workspace")
                })?)
            }
        };
        if let Some(check) = &place.capture.check {
            check(&place.root).await?;
        }
        Ok(Self { _workspace: workspace, _executing: executing })
    }
}
