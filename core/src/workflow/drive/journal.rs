//! The writer behind a drive: labels, then events, then the checkpoint, in the order in
//! which they were handed over. What waits is written together: one write is in flight,
//! the newest checkpoint waits, and those that it replaces are never written.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::capture::{Alias, Recorder};
use crate::error::{Error, Result};
use crate::run::{Checkpoint, NewEvent, Run, RunStore};

/// Checkpoints may be this far behind.
const BEHIND: Duration = Duration::from_millis(250);

enum Entry {
    Alias(Alias),
    Event(Box<NewEvent>),
    Checkpoint(Box<Checkpoint>),
    Barrier(oneshot::Sender<Result<()>>),
}

/// The end of the journal that a drive writes to.
pub(super) struct Journal {
    send: mpsc::UnboundedSender<Entry>,
    /// Since when something waits that was not waited for.
    since: Option<Instant>,
    /// Labels that could not be set.
    trouble: Arc<Mutex<Vec<String>>>,
    writer: JoinHandle<()>,
}

impl Journal {
    /// Starts the writer for the run in `run`.
    pub(super) fn start(runs: RunStore, recorder: Recorder, run: Arc<Mutex<Run>>) -> Self {
        let (send, entries) = mpsc::unbounded_channel();
        let trouble = Arc::new(Mutex::new(Vec::new()));
        let writer = Writer { runs, recorder, run, trouble: trouble.clone(), failed: None };
        let writer = tokio::spawn(writer.write_all(entries));
        Self { send, since: None, trouble, writer }
    }

    fn hand_over(&mut self, entry: Entry) {
        self.since.get_or_insert_with(Instant::now);
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

    /// Hands over a checkpoint, and waits when too much time has passed since the last
    /// wait.
    pub(super) async fn checkpoint(&mut self, checkpoint: Box<Checkpoint>) -> Result<()> {
        self.hand_over(Entry::Checkpoint(checkpoint));
        match self.since {
            Some(since) if since.elapsed() >= BEHIND => self.settle().await,
            _ => Ok(()),
        }
    }

    /// Waits until everything handed over is durable. Fails with the first failure of a
    /// write, and does so again from then on.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let (done, wait) = oneshot::channel();
        let _ = self.send.send(Entry::Barrier(done));
        self.since = None;
        let gone = |_| Error::failed("internal", "the writer of the run's records stopped");
        wait.await.map_err(gone)?
    }

    /// What could not be labelled since the last call.
    pub(super) async fn trouble(&self) -> Vec<String> {
        std::mem::take(&mut *self.trouble.lock().await)
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
    trouble: Arc<Mutex<Vec<String>>>,
    failed: Option<Error>,
}

impl Writer {
    async fn write_all(mut self, mut entries: mpsc::UnboundedReceiver<Entry>) {
        while let Some(first) = entries.recv().await {
            let mut batch = Batch::default();
            batch.add(first);
            while let Ok(more) = entries.try_recv() {
                batch.add(more);
            }
            let done = match &self.failed {
                Some(_) => Ok(()),
                None => self.write(&mut batch).await,
            };
            if let Err(e) = done {
                self.failed = Some(e);
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
            let label = |a: &Alias| a.boundary.label().map(|l| l.to_string());
            let labels: Vec<String> = batch.aliases.iter().filter_map(label).collect();
            let text = format!("cannot set {}: {}", labels.join(", "), e.message());
            self.trouble.lock().await.push(text);
        }
        if !batch.events.is_empty() {
            let id = self.run.lock().await.id().clone();
            self.runs.append_events(&id, &batch.events).await?;
            self.recorder.context().faults.reach("run.events")?;
        }
        match batch.checkpoint.take() {
            Some(checkpoint) => {
                let mut run = self.run.lock().await;
                self.runs.save_checkpoint(&mut run, &checkpoint).await?;
                self.recorder.context().faults.reach("run.checkpoint")
            }
            None => Ok(()),
        }
    }
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
    waiting: Vec<oneshot::Sender<Result<()>>>,
}

impl Batch {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Alias(alias) => self.aliases.push(alias),
            Entry::Event(event) => self.events.push(*event),
            Entry::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint),
            Entry::Barrier(waiting) => self.waiting.push(waiting),
        }
    }
}
