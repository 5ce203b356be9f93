//! Which snapshots go, and why.

use std::time::Duration;

use backtrail_core::error::Kind;
use backtrail_core::ids::Chain;
use backtrail_core::prune::{Policy, Report, prune};
use backtrail_core::snapshot::label::Label;
use backtrail_core::snapshot::pruned;
use backtrail_core::store::DocKey;
use backtrail_tests::history::{History, Spec, run};

use crate::{assert_whole, go, keep, listed, objects, request};

fn reason<'a>(report: &'a Report, id: &str) -> &'a str {
    let found = report.protected.iter().find(|p| p.id.as_str() == id);
    found.map_or("not protected", |p| &p.reason)
}

#[test]
fn res_120_a_finished_run_keeps_its_newest_twenty_and_loses_only_their_objects() {
    run(async {
        let h = History::new().await;
        let chain = h.run_chain("r-1", "finished").await;
        let all = h.many(&chain, 25).await;
        let before = objects(&*h.store).await;
        let report = go(&h, Policy::default()).await.expect("prune");
        let kept: Vec<String> = all[5..].iter().rev().map(|s| s.id.to_string()).collect();
        assert_eq!(listed(&*h.store, &chain).await, kept);
        assert_eq!(report.removed.len(), 5, "{report:#?}");
        // each had a file and a tree of its own; `shared` and the rules stay
        assert_eq!((report.objects_deleted, report.objects_marked), (10, 20 * 2 + 2));
        assert_eq!(objects(&*h.store).await.len(), before.len() - 10);
        assert!(report.bytes_freed > 0 && report.complete);
        assert_whole(&h).await;

        let lines = pruned::load(&*h.store, &chain).await.expect("lines");
        let line = lines.find(&all[0].id).expect("a line");
        assert_eq!((line.seq, line.rule.as_str()), (0, "not among the newest 20"));
    });
}

#[test]
fn res_121_unfinished_runs_keep_both_tips_and_their_parents() {
    run(async {
        let h = History::new().await;
        let chain = h.run_chain("r-1", "paused_operator").await;
        let main = h.many(&chain, 3).await;
        let branch = Spec {
            branch_from: Some(main[0].clone()),
            ..Spec::of(&[("own", "branch")]).label("branch-tip")
        };
        let tip = h.snapshot(&chain, branch).await;
        h.make_old(Duration::from_secs(60));
        let limits = Policy {
            keep: Some(1),
            max_bytes: Some(1),
            older_than: Some(Duration::from_secs(1)),
            ..Policy::default()
        };
        let report = go(&h, limits.clone()).await.expect("prune");
        assert!(report.removed.is_empty(), "untouched without the flag: {report:#?}");
        assert!(report.groups[0].rule.contains("paused_operator"));
        let report = go(&h, Policy { include_unfinished: true, ..limits }).await.expect("prune");
        // the branch's parent is the first, the main tip's the second: all stay
        assert!(report.removed.is_empty(), "{report:#?}");
        for s in main.iter().chain([&tip]) {
            assert!(reason(&report, s.id.as_str()).contains("tip of a run"), "{report:#?}");
        }
        assert_whole(&h).await;
    });
}

