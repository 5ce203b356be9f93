//! Copies one store into another: objects, then documents, then logs, so that nothing
//! there ever names what is not there. It deletes nothing and overwrites nothing; called
//! again it sends what is missing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::TryStreamExt;
use serde::Serialize;

use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::ids::{Digest, RunId};
use crate::store::{
    DocKey, EventRecord, Expect, Guard, Listed, ListedObject, LockMode, LockName, LockRequest,
    LogPart, MAX_BYTES, Prefix, PutObjects, PutOutcome, Store,
};

/// Objects sent at once, and the bytes of them.
const MOST_OBJECTS: usize = 256;
const MOST_OBJECT_BYTES: u64 = MAX_BYTES as u64;
/// Events sent at once, and the bytes of them.
const MOST_EVENTS: usize = 200;
const MOST_EVENT_BYTES: usize = 1 << 20;
/// How much of a run log is read at once.
const WINDOW: u64 = 4 << 20;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Read every object again at the end, where it was copied to.
    pub verify: bool,
    /// Count what is missing, send nothing.
    pub dry_run: bool,
    /// How long to wait for the locks.
    pub wait: Duration,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its key, or the run.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Objects that were missing and are sent.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Documents that were missing and are written.
    pub documents: u64,
    /// Events appended.
    pub events: u64,
    /// Bytes of run logs appended.
    pub log_bytes: u64,
    /// What was left out, and why.
    pub skipped: Vec<Skipped>,
    /// Documents that are there with other content: left as they are.
    pub differing: Vec<String>,
}

/// A copy on its way.
struct Copier<'a> {
    from: &'a dyn Store,
    to: &'a dyn Store,
    ctx: &'a Context,
    options: Options,
    report: Report,
}

/// Copies everything in `from` into `to`, except markers, damage lists, tombstones,
/// journals of restores in progress, and runs that are running.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    ctx: &Context,
    options: Options,
) -> Result<Report> {
    let mut copy = Copier { from, to, ctx, options, report: Report::default() };
    // No prune takes away what is about to be read, or what was found to be there.
    let source = copy.hold(from).await?;
    let target = copy.hold(to).await?;
    let plan = copy.plan().await?;
    copy.objects(&target).await?;
    copy.documents(&plan, &target).await?;
    for run in &plan.runs {
        copy.events(run).await?;
        copy.log(run).await?;
    }
    source.release().await?;
    target.release().await?;
    Ok(copy.report)
}

/// What is to be copied, in the order in which it is written.
struct Plan {
    documents: Vec<DocKey>,
    /// Heads and labels as they were before the objects were listed: a later one may name
    /// a snapshot whose objects are not copied.
    refs: BTreeMap<String, (DocKey, Bytes)>,
    runs: Vec<RunId>,
}

