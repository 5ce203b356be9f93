//! Boundaries as far as the library has them: own labels, re-pointed labels, missed ones.

use backtrail_core::capture::{Captured, NewLabel, Request};
use backtrail_core::error::Error;
use backtrail_core::ids::Chain;
use backtrail_core::snapshot::chain::load_refs;
use backtrail_core::snapshot::label::{Boundary, Phase};
use backtrail_core::snapshot::refs::Missing;
use backtrail_core::store::{DocKey, Expect, docs};
use backtrail_tests::cli::Sandbox;
use backtrail_tests::history::run;
use serde_json::{Value, json};

use crate::lib_side::Lib;
use crate::sandbox;

const RUN: &str = "nightly";

fn chain() -> Chain {
    format!("run/{RUN}").parse().expect("a chain")
}

fn boundary(phase: Phase, node: &str, iteration: u64, attempt: u64) -> Boundary {
    let node = Some(node.to_owned());
    let (iteration, attempt) = (Some(iteration), Some(attempt));
    Boundary { phase, node, iteration, attempt, gate: None }
}

async fn at(lib: &Lib, boundary: Boundary) -> Captured {
    let label = NewLabel::Named(boundary.label().expect("a label"));
    let request = Request { label, boundary: Some(boundary), ..Request::default() };
    lib.of_chain(chain()).capture(&request).await.expect("a capture")
}

fn rows(s: &Sandbox) -> Vec<Value> {
    let list = s.ok(["list", "--run", RUN, "--all"]);
    list["snapshots"].as_array().expect("rows").clone()
}

#[test]
fn cap_023_a_second_pause_keeps_the_first() {
    let s = sandbox();
    run(async {
        let lib = Lib::of(&s).await;
        lib.run_chain(RUN).await;
        let phases = [Phase::Pause, Phase::Resume, Phase::Pause, Phase::Resume];
        for (n, phase) in phases.into_iter().enumerate() {
            s.write("f", n.to_string());
            assert!(at(&lib, boundary(phase, "review", 0, 1)).await.created);
        }
    });
    let rows = rows(&s);
    let own: Vec<&str> = rows.iter().map(|r| r["label"].as_str().expect("a label")).collect();
    let (pause, resume) = ("pause:review:0", "resume:review:0");
    assert_eq!(own, [resume, pause, resume, pause]);
    let now: Vec<&Value> = rows.iter().map(|r| &r["labels"]).collect();
    assert_eq!(now, [&json!([resume]), &json!([pause]), &json!([]), &json!([])]);
    let shown = s.ok(["show", pause, "--run", RUN]);
    assert_eq!(shown["id"], rows[1]["id"]);
    let out = s.run(["list", "--run", RUN]).expect(0).out();
    assert!(out.contains("was pause:review:0"), "{out}");
}

#[test]
fn cap_024_a_pause_in_which_nothing_was_touched_is_no_interval() {
    let s = sandbox();
    s.write("f", "x");
    run(async {
        let lib = Lib::of(&s).await;
        lib.run_chain(RUN).await;
        let first = at(&lib, boundary(Phase::Pre, "a", 0, 1)).await;
        for phase in [Phase::Pause, Phase::Resume] {
            let done = at(&lib, boundary(phase, "a", 0, 1)).await;
            assert_eq!((done.created, &done.id), (false, &first.id));
        }
    });
    let rows = rows(&s);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["label"], "pre:a:0");
    assert_eq!(rows[0]["labels"], json!(["pause:a:0", "pre:a:0", "resume:a:0"]));
}

