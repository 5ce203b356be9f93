//! What becomes of the record: RES-101, 104, 107, 108, 110 to 114.

use backtrail_core::ids::{InteractionId, NodeId};
use backtrail_core::plan::LeftReason;
use backtrail_core::rewind::{Pivot, RewindRequest};
use backtrail_core::run::{Actor, FailureCode, Moved, Status, Transition, interaction_id};
use backtrail_core::snapshot::label::Phase;
use futures::StreamExt;
use serde_json::json;

use crate::world::{Play, World, failed, rel, source, to};

fn node(id: &str) -> NodeId {
    id.parse().expect("a node")
}

#[tokio::test]
async fn res_101_entries_are_found_by_node_and_iteration() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    w.write("p", "0");
    play.done("plan", 0, ("build", 0)).await;
    for i in 0..3 {
        w.write("b", &format!("half {i}"));
        play.capture(Phase::Pause, "build", i).await;
        play.capture(Phase::Resume, "build", i).await;
        w.write("b", &format!("build {i}"));
        play.done("build", i, ("test", i)).await;
        w.write("t", &format!("test {i}"));
        play.done("test", i, ("build", i + 1)).await;
    }
    play.fail("build", 3).await;
    let exactly = |node: &str, i| {
        let pivot = Pivot::Node { node: node.into(), iteration: Some(i) };
        RewindRequest { pivot, ..RewindRequest::default() }
    };
    let cases = [
        ("test", 2, "build 2", "test 1"),
        ("build", 1, "build 0", "test 0"),
        ("test", 0, "build 0", "<entity not found>"),
    ];
    for (node, i, b, t) in cases {
        let done = w.rewind(&play.id(), exactly(node, i)).await.expect("rewound");
        assert_eq!((done.node_id.as_str(), done.iteration()), (node, i));
        assert_eq!((w.read("b"), w.read("t")), (b.into(), t.into()), "{node} {i}");
        // The next entry has a number that no label names.
        let record = w.load(&play.id()).await.record;
        let checkpoint = record.checkpoint().expect("a checkpoint");
        assert!(checkpoint.current.is_none());
        let next = checkpoint.node_visits[node];
        assert_eq!(next, if node == "build" { 4 } else { 3 });
    }
    let pivot = Pivot::At("pre:build:0".into());
    let done = w.rewind(&play.id(), RewindRequest { pivot, ..RewindRequest::default() }).await;
    assert_eq!(done.expect("rewound").node_id, "build");
    assert_eq!(w.read("b"), "<entity not found>");
}

#[tokio::test]
async fn res_104_the_workflow_file_survives() {
    let w = World::new().await;
    w.write("flow.yaml", crate::world::FLOW);
    w.write("other.yaml", "then");
    let mut play = Play::start(&w).await;
    w.write("flow.yaml", "edited by the run");
    w.write("other.yaml", "edited by the run");
    play.fail("plan", 0).await;
    let mut now = source(crate::world::FLOW);
    now.path = Some(rel("flow.yaml"));
    let done = w.rewind(&play.id(), RewindRequest { source: Some(now), ..to("plan") }).await;
    let done = done.expect("rewound");
    assert_eq!(
        (w.read("flow.yaml"), w.read("other.yaml")),
        ("edited by the run".into(), "then".into())
    );
    let left = &done.files.restore.expect("files").left_in_place;
    assert_eq!((&left[0].path, left[0].reason), (&rel("flow.yaml"), LeftReason::Protected));
}

#[tokio::test]
async fn res_107_only_a_person_resumes_a_rewound_run() {
    let w = World::new().await;
    let play = failed(&w).await;
    let done = w.rewind_to(&play.id(), "build").await.expect("rewound");
    assert_eq!(done.status, Status::PausedOperator);
    let mut run = w.load(&play.id()).await;
    assert!(run.record.needs_person());
    assert_eq!(run.record.rewind_transaction.as_deref(), done.transaction().map(|t| t.as_str()));
    assert!(run.record.extra.is_empty(), "{:?}", run.record.extra);
    let runs = w.runs();
    for actor in [Actor::Automation, Actor::Engine] {
        let change = Transition::new(Status::Queued, actor, [Status::PausedOperator]);
        assert_eq!(
            runs.transition(&mut run, &change).await.expect_err("no").code(),
            "bad-transition"
        );
    }
    let change = Transition::new(Status::Queued, Actor::Person, [Status::PausedOperator]);
    assert_eq!(runs.transition(&mut run, &change).await.expect("moved"), Moved::To(Status::Queued));
    assert!(!run.record.needs_person());
}