#[test]
fn res_122_banks_pins_and_unfinished_runs_are_protected_with_reasons() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let bank = h.snapshot(&chain, Spec { bank: true, ..Spec::of(&[("a", "0")]) }).await;
        let pin = Spec { pinned: true, ..Spec::of(&[("a", "1")]).label("good") };
        let pin = h.snapshot(&chain, pin).await;
        let named = h.snapshot(&chain, Spec::of(&[("a", "2")])).await;
        let gone = h.snapshot(&chain, Spec::of(&[("a", "3")]).label("moved")).await;
        let head = h.snapshot(&chain, Spec::of(&[("a", "4")])).await;
        let paused = h.run_chain("r-1", "paused_waiting_human").await;
        let tip = h.many(&paused, 3).await.remove(2);

        let policy = Policy { protect: vec![named.id.as_str()[..8].to_owned()], ..keep(1) };
        let mut dry = request(&h, policy.clone());
        dry.dry_run = true;
        let before = crate::contents(&h);
        let dry = prune(&*h.store, &h.ctx, &dry).await.expect("a dry run");
        assert_eq!(crate::contents(&h), before, "a dry run writes nothing");
        let mut bound = request(&h, policy);
        bound.plan = Some(dry.plan.hex()[..16].to_owned());
        let report = prune(&*h.store, &h.ctx, &bound).await.expect("the same plan");
        assert_eq!((&dry.removed, &dry.protected), (&report.removed, &report.protected));
        assert_eq!(
            (dry.objects_deleted, dry.bytes_freed),
            (report.objects_deleted, report.bytes_freed)
        );
        let removed: Vec<_> = report.removed.iter().map(|r| r.id.clone()).collect();
        assert_eq!(removed, [gone.id]);
        assert!(reason(&report, bank.id.as_str()).contains("newest 10"));
        assert!(reason(&report, pin.id.as_str()).contains("good"));
        assert!(reason(&report, named.id.as_str()).contains("--protect"));
        assert!(reason(&report, tip.id.as_str()).contains("paused_waiting_human"));
        assert_eq!(listed(&*h.store, &chain).await[0], head.id.to_string());
        assert_eq!(listed(&*h.store, &paused).await.len(), 3);
        assert_whole(&h).await;

        let again = prune(&*h.store, &h.ctx, &bound).await.expect_err("another plan now");
        assert_eq!(again.code(), "plan-changed");
    });
}

#[test]
fn k56_zero_and_negative_limits_are_refused() {
    run(async {
        let h = History::new().await;
        h.many(&h.own(), 2).await;
        let zero = [
            Policy { max_bytes: Some(0), ..Policy::default() },
            Policy { older_than: Some(Duration::ZERO), ..Policy::default() },
            keep(0),
        ];
        for policy in zero {
            assert_eq!(go(&h, policy).await.expect_err("refused").kind(), Kind::Invalid);
        }
        assert_eq!(listed(&*h.store, &h.own()).await.len(), 2);
    });
}

#[test]
fn own_chains_are_untouched_without_limits_and_others_without_the_flag() {
    run(async {
        let h = History::new().await;
        let other = Chain::Workspace("00112233445566aa".parse().expect("a key"));
        h.many(&h.own(), 22).await;
        h.many(&other, 3).await;
        let report = go(&h, Policy::default()).await.expect("prune");
        assert!(report.removed.is_empty(), "{report:#?}");
        let report = go(&h, keep(2)).await.expect("prune");
        assert_eq!(report.removed.len(), 20);
        assert_eq!(listed(&*h.store, &other).await.len(), 3);
        let all = Policy { all_workspaces: true, ..keep(1) };
        go(&h, all).await.expect("prune");
        assert_eq!(listed(&*h.store, &other).await.len(), 1);
        assert_whole(&h).await;
    });
}

#[test]
fn limits_of_age_and_bytes_hold_together_and_the_head_may_go() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let three = h.many(&chain, 3).await;
        h.make_old(Duration::from_secs(3600));
        let young = h.snapshot(&chain, Spec::of(&[("a", "young")])).await;
        let aged = Policy { older_than: Some(Duration::from_secs(600)), ..Policy::default() };
        let report = go(&h, aged.clone()).await.expect("prune");
        assert_eq!(report.removed.len(), three.len());
        assert!(report.removed.iter().all(|r| r.reason == "older than 10m"), "{report:#?}");
        assert_eq!(listed(&*h.store, &chain).await, [young.id.to_string()]);

        h.make_old(Duration::from_secs(3600));
        go(&h, aged).await.expect("prune");
        assert!(listed(&*h.store, &chain).await.is_empty());
        let after = h.snapshot(&chain, Spec::of(&[("a", "after")])).await;
        assert_eq!(listed(&*h.store, &chain).await, [after.id.to_string()]);
        assert_whole(&h).await;
    });
}

