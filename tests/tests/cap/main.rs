//! Capture against the real binary and the real local store: CAP-001 to CAP-093.

mod boundaries;
mod calls;
mod changes;
mod coverage;
mod kills;
mod lib_side;
mod names;
mod objects;
mod operations;
mod parallel;
mod reading;
mod roots;
mod snapshots;
mod space;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use backtrail_tests::cli::{Run, Sandbox, finish};
use serde_json::Value;

/// A sandbox for the binary of this package.
fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"))
}

/// The user and group without rights.
const NOBODY: u32 = 65534;

/// Gives everything of the sandbox to a user without rights.
fn give_to_nobody(s: &Sandbox) {
    let mut todo = vec![s.top()];
    while let Some(path) = todo.pop() {
        std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).expect("chown as root");
        if std::fs::symlink_metadata(&path).expect("there").is_dir() {
            todo.extend(std::fs::read_dir(&path).expect("list").map(|e| e.expect("entry").path()));
        }
    }
}

/// Runs a command as that user.
fn as_nobody(mut command: Command) -> Run {
    finish(drop_rights(&mut command))
}

fn drop_rights(command: &mut Command) -> Command {
    command.uid(NOBODY).gid(NOBODY);
    std::mem::replace(command, Command::new("true"))
}

/// A file system in memory, unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    /// Mounts one at `at`, which is made.
    fn new(at: PathBuf, options: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).expect("mkdir");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at);
        if mount.status().is_ok_and(|s| s.success()) {
            return Some(Self(at));
        }
        let may_skip = std::env::var_os("BACKTRAIL_ALLOW_SKIP").is_some_and(|v| v == "1");
        assert!(may_skip, "mount failed; BACKTRAIL_ALLOW_SKIP=1 skips tests that need root");
        None
    }
    /// Changes its options.
    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(done.is_ok_and(|s| s.success()), "remount {options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The regular files below a directory; none when it does not exist.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type().expect("a type").is_dir() {
                true => todo.push(entry.path()),
                false => out.push(entry.path()),
            }
        }
    }
    out.sort();
    out
}

/// The warnings of a result with this code.
fn warned<'a>(captured: &'a Value, code: &str) -> Vec<&'a Value> {
    let all = captured["warnings"].as_array().expect("warnings");
    all.iter().filter(|w| w["code"] == code).collect()
}

/// The records of a coverage: path, reason.
fn records<'a>(captured: &'a Value) -> Vec<(&'a str, &'a str)> {
    let rows = captured["coverage"]["records"].as_array().expect("records");
    let get = |r: &'a Value, k: &str| r[k].as_str().unwrap_or_default();
    rows.iter().map(|r| (get(r, "path"), get(r, "reason"))).collect()
}

/// The paths of the files and links of a snapshot.
#[track_caller]
fn paths(s: &Sandbox, snapshot: &str) -> Vec<String> {
    let json = s.ok(["show", snapshot, "--files"]);
    let rows = json["files"].as_array().expect("files");
    let kept = rows.iter().filter(|r| r["kind"] != "dir" && r["kind"] != "directory");
    kept.map(|r| r["path"].as_str().expect("a path").to_owned()).collect()
}

/// Bytes that do not compress and repeat nowhere, the same for the same seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}
