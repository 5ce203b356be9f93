//! What goes on beside the machine: requests in the record, the heartbeat, timers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch::Sender;
use tokio::time::sleep;

use super::Interrupts;
use super::attempt::Ended;
use crate::clock::Clock;
use crate::error::Error;
use crate::fsx;
use crate::ids::RunId;
use crate::process::Scratch;
use crate::run::{Claim, RunStore};
use crate::tasks::blocking;
use crate::workflow::machine::{Attempt, Input};

/// How often the record is looked at for a request: a local store, another one.
const LOOK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(4)];
/// How often the heartbeat is touched.
const BEAT: Duration = Duration::from_secs(2);
/// The file in a run's scratch that says when its engine lived last.
pub(super) const HEARTBEAT: &str = "heartbeat";

/// What a drive hears.
pub(super) enum Message {
    /// For the machine.
    Input(Input),
    /// An attempt ended.
    Ended(Attempt, Box<Ended>),
    /// A signal came.
    Signal(String),
    /// The claim is lost: nothing more may be written.
    Lost(Error),
}

/// Passes signals on; the first makes captures hurry, also one that is under way.
pub(super) async fn signals(
    mut interrupts: Interrupts,
    hurry: Sender<bool>,
    send: UnboundedSender<Message>,
) {
    while let Some(name) = interrupts.recv().await {
        hurry.send_replace(true);
        let _ = send.send(Message::Signal(name));
    }
    // captures listen as long as the run goes on
    std::future::pending::<()>().await;
}

/// Looks for requests to cancel and to pause, and whether the claim still holds.
pub(super) async fn requests(
    runs: RunStore,
    run: RunId,
    claim: Arc<Claim>,
    send: UnboundedSender<Message>,
) {
    let every = LOOK[usize::from(runs.store().info().kind != "file")];
    let (mut cancel, mut pause) = (false, false);
    loop {
        sleep(every).await;
        if let Err(e) = claim.check() {
            let _ = send.send(Message::Lost(e));
            return;
        }
        // a store that cannot be reached now is asked again
        let Ok(found) = runs.load(&run).await else { continue };
        if found.record.cancel_requested_at().is_some() && !std::mem::replace(&mut cancel, true) {
            let reason = found.record.cancel_reason().map(str::to_owned);
            let _ = send.send(Message::Input(Input::Cancel { reason }));
        }
        if found.record.pause_requested_at().is_some() && !std::mem::replace(&mut pause, true) {
            let reason = found.record.pause_reason().map(str::to_owned);
            let _ = send.send(Message::Input(Input::Pause { reason }));
        }
    }
}

/// Touches the heartbeat, by which a late `fail:` knows how long the engine lived.
pub(super) async fn heartbeat(scratch: Arc<Scratch>, clock: Arc<dyn Clock>) {
    loop {
        let (scratch, now) = (scratch.clone(), clock.now().rfc3339());
        // without it a crash is only less well described
        let _ = blocking(move || {
            let name = HEARTBEAT.as_bytes();
            let _ = fsx::publish(scratch.dir(), name, b".tmp-heartbeat", now.as_bytes(), false);
            Ok(())
        })
        .await;
        sleep(BEAT).await;
    }
}

/// Feeds an input later.
pub(super) async fn later(length: Duration, input: Input, send: UnboundedSender<Message>) {
    sleep(length).await;
    let _ = send.send(Message::Input(input));
}
