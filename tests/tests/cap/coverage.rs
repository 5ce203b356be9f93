//! What is not covered, what is warned about, and the private store.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use backtrail_tests::cli::Sandbox;
use serde_json::json;

use crate::{files_below, paths, records, sandbox};

/// Pastes a command line of a hint into a shell in the workspace.
fn paste(s: &Sandbox, line: &str) {
    let done = Command::new("/bin/sh").arg("-c").arg(line).current_dir(s.workspace()).status();
    assert!(done.expect("sh").success(), "{line}");
}

/// The part of a hint that begins with this word, up to the end of its line.
fn command(hint: &str, word: &str) -> String {
    let line = hint.lines().find_map(|l| Some(&l[l.find(word)?..]));
    line.unwrap_or_else(|| panic!("no {word} in {hint:?}")).to_owned()
}

#[test]
fn cap_068_the_store_in_the_workspace_is_never_captured() {
    for through_link in [false, true] {
        let mut s = sandbox();
        s.write("src/f", "x");
        s.write(".backtrailignore", "!var/\n!var/**\n!*\n!workspace-objects/\n");
        s.mkdir("var/own");
        let (store, cache) = match through_link {
            false => (s.path("var/own"), s.path("var/c")),
            true => {
                s.link("var", "alias");
                (s.path("alias/own"), s.path("alias/c"))
            }
        };
        s.env("BACKTRAIL_STORE", &store).env("BACKTRAIL_CACHE_DIR", &cache);
        s.env("XDG_STATE_HOME", s.path("var/state"));
        let first = s.ok(["capture"]);
        assert_eq!(first["counts"]["files"], 2);
        for _ in 0..3 {
            let again = s.ok(["capture"]);
            assert_eq!((&again["created"], &again["counts"]), (&json!(false), &first["counts"]));
        }
        s.write("src/f", "y");
        assert_eq!(s.ok(["capture"])["counts"], first["counts"]);
        assert_eq!(paths(&s, "latest").iter().filter(|p| p.starts_with("var/")).count(), 0);
    }
}

#[test]
fn cap_076_an_oversize_file_blocks_only_itself() {
    let s = sandbox();
    s.write("small", "x");
    let big = fs::File::create(s.path("big.bin")).expect("create");
    big.set_len(40 << 20).expect("grow");
    let human = s.run(["capture"]).expect(3);
    let hint = command(&human.out(), "backtrail ");
    let words: Vec<&str> = hint.split_whitespace().skip(1).collect();
    assert!(s.run(words).expect(0).out().contains("big.bin"));
    let json = s.run(["capture", "--json"]).expect(3).json();
    assert_eq!(records(&json), [("big.bin", "too-large")]);
    assert_eq!(json["coverage"]["records"][0]["size"], 40 << 20);
    for args in [&["list"][..], &["diff"], &["show", "latest"], &["explain", "big.bin"]] {
        s.run(args).expect(0);
    }
    s.write("small", "y");
    assert_eq!(s.run(["capture", "--json"]).expect(3).json()["delta"]["modified"], 1);
    let raised = s.ok(["capture", "--max-file", "64MiB"]);
    assert_eq!(raised["counts"]["files"], 2);
    let snapshot = s.ok(["show", "latest", "--files"]);
    let row = &snapshot["files"][0];
    assert_eq!((&row["path"], &row["size"]), (&json!("big.bin"), &json!(40 << 20)));
}

