//! The engine killed at random: behind each step of a node's end, and at any moment. What
//! it left goes on, and nothing of it is ahead of what is durable.
//!
//! `BACKTRAIL_CRASH_SEED` plays a printed seed again; `BACKTRAIL_KILLS` how often it
//! is killed (100 before a release).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use backtrail_tests::cli::{Run, assert_same_tree, tree};
use backtrail_tests::random::{Random, number};
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, end};

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Each step of a node's end, and of a claim; how often a run reaches it.
const POINTS: [(&str, u64); 11] = [
    ("run.created", 1),
    ("run.ended", 5),
    ("capture.objects", 5),
    ("capture.trees", 5),
    ("capture.document", 5),
    ("capture.refs", 5),
    ("run.capture", 6),
    ("run.artifact", 3),
    ("run.events", 8),
    ("run.checkpoint", 5),
    ("run.status", 1),
];

/// Five nodes: each notes outside that it was executed, and makes the same files whenever it
/// is. Some publish, all are waited for.
fn flow(world: &World) {
    let top = world.sandbox.top().display().to_string();
    let mut body = String::from("entry: a\ncheckpoint: each\nnodes:\n");
    for (n, node) in NODES.iter().enumerate() {
        let publish = if n % 2 == 0 { format!("publish: {node}, ") } else { String::new() };
        body += &format!(
            "  {node}: {{kind: run, {publish}command: 'echo x >> {top}/count.{node}; \
             mkdir -p out; echo {node} > out/{node}; echo {node} > last; sleep 0.02'}}\n"
        );
    }
    body += "  end: {kind: done}\nedges:\n";
    for pair in NODES.windows(2) {
        body += &format!("  - {{from: {}, to: {}}}\n", pair[0], pair[1]);
    }
    world.flow(&(body + "  - {from: e, to: end}\n"));
}

fn counts(world: &World) -> BTreeMap<&'static str, usize> {
    let count = |node: &&'static str| {
        let path = world.sandbox.top().join(format!("count.{node}"));
        (*node, std::fs::read_to_string(path).map_or(0, |text| text.lines().count()))
    };
    NODES.iter().map(count).collect()
}

/// What is durable after a kill: the nodes whose checkpoint is, each with how often it was
/// executed. Nothing that the checkpoint says is ahead of log, labels and artifacts.
fn durable(world: &World, story: &[String]) -> Vec<(&'static str, usize)> {
    let why = story.join(", ");
    let shown = world.json(&["runs", "show", "r1"]);
    if shown.code == 6 {
        return Vec::new(); // killed before it was created
    }
    let shown = shown.expect(0).json();
    let checkpoint = &shown["run"]["checkpoint"];
    let events = world.events("r1");
    let labels = shown["boundaries"].to_string();
    let counts = counts(world);
    let mut out = Vec::new();
    for node in NODES {
        if checkpoint["outputs"][node].is_null() {
            continue;
        }
        let told = |kind: &str| events.iter().any(|e| e["type"] == kind && e["node_id"] == node);
        assert!(told("node_started") && told("node_finished"), "{why}: {node} ahead of its log");
        for phase in ["pre", "post"] {
            assert!(labels.contains(&format!("\"{phase}:{node}:0\"")), "{why}: {phase}:{node}:0");
        }
        let next = checkpoint["artifact_versions"][node].as_u64().unwrap_or(0);
        if next > 0 {
            let version = (next - 1).to_string();
            let args = ["runs", "artifacts", "r1", "--node", node, "--version", &version];
            world.json(&args).expect(0);
        }
        out.push((node, counts[node]));
    }
    let at = checkpoint["node_id"].as_str().expect("a node");
    let chosen = |e: &Value| e["type"] == "edge_selected" && e["data"]["to"] == at;
    assert!(at == "a" || events.iter().any(chosen), "{why}: {at} was not chosen yet");
    out
}

/// Starts or resumes the run and kills it. `None` when it came to its end before.
fn kill(world: &mut World, random: &mut Random, created: bool) -> (String, Option<Run>) {
    if random.below(2) == 0 {
        let (point, most) = random.of(&POINTS);
        let fault = format!("{point}:{}:kill", 1 + random.below(*most));
        world.sandbox.env("BACKTRAIL_FAULT", &fault);
        let run = go(world, created);
        world.sandbox.env_remove("BACKTRAIL_FAULT");
        return (fault, (run.code != 137).then_some(run));
    }
    let after = Duration::from_millis(random.below(700));
    let child = match created {
        true => world.sandbox.spawn(["resume", "r1", "--json"]),
        false => world.start("r1"),
    };
    std::thread::sleep(after);
    crate::world::signal(child.id(), Signal::KILL);
    let run = end(child);
    (format!("after {after:?}"), (run.code != 137).then_some(run))
}

