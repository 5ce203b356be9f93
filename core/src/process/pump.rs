//! The thread that moves bytes between a command and us: input in, output out in the
//! order of its arrival, copies to the tee. A bounded channel leads on from there, so
//! that a command is slowed down by a slow reader and costs no memory.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

use crate::error::Result;

/// The most that is read at once.
const READ: usize = 64 * 1024;
/// Pieces under way between the thread and the sink.
const UNDER_WAY: usize = 8;
/// How long pipes may stay open and silent after all processes have gone.
const SILENT: Duration = Duration::from_secs(2);
/// More than this no pipe holds: who still writes is not one of those that have gone.
const LEFT_BEHIND: usize = 1 << 20;
/// How long to wait when a tee takes nothing at the moment.
const FULL: Duration = Duration::from_millis(10);

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Some output, at most 64 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it was written.
    pub stream: Stream,
    /// What.
    pub bytes: Bytes,
}

/// Takes the output of a command.
#[async_trait]
pub trait Sink: Send {
    /// Takes the next piece. The command may be held up until this returns. After an
    /// error no more pieces come.
    async fn chunk(&mut self, chunk: Chunk) -> Result<()>;
    /// Comes within a fraction of a second after a piece: time to pass on what waits.
    async fn tick(&mut self) -> Result<()> {
        Ok(())
    }
    /// The output has ended.
    async fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Copies of the output, byte for byte. A reader that leaves is noticed as it would be
/// without us: the command's own pipe is closed.
#[derive(Default)]
pub struct Tee {
    /// Takes standard output.
    pub out: Option<Box<dyn Write + Send>>,
    /// Takes standard error.
    pub err: Option<Box<dyn Write + Send>>,
}

impl std::fmt::Debug for Tee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tee {{ out: {}, err: {} }}", self.out.is_some(), self.err.is_some())
    }
}

/// What the thread tells.
pub(super) enum Item {
    /// Output.
    Chunk(Chunk),
    /// Copying failed.
    TeeFailed(String),
    /// Nothing more comes, though somebody holds the pipes open.
    Held,
}

/// The receiving end, and the end to drop when the processes are gone.
pub(super) struct Pumped {
    pub(super) items: mpsc::Receiver<Item>,
    pub(super) gone: PipeWriter,
}

/// Starts the thread. With `keep`, output that comes after the processes should be gone
/// is read and thrown away rather than waited for.
pub(super) fn pump(child: &mut Child, stdin: Vec<u8>, tee: Tee, keep: bool) -> io::Result<Pumped> {
    let (wake, gone) = io::pipe()?;
    let (send, items) = mpsc::channel(UNDER_WAY);
    let out = child.stdout.take().map(|p| Source::new(p.into(), Stream::Out, tee.out));
    let err = child.stderr.take().map(|p| Source::new(p.into(), Stream::Err, tee.err));
    let mut input =
        child.stdin.take().map(|p| Input { pipe: OwnedFd::from(p).into(), bytes: stdin, at: 0 });
    if let Some(input) = input.as_mut() {
        rustix::io::ioctl_fionbio(&input.pipe, true)?;
    }
    let sources = [out, err].into_iter().flatten().collect();
    // What the command itself has written is there when it has gone.
    let silent = if keep { Duration::ZERO } else { SILENT };
    let pump = Pump { input, sources, wake: Some(wake), send: Some(send), silent, after: 0 };
    std::thread::Builder::new().name("attempt-output".to_owned()).spawn(move || pump.run())?;
    Ok(Pumped { items, gone })
}

/// A duration as the system takes it.
pub(super) fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: d.subsec_nanos().into(),
    }
}

struct Input {
    pipe: File,
    bytes: Vec<u8>,
    at: usize,
}

struct Source {
    pipe: File,
    stream: Stream,
    tee: Option<Box<dyn Write + Send>>,
}

struct Pump {
    input: Option<Input>,
    sources: Vec<Source>,
    /// Until the processes are gone.
    wake: Option<PipeReader>,
    /// Until nobody listens.
    send: Option<mpsc::Sender<Item>>,
    silent: Duration,
    /// Bytes read since the processes are gone.
    after: usize,
}

