//! What a person was promised, told as it happens to them: real workflows, real processes,
//! a real git repository.

use std::process::Command;

use backtrail_tests::cli::{Tree, assert_same_tree, tree};
use serde_json::json;

use crate::world::World;

/// Writes many files from what it finds, as a bot does that documents a tree. It notes the
/// tree that it saw, and counts pages of its own that are there already.
const BOT: &str = r##"
cp -a . "$SEEN.$BACKTRAIL_ITERATION"
sources=$(find src -name '*.txt' | sort)
stale=$(find docs -name '*.md' 2>/dev/null | wc -l)
mkdir -p docs/pages docs/empty
n=0
for source in $sources; do
  n=$((n + 1))
  page="docs/pages/$(basename "$source" .txt).md"
  { echo "# $source"; cat "$source"; } > "$page"
  echo "documented" >> "$source"
done
chmod 755 src/s01.txt
rm src/old.txt
mv README README.md
rm link
ln -s docs/pages/s02.md link
ls docs/pages > docs/INDEX.md
printf '{"summary": "%d sources, %d stale pages"}' $n $stale > "$BACKTRAIL_OUTPUT"
"##;

#[test]
fn a_replayed_node_sees_the_tree_it_saw_first_and_not_what_it_made() {
    let mut world = World::new();
    let top = world.sandbox.top();
    world.sandbox.env("SEEN", top.join("seen"));
    for n in 0..36 {
        world.sandbox.write(format!("src/s{n:02}.txt"), format!("source {n}\n"));
    }
    for (path, bytes) in [("src/old.txt", "old\n"), ("README", "read me\n"), ("tool", "#!\n")] {
        world.sandbox.write(path, bytes);
    }
    world.sandbox.chmod("tool", 0o755);
    world.sandbox.chmod("src/s02.txt", 0o600);
    world.sandbox.mkdir("var/empty");
    world.sandbox.link("README", "link");
    world.flow(&format!(
        "entry: docs
nodes:
  docs: {{kind: run, publish: docs, command: {}}}
  approve: {{kind: run, command: 'test -e {}/approved'}}
  end: {{kind: done, output: {{summary: '{{{{ outputs.docs.summary }}}}'}}}}
edges: [{{from: docs, to: approve}}, {{from: approve, to: end}}]
",
        json!(BOT),
        top.display(),
    ));
    let before = world.sandbox.tree();
    let run = world.run("r1", &[]).expect(1).json();
    assert!(run["changes"]["added"].as_u64().is_some_and(|n| n > 36), "{run}");
    let produced = world.sandbox.tree();
    // put back before anything is replayed
    world.json(&["rewind", "r1", "--node", "docs", "--yes"]).expect(0);
    assert_same_tree(&world.sandbox.tree(), &before);
    std::fs::write(top.join("approved"), "").expect("write");
    let run = world.json(&["resume", "r1"]).expect(0).json();
    // the replay saw the old tree, byte for byte and mode for mode
    assert_same_tree(&tree(&top.join("seen.0")), &before);
    assert_same_tree(&tree(&top.join("seen.1")), &before);
    assert_eq!(run["result"]["summary"], "37 sources, 0 stale pages");
    assert_same_tree(&world.sandbox.tree(), &produced);
    // and the whole of it can still be taken back
    world.json(&["rewind", "r1", "--yes"]).expect(0);
    assert_same_tree(&world.sandbox.tree(), &before);
    world.json(&["undo", "--yes"]).expect(0);
    assert_same_tree(&world.sandbox.tree(), &produced);
}

