//! The files through which a command and the engine talk: outside the workspace, so
//! that no capture sees them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext, Result};
use crate::fsx::{self, Dir};

/// Where scratch directories may lie; the first that can be used is.
#[derive(Clone, Debug, Default)]
pub struct ScratchPlaces {
    /// `$XDG_STATE_HOME`.
    pub state: Option<PathBuf>,
    /// The home directory.
    pub home: Option<PathBuf>,
    /// The root of a file store.
    pub store: Option<PathBuf>,
    /// The system's directory for temporary files.
    pub temp: Option<PathBuf>,
}

impl ScratchPlaces {
    /// The directories that hold the scratch of all runs, best first.
    fn roots(&self) -> Vec<PathBuf> {
        let absolute = |p: &Option<PathBuf>| p.clone().filter(|p| p.is_absolute());
        let user = fsx::user_id();
        let found = [
            absolute(&self.state).map(|p| p.join("backtrail/scratch")),
            absolute(&self.home).map(|p| p.join(".local/state/backtrail/scratch")),
            absolute(&self.store).map(|p| p.join("scratch")),
            absolute(&self.temp).map(|p| p.join(format!("backtrail-{user}/scratch"))),
        ];
        found.into_iter().flatten().collect()
    }
}

/// The scratch directory of one run.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    dir: Dir,
}

impl Scratch {
    /// Opens the scratch of `run`, which is made in the first place that allows it. Blocks.
    pub fn open(places: &ScratchPlaces, run: &str) -> Result<Self> {
        if let Some(found) = Self::find(places, run)? {
            return Ok(found);
        }
        let mut why = Vec::new();
        for root in places.roots() {
            match make(&root, run) {
                Ok(scratch) => return Ok(scratch),
                Err(e) => why.push(format!("{}: {e}", root.display())),
            }
        }
        let message = format!("no place for the files of a run; {}", why.join("; "));
        Err(Error::failed("no-scratch", message)
            .with_hint("set XDG_STATE_HOME to a directory that can be written"))
    }

    /// The scratch of `run`, if it has one in any place. Blocks.
    pub fn find(places: &ScratchPlaces, run: &str) -> Result<Option<Self>> {
        check_name(run)?;
        for root in places.roots() {
            let path = root.join(run);
            let opened = private(&root).and_then(|dir| dir.open_dir(run.as_bytes()));
            if let Ok(dir) = opened {
                return Ok(Some(Self { path, dir }));
            }
        }
        Ok(None)
    }

    /// Its directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Makes the files of one attempt anew: input and answers are there, output and
    /// question are not. Blocks.
    pub fn attempt(
        &self,
        node: &str,
        iteration: u64,
        attempt: u64,
        input: &[u8],
        answers: Option<&[u8]>,
    ) -> Result<AttemptFiles> {
        check_name(node)?;
        let name = format!("{iteration}.{attempt}");
        let made = (|| {
            let nodes = below(&self.dir, b"nodes")?;
            let node = below(&nodes, node.as_bytes())?;
            node.remove_tree(name.as_bytes())?;
            let dir = below(&node, name.as_bytes())?;
            write(&dir, AttemptFiles::INPUT, input)?;
            answers.map_or(Ok(()), |a| write(&dir, AttemptFiles::ANSWERS, a))?;
            Ok(dir)
        })();
        let path = self.path.join("nodes").join(node).join(&name);
        let dir = made.context(|| format!("cannot write to {}", path.display()))?;
        Ok(AttemptFiles { path, dir })
    }

    /// Removes the scratch of `run` wherever it is. What is gone already is fine. Blocks.
    pub fn remove(places: &ScratchPlaces, run: &str) -> Result<()> {
        check_name(run)?;
        for root in places.roots() {
            let Ok(dir) = private(&root) else { continue };
            let what = || format!("cannot remove {}", root.join(run).display());
            dir.remove_tree(run.as_bytes()).context(what)?;
        }
        Ok(())
    }
}

