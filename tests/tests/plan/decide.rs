//! What a plan decides about each path.

use backtrail_core::error::Kind;
use backtrail_core::plan::{
    ConflictKind, Foreseen, Free, Identity, LeftReason, OnConflict, Options, PlanCounts, PlanKind,
    Scope,
};

use crate::setup::{Setup, conflicts, plan, set, steps, try_plan};
use crate::world::{apply, path, world};

#[test]
fn edited_made_and_deleted_files_come_back_with_exact_counts() {
    let target = world(&["a=1", "b=2", "gone=3", "d/same=4", "sub/deep/gone=5"]);
    let now = world(&["a=changed", "b=2", "d/same=4", "new=6", "made/nested/new=7"]);
    let p = plan(&target, &now, &Setup::default());
    assert_eq!(
        steps(&p),
        [
            "write a",
            "write gone",
            "mkdir sub",
            "mkdir sub/deep",
            "write sub/deep/gone",
            "delete made/nested/new",
            "delete new",
            "rmdir made/nested",
            "rmdir made"
        ]
    );
    let want = PlanCounts {
        written: 3,
        unchanged: 2,
        deleted: 2,
        dirs_created: 2,
        dirs_removed: 2,
        ..PlanCounts::default()
    };
    assert_eq!(p.counts, want);
    assert_eq!(p.steps.iter().map(|s| s.phase).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 3, 3, 4, 4]);
    assert_eq!(p.exit_code(), 0);
    let after = apply(&p, &now);
    assert_eq!(after, target.iter().map(|(p, i)| (p.clone(), i.state())).collect());
}

#[test]
fn an_empty_directory_goes_only_when_emptied_made_by_the_run_or_named() {
    let (target, now) = (world(&["a=1"]), world(&["a=1", "empty/", "full/x=1"]));
    let full = plan(&target, &now, &Setup::default());
    assert_eq!(steps(&full), ["delete full/x", "rmdir full"]);
    for scope in [Scope::Produced(set(&["empty"])), Scope::Paths(set(&["empty"]))] {
        let named = plan(&target, &now, &Setup { scope, ..Setup::default() });
        assert_eq!(steps(&named), ["rmdir empty"]);
    }
    let scope = Scope::Produced(set(&["full/x"]));
    let produced = plan(&target, &now, &Setup { scope, ..Setup::default() });
    assert_eq!(steps(&produced), ["delete full/x"], "the directory is not the run's");
    let scope = Scope::Produced(set(&["full"]));
    let filled = plan(&target, &now, &Setup { scope, ..Setup::default() });
    assert!(filled.is_empty(), "somebody's file is in it");
}

#[test]
fn paths_excluded_then_or_now_are_never_touched() {
    let target = world(&["kept.log=old", "a=1"]);
    let now = world(&["a=1", "kept.log#", "build#", "cache#"]);
    let p = plan(&target, &now, &Setup { now: "*.log\nbuild\ncache", ..Setup::default() });
    assert!(p.is_empty());
    assert_eq!(conflicts(&p), ["excluded build", "excluded cache", "excluded kept.log"]);
    assert!(p.conflicts[0].detail.contains(".gitignore:2: build"), "{}", p.conflicts[0].detail);
    assert_eq!(p.exit_code(), 3);
    // out then and now: nothing to say
    let setup =
        Setup { then: "*.log\nbuild\ncache", now: "*.log\nbuild\ncache", ..Setup::default() };
    let quiet = plan(&world(&["a=1"]), &now, &setup);
    assert_eq!((quiet.is_empty(), quiet.exit_code()), (true, 0));
    // covered now, out then: absence then is no ground to delete
    let setup = Setup { then: "out/", ..Setup::default() };
    let freed = plan(&world(&["a=1"]), &world(&["a=1", "out/x=1"]), &setup);
    assert!(freed.is_empty());
    assert_eq!(conflicts(&freed), ["excluded out/x"]);
    // deleted since, and excluded by now
    let setup = Setup { now: "*.log", ..Setup::default() };
    let gone = plan(&world(&["x.log=1", "a=1"]), &world(&["a=1"]), &setup);
    assert_eq!(conflicts(&gone), ["excluded x.log"]);
}

