//! A process's hold of a run. Alive means that the run's lock is held, on every
//! backend; a pid, a status or a time alone proves nothing.

use std::time::Duration;

use super::change::Run;
use super::status::Status;
use super::store::RunStore;
use crate::error::{Error, Kind, Result};
use crate::fsx;
use crate::ids::RunId;
use crate::store::{Fence, Guard, Holder, LockMode, LockRequest};

/// A look at a lock may hold it for a moment: who wants it for good waits that long.
const LOOK: Duration = Duration::from_millis(250);

/// The Exclusive hold of a run's lock; freed when dropped.
#[derive(Debug)]
pub struct Claim {
    run: RunId,
    guard: Guard,
}

impl Claim {
    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }
    /// The right to send along with writes.
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }
    /// Fails with `lost-lease` once the hold cannot be trusted.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }
    /// Frees the lock and reports whether that worked.
    pub async fn release(self) -> Result<()> {
        self.guard.release().await
    }
}

/// Whether somebody executes a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Its lock is held.
    Held(Holder),
    /// Its record says running and nobody holds the lock: the owner is gone. Children
    /// of its node may still live, which only its host can see.
    OwnerGone,
    /// An external run whose owner is not known, or lives on another host: only its
    /// record says that it goes on.
    Open {
        /// Nothing was heard of it for a day.
        stale: bool,
    },
    /// Nobody executes it, and its record does not say so either.
    Idle,
}

impl RunStore {
    /// Takes the run's lock. Fails with `busy` (exit 5) naming host, pid and since when,
    /// and with `not-found` for a run that does not exist: nothing is locked then.
    /// `command` is for messages to others.
    pub async fn claim(&self, run: &RunId, wait: Duration, command: &str) -> Result<Claim> {
        self.load(run).await?;
        let claim = self.take_lock(run, wait, command).await?;
        // It may have been deleted while we waited.
        match self.load(run).await {
            Ok(_) => Ok(claim),
            Err(e) => Err(e),
        }
    }

    pub(super) async fn take_lock(
        &self,
        run: &RunId,
        wait: Duration,
        command: &str,
    ) -> Result<Claim> {
        let name = Self::run_lock(run);
        let mut request = LockRequest::new(name, LockMode::Exclusive, wait.max(LOOK), command);
        request.run_id = Some(run.clone());
        let guard = self.store.lock(request).await?;
        Ok(Claim { run: run.clone(), guard })
    }

    /// Who holds the run's lock now; writes nothing.
    pub async fn owner(&self, run: &RunId) -> Result<Option<Holder>> {
        self.store.lock_holder(&Self::run_lock(run)).await
    }

    /// Whether somebody executes the run; writes nothing.
    pub async fn liveness(&self, run: &Run) -> Result<Liveness> {
        Ok(match self.owner(run.id()).await? {
            Some(holder) => Liveness::Held(holder),
            None if *run.status() == Status::Running => self.unlocked_liveness(run).await?,
            None => Liveness::Idle,
        })
    }

    /// The process that executes the run, when it surely is the one on record: the lock is
    /// held, and a process of this host with its id started when it says. `not-ours` (kind
    /// Refused) for any other: nobody may be signalled then.
    pub async fn holder_process(&self, run: &Run) -> Result<u32> {
        let held = matches!(self.liveness(run).await?, Liveness::Held(_));
        let host = &self.ctx.host;
        let ours = run.record.holder().filter(|h| {
            held && h.host == host.name
                && h.boot_id == host.boot_id
                && fsx::process_start(h.pid) == Some(h.pid_start)
        });
        ours.map(|holder| holder.pid).ok_or_else(|| {
            let text = format!(
                "the process that executes run {} cannot be told for sure, so none is ended",
                run.id()
            );
            Error::refused("not-ours", text).with_hint("end it where it runs")
        })
    }

    /// Fails with `busy` naming the holder when somebody executes the run.
    pub async fn check_idle(&self, run: &Run) -> Result<()> {
        match self.liveness(run).await? {
            Liveness::Held(holder) => Err(busy(run, &holder)),
            Liveness::Open { .. } => Err(open(run)),
            Liveness::OwnerGone | Liveness::Idle => Ok(()),
        }
    }
}

fn open(run: &Run) -> Error {
    let text = format!("run {} is open: another runtime executes it", run.id());
    Error::new(Kind::Busy, "busy", text)
        .with_hint(format!("backtrail runs end {} --status cancelled", run.id()))
}

fn busy(run: &Run, holder: &Holder) -> Error {
    holder.busy(&RunStore::run_lock(run.id()))
}
