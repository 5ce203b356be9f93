//! What tests need of the host: a user without rights, and file systems of their own.

use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::cli::{Run, finish};

/// The user and group without rights.
pub const NOBODY: u32 = 65534;

/// Gives a directory and all below it to that user.
pub fn give_to_nobody(dir: &Path) {
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        std::os::unix::fs::lchown(&path, Some(NOBODY), Some(NOBODY)).expect("chown as root");
        if std::fs::symlink_metadata(&path).expect("there").is_dir() {
            todo.extend(std::fs::read_dir(&path).expect("list").map(|e| e.expect("entry").path()));
        }
    }
}

/// Runs a command as that user.
pub fn as_nobody(mut command: Command) -> Run {
    command.uid(NOBODY).gid(NOBODY);
    finish(command)
}

/// A file system in memory, unmounted when dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts one at `at`, which is made. `None` where mounting is not allowed and
    /// `BACKTRAIL_ALLOW_SKIP=1` accepts that.
    pub fn new(at: impl Into<PathBuf>, options: &str) -> Option<Self> {
        let at = at.into();
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
    pub fn remount(&self, options: &str) {
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

/// Runs a command with a terminal for its standard input and error, where somebody types
/// `answer`. What the terminal showed is in `stderr`.
pub fn at_terminal(command: Command, answer: &str) -> Run {
    at_terminal_after(command, || (), answer)
}

/// The same, with something that happens while the command waits for the answer.
pub fn at_terminal_after(mut command: Command, meanwhile: impl FnOnce(), answer: &str) -> Run {
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&control).and_then(|()| unlockpt(&control)).expect("its other end");
    let name = ptsname(&control, Vec::new()).expect("its name");
    let open = || {
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        std::fs::File::options().read(true).write(true).open(path).expect("opens")
    };
    command.stdin(open()).stderr(open());
    let args = command.get_args().map(ToOwned::to_owned).collect();
    let child = command.spawn().expect("starts");
    // The handles that the command holds would keep the terminal open.
    drop(command);
    let mut control = std::fs::File::from(control);
    let mut typed = control.try_clone().expect("a second handle");
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    let mut question = Some((meanwhile, format!("{answer}\n")));
    // Ends with an error once the last program closed the other end.
    while let Ok(n) = control.read(&mut part) {
        shown.extend_from_slice(&part[..n]);
        let asked = shown.ends_with(b"[y/N] ") || shown.ends_with(b"to go on: ");
        if let Some((meanwhile, answer)) = question.take_if(|_| asked) {
            meanwhile();
            typed.write_all(answer.as_bytes()).expect("typed");
        }
    }
    let out = child.wait_with_output().expect("ends");
    Run {
        args,
        code: out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(0)),
        stdout: out.stdout,
        stderr: String::from_utf8_lossy(&shown).into_owned(),
    }
}
