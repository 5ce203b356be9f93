//! Random targets and workspaces: applying the plan's steps to a model makes the target
//! of all that is covered, and touches nothing else.

use std::collections::BTreeSet;

use backtrail_core::path::RelPath;
use backtrail_core::plan::{Plan, Scope};
use backtrail_core::snapshot::coverage::Reason;
use proptest::prelude::*;

use crate::setup::{Setup, plan};
use crate::world::{Item, World, apply, path};

fn an_item(uncovered: bool) -> impl Strategy<Value = Item> {
    let file = ("[xy]{0,2}", prop_oneof![Just(0o644u32), Just(0o755)], 1u32..3)
        .prop_map(|(content, mode, links)| Item::File { content, mode, links });
    let covered = prop_oneof![
        6 => file,
        1 => "[xy]".prop_map(Item::Link),
        2 => prop_oneof![Just(0o755u32), Just(0o700)].prop_map(Item::Dir),
    ];
    let other = prop_oneof![
        Just(Item::Skipped(Reason::TooLarge)),
        Just(Item::Skipped(Reason::Secret)),
        Just(Item::Skipped(Reason::Unsupported)),
        Just(Item::Unseen(Reason::Unreadable)),
    ];
    let n = u32::from(uncovered);
    prop_oneof![9 => covered, n => other]
}

/// A world without a path below something that is no directory.
fn a_world() -> impl Strategy<Value = World> {
    let item = ("[abc](/[abc]){0,3}", an_item(true));
    proptest::collection::vec(item, 0..14).prop_map(|items| {
        let mut world = World::new();
        for (text, item) in items {
            let p = path(&text);
            let mut ups = Vec::new();
            let mut up = p.parent();
            while let Some(dir) = up.filter(|d| !d.is_root()) {
                up = dir.parent();
                ups.push(dir);
            }
            let fits = ups.iter().all(|d| world.get(d).is_none_or(|i| matches!(i, Item::Dir(_))));
            if !fits || world.contains_key(&p) {
                continue;
            }
            for dir in ups {
                world.entry(dir).or_insert(Item::Dir(0o755));
            }
            world.insert(p, item);
        }
        world
    })
}

/// Paths the plan says it does not deal with, themselves or by something above them.
fn open(plan: &Plan, p: &RelPath) -> bool {
    let kept = plan.conflicts.iter().map(|c| &c.path);
    let uncovered = plan.not_covered.iter().map(|n| &n.path);
    kept.chain(uncovered).any(|c| p.starts_with(c))
}

fn check_full(target: &World, now: &World) {
    let p = plan(target, now, &Setup::default());
    let after = apply(&p, now);
    let mut seen = BTreeSet::new();
    assert!(p.steps.iter().all(|s| seen.insert(&s.path)), "two steps of one path");
    for (path, item) in target.iter().filter(|(_, i)| i.is_covered()) {
        if !open(&p, path) {
            assert_eq!(after.get(path), Some(&item.state()), "{path} is not as in the target");
        }
    }
    let was_unseen = |p: &RelPath| target.iter().any(|(t, i)| !i.is_covered() && p.starts_with(t));
    for (path, item) in now {
        let gone = !after.contains_key(path);
        if !item.is_covered() || was_unseen(path) {
            assert_eq!(after.get(path), Some(&item.state()), "{path} was touched");
        } else if !matches!(item, Item::Dir(_)) && !target.contains_key(path) {
            assert!(gone || open(&p, path), "{path} is still there");
        }
    }
    let same = |(path, item): &(&RelPath, &Item)| {
        let leaf = item.is_covered() && !matches!(item, Item::Dir(_));
        leaf && now.get(*path).is_some_and(|n| n.is_covered() && n.state() == item.state())
    };
    let same = target.iter().filter(same).filter(|(p, _)| !was_unseen(p)).count();
    assert_eq!(p.counts.unchanged, same as u64);
    assert_eq!(p, plan(target, now, &Setup::default()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_full_plan_makes_the_target_and_touches_nothing_uncovered(
        target in a_world(), now in a_world()
    ) {
        check_full(&target, &now);
    }

    #[test]
    fn a_plan_after_a_few_edits_makes_the_target(target in a_world(), edits in a_world()) {
        let mut now = target.clone();
        for (p, item) in edits {
            let fits = p.parent().is_none_or(|d| d.is_root() || matches!(now.get(&d), Some(Item::Dir(_))));
            if fits {
                now.retain(|k, _| !k.starts_with(&p));
                now.insert(p, item);
            }
        }
        check_full(&target, &now);
    }

    #[test]
    fn a_scope_touches_only_what_it_lists(
        target in a_world(), now in a_world(),
        listed in proptest::collection::btree_set("[abc](/[abc]){0,2}", 0..5)
    ) {
        let listed: BTreeSet<RelPath> = listed.iter().map(|p| path(p)).collect();
        let scope = Scope::Produced(listed.clone());
        let p = plan(&target, &now, &Setup { scope, ..Setup::default() });
        apply(&p, &now);
        for step in &p.steps {
            let parent = listed.iter().any(|l| l.starts_with(&step.path));
            prop_assert!(listed.contains(&step.path) || (parent && step.before.is_absent()));
        }
    }
}
