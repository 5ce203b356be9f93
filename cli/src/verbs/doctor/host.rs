//! Checks of the host: case folding, reflinks, git.

use backtrail_core::error::Result;
use backtrail_core::fsx::{Dir, probe};
use backtrail_core::workspace::Root;

use super::Check;
use crate::context::{Somewhere, blocking};

/// File systems that can share storage between files.
const REFLINK: [(u64, &str); 3] =
    [(0x9123_683e, "btrfs"), (0x5846_5342, "xfs"), (0xca45_1a4e, "bcachefs")];

/// All of them.
pub(super) async fn checks(at: &Somewhere) -> Vec<Check> {
    let root = at.root.clone();
    let store = at.store.info().local_dir;
    let checks = blocking(move || {
        let mut out = Vec::new();
        out.extend(root.as_ref().and_then(case_folding));
        out.extend(store.and_then(|dir| Dir::open(&dir).ok()).and_then(|d| reflink(&d)));
        out.push(git());
        Ok(out)
    });
    let checks: Result<Vec<Check>> = checks.await;
    checks.unwrap_or_else(|e| vec![Check::warn("host", e.message())])
}

/// Looks at a name that is there; an empty workspace cannot tell.
fn case_folding(root: &Root) -> Option<Check> {
    let names = root.dir.names().ok()?;
    let name = names.into_iter().find(|n| n.iter().any(u8::is_ascii_alphabetic))?;
    let folds = probe::folds_case(&root.dir, &name).ok()?;
    Some(match folds {
        true => Check::warn("case", "the workspace takes README and readme for one name"),
        false => Check::ok("case", "names that differ by case are different files"),
    })
}

fn reflink(dir: &Dir) -> Option<Check> {
    let kind = rustix::fs::fstatfs(dir).ok()?.f_type as u64;
    let found = REFLINK.iter().find(|(magic, _)| *magic == kind);
    Some(match found {
        Some((_, name)) => {
            Check::ok("reflink", format!("the store lies on {name}, which may share storage"))
        }
        None => Check::ok("reflink", "the store's file system shares no storage between files"),
    })
}

fn git() -> Check {
    match std::process::Command::new("git").arg("--version").output() {
        Ok(out) if out.status.success() => {
            Check::ok("git", String::from_utf8_lossy(&out.stdout).trim().to_owned())
        }
        _ => Check::ok("git", "not found; only worktrees and git evidence need it"),
    }
}