#[test]
fn what_was_or_is_not_covered_stays_and_is_reported() {
    let target = world(&["a=1", "big!too-large", ".env!secret"]);
    let proven = plan(&target, &world(&["a=1", "big!too-large", ".env!secret"]), &Setup::default());
    assert_eq!((proven.counts.not_covered, proven.exit_code()), (2, 0));
    assert!(proven.not_covered.iter().all(|n| n.unchanged));
    let shrunk =
        plan(&target, &world(&["a=1", "big=small now", "newbig!too-large"]), &Setup::default());
    assert!(shrunk.is_empty());
    assert_eq!((shrunk.counts.not_covered, shrunk.exit_code()), (3, 3));
    // a pipe, also where the target has a file
    let fifo =
        plan(&world(&["p=1"]), &world(&["p!unsupported", "q!unsupported"]), &Setup::default());
    assert_eq!(conflicts(&fifo), ["special-file p"]);
    assert_eq!(fifo.counts.not_covered, 1);
    // a directory that was not seen hides what is below it
    let unseen =
        plan(&world(&["m?other-filesystem"]), &world(&["m/x=1", "y=1"]), &Setup::default());
    assert_eq!(steps(&unseen), ["delete y"]);
}

#[test]
fn a_scope_of_paths_reports_only_what_it_names() {
    let target = world(&["a=1", "d/x=1", "d/y=1", "big!too-large"]);
    let now = world(&["a=2", "d/x=2", "d/new=1"]);
    let scoped = |paths: &[&str]| {
        plan(&target, &now, &Setup { scope: Scope::Paths(set(paths)), ..Setup::default() })
    };
    let one = scoped(&["d/x"]);
    assert_eq!(steps(&one), ["write d/x"]);
    assert_eq!((one.counts.not_covered, one.scope.count), (0, Some(1)));
    assert_eq!(steps(&scoped(&["d"])), ["write d/x", "write d/y", "delete d/new"]);
    assert_eq!(scoped(&["big"]).counts.not_covered, 1);
    assert_eq!(plan(&target, &now, &Setup::default()).counts.not_covered, 1);
    let scope = Scope::Paths(set(&["nowhere"]));
    let e = try_plan(&target, &now, &Setup { scope, ..Setup::default() }).expect_err("unknown");
    assert_eq!(e.kind(), Kind::NotFound);
    // parents on the way are made
    let scope = Scope::Paths(set(&["p/q/f"]));
    let p = plan(
        &world(&["p/@750", "p/q/f=1", "p/other=1"]),
        &world(&[]),
        &Setup { scope, ..Setup::default() },
    );
    assert_eq!(steps(&p), ["mkdir p", "mkdir p/q", "write p/q/f"]);
    assert_eq!(p.steps[0].after.mode, 0o750);
}

#[test]
fn counts_of_written_deleted_kept_and_not_covered() {
    let target = world(&["w1=1", "w2=1", "k=1", "same=1", "big!too-large"]);
    let now = world(&["w1=x", "w2=x", "k=mine", "d1=1", "d2=1", "d3=1", "same=1", "big!too-large"]);
    let base = world(&["w1=x", "w2=x", "k=run", "d1=1", "d2=1", "d3=1", "same=1", "big!too-large"]);
    let setup = Setup { kind: PlanKind::Rewind, base: Some(base), ..Setup::default() };
    let p = plan(&target, &now, &setup);
    let c = p.counts;
    assert_eq!((c.written, c.deleted, c.kept, c.not_covered, c.unchanged), (2, 3, 1, 1, 1));
    let json = serde_json::to_value(&p).expect("json");
    assert_eq!(json["counts"]["deleted"], 3);
    assert_eq!(json["conflicts"][0]["kind"], "changed-after-run");
    let text = p.preview(false);
    assert!(text.contains("2 written, 3 deleted, 1 same, 1 kept, 1 not covered"), "{text}");
    let order = ["delete (3)", "overwrite (2)", "conflicts (1)", "not covered", "plan "];
    let at: Vec<_> = order.iter().map(|w| text.find(w).expect(w)).collect();
    assert!(at.is_sorted(), "{text}");
}

