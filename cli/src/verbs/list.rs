//! `list`: the snapshots of a chain, newest first, with everything that is odd.

use backtrail_core::error::{Kind, Result};
use backtrail_core::ids::{Chain, SnapshotId};
use backtrail_core::snapshot::chain::{History, Unreadable, all_chains};
use backtrail_core::snapshot::doc::Snapshot;
use serde_json::{Value, json};

use crate::context::{App, Place};
use crate::exit::{self, Code};
use crate::output::{Paint, format};

/// Arguments of `list`.
#[derive(clap::Args)]
#[command(
    after_help = "A label in brackets after `was` named this snapshot once and names another now.

Examples:
  backtrail list
  backtrail list --limit 5
  backtrail list --run nightly-42 --json
  backtrail list --chains"
)]
pub(crate) struct Args {
    /// At most this many, newest first
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "all")]
    limit: usize,
    /// All of them
    #[arg(long)]
    all: bool,
    /// The chains of the store instead
    #[arg(long)]
    chains: bool,
}

/// Lists.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    let place = app.history().await?;
    if args.chains {
        return chains(app, &place).await;
    }
    super::must_exist(app, &place).await?;
    snapshots(app, &place, if args.all { usize::MAX } else { args.limit }).await
}

/// The snapshots of a chain, at most `limit`.
pub(crate) async fn snapshots(app: &App, place: &Place, limit: usize) -> Result<Code> {
    let history = History::load(&*place.store, &place.chain).await?;
    let rows: Vec<&Snapshot> = history.newest_first();
    if app.out.is_json() {
        app.out.json(&document(place, &history, &rows, limit));
    } else {
        print(app, &history, &rows, limit);
    }
    Ok(code(&history.unreadable))
}

/// Damaged documents end in 7, those of a newer build in 3.
fn code(unreadable: &[Unreadable]) -> Code {
    unreadable.iter().fold(exit::COMPLETE, |code, u| {
        let newer = u.error.kind() == Kind::Newer;
        code.and(if newer { exit::PARTIAL } else { exit::CORRUPT })
    })
}

/// How many digits of each id tell them apart; at least eight.
pub(crate) fn short<'a>(ids: impl Iterator<Item = &'a SnapshotId> + Clone) -> usize {
    let mut sorted: Vec<&str> = ids.map(SnapshotId::as_str).collect();
    sorted.sort_unstable();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let most = sorted.windows(2).map(|w| shared(w[0], w[1]) + 1).max().unwrap_or(0);
    most.clamp(super::SHORT, 16)
}

/// The labels a snapshot has now, and the one it was captured under when that moved.
fn labels(history: &History, s: &Snapshot) -> (Vec<String>, Option<String>) {
    let now: Vec<String> = history.refs.refs.labels_of(&s.id).map(ToString::to_string).collect();
    let was = s.label.as_ref().map(ToString::to_string).filter(|l| !now.contains(l));
    (now, was)
}

fn document(place: &Place, history: &History, rows: &[&Snapshot], limit: usize) -> Value {
    let refs = &history.refs.refs;
    let row = |s: &&Snapshot| {
        let notes: Vec<_> = refs.notes.iter().filter(|n| n.snapshot == s.id).collect();
        json!({
            "id": s.id, "seq": s.seq, "parent": s.parent, "label": s.label,
            "labels": labels(history, s).0, "notes": notes, "message": s.message,
            "created_at": s.created_at, "counts": s.counts, "delta": s.delta,
            "complete": s.coverage.complete, "bank": s.is_bank(),
        })
    };
    let missing = |(label, m): (&String, &backtrail_core::snapshot::refs::Missing)| json!({ "label": label, "reason": m.reason, "at": m.at });
    let unreadable = |u: &Unreadable| {
        json!({
            "name": u.name, "id": u.id,
            "error": { "code": u.error.code(), "message": u.error.message() },
        })
    };
    json!({
        "workspace": place.workspace(),
        "chain": place.chain,
        "head": refs.head,
        "snapshots": rows.iter().take(limit).map(row).collect::<Vec<_>>(),
        "total": rows.len(),
        "missing": refs.missing.iter().map(missing).collect::<Vec<_>>(),
        "unreadable": history.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
        "rebuilt": history.refs.rebuilt,
    })
}