/// The files of one attempt. They are read through the directory as it was made, whatever
/// a command puts in its place.
#[derive(Debug)]
pub struct AttemptFiles {
    path: PathBuf,
    dir: Dir,
}

impl AttemptFiles {
    const INPUT: &str = "input.json";
    pub(super) const OUTPUT: &str = "output.json";
    pub(super) const QUESTION: &str = "question.json";
    const ANSWERS: &str = "answers.json";

    /// Where the command finds its input.
    pub fn input(&self) -> PathBuf {
        self.path.join(Self::INPUT)
    }
    /// Where the command writes its output.
    pub fn output(&self) -> PathBuf {
        self.path.join(Self::OUTPUT)
    }
    /// Where the command writes a question.
    pub fn question(&self) -> PathBuf {
        self.path.join(Self::QUESTION)
    }
    /// Where the command finds answers, once there are some.
    pub fn answers(&self) -> PathBuf {
        self.path.join(Self::ANSWERS)
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }
}

/// Names come from records and workflow files: one component, never a path.
fn check_name(name: &str) -> Result<()> {
    let bad = name.is_empty()
        || name.len() > 255
        || name.starts_with('.')
        || name.bytes().any(|b| b == b'/' || b == b'\\' || b < 0x20 || b == 0x7f);
    if bad {
        return Err(Error::invalid(format!("{name:?} cannot name a scratch directory")));
    }
    Ok(())
}

fn make(root: &Path, run: &str) -> std::io::Result<Scratch> {
    fsx::make_private_dirs(root)?;
    let dir = below(&private(root)?, run.as_bytes())?;
    Ok(Scratch { path: root.join(run), dir })
}

/// Opens a directory that must be ours alone: in a place that others can write to, one
/// with our name may be somebody's trap.
fn private(root: &Path) -> std::io::Result<Dir> {
    let dir = Dir::open(root)?;
    let stat = dir.stat_self()?;
    if stat.uid != fsx::user_id() {
        return Err(std::io::Error::new(ErrorKind::PermissionDenied, "it is another user's"));
    }
    if stat.mode & 0o077 != 0 {
        dir.set_mode(0o700)?;
    }
    Ok(dir)
}

/// Opens the directory `name`, which is made when it is not there, with mode 0700.
fn below(dir: &Dir, name: &[u8]) -> std::io::Result<Dir> {
    match dir.make_dir(name, 0o700) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let opened = dir.open_dir(name)?;
    if opened.stat_self()?.mode & 0o777 != 0o700 {
        opened.set_mode(0o700)?;
    }
    Ok(opened)
}

fn write(dir: &Dir, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    fsx::publish(dir, name.as_bytes(), format!(".tmp-{name}").as_bytes(), bytes, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_can_be_used_is_used_and_found_again() {
        let temp = tempfile::tempdir().expect("a directory");
        let at = |name: &str| Some(temp.path().join(name));
        let blocked = temp.path().join("blocked");
        std::fs::write(&blocked, b"a file in the way").expect("written");
        let places =
            ScratchPlaces { state: Some(blocked), home: at("home"), store: None, temp: at("tmp") };
        let scratch = Scratch::open(&places, "r1").expect("the home can be used");
        let files = scratch.attempt("n", 0, 1, b"{}", None).expect("files");
        assert!(files.input().starts_with(temp.path().join("home/.local/state/backtrail")));
        assert!(!files.answers().exists() && !files.output().exists());
        assert!(Scratch::find(&places, "r1").expect("looked").is_some());
        Scratch::remove(&places, "r1").expect("removed");
        Scratch::remove(&places, "r1").expect("twice");
        assert!(Scratch::find(&places, "r1").expect("looked").is_none());
        for bad in ["", ".", "..", "../x", "a/b"] {
            assert!(Scratch::open(&places, bad).is_err(), "{bad:?}");
            assert!(Scratch::remove(&places, bad).is_err(), "{bad:?}");
        }
    }
}
