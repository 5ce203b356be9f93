//! Writing many new files from the store, several batches at a time: small content is
//! fetched by the hundred and written in one crossing, large content is streamed.
//!
//! Every file is created exclusively. The bytes of a small file are one object, which
//! the store re-hashed on the way (CLD-O6); the digest of a chunked content is checked
//! as it is streamed, before its file is used for anything.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::fsx::{self, Dir};
use crate::ids::Digest;
use crate::object::content;
use crate::snapshot::tree::Ref;
use crate::store::Store;
use crate::tasks::{self, blocking};

/// The most files of one batch.
const BATCH_FILES: usize = 512;
/// The fewest, where splitting lets more threads work.
const MIN_BATCH: usize = 32;
/// Bytes of content of one batch in memory, by recorded length.
const BATCH_BYTES: u64 = 16 << 20;

/// One file to make.
#[derive(Clone, Debug)]
pub(super) struct NewFile {
    /// The number of its directory, meaning what [`Place::open`] says.
    pub(super) dir: u32,
    /// Its name there.
    pub(super) name: Box<[u8]>,
    /// Its exact mode.
    pub(super) mode: u32,
    /// What it shall hold.
    pub(super) content: Ref,
}

/// Where new files go.
pub(super) trait Place: Send + Sync + 'static {
    /// The directory with this number.
    fn open(&self, dir: u32) -> io::Result<Arc<Dir>>;
    /// The mode to create a file with that shall get `mode`, and whether it then has
    /// `mode` exactly.
    fn creation(&self, mode: u32) -> (u32, bool);
    /// The path to name in an error.
    fn describe(&self, file: &NewFile) -> String;
}

/// Makes all of `files`, in order of directories when the caller sorted them so.
/// `threads` batches are under way at a time. The first failure stops it; the caller
/// removes what was made.
pub(super) async fn fill(
    store: &dyn Store,
    ctx: &Context,
    place: Arc<dyn Place>,
    files: Vec<NewFile>,
    threads: usize,
) -> Result<()> {
    let share = files.len() / (threads.max(1) * 4);
    let batches = split(files, share.clamp(MIN_BATCH, BATCH_FILES));
    let work = batches.into_iter().map(|batch| {
        let place = Arc::clone(&place);
        async move {
            ctx.cancel.check()?;
            match batch {
                Batch::Large(file) => large(store, ctx, place, file).await,
                Batch::Small(files) => small(store, ctx, place, files).await,
            }
        }
    });
    // One more than threads, so that a batch is fetched while others are written.
    tasks::all(work, threads.max(1) + 1).await?;
    Ok(())
}

enum Batch {
    Small(Vec<NewFile>),
    Large(NewFile),
}

fn split(files: Vec<NewFile>, most: usize) -> Vec<Batch> {
    let mut out = Vec::new();
    let mut small: Vec<NewFile> = Vec::new();
    let mut bytes = 0u64;
    for file in files {
        if !file.content.chunks.is_empty() {
            out.push(Batch::Large(file));
            continue;
        }
        bytes = bytes.saturating_add(file.content.length);
        if !small.is_empty() && (small.len() >= most || bytes > BATCH_BYTES) {
            out.push(Batch::Small(std::mem::take(&mut small)));
            bytes = file.content.length;
        }
        small.push(file);
    }
    if !small.is_empty() {
        out.push(Batch::Small(small));
    }
    out
}

async fn small(
    store: &dyn Store,
    ctx: &Context,
    place: Arc<dyn Place>,
    files: Vec<NewFile>,
) -> Result<()> {
    let mut wanted: Vec<Digest> = Vec::with_capacity(files.len());
    let mut at: HashMap<Digest, usize> = HashMap::with_capacity(files.len());
    for file in files.iter().filter(|f| f.content.length > 0) {
        at.entry(file.content.digest).or_insert_with(|| {
            wanted.push(file.content.digest);
            wanted.len() - 1
        });
    }
    let mut found = Vec::with_capacity(wanted.len());
    if !wanted.is_empty() {
        for (digest, bytes) in wanted.iter().zip(store.get_objects(&wanted).await?) {
            found.push(bytes.map_err(|e| named(&*place, &files, digest, e))?);
        }
    }
    let count = files.len() as u64;
    let total = files.iter().map(|f| f.content.length).sum();
    let cancel = ctx.cancel.clone();
    blocking(move || {
        let mut last: Option<(u32, Arc<Dir>)> = None;
        for file in &files {
            cancel.check()?;
            let bytes = at.get(&file.content.digest).and_then(|i| found.get(*i));
            let bytes = bytes.cloned().unwrap_or_default();
            check_small(&*place, file, &bytes)?;
            let dir = open(&*place, file, &mut last)?;
            make_small(&*place, &dir, file, &bytes).map_err(|e| failed(&*place, file, e))?;
        }
        Ok(())
    })
    .await?;
    ctx.progress.advance(count, total);
    Ok(())
}