#[test]
fn cap_025_boundaries_are_found_by_node_and_iteration() {
    let s = sandbox();
    run(async {
        let lib = Lib::of(&s).await;
        lib.run_chain(RUN).await;
        let mut want: Vec<(String, String)> = Vec::new();
        let mut n = 0;
        for iteration in 0..3 {
            let mut took = vec![(Phase::Pre, 1)];
            // the first iteration fails twice and is paused twice on its way
            if iteration == 0 {
                took.extend([(Phase::Fail, 1), (Phase::Fail, 2)]);
                took.extend([(Phase::Pause, 3), (Phase::Resume, 3)]);
                took.extend([(Phase::Pause, 3), (Phase::Resume, 3)]);
            }
            took.push((Phase::Post, if iteration == 0 { 3 } else { 1 }));
            for (phase, attempt) in took {
                n += 1;
                s.write("f", n.to_string());
                let b = boundary(phase, "build", iteration, attempt);
                let label = b.label().expect("a label").to_string();
                let done = at(&lib, b.clone()).await;
                let snapshot = done.snapshot.expect("a document");
                assert_eq!(snapshot.boundary, Some(b));
                want.retain(|(l, _)| *l != label);
                want.push((label, snapshot.id.to_string()));
            }
        }
        let recorder = lib.of_chain(chain());
        for (label, id) in &want {
            assert_eq!(recorder.resolve(label).await.expect("found").id.as_str(), id, "{label}");
        }
        let last = recorder.resolve("pre:build").await.expect("the highest iteration");
        assert_eq!(last.label.map(|l| l.to_string()).as_deref(), Some("pre:build:2"));
        let refs = load_refs(&*lib.store, &chain()).await.expect("refs").refs;
        let attempts: Vec<_> = ["fail:build:0", "post:build:0", "post:build:1"]
            .map(|l| refs.labels[&l.parse().expect("a label")].attempt)
            .to_vec();
        assert_eq!(attempts, [Some(2), Some(3), Some(1)]);
    });
}

#[test]
fn cap_026_a_boundary_that_failed_is_listed_and_the_next_one_is_real() {
    let s = sandbox();
    run(async {
        let mut lib = Lib::of(&s).await;
        lib.run_chain(RUN).await;
        s.write("f", "1");
        let pre = at(&lib, boundary(Phase::Pre, "a", 0, 1)).await;
        s.write("f", "2");
        lib.on_point("capture.objects", || Err(Error::unavailable("the store is down")));
        let label = NewLabel::Named("post:a:0".parse().expect("a label"));
        let request = Request { label, ..Request::default() };
        let failed = lib.of_chain(chain()).capture(&request).await;
        let reason = failed.expect_err("it failed").message().to_owned();
        // what the run's engine notes
        let mut loaded = load_refs(&*lib.store, &chain()).await.expect("refs");
        let at_time = lib.ctx.clock.now().rfc3339();
        let missing = Missing { at: at_time, reason };
        loaded.refs.missing.insert("post:a:0".into(), missing);
        let (key, expect) = (DocKey::Refs(chain()), loaded.version.expect("a version"));
        let expect = Expect::Version(expect);
        docs::save(&*lib.store, &*lib.ctx.ids, &key, &loaded.refs, expect, None)
            .await
            .expect("refs");
        // the workspace is as at the head again, and still the next one is recorded
        s.write("f", "1");
        let mut lib = Lib::of(&s).await;
        lib.settings.observe.rehash = true;
        let next = at(&lib, boundary(Phase::Pre, "b", 0, 1)).await;
        assert!(next.created && next.id != pre.id);
        let missed = next.snapshot.expect("a document").missed;
        assert_eq!(missed.len(), 1);
        assert_eq!(
            (missed[0].label.as_str(), missed[0].reason.as_str()),
            ("post:a:0", "the store is down")
        );
        s.write("f", "3");
        assert!(
            at(&lib, boundary(Phase::Post, "b", 0, 1))
                .await
                .snapshot
                .expect("it")
                .missed
                .is_empty()
        );
    });
    let list = s.ok(["list", "--run", RUN]);
    assert_eq!(list["missing"][0]["label"], "post:a:0");
    assert_eq!(list["missing"][0]["reason"], "the store is down");
    assert!(s.run(["list", "--run", RUN]).expect(0).out().contains("the store is down"));
}

#[test]
fn cap_106_a_recorder_opened_again_goes_on_in_its_chain() {
    let s = sandbox();
    let mut parent = None;
    for (n, phase) in [Phase::Pre, Phase::Pause, Phase::Resume, Phase::Post].into_iter().enumerate()
    {
        s.write("f", n.to_string());
        // store, context and recorder anew, as another process would
        let done = run(async {
            let lib = Lib::of(&s).await;
            lib.run_chain(RUN).await;
            at(&lib, boundary(phase, "a", 0, 1)).await
        });
        assert_eq!((done.seq, &done.parent), (n as u64, &parent));
        parent = done.id;
    }
    assert_eq!(rows(&s).len(), 4);
}
