//! Hooks: a script plays the agent, with the configuration that the documentation gives.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use backtrail_tests::cli::{Run, Sandbox, finish};
use serde_json::{Value, json};

use crate::world::World;

/// The configuration in the documentation.
fn configured() -> Value {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/agents.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let block = text.split("```json").nth(1).and_then(|t| t.split("```").next());
    serde_json::from_str(block.expect("a block")).expect("JSON")
}

/// A directory in which the command has its own name.
fn path_of(sandbox: &Sandbox) -> String {
    let bin = sandbox.top().join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).expect("mkdir");
        let from = env!("CARGO_BIN_EXE_backtrail-under-test");
        std::os::unix::fs::symlink(from, bin.join("backtrail")).expect("link");
    }
    format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH"))
}

/// The agent: each moment calls what is configured for it, through a shell.
const AGENT: &str = r#"
say() { printf '{"session_id": "s-7", "cwd": "%s", "hook_event_name": "x", "tool_name": "%s"}' "$PWD" "$1"; }
hook() { say "$2" | sh -c "$1" >> "$OUT" || echo "failed: $1" >> "$OUT"; }
hook "$SessionStart"
hook "$UserPromptSubmit"
hook "$PreToolUse" Write
echo first > agent.txt
hook "$PreToolUse" Edit
echo second >> agent.txt
hook "$Stop"
echo mine > mine.txt
hook "$UserPromptSubmit"
hook "$PreToolUse" Bash
rm a.txt
hook "$Stop"
hook "$SessionEnd"
"#;

fn play(world: &World, script: &str) -> Run {
    let mut command = world.sandbox.command::<&str>([]);
    let mut agent = std::process::Command::new("sh");
    agent.args(["-c", script]).current_dir(world.sandbox.workspace()).env_clear();
    let kept = command.get_envs().filter_map(|(k, v)| Some((k.to_owned(), v?.to_owned())));
    agent.envs(kept.collect::<Vec<_>>()).env("PATH", path_of(&world.sandbox));
    agent.env("OUT", world.sandbox.top().join("out"));
    for (moment, groups) in configured()["hooks"].as_object().expect("hooks") {
        agent.env(moment, groups[0]["hooks"][0]["command"].as_str().expect("a command"));
    }
    command = agent;
    command.stdin(Stdio::null());
    finish(command)
}

#[test]
fn run_lb02_an_agent_with_the_documented_hooks_is_recorded_and_taken_back() {
    let world = World::new();
    play(&world, AGENT).expect(0);
    let printed = std::fs::read_to_string(world.sandbox.top().join("out")).expect("there");
    assert_eq!(printed, "");
    let run = world.json(&["runs", "list"]).expect(0).json();
    assert_eq!(run["status"], "finished");
    let id = run["id"].as_str().expect("an id").to_owned();
    let labels: Vec<String> = world.labels(&id).into_iter().map(|(l, _)| l).collect();
    let want = [
        "post:prompt:0",
        "post:prompt:1",
        "pre:prompt:0",
        "pre:prompt:1",
        "resume:prompt:1",
        "step:0",
        "step:1",
        "step:2",
    ];
    assert_eq!(labels, want);
    assert_eq!(world.at(&id, "step:1", "agent.txt").as_deref(), Some("first\n"));
    assert_eq!(world.record(&id)["session_key"], "s-7");
    // the newest prompt, then all of them; the person's file stays
    world.json(&["rewind", "--node", "prompt", "--yes"]).expect(0);
    assert!(world.sandbox.path("a.txt").exists() && world.sandbox.path("agent.txt").exists());
    world.json(&["rewind", "--yes"]).expect(0);
    assert!(!world.sandbox.path("agent.txt").exists());
    assert!(world.sandbox.path("mine.txt").exists());
}

#[test]
fn run_lb02_an_agent_that_was_interrupted_leaves_a_failed_step() {
    let world = World::new();
    let cut = AGENT.split("echo mine").next().expect("a part").replace("hook \"$Stop\"", "");
    let person = "sleep 0.1; echo mine > mine.txt";
    let script = format!("{cut}\n{person}\nhook \"$UserPromptSubmit\"\nhook \"$SessionEnd\"\n");
    play(&world, &script).expect(0);
    let run = world.json(&["runs", "list"]).expect(0).json();
    let run = run["id"].as_str().expect("an id");
    let labels = world.labels(run);
    assert!(labels.iter().any(|(l, _)| l == "fail:prompt:0"), "{labels:?}");
    assert!(labels.iter().all(|(l, _)| !l.starts_with("post:")), "{labels:?}");
    // when it was interrupted nobody knows: what a person did since is not the agent's
    let done = world.json(&["rewind", run, "--yes"]).expect(3).json();
    let text = std::fs::read_to_string(world.sandbox.path("mine.txt"));
    assert_eq!(text.expect("the person's"), "mine\n");
    let left = done["files"]["left_in_place"].as_array().expect("a list");
    assert!(left.iter().any(|l| l["path"] == "mine.txt" && l["reason"] == "unattributed"));
}

