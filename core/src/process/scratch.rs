//! The files through which a command and the engine talk: outside the workspace, so
//! that no capture sees them.

use std::io::ErrorKind;
use std::path::PathBuf;

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
    fn roots(&self) -> Vec<Root> {
        let at = |place: &Option<PathBuf>, below: &str| {
            place.clone().filter(|p| p.is_absolute()).map(|p| p.join(below))
        };
        let own = [
            at(&self.state, "backtrail/scratch"),
            at(&self.home, ".local/state/backtrail/scratch"),
            at(&self.store, "scratch"),
        ];
        let mut out: Vec<Root> =
            own.into_iter().flatten().map(|path| Root { path, among_others: false }).collect();
        let temp = at(&self.temp, &format!("backtrail-{}", fsx::user_id()));
        out.extend(temp.map(|path| Root { path, among_others: true }));
        out
    }
}

/// A directory that holds the scratch of all runs.
struct Root {
    path: PathBuf,
    /// It lies where everybody may make names, so that one with ours may be a trap.
    among_others: bool,
}

impl Root {
    fn make(&self) -> std::io::Result<Dir> {
        fsx::make_private_dirs(&self.path)?;
        self.open()
    }

    /// Opens it; it must be ours alone.
    fn open(&self) -> std::io::Result<Dir> {
        let dir = match (self.path.parent(), self.path.file_name()) {
            (Some(parent), Some(name)) if self.among_others => {
                Dir::open(parent)?.open_dir(name.as_encoded_bytes())?
            }
            _ => Dir::open(&self.path)?,
        };
        let stat = dir.stat_self()?;
        if stat.uid != fsx::user_id() {
            return Err(std::io::Error::new(ErrorKind::PermissionDenied, "it is another user's"));
        }
        if stat.mode & 0o077 != 0 {
            dir.set_mode(0o700)?;
        }
        Ok(dir)
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
            match root.make().and_then(|dir| below(&dir, run.as_bytes())) {
                Ok(dir) => return Ok(Self { path: root.path.join(run), dir }),
                Err(e) => why.push(format!("{}: {e}", root.path.display())),
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
            if let Ok(dir) = root.open().and_then(|dir| dir.open_dir(run.as_bytes())) {
                return Ok(Some(Self { path: root.path.join(run), dir }));
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
            let Ok(dir) = root.open() else { continue };
            let what = || format!("cannot remove {}", root.path.join(run).display());
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