/// A damaged or missing object, with the paths that need it.
fn named(place: &dyn Place, files: &[NewFile], digest: &Digest, e: Error) -> Error {
    let hit = files.iter().filter(|f| f.content.digest == *digest);
    of_paths(hit.map(|f| place.describe(f)).collect(), content::damaged(digest, e))
}

fn of_paths(paths: Vec<String>, e: Error) -> Error {
    let first = paths.first().cloned().unwrap_or_default();
    e.context(format!("failed to fetch the content of {first}")).with_paths(paths)
}

/// The store answers for the digest; the length is the tree's word.
fn check_small(place: &dyn Place, file: &NewFile, bytes: &Bytes) -> Result<()> {
    let right = file.content.length > 0 || file.content.digest == Digest::EMPTY;
    if right && bytes.len() as u64 == file.content.length {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "content {} has {} bytes where {} are recorded for {}",
        file.content.digest,
        bytes.len(),
        file.content.length,
        place.describe(file)
    )))
}

fn open(place: &dyn Place, file: &NewFile, last: &mut Option<(u32, Arc<Dir>)>) -> Result<Arc<Dir>> {
    if let Some((number, dir)) = last
        && *number == file.dir
    {
        return Ok(Arc::clone(dir));
    }
    let dir = place.open(file.dir).map_err(|e| failed(place, file, e))?;
    *last = Some((file.dir, Arc::clone(&dir)));
    Ok(dir)
}

fn make_small(place: &dyn Place, dir: &Dir, file: &NewFile, bytes: &[u8]) -> io::Result<()> {
    let (mode, exact) = place.creation(file.mode);
    let mut out = dir.create_file_mode(&file.name, mode)?;
    fsx::write_all(&mut out, bytes)?;
    if exact { Ok(()) } else { fsx::set_file_mode(&out, file.mode) }
}

async fn large(
    store: &dyn Store,
    ctx: &Context,
    place: Arc<dyn Place>,
    file: NewFile,
) -> Result<()> {
    let (reference, path) = (file.content.clone(), place.describe(&file));
    // Two parts wait at most, so a slow disk holds back a fast store.
    let (send, mut receive) = mpsc::channel::<Bytes>(2);
    let progress = Arc::clone(&ctx.progress);
    let write = blocking(move || {
        let dir = place.open(file.dir).map_err(|e| failed(&*place, &file, e))?;
        let written = (|| {
            let (mode, _) = place.creation(file.mode);
            let mut out = dir.create_file_mode(&file.name, mode)?;
            while let Some(part) = receive.blocking_recv() {
                fsx::write_all(&mut out, &part)?;
                progress.advance(0, part.len() as u64);
            }
            fsx::set_file_mode(&out, file.mode)
        })();
        written.map_err(|e| failed(&*place, &file, e))
    });
    let read = async move {
        let mut parts = content::chunks(store, &reference);
        while let Some(part) = parts.next().await {
            ctx.cancel.check()?;
            let part = part.map_err(|e| of_paths(vec![path.clone()], e))?;
            if send.send(part).await.is_err() {
                break; // the writer stopped and says why
            }
        }
        Ok(())
    };
    let (read, write) = futures::future::join(read, write).await;
    write?;
    read?;
    ctx.progress.advance(1, 0);
    Ok(())
}

/// What a failed write of a new file means: no space is told apart, all is exit 1.
pub(super) fn failed(place: &dyn Place, file: &NewFile, e: io::Error) -> Error {
    write_failed(&place.describe(file), &e)
}

/// The error for a path whose new content could not be written.
pub(super) fn write_failed(path: &str, e: &io::Error) -> Error {
    let full = matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let code = if full { "no-space" } else { "write-failed" };
    let message = format!("failed to write {path}: {e}");
    Error::new(Kind::Failed, code, message).with_paths([path.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_and_large_content_goes_alone() {
        let of = |length: u64, chunks: usize| NewFile {
            dir: 0,
            name: b"x".to_vec().into(),
            mode: 0o644,
            content: Ref {
                length,
                digest: Digest::EMPTY,
                chunks: vec![
                    crate::snapshot::tree::Chunk { length: 1, digest: Digest::EMPTY };
                    chunks
                ],
            },
        };
        let sizes = |files: Vec<NewFile>| -> Vec<usize> {
            let len = |b: &Batch| match b {
                Batch::Small(f) => f.len(),
                Batch::Large(_) => 0,
            };
            split(files, BATCH_FILES).iter().map(len).collect()
        };
        assert_eq!(sizes(vec![of(1, 0); 600]), [512, 88]);
        assert_eq!(sizes(vec![of(9 << 20, 0), of(9 << 20, 0), of(1, 0)]), [1, 2]);
        assert_eq!(sizes(vec![of(1, 0), of(20 << 20, 3), of(1, 0)]), [0, 2]);
    }
}
