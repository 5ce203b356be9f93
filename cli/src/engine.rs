//! From settings to what the engine takes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use backtrail_core::capture;
use backtrail_core::error::{Error, Result};
use backtrail_core::fsx;
use backtrail_core::observe;
use backtrail_core::restore;
use backtrail_core::rewind::RunsSide;
use backtrail_core::tasks::blocking;

use crate::context::{App, Place, quoted};

impl App {
    /// How a recorder works. With `make`, directories of ours that lie in the workspace
    /// are made, so that the walk can tell them from the workspace's own.
    pub(crate) async fn capture_settings(
        &self,
        place: &Place,
        command: &str,
        make: bool,
    ) -> Result<capture::Settings> {
        let plain = capture::Settings {
            observe: self.observe_settings(place, make).await?,
            wait: place.settings.wait,
            cache_dir: place.settings.cache_dir.clone(),
            command: command.to_owned(),
            kept: None,
            check: None,
        };
        let runs = RunsSide::shared(plain.clone());
        let check = restore::check(place.store.clone(), self.ctx.clone(), Some(runs));
        Ok(capture::Settings { check: Some(check), ..plain })
    }

    /// How to look at the workspace. With `make`, directories of ours in it are made.
    pub(crate) async fn observe_settings(
        &self,
        place: &Place,
        make: bool,
    ) -> Result<observe::Settings> {
        let s = &place.settings;
        let ours = [place.store.info().local_dir, s.cache_dir.clone(), s.state_dir.clone()];
        let ours: Vec<PathBuf> = ours.into_iter().flatten().collect();
        let root: PathBuf = place.root()?.path.clone();
        let never_enter = blocking(move || {
            ours.iter().try_for_each(|dir| refuse_within(&root, dir))?;
            Ok(ours.iter().filter_map(|dir| identity(&root, dir, make)).collect())
        })
        .await?;
        Ok(observe::Settings {
            max_file_bytes: s.max_file_bytes,
            max_files: s.max_files,
            threads: s.threads,
            safety_window_ns: s.safety_window_ns(),
            never_enter,
            ..observe::Settings::default()
        })
    }

    /// Waits for `work`, and asks it to stop once `limit` has passed.
    pub(crate) async fn within<T>(
        &self,
        limit: Option<Duration>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(limit) = limit else { return work.await };
        let mut work = std::pin::pin!(work);
        // The limit is looked at first: work that a stopped process finds done when it
        // goes on does not beat it.
        tokio::select! {
            biased;
            () = tokio::time::sleep(limit) => {}
            done = &mut work => return done,
        }
        // Cancelled, not dropped: it cleans up, and says that it was stopped.
        self.ctx.cancel.cancel("the time limit");
        work.await
    }
}

/// Fails for a workspace that is, or lies in, a directory of ours: recording it would
/// record the recording.
fn refuse_within(root: &Path, dir: &Path) -> Result<()> {
    match fsx::canonical(dir) {
        Ok(dir) if root.starts_with(&dir) => Err(Error::invalid(format!(
            "{} is not taken as a workspace: backtrail keeps its own files in {}",
            quoted(root),
            quoted(&dir)
        ))
        .with_code("unsafe-root")
        .with_hint("give another --store")),
        _ => Ok(()),
    }
}

/// Device and inode of a directory of ours, made first when it would lie in the
/// workspace: a lock or the cache is about to make it during the walk.
fn identity(root: &Path, dir: &Path, make: bool) -> Option<(u64, u64)> {
    if make && inside(root, dir) {
        // If this fails, so will the writer it is for, and say why.
        let _ = fsx::make_private_dirs(dir);
    }
    let canonical = fsx::canonical(dir).ok()?;
    fsx::stat_path(&canonical).ok().map(|s| (s.device, s.inode))
}

/// True if `dir`, of which only the beginning may exist, leads into `root`.
fn inside(root: &Path, dir: &Path) -> bool {
    let existing = dir.ancestors().find_map(|a| fsx::canonical(a).ok());
    existing.is_some_and(|e| e.starts_with(root))
}
