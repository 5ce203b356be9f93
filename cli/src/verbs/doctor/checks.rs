//! Checks of the store, of the history in it, and of the workspace.

use backtrail_core::damage;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::restore::{self, Need};
use backtrail_core::snapshot::chain::{History, all_chains};
use backtrail_core::store::DocKey;
use backtrail_core::store::docs::get_object;

use super::Check;
use crate::context::{App, Somewhere, blocking, quoted};
use crate::exit;
use crate::output::format;

const LOW_SPACE: u64 = 1 << 30;
/// Clocks further apart than this deserve a word, in seconds.
const SKEW: i64 = 300;

fn failed(name: &'static str, e: &Error) -> Check {
    let check = Check::fail(name, exit::of(e), e.message());
    match e.hint() {
        Some(hint) => check.hint(hint),
        None => check,
    }
}

/// Reachable, format, modes, space, clock, locks.
pub(super) async fn store(app: &App, at: &Somewhere) -> Vec<Check> {
    let info = at.store.info();
    let mut out = Vec::new();
    match get_object(&*at.store, &DocKey::Marker).await {
        Ok((marker, _)) => {
            let version = marker.get("format_version").cloned().unwrap_or_default();
            out.push(Check::ok("store", format!("{} ({}), format {version}", info.url, info.kind)));
        }
        Err(e) if e.is_not_found() => {
            out.push(Check::ok(
                "store",
                format!("{}: none yet; the first capture makes it", info.url),
            ));
            return out;
        }
        Err(e) => {
            out.push(failed("store", &e));
            return out;
        }
    }
    if let Some(dir) = info.local_dir {
        out.push(modes(dir.clone()).await);
        out.extend(locks(app, dir).await);
    }
    match at.store.health().await {
        Ok(health) => {
            out.push(match (health.free_bytes, health.total_bytes) {
                (Some(free), Some(total)) if free < LOW_SPACE || free < total / 20 => {
                    Check::warn("space", format!("{} free", format::bytes(free)))
                        .hint("backtrail prune --dry-run")
                }
                (Some(free), _) => Check::ok("space", format!("{} free", format::bytes(free))),
                _ => Check::ok("space", "the store does not say"),
            });
            if health.volatile {
                out.push(Check::warn("tmpfs", "the store lies in memory and is lost at a reboot"));
            }
            out.extend(health.now_ns.map(|theirs| clock(app, theirs)));
        }
        Err(e) => out.push(failed("space", &e)),
    }
    out
}

fn clock(app: &App, theirs: i64) -> Check {
    let ours = app.now();
    let apart = ours.0.saturating_sub(theirs) / 1_000_000_000;
    let theirs = backtrail_core::clock::Timestamp(theirs).rfc3339();
    let detail = format!("here {}, store {theirs}", ours.rfc3339());
    if apart.abs() > SKEW {
        Check::warn("clock", format!("{apart} s apart: {detail}"))
            .hint("set the clocks; prune refuses above an hour")
    } else {
        Check::ok("clock", detail)
    }
}

async fn modes(dir: std::path::PathBuf) -> Check {
    let shown = quoted(&dir);
    let stat = blocking(move || {
        backtrail_core::fsx::stat_path(&dir)
            .map_err(|e| Error::failed("io", "the store's directory has no mode").with_source(e))
    });
    match stat.await {
        Ok(s) if s.mode & 0o077 == 0 => Check::ok("modes", format!("{shown} is private")),
        Ok(s) => Check::warn(
            "modes",
            format!("{shown} has mode {}: others can look in", format::mode(s.mode)),
        )
        .hint(format!("chmod -R go-rwx {}", format::shell_word(&shown))),
        Err(e) => failed("modes", &e),
    }
}

async fn locks(app: &App, dir: std::path::PathBuf) -> Vec<Check> {
    let held = blocking(move || Ok(backtrail_backends::local::holders(&dir))).await;
    let here = app.ctx.host.name.clone();
    let mut rows = Vec::new();
    for (name, h) in held.unwrap_or_default() {
        let who = format!("{name}: {} (pid {} on {}, since {})", h.program, h.pid, h.host, h.since);
        let dead = h.host == here && backtrail_backends::host::process_start(h.pid).is_none();
        let tail = if dead { "; it is dead, and the lock is free" } else { "" };
        rows.push(Check::ok("lock", format!("{who}{tail}")));
    }
    if rows.is_empty() {
        rows.push(Check::ok("locks", "none is held"));
    }
    rows
}

