//! After the commit: the list of operations, the end of the journal, the staging.
//! Every part may be done again by whoever finds it half done.

use std::sync::Arc;

use futures::{StreamExt, stream};
use serde_json::Map;

use super::journal::{JOURNAL, Journal, JournalState, Keeper, write_copy};
use super::operations::{self, Change, Entry, EntryState};
use super::stage::step_name;
use super::swap::Spot;
use super::work::Work;
use crate::clock::Context;
use crate::diff::StateKind;
use crate::error::Result;
use crate::fsx;
use crate::ids::WorkspaceKey;
use crate::path::RelPath;
use crate::plan::PlanWarning;
use crate::store::{DocKey, Listed, Prefix, Store};
use crate::tasks::blocking;

/// Terminal journals that stay for the record. Every command reads what is there.
const KEPT_JOURNALS: usize = 4;
/// Those that stay to answer a repeated operation id.
const KEPT_NAMED: usize = 256;

/// What was found in directories while they were aside.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Directories that somebody put something into; they are back at their paths.
    back: Vec<RelPath>,
    /// Staging directories that stay, since something of somebody's is in them.
    kept: Vec<RelPath>,
}

impl Left {
    /// What to tell of it.
    pub(super) fn warnings(&self) -> Vec<PlanWarning> {
        let warning = |code: &str, message| PlanWarning { code: code.to_owned(), message };
        let back = self.back.iter().map(|path| {
            warning("directory-in-use", format!("{path} was used meanwhile and stays"))
        });
        let kept = self.kept.iter().map(|path| {
            let message = format!(
                "{path} stays: what is left in it was put into a removed directory meanwhile"
            );
            warning("staging-kept", message)
        });
        back.chain(kept).collect()
    }
}

/// Closes a committed transaction: the list of operations, the store's journal, and the
/// staging where there is one. Its copy of the journal goes on saying `committed`, which
/// whoever finds it closes once more.
pub(super) async fn close(
    store: &Arc<dyn Store>,
    ctx: &Context,
    work: Option<&Arc<Work>>,
    mut keeper: Keeper,
) -> Result<Left> {
    keeper.locate(&**store).await?;
    let key: WorkspaceKey = keeper.journal.workspace.key.parse()?;
    let (entry, change) = (entry(&keeper.journal), keeper.journal.change.clone());
    operations::update(&**store, ctx, &key, |list| match &change {
        Change::Add => list.add(entry.clone()),
        Change::Undo(n) => list.mark(*n, EntryState::Undone, entry.bank.clone()),
        Change::Redo(n) => list.mark(*n, EntryState::Done, entry.bank.clone()),
    })
    .await?;
    keeper.journal.state = JournalState::Closed;
    keeper.journal.updated_at = ctx.clock.now().rfc3339();
    keeper.save(ctx, &**store).await?;
    ctx.faults.reach("restore.closed")?;
    let left = match work.map(Arc::clone) {
        Some(work) => blocking(move || Ok(clear(&work, &keeper.journal))).await?,
        None => Left::default(),
    };
    trim(&**store, &key).await;
    Ok(left)
}

fn entry(journal: &Journal) -> Entry {
    Entry {
        n: 0,
        transaction: journal.transaction.clone(),
        kind: journal.kind.clone(),
        at: journal.started_at.clone(),
        command: journal.command.clone(),
        target: journal.target_snapshot.clone(),
        bank: journal.bank.clone(),
        undo_bank: None,
        scope: journal.scope.clone(),
        counts: journal.counts.clone(),
        plan: journal.plan.clone(),
        plan_digest: journal.plan_digest,
        state: EntryState::Done,
        special_modes: journal.special_modes,
        extra: Map::new(),
    }
}

/// Removes the staging of a transaction that ended as `journal` says.
pub(super) fn clear(work: &Work, journal: &Journal) -> Left {
    let back = rescue(work);
    let kept = work.stage.remove();
    if !kept.is_empty() {
        // So that it is found ended from now on. Best effort: else it is ended again.
        let body = serde_json::to_vec_pretty(journal).unwrap_or_default();
        let _ = write_copy(&work.stage, JOURNAL, &body, false);
    }
    Left { back, kept }
}

/// Directories were empty when they were moved aside. One that is not any more goes
/// back to its path, if that is free: what somebody put into it is not ours to remove.
fn rescue(work: &Work) -> Vec<RelPath> {
    let mut out = Vec::new();
    for (n, step) in work.steps.iter().enumerate() {
        if (step.before.kind == StateKind::Dir) == (step.after.kind == StateKind::Dir) {
            continue;
        }
        let place = work.stage.place(n);
        for from in [&place.old, &*place.new] {
            let removed = from.remove_dir(&step_name(n));
            if removed.is_err_and(|e| !fsx::is_absence(&e))
                && work.at(n, |spot: &Spot<'_>| spot.put_from(from)).is_ok()
            {
                out.push(step.path.clone());
            }
        }
    }
    out
}

/// Drops the oldest terminal journals above the limits: those with an operation id
/// answer a repeated request, the others the list of operations knows. Best effort.
async fn trim(store: &dyn Store, key: &WorkspaceKey) {
    let mut rows: Vec<(std::time::Duration, DocKey)> = Vec::new();
    let mut listing = store.list(&Prefix::Journals(key.clone()));
    while let Some(Ok(row)) = listing.next().await {
        if let Listed::Doc { key, age, .. } = row {
            rows.push((age, key));
        }
    }
    drop(listing);
    rows.sort_by_key(|(age, _)| *age);
    let reads = rows.into_iter().map(|(_, key)| async move {
        let doc = store.get(&key).await.ok()?;
        let journal = Journal::read(&key.to_string(), &doc.body).ok()?;
        journal.state.is_terminal().then_some((key, doc.version, journal.operation_digest))
    });
    let (mut plain, mut named) = (0, 0);
    let mut reads = stream::iter(reads).buffered(16);
    while let Some(read) = reads.next().await {
        let Some((key, version, operation)) = read else { continue };
        let (seen, limit) = match operation {
            Some(_) => (&mut named, KEPT_NAMED),
            None => (&mut plain, KEPT_JOURNALS),
        };
        *seen += 1;
        if *seen > limit {
            let _ = store.delete(&key, Some(&version)).await;
        }
    }
}
