//! An interrupted transaction opened again: its journal, its steps and its staging.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::detect::Unfinished;
use super::journal::{Journal, Keeper, PLAN};
use super::place::Place;
use super::stage::Stage;
use super::work::Work;
use crate::error::{Error, IoContext, Result};
use crate::fsx;
use crate::object::content;
use crate::path::RelPath;
use crate::plan::Step;
use crate::tasks::blocking;

pub(super) fn homes(journal: Option<&Journal>) -> Vec<RelPath> {
    let listed = journal.map(|j| j.staging.iter().map(|s| s.dir.clone()).collect::<Vec<_>>());
    listed.filter(|l| l.first().is_some_and(RelPath::is_root)).unwrap_or(vec![RelPath::root()])
}

/// An interrupted transaction, opened again.
pub(super) struct Opened {
    pub(super) keeper: Keeper,
    pub(super) steps: Vec<Step>,
    pub(super) respelled: BTreeMap<RelPath, RelPath>,
    /// `None` when the staging is gone.
    pub(super) work: Option<Arc<Work>>,
}

/// What recovery needs of a plan.
#[derive(Deserialize)]
struct Steps {
    steps: Vec<Step>,
    #[serde(default)]
    respelled: BTreeMap<RelPath, RelPath>,
}

impl Opened {
    pub(super) async fn new(place: &Place, found: &Unfinished) -> Result<Self> {
        let journal = found.journal.clone().ok_or_else(|| found.refusal(&place.root))?;
        let (root, id, at) =
            (Arc::clone(&place.root.dir), found.transaction.clone(), homes(Some(&journal)));
        let copy = blocking(move || {
            let stage = Stage::open(&root, &id, &at, &[])
                .context(|| format!("failed to open the staging of {id}"))?;
            let dir = stage.as_ref().map(|s| &s.places[0].dir);
            let read = dir.map(|d| fsx::read_small(d, PLAN, 1 << 30));
            Ok(read.and_then(std::io::Result::ok).flatten())
        })
        .await?;
        let parsed = copy.and_then(|body| serde_json::from_slice::<Steps>(&body).ok());
        let Steps { steps, respelled } = match parsed {
            Some(steps) => steps,
            None => {
                let body = content::read_all(&*place.store, &journal.plan).await?;
                serde_json::from_slice(&body).map_err(|e| {
                    Error::corrupt(format!("the plan of {} is not readable", found.transaction))
                        .with_source(e)
                })?
            }
        };
        let plan = Steps { steps: steps.clone(), respelled: respelled.clone() };
        let work = Self::work(place, &journal, plan).await?;
        let keeper = Keeper::adopt(journal);
        Ok(Self { keeper, steps, respelled, work })
    }

    async fn work(place: &Place, journal: &Journal, plan: Steps) -> Result<Option<Arc<Work>>> {
        let (root, id) = (Arc::clone(&place.root.dir), journal.transaction.to_string());
        let (at, special) = (homes(Some(journal)), journal.special_modes);
        let narrow: BTreeMap<RelPath, u32> = journal.narrow.clone();
        blocking(move || {
            let Steps { steps, respelled } = plan;
            let stage = Stage::open(&root, &id, &at, &steps)
                .context(|| format!("failed to open the staging of {id}"))?;
            let Some(stage) = stage else { return Ok(None) };
            let mut work = Work::new(root, stage, steps, special)?;
            work.respelled = respelled;
            // Directories that are still widened look as if they always were.
            work.narrow.extend(narrow);
            Ok(Some(Arc::new(work)))
        })
        .await
    }
}