#[test]
fn a_mode_alone_is_one_chmod_but_a_shared_inode_is_replaced() {
    let target = world(&["f=1@755", "h=1@755", "d/@700", "d/x=1"]);
    let now = world(&["f=1@644", "h=1@644*2", "d/@755", "d/x=1"]);
    let p = plan(&target, &now, &Setup::default());
    assert_eq!(steps(&p), ["chmod f", "write h", "chmod d"]);
    assert_eq!((p.counts.mode_changed, p.counts.written, p.counts.unchanged), (2, 1, 1));
    assert_eq!(p.steps[2].phase, 5);
}

#[test]
fn keep_takes_a_path_out_and_bad_picks_are_usage_errors() {
    let (target, now) = (world(&["a=1"]), world(&["a=2", "added.txt=1", "n/x=1"]));
    let with = |keep: &[&str], take: &[&str]| Setup {
        options: Options {
            keep: keep.iter().map(|p| path(p)).collect(),
            take: take.iter().map(|p| path(p)).collect(),
            ..Options::default()
        },
        ..Setup::default()
    };
    let p = plan(&target, &now, &with(&["added.txt", "n/x"], &[]));
    assert_eq!((steps(&p), p.exit_code()), (vec!["write a".to_owned()], 0));
    for (keep, take) in
        [(&["nope"][..], &[][..]), (&[], &["nope"]), (&["a"], &["a"]), (&["a", "a"], &[])]
    {
        let e = try_plan(&target, &now, &with(keep, take)).expect_err("a usage error");
        assert_eq!(e.kind(), Kind::Invalid, "{keep:?} {take:?}");
    }
}

#[test]
fn empty_files_are_ordinary() {
    let p = plan(&world(&["e=", "same="]), &world(&["same=", "extra="]), &Setup::default());
    assert_eq!(steps(&p), ["write e", "delete extra"]);
    assert_eq!(p.counts.unchanged, 1);
}

#[test]
fn a_file_becomes_a_directory_and_the_reverse() {
    let target = world(&["x/y=1", "x/z/w=1", "f=1", "l->t"]);
    let now = world(&["x=file", "f/a=1", "f/b/c=1", "l/"]);
    let p = plan(&target, &now, &Setup::default());
    assert_eq!(
        steps(&p),
        [
            "delete f/a",
            "delete f/b/c",
            "rmdir f/b",
            "replace_kind f",
            "replace_kind l",
            "replace_kind x",
            "write x/y",
            "mkdir x/z",
            "write x/z/w"
        ]
    );
    assert!(p.steps.iter().all(|s| s.phase == 2));
    let want = target.iter().map(|(p, i)| (p.clone(), i.state())).collect();
    assert_eq!(apply(&p, &now), want);
}

#[test]
fn a_directory_with_uncovered_content_does_not_give_way() {
    let target = world(&["x=1"]);
    for (inside, kind) in [
        ("x/cache.bin#", ConflictKind::UncoveredContent),
        ("x/big!too-large", ConflictKind::UncoveredContent),
        ("x/p!unsupported", ConflictKind::UncoveredContent),
        ("x/m?unreadable", ConflictKind::UncoveredContent),
        ("x/sub/.git#always", ConflictKind::NestedRepo),
    ] {
        let now = world(&["x/y=1", inside]);
        let p = plan(&target, &now, &Setup { now: "*.bin", then: "*.bin", ..Setup::default() });
        assert!(p.is_empty(), "{inside}");
        assert_eq!((p.conflicts.len(), p.conflicts[0].kind), (1, kind), "{inside}");
        let named = inside.split(['#', '!', '?']).next().expect("a path");
        assert!(p.conflicts[0].detail.contains(named), "{}", p.conflicts[0].detail);
    }
}

