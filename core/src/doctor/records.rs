//! Checks of what is stored: refs against documents, unfinished restores, damage.

use std::collections::BTreeSet;

use futures::StreamExt;
use serde_json::Value;

use super::{Check, json, some};
use crate::clock::Host;
use crate::damage;
use crate::error::{Kind, Result};
use crate::ids::{Chain, SnapshotId, WorkspaceKey};
use crate::restore::{self, Need, Operations};
use crate::snapshot::chain::{History, all_chains};
use crate::store::{DocKey, Listed, Prefix, Store};
use crate::workspace::Root;

pub(super) async fn checks(
    store: &dyn Store,
    root: Option<&Root>,
    host: &Host,
    out: &mut Vec<Check>,
) {
    let parts = [
        ("refs", refs(store).await),
        ("restores", restores(store, root, host).await),
        ("runs", runs(store).await),
        ("damage", damage_list(store).await),
    ];
    for (name, checks) in parts {
        match checks {
            Ok(checks) => out.extend(checks),
            Err(e) => out.push(Check::failed(name, &e)),
        }
    }
}

/// Every head and label leads to a document, and every document can be read.
async fn refs(store: &dyn Store) -> Result<Vec<Check>> {
    let (mut rebuilt, mut dangling, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    let (mut chains, mut loose) = (0_u64, 0_u64);
    for chain in all_chains(store).await? {
        chains += 1;
        let history = match History::load(store, &chain).await {
            Ok(history) => history,
            Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Newer) => {
                unreadable.push(format!("{chain}: {e}"));
                continue;
            }
            Err(e) => return Err(e),
        };
        rebuilt.extend(history.refs.rebuilt.as_ref().map(|_| chain.to_string()));
        unreadable.extend(history.unreadable.iter().map(|u| u.name.clone()));
        dangling.extend(missing(&chain, &history));
        let reach = history.reachable();
        loose += history.snapshots.keys().filter(|id| !reach.contains(*id)).count() as u64;
    }
    let mut out = Vec::new();
    if !rebuilt.is_empty() {
        let detail = format!("lost, rebuilt in memory from the documents: {}", some(&rebuilt));
        out.push(Check::warn("refs", detail).hint("backtrail doctor --fix writes them"));
    }
    if !dangling.is_empty() {
        let detail = format!("names without a document: {}", some(&dangling));
        out.push(Check::fail("refs", Kind::Corrupt, detail).hint("backtrail label --delete NAME"));
    }
    if !unreadable.is_empty() {
        let detail = format!("cannot be read: {}", some(&unreadable));
        out.push(Check::fail("documents", Kind::Corrupt, detail).hint("backtrail verify --all"));
    }
    if out.is_empty() {
        out.push(Check::ok(
            "refs",
            format!("{chains} chains, every head and label has its document"),
        ));
    }
    if loose > 0 {
        let detail = format!("{loose} documents that a crash left before their refs");
        out.push(Check::ok("leftovers", detail).hint("backtrail prune"));
    }
    Ok(out)
}

fn missing(chain: &Chain, history: &History) -> Vec<String> {
    let unreadable: BTreeSet<&SnapshotId> =
        history.unreadable.iter().filter_map(|u| u.id.as_ref()).collect();
    let gone = |id: &SnapshotId| !history.snapshots.contains_key(id) && !unreadable.contains(id);
    let refs = &history.refs.refs;
    let head = refs.head.iter().filter(|id| gone(id)).map(|_| format!("{chain} head"));
    let labels = refs.labels.iter().filter(|(_, t)| gone(&t.snapshot));
    head.chain(labels.map(|(l, _)| format!("{chain} {l}"))).collect()
}

/// Restores that did not come to their end.
async fn restores(store: &dyn Store, root: Option<&Root>, host: &Host) -> Result<Vec<Check>> {
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    for (key, journal) in journals(store).await? {
        let document = DocKey::Journal(key.clone(), journal.clone());
        let value = match json(store, &document).await {
            Ok(value) => value,
            Err(e) if e.is_not_found() => continue,
            Err(e) => {
                let hint = "backtrail doctor --fix removes it where no restore is half done";
                return Ok(vec![Check::failed("restores", &e).hint(hint)]);
            }
        };
        let state = value.get("state").and_then(Value::as_str).unwrap_or("of unknown state");
        if matches!(state, "closed" | "rolled-back") {
            continue;
        }
        let text = format!("{journal} ({state})");
        match root.is_some_and(|r| r.key == key) {
            true => here.push(text),
            false => elsewhere.push(format!("{text} in workspace {key}")),
        }
    }
    let both = "backtrail restore --finish or backtrail restore --roll-back";
    let mut out = Vec::new();
    if !here.is_empty() {
        let detail = format!("unfinished here: {}", some(&here));
        out.push(Check::fail("restores", Kind::Failed, detail).hint(both));
    }
    if !elsewhere.is_empty() {
        let detail = format!("unfinished elsewhere: {}", some(&elsewhere));
        out.push(Check::warn("restores", detail).hint(format!("there: {both}")));
    }
    if let Some(root) = root {
        let found = restore::detect(store, root, host).await?;
        let unexplained = found.iter().filter(|f| f.need() == Need::Unexplained);
        out.extend(unexplained.map(|f| Check::failed("restores", &f.refusal(root))));
        if let Err(e) = Operations::load(store, &root.key).await {
            out.push(Check::failed("restores", &e));
        }
    }
    if out.is_empty() {
        out.push(Check::ok("restores", "none is unfinished"));
    }
    Ok(out)
}

async fn journals(store: &dyn Store) -> Result<Vec<(WorkspaceKey, crate::ids::TransactionId)>> {
    let mut out = Vec::new();
    let mut rows = store.list(&Prefix::Workspaces);
    while let Some(row) = rows.next().await {
        if let Listed::Doc { key: DocKey::Journal(key, journal), .. } = row? {
            out.push((key, journal));
        }
    }
    Ok(out)
}

/// Every place of a run has a record that is one.
async fn runs(store: &dyn Store) -> Result<Vec<Check>> {
    let (mut records, mut odd, mut empty) = (0_u64, Vec::new(), Vec::new());
    let mut rows = store.list(&Prefix::RunRecords);
    while let Some(row) = rows.next().await {
        match row? {
            Listed::Doc { .. } => records += 1,
            Listed::Foreign { name } if name.ends_with("/run.json") => odd.push(name),
            Listed::Foreign { name } => empty.push(name),
        }
    }
    let mut out = Vec::new();
    if !odd.is_empty() {
        let detail = format!("no run record, but in the place of one: {}", some(&odd));
        out.push(Check::fail("runs", Kind::Corrupt, detail));
    }
    if !empty.is_empty() {
        let detail = format!("places without a run record: {}", some(&empty));
        out.push(Check::warn("runs", detail).hint("backtrail prune removes them after a day"));
    }
    if out.is_empty() {
        out.push(Check::ok("runs", format!("{records} runs, each with its record")));
    }
    Ok(out)
}

async fn damage_list(store: &dyn Store) -> Result<Vec<Check>> {
    let list = damage::load(store).await?;
    if let Some(why) = list.unreadable {
        return Ok(vec![Check::warn("damage", why)]);
    }
    Ok(vec![match list.digests.len() {
        0 => Check::ok("damage", "no object is known to be missing or wrong"),
        n => Check::fail("damage", Kind::Corrupt, format!("{n} objects are missing or wrong"))
            .hint("backtrail capture --rehash stores again what the workspace still has"),
    }])
}
