//! Reading content back by its reference: small content whole, large content as a
//! stream of its chunks, trees decoded. Nothing is believed: lengths are compared,
//! and the digest of the whole is checked as well as that of each chunk.
//!
//! An object that is missing or wrong is always `Corrupt`, never `NotFound`: somebody
//! recorded that it exists. The error carries the details `digest` and `problem`.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::path::RelPath;
use crate::snapshot::tree::{Body, Entry, Ref, Tree};
use crate::store::Store;

/// The most objects asked for in one call.
pub const BATCH_OBJECTS: usize = 256;
/// The most bytes asked for in one call, by recorded length.
pub const BATCH_BYTES: u64 = 64 * 1024 * 1024;
/// The most bytes reserved before any of them was read.
const MAX_RESERVE: u64 = 16 * 1024 * 1024;
/// Chunks fetched ahead of the one being consumed.
const READ_AHEAD: usize = 2;

/// Reads and decodes one tree. `Corrupt` names the digest and what is wrong.
pub async fn load_tree(store: &dyn Store, reference: &Ref) -> Result<Tree> {
    decode(reference, &read_all(store, reference).await?)
}

/// Reads and decodes many trees with few calls, in order. The outer error is one of
/// the store; a tree that is missing or wrong is an error of its own item only.
/// All of them are in memory afterwards: callers bound what they ask for.
pub async fn load_trees(store: &dyn Store, references: &[Ref]) -> Result<Vec<Result<Tree>>> {
    let mut out = Vec::with_capacity(references.len());
    for batch in batches(references) {
        let plain: Vec<Digest> = batch.iter().filter(|r| is_plain(r)).map(|r| r.digest).collect();
        let mut found = store.get_objects(&plain).await?.into_iter();
        for r in batch {
            let bytes = match is_plain(r) {
                true => found.next().unwrap_or_else(|| Err(missing(&r.digest))),
                false => read_all(store, r).await,
            };
            let bytes = bytes.map_err(|e| damaged_of(&r.digest, Some(r.length), e));
            out.push(bytes.and_then(|b| {
                check_len(&r.digest, r.length, &b)?;
                decode(r, &b)
            }));
        }
    }
    Ok(out)
}

