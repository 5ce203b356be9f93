//! `--into DIR`: a snapshot into a directory that is absent or empty. Nothing is
//! displaced, so there is no bank and no journal: all is built in a staging directory
//! beside DIR and renamed in one step, or removed.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::effective_mode;
use super::fill::{self, NewFile, Place};
use super::listing::Listing;
use super::owner::Owner;
use crate::clock::{Context, Host};
use crate::error::{Error, IoContext, Kind, Result};
use crate::fsx::{self, Dir, FileKind, Stat, probe};
use crate::path::{self, RelPath};
use crate::snapshot::tree::Ref;
use crate::store::Store;
use crate::tasks::blocking;
use crate::workspace::root::unsafe_root;

/// What to write where.
#[derive(Clone, Debug)]
pub struct IntoRequest {
    /// The root tree.
    pub tree: Ref,
    /// The directory to make, absolute.
    pub dest: PathBuf,
    /// Only these and what lies below them; all when empty.
    pub paths: BTreeSet<RelPath>,
    /// Sync the file system before the result appears.
    pub sync: bool,
    /// Keep setuid and setgid bits even as the superuser.
    pub special_modes: bool,
    /// Do not compare the size with the free space first.
    pub no_space_check: bool,
    /// Allow `/` and the home directory.
    pub any_root: bool,
    /// Batches under way at a time.
    pub threads: usize,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct IntoDone {
    /// Files and links, in order of their directories.
    pub written: Vec<RelPath>,
    /// Directories made, DIR itself not counted.
    pub dirs: u64,
    /// Content bytes.
    pub bytes: u64,
    /// Files whose setuid or setgid bit was left out.
    pub special_dropped: u64,
}

/// Restores `request.tree` into an absent or empty directory.
///
/// `not-empty` (exit 4) when DIR holds anything, `unsafe-root` (exit 2) for `/` and the
/// home directory, `no-space` (exit 1) before anything is written.
pub async fn restore_into(
    store: &dyn Store,
    ctx: &Context,
    request: IntoRequest,
) -> Result<IntoDone> {
    let request = Arc::new(request);
    let (r, host, own) = (Arc::clone(&request), ctx.host.clone(), store.info().local_dir);
    let dest = blocking(move || Dest::look(&r, &host, own.as_deref())).await?;
    let threads = request.threads.max(2);
    ctx.progress.phase("read", None, None);
    let mut listing = Listing::load(store, &request.tree, &request.paths, threads).await?;
    let mut done = IntoDone { dirs: listing.dirs.len() as u64 - 1, ..IntoDone::default() };
    for file in &mut listing.files {
        let mode = effective_mode(file.mode, request.special_modes);
        done.special_dropped += u64::from(mode != file.mode);
        file.mode = mode;
        done.bytes += file.content.length;
    }
    let files = std::mem::take(&mut listing.files);
    done.written.extend(files.iter().map(|f| listing.path(f.dir, &f.name)));
    done.written.extend(listing.links.iter().map(|l| listing.path(l.dir, &l.name)));
    let id = ctx.ids.hex(8)?;
    let mut owner = Owner::new(ctx, &format!("tx-{id}"), &store.info().url);
    owner.kind = String::from("into");
    let r = Arc::clone(&request);
    let space = listing.space().saturating_add(done.bytes + 4096 * files.len() as u64);
    let build = blocking(move || {
        if !r.no_space_check {
            dest.check_space(space)?;
        }
        Build::start(dest, &owner, &id, listing).map(Arc::new)
    })
    .await?;
    ctx.progress.phase("write", Some(files.len() as u64), Some(done.bytes));
    let place: Arc<dyn Place> = Arc::<Build>::clone(&build);
    let filled = fill::fill(store, ctx, place, files, threads).await;
    let (sync, faults) = (request.sync, Arc::clone(&ctx.faults));
    blocking(move || {
        let ended =
            filled.and_then(|()| faults.reach("restore.staged")).and_then(|()| build.publish(sync));
        build.clear(ended.is_err());
        ended
    })
    .await?;
    Ok(done)
}

/// The destination as found.
#[derive(Debug)]
struct Dest {
    path: PathBuf,
    parent: Dir,
    name: Vec<u8>,
    /// The empty directory that is there.
    present: Option<(Dir, Stat)>,
}

impl Dest {
    fn look(request: &IntoRequest, host: &Host, store: Option<&Path>) -> Result<Self> {
        let text = path::quoted(request.dest.as_os_str().as_bytes());
        let refused = |why: &str| {
            Error::new(
                Kind::Invalid,
                "unsafe-root",
                format!("refused to restore into {text}: {why}"),
            )
            .with_hint("use --any-root")
        };
        let Some(name) = request.dest.file_name() else {
            return Err(refused("it is the root of the file system"));
        };
        let above = request.dest.parent().unwrap_or(Path::new("/"));
        let what = || format!("failed to open the parent of {text}");
        let parent = Dir::open(above).context(what)?;
        let real = fsx::canonical(above).context(what)?.join(name);
        let within = |own: &Path| fsx::canonical(own).is_ok_and(|own| real.starts_with(own));
        if store.is_some_and(within) {
            return Err(refused("it lies in the store").with_hint("name another directory"));
        }
        if !request.any_root
            && let Some(why) = unsafe_root(&real, host)
        {
            return Err(refused(why));
        }
        let name = name.as_bytes().to_vec();
        if path::is_git_name(&name) || path::is_staging_name(&name) {
            return Err(refused("the name is reserved"));
        }
        let mut dest = Self { path: request.dest.clone(), parent, name, present: None };
        let stat = match dest.parent.stat(&dest.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(dest),
            other => other.context(|| format!("failed to look at {text}"))?,
        };
        let dir = match stat.kind {
            FileKind::Dir => dest.parent.open_dir(&dest.name),
            _ => {
                let message = format!("{text} is there and is no directory");
                return Err(Error::refused("not-empty", message));
            }
        };
        let dir = dir.context(|| format!("failed to open {text}"))?;
        if !dir.names().context(|| format!("failed to list {text}"))?.is_empty() {
            let message = format!("{text} is not empty");
            return Err(Error::refused("not-empty", message)
                .with_hint("choose an absent or empty directory, or add --overwrite"));
        }
        dest.present = Some((dir, stat));
        Ok(dest)
    }

