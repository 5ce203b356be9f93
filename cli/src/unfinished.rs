//! Interrupted restores, met at the start of any command that has a workspace.

use backtrail_core::error::Result;
use backtrail_core::restore::{self, Direction, Need};
use backtrail_core::rewind::RunsSide;

use crate::context::{App, Place};
use crate::settings::Recover;

impl App {
    /// For a command that only reads: says so, and goes on.
    pub(crate) async fn warn_unfinished(&self, place: &Place) -> Result<()> {
        let Some(root) = &place.root else { return Ok(()) };
        for found in restore::detect(&*place.store, root, &self.ctx.host).await? {
            if matches!(found.need(), Need::Recover | Need::Unexplained) {
                let e = found.refusal(root);
                let hint = e.hint().map(|h| format!(": {h}")).unwrap_or_default();
                self.out.warn(&format!("{}{hint}", e.message()));
            }
        }
        Ok(())
    }

    /// For a command that changes the workspace: ends an interrupted restore where the
    /// settings say how, else refuses before anybody is asked anything. A dry run only
    /// says so.
    pub(crate) async fn before_change(&self, place: &Place, dry_run: bool) -> Result<()> {
        if dry_run {
            return self.warn_unfinished(place).await;
        }
        self.recover_by_policy(place).await?;
        self.reconcile_here(place, false).await?;
        let root = place.root()?;
        for found in restore::detect(&*place.store, root, &self.ctx.host).await? {
            if !matches!(found.need(), Need::Sweep | Need::Close) {
                return Err(found.refusal(root));
            }
        }
        Ok(())
    }

    /// For a command that writes: ends an interrupted restore where the settings say
    /// how. Otherwise the command itself refuses once it holds the workspace.
    pub(crate) async fn recover_by_policy(&self, place: &Place) -> Result<()> {
        let direction = match place.settings.recover {
            Recover::Ask => return Ok(()),
            Recover::Finish => Direction::Finish,
            Recover::Rollback => Direction::RollBack,
        };
        let at = self.recovery_place(place).await?;
        let found = restore::detect(&*at.store, &at.root, &self.ctx.host).await?;
        if !found.iter().any(|f| f.need() == Need::Recover) {
            return Ok(());
        }
        for done in restore::recover(&at, direction, place.settings.wait, "recover").await? {
            self.out.warn(&format!("the interrupted restore {} was ended first", done.transaction));
        }
        Ok(())
    }

    /// What a recovery works on.
    pub(crate) async fn recovery_place(&self, place: &Place) -> Result<restore::Place> {
        let (store, root) = (place.store.clone(), place.root()?.clone());
        let settings = self.capture_settings(place, "recover", true).await?;
        let at = restore::Place::new(store, self.ctx.clone(), root);
        Ok(at.with_runs(RunsSide::shared(settings)))
    }
}
