//! What a restore itself adds to the store and to the stat cache.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::apply::Applied;
use super::bank::Banked;
use super::work::Work;
use crate::capture::Recorder;
use crate::error::Result;
use crate::fsx::{self, Stat};
use crate::object::chunk;
use crate::observe::{self, What};
use crate::path::RelPath;
use crate::plan::{Op, Plan};
use crate::snapshot::tree::{Body, Ref};
use crate::store::hold::Hold;
use crate::store::{DocKey, PutObjects, PutOutcome, Store};
use crate::tasks::blocking;
use crate::workspace::cache::StatCache;

/// Longer than one grain of any clock that stamps files on the systems we run on: a
/// write in the same grain as ours would be invisible in a stat taken within it.
const GRAIN: Duration = Duration::from_millis(12);

/// Takes the `objects` lock for a write.
pub(super) async fn hold(recorder: &Recorder, command: &str) -> Result<Hold> {
    let (store, wait) = (Arc::clone(recorder.store()), recorder.settings().wait);
    let hold = Hold::new(store, wait, command, DocKey::Refs(recorder.chain().clone()));
    hold.ensure().await?;
    Ok(hold)
}

/// Stores some bytes as content and makes them durable. The caller holds `objects`.
pub(super) async fn put(store: &dyn Store, bytes: &[u8]) -> Result<Ref> {
    let batch = chunk::objects(Bytes::copy_from_slice(bytes))?;
    for outcome in store.put_objects(batch, PutObjects::Check).await? {
        if let PutOutcome::Failed(e) = outcome {
            return Err(e);
        }
    }
    store.flush().await?;
    Ok(observe::reference(bytes))
}

/// Tells the stat cache what the restore wrote, so that the next capture reads none of
/// it. A file that moved since it was verified gets no entry.
pub(super) async fn note(
    recorder: &Recorder,
    work: &Arc<Work>,
    (done, stats): (&Applied, &[Option<Stat>]),
    plan: &Plan,
    banked: &mut Banked,
) -> Result<()> {
    let Some(dir) = recorder.settings().cache_dir.clone() else { return Ok(()) };
    if let Some(verified) = done.verified {
        tokio::time::sleep_until(verified + GRAIN).await;
    }
    let known = banked.captured.cache.take();
    let entries: Vec<(RelPath, Option<(Stat, Ref)>)> = plan
        .steps
        .iter()
        .zip(stats)
        .map(|(step, stat)| {
            let content = match plan.contents.get(&step.path) {
                Some(Body::File(r)) => Some(r.clone()),
                // Only its mode is another one: the bank read what it holds.
                _ if step.op == Op::Chmod => held(banked, &step.path),
                _ => None,
            };
            (step.path.clone(), stat.zip(content))
        })
        .collect();
    let (root, work) = (recorder.root().clone(), Arc::clone(work));
    let temp = recorder.context().ids.hex(8)?;
    blocking(move || {
        let mut cache = known.unwrap_or_else(|| StatCache::load(Some(&dir), &root));
        let fresh = |(path, entry): (RelPath, Option<(Stat, Ref)>)| {
            let now = work.root.stat_below(&path).ok();
            let entry = entry.filter(|(then, _)| now.is_some_and(|now| still(then, &now)));
            (path, entry)
        };
        let entries: Vec<_> = entries.into_iter().map(fresh).collect();
        cache.note(&entries);
        cache.save(&temp)
    })
    .await
}

fn held(banked: &Banked, path: &RelPath) -> Option<Ref> {
    match &banked.captured.observed.entry(path)?.what {
        What::File(content) => Some(content.clone()),
        _ => None,
    }
}

/// Nothing of it moved; and its times are finer than a second, so that the wait above
/// was long enough.
fn still(then: &Stat, now: &Stat) -> bool {
    then.same_file_state(now)
        && now.kind == fsx::FileKind::File
        && now.ctime_ns % 1_000_000_000 != 0
}
