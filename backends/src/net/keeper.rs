//! A thread with a runtime of its own for what must go on whatever the caller's runtime
//! does: the renewals of held locks, and their release when a guard is dropped.

use std::thread;

use backtrail_core::error::{Error, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread; it ends when this is dropped, and its tasks with it.
#[derive(Debug)]
pub struct Keeper {
    handle: Handle,
    thread: thread::ThreadId,
    // Dropped with the keeper: that is what ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Keeper {
    /// Starts the thread.
    pub fn start() -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::failed("io", "failed to start the thread that keeps locks").with_source(e)
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(stopped);
        };
        let thread = thread::Builder::new().name("backtrail-locks".into());
        let thread = thread.spawn(run).map_err(failed)?.thread().id();
        Ok(Self { handle, thread, _stop: stop })
    }

    /// Runs `work` on the thread and waits for it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self.handle.spawn(work).await {
            Ok(done) => done,
            Err(e) => Err(Error::failed("internal", "a task ended early").with_source(e)),
        }
    }

    /// True on the thread itself, where nobody may wait for its work.
    pub fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    /// Starts `work` on the thread.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }
}
