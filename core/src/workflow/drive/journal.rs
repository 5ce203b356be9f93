//! The writer behind a drive: labels, then events, then the checkpoint, in the order in
//! which they were handed over. What waits is written together: one write is in flight,
//! the newest checkpoint waits, and those that it replaces are never written. Writes that
//! nobody waits for come one in a while: each costs three syncs and rewrites documents
//! that grow with the run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::capture::{Alias, Recorder};
use crate::error::{Error, Result};
use crate::redact::Redactor;
use crate::run::{Checkpoint, NewEvent, Run, RunStore};
use crate::snapshot::label::Label;

/// Checkpoints may be this far behind.
const BEHIND: Duration = Duration::from_millis(250);
/// From one write that nobody waits for to the next.
const GAP: Duration = Duration::from_millis(100);

enum Entry {
    Alias(Alias),
    Event(Box<NewEvent>),
    Checkpoint(Box<Checkpoint>),
    Barrier(oneshot::Sender<Result<()>>),
}

/// The end of the journal that a drive writes to.
pub(super) struct Journal {
    send: mpsc::UnboundedSender<Entry>,
    /// Checkpoints handed over so far.
    handed: u64,
    /// How many of them are written, or replaced by one that is.
    written: Arc<AtomicU64>,
    /// When those were handed over that may not be written yet, oldest first.
    behind: VecDeque<(u64, Instant)>,
    lost: Arc<Mutex<Vec<Lost>>>,
    writer: JoinHandle<()>,
}

/// Labels that could not be set.
pub(super) struct Lost {
    pub(super) labels: Vec<Label>,
    pub(super) error: Error,
}

impl Journal {
    /// Starts the writer for the run in `run`.
    pub(super) fn start(
        runs: RunStore,
        recorder: Recorder,
        run: Arc<Mutex<Run>>,
        redactor: Redactor,
    ) -> Self {
        let (send, entries) = mpsc::unbounded_channel();
        let (lost, written) = (Arc::default(), Arc::default());
        let writer = Writer {
            runs,
            recorder,
            run,
            redactor,
            lost: Arc::clone(&lost),
            written: Arc::clone(&written),
            failed: None,
        };
        let writer = tokio::spawn(writer.write_all(entries));
        Self { send, handed: 0, written, behind: VecDeque::new(), lost, writer }
    }

    fn hand_over(&mut self, entry: Entry) {
        // a writer that is gone is noticed by the next wait
        let _ = self.send.send(entry);
    }

    /// Hands over an alias.
    pub(super) fn alias(&mut self, alias: Alias) {
        self.hand_over(Entry::Alias(alias));
    }

    /// Hands over an event.
    pub(super) fn event(&mut self, event: NewEvent) {
        self.hand_over(Entry::Event(Box::new(event)));
    }

    /// Hands over a checkpoint, and waits when an earlier one is not written for too long.
    pub(super) async fn checkpoint(&mut self, checkpoint: Box<Checkpoint>) -> Result<()> {
        self.hand_over(Entry::Checkpoint(checkpoint));
        self.handed += 1;
        self.behind.push_back((self.handed, Instant::now()));
        let written = self.written.load(Ordering::SeqCst);
        while self.behind.front().is_some_and(|(n, _)| *n <= written) {
            self.behind.pop_front();
        }
        match self.behind.front() {
            Some((_, since)) if since.elapsed() >= BEHIND => self.settle().await,
            _ => Ok(()),
        }
    }