#[tokio::test]
async fn res_108_files_of_a_finished_run_go_back_and_its_record_stays() {
    let w = World::new().await;
    w.write("a", "then");
    let mut play = Play::start(&w).await;
    w.write("a", "now");
    play.capture(Phase::Post, "plan", 0).await;
    play.end(Status::Finished).await;
    let before = w.load(&play.id()).await.record;
    let done = w.rewind(&play.id(), RewindRequest::default()).await.expect("rewound");
    assert_eq!(w.read("a"), "then");
    assert!(!done.record_rewound());
    assert_eq!(w.load(&play.id()).await.record, before);
    assert_eq!(events(&w, &play).await[0]["record"], "unchanged");
    let chain = w.of_run(&play.id()).snapshots().await.expect("snapshots");
    assert!(chain[0].rewound_to.is_some());
    w.undo().await.expect("undone");
    assert_eq!(w.read("a"), "now");
}

/// The data of every `run_rewound`.
async fn events(w: &World, play: &Play<'_>) -> Vec<serde_json::Value> {
    let runs = w.runs();
    let mut out = Vec::new();
    let mut rows = runs.events(play.run.id(), 0);
    while let Some(event) = rows.next().await {
        let event = event.expect("an event");
        if event.kind() == "run_rewound" {
            out.push(event.fields()["data"].clone());
        }
    }
    out
}

#[tokio::test]
async fn res_110_a_publishing_node_leaves_a_tombstone() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    w.write("p", "0");
    play.done("plan", 0, ("build", 0)).await;
    let (runs, id) = (w.runs(), play.id());
    for version in 0..2 {
        let data = json!({ "n": version });
        runs.write_artifact(&id, &node("build"), version, data, Vec::new()).await.expect("written");
    }
    play.checkpoint.artifact_versions.insert("build".into(), 2);
    w.write("b", "0");
    play.done("build", 0, ("test", 0)).await;
    play.fail("test", 0).await;
    let done = w.rewind_to(&id, "build").await.expect("rewound");
    assert_eq!(done.tombstoned_artifacts()["build"], 2);
    let versions = runs.artifact_versions(&id).await.expect("versions");
    assert_eq!(versions[&node("build")], [0, 1, 2]);
    let tombstone = runs.artifact(&id, &node("build"), 2).await.expect("there");
    assert_eq!(tombstone.labels, ["rewound"]);
    assert_eq!(tombstone.data["_rewound"], true);
    assert_eq!(tombstone.data["_supersedes"], 1);
    assert_eq!(tombstone.data["_rewound_to"], "build");
    assert_eq!(runs.artifact(&id, &node("build"), 0).await.expect("there").data["n"], 0);
    let record = w.load(&id).await.record;
    assert_eq!(record.checkpoint().expect("a checkpoint").artifact_versions["build"], 3);
    assert_eq!(record.artifact_index.expect("an index")["build"], 2);
}

#[tokio::test]
async fn res_111_an_open_question_of_a_node_that_is_done_again_is_retired() {
    let w = World::new().await;
    let mut play = Play::start(&w).await;
    w.write("p", "0");
    play.done("plan", 0, ("build", 0)).await;
    let (runs, id) = (w.runs(), play.id());
    let asks = |n: &str| interaction_id(&id, &node(n), 0, 0).expect("an id");
    let ask = async |n: &str| {
        let (question, by) = (asks(n), node(n));
        runs.ask(&id, &question, &by, json!({"ok": "?"}), None).await.expect("asked");
    };
    ask("plan").await;
    ask("build").await;
    play.checkpoint.interaction_id = Some(asks("build").to_string());
    play.capture(Phase::Pause, "build", 0).await;
    let (checkpoint, pause) = (play.checkpoint.clone(), Status::PausedWaitingHuman);
    let pointer = backtrail_core::run::PausePointer {
        interaction_id: asks("build").to_string(),
        questions: Some(json!({"ok": "?"})),
    };
    play.pause(pause, checkpoint, pointer).await;
    let done = w.rewind_to(&id, "build").await.expect("rewound");
    assert_eq!(done.retired_interactions(), [asks("build")]);
    let retired = |id: InteractionId| {
        let (runs, run) = (runs.clone(), play.id());
        async move { runs.interaction(&run, &id).await.expect("there").retired_at.is_some() }
    };
    assert!(retired(asks("build")).await && !retired(asks("plan")).await);
    let record = w.load(&id).await.record;
    let checkpoint = record.checkpoint().expect("a checkpoint");
    assert_eq!((&checkpoint.interaction_id, &checkpoint.interaction_questions), (&None, &None));
    // The gate asks under a number of its own.
    assert_eq!(checkpoint.node_visits["build"], 1);
    assert!(interaction_id(&id, &node("build"), 1, 0).is_ok());
}

