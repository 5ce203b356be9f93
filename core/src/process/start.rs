//! Starting a command: its process, its pipes, and what an error on the way means.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio as Standard};
use std::time::Duration;

use command_fds::CommandFdExt;
use rustix::io::Errno;

use super::attempt::{Attempt, Command};
use crate::error::{Error, Result};
use crate::fsx::Dir;

/// A script that was just written may still be open for writing in a process that is
/// being started elsewhere; that passes.
const BUSY_TRIES: u32 = 10;
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// Starts the command. Blocks until it has been executed or the system refused.
pub(super) fn start(attempt: &Attempt, inherited: bool, own_input: bool) -> Result<Child> {
    let mut tries = 0;
    loop {
        let mut command = prepare(attempt, inherited, own_input)?;
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
    command.current_dir(&attempt.cwd).env_clear().envs(attempt.environment.iter());
    command.process_group(0);
    if !inherited {
        let input = if own_input { Standard::inherit() } else { Standard::piped() };
        command.stdin(input).stdout(Standard::piped()).stderr(Standard::piped());
    }
    if let Some(alive) = &attempt.alive {
        let descriptor = alive.descriptor().map_err(|e| refused(attempt, e))?;
        command.preserved_fds(vec![descriptor]);
    }
    Ok(command)
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
