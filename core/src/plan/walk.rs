//! The walk over target and workspace together: one node a directory, each name judged
//! once, directories closed from below at the end.

use super::decide::Name;
use super::draft::Draft;
use super::input::{Base, PlanInput};
use super::pairs::{Paired, pairs};
use super::scope::Reach;
use super::target::Side;
use crate::diff::State;
use crate::error::{Error, Result};
use crate::observe::{ObservedDir, ObservedEntry, What};
use crate::path::{MAX_DEPTH, RelPath};
use crate::snapshot::tree::{Body, Ref};

/// More target entries than this are no directory anybody works in: shared subtrees
/// could spell more paths than fit anywhere.
const MAX_ENTRIES: u64 = 10_000_000;

/// The base's side of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) enum BaseDir<'a> {
    /// Nothing is compared.
    None,
    /// States by path are.
    States,
    /// A directory of the base's trees.
    Tree(Side<'a>),
}

/// What becomes of a directory once all below it is judged.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// It is there and stays.
    Stays,
    /// It is not there; made when wanted, or when something below needs it.
    Missing {
        /// Its recorded mode.
        mode: u32,
        /// It is in scope itself, and nothing is against making it.
        wanted: bool,
    },
    /// The target does not have it: taken away when this plan empties it, or when it is
    /// empty and was chosen by name.
    Extra {
        /// It may go.
        may_go: bool,
        /// It was empty and chosen by name.
        named: bool,
    },
    /// A step of its own deals with it.
    Settled,
}

/// A directory under way.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) path: RelPath,
    pub(super) parent: Option<usize>,
    pub(super) depth: usize,
    pub(super) target: Side<'a>,
    /// Its number in the observation.
    pub(super) disk: Option<usize>,
    pub(super) base: BaseDir<'a>,
    pub(super) reach: Reach,
    /// What is in it is looked at.
    pub(super) walks: bool,
    pub(super) fate: Fate,
    /// Something in it stays.
    pub(super) stays: bool,
    /// Names this plan takes out of it.
    pub(super) removed: u64,
    /// Steps below that need it.
    pub(super) needed: bool,
}

/// The walk.
pub(super) struct Walk<'a, 'b> {
    pub(super) input: &'b PlanInput<'a>,
    pub(super) draft: &'b mut Draft<'a>,
    pub(super) nodes: Vec<Node<'a>>,
    entries: u64,
}

impl<'a, 'b> Walk<'a, 'b> {
    /// Walks everything in scope and fills the draft.
    pub(super) fn run(input: &'b PlanInput<'a>, draft: &'b mut Draft<'a>) -> Result<()> {
        let disk = input.observed.and_then(|o| o.dirs.first());
        let base = match input.base {
            Base::None => BaseDir::None,
            Base::States(_) => BaseDir::States,
            Base::Tree(view) => BaseDir::Tree(view.dir(view.root(), disk)?),
        };
        let root = Node {
            path: RelPath::root(),
            parent: None,
            depth: 0,
            target: input.view.dir(input.view.root(), disk)?,
            disk: disk.map(|_| 0),
            base,
            reach: draft.scope.root(),
            walks: true,
            fate: Fate::Stays,
            stays: false,
            removed: 0,
            needed: false,
        };
        let mut walk = Self { input, draft, nodes: vec![root], entries: 0 };
        let mut at = 0;
        // children are put behind their parents, so that the way back meets them first
        while at < walk.nodes.len() {
            walk.directory(at)?;
            at += 1;
        }
        for n in (1..walk.nodes.len()).rev() {
            walk.close(n);
        }
        Ok(())
    }