impl Pump {
    fn run(mut self) {
        let mut buf = vec![0; READ];
        while !self.sources.is_empty() || self.input.is_some() {
            let ready = self.poll().filter(|_| self.send.is_none() || self.after <= LEFT_BEHIND);
            let Some(ready) = ready else {
                self.tell(Item::Held);
                self.send = None;
                self.sources.iter_mut().for_each(|s| s.tee = None);
                continue;
            };
            if ready.wake {
                self.wake = None;
                self.input = None; // nobody is left to read it
            }
            if ready.input && self.input.as_mut().is_some_and(Input::feed) {
                self.input = None;
            }
            let is_ready = |i: &usize| ready.sources[*i];
            let ended: Vec<usize> = (0..self.sources.len())
                .filter(is_ready)
                .filter(|i| self.forward(*i, &mut buf).is_break())
                .collect();
            for i in ended.into_iter().rev() {
                self.sources.remove(i);
            }
        }
    }

    /// Waits until something can be moved; `None` when all has been silent for too long.
    fn poll(&self) -> Option<Ready> {
        let mut fds: Vec<PollFd<'_>> =
            self.sources.iter().map(|s| PollFd::new(&s.pipe, PollFlags::IN)).collect();
        let sources = fds.len();
        fds.extend(self.wake.iter().map(|w| PollFd::new(w, PollFlags::IN)));
        fds.extend(self.input.iter().map(|i| PollFd::new(&i.pipe, PollFlags::OUT)));
        let limit = (self.wake.is_none() && self.send.is_some()).then(|| timespec(self.silent));
        let found = loop {
            match poll(&mut fds, limit.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                found => break found.unwrap_or(0),
            }
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let wake = self.wake.is_some() && ready[sources];
        let input = self.input.is_some() && ready.last() == Some(&true);
        (found > 0).then(|| Ready { sources: ready[..sources].to_vec(), wake, input })
    }

    /// Reads once from a source and hands it on; `Break` when nothing more comes from it.
    fn forward(&mut self, i: usize, buf: &mut [u8]) -> ControlFlow<()> {
        let source = &mut self.sources[i];
        let n = match source.pipe.read(buf) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return ControlFlow::Continue(()),
            Err(_) => 0,
        };
        if n == 0 {
            return ControlFlow::Break(());
        }
        if self.wake.is_none() {
            self.after += n;
        }
        let stream = source.stream;
        let copied = source.copy(&buf[..n]);
        if self.send.is_some() {
            self.tell(Item::Chunk(Chunk { stream, bytes: Bytes::copy_from_slice(&buf[..n]) }));
        }
        match copied {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return ControlFlow::Break(()),
            Err(e) => self.tell(Item::TeeFailed(e.to_string())),
            Ok(()) => {}
        }
        ControlFlow::Continue(())
    }

    fn tell(&mut self, item: Item) {
        if self.send.as_ref().is_some_and(|s| s.blocking_send(item).is_err()) {
            self.send = None;
        }
    }
}

struct Ready {
    sources: Vec<bool>,
    wake: bool,
    input: bool,
}

impl Source {
    fn new(pipe: OwnedFd, stream: Stream, tee: Option<Box<dyn Write + Send>>) -> Self {
        Self { pipe: pipe.into(), stream, tee }
    }

    /// Copies to the tee; after a failure it gets no more.
    fn copy(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tee) = &mut self.tee else { return Ok(()) };
        let done = loop {
            match tee.write(bytes) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [], Some(&timespec(FULL)));
                }
                Err(e) => break Err(e),
            }
            if bytes.is_empty() {
                break tee.flush();
            }
        };
        if done.is_err() {
            self.tee = None;
        }
        done
    }
}

impl Input {
    /// Writes what the pipe takes; true when all is written or nobody reads.
    fn feed(&mut self) -> bool {
        while self.at < self.bytes.len() {
            match self.pipe.write(&self.bytes[self.at..]) {
                Ok(n) => self.at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() != io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}
