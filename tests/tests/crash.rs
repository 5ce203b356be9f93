//! Killed at random moments: capture, restore and prune, 200 times. What is listed is
//! whole, and what a restore left half done ends on one of its two sides exactly.
//!
//! `BACKTRAIL_CRASH_SEED` plays a printed seed again; `BACKTRAIL_CRASH_ROUNDS` is the
//! number of kills.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use backtrail_tests::cli::{Sandbox, Tree, assert_same_tree, tree};
use backtrail_tests::random::{Random, number};
use serde_json::Value;

const FILES: u64 = 300;

struct Crash {
    s: Sandbox,
    random: Random,
    /// How long each verb takes from its start to its end.
    whole: [Duration; 3],
    /// The state of every snapshot that was captured here, by id.
    known: Vec<(String, Tree)>,
    /// Alternates between the two ways of recovery.
    recoveries: u64,
    killed: [u64; 3],
}

/// What may be killed.
#[derive(Clone, Copy)]
enum Verb {
    Capture,
    Restore,
    Prune,
}

impl Crash {
    fn new(seed: u64) -> Self {
        // A kill loses nothing that the system holds, and waiting for a disk takes longer
        // than all else here.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let mut s = Sandbox::below(env!("CARGO_BIN_EXE_backtrail-under-test"), &place);
        s.env("BACKTRAIL_UNSAFE_NO_FSYNC", "1");
        for i in 0..FILES {
            s.write(path(i), format!("first {i}\n").repeat(1 + (i % 50) as usize));
        }
        let (whole, known) = ([Duration::ZERO; 3], Vec::new());
        Self { s, random: Random::new(seed), whole, known, recoveries: 0, killed: [0; 3] }
    }

    /// The workspace without what a kill leaves beside it.
    fn now(&self) -> Tree {
        let mut now = tree(self.s.workspace());
        now.retain(|path, _| !path.starts_with(b".backtrail-stage-"));
        now
    }

    /// Edits, deletes and adds some files.
    fn change(&mut self, files: u64) {
        for _ in 0..files {
            let at = path(self.random.below(FILES + 40));
            let there = self.s.path(&at).exists();
            if there && self.random.below(4) == 0 {
                self.s.remove(&at);
            } else {
                let text = format!("content {}\n", self.random.below(u64::MAX));
                self.s.write(&at, text.repeat(1 + self.random.below(60) as usize));
                self.s.chmod(&at, [0o644, 0o600, 0o755][self.random.below(3) as usize]);
            }
        }
    }

