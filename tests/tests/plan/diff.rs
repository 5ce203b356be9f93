//! The changes between two worlds.

use backtrail_core::diff::{
    Change, ChangeCounts, Memory, TextDiff, View, between, patch, text_diff,
};

use crate::setup::set;
use crate::world::{World, cover, tree_of, world};

fn changes(from: &World, to: &World, rules: (&str, &str), only: &[&str]) -> Vec<Change> {
    let mut trees = Memory::default();
    let (old, new) = (tree_of(from, &mut trees), tree_of(to, &mut trees));
    let view = |root, world: &World, rules: &str| View {
        root,
        trees: Box::new(trees.clone()),
        cover: cover(world, rules),
    };
    let (from, to) = (view(old, from, rules.0), view(new, to, rules.1));
    let only: Vec<_> = set(only).into_iter().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(between(&from, &to, &only)).expect("compares")
}

/// `letter path` and where it is not covered.
fn rows(changes: &[Change]) -> Vec<String> {
    let one = |c: &Change| {
        let side = serde_json::to_value(c.uncovered).expect("json");
        let side = side.as_str().map(|s| format!(" {s}")).unwrap_or_default();
        format!("{} {}{side}", c.status.letter(), c.path)
    };
    changes.iter().map(one).collect()
}

#[test]
fn added_changed_deleted_and_re_moded_paths_in_byte_order() {
    let from = world(&["b=1", "d/x=1", "m=1@644", "z=1", "a-b=1", "a/b=1"]);
    let to = world(&["b=2", "d/x=1", "m=1@755", "n=1", "a-b=2", "a/b=2"]);
    let got = changes(&from, &to, ("", ""), &[]);
    assert_eq!(rows(&got), ["M a-b", "M a/b", "M b", "m m", "A n", "D z"]);
    let json = serde_json::to_value(&got[3]).expect("json");
    assert_eq!((&json["from"]["mode"], &json["to"]["mode"]), (&"0644".into(), &"0755".into()));
    assert!(json.get("uncovered").is_none() && json.get("hunks").is_none());
    let counts = ChangeCounts::of(&got);
    assert_eq!((counts.added, counts.deleted, counts.modified, counts.mode), (1, 1, 3, 1));
    assert_eq!(rows(&changes(&from, &to, ("", ""), &["a"])), ["M a/b"]);
    assert_eq!(rows(&changes(&from, &from, ("", ""), &[])), Vec::<String>::new());
}

#[test]
fn a_path_that_is_not_covered_is_never_absent() {
    let grown =
        changes(&world(&["big=1"]), &world(&["big!too-large", "new!too-large"]), ("", ""), &[]);
    assert_eq!(rows(&grown), ["M big to", "A new to"]);
    let shrunk = changes(&world(&["big!too-large"]), &world(&["big=1"]), ("", ""), &[]);
    assert_eq!(rows(&shrunk), ["M big from"]);
    let both = world(&["big!too-large", "f!unsupported", "v!vanished"]);
    assert!(changes(&both, &both, ("", ""), &[]).is_empty());
    let moved = changes(&world(&["x!too-large"]), &world(&["x!unsupported"]), ("", ""), &[]);
    assert_eq!(rows(&moved), ["U x both"]);
    let excluded = changes(&world(&["x.log=1", "o/y=1"]), &world(&[]), ("", "*.log\no/"), &[]);
    assert_eq!(rows(&excluded), ["U o to", "U o/y to", "U x.log to"]);
    let unseen = changes(&world(&["m/x=1"]), &world(&["m?unreadable"]), ("", ""), &[]);
    assert_eq!(rows(&unseen), ["U m to", "U m/x to"]);
    let gone = changes(&world(&["x!too-large"]), &world(&[]), ("", ""), &[]);
    assert_eq!(rows(&gone), ["D x from"]);
}

#[test]
fn a_change_of_kind_is_named() {
    let from = world(&["f=1", "d/x=1", "l->t", "p=1"]);
    let to = world(&["f/y=1", "d->x", "l=1", "p!unsupported"]);
    let got = changes(&from, &to, ("", ""), &[]);
    assert_eq!(rows(&got), ["T d", "D d/x", "T f", "A f/y", "T l", "T p to"]);
}

#[test]
fn a_patch_marks_what_it_cannot_show() {
    let mut got = changes(&world(&["f=old"]), &world(&["f=new"]), ("", ""), &[]).remove(0);
    got.text = Some(text_diff(b"old", b"new"));
    let text = String::from_utf8(patch(&got)).expect("text");
    let want = "diff a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n\\ No newline at end of file\n\
                +new\n\\ No newline at end of file\n";
    assert_eq!(text, want);
    got.text = Some(TextDiff { binary: true, ..TextDiff::default() });
    assert!(String::from_utf8(patch(&got)).expect("text").contains("Binary files"));
}
