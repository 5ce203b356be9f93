//! Checks of what core does not know: holders of locks, other caches, reflinks, git.

use std::path::PathBuf;

use backtrail_backends::host::process_start;
use backtrail_core::doctor::{Check, Status};
use backtrail_core::fsx::Dir;
use backtrail_core::tasks::blocking;
use backtrail_core::workspace::cache::vanished;

use crate::context::{App, Somewhere};

/// File systems that can share storage between files.
const REFLINK: [(u64, &str); 3] =
    [(0x9123_683e, "btrfs"), (0x5846_5342, "xfs"), (0xca45_1a4e, "bcachefs")];

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, detail: detail.into(), hint: None, kind: None }
}

/// All of them.
pub(super) async fn checks(app: &App, at: &Somewhere) -> Vec<Check> {
    let store = at.store.info().local_dir;
    let (cache, host) = (at.settings.cache_dir.clone(), app.ctx.host.name.clone());
    let checks = blocking(move || {
        let mut out = Vec::new();
        if let Some(dir) = store {
            out.extend(holders(&dir, &host));
            out.extend(Dir::open(&dir).ok().and_then(|d| reflink(&d)));
        }
        out.extend(cache.and_then(other_caches));
        out.push(git());
        Ok(out)
    });
    let failed = |e: backtrail_core::error::Error| {
        vec![Check { status: Status::Fail, kind: Some(e.kind()), ..ok("host", e.message()) }]
    };
    checks.await.unwrap_or_else(failed)
}

/// What the holder files say: evidence for people. A dead holder's lock is free.
fn holders(store: &std::path::Path, here: &str) -> Vec<Check> {
    let row = |(name, h): (String, backtrail_core::store::Holder)| {
        let dead = h.host == here && process_start(h.pid).is_none();
        let tail = if dead { "; it is dead and the lock is free" } else { "" };
        ok(
            "holder",
            format!("{name}: {} (pid {} on {}, since {}){tail}", h.program, h.pid, h.host, h.since),
        )
    };
    backtrail_backends::local::holders(store).into_iter().map(row).collect()
}

fn other_caches(dir: PathBuf) -> Option<Check> {
    let gone = vanished(&dir).len();
    (gone > 0).then(|| Check {
        status: Status::Warn,
        hint: Some("backtrail doctor --fix".to_owned()),
        ..ok("caches", format!("{gone} of workspaces that are gone, in {}", dir.display()))
    })
}

fn reflink(dir: &Dir) -> Option<Check> {
    let kind = rustix::fs::fstatfs(dir).ok()?.f_type as u64;
    let found = REFLINK.iter().find(|(magic, _)| *magic == kind);
    Some(match found {
        Some((_, name)) => {
            ok("reflink", format!("the store lies on {name}, which may share storage"))
        }
        None => ok("reflink", "the store's file system shares no storage between files"),
    })
}

fn git() -> Check {
    match std::process::Command::new("git").arg("--version").output() {
        Ok(out) if out.status.success() => {
            ok("git", String::from_utf8_lossy(&out.stdout).trim().to_owned())
        }
        _ => ok("git", "not found; only worktrees and git evidence need it"),
    }
}
