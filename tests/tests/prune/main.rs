//! Retention, mark and sweep on a local store: RES-120 to RES-135, K21, K23, K51 to K57.

mod refuse;
mod retention;
mod speed;
mod sweep;
mod tap;

use std::collections::BTreeSet;
use std::time::Duration;

use backtrail_core::clock::Context;
use backtrail_core::error::Result;
use backtrail_core::ids::{Chain, Digest};
use backtrail_core::prune::{Policy, Report, Request, prune};
use backtrail_core::snapshot::chain::{History as Chained, all_chains};
use backtrail_core::store::{ListedObject, Store};
use backtrail_core::verify::{Scope, verify};
use backtrail_tests::history::History;
use futures::StreamExt;

/// A request of this workspace without grace.
fn request(h: &History, policy: Policy) -> Request {
    let wait = Duration::ZERO;
    let workspace = Some(h.key());
    Request { policy, workspace, grace: Duration::ZERO, wait, ..Request::default() }
}

fn keep(n: u64) -> Policy {
    Policy { keep: Some(n), ..Policy::default() }
}

async fn go(h: &History, policy: Policy) -> Result<Report> {
    prune(&*h.store, &h.ctx, &request(h, policy)).await
}

async fn go_with(h: &History, ctx: &Context, policy: Policy) -> Result<Report> {
    prune(&*h.store, ctx, &request(h, policy)).await
}

/// Every object of the store.
async fn objects(store: &dyn Store) -> BTreeSet<Digest> {
    let mut out = BTreeSet::new();
    let mut rows = store.list_objects();
    while let Some(row) = rows.next().await {
        if let ListedObject::Object { digest, .. } = row.expect("a listing") {
            out.insert(digest);
        }
    }
    out
}

/// Ids of the listed snapshots of a chain, newest first.
async fn listed(store: &dyn Store, chain: &Chain) -> Vec<String> {
    let history = Chained::load(store, chain).await.expect("a chain");
    history.newest_first().iter().map(|s| s.id.to_string()).collect()
}

/// All that is listed anywhere is whole.
async fn assert_whole(h: &History) {
    let report = verify(&*h.store, &h.ctx, &Scope::All, true).await.expect("verify");
    assert!(report.is_clean(), "{report:#?}");
    for chain in all_chains(&*h.store).await.expect("chains") {
        let history = Chained::load(&*h.store, &chain).await.expect("a chain");
        let targets = history.refs.refs.labels.values().map(|t| &t.snapshot);
        for id in targets.chain(&history.refs.refs.head) {
            assert!(history.snapshots.contains_key(id), "{chain}: {id} dangles");
        }
    }
}

/// Every file of the store with its bytes, locks left out.
fn contents(h: &History) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    let mut todo = vec![h.store_dir()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).expect("readable").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(h.store_dir()).expect("below").display().to_string();
            let ours = name.starts_with("locks") || name == "damage.json";
            if path.is_dir() && !ours {
                todo.push(path);
            } else if !ours {
                out.push((name, std::fs::read(&path).unwrap_or_default()));
            }
        }
    }
    out.sort();
    out
}