fn print(app: &App, history: &History, rows: &[&Snapshot], limit: usize) {
    let out = &app.out;
    if let Some(how) = &history.refs.rebuilt {
        out.warn(how);
    }
    let digits = short(rows.iter().map(|s| &s.id));
    let ages: Vec<String> = rows.iter().map(|s| format::age(&s.created_at, app.now())).collect();
    let width = ages.iter().take(limit).map(String::len).max().unwrap_or(0);
    for (s, age) in rows.iter().zip(&ages).take(limit) {
        out.line(line(app, history, s, digits, &format!("{age:width$}")));
    }
    if rows.len() > limit {
        out.notice(format!("{} more: backtrail list --all", rows.len() - limit));
    }
    for (label, m) in &history.refs.refs.missing {
        let age = format::age(&m.at, app.now());
        out.line(format!("{}  {age}  {label}: {}", out.paint(Paint::Warn, "missing"), m.reason));
    }
    for u in &history.unreadable {
        let word = if u.error.kind() == Kind::Newer { "newer" } else { "corrupt" };
        out.line(format!("{}  {}", out.paint(Paint::Bad, word), u.error.message()));
    }
    if rows.is_empty() && history.unreadable.is_empty() {
        out.notice("no snapshot yet; make one with: backtrail capture");
    }
}

fn line(app: &App, history: &History, s: &Snapshot, digits: usize, age: &str) -> String {
    let out = &app.out;
    let mut parts = vec![out.paint(Paint::Id, &s.id.as_str()[..digits]), age.to_owned()];
    let (now, was) = labels(history, s);
    let mut names = now;
    names.extend(was.map(|l| format!("[was {l}]")));
    if !names.is_empty() {
        parts.push(out.paint(Paint::Bold, &names.join(", ")));
    }
    let notes = history.refs.refs.notes.iter().filter(|n| n.snapshot == s.id);
    for text in s.message.iter().chain(notes.map(|n| &n.message)) {
        let first = text.lines().next().unwrap_or_default();
        parts.push(format!("\"{}\"", backtrail_core::path::quoted(first.as_bytes())));
    }
    parts.push(format::count(s.counts.files, "file"));
    if let Some(d) = s.delta {
        parts.push(format!("+{} ~{} -{}", d.added, d.modified, d.deleted));
    }
    if s.is_bank() {
        parts.push(out.paint(Paint::Dim, "bank"));
    }
    if !s.coverage.complete {
        parts.push(out.paint(Paint::Warn, "incomplete"));
    }
    parts.join("  ")
}

async fn chains(app: &App, place: &Place) -> Result<Code> {
    let mut rows = Vec::new();
    let mut code = exit::COMPLETE;
    for chain in all_chains(&*place.store).await? {
        let history = match History::load(&*place.store, &chain).await {
            Ok(history) => history,
            Err(e) if matches!(e.kind(), Kind::Newer | Kind::Corrupt) => {
                app.out.warn(&format!("{chain}: {}", e.message()));
                code = code.and(exit::of(&e));
                continue;
            }
            Err(e) => return Err(e),
        };
        code = code.and(self::code(&history.unreadable));
        let newest = history.newest_first().into_iter().next();
        let root = newest.map(|s| s.workspace.root.clone());
        let at = newest.map(|s| s.created_at.clone());
        rows.push((chain, history.reachable().len(), root, at));
    }
    if app.out.is_json() {
        let row = |(chain, n, root, at): &(Chain, usize, Option<String>, Option<String>)| json!({ "chain": chain, "snapshots": n, "root": root, "newest_at": at });
        app.out.json(&json!({ "chains": rows.iter().map(row).collect::<Vec<_>>() }));
        return Ok(code);
    }
    for (chain, n, root, at) in rows {
        let age = at.map(|at| format::age(&at, app.now())).unwrap_or_default();
        let root = root.unwrap_or_default();
        let chain = app.out.paint(Paint::Id, &chain.to_string());
        app.out.line(format!("{chain}  {}  {age}  {root}", format::count(n as u64, "snapshot")));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shortened_to_what_tells_them_apart() {
        let ids: Vec<SnapshotId> = ["0123456789abcdef", "0123456789abffff", "ffffffffffffffff"]
            .iter()
            .map(|s| s.parse().expect("id"))
            .collect();
        assert_eq!(short(ids.iter()), 13);
        assert_eq!(short(ids[1..].iter()), 8);
    }
}