/// Calls a hook with this on standard input.
fn call(world: &World, args: &[&str], input: Option<&str>) -> (Run, Duration) {
    let mut command = world.sandbox.command(args);
    command.stdin(Stdio::piped());
    let began = Instant::now();
    let mut child = command.spawn().expect("start");
    let mut pipe = child.stdin.take().expect("piped");
    let held = match input {
        Some(text) => {
            let _ = pipe.write_all(text.as_bytes());
            drop(pipe);
            None
        }
        None => Some(pipe),
    };
    let run = crate::world::end(child);
    drop(held);
    (run, began.elapsed())
}

/// Every command that a hook can call.
const HOOKS: [&[&str]; 6] = [
    &["runs", "begin", "--hook"],
    &["runs", "boundary", "--hook", "enter", "prompt"],
    &["runs", "boundary", "--hook", "leave", "prompt"],
    &["runs", "event", "--hook", "tool_called"],
    &["capture", "--hook"],
    &["runs", "end", "--hook"],
];

#[test]
fn run_lb02_a_hook_never_fails_its_agent() {
    let mut world = World::new();
    let good = json!({"session_id": "s", "cwd": world.sandbox.workspace()}).to_string();
    let inputs = ["", "{", "[]", "null", "{\"session_id\": 3}", "{\"session_id\": \"x\"}", "\u{0}"];
    for args in HOOKS {
        for input in inputs {
            let (run, _) = call(&world, args, Some(input));
            assert_eq!((run.code, run.stdout.len()), (0, 0), "{input:?}: {run}");
        }
    }
    // written wrongly
    for args in [&["runs", "begin", "--hook", "--nonsense"][..], &["runs", "boundary", "--hook"]] {
        let (run, _) = call(&world, args, Some(&good));
        assert_eq!((run.code, run.stdout.len()), (0, 0), "{run}");
    }
    // no store can be there
    world.sandbox.env("BACKTRAIL_STORE", "/dev/null/store");
    for args in HOOKS {
        let (run, _) = call(&world, args, Some(&good));
        assert_eq!((run.code, run.stdout.len()), (0, 0), "{run}");
    }
    world.sandbox.env("BACKTRAIL_STORE", "nonsense://x");
    for args in HOOKS {
        let (run, _) = call(&world, args, Some(&good));
        assert_eq!((run.code, run.stdout.len()), (0, 0), "{run}");
    }
}

#[test]
fn run_lb02_a_hook_that_gets_stuck_gives_up_in_time_and_says_so_in_the_log() {
    let world = World::new();
    let good = json!({"session_id": "s", "cwd": world.sandbox.workspace()}).to_string();
    // an agent that never closes the pipe
    let (run, took) = call(&world, HOOKS[0], None);
    assert_eq!((run.code, run.stdout.len()), (0, 0), "{run}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    // a file system that answers nobody: the store is behind a pipe that nobody reads
    call(&world, HOOKS[0], Some(&good)).0.expect(0);
    let id = world.json(&["runs", "list"]).expect(0).json()["id"].as_str().expect("id").to_owned();
    let (run, _) = call(&world, HOOKS[2], Some(&good));
    assert_eq!((run.code, run.stdout.len()), (0, 0), "{run}");
    let log = world.log(&id);
    assert!(log.contains("[backtrail] a hook failed: run s-"), "{log}");
    let record = world.sandbox.store().join("runs").join(&id).join("run.json");
    let kept = std::fs::read(&record).expect("there");
    std::fs::remove_file(&record).expect("remove");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &record,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a pipe");
    for args in HOOKS {
        let (run, took) = call(&world, args, Some(&good));
        assert_eq!((run.code, run.stdout.len()), (0, 0), "{run}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    std::fs::remove_file(&record).expect("remove");
    std::fs::write(&record, kept).expect("write");
    world.json(&["runs", "end", &id]).expect(0);
}
