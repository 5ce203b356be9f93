//! Objects: one document each, many in one command. What is there is judged by the real
//! size of its binary beside the lengths it claims; what a read found to be wrong is
//! remembered by the handle, and put again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::Digest;
use backtrail_core::object::codec;
use backtrail_core::store::{
    DeleteOutcome, ListedObject, MAX_BYTES, Object, PutObjects, PutOutcome,
};
use backtrail_core::tasks;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};

use super::Inner;
use super::fault::{self, DUPLICATE};
use super::space::{Write, age, age_of, number};
use super::tables::OBJECTS;

/// Objects in one command.
const MOST_ITEMS: usize = 1_000;
/// Their bytes: a command has at most 16 MiB.
pub(super) const MOST_BYTES: usize = 12 * 1024 * 1024;
/// Commands in flight.
const WIDTH: usize = 4;
/// Times an upsert that raced another is sent again.
const RACES: u32 = 10;
/// An object older than this is made young again when it is put.
const STALE: Duration = Duration::from_secs(3600);

/// An object in the form in which it is stored.
#[derive(Clone, Debug)]
struct Form {
    digest: Digest,
    raw: u64,
    stored: Bytes,
    compressed: bool,
}

/// What lies under the key of an object.
enum Found {
    Right(Duration),
    Wrong,
}

fn absent(digest: &Digest) -> Error {
    Error::not_found(format!("object {digest} is not in the store"))
}

/// The stored form of objects, made on other threads.
async fn forms(objects: Vec<Object>, compression: bool) -> Result<Vec<Form>> {
    let form = move |object: &Object| {
        let framed = compression.then(|| codec::compress(object.bytes())).flatten();
        let compressed = framed.is_some();
        let stored = framed.map_or_else(|| object.bytes().clone(), Bytes::from);
        Form { digest: object.digest(), raw: object.bytes().len() as u64, stored, compressed }
    };
    tasks::blocking(move || {
        tasks::split(&objects, 2, 64, |part| Ok(part.iter().map(form).collect()))
    })
    .await
}

/// The lengths of a stored object fit each other: what it claims of content and of
/// itself, and what is really there.
fn fits(doc: &Document) -> Option<u64> {
    let (raw, stored, real) = (number(doc, "n")?, number(doc, "s")?, number(doc, "real")?);
    let compressed = doc.get_bool("z").ok()?;
    (stored == real && real > 0 && (compressed || raw == stored)).then_some(raw)
}

/// The content of a stored object. Fails with `Corrupt` unless its hash is `digest`.
fn content(digest: &Digest, mut doc: Document) -> Result<Bytes> {
    let (raw, compressed) = (number(&doc, "n"), doc.get_bool("z").ok());
    let data = match doc.remove("data") {
        Some(Bson::Binary(binary)) => binary.bytes,
        _ => Vec::new(),
    };
    let (Some(raw), Some(compressed)) = (raw, compressed) else {
        return Err(corrupt(digest, "its document is not whole"));
    };
    let len = data.len();
    if len == 0 || len > MAX_BYTES {
        let wrong = corrupt(digest, &format!("{len} bytes are stored"));
        return Err(wrong.with_detail("found_bytes", len as u64));
    }
    let bytes = match compressed {
        false => data,
        true => codec::decompress(&data, raw).map_err(|e| corrupt(digest, e.message()))?,
    };
    match Digest::of(&bytes) {
        found if found == *digest => Ok(Bytes::from(bytes)),
        found => Err(corrupt(digest, &found.hex()).with_detail("found_bytes", bytes.len() as u64)),
    }
}

fn corrupt(digest: &Digest, found: &str) -> Error {
    Error::corrupt(format!("object {digest} is corrupt: {found}"))
        .with_detail("digest", digest.hex())
        .with_detail("expected", digest.hex())
        .with_detail("found", found)
}

/// Cuts a batch into commands.
fn commands(forms: Vec<Form>) -> Vec<Vec<Form>> {
    let mut out: Vec<Vec<Form>> = Vec::new();
    let mut bytes = 0;
    for form in forms {
        let len = form.stored.len();
        match out.last_mut() {
            Some(last) if last.len() < MOST_ITEMS && bytes + len <= MOST_BYTES => {
                bytes += len;
                last.push(form);
            }
            _ => {
                bytes = len;
                out.push(vec![form]);
            }
        }
    }
    out
}

