//! The evaluator of a rule set: answers for any path, then or now.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::decide::DirRules;
use super::decision::{Decision, EntryKind, MarkerKind};
use super::file::RuleFile;
use super::set::RuleSet;
use crate::path::RelPath;

/// Answers for any path under one rule set, by the same evaluation as the walk's.
///
/// Asking in tree order is cheap: the directories of the last path are remembered.
#[derive(Debug)]
pub struct Matcher {
    set: RuleSet,
    files: HashMap<RelPath, usize>,
    markers: HashSet<RelPath>,
    root: DirRules,
    last: Mutex<Vec<(Box<[u8]>, DirRules)>>,
}

impl Matcher {
    pub(super) fn new(set: RuleSet) -> Self {
        let by_dir =
            |(i, file): (usize, &Arc<RuleFile>)| (file.path().parent().unwrap_or_default(), i);
        let files: HashMap<_, _> = set.files().iter().enumerate().map(by_dir).collect();
        let markers = set.markers().iter().cloned().collect();
        let root = set.root(files.get(&RelPath::root()).map(|i| &set.files()[*i]));
        Self { set, files, markers, root, last: Mutex::default() }
    }

    /// The rule set this answers from.
    pub fn rule_set(&self) -> &RuleSet {
        &self.set
    }

    /// Judges `path`, an entry of this kind. The root is always stored.
    pub fn decide(&self, path: &RelPath, kind: EntryKind) -> Decision {
        match path.parent() {
            None => Decision::stored_root(),
            Some(dir) => self.judge(&self.dir(&dir), path.name(), kind),
        }
    }

    /// True if the rules keep `path` out: excluded, or a secret.
    pub fn is_out(&self, path: &RelPath, kind: EntryKind) -> bool {
        !self.decide(path, kind).is_stored()
    }

    /// The rules inside the directory `path`.
    pub fn dir(&self, path: &RelPath) -> DirRules {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = path.segments().zip(last.iter()).take_while(|(a, (b, _))| *a == &**b).count();
        last.truncate(same);
        for name in path.segments().skip(same) {
            let above = last.last().map_or(&self.root, |(_, dir)| dir);
            let decision = self.judge(above, name, EntryKind::Dir);
            let file = self.files.get(&above.path().join(name)).map(|i| &self.set.files()[*i]);
            let dir = above.enter(name, &decision, file);
            last.push((name.into(), dir));
        }
        last.last().map_or(&self.root, |(_, dir)| dir).clone()
    }

    pub(super) fn judge(&self, dir: &DirRules, name: &[u8], kind: EntryKind) -> Decision {
        let decision = dir.decide(name, kind);
        if kind == EntryKind::Dir
            && !self.markers.is_empty()
            && self.markers.contains(&dir.path().join(name))
        {
            return dir.mark(name, &decision, MarkerKind::Recorded);
        }
        decision
    }
}