/// Refs against documents, and objects known to be damaged.
pub(super) async fn history(at: &Somewhere) -> Vec<Check> {
    let mut out = match chains(at).await {
        Ok(rows) => rows,
        Err(e) => vec![failed("refs", &e)],
    };
    match damage::load(&*at.store).await {
        Ok(d) if d.digests.is_empty() => {
            out.push(Check::ok("damage", "no object is known to be damaged"))
        }
        Ok(d) => {
            let n = format::count(d.digests.len() as u64, "object");
            out.push(
                Check::fail("damage", exit::CORRUPT, format!("{n} missing or wrong"))
                    .hint("backtrail doctor --fix"),
            );
        }
        Err(e) => out.push(failed("damage", &e)),
    }
    out
}

async fn chains(at: &Somewhere) -> Result<Vec<Check>> {
    let mut out = Vec::new();
    let (mut n, mut snapshots) = (0, 0);
    for chain in all_chains(&*at.store).await? {
        n += 1;
        let history = match History::load(&*at.store, &chain).await {
            Ok(history) => history,
            Err(e) if matches!(e.kind(), Kind::Newer | Kind::Corrupt) => {
                out.push(failed("refs", &e));
                continue;
            }
            Err(e) => return Err(e),
        };
        snapshots += history.snapshots.len() as u64;
        if let Some(how) = &history.refs.rebuilt {
            let check = Check::fail("refs", exit::CORRUPT, format!("{chain}: {how}"));
            out.push(check.hint("backtrail doctor --fix"));
        }
        for u in &history.unreadable {
            let newer = u.error.kind() == Kind::Newer;
            let code = if newer { exit::REFUSED } else { exit::CORRUPT };
            out.push(Check::fail("documents", code, u.error.message()));
        }
        for (label, target) in &history.refs.refs.labels {
            if !history.snapshots.contains_key(&target.snapshot) {
                let detail =
                    format!("{chain}: label {label} names {}, which is gone", target.snapshot);
                out.push(Check::warn("labels", detail));
            }
        }
    }
    if out.is_empty() {
        let (n, s) = (format::count(n, "chain"), format::count(snapshots, "snapshot"));
        out.push(Check::ok("refs", format!("{n} with {s}, refs agree")));
    }
    Ok(out)
}

/// Unfinished restores and the stat cache.
pub(super) async fn workspace(app: &App, at: &Somewhere) -> Vec<Check> {
    let Some(root) = &at.root else {
        return vec![Check::ok("workspace", "none here")];
    };
    let mut out =
        vec![Check::ok("workspace", format!("{} ({})", quoted(&root.path), root.chain()))];
    match restore::detect(&*at.store, root, &app.ctx.host).await {
        Ok(found) => {
            for f in &found {
                out.push(match f.need() {
                    Need::Wait => Check::ok("restore", f.refusal(root).message()),
                    Need::Sweep | Need::Close => {
                        let id = &f.transaction;
                        Check::warn(
                            "restore",
                            format!("{id} left something; the next capture sweeps it"),
                        )
                    }
                    Need::Recover | Need::Unexplained => {
                        failed("restore", &f.refusal(root).with_kind(Kind::Failed))
                    }
                });
            }
            if found.is_empty() {
                out.push(Check::ok("restore", "none is unfinished"));
            }
        }
        Err(e) => out.push(failed("restore", &e)),
    }
    out.push(cache(at).await);
    out
}

async fn cache(at: &Somewhere) -> Check {
    let Some(dir) = at.settings.cache_dir.clone() else {
        return Check::warn("cache", "there is no home directory: every capture reads every file")
            .hint("set BACKTRAIL_CACHE_DIR");
    };
    let shown = quoted(&dir);
    let gone = blocking(move || Ok(backtrail_core::workspace::cache::vanished(&dir))).await;
    match gone.unwrap_or_default().len() {
        0 => Check::ok("cache", shown),
        n => Check::warn("cache", format!("{shown}: {n} of workspaces that are gone"))
            .hint("backtrail doctor --fix"),
    }
}
