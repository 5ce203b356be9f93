//! What is not covered, what is warned about, and the private store.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use backtrail_core::object::content;
use backtrail_core::snapshot::coverage::decode_records;
use backtrail_tests::cli::{Sandbox, id};
use backtrail_tests::history::run;
use serde_json::json;

use crate::lib_side::Lib;
use crate::{files_below, paths, records, sandbox, warned};

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
fn cap_074_going_back_to_a_state_without_a_rule_says_what_came_in() {
    let s = sandbox();
    s.write("src", "x");
    s.write(".backtrailignore", "# none\nbuild/\n");
    for i in 0..5000 {
        s.write(format!("build/{}/{i}", i % 50), "");
    }
    assert_eq!(s.ok(["capture"])["counts"]["files"], 2);
    s.write(".backtrailignore", "# none\n");
    let grown = s.ok(["capture"]);
    let warning = warned(&grown, "scope-grew");
    assert_eq!(warning.len(), 1, "{grown}");
    assert_eq!(warning[0]["files"], 5000);
    let hint = warning[0]["hint"].as_str().expect("a hint");
    assert!(hint.contains("5000") && hint.contains("build/"), "{hint}");
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
fn cap_077_the_limit_itself_still_passes() {
    let s = sandbox();
    for (name, len) in [("exact", 32 << 20), ("over", (32 << 20) + 1)] {
        fs::File::create(s.path(name)).expect("create").set_len(len).expect("grow");
    }
    let done = s.run(["capture", "--json"]).expect(3).json();
    assert_eq!(
        (records(&done), &done["counts"]["files"]),
        (vec![("over", "too-large")], &json!(1))
    );
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
fn cap_080_very_many_small_files_are_warned_about() {
    let s = sandbox();
    s.write("f", "x");
    s.capture();
    let content = vec![b'.'; 4096];
    for i in 0..30_000 {
        if i % 500 == 0 {
            s.mkdir(format!(".direnv/d{}", i / 500));
        }
        fs::write(s.path(format!(".direnv/d{}/{i}", i / 500)), &content).expect("write");
    }
    let done = s.ok(["capture"]);
    let warning = warned(&done, "bulk-added");
    assert_eq!(warning.len(), 1, "{done}");
    let warning = warning[0];
    assert_eq!((&warning["path"], &warning["files"]), (&json!(".direnv"), &json!(30_000)));
    assert_eq!(warning["bytes"], 30_000 * 4096);
    let hint = warning["hint"].as_str().expect("a hint");
    assert_eq!(hint.lines().count(), 1);
    paste(&s, &command(hint, "echo "));
    let after = s.ok(["capture"]);
    assert_eq!(after["counts"]["files"], 2);
}

#[test]
fn cap_081_a_long_list_of_records_is_whole() {
    let s = sandbox();
    for i in 0..2000 {
        s.write(format!("d{}/{i}.pem", i % 9), "secret");
    }
    let done = s.ok(["capture"]);
    assert_eq!(done["coverage"]["skipped"]["secret"], 2000);
    assert_eq!(done["coverage"]["records"].as_array().map(Vec::len), Some(100));
    run(async {
        let lib = Lib::of(&s).await;
        let snapshot = lib.own().resolve("latest").await.expect("a snapshot");
        assert_eq!(snapshot.coverage.records, None);
        let place = snapshot.coverage.records_ref.expect("an object");
        let bytes = content::read_all(&*lib.store, &place).await.expect("records");
        let all = decode_records(&bytes).expect("lines");
        assert_eq!(all.len(), 2000);
        assert!(all.windows(2).all(|w| w[0].path < w[1].path));
        assert!(lib.verify_deep().await.is_clean());
    });
    let shown = s.ok(["show", "latest", "--skipped"]);
    assert_eq!(shown["records"].as_array().map(Vec::len), Some(2000));
    assert_eq!(s.ok(["capture"])["created"], false);
}

#[test]
fn cap_082_sparse_files_count_by_their_apparent_size() {
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
fn cap_084_hard_links_are_two_entries() {
    let s = sandbox();
    s.write("a", "same");
    fs::hard_link(s.path("a"), s.path("b")).expect("link");
    s.write("c", "alone");
    let done = s.ok(["capture"]);
    assert_eq!((&done["counts"]["files"], &done["counts"]["hard_linked"]), (&json!(3), &json!(2)));
    assert_eq!(paths(&s, &id(&done)), ["a", "b", "c"]);
}

#[test]
fn a_dry_run_does_not_even_make_a_store() {
    let s = sandbox();
    s.write("f", "x");
    assert_eq!(s.ok(["capture", "--dry-run"])["counts"]["files"], 1);
    assert!(!s.store().exists());
    assert!(files_below(&s.home()).is_empty());
}