    fn check_space(&self, need: u64) -> Result<()> {
        let (free, _) =
            self.parent.free_bytes().context(|| "failed to ask for free space".into())?;
        if free >= need {
            return Ok(());
        }
        let to = path::quoted(self.path.as_os_str().as_bytes());
        let message = format!("restoring into {to} takes up to {need} bytes and {free} are free");
        Err(Error::failed("no-space", message).with_hint("free space, or use --no-space-check"))
    }
}

/// The staging of one such restore.
struct Build {
    dest: Dest,
    /// Where the staging directory lies: the parent of DIR, or DIR itself when it is a
    /// mount or the parent may not be changed.
    home: Dir,
    stage: Vec<u8>,
    /// The tree being built: private, since the staging directory is 0700.
    tree: Dir,
    listing: Listing,
    umask: u32,
    /// New directories inherit the setgid bit here.
    inherits_gid: bool,
    inside: bool,
}

const TREE: &[u8] = b"tree";

impl Build {
    fn start(dest: Dest, owner: &Owner, id: &str, listing: Listing) -> Result<Self> {
        let inside = dest.must_stage_inside().context(|| "failed to look at the place".into())?;
        let home = match (&dest.present, inside) {
            (Some((dir, _)), true) => dir.try_clone(),
            _ => dest.parent.try_clone(),
        };
        let home = home.context(|| "failed to open the place of staging".into())?;
        let stage = format!(".backtrail-stage-{id}").into_bytes();
        let what = || format!("failed to stage beside {}", path::quoted(&dest.name));
        home.make_dir(&stage, 0o700).context(what)?;
        let made = (|| {
            let dir = home.open_dir(&stage)?;
            owner.write(&dir)?;
            dir.make_dir(TREE, 0o777)?;
            let umask = probe::umask(&dir, b"probe")?;
            let tree = dir.open_dir(TREE)?;
            let inherits_gid = tree.stat_self()?.mode & 0o2000 != 0;
            io::Result::Ok((umask, tree, inherits_gid))
        })();
        let (umask, tree, inherits_gid) = match made {
            Ok(made) => made,
            Err(e) => {
                let _ = home.remove_tree(&stage); // the first error is the one to report
                return Err(e).context(what);
            }
        };
        let build = Self { dest, home, stage, tree, listing, umask, inherits_gid, inside };
        match build.frame() {
            Ok(()) => Ok(build),
            Err(e) => {
                build.clear(true);
                Err(e)
            }
        }
    }

