//! One attempt from start to end: start → stream and watch → stop → nobody left.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::attempt::{Attempt, Background, Captured, Cause, End, Named, Outcome, Stdio};
use super::family::{
    Family, Living, Starting, group_gone, keep, kill, named, signal_group, surely_gone,
};
use super::output::MAX_OUTPUT;
use super::pump::{Item, Pumped, Sink, Stream, Tee, pump};
use super::start;
use super::stop::Stop;
use super::terminal::Terminal;
use super::wait::{self, Waited};
use crate::error::{Error, Result};
use crate::tasks::blocking;

/// What outlives the command has this long to end by itself.
const LINGER: Duration = Duration::from_secs(2);
/// After KILL a process is gone at once, unless it is stuck in the system.
const STUCK: Duration = Duration::from_secs(5);
/// After a stop, output that nobody takes is given up.
const UNREAD: Duration = Duration::from_secs(2);
/// How long after a piece of output the sink may do something about it.
const TICK: Duration = Duration::from_millis(200);

/// Runs one attempt. Fails only when the command could not be started: codes
/// `command-not-found`, `command-not-executable`, `command-too-long`, `no-directory`,
/// `command-not-started`. A dropped future kills the group.
pub async fn run(attempt: Attempt, sink: &mut dyn Sink, mut stop: Stop) -> Result<Outcome> {
    let began = Instant::now();
    let deadline = attempt.timeout.and_then(|t| began.checked_add(t));
    let (mut running, pumped, capture) = begin(attempt).await?;
    let mut delivery = Delivery { capture, ..Delivery::default() };
    let (items, gone) = match pumped {
        Some(Pumped { items, gone }) => (Some(items), Some(gone)),
        None => (None, None),
    };
    let ended = {
        let mut consumer = pin!(delivery.consume(items, sink));
        let mut consumed = false;
        let mut listening = stop.clone();
        let mut supervisor = pin!(running.supervise(deadline, &mut stop));
        let ended = loop {
            tokio::select! {
                ended = &mut supervisor => break ended,
                () = &mut consumer, if !consumed => consumed = true,
            }
        };
        drop(gone);
        if !consumed {
            tokio::select! {
                () = &mut consumer => {}
                () = unread(&mut listening, ended.cause.is_some()) => {}
            }
        }
        ended
    };
    Ok(delivery.outcome(ended, began.elapsed()))
}

/// Comes back when output has waited for too long after a stop.
async fn unread(stop: &mut Stop, stopped: bool) {
    if !stopped {
        stop.wait().await;
    }
    sleep(UNREAD).await;
}

/// Starts the command and the threads that serve it.
async fn begin(mut attempt: Attempt) -> Result<(Running, Option<Pumped>, bool)> {
    let work = move || {
        let stdio = std::mem::replace(
            &mut attempt.stdio,
            Stdio::Piped { stdin: Vec::new(), tee: Tee::default() },
        );
        let inherited = matches!(stdio, Stdio::Inherited);
        let own_input = matches!(stdio, Stdio::Recorded { .. });
        let terminal = if inherited { Terminal::open() } else { None };
        let starting = Starting::begin();
        let mut child = start::start(&attempt, inherited, own_input)?;
        let failed = |e: std::io::Error| {
            Error::failed("command-not-started", format!("cannot serve a command: {e}"))
        };
        let group = wait::pid_of(&child).ok_or_else(|| failed(std::io::ErrorKind::Other.into()))?;
        let family = Family::new(group, &attempt.identity);
        drop(starting);
        let kept = attempt.background == Background::Keep;
        let pumped = match stdio {
            Stdio::Piped { stdin, tee } => pump(&mut child, stdin, tee, kept).map(Some),
            Stdio::Recorded { tee } => pump(&mut child, Vec::new(), tee, kept).map(Some),
            Stdio::Inherited => Ok(None),
        };
        let served = pumped.and_then(|p| Ok((p, wait::wait(child, inherited, terminal)?)));
        let (pumped, main) = served.map_err(|e| {
            signal_group(group, Signal::KILL);
            failed(e)
        })?;
        let running = Running {
            over: family.over(),
            family: Arc::new(Mutex::new(family)),
            group,
            main,
            end: None,
            done: false,
            grace: attempt.grace,
            keep: kept,
            killed: Vec::new(),
        };
        Ok((running, pumped, attempt.capture))
    };
    blocking(work).await
}

/// A command that has been started.
struct Running {
    family: Arc<Mutex<Family>>,
    group: Pid,
    /// The group's number may be another's.
    over: Arc<AtomicBool>,
    main: Waited,
    end: Option<End>,
    /// Nothing of it is left to be killed.
    done: bool,
    grace: Duration,
    keep: bool,
    killed: Vec<Named>,
}

/// What the supervisor says.
struct Ended {
    end: End,
    cause: Option<Cause>,
    killed: Vec<Named>,
    left: Vec<Named>,
}

impl Running {
    async fn supervise(&mut self, deadline: Option<Instant>, stop: &mut Stop) -> Ended {
        let cause = tokio::select! {
            biased;
            () = ended(&mut self.main.end, &mut self.end) => None,
            why = stop.wait() => Some(Cause::Stopped(why)),
            () = at(deadline) => Some(Cause::Timeout),
            () = self.main.wants.wanted() => Some(Cause::WantsTerminal),
        };
        let left = if cause.is_some() {
            self.look().await;
            self.stop(stop).await
        } else {
            self.leftovers(stop).await
        };
        // Not even KILL ended it: it is stuck in the system, and no longer waited for.
        let end = self.end.unwrap_or(End::Signal(Signal::KILL.as_raw()));
        self.done = true;
        Ended { end, cause, killed: std::mem::take(&mut self.killed), left: left.named() }
    }

