//! The workspace root: found, resolved and opened once; everything else happens
//! beneath its handle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Host;
use crate::error::{Error, IoContext, Result};
use crate::fsx::{self, Dir, FileKind, Stat};
use crate::ids::{Chain, WorkspaceKey};
use crate::path;
use crate::snapshot::doc::Workspace;
use crate::snapshot::refs::Refs;
use crate::store::{DocKey, Store};
use crate::tasks::blocking;

/// An opened workspace root.
#[derive(Clone, Debug)]
pub struct Root {
    /// Canonical path.
    pub path: PathBuf,
    /// The handle beneath which everything happens.
    pub dir: Arc<Dir>,
    /// Its `lstat` at opening.
    pub stat: Stat,
    /// When it was made, where the file system knows.
    pub birth_ns: Option<i64>,
    /// The key of its own chain.
    pub key: WorkspaceKey,
}

impl Root {
    /// Resolves and opens `path`. Blocks.
    ///
    /// Fails with `unsafe-root` for `/`, the home directory and its ancestors and
    /// anything called or below `.git` (unless `any_root`), and always for a git
    /// data directory; `not-found` when missing; `root-unreadable` otherwise.
    pub fn open(path: &Path, host: &Host, any_root: bool) -> Result<Self> {
        let shown = || path::quoted(path_bytes(path));
        let canonical = fsx::canonical(path).context(|| format!("workspace {}", shown()))?;
        if !any_root && let Some(why) = unsafe_root(&canonical, host) {
            return Err(Error::invalid(format!("{} is not taken as a workspace: {why}", shown()))
                .with_code("unsafe-root")
                .with_hint("pass --any-root to take it all the same"));
        }
        let unreadable = |e: std::io::Error| {
            let code = if e.kind() == std::io::ErrorKind::NotFound {
                return Error::not_found(format!("workspace {} does not exist", shown()));
            } else {
                "root-unreadable"
            };
            Error::failed(code, format!("workspace {} cannot be opened: {e}", shown()))
        };
        let dir = Dir::open(&canonical).map_err(unreadable)?;
        if is_git_data(&dir) {
            return Err(Error::invalid(format!(
                "{} is not taken as a workspace: it is a git data directory",
                shown()
            ))
            .with_code("unsafe-root"));
        }
        let stat = dir.stat_self().map_err(unreadable)?;
        let birth_ns = dir.birth_ns();
        let key = WorkspaceKey::of(path_bytes(&canonical), &host.machine);
        Ok(Self { path: canonical, dir: Arc::new(dir), stat, birth_ns, key })
    }

    /// Fails with `root-moved` (exit 4) unless the path still leads to this directory.
    pub fn check_same(&self) -> Result<()> {
        let now = fsx::stat_path(&self.path);
        if now.is_ok_and(|s| s.inode == self.stat.inode && s.device == self.stat.device) {
            return Ok(());
        }
        Err(Error::refused(
            "root-moved",
            format!(
                "{} leads to another directory than when the command began",
                path::quoted(path_bytes(&self.path))
            ),
        ))
    }

    /// The identity recorded in a snapshot.
    pub fn identity(&self, host: &Host) -> Workspace {
        Workspace {
            root: self.text(),
            device: self.stat.device,
            inode: self.stat.inode,
            birth_ns: self.birth_ns,
            host: host.name.clone(),
            machine: host.machine.clone(),
            git_common_dir: None,
            replaced: false,
        }
    }

    /// The canonical path in path text.
    pub fn text(&self) -> String {
        path::text(path_bytes(&self.path)).into_owned()
    }

    /// The workspace's own chain.
    pub fn chain(&self) -> Chain {
        Chain::Workspace(self.key.clone())
    }
}

/// The raw bytes of a host path.
pub fn path_bytes(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes()
}

/// From `start` upwards: the nearest directory that has a chain of its own, else the
/// nearest that holds `.git`, else `start` itself. Roots that [`Root::open`] refuses
/// are never found by the search.
pub async fn find(store: &dyn Store, start: &Path, host: &Host) -> Result<PathBuf> {
    let from = start.to_owned();
    let start = blocking(move || {
        let what = || format!("directory {}", path::quoted(path_bytes(&from)));
        fsx::canonical(&from).context(what)
    })
    .await?;
    for dir in start.ancestors() {
        if unsafe_root(dir, host).is_some() {
            continue;
        }
        let chain = Chain::Workspace(WorkspaceKey::of(path_bytes(dir), &host.machine));
        match store.get(&DocKey::Refs(chain.clone())).await {
            // Refs that name nothing yet are what a first capture that was cut short left.
            Ok(doc) if Refs::read(&chain, &doc.body).is_ok_and(|r| r.head.is_none()) => {}
            Ok(_) => return Ok(dir.to_owned()),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    let here = start.clone();
    let host = host.clone();
    blocking(move || {
        let found = here.ancestors().find(|d| unsafe_root(d, &host).is_none() && holds_git(d));
        Ok(found.map_or(here.clone(), Path::to_owned))
    })
    .await
}

/// Why `path`, links resolved, is no place for a workspace; `None` when it is one.
pub(crate) fn unsafe_root(path: &Path, host: &Host) -> Option<&'static str> {
    if path.parent().is_none() {
        return Some("it is the root of the file system");
    }
    if let Some(home) = &host.home {
        let home = fsx::canonical(home).unwrap_or_else(|_| home.clone());
        if home == path {
            return Some("it is the home directory");
        }
        if home.starts_with(path) {
            return Some("it holds the home directory");
        }
    }
    let in_git = path.components().any(|c| path::is_git_name(c.as_os_str().as_encoded_bytes()));
    in_git.then_some("it is or lies below a .git directory")
}

/// A real `.git` directory, or a file beginning `gitdir:`; anything else is ignored.
fn holds_git(path: &Path) -> bool {
    let Ok(dir) = Dir::open(path) else { return false };
    match dir.stat(b".git") {
        Ok(s) if s.kind == FileKind::Dir => true,
        Ok(s) if s.kind == FileKind::File => fsx::read_small(&dir, b".git", 16)
            .is_ok_and(|b| b.is_some_and(|b| b.starts_with(b"gitdir:"))),
        _ => false,
    }
}

fn is_git_data(dir: &Dir) -> bool {
    let kind = |name: &[u8]| dir.stat(name).ok().map(|s| s.kind);
    kind(b"HEAD") == Some(FileKind::File)
        && kind(b"objects") == Some(FileKind::Dir)
        && kind(b"refs") == Some(FileKind::Dir)
}