    /// Makes directories and links.
    fn frame(&self) -> Result<()> {
        for dir in self.listing.dirs.iter().skip(1) {
            let mode = (dir.mode | 0o700) & 0o777;
            self.in_parent(&dir.path, |at, name| at.make_dir(name, mode))
                .map_err(|e| fill::write_failed(&dir.path.text(), &e))?;
        }
        for link in &self.listing.links {
            let path = self.listing.path(link.dir, &link.name);
            self.in_parent(&path, |at, name| at.make_link(&link.target, name))
                .map_err(|e| fill::write_failed(&path.text(), &e))?;
        }
        Ok(())
    }

    /// One call with the whole path where the system takes it; nobody else is below
    /// the private staging, so there is no link to follow.
    fn in_parent<T>(
        &self,
        path: &RelPath,
        act: impl FnOnce(&Dir, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        if path.as_bytes().len() < 3000 {
            return act(&self.tree, path.as_bytes());
        }
        let (dir, name) = self.tree.open_parent(path)?;
        act(&dir, name)
    }

    /// Sets the directories' exact modes, deepest first, and moves the tree to DIR.
    fn publish(&self, sync: bool) -> Result<()> {
        for dir in self.listing.dirs.iter().skip(1).rev() {
            let made = (dir.mode | 0o700) & 0o777 & !self.umask;
            if made == dir.mode && !self.inherits_gid {
                continue;
            }
            let set = self.tree.open_below(&dir.path).and_then(|d| d.set_mode(dir.mode));
            set.map_err(|e| fill::write_failed(&dir.path.text(), &e))?;
        }
        let text = path::quoted(self.dest.path.as_os_str().as_bytes());
        let synced = |done: io::Result<()>| done.context(|| format!("failed to sync {text}"));
        if sync {
            synced(self.tree.sync_filesystem())?;
        }
        if self.inside {
            self.move_entries(&text)?
        } else {
            self.move_whole(&text)?
        }
        if sync { synced(self.home.sync()) } else { Ok(()) }
    }

    fn move_whole(&self, text: &str) -> Result<()> {
        let stage = self.home.open_dir(&self.stage);
        let moved = stage.and_then(|stage| match &self.dest.present {
            None => stage.rename_new(TREE, &self.home, &self.dest.name),
            Some((_, old)) => {
                if self.tree.stat_self()?.uid != old.uid {
                    stage.set_owner(TREE, old.uid, old.gid)?;
                }
                self.tree.set_mode(old.mode)?;
                stage.rename(TREE, &self.home, &self.dest.name)
            }
        });
        moved.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                Error::refused("not-empty", format!("{text} was filled meanwhile"))
            }
            _ => fill::write_failed(text, &e),
        })
    }

    fn move_entries(&self, text: &str) -> Result<()> {
        let names =
            self.tree.names().context(|| format!("failed to list the staging in {text}"))?;
        let mut moved: Vec<Vec<u8>> = Vec::with_capacity(names.len());
        for name in names {
            if let Err(e) = self.tree.rename_new(&name, &self.home, &name) {
                for back in moved {
                    let _ = self.home.rename_new(&back, &self.tree, &back);
                }
                return Err(fill::write_failed(&format!("{text}/{}", path::quoted(&name)), &e));
            }
            moved.push(name);
        }
        Ok(())
    }

    /// Removes the staging. After a failure, directories may be read-only by now.
    fn clear(&self, failed: bool) {
        if failed {
            for dir in self.listing.dirs.iter().skip(1) {
                let _ = self.tree.open_below(&dir.path).and_then(|d| d.set_mode(0o700));
            }
        }
        // What cannot be removed carries our name and owner, and is swept later.
        let _ = self.home.remove_tree(&self.stage);
    }
}

impl Dest {
    fn must_stage_inside(&self) -> io::Result<bool> {
        let Some((dir, _)) = &self.present else { return Ok(false) };
        let mount = dir.stat_self()?.mount != self.parent.stat_self()?.mount;
        Ok(mount || !self.parent.may_change())
    }
}

impl Place for Build {
    fn open(&self, dir: u32) -> io::Result<Arc<Dir>> {
        let path = &self.listing.dirs[dir as usize].path;
        if path.as_bytes().len() < 3000 && !path.is_root() {
            return self.tree.open_dir(path.as_bytes()).map(Arc::new);
        }
        self.tree.open_below(path).map(Arc::new)
    }

    fn creation(&self, mode: u32) -> (u32, bool) {
        // A set-id bit is lost by the writing that follows, so it comes last.
        let plain = mode & 0o777;
        (plain, plain == mode && plain & self.umask == 0)
    }

    fn describe(&self, file: &NewFile) -> String {
        self.listing.path(file.dir, &file.name).text().into_owned()
    }
}
