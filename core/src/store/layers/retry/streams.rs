//! Streams that go on after a failure where they stopped.

use futures::stream::{self, BoxStream, StreamExt};

use super::Retry;
use super::tries::Tries;
use crate::error::Result;
use crate::ids::RunId;
use crate::store::{EventRecord, Listed, ListedObject, LogPart, Prefix};

/// A stream on its way: what is open and the last place reached.
struct Run<'a, T, K> {
    rows: Option<BoxStream<'a, Result<T>>>,
    last: Option<K>,
    tries: Tries<'a>,
}

impl Retry {
    /// Rows whose `place` rises. After a failure `open` is asked for the rows behind
    /// the last place; rows up to it that come again are dropped. A following stream
    /// has its tries anew with each row.
    fn resumed<'a, T, K>(
        &'a self,
        what: String,
        follow: bool,
        open: impl Fn(Option<&K>) -> BoxStream<'a, Result<T>> + Send + Sync + 'a,
        place: impl Fn(&T) -> K + Send + Sync + 'a,
    ) -> BoxStream<'a, Result<T>>
    where
        T: Send + 'a,
        K: Ord + Send + Sync + 'a,
    {
        let (open, place) = (std::sync::Arc::new(open), std::sync::Arc::new(place));
        let start = Run { rows: None, last: None, tries: self.tries(what) };
        let step = move |run: Option<Run<'a, T, K>>| {
            let (open, place) = (open.clone(), place.clone());
            async move {
                let mut run = run?;
                loop {
                    let mut rows = match run.rows.take() {
                        Some(rows) => rows,
                        None => {
                            run.tries.count();
                            open(run.last.as_ref())
                        }
                    };
                    match rows.next().await? {
                        Ok(row) => {
                            run.rows = Some(rows);
                            let at = place(&row);
                            if run.last.as_ref().is_some_and(|last| *last >= at) {
                                continue;
                            }
                            run.last = Some(at);
                            if follow {
                                run.tries.progressed();
                            }
                            return Some((Ok(row), Some(run)));
                        }
                        Err(e) => {
                            if let Err(e) = run.tries.again(e).await {
                                return Some((Err(e), None));
                            }
                        }
                    }
                }
            }
        };
        stream::unfold(Some(start), step).boxed()
    }

    pub(super) fn document_rows(&self, prefix: Prefix) -> BoxStream<'_, Result<Listed>> {
        let what = format!("list of {prefix}");
        let place = |row: &Listed| match row {
            Listed::Doc { key, .. } => key.to_string(),
            Listed::Foreign { name } => name.clone(),
        };
        self.resumed(what, false, move |_| self.inner.list(&prefix), place)
    }

    /// Objects come in no order, so a listing is begun again only while nothing of it
    /// was handed on; later a failure ends it, and its user must not act on half of it.
    pub(super) fn object_rows<'a>(&'a self) -> BoxStream<'a, Result<ListedObject>> {
        let start = Run { rows: None, last: None, tries: self.tries("list of objects") };
        let step = move |run: Option<Run<'a, ListedObject, ()>>| async move {
            let mut run = run?;
            loop {
                let mut rows = match run.rows.take() {
                    Some(rows) => rows,
                    None => {
                        run.tries.count();
                        self.inner.list_objects()
                    }
                };
                match rows.next().await? {
                    Ok(row) => {
                        run.rows = Some(rows);
                        run.last = Some(());
                        return Some((Ok(row), Some(run)));
                    }
                    Err(e) if run.last.is_some() => return Some((Err(e), None)),
                    Err(e) => {
                        if let Err(e) = run.tries.again(e).await {
                            return Some((Err(e), None));
                        }
                    }
                }
            }
        };
        stream::unfold(Some(start), step).boxed()
    }

    pub(super) fn event_rows(
        &self,
        run: RunId,
        from: u64,
        follow: bool,
    ) -> BoxStream<'_, Result<EventRecord>> {
        let what = format!("read of the events of run {run}");
        let open = move |last: Option<&u64>| {
            let from = last.map_or(from, |seq| seq + 1);
            match follow {
                true => self.inner.follow_events(&run, from),
                false => self.inner.read_events(&run, from),
            }
        };
        self.resumed(what, follow, open, |event: &EventRecord| event.seq)
    }

    pub(super) fn log_rows(&self, run: RunId, from: u64) -> BoxStream<'_, Result<LogPart>> {
        let what = format!("following of the log of run {run}");
        let open = move |end: Option<&u64>| self.inner.follow_log(&run, *end.unwrap_or(&from));
        self.resumed(what, true, open, LogPart::end)
    }
}
