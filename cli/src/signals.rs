//! The first INT, TERM or HUP asks the operation to stop and clean up; the second
//! ends the process at once. A run hears both itself; there the third ends the process.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use backtrail_core::clock::Cancel;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How many signals a run hears before the next ends the process.
const HEARD: u32 = 2;

/// Which signal came first, if any.
#[derive(Clone, Default)]
pub(crate) struct Signals(Arc<AtomicU8>, Arc<OnceLock<UnboundedSender<String>>>);

const NAMES: [(u8, &str); 3] = [(1, "SIGHUP"), (2, "SIGINT"), (15, "SIGTERM")];

impl Signals {
    /// Listens on a thread of its own, so that a busy main thread hears them too.
    /// Signals that were ignored when the process began (`nohup`) stay ignored.
    pub(crate) fn listen(cancel: Cancel, ignored: u64) -> Self {
        let signals = Self::default();
        let heard = signals.clone();
        let (ready, installed) = std::sync::mpsc::channel();
        let listen = move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build()
            else {
                return;
            };
            runtime.block_on(heard.wait(&cancel, ignored, ready));
        };
        // Without the thread a signal ends the process as it would any other: nothing
        // is promised then but what a crash keeps.
        let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
        // Nothing begins before the handlers are there; a thread that could not start
        // has dropped its end.
        let _ = installed.recv();
        signals
    }

    /// From now on signals are heard through this, and end nothing by themselves.
    pub(crate) fn forward(&self) -> UnboundedReceiver<String> {
        let (send, heard) = unbounded_channel();
        // there is one run a process
        let _ = self.1.set(send);
        heard
    }

    /// The first signal's number.
    pub(crate) fn first(&self) -> Option<u8> {
        Some(self.0.load(Ordering::SeqCst)).filter(|n| *n != 0)
    }

    async fn wait(&self, cancel: &Cancel, ignored: u64, ready: Sender<()>) {
        let mut streams: Vec<Option<Signal>> = NAMES
            .iter()
            .map(|(n, _)| {
                let heard = ignored >> (n - 1) & 1 == 0;
                heard.then(|| signal(SignalKind::from_raw(i32::from(*n))).ok()).flatten()
            })
            .collect();
        let [hup, int, term] = &mut streams[..] else { return };
        drop(ready);
        let mut heard_by_run = 0;
        loop {
            let (number, name) = tokio::select! {
                () = next(hup) => NAMES[0],
                () = next(int) => NAMES[1],
                () = next(term) => NAMES[2],
            };
            if let Some(run) = self.1.get()
                && heard_by_run < HEARD
            {
                heard_by_run += 1;
                let _ = self.0.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
                let _ = run.send(name.to_owned());
                continue;
            }
            if self.0.swap(number, Ordering::SeqCst) != 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the second signal asks for no clean-up"
                )]
                std::process::exit(128 + i32::from(number));
            }
            cancel.cancel(name);
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(s) => {
            s.recv().await;
        }
        None => std::future::pending().await,
    }
}
