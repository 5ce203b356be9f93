//! What `doctor --fix` does: each step is shown before any is taken.

use std::fmt;
use std::path::PathBuf;

use backtrail_core::capture::{Recorder, Request};
use backtrail_core::damage;
use backtrail_core::doctor::{self, Fix};
use backtrail_core::error::{Error, Result};
use backtrail_core::restore;
use backtrail_core::store::DocKey;
use backtrail_core::tasks::blocking;
use backtrail_core::workspace::cache::{remove_vanished, vanished};

use crate::context::{App, Place, Somewhere, quoted};

/// One step.
pub(super) enum Step {
    /// What the store itself needs.
    Store(Fix),
    /// Remove the cache of a workspace that is gone.
    Cache(PathBuf, Vec<u8>, PathBuf),
    /// Remove a damaged journal or list of operations that decides nothing.
    Record(DocKey),
    /// Store damaged objects again from the workspace, by a capture.
    Damage(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(fix) => fix.fmt(f),
            Self::Cache(_, _, root) => {
                write!(f, "remove the cache of {}, which is gone", quoted(root))
            }
            Self::Record(key @ DocKey::Operations(_)) => {
                write!(f, "remove the damaged list {key}; what was done is undone by its bank only")
            }
            Self::Record(key) => {
                write!(f, "remove the damaged journal {key}; no restore of it is half done")
            }
            Self::Damage(n) => {
                write!(f, "capture, to store again what the workspace has of {n} damaged objects")
            }
        }
    }
}

/// Everything there is to do.
pub(super) async fn plan(app: &App, at: &Somewhere) -> Result<Vec<Step>> {
    let store = &*at.store;
    let mut out: Vec<Step> = doctor::plan(store).await?.into_iter().map(Step::Store).collect();
    if let Some(dir) = at.settings.cache_dir.clone() {
        let gone = blocking(move || Ok((vanished(&dir), dir))).await?;
        out.extend(gone.0.into_iter().map(|(name, root)| Step::Cache(gone.1.clone(), name, root)));
    }
    if let Some(root) = &at.root {
        let damaged = restore::unreadable(store, root, &app.ctx.host).await?;
        out.extend(damaged.into_iter().map(Step::Record));
    }
    let damaged = damage::load(store).await?.digests.len();
    if damaged > 0 && at.root.is_some() {
        out.push(Step::Damage(damaged));
    }
    Ok(out)
}

/// Takes one step.
pub(super) async fn apply(app: &App, at: &Somewhere, step: Step) -> Result<()> {
    match step {
        Step::Store(fix) => doctor::fix(&*at.store, &app.ctx, &[fix]).await,
        Step::Cache(dir, name, _) => {
            blocking(move || {
                remove_vanished(&dir, &name)
                    .map_err(|e| Error::failed("io", "a stale cache stays").with_source(e))
            })
            .await
        }
        Step::Record(key) => at.store.delete(&key, None).await,
        Step::Damage(_) => capture(app, at).await,
    }
}

async fn capture(app: &App, at: &Somewhere) -> Result<()> {
    let Some(root) = at.root.clone() else { return Ok(()) };
    let place = Place {
        settings: at.settings.clone(),
        store: at.store.clone(),
        chain: root.chain(),
        root: Some(root.clone()),
    };
    let settings = app.capture_settings(&place, "doctor", true).await?;
    let recorder =
        Recorder::open(place.store.clone(), app.ctx.clone(), root, place.chain.clone(), settings);
    recorder.capture(&Request::default()).await.map(|_| ())
}