#[test]
fn edits_after_the_run_are_kept_unless_taken() {
    let target = world(&["f=0", "gone=0"]);
    let base = world(&["f=agent", "new=agent"]);
    let now = world(&["f=human", "new=agent"]);
    let rewind = |options| Setup {
        kind: PlanKind::Rewind,
        base: Some(base.clone()),
        scope: Scope::Produced(set(&["f", "gone", "new"])),
        options,
        ..Setup::default()
    };
    let kept = plan(&target, &now, &rewind(Options::default()));
    assert_eq!(steps(&kept), ["write gone", "delete new"]);
    assert_eq!((conflicts(&kept), kept.exit_code()), (vec!["changed-after-run f".to_owned()], 3));
    let take = Options { take: vec![path("f")], ..Options::default() };
    let taken = plan(&target, &now, &rewind(take));
    assert_eq!(steps(&taken), ["write f", "write gone", "delete new"]);
    assert_eq!((taken.counts.kept, taken.conflicts.len(), taken.exit_code()), (0, 1, 0));
    let abort = Options { on_conflict: OnConflict::Abort, ..Options::default() };
    let aborted = plan(&target, &now, &rewind(abort.clone()));
    assert_eq!(aborted.refusal(&abort).expect("refused").kind(), Kind::Refused);
    assert!(kept.refusal(&Options::default()).is_none());
}

#[test]
fn a_rewind_touches_its_scope_and_says_what_it_leaves() {
    let target = world(&["a=0", "b=0", "wf.yaml=0"]);
    let now = world(&["a=run", "b=human", "out/1=human", "wf.yaml=edited", "c=other"]);
    let detail = "run B changed it".to_owned();
    let setup = Setup {
        kind: PlanKind::Rewind,
        base: Some(now.clone()),
        scope: Scope::Produced(set(&["a", "wf.yaml", "c"])),
        left: [(path("b"), LeftReason::Parked)].into(),
        protected: set(&["wf.yaml"]),
        foreseen: [(path("c"), Foreseen { kind: ConflictKind::OtherRun, detail })].into(),
        ..Setup::default()
    };
    let p = plan(&target, &now, &setup);
    assert_eq!(steps(&p), ["write a"]);
    assert_eq!(conflicts(&p), ["other-run c"]);
    let left: Vec<_> =
        p.left_in_place.iter().map(|l| format!("{} {}", l.path, l.reason.as_str())).collect();
    assert_eq!(left, ["b parked", "out out-of-scope", "out/1 out-of-scope", "wf.yaml protected"]);
    let none = plan(&target, &now, &Setup { scope: Scope::None, ..Setup::default() });
    assert!(none.is_empty() && none.exit_code() == 0);
}

#[test]
fn equal_inputs_give_one_digest_and_an_edit_another() {
    let (target, now) = (world(&["a=1", "d/b=1"]), world(&["a=2"]));
    let one = plan(&target, &now, &Setup::default());
    let free = Free { workspace: Some(1 << 30), store: Some(5) };
    let two = plan(&target, &now, &Setup { free, ..Setup::default() });
    assert_eq!(one.digest, two.digest);
    let text = |p| serde_json::to_string(&p).expect("json");
    assert_eq!(text(one.clone()), text(plan(&target, &now, &Setup::default())));
    let edited = plan(&target, &world(&["a=3"]), &Setup::default());
    assert_ne!(one.digest, edited.digest);
    let read: backtrail_core::plan::Plan = serde_json::from_str(&text(one.clone())).expect("reads");
    assert_eq!((read.steps, read.digest), (one.steps, one.digest));
}