/// Once nothing of a killed engine lives any more.
fn go(world: &World, created: bool) -> Run {
    let began = Instant::now();
    loop {
        let run = match created {
            true => world.json(&["resume", "r1"]),
            false => world.run("r1", &[]),
        };
        if run.code != 5 {
            return run;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{run}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One run that is killed up to three times and then goes on to its end.
fn round(random: &mut Random) -> u64 {
    let mut world = World::new();
    world.sandbox.write("last", "nobody\n");
    world.sandbox.chmod("last", 0o640);
    flow(&world);
    let before = world.sandbox.tree();
    let (mut kills, mut created, mut story) = (0, false, Vec::new());
    let mut kept = Vec::new();
    let mut ended = None;
    for _ in 0..=random.below(3) {
        let (how, run) = kill(&mut world, random, created);
        story.push(how);
        std::thread::sleep(Duration::from_millis(60)); // a node that is left ends by itself
        check_counts(&world, &kept, kills + 1, &story);
        ended = run;
        if ended.is_some() {
            break;
        }
        kills += 1;
        kept = durable(&world, &story);
        created = world.json(&["runs", "show", "r1"]).code == 0;
    }
    let run = ended.unwrap_or_else(|| go(&world, created));
    check_counts(&world, &kept, kills, &story);
    let why = story.join(", ");
    finished(&world, &run, &why);
    restores(&world, &before, &why);
    kills
}

/// A kill costs at most one execution, and none of a node whose checkpoint was durable.
fn check_counts(world: &World, kept: &[(&'static str, usize)], kills: u64, story: &[String]) {
    let (now, why) = (counts(world), story.join(", "));
    for (node, count) in kept {
        assert_eq!(now[node], *count, "{why}: {node} was durable and ran again");
    }
    let all: usize = now.values().sum();
    assert!(all as u64 <= NODES.len() as u64 + kills, "{why}: {now:?}");
}

fn finished(world: &World, run: &Run, why: &str) {
    match run.code {
        // it ended before the kill came, or had ended when it came
        4 => assert_eq!(world.status("r1"), "finished", "{why}: {run}"),
        _ => assert_eq!(run.code, 0, "{why}: {run}"),
    }
    assert!(counts(world).values().all(|n| *n >= 1), "{why}: {:?}", counts(world));
    let seqs: Vec<i64> = world.events("r1").iter().filter_map(|e| e["seq"].as_i64()).collect();
    assert!(seqs.windows(2).all(|w| w[0] < w[1]), "{why}: {seqs:?}");
    for node in NODES {
        let starts: Vec<String> = world
            .events("r1")
            .iter()
            .filter(|e| e["type"] == "node_started" && e["node_id"] == node)
            .map(|e| e["data"].to_string())
            .collect();
        let mut once = starts.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), starts.len(), "{why}: {node} {starts:?}");
    }
}

/// Each boundary holds what was there then, and can be put back.
fn restores(world: &World, before: &backtrail_tests::cli::Tree, why: &str) {
    let verified = world.json(&["verify", "--deep"]);
    assert_eq!(verified.code, 0, "{why}: {verified}");
    for (n, node) in NODES.iter().enumerate() {
        let into = world.sandbox.top().join(format!("at-{node}"));
        let args = ["restore", &format!("post:{node}:0"), "--run", &world.id("r1")];
        let into_text = into.display().to_string();
        let args = args.iter().copied().chain(["--into", &into_text, "--yes", "--json"]);
        let done = world.sandbox.run(args);
        assert_eq!(done.code, 0, "{why}: {done}");
        let there = tree(&into);
        for (m, other) in NODES.iter().enumerate() {
            let path = format!("out/{other}").into_bytes();
            assert_eq!(there.contains_key(&path), m <= n, "{why}: {other} at post:{node}:0");
        }
    }
    let args = ["restore", "pre:a:0", "--run", &world.id("r1"), "--allow-mass-delete", "--yes"];
    let done = world.sandbox.run(args);
    assert_eq!(done.code, 0, "{why}: {done}");
    assert_same_tree(&world.sandbox.tree(), before);
    world.json(&["undo", "--yes"]).expect(0);
    let done = world.json(&["rewind", "r1", "--yes"]);
    assert!(matches!(done.code, 0 | 3), "{why}: {done}");
    let verified = world.json(&["verify", "--deep"]);
    assert_eq!(verified.code, 0, "{why}: {verified}");
}

#[test]
fn run_pr05_killed_at_random_a_run_goes_on_and_nothing_is_ahead_of_its_log() {
    let clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
    let mut seed = number("BACKTRAIL_CRASH_SEED", clock);
    let (wanted, mut kills) = (number("BACKTRAIL_KILLS", 8), 0);
    while kills < wanted {
        println!("BACKTRAIL_CRASH_SEED={seed} BACKTRAIL_KILLS=1");
        kills += round(&mut Random::new(seed));
        seed += 1;
    }
    println!("{kills} kills");
}
