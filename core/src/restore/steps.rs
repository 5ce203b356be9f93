//! The steps of a plan as the transaction sees them, and the order in which they are
//! applied.

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::path::RelPath;

/// What a path is, or shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SideKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Dir,
    /// Nothing.
    Absent,
}

/// One side of a step: what the path is before or after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Side {
    /// What it is.
    pub kind: SideKind,
    /// Bytes of content or of link text; 0 otherwise.
    #[serde(default)]
    pub size: u64,
    /// Permission bits; 0 for a link and for nothing.
    #[serde(default, with = "octal")]
    pub mode: u32,
    /// Digest of the content or the link text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

impl Side {
    /// Nothing there.
    pub fn absent() -> Self {
        Self { kind: SideKind::Absent, size: 0, mode: 0, digest: None }
    }
    /// A directory of this mode.
    pub fn dir(mode: u32) -> Self {
        Self { kind: SideKind::Dir, size: 0, mode, digest: None }
    }
    /// A file of this mode, length and content.
    pub fn file(mode: u32, size: u64, digest: Digest) -> Self {
        Self { kind: SideKind::File, size, mode, digest: Some(digest) }
    }
    /// A link with this target text.
    pub fn symlink(target: &[u8]) -> Self {
        let (size, digest) = (target.len() as u64, Some(Digest::of(target)));
        Self { kind: SideKind::Symlink, size, mode: 0, digest }
    }
    /// True for a file or a link.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, SideKind::File | SideKind::Symlink)
    }
    /// Equal kind and content, whatever the mode.
    pub fn same_content(&self, other: &Self) -> bool {
        self.kind == other.kind && self.size == other.size && self.digest == other.digest
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Makes a directory.
    Mkdir,
    /// Puts a file where nothing, a file or a link is.
    Write,
    /// Puts a link where nothing, a file or a link is.
    Symlink,
    /// Sets the mode of a file or directory.
    Chmod,
    /// Puts a directory where a file or link is, or the other way.
    ReplaceKind,
    /// Takes a file or link away.
    Delete,
    /// Takes an emptied directory away.
    Rmdir,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// 1 to 5.
    pub phase: u8,
    /// What it does.
    pub op: Op,
    /// To which path.
    pub path: RelPath,
    /// What is there.
    pub before: Side,
    /// What shall be there.
    pub after: Side,
}

impl Step {
    /// True if the step displaces content that must be banked.
    pub fn displaces(&self) -> bool {
        self.before.kind != SideKind::Absent
    }
}

/// The order of applying: phases, and inside a change of kind what it depends on —
/// what lies below a directory goes before the file takes its place, what comes below
/// a new directory is written after it replaced the file.
pub(super) fn order(steps: &[Step]) -> Vec<usize> {
    let mut by_path: Vec<usize> = (0..steps.len()).collect();
    by_path.sort_by(|a, b| steps[*a].path.cmp(&steps[*b].path));
    // In byte order a path and all below it are not always neighbours ("a", "a-b",
    // "a/c"), so membership is asked by path.
    let mut tops: Vec<&RelPath> =
        steps.iter().filter(|s| s.op == Op::ReplaceKind).map(|s| &s.path).collect();
    tops.sort();
    let owner = |s: &Step| {
        let mut up = s.path.parent();
        while let Some(path) = up {
            if let Ok(at) = tops.binary_search_by(|t| (*t).cmp(&path)) {
                return Some(at);
            }
            up = path.parent();
        }
        None
    };
    let keyed = by_path.into_iter().map(|i| (key(&steps[i], owner(&steps[i]), &tops), i));
    let mut keyed: Vec<_> = keyed.collect();
    // Stable: path order stays inside equal keys; removals run deepest first.
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    keyed.into_iter().map(|(_, i)| i).collect()
}

/// (group, top, place in it, depth from the deepest)
type Key = (u8, usize, u8, std::cmp::Reverse<usize>);

fn key(step: &Step, owner: Option<usize>, tops: &[&RelPath]) -> Key {
    let deep = std::cmp::Reverse(step.path.segments().count());
    let none = std::cmp::Reverse(0);
    let chmod_dir = step.op == Op::Chmod && step.before.kind == SideKind::Dir;
    match (step.op, owner) {
        (Op::ReplaceKind, _) => {
            let at = tops.binary_search_by(|t| (*t).cmp(&step.path)).unwrap_or(0);
            (2, at, 2, none)
        }
        (Op::Delete, Some(top)) => (2, top, 0, none),
        (Op::Rmdir, Some(top)) => (2, top, 1, deep),
        (_, Some(top)) if !chmod_dir => (2, top, 3, none),
        (Op::Delete, _) => (3, 0, 0, none),
        (Op::Rmdir, _) => (4, 0, 0, deep),
        (Op::Chmod, _) if chmod_dir => (5, 0, 0, deep),
        _ => (1, 0, 0, none),
    }
}

mod octal {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mode: &u32, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{mode:04o}"))
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
        let text = String::deserialize(d)?;
        u32::from_str_radix(&text, 8).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_kind_come_after_what_they_need() {
        let file = || Side::file(0o644, 0, Digest::EMPTY);
        let step = |op, path: &str, before, after| Step {
            phase: 1,
            op,
            path: RelPath::parse_text(path).expect("path"),
            before,
            after,
        };
        let steps = [
            step(Op::Write, "f/new", Side::absent(), file()),
            step(Op::Write, "a", Side::absent(), file()),
            step(Op::ReplaceKind, "d", Side::dir(0o755), file()),
            step(Op::ReplaceKind, "f", file(), Side::dir(0o755)),
            step(Op::Delete, "d/x", file(), Side::absent()),
            step(Op::Delete, "d/e/y", file(), Side::absent()),
            step(Op::Rmdir, "d/e", Side::dir(0o755), Side::absent()),
            step(Op::Delete, "z", file(), Side::absent()),
            step(Op::Rmdir, "m", Side::dir(0o755), Side::absent()),
            step(Op::Rmdir, "m/n", Side::dir(0o755), Side::absent()),
            step(Op::Chmod, "q", Side::dir(0o755), Side::dir(0o700)),
        ];
        let names: Vec<String> =
            order(&steps).into_iter().map(|i| steps[i].path.text().into_owned()).collect();
        assert_eq!(names, ["a", "d/e/y", "d/x", "d/e", "d", "f", "f/new", "z", "m/n", "m", "q"]);
    }
}
