//! The answer for one path: a small value without text, cheap to make for every
//! name of a walk. `explain` turns it into words.

use std::sync::Arc;

use super::names::{Always, CACHEDIR_MARKER, CACHEDIR_SIGNATURE, VENV_MARKER};
use super::obstacle::Obstacle;

/// What a directory entry is, as `lstat` or the listing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symlink, wherever it points.
    Symlink,
    /// A pipe, socket or device.
    Other,
}

impl From<crate::fsx::FileKind> for EntryKind {
    fn from(kind: crate::fsx::FileKind) -> Self {
        use crate::fsx::FileKind as K;
        match kind {
            K::File => Self::File,
            K::Dir => Self::Dir,
            K::Symlink => Self::Symlink,
            K::Special => Self::Other,
        }
    }
}

/// Why a path is excluded; the classes that coverage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Never captured, whatever the rules say.
    Always,
    /// A line of the project's rules.
    Rule,
    /// A directory left out by its name.
    Default,
    /// A directory left out by what it holds.
    Marker,
}

impl Class {
    /// The word in coverage and `explain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Rule => "rule",
            Self::Default => "default",
            Self::Marker => "marker",
        }
    }
}

/// Whether a path counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is captured.
    Stored,
    /// It is left out, and counted as excluded.
    Excluded(Class),
    /// It is a secret by name: left out, and recorded as skipped.
    Secret,
}

/// What marks a directory as a cache or an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkerKind {
    /// It holds `pyvenv.cfg`.
    Venv,
    /// It holds a `CACHEDIR.TAG` with the signature.
    CacheDir,
    /// One of the two; a rule set does not record which.
    Recorded,
}

impl MarkerKind {
    /// The marker that an entry of a directory may be. A [`MarkerKind::CacheDir`] is
    /// one only if the file begins with the signature: [`MarkerKind::confirmed`].
    pub fn candidate(name: &[u8], kind: EntryKind) -> Option<Self> {
        if name == VENV_MARKER.as_bytes() && kind != EntryKind::Dir {
            return Some(Self::Venv);
        }
        let tag = name == CACHEDIR_MARKER.as_bytes() && kind == EntryKind::File;
        tag.then_some(Self::CacheDir)
    }

    /// True if a candidate whose file begins with `head` is a marker.
    pub fn confirmed(self, head: &[u8]) -> bool {
        self != Self::CacheDir || head.starts_with(CACHEDIR_SIGNATURE)
    }
}

/// The place of a line in the order of evaluation: files nearer the root come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinePos {
    /// How many directories the rule file lies below the root; with the path judged
    /// and the family this gives the file.
    pub file_depth: u32,
    /// The line, from 1.
    pub line: u32,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nothing: captured because no rule says otherwise.
    Nothing,
    /// A name that is always out.
    Always(Always),
    /// A line of the project's rules.
    Line(LinePos),
    /// An entry of the list of secrets.
    Secret(u16),
    /// An entry of the list of default directories.
    Default(u16),
    /// The content of a directory.
    Marker(MarkerKind),
}

/// The answer for one path, made by [`DirRules::decide`](super::DirRules::decide).
#[derive(Clone, Debug)]
pub struct Decision {
    /// Whether the path counts.
    pub verdict: Verdict,
    /// For a directory: its inside must be listed. True for a stored one, and for
    /// an excluded one when a negation could match below it.
    pub descend: bool,
    /// Excluded because the directory above is: neither counted nor looked at on
    /// its own.
    pub inherited: bool,
    /// What decided.
    pub source: Source,
    /// How many names of the path lead to the one that was matched: its own depth,
    /// or less when an ancestor decided.
    pub decided_at: u32,
    /// Set by [`DirRules::mark`](super::DirRules::mark): the directory belongs into
    /// the markers of the rule set.
    pub marked: bool,
    pub(super) state: State,
    /// The last line that matches this very path.
    pub(super) hit: Option<Hit>,
}

impl Decision {
    /// The root is never judged.
    pub(super) fn stored_root() -> Self {
        Self {
            verdict: Verdict::Stored,
            descend: true,
            inherited: false,
            source: Source::Nothing,
            decided_at: 0,
            marked: false,
            state: State::default(),
            hit: None,
        }
    }

    /// True if the path is captured.
    pub fn is_stored(&self) -> bool {
        self.verdict == Verdict::Stored
    }

    /// The class to count the path under, once per excluded directory.
    pub fn counted(&self) -> Option<Class> {
        match self.verdict {
            Verdict::Excluded(class) if !self.inherited => Some(class),
            _ => None,
        }
    }
}

/// A line by its indices in the rule files that have a say in a directory. The order
/// of evaluation is the order of this type, and holds for all directories below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    pub(super) file: usize,
    pub(super) pattern: u32,
}

/// A line and the depth of the prefix it matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) hit: Hit,
    pub(super) at: u32,
}

/// What the prefixes of a path have decided so far. The state of a directory is
/// where its entries start from.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Something on the way is always out.
    pub(super) always: Option<(Always, u32)>,
    /// The project's rules exclude the path.
    pub(super) excluded: bool,
    /// The last in order of the excluding lines on the way: a negation counts only
    /// if it stands later.
    pub(super) highest: Option<Mark>,
    /// The excluding line in force while `excluded`.
    pub(super) exclusion: Option<Mark>,
    /// The deepest negation that decided.
    pub(super) negation: Option<Mark>,
    /// The secrets and default directories on the way that no negation has freed;
    /// `None` when there are none. Never empty.
    pub(super) obstacles: Option<Arc<[Obstacle]>>,
}
