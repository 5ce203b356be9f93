//! Looking at every object, shallow or deep, in bounded memory.

use futures::StreamExt;
use futures::stream;

use super::{Problem, Wanted};
use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::object::content::{self, batch_len};
use crate::snapshot::tree::Ref;
use crate::store::Store;

/// Batches in flight, each of at most 64 MiB.
const PARALLEL: usize = 4;
/// Contents in chunks read at once, each a few objects ahead.
const PARALLEL_CHUNKED: usize = 2;
/// Objects asked about in one call.
const LOOK: usize = 1000;

type Found = (Digest, Option<Problem>);

/// Presence and length of every object that was not hashed already.
pub(super) async fn look_at_all(
    store: &dyn Store,
    ctx: &Context,
    wanted: &mut Wanted,
) -> Result<()> {
    let todo = todo(wanted);
    let looks = todo.chunks(LOOK).map(|batch| look_at(store, ctx, batch));
    let mut looks = stream::iter(looks).buffer_unordered(PARALLEL);
    while let Some(found) = looks.next().await {
        let found = found?;
        wanted.damaged.extend(found.into_iter().filter_map(|(d, p)| Some((d, p?))));
    }
    Ok(())
}

/// Asks for presence; what is not well is read, to say what is wrong with it.
async fn look_at(store: &dyn Store, ctx: &Context, batch: &[(Digest, u64)]) -> Result<Vec<Found>> {
    ctx.cancel.check()?;
    let present = store.contains(batch).await?;
    ctx.progress.advance(batch.len() as u64, 0);
    let absent: Vec<(Digest, u64)> =
        batch.iter().zip(present).filter(|(_, here)| !here).map(|(row, _)| *row).collect();
    let mut out = Vec::new();
    for batch in absent.chunks(8) {
        out.extend(hash(store, batch).await?.into_iter().filter(|(_, p)| p.is_some()));
    }
    Ok(out)
}

/// Hashes every object again, and every content in chunks as a whole.
pub(super) async fn hash_all(store: &dyn Store, ctx: &Context, wanted: &mut Wanted) -> Result<()> {
    let chunked: Vec<Ref> = wanted.chunked.values().cloned().collect();
    let wholes = chunked.iter().map(|r| hash_whole(store, ctx, r));
    let mut wholes = stream::iter(wholes).buffer_unordered(PARALLEL_CHUNKED);
    while let Some(found) = wholes.next().await {
        match found? {
            // only what was read to its end proves its chunks
            (r, None) => wanted.hashed.extend(r.chunks.iter().map(|c| c.digest)),
            (_, Some((digest, problem))) => {
                wanted.damaged.entry(digest).or_insert(problem);
            }
        }
    }
    drop(wholes);
    let todo = todo(wanted);
    let hashes = batches(&todo).map(|batch| async move {
        ctx.cancel.check()?;
        let found = hash(store, batch).await?;
        ctx.progress.advance(batch.len() as u64, batch.iter().map(|(_, n)| n).sum());
        Ok::<_, Error>(found)
    });
    let mut hashes = stream::iter(hashes).buffer_unordered(PARALLEL);
    while let Some(found) = hashes.next().await {
        for (digest, problem) in found? {
            wanted.hashed.insert(digest);
            if let Some(problem) = problem {
                wanted.damaged.entry(digest).or_insert(problem);
            }
        }
    }
    Ok(())
}

fn todo(wanted: &Wanted) -> Vec<(Digest, u64)> {
    let unknown = |d: &Digest| !wanted.hashed.contains(d) && !wanted.damaged.contains_key(d);
    let mut todo: Vec<_> =
        wanted.objects.iter().filter(|(d, _)| unknown(d)).map(|(d, n)| (*d, *n)).collect();
    todo.sort_unstable();
    todo
}

fn batches(all: &[(Digest, u64)]) -> impl Iterator<Item = &[(Digest, u64)]> {
    let mut rest = all;
    std::iter::from_fn(move || {
        let (batch, tail) = rest.split_at(batch_len(rest.iter().map(|(_, n)| *n)));
        rest = tail;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Reads a batch, which hashes it; what is wrong with each.
async fn hash(store: &dyn Store, batch: &[(Digest, u64)]) -> Result<Vec<Found>> {
    let digests: Vec<Digest> = batch.iter().map(|(d, _)| *d).collect();
    let mut out = Vec::with_capacity(batch.len());
    for ((digest, length), found) in batch.iter().zip(store.get_objects(&digests).await?) {
        let found = found.map_err(|e| content::damaged_of(digest, Some(*length), e));
        match found.and_then(|bytes| content::check_len(digest, *length, &bytes)) {
            Ok(()) => out.push((*digest, None)),
            Err(e) if e.kind() == Kind::Corrupt => out.push((*digest, Some(Problem::of(&e)))),
            Err(e) => return Err(e),
        }
    }
    Ok(out)
}

/// Streams one content in chunks to its end; what is wrong with which object.
async fn hash_whole<'a>(
    store: &dyn Store,
    ctx: &Context,
    r: &'a Ref,
) -> Result<(&'a Ref, Option<(Digest, Problem)>)> {
    let mut parts = content::chunks(store, r);
    while let Some(part) = parts.next().await {
        ctx.cancel.check()?;
        match part {
            Ok(bytes) => ctx.progress.advance(1, bytes.len() as u64),
            Err(e) if e.kind() == Kind::Corrupt => {
                let digest = content::digest_of(&e).unwrap_or(r.digest);
                return Ok((r, Some((digest, Problem::of(&e)))));
            }
            Err(e) => return Err(e),
        }
    }
    Ok((r, None))
}
