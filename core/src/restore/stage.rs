//! Staging: one private directory per mount the restore touches, at the workspace root
//! or the top of a mount below it, so that every move is a rename on one file system.
//!
//! `new/<n>` holds what step `n` puts in place, `old/<n>` what it displaced.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use super::fill::{self, NewFile, Place};
use super::owner::{OWNER, Owner};
use super::work::Work;
use crate::clock::Context;
use crate::diff::StateKind;
use crate::error::{Error, Result};
use crate::fsx::{self, Dir, FileKind};
use crate::path::{self, RelPath};
use crate::plan::{Op, Step};
use crate::snapshot::tree::Ref;
use crate::store::Store;
use crate::tasks::blocking;

/// What a step puts in place, where that is no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A file's bytes, in the store.
    File(Ref),
    /// A link's target text.
    Link(Vec<u8>),
}

/// One staging directory.
#[derive(Debug)]
pub(super) struct StagePlace {
    /// The directory that holds it, below the workspace root.
    pub(super) at: RelPath,
    /// Its name.
    pub(super) name: Vec<u8>,
    /// Device number, for the journal.
    pub(super) device: u64,
    mount: u64,
    home: Dir,
    home_mode: Option<u32>,
    /// The staging directory itself.
    pub(super) dir: Dir,
    /// Its `new`.
    pub(super) new: Arc<Dir>,
    /// Its `old`.
    pub(super) old: Dir,
}

/// All staging directories of a transaction; the first lies at the root.
#[derive(Debug)]
pub(super) struct Stage {
    /// The directories.
    pub(super) places: Vec<StagePlace>,
    /// The directory of each step.
    of: Vec<usize>,
}

/// The name of a transaction's staging directories.
pub(super) fn stage_name(transaction: &str) -> Vec<u8> {
    let id = transaction.strip_prefix("tx-").unwrap_or(transaction);
    format!(".backtrail-stage-{id}").into_bytes()
}

/// The name of step `n` in `new` and `old`.
pub(super) fn step_name(n: usize) -> Vec<u8> {
    n.to_string().into_bytes()
}

impl Stage {
    /// Makes the staging directories that `steps` need. `no-staging` (exit 4) names the
    /// place where it is not possible.
    pub(super) fn create(root: &Dir, owner: &Owner, steps: &[Step]) -> Result<Self> {
        let name = stage_name(&owner.transaction);
        let tops = tops(root, steps).map_err(|e| refused(&RelPath::root(), &e))?;
        let mut stage = Self { places: Vec::new(), of: Vec::new() };
        for (at, mount) in tops.homes {
            match StagePlace::create(root, at.clone(), mount, &name, owner) {
                Ok(place) => stage.places.push(place),
                Err(e) => {
                    stage.remove();
                    return Err(refused(&at, &e));
                }
            }
        }
        stage.of = tops.of;
        Ok(stage)
    }