#[test]
fn cap_079_too_many_files_are_refused_until_a_rule_is_there() {
    let mut s = sandbox();
    for i in 0..60_000 {
        if i % 1000 == 0 {
            s.mkdir(format!("node_modules/m{}", i / 1000));
        }
        fs::write(s.path(format!("node_modules/m{}/{i}", i / 1000)), "").expect("write");
    }
    for i in 0..10 {
        s.write(format!("src/f{i}"), "x");
    }
    assert_eq!(s.ok(["capture"])["counts"]["files"], 10);
    s.write(".gitignore", "!node_modules/m7/7001\n*.log\n");
    assert_eq!(s.ok(["capture"])["counts"]["files"], 12);
    s.remove("node_modules");
    let args = ["capture", "--max-files", "12", "--json"];
    s.write("one more", "x");
    s.ok(["capture", "--max-files", "12"]);
    for i in 0..5 {
        s.write(format!("out/big dir/g{i}"), "x");
    }
    for _ in 0..2 {
        let refused = s.run(args).expect(4);
        assert_eq!(refused.error_code(), "too-many-files");
        let text = refused.json()["error"]["message"].as_str().expect("text").to_owned();
        assert!(text.contains("src/ 10") && text.contains("out/big dir/ 5"), "{text}");
    }
    let own = s.workspace().to_owned();
    let other = s.top().join("other");
    fs::create_dir(&other).expect("mkdir");
    fs::write(other.join("f"), "x").expect("write");
    s.set_workspace(other);
    s.ok(["capture", "--max-files", "12"]);
    s.set_workspace(own);
    // the printed lines work when pasted: the raised limit, and the rule, which goes
    // into the file that has a say
    s.mkdir("src/deeper");
    let hint = s.run(args).json()["error"]["hint"].as_str().expect("a hint").to_owned();
    let raise = command(&hint, "backtrail ");
    s.run(raise.split(' ').skip(1)).expect(0);
    let before = fs::read_to_string(s.path(".gitignore")).expect("rules");
    paste(&s, &format!("cd src/deeper && {}", command(&hint, "echo ")));
    let after = fs::read_to_string(s.path(".gitignore")).expect("rules");
    assert_eq!(after, format!("{before}/src/\n"));
    assert_eq!(s.ok(["capture", "--max-files", "12"])["counts"]["files"], 7);
}

#[test]
fn cap_082_sparse_files_count_by_their_apparent_size_heavy() {
    let s = sandbox();
    let sparse = fs::File::create(s.path("sparse")).expect("create");
    sparse.set_len(20 << 20).expect("grow");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 20 << 20).expect("write");
    fs::File::create(s.path("huge")).expect("create").set_len(2 << 30).expect("grow");
    let capped = s.run(["capture", "--json"]).expect(3).json();
    assert_eq!(records(&capped), [("huge", "too-large")]);
    let bytes = s.run(["show", "latest", "--cat", "sparse"]).expect(0).stdout;
    assert!(bytes == fs::read(s.path("sparse")).expect("read"));
    let raised = s.ok(["capture", "--max-file", "3GiB"]);
    assert_eq!(raised["counts"]["bytes"], (2_u64 << 30) + (20 << 20) + 3);
    // every chunk of the hole is one object
    let objects = raised["stored"]["objects"].as_u64().expect("a count");
    assert!(objects <= 5, "{raised}");
    let stored: u64 =
        files_below(&s.store()).iter().map(|f| fs::metadata(f).expect("stat").len()).sum();
    assert!(stored < 2 << 20, "{stored} bytes for holes");
}

#[test]
fn cap_083_modes_do_not_depend_on_the_umask() {
    let s = sandbox();
    s.write("token", "0600");
    s.chmod("token", 0o600);
    let inner = s.command(["capture", "--json"]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(s.workspace()).env_clear();
    command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    assert!(command.output().expect("run").status.success());
    for top in [s.store(), s.home().join(".cache/backtrail")] {
        let files = files_below(&top);
        assert!(!files.is_empty());
        for file in files {
            let mode = |p: &std::path::Path| fs::metadata(p).expect("stat").mode() & 0o777;
            assert_eq!(mode(&file), 0o600, "{}", file.display());
            assert_eq!(mode(file.parent().expect("a parent")), 0o700, "{}", file.display());
        }
    }
}

#[test]
fn a_dry_run_does_not_even_make_a_store() {
    let s = sandbox();
    s.write("f", "x");
    assert_eq!(s.ok(["capture", "--dry-run"])["counts"]["files"], 1);
    assert!(!s.store().exists());
    assert!(files_below(&s.home()).is_empty());
}