impl Inner {
    pub(super) async fn put_objects(
        &self,
        batch: Vec<Object>,
        mode: PutObjects,
    ) -> Result<Vec<PutOutcome>> {
        self.check_writable()?;
        let digests: Vec<Digest> = batch.iter().map(Object::digest).collect();
        let mut seen = HashSet::new();
        // The empty content is never stored, and one of many equal ones is enough.
        let mut wanted: Vec<Object> = batch
            .into_iter()
            .filter(|o| !o.bytes().is_empty() && seen.insert(o.digest()))
            .collect();
        let mut wrong = HashSet::new();
        if mode == PutObjects::Check {
            let there = self.found(&wanted).await?;
            let right = |o: &Object| matches!(there.get(&o.digest()), Some(Found::Right(_)));
            self.refresh(&there).await?;
            wanted.retain(|o| !right(o));
            wrong =
                there.into_iter().filter(|(_, f)| matches!(f, Found::Wrong)).map(|f| f.0).collect();
        }
        let forms = forms(wanted, self.open.compression).await?;
        let puts = commands(forms).into_iter().map(|command| self.upsert(command));
        let done: Vec<Vec<(Digest, Result<u64>)>> =
            stream::iter(puts).buffer_unordered(WIDTH).collect().await;
        let mut done: HashMap<Digest, Result<u64>> = done.into_iter().flatten().collect();
        // An object that came twice is answered once; the rest of it is there then.
        let outcome = |digest: Digest| match done.remove(&digest) {
            None => PutOutcome::Present,
            Some(Ok(stored)) if wrong.contains(&digest) => PutOutcome::Healed { stored },
            Some(Ok(stored)) => PutOutcome::Stored { stored },
            Some(Err(e)) => PutOutcome::Failed(e.with_detail("digest", digest.hex())),
        };
        Ok(digests.into_iter().map(outcome).collect())
    }

    /// What is there of some objects, and whether it fits.
    async fn found(&self, objects: &[Object]) -> Result<HashMap<Digest, Found>> {
        let raw: HashMap<Digest, u64> =
            objects.iter().map(|o| (o.digest(), o.bytes().len() as u64)).collect();
        let digests: Vec<Digest> = raw.keys().copied().collect();
        let bad = self.bad().clone();
        let judge = |(digest, doc): (Digest, Document)| {
            let right = fits(&doc) == raw.get(&digest).copied() && !bad.contains(&digest);
            (digest, if right { Found::Right(age_of(&doc)) } else { Found::Wrong })
        };
        Ok(self.lengths(&digests).await?.into_iter().map(judge).collect())
    }

    /// The documents of some objects without their data.
    async fn lengths(&self, digests: &[Digest]) -> Result<HashMap<Digest, Document>> {
        let mut out = HashMap::new();
        for part in digests.chunks(MOST_ITEMS) {
            let fields = doc! {
                "n": 1, "s": 1, "z": 1, "age": age("at"),
                "real": { "$cond": [{ "$eq": [{ "$type": "$data" }, "binData"] }, { "$binarySize": "$data" }, -1] },
            };
            let filter = self.space.some(part.iter().map(Digest::hex));
            for doc in self.space.all(OBJECTS, "look for objects", filter, fields).await? {
                if let Some(digest) = self.space.key_of(&doc).and_then(|key| key.parse().ok()) {
                    out.insert(digest, doc);
                }
            }
        }
        Ok(out)
    }

    /// Makes objects that are reused young again, those that are not young anyway.
    async fn refresh(&self, there: &HashMap<Digest, Found>) -> Result<()> {
        let stale = |found: &Found| matches!(found, Found::Right(age) if *age > STALE);
        let old: Vec<&Digest> = there.iter().filter(|(_, f)| stale(f)).map(|(d, _)| d).collect();
        for part in old.chunks(MOST_ITEMS) {
            let touch = |digest: &&Digest| Write {
                filter: self.space.one(&digest.hex()),
                set: Document::new(),
                unset: Vec::new(),
                upsert: false,
                stamp: "at",
            };
            let writes = part.iter().map(touch).collect();
            self.space.write(OBJECTS, "refresh objects", writes, false).await?;
        }
        Ok(())
    }

    /// Stores objects in one command; upserts that raced others are sent again.
    async fn upsert(&self, forms: Vec<Form>) -> Vec<(Digest, Result<u64>)> {
        let mut out = Vec::with_capacity(forms.len());
        let mut todo = forms;
        for tried in 0..=RACES {
            let writes = todo.iter().map(|form| self.write_of(form)).collect();
            let done = self.space.write(OBJECTS, "put objects", writes, false).await;
            let mut errors = match done {
                Ok(done) => done.errors,
                Err(e) => {
                    let same = |form: Form| {
                        let e = Error::new(e.kind(), e.code(), e.message());
                        (form.digest, Err(e))
                    };
                    out.extend(todo.into_iter().map(same));
                    return out;
                }
            };
            let mut again = Vec::new();
            for (i, form) in todo.into_iter().enumerate() {
                match errors.remove(&i) {
                    None => {
                        self.bad().remove(&form.digest);
                        out.push((form.digest, Ok(form.stored.len() as u64)));
                    }
                    Some((DUPLICATE, _)) if tried < RACES => again.push(form),
                    Some((code, text)) => {
                        let message = format!("put of object {}: {text}", form.digest);
                        out.push((form.digest, Err(fault::made(fault::kind_of(code), message))));
                    }
                }
            }
            if again.is_empty() {
                break;
            }
            todo = again;
            if let Err(e) = self.jitter().await {
                out.extend(
                    todo.into_iter().map(|form| {
                        (form.digest, Err(Error::new(e.kind(), e.code(), e.message())))
                    }),
                );
                break;
            }
        }
        out
    }

