//! What a capture stored against its parent: counts, and which references are new.

use super::walk::{Pair, Side, walk};
use crate::error::Result;
use crate::path::RelPath;
use crate::snapshot::doc::Delta;
use crate::snapshot::tree::{Body, Entry, Ref};

/// A reference of the new tree that the base does not hold at the same path.
#[derive(Clone, Copy, Debug)]
pub struct NewRef<'a> {
    /// Where; the root path for the root tree.
    pub path: &'a RelPath,
    /// It names a tree, not a file's content.
    pub is_tree: bool,
    /// The base has nothing at this path.
    pub added: bool,
    /// The reference.
    pub reference: &'a Ref,
}

/// Changed paths, files and links apart from directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaCounts {
    /// Files and links: what `3 new, 1 changed, 2 deleted` counts.
    pub files: Delta,
    /// Directories; one is modified when its own mode changed.
    pub dirs: Delta,
}

impl DeltaCounts {
    /// All paths, of whatever kind.
    pub fn paths(&self) -> Delta {
        Delta {
            added: self.files.added + self.dirs.added,
            modified: self.files.modified + self.dirs.modified,
            deleted: self.files.deleted + self.dirs.deleted,
        }
    }
}

/// Compares `base` (the parent's tree, or nothing) with `new`. A path that became
/// another kind counts as deleted and added. `on_new` is called once for every path of
/// the new tree whose content or tree the base does not hold there, the root's first.
///
/// Only differing trees are loaded, a batch of directories at a time.
///
/// ```
/// # use backtrail_core::{diff::{Memory, Side, delta}, ids::Digest};
/// # use backtrail_core::snapshot::tree::{Body, Entry, Ref, Tree};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut trees = Memory::default();
/// let body = Body::File(Ref::whole(1, Digest::of(b"x")));
/// let root = trees.add(Tree { entries: vec![Entry { name: b"a".into(), mode: 0o644, body }] })?;
/// let (old, new) = (Side { root: None, trees: &trees }, Side { root: Some(&root), trees: &trees });
/// let counts = delta(old, new, &mut |_| {}).await?;
/// assert_eq!(counts.files.added, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn delta(
    base: Side<'_>,
    new: Side<'_>,
    on_new: &mut (dyn FnMut(NewRef<'_>) + Send),
) -> Result<DeltaCounts> {
    let mut counts = DeltaCounts::default();
    if let Some(reference) = new.root.filter(|r| base.root != Some(*r)) {
        let added = base.root.is_none();
        on_new(NewRef { path: &RelPath::root(), is_tree: true, added, reference });
    }
    walk(base, new, &mut |pair| {
        count(&mut counts, &pair);
        report(&pair, on_new);
        Ok(true)
    })
    .await?;
    Ok(counts)
}

fn count(counts: &mut DeltaCounts, pair: &Pair<'_>) {
    let is_dir = |e: &Entry| matches!(e.body, Body::Dir(_));
    match (pair.from, pair.to) {
        (Some(a), Some(b)) if kind(a) == kind(b) => {
            let changed = u64::from(!is_dir(a) || a.mode != b.mode);
            counts.of(is_dir(a)).modified += changed;
        }
        (a, b) => {
            if let Some(a) = a {
                counts.of(is_dir(a)).deleted += 1;
            }
            if let Some(b) = b {
                counts.of(is_dir(b)).added += 1;
            }
        }
    }
}

impl DeltaCounts {
    fn of(&mut self, dir: bool) -> &mut Delta {
        if dir { &mut self.dirs } else { &mut self.files }
    }
}

/// File and link are one kind here: a path that is one or the other was modified.
fn kind(e: &Entry) -> bool {
    matches!(e.body, Body::Dir(_))
}

fn report(pair: &Pair<'_>, on_new: &mut (dyn FnMut(NewRef<'_>) + Send)) {
    let Some(new) = pair.to else { return };
    let held = |r: &Ref| match pair.from.map(|e| &e.body) {
        Some(Body::File(old) | Body::Dir(old)) => old == r,
        _ => false,
    };
    let (Body::File(reference) | Body::Dir(reference)) = &new.body else { return };
    if !held(reference) {
        let is_tree = matches!(new.body, Body::Dir(_));
        let added = pair.from.is_none();
        on_new(NewRef { path: pair.path, is_tree, added, reference });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::Memory;
    use crate::ids::Digest;
    use crate::snapshot::tree::Tree;

    fn file(name: &str, content: &str) -> Entry {
        let reference = Ref::whole(content.len() as u64, Digest::of(content.as_bytes()));
        Entry { name: name.into(), mode: 0o644, body: Body::File(reference) }
    }

    fn dir(trees: &mut Memory, name: &str, mode: u32, entries: Vec<Entry>) -> Entry {
        let reference = trees.add(Tree { entries }).expect("a valid tree");
        Entry { name: name.into(), mode, body: Body::Dir(reference) }
    }

    fn run(trees: &Memory, from: Option<&Ref>, to: &Ref) -> (DeltaCounts, Vec<String>) {
        let mut seen = Vec::new();
        let (from, to) = (Side { root: from, trees }, Side { root: Some(to), trees });
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let counts = runtime.block_on(delta(from, to, &mut |n| {
            seen.push(n.path.text().into_owned());
        }));
        seen.sort();
        (counts.expect("compares"), seen)
    }

    #[test]
    fn the_first_capture_counts_every_path() {
        let mut trees = Memory::default();
        let d = dir(&mut trees, "d", 0o755, vec![file("x", "1"), file("y", "2")]);
        let root = trees.add(Tree { entries: vec![file("a", "0"), d] }).expect("root");
        let (counts, seen) = run(&trees, None, &root);
        assert_eq!(counts.files, Delta { added: 3, modified: 0, deleted: 0 });
        assert_eq!(counts.dirs.added, 1);
        assert_eq!(seen, ["", "a", "d", "d/x", "d/y"]);
    }

    #[test]
    fn equal_subtrees_are_not_loaded_and_changes_are_counted() {
        let mut trees = Memory::default();
        let same = Entry {
            name: b"same".into(),
            mode: 0o755,
            body: Body::Dir(Ref::whole(8, Digest::of(b"never loaded"))),
        };
        let old_d = dir(&mut trees, "d", 0o755, vec![file("gone", "1"), file("kept", "2")]);
        let new_d = dir(&mut trees, "d", 0o700, vec![file("kept", "22"), file("new", "3")]);
        let old = trees.add(Tree { entries: vec![old_d, same.clone()] }).expect("old");
        let new = trees.add(Tree { entries: vec![new_d, same] }).expect("new");
        let (counts, seen) = run(&trees, Some(&old), &new);
        assert_eq!(counts.files, Delta { added: 1, modified: 1, deleted: 1 });
        assert_eq!(counts.dirs, Delta { added: 0, modified: 1, deleted: 0 });
        assert_eq!(seen, ["", "d", "d/kept", "d/new"]);
        assert_eq!(run(&trees, Some(&new), &new), (DeltaCounts::default(), vec![]));
    }

    #[test]
    fn a_file_that_became_a_directory_is_deleted_and_its_content_added() {
        let mut trees = Memory::default();
        let old = trees.add(Tree { entries: vec![file("x", "1")] }).expect("old");
        let x = dir(&mut trees, "x", 0o755, vec![file("y", "2")]);
        let new = trees.add(Tree { entries: vec![x] }).expect("new");
        let (counts, seen) = run(&trees, Some(&old), &new);
        assert_eq!(counts.files, Delta { added: 1, modified: 0, deleted: 1 });
        assert_eq!(counts.dirs.added, 1);
        assert_eq!(seen, ["", "x", "x/y"]);
    }
}
