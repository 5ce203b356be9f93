//! The one comparison of two trees, level by level, skipping what is equal.

use std::sync::Arc;

use super::source::TreeSource;
use crate::error::{Error, Result};
use crate::path::{MAX_DEPTH, RelPath};
use crate::snapshot::tree::{Body, Entry, Ref, Tree};

/// Directories compared at once: bounds the trees held in memory.
const BATCH: usize = 256;

/// One side of a comparison: a root tree and where its trees are.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The root tree; `None` for a side that holds nothing.
    pub root: Option<&'a Ref>,
    /// Where its trees come from.
    pub trees: &'a dyn TreeSource,
}

/// One name whose entries differ. At least one side is there.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Where.
    pub path: &'a RelPath,
    /// The entry on the old side.
    pub from: Option<&'a Entry>,
    /// The entry on the new side.
    pub to: Option<&'a Entry>,
}

/// A pair of directories still to be compared; a side is `None` when no directory is
/// there.
struct Open {
    path: RelPath,
    depth: usize,
    from: Option<Ref>,
    to: Option<Ref>,
}

/// Calls `visit` for each name whose entries differ, a directory before what it holds
/// but otherwise in no useful order. A directory whose tree alone differs is visited
/// too. `visit` says whether to look below: equal subtrees never are, and a subtree
/// that one side lacks is visited entry by entry.
///
/// Fails with the source's error, naming the directory; deeper than 4,096 levels is
/// `Corrupt`.
pub async fn walk(
    from: Side<'_>,
    to: Side<'_>,
    visit: &mut (dyn FnMut(Pair<'_>) -> Result<bool> + Send),
) -> Result<()> {
    if from.root == to.root {
        return Ok(());
    }
    let root = RelPath::root();
    // a stack, so that memory is bounded by depth and width, not by the tree
    let mut open =
        vec![Open { path: root, depth: 0, from: from.root.cloned(), to: to.root.cloned() }];
    while !open.is_empty() {
        let batch = open.split_off(open.len().saturating_sub(BATCH));
        let old = load(from.trees, &batch, |o| o.from.as_ref()).await?;
        let new = load(to.trees, &batch, |o| o.to.as_ref()).await?;
        for ((pair, a), b) in batch.iter().zip(&old).zip(&new) {
            compare(pair, a.as_deref(), b.as_deref(), visit, &mut open)?;
        }
    }
    Ok(())
}

/// The trees of one side of a batch, `None` where that side has no directory.
async fn load(
    source: &dyn TreeSource,
    batch: &[Open],
    side: impl Fn(&Open) -> Option<&Ref>,
) -> Result<Vec<Option<Arc<Tree>>>> {
    let refs: Vec<Ref> = batch.iter().filter_map(|o| side(o).cloned()).collect();
    if refs.is_empty() {
        return Ok(vec![None; batch.len()]);
    }
    let mut trees = source.trees(&refs).await?.into_iter();
    let one = |o: &Open| match side(o) {
        None => Ok(None),
        Some(r) => match trees.next() {
            Some(tree) => tree.map(Some).map_err(|e| at(&o.path, e)),
            None => Err(Error::corrupt(format!("tree {} was not answered", r.digest))),
        },
    };
    batch.iter().map(one).collect()
}

/// Names the directory an error of its tree was met at.
pub(crate) fn at(path: &RelPath, e: Error) -> Error {
    let place = if path.is_root() { String::from("the root") } else { path.to_string() };
    e.context(format!("directory {place}")).with_paths([path.text().into_owned()])
}

fn compare(
    open: &Open,
    from: Option<&Tree>,
    to: Option<&Tree>,
    visit: &mut (dyn FnMut(Pair<'_>) -> Result<bool> + Send),
    next: &mut Vec<Open>,
) -> Result<()> {
    let from = from.map_or(&[][..], |t| t.entries.as_slice());
    let to = to.map_or(&[][..], |t| t.entries.as_slice());
    for (a, b) in merge(from, to) {
        if a == b {
            continue;
        }
        let Some(name) = a.or(b).map(|e| e.name.as_slice()) else { continue };
        let path = open.path.join(name);
        let descend = visit(Pair { path: &path, from: a, to: b })?;
        let (old, new) = (dir(a), dir(b));
        if !descend || old == new {
            continue;
        }
        if open.depth + 1 >= MAX_DEPTH {
            let why = format!("directory {path} lies deeper than {MAX_DEPTH} levels");
            return Err(Error::corrupt(why).with_paths([path.text().into_owned()]));
        }
        let (old, new) = (old.cloned(), new.cloned());
        next.push(Open { path, depth: open.depth + 1, from: old, to: new });
    }
    Ok(())
}

fn dir(e: Option<&Entry>) -> Option<&Ref> {
    match e.map(|e| &e.body) {
        Some(Body::Dir(r)) => Some(r),
        _ => None,
    }
}

/// Pairs two sorted lists by name.
fn merge<'a>(
    mut a: &'a [Entry],
    mut b: &'a [Entry],
) -> impl Iterator<Item = (Option<&'a Entry>, Option<&'a Entry>)> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    std::iter::from_fn(move || {
        let order = match (a.first(), b.first()) {
            (None, None) => return None,
            (Some(_), None) => Less,
            (None, Some(_)) => Greater,
            (Some(x), Some(y)) => x.name.cmp(&y.name),
        };
        let left = (order != Greater).then(|| take(&mut a)).flatten();
        let right = (order != Less).then(|| take(&mut b)).flatten();
        debug_assert!(order != Equal || (left.is_some() && right.is_some()));
        Some((left, right))
    })
}

fn take<'a>(list: &mut &'a [Entry]) -> Option<&'a Entry> {
    let (first, rest) = list.split_first()?;
    *list = rest;
    Some(first)
}
