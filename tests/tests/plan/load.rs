//! Reading the target's trees before planning.

use backtrail_core::diff::{Cover, Memory};
use backtrail_core::error::Kind;
use backtrail_core::ids::Digest;
use backtrail_core::plan::{Scope, load_target};
use backtrail_core::snapshot::tree::{Body, Entry, Ref, Tree};

use crate::setup::{Setup, block_on, plan_of, set};
use crate::world::{observed, world};

#[test]
fn a_tree_that_is_missing_matters_only_where_the_scope_needs_it() {
    let mut trees = Memory::default();
    let hole = Ref::whole(8, Digest::of(b"never stored"));
    let text = Ref::whole(1, Digest::of(b"1"));
    let entries = vec![
        Entry { name: b"d".into(), mode: 0o755, body: Body::Dir(hole) },
        Entry { name: b"other.txt".into(), mode: 0o644, body: Body::File(text) },
    ];
    let root = trees.add(Tree { entries }).expect("a tree");
    let now = observed(&world(&[]), "");
    let load = |scope| block_on(load_target(&trees, &root, Some(&now), &scope)).map(|_| ());
    let e = load(Scope::Full).expect_err("a tree is missing");
    assert_eq!((e.kind(), e.paths()), (Kind::Corrupt, &["d".to_owned()][..]));
    load(Scope::Paths(set(&["other.txt"]))).expect("that tree is not needed");
}

#[test]
fn a_path_of_two_thousand_directories_is_planned() {
    let mut trees = Memory::default();
    let body = Body::File(Ref::whole(1, Digest::of(b"1")));
    let mut entry = Entry { name: b"f".into(), mode: 0o644, body };
    for _ in 0..2_000 {
        let tree = trees.add(Tree { entries: vec![entry] }).expect("a tree");
        entry = Entry { name: b"d".into(), mode: 0o755, body: Body::Dir(tree) };
    }
    let root = trees.add(Tree { entries: vec![entry] }).expect("a tree");
    let p = plan_of(trees, root, &Cover::default(), &world(&[]), &Setup::default());
    let p = p.expect("a plan");
    assert_eq!((p.counts.dirs_created, p.counts.written), (2_000, 1));
}
