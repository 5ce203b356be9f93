//! Loose objects: `workspace-objects/<aa>/<62 hex>`, `.zst` added when compressed, framed
//! as in the local store.

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Digest, is_hex};
use backtrail_core::object::codec::{self, HEADER_BYTES, Header};
use backtrail_core::store::{Expect, MAX_BYTES, Object, PutObjects, PutOutcome};
use backtrail_core::tasks;
use bytes::Bytes;
use md5::{Digest as _, Md5};

use super::Inner;
use super::bucket::{Bucket, Part};

/// The directory of all objects.
pub(super) const DIR: &str = "workspace-objects/";
/// Content above this is looked at by its length and checksum, not read.
pub(super) const LARGE: usize = 256 * 1024;

/// The key of an object.
pub(super) fn key_of(digest: &Digest, compressed: bool) -> String {
    let hex = digest.hex();
    let zst = if compressed { ".zst" } else { "" };
    format!("{DIR}{}/{}{zst}", &hex[..2], &hex[2..])
}

/// The object that a key below [`DIR`] names, and whether it is compressed.
pub(super) fn parse(key: &str) -> Option<(Digest, bool)> {
    let (fan, name) = key.strip_prefix(DIR)?.split_once('/')?;
    let stem = name.strip_suffix(".zst").unwrap_or(name);
    let digest = (is_hex(fan, 2) && is_hex(stem, 62)).then(|| format!("{fan}{stem}"))?;
    Some((digest.parse().ok()?, stem != name))
}

/// An object in the form in which it is stored.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) digest: Digest,
    pub(super) raw: u64,
    pub(super) stored: Bytes,
    pub(super) compressed: bool,
}

/// The stored form of objects, made on other threads.
pub(super) async fn forms(objects: Vec<Object>, compression: bool) -> Result<Vec<Form>> {
    let form = move |object: &Object| {
        let framed = compression.then(|| codec::encode(object.bytes())).flatten();
        let compressed = framed.is_some();
        let stored = framed.map_or_else(|| object.bytes().clone(), Bytes::from);
        Form { digest: object.digest(), raw: object.bytes().len() as u64, stored, compressed }
    };
    tasks::blocking(move || {
        tasks::split(&objects, 2, 64, |part| Ok(part.iter().map(form).collect()))
    })
    .await
}

/// The content of a stored object. Fails with `Corrupt` unless its hash is `digest`.
pub(super) fn content(digest: &Digest, stored: &Bytes, compressed: bool) -> Result<Bytes> {
    let len = stored.len();
    if len == 0 || len > MAX_BYTES {
        let wrong = corrupt(digest, &format!("{len} bytes are stored"));
        return Err(wrong.with_detail("found_bytes", len as u64));
    }
    let raw = match compressed {
        false => stored.clone(),
        true => Bytes::from(codec::decode(stored).map_err(|e| {
            let problem = e.details().get("problem").cloned();
            corrupt(digest, e.message())
                .with_detail("problem", problem.unwrap_or_else(|| "undecodable".into()))
        })?),
    };
    match Digest::of(&raw) {
        found if found == *digest => Ok(raw),
        found => Err(corrupt(digest, &found.hex()).with_detail("found_bytes", raw.len() as u64)),
    }
}

pub(super) fn corrupt(digest: &Digest, found: &str) -> Error {
    Error::corrupt(format!("object {digest} is corrupt: {found}"))
        .with_detail("digest", digest.hex())
        .with_detail("expected", digest.hex())
        .with_detail("found", found)
}

/// What lies under the key of an object.
pub(super) enum Found {
    Absent,
    Right,
    Wrong,
}

impl Bucket {
    /// Reads a loose object; `None` when it is in neither spelling. What fails its hash
    /// is read once more.
    pub(super) async fn loose(&self, digest: &Digest) -> Result<Option<Bytes>> {
        let mut wrong = None;
        for compressed in [false, true] {
            let key = key_of(digest, compressed);
            for _ in 0..2 {
                let Some(got) = self.get(&key).await? else { break };
                let digest = *digest;
                let read = move || content(&digest, &got.bytes, compressed);
                match tasks::blocking(read).await {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(e) => wrong = Some(e),
                }
            }
        }
        wrong.map_or(Ok(None), Err)
    }

    /// Puts one object. `Check` looks only at the spelling that it would write.
    pub(super) async fn put_loose(&self, form: Form, mode: PutObjects) -> Result<PutOutcome> {
        let key = key_of(&form.digest, form.compressed);
        let found = match mode {
            PutObjects::Rewrite => Found::Absent,
            PutObjects::Check => self.compare(&key, &form).await?,
        };
        if matches!(found, Found::Right) {
            return Ok(PutOutcome::Present);
        }
        let stored = form.stored.len() as u64;
        self.put(&key, form.stored, &Expect::Any).await?;
        if mode == PutObjects::Rewrite {
            // The other spelling may be the reason to rewrite.
            self.delete(&key_of(&form.digest, !form.compressed)).await?;
        }
        Ok(match found {
            Found::Wrong => PutOutcome::Healed { stored },
            _ => PutOutcome::Stored { stored },
        })
    }

    /// Whether what is stored is what we would store: small ones by content, large ones
    /// by length and checksum, and by content where the server's checksum is another.
    pub(super) async fn compare(&self, key: &str, form: &Form) -> Result<Found> {
        if form.stored.len() >= LARGE {
            let Some(meta) = self.head(key).await? else { return Ok(Found::Absent) };
            if meta.size != form.stored.len() as u64 {
                return Ok(Found::Wrong);
            }
            let stored = form.stored.clone();
            let ours =
                tasks::blocking(move || Ok(backtrail_core::ids::to_hex(&Md5::digest(&stored))));
            if meta.etag.trim_matches('"') == ours.await? {
                return Ok(Found::Right);
            }
        }
        let Some(got) = self.get(key).await? else { return Ok(Found::Absent) };
        if got.bytes == form.stored {
            return Ok(Found::Right);
        }
        // Another writer's frame of the same content is as good as ours.
        let (digest, compressed) = (form.digest, form.compressed);
        let right = tasks::blocking(move || Ok(content(&digest, &got.bytes, compressed).is_ok()));
        Ok(if right.await? { Found::Right } else { Found::Wrong })
    }

    /// Whether a loose object of this raw length is there. Two spellings that disagree
    /// are a reason to put again.
    pub(super) async fn has_loose(&self, digest: &Digest, raw: u64) -> Result<bool> {
        let plain =
            self.head(&key_of(digest, false)).await?.map(|meta| meta.size == raw && raw > 0);
        if plain == Some(false) {
            return Ok(false);
        }
        let framed = key_of(digest, true);
        if plain == Some(true) {
            return Ok(true);
        }
        let head = Part::Range(0..HEADER_BYTES as u64);
        let Some(got) = self.get_part(&framed, head).await? else { return Ok(false) };
        Ok(Header::parse(&got.bytes).is_some_and(|h| h.fits(raw, got.meta.size)))
    }
}

impl Inner {
    /// Whether content of this length would lie in a pack.
    pub(super) fn is_small(&self, raw: u64) -> bool {
        self.options.packs && raw < LARGE as u64
    }
}