    /// Opens the staging directories of an interrupted transaction: those named, as far
    /// as they are there. `None` when the one at the root is gone.
    pub(super) fn open(
        root: &Dir,
        transaction: &str,
        at: &[RelPath],
        steps: &[Step],
    ) -> io::Result<Option<Self>> {
        let name = stage_name(transaction);
        let mut places = Vec::new();
        for at in at {
            match StagePlace::open(root, at.clone(), &name) {
                Ok(place) => places.push(place),
                Err(e) if e.kind() == io::ErrorKind::NotFound && !at.is_root() => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        let mut stage = Self { places, of: Vec::new() };
        let tops = tops(root, steps)?;
        let index = |i: &usize| {
            let mount = tops.homes[*i].1;
            stage.places.iter().position(|p| p.mount == mount).unwrap_or(0)
        };
        stage.of = tops.of.iter().map(index).collect();
        Ok(Some(stage))
    }

    /// The staging directory of step `n`.
    pub(super) fn place(&self, n: usize) -> &StagePlace {
        &self.places[self.of.get(n).copied().unwrap_or(0)]
    }

    /// The number of that directory.
    pub(super) fn number(&self, n: usize) -> u32 {
        self.of.get(n).copied().unwrap_or(0) as u32
    }

    /// Writes a small file into the staging at the root, synced if `durable`.
    pub(super) fn publish(&self, name: &[u8], body: &[u8], durable: bool) -> io::Result<()> {
        let temp = [name, b".tmp"].concat();
        let dir = &self.places[0].dir;
        match dir.unlink(&temp) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        fsx::publish(dir, name, &temp, body, durable)
    }

    /// Removes what is staged and what was displaced; the journal stays, to be read.
    pub(super) fn empty(&self) {
        for place in &self.places {
            let _ = place.empty();
        }
    }

    /// Removes every staging directory, the root's last, since that one makes an
    /// interrupted removal findable. Only for a transaction whose originals are not
    /// needed any more. The paths of those that stay are returned: with something in
    /// them that is not ours, or that the system would not remove.
    pub(super) fn remove(&self) -> Vec<RelPath> {
        let mut kept = Vec::new();
        for place in self.places.iter().rev() {
            // The journal goes after what it describes: a kill in between must never
            // leave originals that nothing explains. What stays carries our name and
            // owner, and is swept by a later command.
            if place.empty().and_then(|()| place.home.remove_tree(&place.name)).is_err() {
                kept.push(place.at.join(&place.name));
            }
            if let Some(mode) = place.home_mode {
                let _ = place.home.set_mode(mode);
            }
        }
        kept
    }
}

impl StagePlace {
    fn create(root: &Dir, at: RelPath, mount: u64, name: &[u8], owner: &Owner) -> io::Result<Self> {
        let home = root.open_below(&at)?;
        let stat = home.stat_self()?;
        let mut owner = owner.clone();
        if !home.may_change() {
            home.set_mode(stat.mode | 0o700)?;
            owner.home_mode = Some(stat.mode);
        }
        home.make_dir(name, 0o700)?;
        let made = (|| {
            let dir = home.open_dir(name)?;
            owner.write(&dir)?;
            dir.make_dir(b"new", 0o700)?;
            dir.make_dir(b"old", 0o700)?;
            let (new, old) = (Arc::new(dir.open_dir(b"new")?), dir.open_dir(b"old")?);
            io::Result::Ok((dir, new, old))
        })();
        let home_mode = owner.home_mode;
        match made {
            Ok((dir, new, old)) => {
                let (name, device) = (name.to_vec(), stat.device);
                Ok(Self { at, name, device, mount, home, home_mode, dir, new, old })
            }
            Err(e) => {
                let _ = home.remove_tree(name); // the first error is the one to report
                if let Some(mode) = home_mode {
                    let _ = home.set_mode(mode);
                }
                Err(e)
            }
        }
    }

    fn open(root: &Dir, at: RelPath, name: &[u8]) -> io::Result<Self> {
        let home = root.open_below(&at)?;
        let stat = home.stat_self()?;
        let dir = home.open_dir(name)?;
        let home_mode = Owner::read(&dir).and_then(|o| o.home_mode);
        let (new, old) = (Arc::new(sub(&dir, b"new")?), sub(&dir, b"old")?);
        let (name, device, mount) = (name.to_vec(), stat.device, stat.mount);
        Ok(Self { at, name, device, mount, home, home_mode, dir, new, old })
    }

    /// Removes what is staged and what was displaced.
    fn empty(&self) -> io::Result<()> {
        let done = clear(&self.dir, b"new");
        clear(&self.dir, b"old").and(done)
    }
}

/// Removes `name` with its files and its empty directories. One that is not empty stays:
/// those we move are empty, so what is in it somebody else put there meanwhile.
fn clear(dir: &Dir, name: &[u8]) -> io::Result<()> {
    let inside = match dir.open_dir(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut done = Ok(());
    for child in inside.names()? {
        let removed = inside.unlink(&child).or_else(|e| match e.kind() {
            // What POSIX says of a directory, and what Linux says of one.
            io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => {
                inside.remove_dir(&child)
            }
            _ => Err(e),
        });
        done = done.and(removed);
    }
    done.and_then(|()| dir.remove_dir(name))
}

/// Opens a directory of the staging, made again when a kill came before it.
fn sub(dir: &Dir, name: &[u8]) -> io::Result<Dir> {
    match dir.open_dir(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            dir.make_dir(name, 0o700)?;
            dir.open_dir(name)
        }
        other => other,
    }
}

/// True if a staging directory holds displaced originals.
pub(super) fn holds_originals(dir: &Dir) -> io::Result<bool> {
    match dir.open_dir(b"old") {
        Ok(old) => Ok(!old.names()?.is_empty()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// True if `dir` looks like a staging directory of ours.
pub(super) fn is_ours(dir: &Dir) -> bool {
    dir.stat(OWNER).is_ok_and(|s| s.kind == FileKind::File)
}

fn refused(at: &RelPath, e: &io::Error) -> Error {
    if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return fill::write_failed(&at.text(), e);
    }
    let place = if at.is_root() { "the workspace root".to_owned() } else { at.to_string() };
    Error::refused("no-staging", format!("failed to stage in {place}: {e}"))
        .with_paths([at.text().into_owned()])
}

struct Tops {
    /// Where to stage, with the mount: the root first.
    homes: Vec<(RelPath, u64)>,
    of: Vec<usize>,
}

/// The top of the mount that holds each step's path.
fn tops(root: &Dir, steps: &[Step]) -> io::Result<Tops> {
    let mut homes = vec![(RelPath::root(), root.stat_self()?.mount)];
    let mut known: BTreeMap<RelPath, usize> = BTreeMap::from([(RelPath::root(), 0)]);
    let mut of = Vec::with_capacity(steps.len());
    for step in steps {
        let parent = step.path.parent().unwrap_or_default();
        let index = match known.get(&parent) {
            Some(index) => *index,
            None => {
                let index = home_of(root, &parent, &mut homes)?;
                known.insert(parent, index);
                index
            }
        };
        of.push(index);
    }
    Ok(Tops { homes, of })
}

/// Walks down to `dir` as far as it exists and notes where the mount changes.
fn home_of(root: &Dir, dir: &RelPath, homes: &mut Vec<(RelPath, u64)>) -> io::Result<usize> {
    let mut here = root.try_clone()?;
    let mut at = RelPath::root();
    let mut index = 0;
    for name in dir.segments() {
        here = match here.open_dir(name) {
            Ok(next) => next,
            // To be made by this restore, or in the way of it: on the mount so far.
            Err(_) => break,
        };
        at = at.join(name);
        let mount = here.stat_self()?.mount;
        if mount != homes[index].1 {
            index = match homes.iter().position(|(_, m)| *m == mount) {
                Some(known) => known,
                None => {
                    homes.push((at.clone(), mount));
                    homes.len() - 1
                }
            };
        }
    }
    Ok(index)
}

/// Fills `new` with what the steps put in place: `contents` by step.
pub(super) async fn fill(
    work: &Arc<Work>,
    store: &dyn Store,
    ctx: &Context,
    contents: HashMap<usize, Content>,
    threads: usize,
) -> Result<()> {
    let mut files = Vec::new();
    let mut local = Vec::new();
    for (n, step) in work.steps.iter().enumerate() {
        let mode = work.mode_after(&step.after);
        match contents.get(&n) {
            Some(Content::File(content)) => files.push(NewFile {
                dir: work.stage.number(n),
                name: step_name(n).into(),
                mode,
                content: content.clone(),
            }),
            Some(other) => local.push((n, Some(other.clone()))),
            None if step.op == Op::ReplaceKind && step.after.kind == StateKind::Dir => {
                local.push((n, None));
            }
            None => {}
        }
    }
    let place: Arc<dyn Place> = Arc::clone(work) as _;
    fill::fill(store, ctx, place, files, threads).await?;
    let work = Arc::clone(work);
    blocking(move || {
        for (n, content) in local {
            make(&work, n, content.as_ref())
                .map_err(|e| fill::write_failed(&work.steps[n].path.text(), &e))?;
        }
        Ok(())
    })
    .await
}

fn make(work: &Work, n: usize, content: Option<&Content>) -> io::Result<()> {
    let (new, name) = (&work.stage.place(n).new, step_name(n));
    match content {
        // Private until its mode is set, last of all.
        None => new.make_dir(&name, 0o700),
        Some(Content::Link(target)) => new.make_link(target, &name),
        Some(Content::File(_)) => Ok(()),
    }
}

impl Place for Work {
    fn open(&self, dir: u32) -> io::Result<Arc<Dir>> {
        Ok(Arc::clone(&self.stage.places[dir as usize].new))
    }
    fn creation(&self, mode: u32) -> (u32, bool) {
        // Never wider than the target, and no wider than the owner while it fills.
        (0o600, mode == 0o600)
    }
    fn describe(&self, file: &NewFile) -> String {
        let n: Option<usize> = std::str::from_utf8(&file.name).ok().and_then(|s| s.parse().ok());
        match n.and_then(|n| self.steps.get(n)) {
            Some(step) => step.path.text().into_owned(),
            None => path::quoted(&file.name),
        }
    }
}