impl Copier<'_> {
    async fn hold(&self, store: &dyn Store) -> Result<Guard> {
        let (name, mode) = (LockName::Objects, LockMode::Shared);
        store.lock(LockRequest::new(name, mode, self.options.wait, "store copy")).await
    }

    fn skip(&mut self, name: String, reason: &str) {
        self.report.skipped.push(Skipped { name, reason: reason.to_owned() });
    }

    async fn plan(&mut self) -> Result<Plan> {
        let mut keys = Vec::new();
        let mut rows = self.from.list(&Prefix::All);
        while let Some(row) = rows.try_next().await? {
            match row {
                Listed::Doc { key, .. } => keys.push(key),
                Listed::Foreign { name } => self.skip(name, "it is nothing of the store's"),
            }
        }
        drop(rows);
        let mut runs = Vec::new();
        let mut left = BTreeSet::new();
        for key in &keys {
            let DocKey::Run(run) = key else { continue };
            match self.is_running(run).await? {
                true => drop(left.insert(run.as_str().to_owned())),
                false => runs.push(run.clone()),
            }
        }
        for run in &left {
            self.skip(format!("run {run}"), "it is running");
        }
        let mut plan = Plan { documents: Vec::new(), refs: BTreeMap::new(), runs };
        for key in keys {
            match &key {
                DocKey::Marker | DocKey::Damage | DocKey::RunTombstone(_) => {}
                DocKey::Journal(..) => self.skip(key.to_string(), "a restore is in progress"),
                _ if key.run().is_some_and(|run| left.contains(run.as_str())) => {}
                DocKey::Refs(_) => match self.from.get(&key).await {
                    Ok(doc) => drop(plan.refs.insert(key.to_string(), (key, doc.body))),
                    Err(e) if e.is_not_found() => self.skip(key.to_string(), "it went away"),
                    Err(e) => return Err(e),
                },
                _ => plan.documents.push(key),
            }
        }
        // A run comes before what belongs to it.
        plan.documents.sort_by_key(|key| !matches!(key, DocKey::Run(_)));
        Ok(plan)
    }

    /// A run whose record says so, or whose lock is held.
    async fn is_running(&self, run: &RunId) -> Result<bool> {
        #[derive(serde::Deserialize)]
        struct Record {
            status: Option<String>,
        }
        if self.from.lock_holder(&LockName::Run(run.clone())).await?.is_some() {
            return Ok(true);
        }
        let doc = self.from.get(&DocKey::Run(run.clone())).await?;
        let record: Option<Record> = serde_json::from_slice(&doc.body).ok();
        Ok(record.and_then(|r| r.status).is_some_and(|status| status == "running"))
    }

    async fn objects(&mut self, guard: &Guard) -> Result<()> {
        let mut there = HashSet::new();
        let mut rows = self.to.list_objects();
        while let Some(row) = rows.try_next().await? {
            if let ListedObject::Object { digest, .. } = row {
                there.insert(digest);
            }
        }
        drop(rows);
        self.ctx.progress.phase("copy", None, None);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut all = Vec::new();
        let mut rows = self.from.list_objects();
        while let Some(row) = rows.try_next().await? {
            let ListedObject::Object { digest, stored, .. } = row else { continue };
            if self.options.verify {
                all.push(digest);
            }
            if there.contains(&digest) {
                continue;
            }
            if batch.len() >= MOST_OBJECTS || bytes + stored > MOST_OBJECT_BYTES {
                self.send(std::mem::take(&mut batch), guard).await?;
                bytes = 0;
            }
            bytes += stored;
            batch.push(digest);
        }
        self.send(batch, guard).await?;
        if !self.options.dry_run {
            self.to.flush().await?;
            for part in all.chunks(MOST_OBJECTS / 8) {
                self.ctx.cancel.check()?;
                self.to.get_objects(part).await?.into_iter().collect::<Result<Vec<_>>>()?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, batch: Vec<Digest>, guard: &Guard) -> Result<()> {
        self.ctx.cancel.check()?;
        if batch.is_empty() {
            return Ok(());
        }
        if self.options.dry_run {
            self.report.objects += batch.len() as u64;
            return Ok(());
        }
        let mut objects = Vec::with_capacity(batch.len());
        for bytes in self.from.get_objects(&batch).await? {
            objects.push(crate::store::Object::new(bytes?)?);
        }
        guard.check()?;
        let sizes: Vec<u64> = objects.iter().map(|o| o.bytes().len() as u64).collect();
        let done = self.to.put_objects(objects, PutObjects::Check).await?;
        for (outcome, size) in done.into_iter().zip(sizes) {
            match outcome {
                PutOutcome::Failed(e) => return Err(e),
                PutOutcome::Present => {}
                PutOutcome::Stored { .. } | PutOutcome::Healed { .. } => {
                    self.report.objects += 1;
                    self.report.bytes += size;
                    self.ctx.progress.advance(1, size);
                }
            }
        }
        Ok(())
    }

    async fn documents(&mut self, plan: &Plan, guard: &Guard) -> Result<()> {
        for key in &plan.documents {
            self.ctx.cancel.check()?;
            guard.check()?;
            match self.from.get(key).await {
                Ok(doc) => self.document(key, doc.body).await?,
                Err(e) if e.is_not_found() => self.skip(key.to_string(), "it went away"),
                Err(e) => return Err(e),
            }
        }
        for (key, body) in plan.refs.values() {
            guard.check()?;
            self.document(key, body.clone()).await?;
        }
        Ok(())
    }

    async fn document(&mut self, key: &DocKey, body: Bytes) -> Result<()> {
        match self.to.get(key).await {
            Ok(there) if there.body == body => return Ok(()),
            Ok(_) => {
                self.report.differing.push(key.to_string());
                return Ok(());
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
        if !self.options.dry_run {
            match self.to.put(key, body, Expect::Absent, None).await {
                Err(e) if e.code() == "deleted" => {
                    self.skip(key.to_string(), "its run was deleted there");
                    return Ok(());
                }
                done => done?,
            };
        }
        self.report.documents += 1;
        Ok(())
    }

    /// Events keep their numbers, so only what follows what is there can be appended.
    async fn events(&mut self, run: &RunId) -> Result<()> {
        let mut next = match self.last_event(run).await {
            Ok(last) => last.map_or(0, |last| last + 1),
            // In a dry run, or where the run was deleted, there is none to append to.
            Err(e) if e.is_not_found() => return Ok(()),
            Err(e) => return Err(e),
        };
        let mut rows = self.from.read_events(run, next);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.try_next().await? {
            let Some(event) = (row.seq == next).then(|| unnumbered(&row)).flatten() else {
                self.skip(format!("events of run {run} from {}", row.seq), "a number is missing");
                break;
            };
            next += 1;
            bytes += event.len();
            batch.push(event);
            if batch.len() >= MOST_EVENTS || bytes >= MOST_EVENT_BYTES {
                self.append(run, std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        drop(rows);
        self.append(run, batch).await
    }

    async fn last_event(&self, run: &RunId) -> Result<Option<u64>> {
        let mut last = None;
        let mut rows = self.to.read_events(run, 0);
        while let Some(row) = rows.try_next().await? {
            last = Some(row.seq);
        }
        Ok(last)
    }

    async fn append(&mut self, run: &RunId, batch: Vec<Bytes>) -> Result<()> {
        self.ctx.cancel.check()?;
        let count = batch.len() as u64;
        if count > 0 && !self.options.dry_run {
            self.to.append_events(run, batch, None).await?;
        }
        self.report.events += count;
        Ok(())
    }

    /// A log keeps its offsets; what is a hole stays one.
    async fn log(&mut self, run: &RunId) -> Result<()> {
        let mut at = match log_end(self.to, run).await {
            Err(e) if e.is_not_found() => return Ok(()),
            end => end?,
        };
        loop {
            self.ctx.cancel.check()?;
            let parts = self.from.read_log(run, at, at + WINDOW).await?;
            let Some(end) = parts.last().map(LogPart::end) else { return Ok(()) };
            for part in parts {
                let LogPart::Bytes { offset, bytes } = part else { continue };
                self.report.log_bytes += bytes.len() as u64;
                if !self.options.dry_run {
                    self.to.append_log(run, Some(offset), bytes, None).await?;
                }
            }
            at = end;
        }
    }
}

async fn log_end(store: &dyn Store, run: &RunId) -> Result<u64> {
    let mut at = 0;
    loop {
        let parts = store.read_log(run, at, at + WINDOW).await?;
        match parts.last() {
            Some(part) => at = part.end(),
            None => return Ok(at),
        }
    }
}

/// An event without the number that [`crate::store::events::number`] put first; `None`
/// when its number stands elsewhere.
fn unnumbered(row: &EventRecord) -> Option<Bytes> {
    let rest = row.body.strip_prefix(format!("{{\"seq\":{}", row.seq).as_bytes())?;
    let rest = match rest {
        [b',', members @ ..] => members,
        [b'}'] => rest,
        _ => return None,
    };
    Some(Bytes::from([b"{".as_slice(), rest].concat()))
}

impl Report {
    /// The error of a copy that met other content.
    pub fn problem(&self) -> Option<Error> {
        let first = self.differing.first()?;
        let n = self.differing.len();
        let message = format!("{n} documents are there with other content and stay, first {first}");
        Some(Error::new(Kind::Conflict, "differs", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::events::number;

    #[test]
    fn numbers_come_off_as_they_were_put_on() {
        for event in ["{}", "{\"a\":1}", "{\"a\":{\"seq\":9}}"] {
            let row = EventRecord { seq: 7, body: number(7, event.as_bytes()) };
            assert_eq!(unnumbered(&row).as_deref(), Some(event.as_bytes()));
        }
        let odd = EventRecord { seq: 7, body: Bytes::from("{\"a\":1,\"seq\":7}") };
        assert_eq!(unnumbered(&odd), None);
    }
}
