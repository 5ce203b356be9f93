//! What the verbs share that drive a run from a shell: which run a session means, and how
//! it is opened for one command.

use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Digest, RunId};
use backtrail_core::run::{Run, RunStore, ShellOwner, Status};
use backtrail_core::workflow::drive::external::ExternalRun;
use backtrail_core::workflow::drive::{self, Unwatched};
use backtrail_core::workflow::file::definition::CaptureMode;

use crate::context::{App, Place};
use crate::running::Way;

/// How long a hook's capture may take, and how long it waits for a lock.
pub(crate) const HURRY: Duration = Duration::from_millis(1200);
pub(crate) const PATIENCE: Duration = Duration::from_millis(400);

/// How one command works on an external run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The command, for messages of others who wait.
    pub(crate) command: &'static str,
    /// Other runs may execute in the workspace meanwhile.
    pub(crate) share_workspace: bool,
    /// What happens when a capture fails.
    pub(crate) capture: CaptureMode,
    /// An agent waits for it.
    pub(crate) hook: bool,
}

impl Manner {
    pub(crate) fn of(command: &'static str, hook: bool) -> Self {
        let capture = if hook { CaptureMode::BestEffort } else { CaptureMode::Required };
        Self { command, share_workspace: true, capture, hook }
    }
}

impl App {
    /// What a drive of an external run is handed.
    pub(crate) async fn external_place(
        &self,
        place: &Place,
        manner: Manner,
    ) -> Result<drive::Place> {
        let way = Way {
            share_workspace: manner.share_workspace,
            ..Way::of(manner.command, Arc::new(Unwatched))
        };
        let mut at = self.drive_place(place, way).await?;
        if manner.hook {
            at.settings.capture_timeout = Some(HURRY);
            at.settings.wait = PATIENCE;
            at.capture.wait = PATIENCE;
        }
        Ok(at)
    }

    /// Opens an external run for one command, in the workspace that its record names.
    pub(crate) async fn open_external(
        &self,
        place: Place,
        run: &Run,
        manner: Manner,
    ) -> Result<ExternalRun> {
        let place = self.place_of(place, run).await?;
        let at = self.external_place(&place, manner).await?;
        ExternalRun::open(at, run.id(), manner.capture).await
    }
}

/// The open run of a session, else the id that its next one gets.
pub(crate) async fn of_session(
    runs: &RunStore,
    key: &str,
) -> Result<std::result::Result<Run, String>> {
    let hash = Digest::of(key.as_bytes()).hex();
    for n in 1_u32.. {
        let id = match n {
            1 => format!("s-{}", &hash[..24]),
            n => format!("s-{}.{n}", &hash[..24]),
        };
        match runs.load(&RunId::new(id.as_str())?).await {
            Ok(run) if is_open(run.status()) => return Ok(Ok(run)),
            Ok(_) => {}
            Err(e) if e.code() == "deleted" => {}
            Err(e) if e.is_not_found() => return Ok(Err(id)),
            Err(e) => return Err(e),
        }
    }
    Err(Error::failed("internal", "a session has too many runs"))
}

fn is_open(status: &Status) -> bool {
    let stopped = *status == Status::FailedResumable;
    stopped || !status.is_ended() && !matches!(status, Status::Other(_))
}

/// Says who owns a run from now on.
pub(crate) async fn owned_by(runs: &RunStore, run: &mut Run, owner: &ShellOwner) -> Result<()> {
    let (name, value) = owner.field()?;
    runs.patch(run, |record| {
        record.extra.insert(name.clone(), value.clone());
        Ok(())
    })
    .await
}