    /// Waits until everything handed over is durable. Fails with the first failure of a
    /// write, and does so again from then on.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let (done, wait) = oneshot::channel();
        let _ = self.send.send(Entry::Barrier(done));
        let gone = |_| Error::failed("internal", "the writer of the run's records stopped");
        wait.await.map_err(gone)?
    }

    /// What could not be labelled since the last call.
    pub(super) async fn lost(&self) -> Vec<Lost> {
        std::mem::take(&mut *self.lost.lock().await)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

struct Writer {
    runs: RunStore,
    recorder: Recorder,
    run: Arc<Mutex<Run>>,
    redactor: Redactor,
    lost: Arc<Mutex<Vec<Lost>>>,
    written: Arc<AtomicU64>,
    failed: Option<Error>,
}

impl Writer {
    async fn write_all(mut self, mut entries: mpsc::UnboundedReceiver<Entry>) {
        let mut due = Instant::now();
        while let Some(first) = entries.recv().await {
            let mut batch = Batch::default();
            batch.add(first);
            batch.gather(&mut entries, due).await;
            if batch.waiting.is_empty() {
                due = Instant::now() + GAP;
            }
            let done = match &self.failed {
                Some(_) => Ok(()),
                None => self.write(&mut batch).await,
            };
            match done {
                Err(e) => self.failed = Some(e),
                // what failed stays behind, so that the drive comes to hear of it
                Ok(()) if self.failed.is_none() => {
                    self.written.fetch_add(batch.checkpoints, Ordering::SeqCst);
                }
                Ok(()) => {}
            }
            for waiting in batch.waiting {
                let answer = match &self.failed {
                    Some(e) => Err(again(e)),
                    None => Ok(()),
                };
                let _ = waiting.send(answer);
            }
        }
    }

    async fn write(&mut self, batch: &mut Batch) -> Result<()> {
        if !batch.aliases.is_empty()
            && let Err(e) = self.recorder.alias(&batch.aliases).await
        {
            let labels = batch.aliases.iter().filter_map(|a| a.boundary.label()).collect();
            self.lost.lock().await.push(Lost { labels, error: e });
        }
        if !batch.events.is_empty() {
            let id = self.run.lock().await.id().clone();
            self.runs.append_events(&id, &batch.events).await?;
            self.recorder.context().faults.reach("run.events")?;
        }
        match batch.checkpoint.take() {
            Some(checkpoint) => {
                // those that are replaced before they are written need no look
                let checkpoint = redacted(*checkpoint, &self.redactor);
                let mut run = self.run.lock().await;
                self.runs.save_checkpoint(&mut run, &checkpoint).await?;
                self.recorder.context().faults.reach("run.checkpoint")
            }
            None => Ok(()),
        }
    }
}

/// A checkpoint without secrets.
pub(super) fn redacted(mut checkpoint: Checkpoint, redactor: &Redactor) -> Checkpoint {
    checkpoint.outputs = redactor.object(checkpoint.outputs);
    checkpoint.vars = redactor.object(checkpoint.vars);
    checkpoint.interaction_questions = checkpoint.interaction_questions.map(|q| redactor.json(q));
    for branch in checkpoint.parallel.iter_mut().flat_map(|p| &mut p.branches) {
        branch.error = branch.error.take().map(|e| redactor.text(&e).into_owned());
    }
    checkpoint
}

/// The same failure once more.
fn again(e: &Error) -> Error {
    let mut copy = Error::new(e.kind(), e.code(), e.message());
    if let Some(hint) = e.hint() {
        copy = copy.with_hint(hint);
    }
    copy
}

#[derive(Default)]
struct Batch {
    aliases: Vec<Alias>,
    events: Vec<NewEvent>,
    checkpoint: Option<Box<Checkpoint>>,
    /// How many came, the newest included.
    checkpoints: u64,
    waiting: Vec<oneshot::Sender<Result<()>>>,
}

impl Batch {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Alias(alias) => self.aliases.push(alias),
            Entry::Event(event) => self.events.push(*event),
            Entry::Checkpoint(checkpoint) => {
                self.checkpoint = Some(checkpoint);
                self.checkpoints += 1;
            }
            Entry::Barrier(waiting) => self.waiting.push(waiting),
        }
    }

    /// Adds what is there, and until `due` what comes, unless somebody waits.
    async fn gather(&mut self, entries: &mut mpsc::UnboundedReceiver<Entry>, due: Instant) {
        loop {
            while let Ok(more) = entries.try_recv() {
                self.add(more);
            }
            if !self.waiting.is_empty() || Instant::now() >= due {
                return;
            }
            match timeout_at(due, entries.recv()).await {
                Ok(Some(more)) => self.add(more),
                Ok(None) | Err(_) => return,
            }
        }
    }
}
