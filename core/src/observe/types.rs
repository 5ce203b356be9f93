//! The value an observation is.

use serde::Serialize;

use crate::fsx::{FileKind, Stat};
use crate::path::RelPath;
use crate::snapshot::coverage::{Coverage, Reason};
use crate::snapshot::doc::Counts;
use crate::snapshot::tree::{Body, Entry, Ref, Tree};
use crate::workspace::rules::{Class, RuleSet};

/// How to look at a workspace.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Files strictly larger (apparent size) are skipped. 32 MiB by default.
    pub max_file_bytes: u64,
    /// More files and links that would be stored are refused. 50,000 by default.
    pub max_files: u64,
    /// Do not refuse above `max_files` (a bank and a plan take what is there). The rule
    /// set still says which limit is in force, so that it is the same for all.
    pub any_count: bool,
    /// Threads that walk and hash; at least two walk.
    pub threads: usize,
    /// How old a file must be, against the start, for its stat to be trusted next time.
    pub safety_window_ns: i64,
    /// Enter directories on other file systems.
    pub cross_filesystems: bool,
    /// Trust no cache entry.
    pub rehash: bool,
    /// Paths that are read, not answered from the cache.
    pub must_read: std::collections::BTreeSet<RelPath>,
    /// Paths that are stored whatever the limits (a bank's).
    pub must_store: std::collections::BTreeSet<RelPath>,
    /// Directories that no walk enters, as (device, inode): store, cache, state.
    pub never_enter: Vec<(u64, u64)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_file_bytes: 32 << 20,
            max_files: 50_000,
            any_count: false,
            threads: 2,
            safety_window_ns: 2_000_000_000,
            cross_filesystems: false,
            rehash: false,
            must_read: std::collections::BTreeSet::new(),
            must_store: std::collections::BTreeSet::new(),
            never_enter: Vec::new(),
        }
    }
}

/// Something a person should know; never an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Stable code, e.g. `rule-line`.
    pub code: &'static str,
    /// The path concerned, in path text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// How many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What it means and what to do.
    pub hint: String,
}

/// What a path that the walk saw is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A regular file that is covered, and its content.
    File(Ref),
    /// A directory that was walked: its index in [`Observed::dirs`]. Recorded or not,
    /// see [`ObservedDir::recorded`].
    Dir(usize),
    /// A symbolic link and its target text.
    Symlink(Box<[u8]>),
    /// Seen, not covered.
    Skipped(Reason),
    /// A directory whose inside was not seen.
    Unobserved(Reason),
    /// Out by the rules; an excluded directory that was not walked counts once.
    Excluded(Class),
}

/// One name of an observed directory.
#[derive(Clone, Debug)]
pub struct ObservedEntry {
    /// The raw name.
    pub name: Box<[u8]>,
    /// Its `lstat`. For a file that was read: as at the end of the read.
    pub stat: Stat,
    /// What it is.
    pub what: What,
}

/// One observed directory.
#[derive(Clone, Debug)]
pub struct ObservedDir {
    /// Its path.
    pub path: RelPath,
    /// The index of the directory that holds it; `None` for the root.
    pub parent: Option<usize>,
    /// Its `lstat`.
    pub stat: Stat,
    /// Part of the tree. False for an excluded directory below which nothing is included.
    pub recorded: bool,
    /// Why it is excluded itself, when it is (it was walked for a negation below it).
    pub excluded: Option<Class>,
    /// The reference to its tree, when recorded.
    pub tree: Option<Ref>,
    /// Its names in byte order.
    pub entries: Vec<ObservedEntry>,
}

/// The tree of the directory `dir`; `child` gives the directory of an index.
pub(super) fn tree_of<'a>(dir: &ObservedDir, child: impl Fn(usize) -> &'a ObservedDir) -> Tree {
    let mut tree = Tree::default();
    for entry in &dir.entries {
        let (mode, body) = match &entry.what {
            What::File(content) => (entry.stat.mode, Body::File(content.clone())),
            What::Symlink(target) => (0, Body::Symlink(target.to_vec())),
            What::Dir(i) => match child(*i) {
                ObservedDir { recorded: true, tree: Some(tree), stat, .. } => {
                    (stat.mode, Body::Dir(tree.clone()))
                }
                _ => continue,
            },
            _ => continue,
        };
        tree.entries.push(Entry { name: entry.name.to_vec(), mode, body });
    }
    tree
}

/// A workspace as it is now.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Every directory walked; the root is 0 and a child's index is above its parent's.
    pub dirs: Vec<ObservedDir>,
    /// The root tree.
    pub root: Ref,
    /// What the tree holds.
    pub counts: Counts,
    /// What is not in it and why; `records` is always the whole list here.
    pub coverage: Coverage,
    /// The rules that decided.
    pub rules: RuleSet,
    /// What a person should know.
    pub warnings: Vec<Warning>,
    /// Files whose content was read, and their bytes.
    pub read: (u64, u64),
    /// Files whose content the cache knew.
    pub reused: u64,
    /// The clock before the first directory was opened, in nanoseconds since 1970.
    pub started_ns: i64,
}

impl Observed {
    /// The entry at `path`; `None` when there is nothing, or when it lies below
    /// something that was not walked (see [`Observed::nearest`]).
    pub fn entry(&self, path: &RelPath) -> Option<&ObservedEntry> {
        match self.nearest(path) {
            (entry, true) => entry,
            _ => None,
        }
    }

    /// The deepest existing entry on the way to `path`, and whether it is `path`
    /// itself. `(None, true)` is the root, `(None, false)` nothing at all.
    pub fn nearest(&self, path: &RelPath) -> (Option<&ObservedEntry>, bool) {
        let mut dir = &self.dirs[0];
        let mut found: Option<&ObservedEntry> = None;
        let mut names = path.segments().peekable();
        while let Some(name) = names.next() {
            let Ok(at) = dir.entries.binary_search_by(|e| (*e.name).cmp(name)) else {
                return (found, false);
            };
            let entry = &dir.entries[at];
            found = Some(entry);
            match (&entry.what, names.peek()) {
                (_, None) => return (found, true),
                (What::Dir(next), Some(_)) => dir = &self.dirs[*next],
                (_, Some(_)) => return (found, false),
            }
        }
        (None, true)
    }

    /// The tree of the directory with this index.
    pub fn tree(&self, dir: usize) -> Tree {
        tree_of(&self.dirs[dir], |i| &self.dirs[i])
    }

    /// Every covered file with its directory's index.
    pub fn files(&self) -> impl Iterator<Item = (&ObservedDir, &ObservedEntry, &Ref)> {
        let recorded = self.dirs.iter().filter(|d| d.recorded);
        recorded.flat_map(|d| {
            d.entries.iter().filter_map(move |e| match &e.what {
                What::File(content) => Some((d, e, content)),
                _ => None,
            })
        })
    }

    /// The directory at `path`, when it was walked.
    pub fn dir(&self, path: &RelPath) -> Option<&ObservedDir> {
        if path.is_root() {
            return self.dirs.first();
        }
        match self.entry(path)?.what {
            What::Dir(i) => self.dirs.get(i),
            _ => None,
        }
    }
}

/// The coverage kind of a file system kind.
pub(crate) fn record_kind(kind: FileKind) -> crate::snapshot::coverage::Kind {
    use crate::snapshot::coverage::Kind;
    match kind {
        FileKind::File => Kind::File,
        FileKind::Dir => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Special => Kind::Special,
    }
}