    /// Every field is set, so that a write repairs whatever is there.
    fn write_of(&self, form: &Form) -> Write {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: form.stored.to_vec() };
        let set = doc! {
            "n": i64::try_from(form.raw).unwrap_or(i64::MAX),
            "s": form.stored.len() as i64,
            "z": form.compressed,
            "data": data,
        };
        let filter = self.space.one(&form.digest.hex());
        Write { filter, set, unset: Vec::new(), upsert: true, stamp: "at" }
    }

    pub(super) async fn get_objects(&self, batch: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let unique: HashSet<Digest> =
            batch.iter().copied().filter(|d| *d != Digest::EMPTY).collect();
        let unique: Vec<Digest> = unique.into_iter().collect();
        let mut docs = Vec::new();
        for part in unique.chunks(MOST_ITEMS) {
            let filter = self.space.some(part.iter().map(Digest::hex));
            let fields = doc! { "n": 1, "z": 1, "data": 1 };
            for doc in self.space.all(OBJECTS, "get objects", filter, fields).await? {
                if let Some(digest) = self.space.key_of(&doc).and_then(|key| key.parse().ok()) {
                    docs.push((digest, doc));
                }
            }
        }
        let read = |(digest, doc): &(Digest, Document)| (*digest, content(digest, doc.clone()));
        let read = tasks::blocking(move || {
            tasks::split(&docs, 2, 64, |part| Ok(part.iter().map(read).collect()))
        });
        let mut read: HashMap<Digest, Result<Bytes>> = read.await?.into_iter().collect();
        for (digest, content) in &read {
            if content.is_err() {
                self.bad().insert(*digest);
            }
        }
        let mut take = |digest: &Digest| match read.get(digest) {
            _ if *digest == Digest::EMPTY => Ok(Bytes::new()),
            None => Err(absent(digest)),
            Some(Ok(bytes)) => Ok(bytes.clone()),
            // An error is told once; who asks twice in one batch is told that it is not there.
            Some(Err(_)) => read.remove(digest).unwrap_or_else(|| Err(absent(digest))),
        };
        Ok(batch.iter().map(&mut take).collect())
    }

    pub(super) async fn contains(&self, batch: &[(Digest, u64)]) -> Result<Vec<bool>> {
        let digests: HashSet<Digest> =
            batch.iter().map(|(d, _)| *d).filter(|d| *d != Digest::EMPTY).collect();
        let digests: Vec<Digest> = digests.into_iter().collect();
        let there = self.lengths(&digests).await?;
        let bad = self.bad().clone();
        let answer = |(digest, raw): &(Digest, u64)| match *digest {
            Digest::EMPTY => *raw == 0,
            digest if bad.contains(&digest) => false,
            digest => there.get(&digest).and_then(fits) == Some(*raw),
        };
        Ok(batch.iter().map(answer).collect())
    }

    pub(super) fn list_objects(&self) -> BoxStream<'_, Result<ListedObject>> {
        let fields = doc! { "s": 1, "age": age("at") };
        let rows = self.space.find(OBJECTS, "list objects".into(), self.space.below(""), fields);
        rows.map_ok(move |doc| {
            let key = self.space.key_of(&doc).unwrap_or_default();
            match key.parse() {
                Ok(digest) => ListedObject::Object {
                    digest,
                    stored: number(&doc, "s").unwrap_or(0),
                    age: age_of(&doc),
                },
                Err(_) => ListedObject::Foreign(key.to_owned()),
            }
        })
        .boxed()
    }

    pub(super) async fn delete_objects(&self, batch: &[Digest]) -> Result<Vec<DeleteOutcome>> {
        self.check_writable()?;
        let mut there: HashSet<Digest> = HashSet::new();
        for part in batch.chunks(MOST_ITEMS) {
            let filter = self.space.some(part.iter().map(Digest::hex));
            let rows = self.space.all(OBJECTS, "look for objects", filter, doc! { "_id": 1 });
            let digest = |doc: Document| self.space.key_of(&doc)?.parse::<Digest>().ok();
            there.extend(rows.await?.into_iter().filter_map(digest));
            let filter = self.space.some(part.iter().map(Digest::hex));
            self.space.delete(OBJECTS, "delete objects", filter).await?;
        }
        let outcome = |digest: &Digest| match there.remove(digest) {
            true => DeleteOutcome::Deleted,
            false => DeleteOutcome::Absent,
        };
        let mut outcome = outcome;
        Ok(batch.iter().map(&mut outcome).collect())
    }
}
