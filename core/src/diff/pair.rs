//! What differs between two stored snapshots, and when it was changed.

use super::{Change, Cover, Stored, View, between};
use crate::clock::Timestamp;
use crate::error::{IoContext, Result};
use crate::fsx;
use crate::snapshot::doc::Snapshot;
use crate::store::Store;
use crate::workspace::Root;

/// What differs between two snapshots.
pub async fn between_stored(
    store: &dyn Store,
    older: &Snapshot,
    newer: &Snapshot,
) -> Result<Vec<Change>> {
    // Rules and records matter even where the trees are one.
    if older.root == newer.root && older.coverage == newer.coverage {
        return Ok(Vec::new());
    }
    between(&view(store, older).await?, &view(store, newer).await?, &[]).await
}

async fn view<'a>(store: &'a dyn Store, snapshot: &Snapshot) -> Result<View<'a>> {
    let cover = Cover::of(store, snapshot).await?;
    Ok(View { root: snapshot.root.clone(), trees: Box::new(Stored(store)), cover })
}

/// When what a change left there was changed last; `None` for a deletion, and when it
/// is there no more.
pub fn changed_at(change: &Change, root: &Root) -> Result<Option<Timestamp>> {
    if change.to.is_none() {
        return Ok(None);
    }
    match root.dir.stat_below(&change.path) {
        Ok(stat) => Ok(Some(Timestamp(stat.ctime_ns))),
        Err(e) if fsx::is_absence(&e) => Ok(None),
        Err(e) => Err(e).context(|| format!("failed to look at {}", change.path)),
    }
}