/// The entry at `path` below the tree `root`; `None` when there is none, and for the
/// root itself, which is no entry.
pub async fn entry_at(store: &dyn Store, root: &Ref, path: &RelPath) -> Result<Option<Entry>> {
    let mut dir = root.clone();
    let mut names = path.segments().peekable();
    while let Some(name) = names.next() {
        let tree = load_tree(store, &dir).await?;
        match (tree.get(name), names.peek()) {
            (Some(entry), None) => return Ok(Some(entry.clone())),
            (Some(Entry { body: Body::Dir(next), .. }), Some(_)) => dir = next.clone(),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Reads content whole: for trees, rule sets, records, and files known to be small.
/// Memory grows with what is really there, never with what a reference claims.
pub async fn read_all(store: &dyn Store, reference: &Ref) -> Result<Bytes> {
    if reference.length == 0 {
        return empty(reference);
    }
    if reference.chunks.is_empty() {
        return read_object(store, reference.digest, reference.length).await;
    }
    let mut out = BytesMut::with_capacity(reference.length.min(MAX_RESERVE) as usize);
    let mut parts = chunks(store, reference);
    while let Some(part) = parts.next().await {
        out.extend_from_slice(&part?);
    }
    Ok(out.freeze())
}

/// Streams content in order, at most a few objects in memory. The digest of the whole
/// is known only at the end: the last item is an error when it does not match, so
/// nothing may be published before the stream ended well.
pub fn chunks<'a>(store: &'a dyn Store, reference: &'a Ref) -> BoxStream<'a, Result<Bytes>> {
    if reference.length == 0 {
        return stream::iter((reference.digest != Digest::EMPTY).then(|| empty(reference))).boxed();
    }
    let parts = stream::iter(reference.objects().collect::<Vec<_>>())
        .map(move |(digest, length)| read_object(store, digest, length))
        .buffered(READ_AHEAD);
    if reference.chunks.is_empty() {
        return parts.boxed();
    }
    let start = Some((parts.boxed(), Hasher::default()));
    stream::unfold(start, move |state| async move {
        let (mut parts, mut hasher) = state?;
        match parts.next().await {
            Some(Ok(bytes)) => {
                hasher.update(&bytes);
                Some((Ok(bytes), Some((parts, hasher))))
            }
            Some(Err(e)) => Some((Err(e), None)),
            None if hasher.finish() == reference.digest => None,
            None => Some((Err(wrong_whole(&reference.digest)), None)),
        }
    })
    .boxed()
}

/// Splits references into batches of at most [`BATCH_OBJECTS`] and [`BATCH_BYTES`].
pub fn batches(references: &[Ref]) -> impl Iterator<Item = &[Ref]> {
    let mut rest = references;
    std::iter::from_fn(move || {
        let (batch, tail) = rest.split_at(batch_len(rest.iter().map(|r| r.length)));
        rest = tail;
        (!batch.is_empty()).then_some(batch)
    })
}

/// How many items of these lengths make the first batch; at least one of any.
pub fn batch_len(lengths: impl Iterator<Item = u64>) -> usize {
    let (mut n, mut bytes) = (0, 0u64);
    for length in lengths.take(BATCH_OBJECTS) {
        bytes = bytes.saturating_add(length);
        if n > 0 && bytes > BATCH_BYTES {
            break;
        }
        n += 1;
    }
    n
}

/// An object that is recorded and not there.
pub fn missing(digest: &Digest) -> Error {
    problem(digest, "missing", format!("object {digest} is missing"))
}

/// Turns the store's answer about a recorded object into damage: absence becomes
/// `Corrupt`, and every `Corrupt` names digest and problem. Other errors pass.
pub fn damaged(digest: &Digest, e: Error) -> Error {
    damaged_of(digest, None, e)
}

/// [`damaged`] for an object recorded with `length` bytes, which tells short and long
/// from other bytes.
pub fn damaged_of(digest: &Digest, length: Option<u64>, e: Error) -> Error {
    match e.kind() {
        Kind::NotFound => missing(digest).with_source(e),
        Kind::Corrupt if e.details().contains_key("problem") => e,
        Kind::Corrupt => {
            let found = e.details().get("found_bytes").and_then(serde_json::Value::as_u64);
            let problem = found.zip(length).and_then(|(f, l)| length_problem(f, l));
            let name = problem.unwrap_or("wrong-bytes");
            e.with_detail("digest", digest.hex()).with_detail("problem", name)
        }
        _ => e,
    }
}

fn length_problem(found: u64, expected: u64) -> Option<&'static str> {
    match found.cmp(&expected) {
        std::cmp::Ordering::Less => Some("short"),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some("long"),
    }
}

/// True for the error of an object that is recorded and not there.
pub fn is_missing(e: &Error) -> bool {
    problem_of(e) == Some("missing")
}

/// What is wrong with an object, by its error: `missing`, `short`, `long`,
/// `wrong-bytes` or `undecodable`.
pub fn problem_of(e: &Error) -> Option<&str> {
    e.details().get("problem")?.as_str()
}

/// The object that an error of damage is about.
pub fn digest_of(e: &Error) -> Option<Digest> {
    e.details().get("digest")?.as_str()?.parse().ok()
}

async fn read_object(store: &dyn Store, digest: Digest, length: u64) -> Result<Bytes> {
    let bytes =
        store.get_object(&digest).await.map_err(|e| damaged_of(&digest, Some(length), e))?;
    check_len(&digest, length, &bytes)?;
    Ok(bytes)
}

/// The bytes have their digest by now, so a wrong length is the reference's fault.
pub fn check_len(digest: &Digest, expected: u64, bytes: &Bytes) -> Result<()> {
    let found = bytes.len() as u64;
    let Some(name) = length_problem(found, expected) else { return Ok(()) };
    let message = format!("object {digest} has {found} bytes where {expected} are recorded");
    Err(problem(digest, name, message))
}

fn empty(reference: &Ref) -> Result<Bytes> {
    if reference.digest == Digest::EMPTY {
        return Ok(Bytes::new());
    }
    let digest = &reference.digest;
    Err(problem(digest, "wrong-bytes", format!("content {digest} is recorded with no bytes")))
}

fn wrong_whole(digest: &Digest) -> Error {
    problem(
        digest,
        "wrong-bytes",
        format!("the chunks recorded for content {digest} make other content"),
    )
}

fn problem(digest: &Digest, problem: &str, message: String) -> Error {
    Error::corrupt(message).with_detail("digest", digest.hex()).with_detail("problem", problem)
}

/// The whole is one object, so that its digest is what the store is asked for.
fn is_plain(r: &Ref) -> bool {
    r.chunks.is_empty() && r.length > 0
}

fn decode(reference: &Ref, bytes: &[u8]) -> Result<Tree> {
    Tree::decode(bytes).map_err(|e| {
        e.context(format!("tree {}", reference.digest))
            .with_detail("digest", reference.digest.hex())
            .with_detail("problem", "undecodable")
    })
}

#[derive(Default)]
struct Hasher(sha2::Sha256);

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        sha2::Digest::update(&mut self.0, bytes);
    }
    fn finish(self) -> Digest {
        Digest(sha2::Digest::finalize(self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_by_count_and_bytes_and_never_empty() {
        let of = |length| Ref { length, digest: Digest::EMPTY, chunks: Vec::new() };
        let sizes = |refs: &[Ref]| batches(refs).map(<[Ref]>::len).collect::<Vec<_>>();
        assert!(sizes(&[]).is_empty());
        assert_eq!(sizes(&vec![of(1); 600]), [256, 256, 88]);
        assert_eq!(sizes(&[of(BATCH_BYTES + 1), of(1), of(BATCH_BYTES - 1), of(1)]), [1, 2, 1]);
    }
}