#[test]
fn nothing_is_deleted_in_another_directory_or_when_told_not_to() {
    let (target, now) = (world(&["a=1", "x=1"]), world(&["a=2", "new=1", "d/n=1", "x/y=1"]));
    let no_delete = Options { no_delete: true, ..Options::default() };
    for setup in [
        Setup { identity: Identity::Recreated, ..Setup::default() },
        Setup { identity: Identity::Foreign, ..Setup::default() },
        Setup { kind: PlanKind::Into, ..Setup::default() },
        Setup { options: no_delete, ..Setup::default() },
    ] {
        let p = plan(&target, &now, &setup);
        assert_eq!(steps(&p), ["write a"]);
        assert_eq!(conflicts(&p), ["uncovered-content x"]);
    }
}

#[test]
fn a_mass_deletion_is_named_and_too_little_room_refuses() {
    let names: Vec<String> = (0..25).map(|n| format!("f{n}=1")).collect();
    let lines: Vec<&str> = names.iter().map(String::as_str).collect();
    let p = plan(&world(&["f0=1"]), &world(&lines), &Setup::default());
    let mass = p.mass_delete().expect("a mass deletion");
    assert_eq!((mass.deletes, mass.covered), (24, 25));
    assert!(plan(&world(&[]), &world(&lines[..19]), &Setup::default()).mass_delete().is_none());
    let free = Free { workspace: Some(4096), store: None };
    let full = plan(&world(&["a=1"]), &world(&[]), &Setup { free, ..Setup::default() });
    let refused = full.refusal(&Options::default()).expect("refused");
    assert_eq!((refused.code(), refused.kind()), ("no-space", Kind::Failed));
}

#[test]
fn a_file_system_that_folds_case_keeps_one_file() {
    let folding = || Setup { case_folding: true, ..Setup::default() };
    let both = plan(&world(&["README=1", "readme=2"]), &world(&[]), &folding());
    assert_eq!(conflicts(&both), ["case-clash readme"]);
    assert_eq!(both.refusal(&Options::default()).expect("refused").kind(), Kind::Refused);
    let renamed = plan(&world(&["A.txt=1"]), &world(&["a.txt=1"]), &folding());
    // Touched and banked under the name it has, put back under the recorded one.
    assert_eq!(steps(&renamed), ["write a.txt"]);
    assert_eq!(renamed.respelled.get(&path("a.txt")), Some(&path("A.txt")));
    let below = plan(&world(&["D/A.txt=1"]), &world(&["d/a.txt=2"]), &folding());
    assert_eq!(steps(&below), ["write d/a.txt"]);
    assert_eq!(below.respelled.get(&path("d/a.txt")), Some(&path("d/A.txt")));
}

#[test]
fn a_target_entry_where_the_store_lies_now_refuses_the_whole() {
    let e = try_plan(&world(&["st/x=1"]), &world(&["st#always"]), &Setup::default());
    assert_eq!(e.expect_err("refused").kind(), Kind::Corrupt);
}

#[test]
fn a_file_over_the_limit_is_read_first_or_left() {
    let p = plan(&world(&["f=1"]), &world(&["f!too-large"]), &Setup::default());
    assert!(p.is_empty());
    assert_eq!(p.unread, set(&["f"]));
    let options = Options { max_file_bytes: 3, ..Options::default() };
    let read = plan(
        &world(&["f=1"]),
        &world(&["f=longer", "new=longer"]),
        &Setup { options, ..Setup::default() },
    );
    assert_eq!(steps(&read), ["write f"], "put back, but nothing above the limit is deleted");
    assert_eq!(read.not_covered[0].path, path("new"));
}

#[test]
fn an_undo_puts_back_exactly_what_was_touched() {
    // the operation made d and d/new, and took away old; a person added d/mine
    let (bank, now) = (world(&["old=1", "x=1"]), world(&["d/new=1", "d/mine=1", "x=2"]));
    let scope = Scope::Touched(set(&["d", "d/new", "old"]));
    let p = plan(&bank, &now, &Setup { kind: PlanKind::Undo, scope, ..Setup::default() });
    assert_eq!(steps(&p), ["write old", "delete d/new"]);
    assert_eq!(p.exit_code(), 0);
}
