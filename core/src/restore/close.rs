//! After the commit: the list of operations, the end of the journal, the staging.
//! Every part may be done again by whoever finds it half done.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::Map;

use super::blocking;
use super::journal::{Journal, JournalState, Keeper};
use super::operations::{self, Change, Entry, EntryState};
use super::stage::step_name;
use super::swap::Spot;
use super::work::Work;
use crate::clock::Context;
use crate::diff::StateKind;
use crate::error::Result;
use crate::ids::WorkspaceKey;
use crate::path::RelPath;
use crate::store::{DocKey, Listed, Prefix, Store};

/// Terminal journals that stay for the record. Every command reads what is there.
const KEPT_JOURNALS: usize = 32;

/// Closes a committed transaction. Paths of directories that somebody used while they
/// were aside, and that were put back, are returned.
pub(super) async fn close(
    store: &Arc<dyn Store>,
    ctx: &Context,
    work: &Arc<Work>,
    mut keeper: Keeper,
) -> Result<Vec<RelPath>> {
    let key: WorkspaceKey = keeper.journal.workspace.key.parse()?;
    let (entry, change) = (entry(&keeper.journal), keeper.journal.change.clone());
    operations::update(&**store, ctx, &key, |list| match &change {
        Change::Add => list.add(entry.clone()),
        Change::Undo(n) => list.mark(*n, EntryState::Undone, entry.bank.clone()),
        Change::Redo(n) => list.mark(*n, EntryState::Done, entry.bank.clone()),
    })
    .await?;
    keeper.enter(JournalState::Closed, work, ctx, &**store).await??;
    ctx.faults.reach("restore.closed")?;
    let w = Arc::clone(work);
    let rescued = blocking(move || {
        let rescued = rescue(&w);
        w.stage.remove();
        Ok(rescued)
    })
    .await?;
    trim(&**store, &key).await;
    Ok(rescued)
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
        extra: Map::new(),
    }
}

/// Directories were empty when they were moved aside. One that is not any more goes
/// back to its path, if that is free: what somebody put into it is not ours to remove.
fn rescue(work: &Work) -> Vec<RelPath> {
    let mut out = Vec::new();
    for (n, step) in work.steps.iter().enumerate() {
        if step.before.kind != StateKind::Dir || step.after.kind == StateKind::Dir {
            continue;
        }
        let old = &work.stage.place(n).old;
        let used = old.open_dir(&step_name(n)).and_then(|d| d.names());
        if used.is_ok_and(|names| !names.is_empty()) {
            let back = work.at(n, |spot: &Spot<'_>| spot.put_from(spot.old));
            if back.is_ok() {
                out.push(step.path.clone());
            }
        }
    }
    out
}

/// Drops the oldest terminal journals above the limit, those with an operation id
/// excepted: they answer a repeated request. Best effort.
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
    for (_, key) in rows.into_iter().skip(KEPT_JOURNALS) {
        let Ok(doc) = store.get(&key).await else { continue };
        let Ok(journal) = Journal::read(&key.to_string(), &doc.body) else { continue };
        if journal.state.is_terminal() && journal.operation_digest.is_none() {
            let _ = store.delete(&key, Some(&doc.version)).await;
        }
    }
}
