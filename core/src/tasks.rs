//! Work on other threads and side by side, ended whole whatever fails.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};

use crate::error::{Error, Result};

/// Runs blocking work whole on a blocking thread. A panic there is an error of kind
/// `Failed`: whoever called must not guess how far it came.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(Error::failed("internal", "a task ended early").with_source(e)),
    }
}

/// Runs all of `work`, `width` at a time; the results as they come. After a failure no
/// new one begins, and those under way come to their end: nothing goes on behind the
/// caller's back.
pub(crate) async fn all<T, F: Future<Output = Result<T>>>(
    work: impl Iterator<Item = F>,
    width: usize,
) -> Result<Vec<T>> {
    let failed = AtomicBool::new(false);
    let failed = &failed;
    // A closure of the caller's must not live across an await: the compiler could not tell
    // any more that the whole may change threads.
    let work: Vec<F> = work.collect();
    let mut results = stream::iter(work)
        .map(|one| async move {
            if failed.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let done = one.await;
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
            done.map(Some)
        })
        .buffer_unordered(width.max(1));
    let mut out = Ok(Vec::new());
    while let Some(result) = results.next().await {
        match (&mut out, result) {
            (Ok(all), Ok(one)) => all.extend(one),
            (Ok(_), Err(e)) => out = Err(e),
            (Err(_), _) => {}
        }
    }
    out
}

/// Splits `items` over up to `threads` threads, at least `least` to each, and joins what
/// they make in order; the first error in that order. Blocks.
///
/// ```
/// # use backtrail_core::tasks::split;
/// let squares = split(&[1, 2, 3], 2, 1, |part| Ok(part.iter().map(|n| n * n).collect()));
/// assert_eq!(squares.unwrap(), [1, 4, 9]);
/// ```
pub fn split<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    least: usize,
    work: impl Fn(&[T]) -> Result<Vec<R>> + Sync,
) -> Result<Vec<R>> {
    let share = items.len().div_ceil(threads.max(1)).max(least).max(1);
    if items.len() <= share {
        return work(items);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            items.chunks(share).map(|part| scope.spawn(move || work(part))).collect();
        let mut out = Vec::with_capacity(items.len());
        for part in parts {
            out.extend(part.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(out)
    })
}
