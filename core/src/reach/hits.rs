//! From objects back to the snapshots and paths that need them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use super::walk_trees;
use crate::clock::Cancel;
use crate::error::Result;
use crate::ids::{Digest, SnapshotId};
use crate::path;
use crate::snapshot::doc::Snapshot;
use crate::snapshot::tree::{Body, Ref, Tree};
use crate::store::Store;

/// The most paths named for one object.
pub const MAX_PATHS: usize = 100;

/// Who needs an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The snapshots, sorted.
    pub snapshots: BTreeSet<SnapshotId>,
    /// The first paths in byte order, in path text; `.` is the root directory. Empty
    /// for a rule set and for coverage records.
    pub paths: Vec<String>,
    /// How many paths there are.
    pub path_count: u64,
}

/// What one tree says about the wanted objects.
#[derive(Default)]
struct Node {
    /// Names whose own content is wanted.
    direct: Vec<(Vec<u8>, Digest)>,
    /// Directories, by the digest of their tree.
    dirs: Vec<(Vec<u8>, Digest)>,
}

/// Which of `snapshots` need the objects in `wanted`, and under which paths. A name
/// counts when its content, one of its chunks, or the tree of a directory is wanted.
/// Trees that cannot be read have nothing below them.
pub async fn hits(
    store: &dyn Store,
    cancel: &Cancel,
    snapshots: &[Snapshot],
    wanted: &HashSet<Digest>,
) -> Result<BTreeMap<Digest, Hit>> {
    let mut nodes: HashMap<Digest, Node> = HashMap::new();
    if !wanted.is_empty() {
        let roots = snapshots.iter().map(|s| s.root.clone());
        walk_trees(store, cancel, roots, &mut HashSet::new(), |r, tree| {
            nodes.insert(r.digest, tree.map(|t| node(&t, wanted)).unwrap_or_default());
        })
        .await?;
    }
    let dirty = dirty(&nodes);
    let mut found: BTreeMap<Digest, Found> = BTreeMap::new();
    for s in snapshots {
        for d in own_objects(s).filter(|d| wanted.contains(d)) {
            found.entry(d).or_default().snapshots.insert(s.id.clone());
        }
        for d in wanted_of(&s.root, wanted) {
            found.entry(d).or_default().add(&s.id, Vec::new());
        }
        follow(s, &nodes, &dirty, &mut found);
    }
    Ok(found.into_iter().map(|(d, f)| (d, f.into())).collect())
}

#[derive(Default)]
struct Found {
    snapshots: BTreeSet<SnapshotId>,
    paths: BTreeSet<Vec<u8>>,
}

impl Found {
    fn add(&mut self, id: &SnapshotId, path: Vec<u8>) {
        if !self.snapshots.contains(id) {
            self.snapshots.insert(id.clone());
        }
        self.paths.insert(path);
    }
}

impl From<Found> for Hit {
    fn from(f: Found) -> Self {
        let text = |p: &Vec<u8>| match p.is_empty() {
            true => String::from("."),
            false => path::text(p).into_owned(),
        };
        Self {
            snapshots: f.snapshots,
            paths: f.paths.iter().take(MAX_PATHS).map(text).collect(),
            path_count: f.paths.len() as u64,
        }
    }
}

/// Objects of a snapshot that belong to no path: rule set and coverage records.
fn own_objects(s: &Snapshot) -> impl Iterator<Item = Digest> + '_ {
    let refs = std::iter::once(&s.rules).chain(&s.coverage.records_ref);
    refs.flat_map(|r| r.objects().map(|(d, _)| d).chain([r.digest]))
}

/// The wanted objects among a content's own: its chunks and the whole.
fn wanted_of(r: &Ref, wanted: &HashSet<Digest>) -> BTreeSet<Digest> {
    let all = r.objects().map(|(d, _)| d).chain([r.digest]);
    all.filter(|d| wanted.contains(d)).collect()
}

fn node(tree: &Tree, wanted: &HashSet<Digest>) -> Node {
    let mut node = Node::default();
    for e in &tree.entries {
        let (Body::File(r) | Body::Dir(r)) = &e.body else { continue };
        node.direct.extend(wanted_of(r, wanted).into_iter().map(|d| (e.name.clone(), d)));
        if matches!(e.body, Body::Dir(_)) {
            node.dirs.push((e.name.clone(), r.digest));
        }
    }
    node
}

/// The trees with a wanted object anywhere below them.
fn dirty(nodes: &HashMap<Digest, Node>) -> HashSet<Digest> {
    let mut parents: HashMap<Digest, Vec<Digest>> = HashMap::new();
    for (tree, node) in nodes {
        for (_, child) in &node.dirs {
            parents.entry(*child).or_default().push(*tree);
        }
    }
    let direct = nodes.iter().filter(|(_, n)| !n.direct.is_empty());
    let mut todo: Vec<Digest> = direct.map(|(tree, _)| *tree).collect();
    let mut dirty = HashSet::new();
    while let Some(tree) = todo.pop() {
        if dirty.insert(tree) {
            todo.extend(parents.get(&tree).into_iter().flatten());
        }
    }
    dirty
}

/// Records every wanted path of one snapshot, entering dirty trees only.
fn follow(
    s: &Snapshot,
    nodes: &HashMap<Digest, Node>,
    dirty: &HashSet<Digest>,
    found: &mut BTreeMap<Digest, Found>,
) {
    let mut todo = vec![(Vec::new(), s.root.digest)];
    while let Some((path, tree)) = todo.pop() {
        let Some(node) = nodes.get(&tree).filter(|_| dirty.contains(&tree)) else { continue };
        for (name, digest) in &node.direct {
            found.entry(*digest).or_default().add(&s.id, join(&path, name));
        }
        for (name, child) in node.dirs.iter().filter(|(_, c)| dirty.contains(c)) {
            todo.push((join(&path, name), *child));
        }
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