#[tokio::test]
async fn res_112_a_child_run_of_a_node_with_a_longer_name_stays() {
    let flow = crate::world::FLOW.replace("build", "node_a").replace("plan", "node_ab");
    let w = World::new().await;
    let mut play = Play::of(&w, Some(&flow), "node_ab").await;
    w.write("p", "0");
    play.done("node_ab", 0, ("node_a", 0)).await;
    let children = json!({
        "node_ab": "one", "node_ab#1": "two", "node_a": "three", "node_a@0": "four", "node_a#2": "five",
    });
    play.patch(|r| {
        r.extra.insert("child_runs".into(), children.clone());
    })
    .await;
    w.write("q", "0");
    play.fail("node_a", 0).await;
    let done = w.rewind_to(&play.id(), "node_a").await.expect("rewound");
    assert_eq!(done.orphaned_child_runs(), ["node_a", "node_a#2", "node_a@0"]);
    let record = w.load(&play.id()).await.record;
    assert_eq!(record.extra["child_runs"], json!({ "node_ab": "one", "node_ab#1": "two" }));
}

#[tokio::test]
async fn res_113_the_log_only_grows_and_tells_all() {
    let w = World::new().await;
    let mut play = failed(&w).await;
    let first = w.rewind_to(&play.id(), "test").await.expect("rewound");
    play.resume().await;
    play.capture(Phase::Resume, "test", 1).await;
    play.enter("test", 1).await;
    play.alias(Phase::Pre, "test", 1).await;
    w.write("again", "x");
    play.fail("test", 1).await;
    w.rewind_to(&play.id(), "build").await.expect("rewound");
    let told = events(&w, &play).await;
    assert_eq!(told.len(), 2);
    assert_eq!(told[0]["transaction"], json!(first.transaction()));
    let data = &told[1];
    assert_eq!((&data["from_node"], &data["to_node"]), (&json!("test"), &json!("build")));
    assert_eq!(data["dropped_nodes"], json!(["build"]));
    assert_eq!(data["files_reverted"], true);
    assert_eq!(data["files_restore_scope"], "produced");
    assert_eq!(data["files_scope_count"], 4, "{data}");
    assert_eq!(data["files_left_in_place_paths"], json!(["notes"]));
    assert!(data["files_bank"].is_string() && data["files_target"].is_string());
    let record = w.load(&play.id()).await.record;
    let checkpoint = record.checkpoint().expect("a checkpoint");
    assert_eq!(checkpoint.node_id, "build");
    assert!(checkpoint.outputs.contains_key("plan") && !checkpoint.outputs.contains_key("build"));
    assert_eq!(record.failure_code(), None::<&FailureCode>);
}

#[tokio::test]
async fn res_114_a_node_inside_a_fan_out_means_the_node_around_it() {
    let flow = r#"
backtrail: 1
name: fan
entry: start
nodes:
  start: {kind: run, command: "true"}
  fan: {kind: parallel, branches: [left, right], join: after}
  left: {kind: run, command: "true"}
  right: {kind: run, command: "true"}
  after: {kind: run, command: "true"}
  end: {kind: done}
edges:
  - {from: start, to: fan}
  - {from: left, to: after}
  - {from: right, to: after}
  - {from: after, to: end}
"#;
    let w = World::new().await;
    let mut play = Play::of(&w, Some(flow), "start").await;
    play.done("start", 0, ("fan", 0)).await;
    w.write("left", "x");
    w.write("right", "x");
    play.checkpoint.outputs.insert("left".into(), json!({}));
    play.done("fan", 0, ("after", 0)).await;
    play.fail("after", 0).await;
    let done = w.rewind_to(&play.id(), "left").await.expect("rewound");
    assert_eq!((done.node_id.as_str(), done.promoted_from()), ("fan", Some("left")));
    assert_eq!(w.read("right"), "<entity not found>");
    assert_eq!(done.dropped_nodes(), ["fan", "left"]);
}