    fn args(&mut self, verb: Verb) -> Vec<String> {
        let words: &[&str] = match verb {
            Verb::Capture => &["capture"],
            Verb::Restore => {
                let n = self.random.below(self.known.len() as u64) as usize;
                let id = self.known[n].0.clone();
                return vec!["restore".into(), id, "--yes".into(), "--allow-mass-delete".into()];
            }
            Verb::Prune => &["prune", "--keep", "4", "--instant", "--yes"],
        };
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    /// One whole run of each verb, to know how long they take.
    fn measure(&mut self) {
        self.s.capture();
        self.learn();
        self.change(150);
        for verb in [Verb::Capture, Verb::Restore, Verb::Prune] {
            let args = self.args(verb);
            let start = Instant::now();
            let run = self.s.run(&args);
            assert_eq!(run.code, 0, "{run}");
            self.whole[verb as usize] = start.elapsed();
            self.learn();
        }
    }

    /// Starts a verb and kills it at a random moment. Every other restore is killed after
    /// it began to move files, which takes a small part of its time.
    fn kill(&mut self, verb: Verb, args: &[String]) {
        let whole = self.whole[verb as usize].as_micros() as u64;
        let aimed = matches!(verb, Verb::Restore) && self.random.below(2) == 0;
        let longest = if aimed { whole / 10 } else { whole + whole / 8 };
        let delay = Duration::from_micros(self.random.below(longest));
        let mut child = self.s.spawn(args);
        if aimed {
            self.until_it_moves(&mut child);
        }
        std::thread::sleep(delay);
        child.kill().expect("killed, or ended by itself");
        let status = child.wait().expect("ended");
        self.killed[verb as usize] += u64::from(status.code().is_none());
    }

    fn until_it_moves(&self, child: &mut Child) {
        let moves = || {
            let names = std::fs::read_dir(self.s.workspace()).expect("list").flatten();
            let stage = names.map(|e| e.path().join("old"));
            stage.filter_map(|old| std::fs::read_dir(old).ok()).any(|mut old| old.next().is_some())
        };
        while !moves() && child.try_wait().expect("asked").is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Ends a half-done restore the one way or the other; the tree it ends with.
    fn recover(&mut self, before: &Tree, target: &Tree) {
        let run = self.s.run(["capture", "--json"]);
        if run.code == 4 {
            assert_eq!(run.error_code(), "recovery-needed", "{run}");
            let (way, side) = match self.recoveries % 2 {
                0 => ("--finish", target),
                _ => ("--roll-back", before),
            };
            self.recoveries += 1;
            let run = self.s.run(["restore", way, "--json"]).expect(0);
            assert_eq!(run.json()["recovered"][0]["third_count"], 0, "{run}");
            assert_same_tree(&self.now(), side);
        } else {
            assert_eq!(run.code, 0, "{run}");
            // Not begun, or done: nothing between the two.
            let now = self.now();
            if now != *before {
                assert_same_tree(&now, target);
            }
        }
        assert_same_tree(&tree(self.s.workspace()), &self.now());
    }

    fn list(&self) -> Vec<Value> {
        let list = self.s.ok(["list", "--all"]);
        list["snapshots"].as_array().expect("rows").clone()
    }

    /// Remembers the state of the newest snapshot, if it is one of this moment.
    fn learn(&mut self) {
        let run = self.s.ok(["capture"]);
        let id = run["id"].as_str().expect("an id").to_owned();
        if self.known.iter().all(|(known, _)| *known != id) {
            self.known.push((id, self.now()));
        }
        let ids: Vec<String> =
            self.list().iter().map(|r| r["id"].as_str().expect("an id").to_owned()).collect();
        self.known.retain(|(known, _)| ids.contains(known));
    }

    fn check(&self) {
        let run = self.s.run(["verify", "--deep", "--json"]);
        assert_eq!(run.code, 0, "{run}");
    }

    fn round(&mut self, n: u64) {
        match n % 3 {
            0 => {
                self.change(20);
                let args = self.args(Verb::Capture);
                self.kill(Verb::Capture, &args);
            }
            1 => {
                self.change(150);
                let before = self.now();
                let args = self.args(Verb::Restore);
                let target = self.known.iter().find(|k| k.0 == args[1]).expect("known").1.clone();
                self.kill(Verb::Restore, &args);
                self.recover(&before, &target);
            }
            _ => {
                let args = self.args(Verb::Prune);
                self.kill(Verb::Prune, &args);
            }
        }
        self.check();
        self.learn();
    }
}

fn path(i: u64) -> String {
    format!("d{}/e{}/f{i:03}", i % 7, i % 3)
}

#[test]
fn killed_two_hundred_times_heavy() {
    let clock = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    let seed = number("BACKTRAIL_CRASH_SEED", clock);
    println!("BACKTRAIL_CRASH_SEED={seed}");
    let mut crash = Crash::new(seed);
    crash.measure();
    let rounds = number("BACKTRAIL_CRASH_ROUNDS", 200);
    for n in 0..rounds {
        crash.round(n);
    }
    // Whatever is left restores, byte for byte.
    for (id, want) in crash.known.clone() {
        crash.s.ok(["restore", &id, "--yes", "--allow-mass-delete"]);
        assert_same_tree(&tree(crash.s.workspace()), &want);
    }
    println!("killed in time: {:?}, recovered: {}", crash.killed, crash.recoveries);
    assert!(crash.killed.iter().all(|n| *n > 0), "every verb was killed at least once");
    assert!(crash.recoveries > 1 || rounds < 200, "a restore was finished, and one rolled back");
}
