//! Iterations: each entry into a node has a number of its own, and every view agrees.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::World;

const FLOW: &str = "entry: outer
nodes:
  outer: {kind: run, command: 'NOTE'}
  inner:
    kind: run
    retry: {max: 2, delay: 1ms}
    command: 'NOTE; test $BACKTRAIL_ITERATION -ne 1 -o $BACKTRAIL_ATTEMPT -ge 3'
  gate: {kind: run, command: 'NOTE; test $BACKTRAIL_ITERATION -ne 1 -o $BACKTRAIL_ATTEMPT -ge 2'}
  last: {kind: run, command: 'NOTE; test -e TOP/go'}
  end: {kind: done}
edges:
  - {from: outer, to: inner}
  - {from: inner, to: inner, when: 'true', loop: small, max: 2}
  - {from: inner, to: gate}
  - {from: gate, to: outer, when: 'true', loop: big, max: 2}
  - {from: gate, to: last}
  - {from: last, to: end}
";

/// Node → each iteration and attempt that was executed, in order.
type Executed = BTreeMap<String, Vec<(u64, u64)>>;

fn executed(world: &World) -> Executed {
    let text = std::fs::read_to_string(world.sandbox.top().join("trace")).expect("read");
    let mut out = Executed::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse().expect("a number");
        out.entry(words[0].to_owned()).or_default().push((number(1), number(2)));
    }
    out
}

fn iterations(executed: &Executed, node: &str) -> Vec<u64> {
    let mut all: Vec<u64> = executed[node].iter().map(|e| e.0).collect();
    all.dedup();
    all
}

#[test]
fn run_bd04_no_entry_has_the_number_of_another_and_every_view_agrees() {
    let world = World::new();
    let top = world.sandbox.top().display().to_string();
    let note = format!(
        "n=$BACKTRAIL_NODE; echo $n $BACKTRAIL_ITERATION $BACKTRAIL_ATTEMPT | tee -a {top}/trace > $n.txt"
    );
    world.flow(&FLOW.replace("NOTE", &note).replace("TOP", &top));
    // gate fails in its iteration 1, last fails until it may go on
    world.run("r1", &[]).expect(1);
    world.json(&["resume", "r1"]).expect(1);
    world.json(&["resume", "r1"]).expect(1);
    let first = executed(&world);
    assert_eq!(iterations(&first, "outer"), [0, 1, 2]);
    assert_eq!(iterations(&first, "inner"), (0..9).collect::<Vec<_>>());
    assert_eq!(first["gate"], [(0, 1), (1, 1), (1, 2), (2, 1)]);
    assert_eq!(first["last"], [(0, 1), (0, 2)]);
    let tries: Vec<u64> = first["inner"].iter().filter(|e| e.0 == 1).map(|e| e.1).collect();
    assert_eq!(tries, [1, 2, 3]);
    // a rewind in the middle, and the entries that follow have numbers above all others
    world.json(&["rewind", "r1", "--node", "inner", "--iteration", "4", "--yes"]).expect(0);
    std::fs::write(format!("{top}/go"), "").expect("write");
    world.json(&["resume", "r1"]).expect(0);
    let all = executed(&world);
    for (node, entries) in &all {
        let unique: BTreeSet<_> = entries.iter().collect();
        assert_eq!(unique.len(), entries.len(), "{node}: {entries:?}");
        let numbers = iterations(&all, node);
        assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "{node}: {numbers:?}");
    }
    assert!(iterations(&all, "inner").len() > 9);
    agree(&world, &all);
}

/// What was executed, events, labels, `list` and `rewind` name the same entries.
fn agree(world: &World, executed: &Executed) {
    let labels = world.labels("r1");
    let rows = world.snapshots("r1");
    let started: BTreeSet<(String, u64)> = world
        .events("r1")
        .iter()
        .filter(|e| e["type"] == "node_started" && e["node_id"] != "end")
        .map(|e| {
            let node = e["node_id"].as_str().expect("a node").to_owned();
            (node, e["data"]["iteration"].as_u64().expect("a number"))
        })
        .collect();
    let mut seen = BTreeSet::new();
    for (label, snapshot) in &labels {
        let words: Vec<&str> = label.split(':').collect();
        if words[0] != "pre" || words[1] == "end" {
            continue;
        }
        seen.insert((words[1].to_owned(), words[2].parse().expect("a number")));
        let row = rows.iter().find(|s| s["id"] == snapshot.as_str()).expect("listed");
        assert!(row["labels"].to_string().contains(label.as_str()), "{label}: {row}");
        let run =
            world.json(&["rewind", "r1", "--node", words[1], "--iteration", words[2], "--dry-run"]);
        let plan = run.json();
        if run.code == 4 {
            // behind a rewind: it says so, and names no other
            assert_eq!(run.error_code(), "undone-by-rewind", "{label}: {run}");
            continue;
        }
        assert_eq!(run.code, 0, "{label}: {run}");
        assert_eq!(plan["iteration"].to_string(), words[2], "{label}");
        let target = &plan["files"]["target"]["snapshot"];
        assert!(target.is_null() || target == snapshot.as_str(), "{label}: {plan}");
    }
    let ran: BTreeSet<(String, u64)> =
        executed.iter().flat_map(|(node, all)| all.iter().map(|e| (node.clone(), e.0))).collect();
    assert_eq!(started, ran);
    assert_eq!(seen, ran);
    // the file that a node wrote of itself is in its own post:
    for (node, iteration) in ran {
        let post = format!("post:{node}:{iteration}");
        if labels.iter().any(|(l, _)| *l == post) {
            let text = world.at("r1", &post, &format!("{node}.txt")).expect("a file");
            assert!(text.starts_with(&format!("{node} {iteration} ")), "{post}: {text}");
        }
    }
}
