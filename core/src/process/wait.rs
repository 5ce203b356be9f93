//! A thread that waits for the command itself, and looks after the terminal meanwhile.

use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::sync::oneshot;

use super::attempt::End;
use super::terminal::Terminal;

/// The process id of a child.
pub(super) fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// What the thread tells.
pub(super) struct Waited {
    /// How the command ended.
    pub(super) end: oneshot::Receiver<End>,
    /// That it stands still because it wants a terminal.
    pub(super) wants: Wants,
}

/// Whether the command wants a terminal that it does not have.
pub(super) struct Wants(oneshot::Receiver<()>);

impl Wants {
    /// Comes back once it does.
    pub(super) async fn wanted(&mut self) {
        if (&mut self.0).await.is_err() {
            std::future::pending().await // it has ended
        }
    }
}

/// Waits on a thread of its own.
pub(super) fn wait(
    mut child: Child,
    inherited: bool,
    terminal: Option<Terminal>,
) -> std::io::Result<Waited> {
    let (send, end) = oneshot::channel();
    let (want, wants) = oneshot::channel();
    let work = move || {
        match (terminal, pid_of(&child)) {
            (Some(mut terminal), Some(pid)) => watch(&mut terminal, pid),
            (None, Some(pid)) if !inherited => watch_for_wants(pid, want),
            _ => {}
        }
        let end = child.wait().map_or(End::Signal(0), end_of);
        let _ = send.send(end); // an attempt that was dropped asks no more
    };
    std::thread::Builder::new().name("attempt-wait".to_owned()).spawn(work)?;
    Ok(Waited { end, wants: Wants(wants) })
}

/// Follows the command's stops until it ends, then takes the terminal back.
fn watch(terminal: &mut Terminal, pid: Pid) {
    terminal.may_take_back();
    terminal.hand_over(pid);
    while let Some(signal) = stopped_by(pid) {
        terminal.suspended(pid, signal);
    }
    terminal.take_back();
}

/// Tells once when a command without a terminal is stopped because it asked for one: the
/// system would leave it so for ever.
fn watch_for_wants(pid: Pid, want: oneshot::Sender<()>) {
    let asks = [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()];
    while let Some(signal) = stopped_by(pid) {
        if signal.is_some_and(|s| asks.contains(&s)) {
            let _ = want.send(()); // an attempt that was dropped asks no more
            return;
        }
    }
}

/// Waits until the command is stopped, and by which signal; `None` when it has ended.
fn stopped_by(pid: Pid) -> Option<Option<i32>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Ok(Some(status)) if status.stopped() => {
                let taken = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(pid), taken); // only to see it once
                return Some(status.stopping_signal());
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

fn end_of(status: ExitStatus) -> End {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    }
}