/// Runs git for the person; no lock is taken for what only looks.
fn git(world: &World, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(args).current_dir(world.sandbox.workspace()).env_clear();
    let who = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"];
    command.envs(who.map(|name| (name, "me")));
    command.env("HOME", world.sandbox.home()).env("GIT_OPTIONAL_LOCKS", "0");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let out = command.output().expect("git");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Everything in `.git`, and what git says of it.
fn repository(world: &World) -> (Tree, String) {
    let says = [
        git(world, &["for-each-ref"]),
        git(world, &["stash", "list"]),
        git(world, &["ls-files", "--stage"]),
        git(world, &["symbolic-ref", "HEAD"]),
    ];
    (tree(&world.sandbox.path(".git")), says.concat())
}

fn status(world: &World) -> Vec<String> {
    let text = git(world, &["status", "--porcelain=v1", "--untracked-files=all"]);
    text.lines().map(str::to_owned).collect()
}

/// A checkout with a commit, a branch, a tag, a stash, something staged, something edited.
fn checkout(world: &World) {
    for name in ["run.txt", "gone.txt", "mine.txt", "staged.txt", "stashed.txt"] {
        world.sandbox.write(name, format!("{name}\n"));
    }
    world.sandbox.write("lib/a.rs", "fn a() {}\n");
    for args in [
        &["init", "-q", "-b", "main"] as &[&str],
        &["add", "-A"],
        &["commit", "-q", "-m", "one"],
        &["branch", "side"],
        &["tag", "v1"],
    ] {
        git(world, args);
    }
    world.sandbox.write("stashed.txt", "stashed\n");
    git(world, &["stash", "-q"]);
    world.sandbox.write("staged.txt", "staged\n");
    git(world, &["add", "staged.txt"]);
    world.sandbox.write("lib/a.rs", "fn a() { /* mine */ }\n");
}

#[test]
fn a_rewind_in_a_checkout_takes_back_the_runs_changes_and_nothing_else() {
    let world = World::new();
    checkout(&world);
    world.flow(
        "entry: edit
nodes:
  edit: {kind: run, command: 'echo run >> run.txt; rm gone.txt; mkdir new; echo x > new/x.txt'}
  ok: {kind: human, questions: {q: fine?}, answers: {fine: {type: bool}}}
  more: {kind: run, command: 'echo more >> run.txt; chmod +x lib/a.rs; mv new/x.txt new/y.txt'}
  end: {kind: done}
edges: [{from: edit, to: ok}, {from: ok, to: more}, {from: more, to: end}]
",
    );
    let (git_before, status_before) = (repository(&world), status(&world));
    let mut wanted = world.sandbox.tree();
    world.run("r1", &[]).expect(9);
    // the person works meanwhile
    for (path, text) in [("mine.txt", "mine, edited\n"), ("notes/todo.txt", "later\n")] {
        world.sandbox.write(path, text);
        let now = world.sandbox.tree();
        wanted.extend(
            now.into_iter().filter(|(p, _)| [path.as_bytes(), b"notes"].contains(&p.as_slice())),
        );
    }
    world.json(&["answer", "r1", "--answer", "fine=true"]).expect(0);
    let (produced, status_after) = (world.sandbox.tree(), status(&world));
    assert_ne!(status_after, status_before);
    // the newest run, all of it
    world.json(&["rewind", "--yes"]).expect(0);
    assert_same_tree(&world.sandbox.tree(), &wanted);
    let mut expected = status_before;
    expected.extend([" M mine.txt".to_owned(), "?? notes/todo.txt".to_owned()]);
    let (mut now, by_path) = (status(&world), |line: &String| line[3..].to_owned());
    expected.sort_by_key(by_path);
    now.sort_by_key(by_path);
    assert_eq!(now, expected);
    world.json(&["undo", "--yes"]).expect(0);
    assert_same_tree(&world.sandbox.tree(), &produced);
    assert_eq!(status(&world), status_after);
    let git_after = repository(&world);
    assert_same_tree(&git_after.0, &git_before.0);
    assert_eq!(git_after.1, git_before.1);
}

#[test]
fn run_bd13_whatever_a_command_does_to_files_a_rewind_undoes() {
    let scripts = [
        "rm -rf d",
        ": > long.txt; truncate -s 3 d/x.txt",
        "sed -i s/one/two/ a.txt",
        "mv a.txt b.txt; mv d e",
        "rm -rf d; : > long.txt; sed -i s/one/two/ a.txt; mv a.txt b.txt; mv long.txt d",
        "chmod 600 a.txt; chmod 700 d; rm d/to; ln -s ../b d/to",
        "rm a.txt; mkdir a.txt; echo x > a.txt/x; rm -rf d; echo file > d",
    ];
    for script in scripts {
        let world = World::new();
        for n in 0..8 {
            world.sandbox.write(format!("many/{n}"), "stays\n");
        }
        world.sandbox.write("d/x.txt", "x marks\n");
        world.sandbox.write("d/e/y.txt", "y\n");
        world.sandbox.mkdir("d/empty");
        world.sandbox.link("../a.txt", "d/to");
        world.sandbox.write("long.txt", "a long line\n");
        let before = world.sandbox.tree();
        world.command("r1", &[], &["sh", "-c", script]).expect(0);
        assert_ne!(world.sandbox.tree(), before, "{script}");
        let done = world.json(&["rewind", "r1", "--yes"]);
        assert_eq!(done.code, 0, "{script}: {done}");
        assert_same_tree(&world.sandbox.tree(), &before);
    }
}

#[test]
fn run_bd13_a_run_that_changed_nothing_moves_nothing() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    world.sandbox.write("d/x.txt", "x\n");
    let times = || {
        ["", "a.txt", "d", "d/x.txt"].map(|path| {
            let meta = std::fs::metadata(world.sandbox.path(path)).expect("there");
            (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
        })
    };
    world.command("r1", &[], &["cat", "a.txt", "d/x.txt"]).expect(0);
    world.sandbox.write("mine.txt", "by hand\n");
    let before = times();
    let done = world.json(&["rewind", "r1", "--yes"]).expect(0).json();
    assert_eq!(done["files"]["skip_reason"], "no-recorded-change");
    assert_eq!(done["files"]["reverted"], false);
    assert_eq!(times(), before);
    assert!(world.snapshots("r1").iter().all(|s| s["rewound_to"].is_null()));
}

#[test]
fn run_in02_three_rounds_of_a_review_are_one_interaction() {
    let world = World::new();
    world.flow(
        r#"entry: gate
nodes:
  gate:
    kind: review
    instructions: look
    companion:
      command: |
        echo round >> rounds.txt
        n=$(wc -l < rounds.txt)
        printf '{"content": "view %d", "verdict": {"decision": "changes_requested"}}' $n > $BACKTRAIL_OUTPUT
  end: {kind: done, output: {gate: "{{ outputs.gate }}"}}
edges: [{from: gate, to: end}]
"#,
    );
    world.run("r1", &[]).expect(9);
    let answer = |decision: &str, comment: &str| {
        let (decision, comment) = (format!("decision={decision}"), format!("comment={comment}"));
        world.json(&["answer", "r1", "--answer", &decision, "--answer", &comment])
    };
    world.sandbox.write("mine.txt", "between\n");
    answer("request_changes", "first").expect(9);
    answer("request_changes", "second").expect(9);
    let run = answer("approve", "third").expect(0).json();
    assert_eq!(run["result"]["gate"]["gate"], "gate:2");
    let dir = world.sandbox.store().join("runs").join(world.id("r1")).join("interactions");
    let kept: Vec<_> = std::fs::read_dir(dir).expect("list").map(|e| e.expect("entry")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let text = std::fs::read_to_string(kept[0].path()).expect("read");
    let interaction: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(interaction["id"], format!("{}_gate", world.id("r1")));
    assert!(interaction["answered_at"].is_string(), "{interaction}");
    let turns = interaction["turns"].as_array().expect("turns");
    let said: Vec<(&str, &str)> = turns
        .iter()
        .map(|t| (t["role"].as_str().expect("a role"), t["content"].as_str().unwrap_or_default()))
        .collect();
    let roles: Vec<&str> = said.iter().map(|s| s.0).collect();
    assert_eq!(roles, ["companion", "human", "companion", "human", "companion", "human"]);
    for (turn, text) in said.iter().zip(["view 1", "first", "view 2", "second", "view 3", "third"])
    {
        assert!(turn.1.contains(text), "{said:?}");
    }
    // one capture a round, each of what lay there then
    for (gate, rounds) in
        [("gate:0", None), ("gate:1", Some("round\n")), ("gate:2", Some("round\nround\n"))]
    {
        assert_eq!(world.at("r1", gate, "rounds.txt").as_deref(), rounds, "{gate}");
    }
    assert_eq!(world.at("r1", "gate:0", "mine.txt"), None);
    assert_eq!(world.at("r1", "gate:1", "mine.txt").as_deref(), Some("between\n"));
    assert!(!world.labels("r1").iter().any(|(l, _)| l == "gate:3"));
}
