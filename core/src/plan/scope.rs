//! A scope as a tree of names, so that a walk can skip what it does not reach.

use std::collections::{BTreeMap, BTreeSet};

use super::input::Scope;
use super::types::{PlanScope, ScopeMode};
use crate::ids::Digest;
use crate::path::RelPath;

/// How far a scope reaches from one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It and all below.
    All,
    /// Something below; the number of its node.
    Node(usize),
    /// Nothing below.
    Out,
}

#[derive(Debug, Default)]
struct Node {
    children: BTreeMap<Vec<u8>, usize>,
    listed: bool,
}

/// A scope that answers name by name.
#[derive(Debug)]
pub(super) struct ScopeTree {
    nodes: Vec<Node>,
    /// A listed path covers all below it.
    deep: bool,
    full: bool,
}

impl ScopeTree {
    pub(super) fn new(scope: &Scope) -> Self {
        let deep = matches!(scope, Scope::Paths(_));
        let mut out = Self { nodes: vec![Node::default()], deep, full: *scope == Scope::Full };
        for path in scope.paths().into_iter().flatten() {
            out.add(path);
        }
        out
    }

    fn add(&mut self, path: &RelPath) {
        let mut at = 0;
        for name in path.segments() {
            let next = self.nodes.len();
            let child = *self.nodes[at].children.entry(name.to_vec()).or_insert(next);
            if child == next {
                self.nodes.push(Node::default());
            }
            at = child;
        }
        self.nodes[at].listed = true;
    }

    /// From the root.
    pub(super) fn root(&self) -> Reach {
        let all = self.full || (self.deep && self.nodes[0].listed);
        if all { Reach::All } else { Reach::Node(0) }
    }

    /// For the entry `name` of a directory: how far the scope reaches from it, and
    /// whether it is in scope itself.
    pub(super) fn child(&self, dir: Reach, name: &[u8]) -> (Reach, bool) {
        let Reach::Node(n) = dir else { return (dir, dir == Reach::All) };
        let Some(&child) = self.nodes[n].children.get(name) else { return (Reach::Out, false) };
        let node = &self.nodes[child];
        match (node.listed && self.deep, node.children.is_empty()) {
            (true, _) => (Reach::All, true),
            (false, true) => (Reach::Out, node.listed),
            (false, false) => (Reach::Node(child), node.listed),
        }
    }

    /// [`ScopeTree::child`] for a whole path; the root is in scope only of all.
    pub(super) fn find(&self, path: &RelPath) -> (Reach, bool) {
        let root = self.root();
        path.segments().fold((root, root == Reach::All), |(dir, _), name| self.child(dir, name))
    }
}

impl Scope {
    /// The listed paths; `None` for all.
    pub fn paths(&self) -> Option<&BTreeSet<RelPath>> {
        static NOTHING: BTreeSet<RelPath> = BTreeSet::new();
        match self {
            Self::Full => None,
            Self::Produced(p) | Self::Paths(p) | Self::Touched(p) => Some(p),
            Self::None => Some(&NOTHING),
        }
    }

    /// True if nothing is concerned: nothing need be walked. What a run produced is
    /// compared with the rest, which is named as left, also when it is nothing.
    pub fn is_empty(&self) -> bool {
        !matches!(self, Self::Produced(_)) && self.paths().is_some_and(BTreeSet::is_empty)
    }

    pub(super) fn record(&self) -> PlanScope {
        let mode = match self {
            Self::Full => ScopeMode::Full,
            Self::Produced(_) => ScopeMode::Produced,
            Self::Paths(_) | Self::Touched(_) => ScopeMode::Paths,
            Self::None => ScopeMode::None,
        };
        let digest = |paths: &BTreeSet<RelPath>| {
            let bytes: Vec<u8> =
                paths.iter().flat_map(|p| [p.as_bytes(), b"\0"].concat()).collect();
            Digest::of(&bytes)
        };
        let paths = self.paths();
        PlanScope { mode, count: paths.map(|p| p.len() as u64), digest: paths.map(digest) }
    }
}
