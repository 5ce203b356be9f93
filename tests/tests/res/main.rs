//! `restore`, `undo` and `redo` end to end: the binary in a sandbox. RES-001 to RES-077
//! as far as they need no run.

mod bank;
mod codes;
mod decide;
mod forge;
mod git;
mod place;
mod preview;
mod recover;
mod room;
mod rules;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use backtrail_tests::cli::{Run, Sandbox};
use serde_json::Value;

/// A sandbox for the binary of this package.
fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"))
}

/// Runs a command with `--json` that must end with `code`, and its document say so too.
#[track_caller]
fn json(s: &Sandbox, args: &[&str], code: i32) -> Value {
    agreeing(s.run([args, &["--json"]].concat()), code)
}

/// The document of a run, whose exit code and the document's must be `code`.
#[track_caller]
fn agreeing(run: Run, code: i32) -> Value {
    let run = run.expect(code);
    let json = run.json();
    assert_eq!(json["exit_code"], code, "{run}");
    json
}

/// The same with `--yes`.
#[track_caller]
fn go(s: &Sandbox, args: &[&str], code: i32) -> Value {
    json(s, &[args, &["--yes"]].concat(), code)
}

/// The code of a failure that must end with `code`, in text and in JSON.
#[track_caller]
fn refused(s: &Sandbox, args: &[&str], code: i32) -> Value {
    let text = s.run(args).expect(code);
    assert!(text.stdout.is_empty() || code == 3, "a failure is told on stderr: {text}");
    let json = json(s, args, code);
    let message = json["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {json}"));
    assert!(text.stderr.contains(message), "{text}\nin JSON: {message}");
    json["error"].clone()
}

/// Every count of a result: those named, all others 0.
#[track_caller]
fn counts(json: &Value, want: &[(&str, u64)]) {
    let counts = json["counts"].as_object().unwrap_or_else(|| panic!("no counts in {json}"));
    for (name, value) in counts {
        let wanted = want.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v);
        assert_eq!(value, wanted, "{name} in {json}");
    }
    for (name, _) in want {
        assert!(counts.contains_key(*name), "{name} is no count of {json}");
    }
}

/// The strings of a list, or one member of its objects.
fn strings<'a>(list: &'a Value, member: &str) -> Vec<&'a str> {
    let rows = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    rows.iter().map(|r| r.as_str().or(r[member].as_str()).expect("a string")).collect()
}

/// What moves when a file is written or replaced: inode and modification time.
type Stamp = (u64, i64, i64);

fn stamp(path: impl AsRef<Path>) -> Stamp {
    let meta = std::fs::symlink_metadata(path.as_ref())
        .unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()));
    (meta.ino(), meta.mtime(), meta.mtime_nsec())
}

/// Names in the workspace that staging left.
fn leftovers(s: &Sandbox) -> Vec<String> {
    let names = std::fs::read_dir(s.workspace()).expect("list");
    let names = names.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with(".backtrail")).collect()
}
