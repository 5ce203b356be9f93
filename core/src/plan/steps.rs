//! The steps of a plan, and the order in which they are applied.

use serde::{Deserialize, Serialize};

use crate::diff::{State, StateKind};
use crate::path::RelPath;

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
    pub before: State,
    /// What shall be there.
    pub after: State,
}

impl Step {
    /// True if the step displaces content that must be banked.
    pub fn displaces(&self) -> bool {
        self.before.kind != StateKind::Absent
    }
}

/// The order of applying: phases, and inside a change of kind what it depends on —
/// what lies below a directory goes before the file takes its place, what comes below
/// a new directory is written after it replaced the file.
pub fn order(steps: &[Step]) -> Vec<usize> {
    keyed(steps).into_iter().map(|(_, i)| i).collect()
}

/// Sorts steps by [`order`] and gives each its phase.
pub(super) fn arrange(steps: &mut Vec<Step>) {
    let keyed = keyed(steps);
    let mut old: Vec<Option<Step>> = steps.drain(..).map(Some).collect();
    steps.extend(keyed.into_iter().filter_map(|(key, i)| {
        let step = old[i].take()?;
        Some(Step { phase: key.0, ..step })
    }));
}

fn keyed(steps: &[Step]) -> Vec<(Key, usize)> {
    let mut by_path: Vec<usize> = (0..steps.len()).collect();
    by_path.sort_by(|a, b| steps[*a].path.cmp(&steps[*b].path));
    // In byte order a path and all below it are not always neighbours ("a", "a-b",
    // "a/c"), so membership is asked by path.
    let mut tops: Vec<&RelPath> =
        steps.iter().filter(|s| s.op == Op::ReplaceKind).map(|s| &s.path).collect();
    tops.sort();
    let owner = |s: &Step| {
        let mut up = s.path.parent().filter(|_| !tops.is_empty());
        while let Some(path) = up {
            if let Ok(at) = tops.binary_search_by(|t| (*t).cmp(&path)) {
                return Some(at);
            }
            up = path.parent();
        }
        None
    };
    let key_of = |i: usize| (key(&steps[i], owner(&steps[i]), &tops), i);
    let mut keyed: Vec<(Key, usize)> = by_path.into_iter().map(key_of).collect();
    // Stable: path order stays inside equal keys; removals run deepest first.
    keyed.sort_by_key(|a| a.0);
    keyed
}

/// (phase, top, place in it, depth from the deepest)
type Key = (u8, usize, u8, std::cmp::Reverse<usize>);

fn key(step: &Step, owner: Option<usize>, tops: &[&RelPath]) -> Key {
    let deep = std::cmp::Reverse(step.path.segments().count());
    let none = std::cmp::Reverse(0);
    let chmod_dir = step.op == Op::Chmod && step.before.kind == StateKind::Dir;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Digest;

    #[test]
    fn changes_of_kind_come_after_what_they_need() {
        let file = || State::file(0o644, 0, Digest::EMPTY);
        let step = |op, path: &str, before, after| Step {
            phase: 1,
            op,
            path: RelPath::parse_text(path).expect("path"),
            before,
            after,
        };
        let steps = [
            step(Op::Write, "f/new", State::absent(), file()),
            step(Op::Write, "a", State::absent(), file()),
            step(Op::ReplaceKind, "d", State::dir(0o755), file()),
            step(Op::ReplaceKind, "f", file(), State::dir(0o755)),
            step(Op::Delete, "d/x", file(), State::absent()),
            step(Op::Delete, "d/e/y", file(), State::absent()),
            step(Op::Rmdir, "d/e", State::dir(0o755), State::absent()),
            step(Op::Delete, "z", file(), State::absent()),
            step(Op::Rmdir, "m", State::dir(0o755), State::absent()),
            step(Op::Rmdir, "m/n", State::dir(0o755), State::absent()),
            step(Op::Chmod, "q", State::dir(0o755), State::dir(0o700)),
        ];
        let names: Vec<String> =
            order(&steps).into_iter().map(|i| steps[i].path.text().into_owned()).collect();
        assert_eq!(names, ["a", "d/e/y", "d/x", "d/e", "d", "f", "f/new", "z", "m/n", "m", "q"]);
    }
}
