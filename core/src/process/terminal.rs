//! The terminal of a command that inherits it: the command's group is in the foreground
//! while it runs, and the terminal is as before when it has ended.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group, kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::fsx::Dir;

/// The time in which a stop signal to ourselves surely takes effect.
const STOPPING: Duration = Duration::from_millis(100);
/// How often a command that was sent to the background is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// The controlling terminal, as it was.
pub(super) struct Terminal {
    tty: File,
    own: Pid,
    modes: Option<Termios>,
    /// The command's group has the foreground from us.
    handed: bool,
}

impl Terminal {
    /// The controlling terminal; `None` without one.
    pub(super) fn open() -> Option<Self> {
        let tty = Dir::open(Path::new("/dev")).and_then(|dev| dev.open_file(b"tty")).ok()?;
        Some(Self { modes: tcgetattr(&tty).ok(), tty, own: getpgrp(), handed: false })
    }

    /// Lets this thread touch the terminal from the background, which would stop the
    /// whole process otherwise. For the thread that calls the other methods.
    pub(super) fn may_take_back(&self) {
        let mut set = SigSet::empty();
        set.add(NixSignal::SIGTTOU);
        let _ = set.thread_block(); // refused only for signals that cannot be blocked
    }

    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|front| front == self.own)
    }

    /// Puts the command's group into the foreground, unless we are not there ourselves.
    /// A command that asked for the terminal too early was stopped and goes on.
    pub(super) fn hand_over(&mut self, group: Pid) {
        if self.is_ours() && tcsetpgrp(&self.tty, group).is_ok() {
            self.handed = true;
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    /// Puts our group into the foreground and the modes back, if the command has it.
    pub(super) fn take_back(&mut self) {
        if !std::mem::take(&mut self.handed) {
            return;
        }
        // Both fail when the terminal hung up: there is nothing to put back then.
        let _ = tcsetpgrp(&self.tty, self.own);
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }

    /// The command was stopped. When the terminal did it, by Ctrl-Z or because it wanted
    /// input in the background, the whole job stops as it would without us: whoever
    /// started us gets the terminal, and when we go on, so does the command.
    pub(super) fn suspended(&mut self, group: Pid, signal: Option<i32>) {
        let is = |s: Signal| Some(s.as_raw()) == signal;
        if !is(Signal::TSTP) && !is(Signal::TTIN) && !is(Signal::TTOU) {
            return; // somebody stopped it on purpose and will let it go on
        }
        let theirs = tcgetattr(&self.tty).ok().filter(|_| self.handed);
        self.take_back();
        // Takes effect within the pause, or not at all where nobody could let us go on.
        let _ = kill_current_process_group(Signal::TSTP);
        pause(STOPPING);
        if !self.is_ours() && is(Signal::TSTP) {
            let _ = kill_process_group(group, Signal::CONT); // it runs in the background
        }
        while !self.is_ours() {
            if has_ended(group) {
                return;
            }
            pause(LOOK);
        }
        if let Some(theirs) = &theirs {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, theirs);
        }
        self.hand_over(group);
    }
}

fn pause(time: Duration) {
    let _ = rustix::event::poll(&mut [], Some(&super::pump::timespec(time)));
}

/// True when the command itself has ended and waits to be reaped.
fn has_ended(pid: Pid) -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(pid), look), Ok(None))
}