    /// The directory with this number in the observation.
    pub(super) fn disk(&self, index: usize) -> Option<&'a ObservedDir> {
        self.input.observed.and_then(|o| o.dirs.get(index))
    }

    fn directory(&mut self, n: usize) -> Result<()> {
        let node = &self.nodes[n];
        if !node.walks || (matches!(node.target, Side::Same) && self.counted(n)) {
            return Ok(());
        }
        let node = &self.nodes[n];
        let (target, path) = (node.target, node.path.clone());
        let disk = node.disk.and_then(|i| self.disk(i));
        let paired = pairs(target, disk, self.input.case_folding);
        for (a, b) in paired.clashes {
            self.draft.clash(&path.join(a), &path.join(b));
        }
        for pair in paired.pairs {
            self.entries += u64::from(pair.target.is_some());
            if self.entries > MAX_ENTRIES {
                let why = format!("the target holds more than {MAX_ENTRIES} entries");
                return Err(Error::corrupt(why));
            }
            self.name(n, &pair)?;
        }
        Ok(())
    }

    /// Counts a directory that is as recorded without looking at each name. False if
    /// names must be looked at: the scope is partial, or something in it is not covered.
    fn counted(&mut self, n: usize) -> bool {
        let node = &self.nodes[n];
        let Some(sum) = node.disk.and_then(|i| self.draft.sums.get(i).copied()) else {
            return false;
        };
        if node.reach != Reach::All || sum.odd || self.draft.keeps_below(&node.path) {
            return false;
        }
        self.draft.counts.unchanged += sum.leaves;
        self.nodes[n].stays = true;
        true
    }

    /// Judges one name.
    fn name(&mut self, n: usize, pair: &Paired<'a>) -> Result<()> {
        let node = &self.nodes[n];
        let recorded = node.path.join(pair.name);
        let mut found = self.draft.scope.child(node.reach, pair.name);
        // What is there is touched, banked and undone under the name it has.
        let path = pair.respelled.map_or_else(|| recorded.clone(), |now| node.path.join(now));
        if let Some(now) = pair.respelled
            && found == (Reach::Out, false)
        {
            found = self.draft.scope.child(node.reach, now);
        }
        let (reach, in_scope) = found;
        let looks = in_scope || reach != Reach::Out || self.draft.lists_left;
        if !looks || self.draft.is_kept(&path) || self.input.cover.record(&recorded).is_some() {
            self.nodes[n].stays |= pair.disk.is_some();
            return Ok(());
        }
        // as recorded: the target's entry is the one on disk
        let same = matches!(node.target, Side::Same);
        if pair.respelled.is_some() {
            self.draft.respelled.insert(path.clone(), recorded);
        }
        let base = self.base_state(self.nodes[n].base, pair.name, &path, pair.disk);
        let (target, disk) = (pair.target, pair.disk);
        self.decide(n, Name { path, in_scope, reach, same, base, target, disk })
    }

    /// What the base has at a name; `None` when nothing is compared.
    pub(super) fn base_state(
        &self,
        dir: BaseDir<'a>,
        name: &[u8],
        path: &RelPath,
        disk: Option<&ObservedEntry>,
    ) -> Option<State> {
        match dir {
            BaseDir::None => None,
            BaseDir::States => match self.input.base {
                Base::States(states) => {
                    let recorded = || states.get(self.draft.respelled.get(path)?);
                    states.get(path).or_else(recorded).cloned()
                }
                _ => None,
            },
            BaseDir::Tree(Side::Absent) => Some(State::absent()),
            BaseDir::Tree(Side::Same) => Some(disk.map_or_else(State::absent, disk_state)),
            BaseDir::Tree(Side::Tree(tree)) => {
                Some(tree.get(name).map_or_else(State::absent, State::of_entry))
            }
        }
    }

    /// The base's directory called `name`, beside the workspace's.
    pub(super) fn base_child(
        &self,
        dir: BaseDir<'a>,
        name: &[u8],
        disk: Option<&'a ObservedDir>,
    ) -> Result<BaseDir<'a>> {
        let BaseDir::Tree(side) = dir else { return Ok(dir) };
        let recorded = disk.is_some_and(|d| d.recorded);
        let child = match side {
            Side::Same if recorded => Side::Same,
            Side::Same | Side::Absent => Side::Absent,
            Side::Tree(tree) => match (tree.get(name).map(|e| &e.body), self.input.base) {
                (Some(Body::Dir(r)), Base::Tree(view)) => view.dir(r, disk)?,
                _ => Side::Absent,
            },
        };
        Ok(BaseDir::Tree(child))
    }

    /// Puts a directory behind node `n`, to be walked.
    pub(super) fn descend(
        &mut self,
        n: usize,
        name: &Name<'a>,
        tree: Option<&Ref>,
        index: Option<usize>,
        fate: Fate,
    ) -> Result<()> {
        let depth = self.nodes[n].depth + 1;
        if depth > MAX_DEPTH {
            let why = format!("directory {} lies deeper than {MAX_DEPTH} levels", name.path);
            return Err(Error::corrupt(why));
        }
        let walks = name.reach != Reach::Out || self.draft.lists_left;
        let disk = index.and_then(|i| self.disk(i));
        let target = match tree {
            _ if !walks => Side::Absent,
            _ if name.same => Side::Same,
            Some(tree) => self.input.view.dir(tree, disk)?,
            None => Side::Absent,
        };
        let base = match walks {
            true => self.base_child(self.nodes[n].base, name.path.name(), disk)?,
            false => BaseDir::None,
        };
        // a directory chosen alone: it stays if anything is in it
        let stays = !walks && disk.is_some_and(|d| !d.entries.is_empty());
        let (path, reach) = (name.path.clone(), name.reach);
        self.nodes.push(Node {
            path,
            parent: Some(n),
            depth,
            target,
            disk: index,
            base,
            reach,
            walks,
            fate,
            stays,
            removed: 0,
            needed: false,
        });
        Ok(())
    }

    /// Decides about a directory whose inside is judged, and tells the one above.
    fn close(&mut self, n: usize) {
        let node = &self.nodes[n];
        let Some(up) = node.parent else { return };
        let (path, empties) = (node.path.clone(), !node.stays && node.removed > 0);
        let empty = !node.stays && node.removed == 0;
        match node.fate {
            Fate::Stays => self.nodes[up].stays = true,
            Fate::Settled => {}
            Fate::Missing { mode, wanted } => {
                if wanted || node.needed {
                    self.draft.mkdir(&path, mode);
                    self.nodes[up].needed = true;
                }
            }
            Fate::Extra { may_go, named } => {
                let mode = node.disk.and_then(|i| self.disk(i)).map(|d| d.stat.mode);
                match mode {
                    Some(mode) if may_go && (empties || (named && empty)) => {
                        self.draft.rmdir(&path, mode);
                        self.nodes[up].removed += 1;
                    }
                    _ => self.nodes[up].stays = true,
                }
            }
        }
    }
}

/// The state of a covered entry on disk.
pub(super) fn disk_state(entry: &ObservedEntry) -> State {
    match &entry.what {
        What::File(r) => State::file(entry.stat.mode, r.length, r.digest),
        What::Symlink(target) => State::symlink(target),
        What::Dir(_) => State::dir(entry.stat.mode),
        What::Skipped(_) | What::Unobserved(_) | What::Excluded(_) => State::absent(),
    }
}
