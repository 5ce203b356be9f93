//! Progress of a long operation: on standard error, only on a terminal, and only
//! after half a second.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backtrail_core::clock::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const DELAY: Duration = Duration::from_millis(500);

/// A bar that shows itself late, or never.
pub(crate) struct Bar {
    enabled: bool,
    begun: Mutex<Option<(Instant, ProgressBar)>>,
    files: AtomicU64,
}

impl Bar {
    /// A bar; one that is never shown unless `enabled`.
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, begun: Mutex::new(None), files: AtomicU64::new(0) }
    }

    /// Takes the bar off the screen, so that something else can be printed. The next
    /// phase brings it back.
    pub(crate) fn clear(&self) {
        if self.enabled
            && let Some((_, bar)) = self.lock().take()
        {
            bar.finish_and_clear();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Instant, ProgressBar)>> {
        self.begun.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "only decides when a bar is shown")]
    Instant::now()
}

fn style(bytes_known: bool) -> ProgressStyle {
    let template = if bytes_known {
        "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg} eta {eta}"
    } else {
        "{spinner} {prefix} {msg} {bytes} {bytes_per_sec}"
    };
    // The templates are constants; a broken one shows the default bar.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress for Bar {
    fn phase(&self, name: &str, _files: Option<u64>, bytes: Option<u64>) {
        if !self.enabled {
            return;
        }
        let mut slot = self.lock();
        let begun = match slot.take() {
            Some((begun, old)) => {
                old.finish_and_clear();
                begun
            }
            None => now(),
        };
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::hidden());
        bar.set_style(style(bytes.is_some()));
        bar.set_prefix(name.to_owned());
        self.files.store(0, Ordering::Relaxed);
        *slot = Some((begun, bar));
    }

    fn advance(&self, files: u64, bytes: u64) {
        if !self.enabled {
            return;
        }
        let done = self.files.fetch_add(files, Ordering::Relaxed) + files;
        if let Some((begun, bar)) = &*self.lock() {
            if bar.is_hidden() && now().duration_since(*begun) >= DELAY {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.inc(bytes);
            bar.set_message(format!("{done} files"));
        }
    }
}