#[test]
fn k55_a_pruned_boundary_is_explained() {
    run(async {
        let h = History::new().await;
        let chain = h.run_chain("r-1", "finished").await;
        let old = h.snapshot(&chain, Spec::of(&[("a", "0")]).label("pre:build:0")).await;
        h.many(&chain, 2).await;
        go(&h, keep(1)).await.expect("prune");
        let lines = pruned::load(&*h.store, &chain).await.expect("lines");
        let label = Label::new("pre:build:0").expect("a label");
        let line = lines.find_label(&label).expect("a line");
        assert_eq!((&line.id, line.labels.as_slice()), (&old.id, &[label][..]));
        assert_eq!(line.rule, "not among the newest 1");
        assert!(!line.at.is_empty());
        // no older or newer snapshot inherits the label
        let refs = h.store.get(&DocKey::Refs(chain)).await.expect("refs");
        assert!(!String::from_utf8_lossy(&refs.body).contains("pre:build"));
    });
}

#[test]
fn res_123_objects_of_a_deleted_run_go_and_shared_ones_stay() {
    run(async {
        let h = History::new().await;
        let chain = h.run_chain("r-1", "finished").await;
        let kept = h.many(&h.own(), 1).await;
        let gone = h.many(&chain, 2).await;
        assert_eq!(go(&h, Policy::default()).await.expect("prune").objects_deleted, 0);
        for s in &gone {
            h.store.delete(&s.key(), None).await.expect("deleted");
        }
        h.store.delete(&DocKey::Refs(chain), None).await.expect("deleted");
        let report = go(&h, Policy::default()).await.expect("prune");
        assert_eq!(report.objects_deleted, 4, "two files and two trees");
        assert_eq!(listed(&*h.store, &h.own()).await, [kept[0].id.to_string()]);
        assert_whole(&h).await;
    });
}

#[test]
fn what_an_unfinished_restore_names_stays_with_the_content_of_its_plan() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let target = h.snapshot(&chain, Spec::of(&[("a", "target")])).await;
        let bank = h.snapshot(&chain, Spec::of(&[("a", "before")])).await;
        h.many(&chain, 3).await;
        let only_here = h.content(b"content that the plan alone names").await;
        let steps = serde_json::json!({ "steps": [{ "after": { "content": only_here } }] });
        let plan = h.content(steps.to_string().as_bytes()).await;
        h.store.flush().await.expect("flush");
        let key = DocKey::Journal(h.key(), "tx-0123456789abcdef".parse().expect("an id"));
        let journal = |state: &str| {
            serde_json::json!({
                "format_version": 1, "state": state, "plan": plan,
                "target_snapshot": target.id, "bank": { "snapshot": bank.id }
            })
        };
        h.put(&key, &journal("applying")).await;
        let report = go(&h, keep(1)).await.expect("prune");
        assert!(reason(&report, target.id.as_str()).contains("tx-0123456789abcdef"));
        assert!(reason(&report, bank.id.as_str()).contains("tx-0123456789abcdef"));
        let left = objects(&*h.store).await;
        assert!(left.contains(&plan.digest) && left.contains(&only_here.digest));
        assert_whole(&h).await;

        h.put(&key, &journal("closed")).await;
        let report = go(&h, keep(1)).await.expect("prune");
        assert_eq!(report.removed.len(), 2);
        assert!(!objects(&*h.store).await.contains(&only_here.digest));

        // a plan that cannot be read, of a restore that is not over, stops it
        h.put(&key, &journal("applying")).await;
        std::fs::remove_file(h.object_file(&plan.digest)).expect("removed");
        assert_eq!(go(&h, keep(1)).await.expect_err("refused").kind(), Kind::Corrupt);
    });
}

#[test]
fn a_snapshot_that_a_bank_label_points_at_is_a_bank() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let banked = h.snapshot(&chain, Spec::of(&[("a", "0")]).label("bank:0")).await;
        h.many(&chain, 2).await;
        let report = go(&h, keep(1)).await.expect("prune");
        assert!(reason(&report, banked.id.as_str()).contains("bank"));
        let none = Policy { bank_keep: 0, bank_age: Duration::ZERO, ..keep(1) };
        let report = go(&h, none).await.expect("prune");
        assert_eq!(report.removed.len(), 1, "{report:#?}");
    });
}
