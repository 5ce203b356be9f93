//! Reading what the cache does not know: each file as one state of it that existed,
//! hashed, and offered to a sink.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::sink::Sink;
use super::types::{Settings, What};
use super::walk::{Pending, Walked};
use crate::clock::{Cancel, Context};
use crate::error::{Error, Result};
use crate::fsx::{self, FileKind, ReadFailure, Stat};
use crate::ids::Digest;
use crate::object::chunk;
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::snapshot::tree::{Chunk, Ref};
use crate::store::{MAX_BYTES, Object};
use crate::tasks::{self, blocking};
use crate::workspace::Root;

/// Files of one batch.
const BATCH_FILES: usize = 256;
/// Bytes of one batch; one file more than this makes a batch of its own.
const BATCH_BYTES: u64 = 12 << 20;
/// Files that a thread looks at again, at least.
const LOOKS: usize = 512;
/// Waits before a file that moved is read again.
const RETRY_MS: [u64; 3] = [10, 50, 250];

/// What became of one file.
enum Outcome {
    Read(Ref, Stat),
    Link(Vec<u8>, Stat),
    Skip(Reason, Option<String>),
    /// Not to be stored, for what it is now.
    Other(Reason, Stat),
    Again,
}

struct Job {
    at: Pending,
    path: RelPath,
    size: u64,
    /// Larger content is skipped.
    limit: u64,
    tries: usize,
}

/// Totals of the reading.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// What every read of one observation works with.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) ctx: &'a Context,
    pub(super) root: &'a Root,
    pub(super) settings: &'a Settings,
    pub(super) sink: Option<&'a Sink>,
}

/// Reads every pending file, offers it to the sink, and fills content, stat or
/// reason into its entry. Files that move are read again; afterwards each file read
/// is looked at once more.
pub(super) async fn read_all(
    reading: Reading<'_>,
    walked: &mut [Walked],
    pending: Vec<Pending>,
) -> Result<(Totals, HashMap<(usize, usize), String>)> {
    let mut totals = Totals::default();
    let mut errors = HashMap::new();
    let settings = reading.settings;
    let mut jobs: Vec<Job> = pending.into_iter().map(|at| job(settings, walked, at, 0)).collect();
    let bytes = jobs.iter().map(|j| j.size).sum();
    reading.ctx.progress.phase("read", Some(jobs.len() as u64), Some(bytes));
    let mut done: Vec<(Pending, usize)> = Vec::new();
    loop {
        let mut again = Vec::new();
        for (job, outcome) in read_batches(reading, jobs).await? {
            if let Outcome::Again = outcome
                && job.tries < RETRY_MS.len()
            {
                again.push(Job { tries: job.tries + 1, ..job });
                continue;
            }
            settle(walked, &job, outcome, &mut totals, &mut errors);
            done.push((job.at, job.tries));
        }
        if again.is_empty() {
            for (at, tries) in moved_since(reading, walked, &mut done).await? {
                if tries < RETRY_MS.len() {
                    again.push(job(settings, walked, at, tries + 1));
                } else {
                    walked[at.dir].dir.entries[at.entry].what = What::Skipped(Reason::Changing);
                }
            }
        }
        if again.is_empty() {
            return Ok((totals, errors));
        }
        let pause = again.iter().map(|j| RETRY_MS[j.tries.clamp(1, 3) - 1]).max().unwrap_or(10);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        jobs = again;
    }
}

/// Reads batches side by side.
async fn read_batches(reading: Reading<'_>, jobs: Vec<Job>) -> Result<Vec<(Job, Outcome)>> {
    let work = batches(jobs).into_iter().map(|batch| read_batch(reading, batch));
    // One more than threads, so that nobody is idle while a batch waits for the disk.
    let done = tasks::all(work, reading.settings.threads.max(2) + 1).await?;
    Ok(done.into_iter().flatten().collect())
}

fn job(settings: &Settings, walked: &[Walked], at: Pending, tries: usize) -> Job {
    let dir = &walked[at.dir].dir;
    let entry = &dir.entries[at.entry];
    let path = dir.path.join(&entry.name);
    let limit =
        if settings.must_store.contains(&path) { u64::MAX } else { settings.max_file_bytes };
    Job { at, path, size: entry.stat.size, limit, tries }
}

