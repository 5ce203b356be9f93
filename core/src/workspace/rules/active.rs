//! A rule file at work: the patterns that can still match in one directory.

use std::sync::Arc;

use super::file::RuleFile;
use super::pattern::{PathPattern, Pattern, Shape};
use crate::path::RelPath;

/// A rule file, and how far its path patterns have come on the way to a directory.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) file: Arc<RuleFile>,
    /// Ascending by pattern. What is not listed cannot match here or below.
    pub(super) alive: Vec<Alive>,
}

/// A path pattern and its state in the present directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alive {
    pub(super) pattern: u32,
    pub(super) state: u64,
}

impl Active {
    pub(super) fn new(file: &Arc<RuleFile>) -> Option<Self> {
        if file.patterns.is_empty() {
            return None;
        }
        let start = |i: &u32| match &file.pattern(*i).shape {
            Shape::Path(p) => Some(Alive { pattern: *i, state: p.start() }),
            Shape::Name(_) => None,
        };
        let alive = file.anchored.iter().filter_map(start).collect();
        Some(Self { file: Arc::clone(file), alive })
    }

    pub(super) fn enter(&self, name: &[u8]) -> Self {
        let step = |a: &Alive| {
            let path = self.path_pattern(a.pattern)?;
            let state = path.step(a.state, name);
            path.alive(state).then_some(Alive { pattern: a.pattern, state })
        };
        let alive = self.alive.iter().filter_map(step).collect();
        Self { file: Arc::clone(&self.file), alive }
    }

    pub(super) fn path_pattern(&self, index: u32) -> Option<&PathPattern> {
        match &self.file.pattern(index).shape {
            Shape::Path(p) => Some(p),
            Shape::Name(_) => None,
        }
    }

    /// How far a path pattern has come in the present directory; 0: it cannot match.
    pub(super) fn state_of(&self, pattern: u32) -> u64 {
        let found = self.alive.binary_search_by_key(&pattern, |a| a.pattern);
        found.map_or(0, |i| self.alive[i].state)
    }

    pub(super) fn last_match(&self, name: &[u8], is_dir: bool, dir: &RelPath) -> Option<u32> {
        let best = self.file.last_name_match(name, is_dir);
        for alive in self.alive.iter().rev() {
            if best.is_some_and(|best| alive.pattern < best) {
                break;
            }
            let pattern = self.file.pattern(alive.pattern);
            if self.path_matches(pattern, alive.state, name, is_dir, dir) {
                return Some(alive.pattern);
            }
        }
        best
    }

    fn path_matches(
        &self,
        pattern: &Pattern,
        state: u64,
        name: &[u8],
        is_dir: bool,
        dir: &RelPath,
    ) -> bool {
        let Shape::Path(path) = &pattern.shape else {
            return false;
        };
        let full = || dir.join(name).as_bytes()[self.file.base_len()..].to_vec();
        (is_dir || !pattern.dir_only) && path.matches_child(state, name, full)
    }

    /// True if this one line matches the entry `name` of `dir`.
    pub(super) fn matches(
        &self,
        index: u32,
        pattern: &Pattern,
        name: &[u8],
        is_dir: bool,
        dir: &RelPath,
    ) -> bool {
        match &pattern.shape {
            Shape::Name(m) => (is_dir || !pattern.dir_only) && m.matches(name),
            Shape::Path(_) => self.path_matches(pattern, self.state_of(index), name, is_dir, dir),
        }
    }
}