    /// What outlived the command ends by itself, or is stopped.
    async fn leftovers(&mut self, stop: &mut Stop) -> Living {
        if self.keep {
            keep(self.group);
            return Living::default();
        }
        let deadline = Instant::now() + LINGER;
        let mut pause = Duration::from_millis(5);
        loop {
            let living = self.look_well().await;
            if living.is_empty() {
                return living;
            }
            let in_time = timeout_at(deadline.min(Instant::now() + pause), stop.wait()).await;
            if in_time.is_ok() || Instant::now() >= deadline {
                self.killed = living.named();
                return self.stop(stop).await;
            }
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// TERM to the group, the grace, KILL to the group, KILL to whoever is left.
    async fn stop(&mut self, stop: &mut Stop) -> Living {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT); // one that is stopped hears nothing
        let in_time = tokio::select! {
            gone = timeout(self.grace, self.group_ended()) => gone.is_ok(),
            () = stop.wait_urgent() => false,
        };
        self.look().await; // before the parents of those outside are gone
        if !in_time {
            self.signal(Signal::KILL);
        }
        self.kill_the_rest().await
    }

    async fn kill_the_rest(&mut self) -> Living {
        let deadline = Instant::now() + STUCK;
        let mut pause = Duration::from_millis(5);
        loop {
            let living = self.look_well().await;
            let done = living.is_empty() && self.end.is_some();
            if done || Instant::now() >= deadline {
                return living;
            }
            for one in living.outside.iter().map(named) {
                if !self.killed.iter().any(|k| k.pid == one.pid) {
                    self.killed.push(one);
                }
            }
            kill(living.all());
            let _ = timeout(pause, ended(&mut self.main.end, &mut self.end)).await;
            if self.end.is_some() {
                sleep(pause).await;
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Comes back when the command and its group are gone.
    async fn group_ended(&mut self) {
        ended(&mut self.main.end, &mut self.end).await;
        let mut pause = Duration::from_millis(2);
        while !group_gone(self.group) {
            if self.look().await.group.is_empty() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn signal(&self, signal: Signal) {
        if !self.over.load(Ordering::SeqCst) {
            signal_group(self.group, signal);
        }
    }

    /// Looks, and once more when nobody was there: a list of processes is no picture of
    /// one moment, and who forks all the time may be missed.
    async fn look_well(&self) -> Living {
        if self.end.is_some() && surely_gone(self.group) {
            return Living::default();
        }
        let first = self.look().await;
        if first.is_empty() { self.look().await } else { first }
    }

    async fn look(&self) -> Living {
        let family = self.family.clone();
        let look = move || family.lock().unwrap_or_else(PoisonError::into_inner).look();
        blocking(move || Ok(look())).await.unwrap_or_default()
    }
}

/// An attempt that nobody waits for any more.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.done {
            self.signal(Signal::KILL);
        }
    }
}

/// Waits for the command itself.
async fn ended(main: &mut oneshot::Receiver<End>, end: &mut Option<End>) {
    if end.is_none() {
        *end = Some(main.await.unwrap_or(End::Signal(0)));
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Where the output goes, and what is counted on the way.
#[derive(Default)]
struct Delivery {
    capture: bool,
    captured: Captured,
    out: u64,
    err: u64,
    held: bool,
    complete: bool,
    tee_error: Option<String>,
    sink_error: Option<Error>,
}

impl Delivery {
    async fn consume(
        &mut self,
        items: Option<tokio::sync::mpsc::Receiver<Item>>,
        sink: &mut dyn Sink,
    ) {
        if let Some(mut items) = items {
            let mut due = None;
            loop {
                let next = match due {
                    Some(due) => timeout_at(due, items.recv()).await,
                    None => Ok(items.recv().await),
                };
                match next {
                    Ok(Some(item)) => {
                        self.take(item, sink).await;
                        due = due.or(Some(Instant::now() + TICK));
                    }
                    Ok(None) => break,
                    Err(_) => due = None,
                }
                // A steady stream must not keep the tick away.
                if due.is_none_or(|due| Instant::now() >= due) {
                    due = None;
                    self.note(sink.tick().await);
                }
            }
        }
        self.note(sink.end().await);
        self.complete = true;
    }

    async fn take(&mut self, item: Item, sink: &mut dyn Sink) {
        let chunk = match item {
            Item::Chunk(chunk) => chunk,
            Item::Held => return self.held = true,
            Item::TeeFailed(e) => return self.tee_error = self.tee_error.take().or(Some(e)),
        };
        match chunk.stream {
            Stream::Out => {
                self.out += chunk.bytes.len() as u64;
                self.keep(&chunk.bytes);
            }
            Stream::Err => self.err += chunk.bytes.len() as u64,
        }
        if self.sink_error.is_none() {
            let taken = sink.chunk(chunk).await;
            self.note(taken);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.capture {
            let room = MAX_OUTPUT.saturating_sub(self.captured.bytes.len()).min(bytes.len());
            self.captured.bytes.extend_from_slice(&bytes[..room]);
            self.captured.cut |= room < bytes.len();
        }
    }

    fn note(&mut self, done: Result<()>) {
        if let Err(e) = done {
            self.sink_error.get_or_insert(e);
        }
    }

    fn outcome(self, ended: Ended, elapsed: Duration) -> Outcome {
        Outcome {
            end: ended.end,
            cause: ended.cause,
            killed: ended.killed,
            left: ended.left,
            stdout_bytes: self.out,
            stderr_bytes: self.err,
            captured: self.captured,
            pipes_left: self.held || !self.complete,
            tee_error: self.tee_error,
            sink_error: self.sink_error,
            elapsed,
        }
    }
}
