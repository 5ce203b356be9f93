//! Checks of the host: the local store's modes and staging, the workspace's file
//! system, the stat cache.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Check;
use crate::clock::Context;
use crate::error::Kind;
use crate::fsx::{self, Dir, FileKind};
use crate::ids::Digest;
use crate::store::Store;
use crate::workspace::Root;
use crate::workspace::root::path_bytes;

/// Staging files older than this were left by a process that died.
const STALE_NS: i64 = 24 * 3_600_000_000_000;
/// The deepest directory of a local store that is looked at.
const MAX_DEPTH: usize = 8;

/// Staging leftovers and modes of a store on this host; none for other stores.
pub(super) async fn store_checks(store: &dyn Store, ctx: &Context) -> Vec<Check> {
    let Some(dir) = store.info().local_dir else { return Vec::new() };
    let now = ctx.clock.now().0;
    blocking(move || {
        let mut seen = Leftovers::default();
        if let Err(e) = Dir::open(&dir).and_then(|d| seen.walk(&d, now, 0)) {
            return vec![Check::fail("staging", Kind::Denied, format!("{}: {e}", dir.display()))];
        }
        vec![modes(&dir), seen.check()]
    })
    .await
}

fn modes(dir: &Path) -> Check {
    match fsx::stat_path(dir) {
        Ok(s) if s.mode & 0o077 == 0 => Check::ok("modes", "only the owner can enter the store"),
        Ok(s) => {
            let detail = format!("the store's mode is {:o}: others can enter it", s.mode);
            Check::warn("modes", detail).hint(format!("chmod 700 {}", dir.display()))
        }
        Err(e) => Check::fail("modes", Kind::Denied, format!("{}: {e}", dir.display())),
    }
}

#[derive(Default)]
struct Leftovers {
    stale: u64,
    bytes: u64,
    young: u64,
}

impl Leftovers {
    fn walk(&mut self, dir: &Dir, now: i64, depth: usize) -> io::Result<()> {
        let (mut dirs, mut staged) = (Vec::new(), Vec::new());
        dir.list(&mut Vec::new(), |name, kind| match kind {
            fsx::NameKind::Dir => dirs.push(name.to_vec()),
            _ if name.starts_with(b".tmp-") => staged.push(name.to_vec()),
            _ => {}
        })?;
        for name in staged {
            match dir.stat(&name) {
                Ok(s) if s.kind == FileKind::File && now.saturating_sub(s.mtime_ns) > STALE_NS => {
                    self.stale += 1;
                    self.bytes += s.size;
                }
                Ok(_) => self.young += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        for name in dirs.iter().filter(|_| depth < MAX_DEPTH) {
            self.walk(&dir.open_dir(name)?, now, depth + 1)?;
        }
        Ok(())
    }

    fn check(&self) -> Check {
        let Self { stale, bytes, young } = self;
        match stale {
            0 => Check::ok("staging", format!("no stale staging files, {young} in use or recent")),
            n => Check::warn("staging", format!("{n} stale staging files of {bytes} bytes"))
                .hint("backtrail doctor --fix removes them"),
        }
    }
}

/// What the workspace's file system does, and whether its stat cache is usable.
pub(super) async fn workspace_checks(root: Option<&Root>, cache_dir: Option<&Path>) -> Vec<Check> {
    let Some(root) = root else { return Vec::new() };
    let (dir, path) = (root.dir.clone(), root.path.clone());
    let cache_dir = cache_dir.map(Path::to_path_buf);
    blocking(move || vec![case(&dir), cache(&path, cache_dir)]).await
}

fn case(dir: &Arc<Dir>) -> Check {
    let failed = |e: io::Error| Check::fail("case", Kind::Failed, format!("the root: {e}"));
    let names = match dir.names() {
        Ok(names) => names,
        Err(e) => return failed(e),
    };
    let Some(name) = names.iter().find(|n| n.iter().any(u8::is_ascii_alphabetic)) else {
        return Check::ok("case", "no name to try with");
    };
    match fsx::probe::folds_case(dir, name) {
        Ok(true) => Check::warn("case", "the workspace's file system folds case")
            .hint("snapshots with names that differ by case alone cannot be restored here"),
        Ok(false) => Check::ok("case", "the workspace's file system keeps case apart"),
        Err(e) => failed(e),
    }
}

/// The cache is disposable: at worst the next capture reads everything.
fn cache(root: &Path, cache_dir: Option<PathBuf>) -> Check {
    let Some(dir) = cache_dir else { return Check::ok("cache", "switched off") };
    let name = Digest::of(path_bytes(root)).hex()[..32].to_owned();
    let bytes =
        Dir::open(&dir.join("stat")).and_then(|d| fsx::read_small(&d, name.as_bytes(), u64::MAX));
    match bytes {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Check::ok("cache", "none yet"),
        Err(e) => Check::warn("cache", format!("{}: {e}", dir.display())),
        Ok(None) => Check::ok("cache", "none yet"),
        Ok(Some(bytes)) => {
            let body = bytes.len().saturating_sub(32);
            match Digest::of(&bytes[..body]).0 == bytes[body..] {
                true => Check::ok("cache", format!("{} bytes", bytes.len())),
                false => Check::warn("cache", "damaged: the next capture reads everything"),
            }
        }
    }
}

async fn blocking(work: impl FnOnce() -> Vec<Check> + Send + 'static) -> Vec<Check> {
    crate::tasks::blocking(|| Ok(work())).await.unwrap_or_else(|e| {
        vec![Check::fail("host", Kind::Failed, format!("a check did not end: {e}"))]
    })
}
