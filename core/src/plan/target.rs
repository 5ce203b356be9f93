//! The target's trees, read and validated before planning, as far as they differ from
//! the workspace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::input::Scope;
use super::scope::{Reach, ScopeTree};
use crate::diff::TreeSource;
use crate::error::{Error, Result};
use crate::ids::Digest;
use crate::observe::{Observed, ObservedDir, What};
use crate::path::{MAX_DEPTH, RelPath};
use crate::snapshot::tree::{Body, Ref, Tree};

/// Trees asked for at once.
const BATCH: usize = 256;

/// A recorded state beside the workspace: its trees where they differ.
#[derive(Debug)]
pub struct TargetView {
    root: Ref,
    trees: HashMap<Digest, Arc<Tree>>,
}

/// A directory of a [`TargetView`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Side<'a> {
    /// There is none.
    Absent,
    /// Its tree equals that of the workspace's directory.
    Same,
    /// Its tree.
    Tree(&'a Tree),
}

impl TargetView {
    /// The root tree.
    pub fn root(&self) -> &Ref {
        &self.root
    }

    /// The directory with this tree, beside the workspace's `disk`.
    pub(super) fn dir(&self, tree: &Ref, disk: Option<&ObservedDir>) -> Result<Side<'_>> {
        if disk.is_some_and(|d| d.tree.as_ref() == Some(tree)) {
            return Ok(Side::Same);
        }
        let found = self.trees.get(&tree.digest).map(|t| Side::Tree(t));
        found.ok_or_else(|| {
            Error::failed("internal", format!("tree {} was not loaded for the plan", tree.digest))
        })
    }

    /// Whether the target has an entry at `path`, as far as it was loaded.
    pub(super) fn holds(&self, path: &RelPath, observed: Option<&Observed>) -> bool {
        let mut here = RelPath::root();
        let mut tree = self.root.clone();
        let mut names = path.segments().peekable();
        while let Some(name) = names.next() {
            let found = match self.dir(&tree, observed.and_then(|o| o.dir(&here))) {
                Ok(Side::Tree(found)) => found,
                Ok(Side::Same) => return observed.is_some_and(|o| recorded(o, path)),
                Ok(Side::Absent) | Err(_) => return false,
            };
            match (found.get(name).map(|e| &e.body), names.peek()) {
                (Some(_), None) => return true,
                (Some(Body::Dir(next)), Some(_)) => tree = next.clone(),
                _ => return false,
            }
            here = here.join(name);
        }
        true
    }
}

/// True if the workspace's own tree holds `path`.
fn recorded(observed: &Observed, path: &RelPath) -> bool {
    match observed.entry(path).map(|e| &e.what) {
        Some(What::File(_) | What::Symlink(_)) => true,
        Some(What::Dir(i)) => observed.dirs[*i].recorded,
        _ => false,
    }
}

/// A directory still to be read.
struct Open {
    path: RelPath,
    tree: Ref,
    disk: Option<usize>,
    reach: Reach,
}

/// Reads the trees of `root` that the workspace does not hold in the same place, as far
/// as `scope` needs them. Every tree is re-hashed and decoded; the first one that is
/// missing, wrong or refused by the decoder refuses the whole (`Corrupt`), named by
/// directory and digest.
pub async fn load_target(
    source: &dyn TreeSource,
    root: &Ref,
    observed: Option<&Observed>,
    scope: &Scope,
) -> Result<TargetView> {
    let tree = ScopeTree::new(scope);
    // what a run did not produce is compared too, to say what a rewind leaves
    let whole = matches!(scope, Scope::Full | Scope::Produced(_));
    let reach = if whole { Reach::All } else { tree.root() };
    let mut view = TargetView { root: root.clone(), trees: HashMap::new() };
    let mut open = Vec::new();
    if !scope.is_empty() {
        let disk = observed.map(|_| 0);
        open.push(Open { path: RelPath::root(), tree: root.clone(), disk, reach });
    }
    let mut seen = HashSet::new();
    while !open.is_empty() {
        let mut batch = open.split_off(open.len().saturating_sub(BATCH));
        batch.retain(|o| !skip(o, observed, &mut seen));
        let refs: Vec<Ref> = batch.iter().map(|o| o.tree.clone()).collect();
        for (o, found) in batch.into_iter().zip(source.trees(&refs).await?) {
            let found = found.map_err(|e| crate::diff::at(&o.path, e))?;
            below(&o, &found, observed, &tree, &mut open)?;
            view.trees.insert(o.tree.digest, found);
        }
    }
    Ok(view)
}

/// True for a directory that need not be read: the workspace holds the same, or it has
/// nothing there and the tree was read before.
fn skip(
    o: &Open,
    observed: Option<&Observed>,
    seen: &mut HashSet<(Digest, Option<usize>, Option<usize>)>,
) -> bool {
    let disk = o.disk.and_then(|i| observed.map(|all| &all.dirs[i]));
    let node = match o.reach {
        Reach::Node(n) => Some(n),
        _ => None,
    };
    disk.is_some_and(|d| d.tree.as_ref() == Some(&o.tree))
        || !seen.insert((o.tree.digest, o.disk, node))
}

fn below(
    o: &Open,
    tree: &Tree,
    observed: Option<&Observed>,
    scope: &ScopeTree,
    open: &mut Vec<Open>,
) -> Result<()> {
    let disk = o.disk.and_then(|i| observed.map(|all| (all, &all.dirs[i])));
    for entry in &tree.entries {
        let Body::Dir(child) = &entry.body else { continue };
        let (reach, _) = scope.child(o.reach, &entry.name);
        if reach == Reach::Out {
            continue;
        }
        let path = o.path.join(&entry.name);
        if path.segments().count() > MAX_DEPTH {
            let why = format!("directory {path} lies deeper than {MAX_DEPTH} levels");
            return Err(Error::corrupt(why).with_paths([path.text().into_owned()]));
        }
        let disk = disk.and_then(|(_, dir)| child_dir(dir, &entry.name));
        open.push(Open { path, tree: child.clone(), disk, reach });
    }
    Ok(())
}

fn child_dir(dir: &ObservedDir, name: &[u8]) -> Option<usize> {
    let at = dir.entries.binary_search_by(|e| (*e.name).cmp(name)).ok()?;
    match dir.entries[at].what {
        What::Dir(i) => Some(i),
        _ => None,
    }
}
