//! Many commands at once on one store: sixteen workspaces captured in parallel while
//! prune sweeps without a pause. Every capture that reported success is listed and
//! restores byte for byte.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use backtrail_tests::cli::{Sandbox, Tree, assert_same_tree, tree};

const WORKSPACES: usize = 16;
const ROUNDS: usize = 4;

fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"))
}

/// New content for one round: some of it the same in every workspace, so that writers
/// meet on objects that prune has just seen unreferenced.
fn change(workspace: &Path, n: usize, round: usize) {
    let write = |name: String, text: String| {
        let path = workspace.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        std::fs::write(path, text).expect("write");
    };
    write(format!("shared/{round}.txt"), format!("round {round}\n").repeat(600));
    write(String::from("own.txt"), format!("workspace {n} round {round}\n"));
    for i in 0..8 {
        write(format!("d{i}/f.txt"), format!("{n} {round} {i}\n").repeat(40));
    }
}

/// Captures after each change; what each snapshot must hold.
fn capture_rounds(sandbox: &Sandbox, workspace: &Path, n: usize) -> Vec<(String, Tree)> {
    let mut out = Vec::new();
    for round in 0..ROUNDS {
        change(workspace, n, round);
        let place = workspace.to_str().expect("UTF-8");
        let captured = sandbox.ok(["capture", "-w", place]);
        out.push((captured["id"].as_str().expect("an id").to_owned(), tree(workspace)));
    }
    out
}

fn prune_until(sandbox: &Sandbox, done: &AtomicBool) -> usize {
    let mut runs = 0;
    while !done.load(Ordering::SeqCst) {
        sandbox.run(["prune", "--objects-only", "--instant", "--yes"]).expect(0);
        runs += 1;
    }
    runs
}

fn check(sandbox: &Sandbox, workspace: &Path, snapshots: &[(String, Tree)]) {
    let place = workspace.to_str().expect("UTF-8");
    let listed = sandbox.ok(["list", "--all", "-w", place]);
    let rows = listed["snapshots"].as_array().expect("rows");
    for (id, want) in snapshots {
        assert!(rows.iter().any(|r| r["id"] == id.as_str()), "{id} is not listed");
        let out = workspace.with_extension(format!("out-{id}"));
        let to = out.to_str().expect("UTF-8");
        sandbox.run(["restore", id, "--into", to, "-w", place]).expect(0);
        assert_same_tree(&tree(&out), want);
    }
}

#[test]
fn heavy_captures_of_sixteen_workspaces_against_a_continuous_prune() {
    let sandbox = sandbox();
    let workspaces: Vec<PathBuf> =
        (0..WORKSPACES).map(|n| sandbox.top().join(format!("w{n}"))).collect();
    for dir in &workspaces {
        std::fs::create_dir(dir).expect("mkdir");
    }
    let done = AtomicBool::new(false);
    let (taken, prunes) = std::thread::scope(|scope| {
        let prune = scope.spawn(|| prune_until(&sandbox, &done));
        let each: Vec<_> = workspaces
            .iter()
            .enumerate()
            .map(|(n, dir)| {
                scope.spawn({
                    let sandbox = &sandbox;
                    move || capture_rounds(sandbox, dir, n)
                })
            })
            .collect();
        let taken: Vec<_> = each.into_iter().map(|t| t.join().expect("captures")).collect();
        done.store(true, Ordering::SeqCst);
        (taken, prune.join().expect("prunes"))
    });
    assert!(prunes >= 2, "prune ran {prunes} times, too few to meet the captures");
    for (dir, snapshots) in workspaces.iter().zip(&taken) {
        assert_eq!(snapshots.len(), ROUNDS);
        check(&sandbox, dir, snapshots);
    }
    sandbox.run(["verify", "--all", "--deep"]).expect(0);
}
