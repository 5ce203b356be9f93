//! `--auto`: RES-115.

use backtrail_core::error::Kind;
use backtrail_core::rewind::{Pivot, RewindRequest};

use crate::world::{FLOW, Play, World, failed, source};

fn edited(text: &str) -> RewindRequest {
    RewindRequest { pivot: Pivot::Auto, source: Some(source(text)), ..RewindRequest::default() }
}

#[tokio::test]
async fn res_115_the_edited_node_is_found() {
    let cases = [
        (FLOW.replace("test: {kind: run", "test: {kind: run, timeout: 3m"), "test", false),
        (FLOW.replace("build: {kind: run", "build: {kind: run, timeout: 3m"), "build", false),
        (
            format!("# a comment\n\n{FLOW}").replace("command: \"true\"}", "command: \"false\"}"),
            "plan",
            false,
        ),
        (FLOW.replace("entry: plan", "entry: plan\nvars: {x: 1}"), "plan", true),
        (FLOW.replace("max: 9", "max: 8"), "test", false),
    ];
    for (text, node, workflow) in cases {
        let w = World::new().await;
        let play = failed(&w).await;
        let done = w.rewind(&play.id(), edited(&text)).await.expect("rewound");
        assert!(done.auto_targeted);
        assert_eq!(done.node_id, node);
        assert_eq!(done.changes.expect("changes").workflow, workflow);
    }
}

#[tokio::test]
async fn res_115_no_single_node_is_refused() {
    let w = World::new().await;
    let play = failed(&w).await;
    // Nothing but comments and order.
    let e = w.rewind(&play.id(), edited(&format!("# hello\n{FLOW}"))).await.expect_err("none");
    assert_eq!((e.kind(), e.code()), (Kind::Refused, "auto-target"));

    let fork = r#"
backtrail: 1
name: fork
entry: fan
nodes:
  fan: {kind: router, route: "'left'"}
  left: {kind: run, command: "true"}
  right: {kind: run, command: "true"}
  end: {kind: done}
edges:
  - {from: fan, to: left}
  - {from: fan, to: right}
  - {from: left, to: end}
  - {from: right, to: end}
"#;
    let w = World::new().await;
    let mut play = Play::of(&w, Some(fork), "fan").await;
    play.done("fan", 0, ("left", 0)).await;
    play.done("left", 0, ("right", 0)).await;
    play.fail("right", 0).await;
    let both = fork.replace("command: \"true\"", "command: \"false\"");
    let e = w.rewind(&play.id(), edited(&both)).await.expect_err("two");
    assert_eq!(e.code(), "auto-target");
    assert_eq!(e.details()["candidates"], serde_json::json!(["left", "right"]));

    let w = World::new().await;
    let long = format!("{FLOW}# {}\n", "x".repeat(1 << 20));
    let mut play = Play::of(&w, Some(&long), "plan").await;
    play.fail("plan", 0).await;
    let e = w.rewind(&play.id(), edited(FLOW)).await.expect_err("not recorded");
    assert_eq!(e.code(), "auto-target");
    assert!(e.message().contains("1 MiB"), "{e}");
}
