//! A thread that waits for the command itself, and looks after the terminal meanwhile.

use std::process::{Child, ExitStatus};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::sync::oneshot;

use super::attempt::End;
use super::terminal::Terminal;

/// The process id of a child.
pub(super) fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Waits on a thread of its own; the end arrives through the channel.
pub(super) fn wait(
    child: Child,
    terminal: Option<Terminal>,
) -> std::io::Result<oneshot::Receiver<End>> {
    let (send, receive) = oneshot::channel();
    let work = move || {
        let end = wait_here(child, terminal);
        let _ = send.send(end); // an attempt that was dropped asks no more
    };
    std::thread::Builder::new().name("attempt-wait".to_owned()).spawn(work)?;
    Ok(receive)
}

fn wait_here(mut child: Child, terminal: Option<Terminal>) -> End {
    if let (Some(mut terminal), Some(pid)) = (terminal, pid_of(&child)) {
        watch(&mut terminal, pid);
    }
    child.wait().map_or(End::Signal(0), end_of)
}

/// Follows the child's stops until it ends, then takes the terminal back.
fn watch(terminal: &mut Terminal, pid: Pid) {
    terminal.may_take_back();
    terminal.hand_over(pid);
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(Some(status)) if status.stopped() => {
                let taken = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(pid), taken); // only to see it once
                terminal.suspended(pid, status.stopping_signal());
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    terminal.take_back();
}

fn end_of(status: ExitStatus) -> End {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    }
}
