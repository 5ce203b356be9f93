//! Starting a command: its process, its pipes, and what an error on the way means.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio as Standard};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use command_fds::CommandFdExt;
use rustix::io::Errno;

use super::attempt::{Attempt, Command};
use crate::error::{Error, Result};
use crate::fsx::{self, Dir};

/// Held while a command is started: meanwhile a descriptor may be open that only this
/// command is to inherit.
static STARTS: Mutex<()> = Mutex::new(());
/// A script that was just written may still be open for writing in a process that is
/// being started elsewhere; that passes.
const BUSY_TRIES: u32 = 10;
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// Starts the command. Blocks until it has been executed or the system refused.
pub(super) fn start(attempt: &Attempt, inherited: bool, own_input: bool) -> Result<Child> {
    let mut tries = 0;
    if let Some(child) = without_a_copy(attempt, inherited, own_input) {
        return Ok(child);
    }
    loop {
        let mut command = prepare(attempt, inherited, own_input)?;
        let _one = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(e) if e.raw_os_error() == Some(Errno::TXTBSY.raw_os_error()) => {
                tries += 1;
                if tries == BUSY_TRIES {
                    return Err(refused(attempt, e));
                }
                let _ = rustix::event::poll(&mut [], Some(&super::pump::timespec(BUSY_WAIT)));
            }
            Err(e) => {
                check_directory(&attempt.cwd)?;
                return Err(refused(attempt, e));
            }
        }
    }
}

/// Starts a program that is surely found without a copy of our own memory, which costs
/// more than all the rest: nothing may have to happen between fork and exec, so the
/// descriptor is open for inheriting for that moment. `None` when it did not work for
/// whatever reason; the other way says it best.
fn without_a_copy(attempt: &Attempt, inherited: bool, own_input: bool) -> Option<Child> {
    let (name, program) = found(attempt)?;
    let mut command = Process::new(program);
    command.arg0(name);
    match &attempt.command {
        Command::Argv(argv) => command.args(&argv[1..]),
        Command::Shell { text, .. } => command.arg("-c").arg(text),
    };
    set_up(&mut command, attempt, inherited, own_input);
    let _one = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let _shared = match &attempt.alive {
        Some(alive) => Some(alive.shared_descriptor().ok()?),
        None => None,
    };
    command.spawn().ok()
}

/// The name of the program and where the command's own path leads for it.
fn found(attempt: &Attempt) -> Option<(&OsStr, PathBuf)> {
    let name: &OsStr = match &attempt.command {
        Command::Argv(argv) => argv.first()?,
        Command::Shell { shell, .. } => shell,
    };
    if name.as_encoded_bytes().contains(&b'/') {
        return Path::new(name).is_absolute().then(|| (name, PathBuf::from(name)));
    }
    let path = attempt.environment.get("PATH")?.as_encoded_bytes();
    for dir in path.split(|b| *b == b':').map(|dir| Path::new(OsStr::from_bytes(dir))) {
        // below the command's directory, not ours
        if !dir.is_absolute() {
            return None;
        }
        let program = dir.join(name);
        if fsx::is_program(&program) {
            return Some((name, program));
        }
    }
    None
}

fn prepare(attempt: &Attempt, inherited: bool, own_input: bool) -> Result<Process> {
    let mut command = match &attempt.command {
        Command::Argv(argv) => {
            let (program, args) =
                argv.split_first().ok_or_else(|| Error::invalid("the command is empty"))?;
            let mut command = Process::new(program);
            command.args(args);
            command
        }
        Command::Shell { shell, text } => {
            let mut command = Process::new(shell);
            command.arg("-c").arg(text);
            command
        }
    };
    set_up(&mut command, attempt, inherited, own_input);
    if let Some(alive) = &attempt.alive {
        let descriptor = alive.descriptor().map_err(|e| refused(attempt, e))?;
        command.preserved_fds(vec![descriptor]);
    }
    Ok(command)
}

fn set_up(command: &mut Process, attempt: &Attempt, inherited: bool, own_input: bool) {
    command.current_dir(&attempt.cwd).env_clear().envs(attempt.environment.iter());
    command.process_group(0);
    if !inherited {
        let input = if own_input { Standard::inherit() } else { Standard::piped() };
        command.stdin(input).stdout(Standard::piped()).stderr(Standard::piped());
    }
}

/// What to call the command in a message.
pub(super) fn name(command: &Command) -> String {
    let word = match command {
        Command::Argv(argv) => argv.first(),
        Command::Shell { shell, .. } => Some(shell),
    };
    word.map(|w| w.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The directory must be one that can be entered, so that its absence is not taken for
/// the command's.
fn check_directory(cwd: &Path) -> Result<()> {
    let entered = Dir::open(cwd).and_then(|dir| dir.stat(b"."));
    entered.map(|_| ()).map_err(|e| {
        let message = format!("cannot run in {}: {e}", cwd.display());
        Error::failed("no-directory", message).with_source(e)
    })
}

fn refused(attempt: &Attempt, e: io::Error) -> Error {
    let name = name(&attempt.command);
    let is = |codes: &[Errno]| codes.iter().any(|c| e.raw_os_error() == Some(c.raw_os_error()));
    let (code, message) = if is(&[Errno::NOENT, Errno::NOTDIR]) {
        let what = format!("command {name:?}, or the interpreter it names, was not found");
        ("command-not-found", what)
    } else if is(&[Errno::ACCESS, Errno::NOEXEC, Errno::ISDIR, Errno::PERM, Errno::LOOP]) {
        ("command-not-executable", format!("command {name:?} cannot be executed: {e}"))
    } else if is(&[Errno::TOOBIG]) {
        let what = "its arguments and environment are too long for the system; \
                    hand values over in files";
        ("command-too-long", format!("command {name:?} was not started: {what}"))
    } else if e.kind() == io::ErrorKind::InvalidInput {
        let what = "an argument or variable holds a NUL byte";
        return Error::invalid(format!("command {name:?} was not started: {what}"));
    } else {
        ("command-not-started", format!("command {name:?} was not started: {e}"))
    };
    Error::failed(code, message).with_source(e)
}
