//! YAML that must be refused, at its place and in bounded time.

use std::time::{Duration, Instant};

use backtrail_core::workflow::check::check;
use backtrail_core::workflow::finding::Finding;

fn first(text: &[u8]) -> Finding {
    let started = Instant::now();
    let checked = check("flow.yaml", text);
    assert!(started.elapsed() < Duration::from_secs(5), "it took {:?}", started.elapsed());
    assert!(checked.definition.is_none());
    checked.report.findings()[0].clone()
}

#[test]
fn run_va02_hostile_yaml_is_refused_with_its_position_in_bounded_time() {
    let bomb: String = (1..12).fold(String::from("a0: &a0 [x, x]\n"), |text, n| {
        let before = format!("*a{}", n - 1);
        let list = vec![before; 9].join(", ");
        format!("{text}a{n}: &a{n} [{list}]\n")
    });
    let deep = format!("a: {}x{}\n", "[".repeat(70), "]".repeat(70));
    let blocks: String = (0..80).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let aliases = "a: &a [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n\
                   b: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n";
    let large = format!("a: {}\n", "x".repeat(2 << 20));
    for (text, code, line, column) in [
        ("a: 1\nb: 2\na: 3\n", "W003", 3, 1),
        (bomb.as_str(), "W002", 6, 20),
        (&deep, "W002", 1, 67),
        (&blocks, "W002", 65, 65),
        (aliases, "W002", 2, 40),
        ("a: &a [*a]\n", "W001", 1, 8),
        ("a: 1\n---\nb: 2\n", "W010", 2, 1),
        (&large, "W002", 1, 1),
        ("a: !!str 1\n", "W010", 1, 4),
    ] {
        let checked = check("flow.yaml", text.as_bytes());
        let wanted = |f: &&Finding| f.code.as_str() == code;
        let found = checked.report.findings().iter().find(wanted).expect(code);
        assert_eq!(
            (found.span.line, found.span.column),
            (line, column),
            "{code}: {}",
            found.message
        );
        first(text.as_bytes());
    }
    let bad = first(b"a: 1\nb: x\xff\n");
    assert_eq!((bad.code.as_str(), bad.span.line, bad.span.column), ("W001", 2, 5));
    // much of everything, within the limit of size
    for text in
        ["[", "{a: ", "- ", "? ", "&a ", "*a ", "'", "\"\\", "|\n", "a: b\n", "{{", "%", "# "]
    {
        let text = text.repeat((1 << 20) / text.len());
        first(text.as_bytes());
    }
}

#[test]
fn yes_is_text_as_yaml_1_2_has_it() {
    let flow = crate::world::workflow(
        "vars: {a: yes, b: off, c: true, d: 012, e: 0o17}\nentry: end\nnodes: {end: {kind: done}}\n",
    );
    let vars = serde_json::to_value(&flow.vars).expect("JSON");
    assert_eq!(vars, serde_json::json!({"a": "yes", "b": "off", "c": true, "d": 12, "e": 15}));
}

#[test]
fn the_limits_on_nodes_and_edges_hold_and_a_large_workflow_is_checked_in_time() {
    let nodes: String =
        (0..5_000).map(|n| format!("  n{n}: {{kind: compute, set: {{}}}}\n")).collect();
    let edge =
        |n: usize| format!("- {{from: n{n}, to: n{}, when: outputs.n0.x}}\n", (n + 1) % 5_000);
    let edges: String = (0..5_000).map(edge).collect();
    let text = format!("backtrail: 1\nname: t\nentry: n0\nnodes:\n{nodes}edges:\n{edges}");
    assert_eq!(first(text.as_bytes()).code.as_str(), "W014");
    let more = text.replace("nodes:\n", "nodes:\n  extra: {kind: done}\n");
    assert_eq!(first(more.as_bytes()).code.as_str(), "W002");
    let edges = "- {from: n0, to: n1}\n".repeat(20_001);
    let many = format!("backtrail: 1\nname: t\nentry: n0\nnodes:\n{nodes}edges:\n{edges}");
    assert!(
        check("f", many.as_bytes()).report.findings().iter().any(|f| f.code.as_str() == "W002")
    );
}