fn settle(
    walked: &mut [Walked],
    job: &Job,
    outcome: Outcome,
    totals: &mut Totals,
    errors: &mut HashMap<(usize, usize), String>,
) {
    let entry = &mut walked[job.at.dir].dir.entries[job.at.entry];
    match outcome {
        Outcome::Read(content, stat) => {
            totals.files += 1;
            totals.bytes += content.length;
            entry.stat = stat;
            entry.what = What::File(content);
        }
        Outcome::Link(target, stat) => {
            entry.stat = stat;
            entry.what = What::Symlink(target.into());
        }
        Outcome::Skip(reason, error) => {
            entry.what = What::Skipped(reason);
            if let Some(e) = error {
                errors.insert((job.at.dir, job.at.entry), e);
            }
        }
        Outcome::Other(reason, stat) => {
            entry.stat = stat;
            entry.what = What::Skipped(reason);
        }
        Outcome::Again => entry.what = What::Skipped(Reason::Changing),
    }
}

fn batches(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut out = Vec::new();
    let mut batch = Vec::new();
    let mut bytes = 0;
    for job in jobs {
        let own = job.size.min(MAX_BYTES as u64);
        if !batch.is_empty() && (batch.len() >= BATCH_FILES || bytes + own > BATCH_BYTES) {
            out.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += own;
        batch.push(job);
    }
    if !batch.is_empty() {
        out.push(batch);
    }
    out
}

/// Reads one batch on a blocking thread and puts its objects. Chunks of large files
/// come through a bounded channel while the file is still being read.
async fn read_batch(reading: Reading<'_>, batch: Vec<Job>) -> Result<Vec<(Job, Outcome)>> {
    let Reading { ctx, root, sink, .. } = reading;
    ctx.cancel.check()?;
    let (send, mut chunks) = mpsc::channel::<Object>(1);
    let dir = root.dir.clone();
    let cancel = ctx.cancel.clone();
    let store = sink.is_some();
    let reading = tokio::task::spawn_blocking(move || {
        let mut objects = Vec::new();
        let mut out = Vec::with_capacity(batch.len());
        for job in batch {
            if cancel.is_cancelled() {
                break;
            }
            let (outcome, object) = read_one(&dir, &job, &cancel, store.then_some(&send))?;
            objects.extend(object.filter(|_| store));
            out.push((job, outcome));
        }
        Ok::<_, Error>((out, objects))
    });
    let mut large: Vec<Object> = Vec::new();
    while let Some(object) = chunks.recv().await {
        large.push(object);
        if let Some(sink) = sink
            && large.iter().map(|o| o.bytes().len()).sum::<usize>() >= MAX_BYTES
        {
            sink.put(std::mem::take(&mut large)).await?;
        }
    }
    let (out, objects) = reading
        .await
        .map_err(|e| Error::failed("io", "reading files stopped").with_source(e))??;
    ctx.cancel.check()?;
    if let Some(sink) = sink {
        large.extend(objects);
        sink.put(large).await?;
        ctx.faults.reach("capture.objects")?;
    }
    let bytes = out.iter().map(|(j, _)| j.size).sum();
    ctx.progress.advance(out.len() as u64, bytes);
    Ok(out)
}

/// Reads one file: its outcome, and its object when it is one.
fn read_one(
    root: &fsx::Dir,
    job: &Job,
    cancel: &Cancel,
    send: Option<&mpsc::Sender<Object>>,
) -> Result<(Outcome, Option<Object>)> {
    let mut grown = None;
    let read = fsx::read_stable(root, &job.path, |file, stat| {
        if stat.size > job.limit {
            grown = Some(*stat);
            return Err(ReadFailure::Moved);
        }
        if stat.size <= MAX_BYTES as u64 {
            return read_small(file, stat.size);
        }
        let content = read_large(file, stat.size, cancel, send)?;
        let length = content.length;
        Ok(((content, None), length))
    });
    Ok(match read {
        Ok(((content, object), stat)) => (Outcome::Read(content, stat), object),
        Err(ReadFailure::Moved) => match grown {
            Some(stat) => (Outcome::Other(Reason::TooLarge, stat), None),
            None => (Outcome::Again, None),
        },
        Err(ReadFailure::Gone) => (Outcome::Skip(Reason::Vanished, None), None),
        Err(ReadFailure::NotAFile(stat)) => (not_a_file(root, &job.path, stat), None),
        Err(ReadFailure::Io(e)) if fsx::is_exhaustion(&e) => {
            return Err(Error::failed("io", format!("{} cannot be opened: {e}", job.path)));
        }
        Err(ReadFailure::Io(e)) => {
            (Outcome::Skip(Reason::Unreadable, Some(fsx::errno_name(&e))), None)
        }
        Err(ReadFailure::Sink(e)) => return Err(e),
    })
}

fn not_a_file(root: &fsx::Dir, path: &RelPath, stat: Stat) -> Outcome {
    match stat.kind {
        FileKind::Symlink => match root.open_parent(path).and_then(|(d, n)| d.read_link(n)) {
            Ok(target) => Outcome::Link(target, stat),
            Err(_) => Outcome::Again,
        },
        FileKind::Special => Outcome::Other(Reason::Unsupported, stat),
        FileKind::Dir | FileKind::File => Outcome::Again,
    }
}

type Content = (Ref, Option<Object>);

fn read_small(file: &mut std::fs::File, size: u64) -> Result<(Content, u64), ReadFailure> {
    let mut bytes = Vec::with_capacity(size as usize + 1);
    // One byte more than the size shows growth without a second look.
    file.take(size + 1).read_to_end(&mut bytes)?;
    let length = bytes.len() as u64;
    if length != size {
        return Err(ReadFailure::Moved);
    }
    let object = Object::new(Bytes::from(bytes)).map_err(ReadFailure::Sink)?;
    let content = Ref::whole(length, object.digest());
    Ok(((content, (length > 0).then_some(object)), length))
}

fn read_large(
    file: &mut std::fs::File,
    size: u64,
    cancel: &Cancel,
    send: Option<&mpsc::Sender<Object>>,
) -> Result<Ref, ReadFailure> {
    use sha2::Digest as _;
    let mut whole = sha2::Sha256::new();
    let mut content = Ref { length: 0, digest: Digest::EMPTY, chunks: Vec::new() };
    // One byte more than the size shows growth, and a file that grows for ever ends.
    for bytes in chunk::chunks(file.take(size + 1)) {
        cancel.check().map_err(ReadFailure::Sink)?;
        let bytes = bytes?;
        whole.update(&bytes);
        content.length += bytes.len() as u64;
        let object = Object::new(bytes).map_err(ReadFailure::Sink)?;
        let length = object.bytes().len() as u32;
        content.chunks.push(Chunk { length, digest: object.digest() });
        if let Some(send) = send
            && send.blocking_send(object).is_err()
        {
            let e = Error::failed("interrupted", "storing a large file stopped");
            return Err(ReadFailure::Sink(e));
        }
    }
    content.digest = Digest(whole.finalize().into());
    if content.length != size || content.chunks.len() < 2 {
        return Err(ReadFailure::Moved);
    }
    Ok(content)
}

/// Looks once more at every file that was read or gone: those that moved or came back,
/// with the tries each has had.
async fn moved_since(
    reading: Reading<'_>,
    walked: &[Walked],
    done: &mut Vec<(Pending, usize)>,
) -> Result<Vec<(Pending, usize)>> {
    let mut checks = Vec::new();
    for (at, tries) in std::mem::take(done) {
        let dir = &walked[at.dir].dir;
        let entry = &dir.entries[at.entry];
        let was = match entry.what {
            What::File(_) => Some(entry.stat),
            What::Skipped(Reason::Vanished) => None,
            _ => continue,
        };
        checks.push((at, tries, dir.path.join(&entry.name), was));
    }
    let (dir, threads) = (reading.root.dir.clone(), reading.settings.threads);
    blocking(move || {
        let moved = |path: &RelPath, was: &Option<Stat>| match (dir.stat_below(path), was) {
            (Ok(now), Some(was)) => !now.same_file_state(was),
            (Ok(_), None) | (Err(_), Some(_)) => true,
            (Err(_), None) => false,
        };
        tasks::split(&checks, threads, LOOKS, |part| {
            let rows = part.iter().filter(|(_, _, path, was)| moved(path, was));
            Ok(rows.map(|(at, tries, ..)| (*at, *tries)).collect())
        })
    })
    .await
}
