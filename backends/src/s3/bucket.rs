//! A prefix of a bucket: keys in, bytes out, one request a call.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::store::{Expect, Version};
use bytes::Bytes;
use futures::StreamExt;
use object_store::aws::AmazonS3;
use object_store::client::HttpClient;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};

use super::client::client;
use super::gate::Gate;
use super::url::S3Options;
use super::wire::{Answer, RequestCount, Requests, TRY, Tap, classify, limit, once};

/// A prefix of a bucket.
pub(super) struct Bucket {
    pub(super) s3: AmazonS3,
    pub(super) http: HttpClient,
    /// Empty or ending in `/`.
    prefix: String,
    gate: Arc<Gate>,
    requests: Arc<Requests>,
    server: String,
}

/// An object as it was read.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) bytes: Bytes,
    pub(super) meta: Meta,
}

/// What a bucket knows of an object.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) size: u64,
    pub(super) etag: String,
    /// By the store's clock.
    pub(super) age: Duration,
}

/// A row of a listing.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Without the prefix.
    pub(super) key: String,
    pub(super) meta: Meta,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) rows: Vec<Row>,
    /// What lies below the next `/`, when the listing stops there; ending in `/`.
    pub(super) dirs: Vec<String>,
    next: Option<String>,
}

/// Which part of an object is read.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Whole,
    Range(std::ops::Range<u64>),
    /// So many bytes at the end.
    Suffix(u64),
}

fn age_of(modified_ns: i64, answer: &Answer) -> Duration {
    let age = answer.now_ns.map_or(0, |now| now.saturating_sub(modified_ns));
    Duration::from_nanos(u64::try_from(age).unwrap_or(0))
}

fn meta_of(meta: &ObjectMeta, answer: &Answer) -> Meta {
    let modified = meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
    let etag = meta.e_tag.clone().unwrap_or_default();
    Meta { size: meta.size, etag, age: age_of(modified, answer) }
}

impl Bucket {
    pub(super) fn new(options: &S3Options) -> Result<Self> {
        let tap = Tap::default();
        let (s3, server) = client(options, tap.clone())?;
        let made = tap.made.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let http = made.ok_or_else(|| Error::failed("internal", "no S3 client was made"))?;
        let prefix = match options.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let gate = Arc::new(Gate::new(options.concurrency));
        Ok(Self { s3, http, prefix, gate, requests: tap.requests, server })
    }

    /// Which server it is: its URL, or Amazon's region.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Requests sent so far.
    pub(super) fn requests(&self) -> RequestCount {
        self.requests.count()
    }

    /// Requests that may be in flight now.
    pub(super) fn concurrency(&self) -> usize {
        self.gate.limit()
    }

    /// The key in the bucket.
    pub(super) fn path(&self, key: &str) -> Result<Path> {
        Path::parse(format!("{}{key}", self.prefix))
            .map_err(|_| Error::invalid(format!("{key:?} is no key of a bucket")))
    }

    /// One request through the gate.
    pub(super) async fn send<T>(
        &self,
        what: &str,
        write: bool,
        bytes: u64,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<(T, Answer)> {
        let _place = self.gate.enter().await;
        let (done, answer) = once(bytes, work).await;
        match done {
            Ok(Ok(done)) => {
                self.gate.went_well();
                Ok((done, answer))
            }
            Ok(Err(failed)) => {
                if matches!(answer.status, Some(429 | 503)) {
                    self.gate.too_much(answer.retry_after);
                }
                Err(classify(what, write, failed, &answer))
            }
            Err(limit) => {
                let message = format!("{what}: no answer within {} s", limit.as_secs());
                let kind = Kind::Unavailable { maybe_applied: write };
                Err(Error::unavailable(message).with_kind(kind))
            }
        }
    }

    /// Reads an object; `None` when the bucket says that it is not there.
    pub(super) async fn get(&self, key: &str) -> Result<Option<Got>> {
        self.get_part(key, Part::Whole).await
    }

    /// Reads a part of an object. `meta.size` is that of the whole.
    pub(super) async fn get_part(&self, key: &str, part: Part) -> Result<Option<Got>> {
        let path = self.path(key)?;
        let (range, most) = match part {
            Part::Whole => (None, 10 * 1024 * 1024),
            Part::Range(range) => {
                let len = range.end - range.start;
                (Some(GetRange::Bounded(range)), len)
            }
            Part::Suffix(len) => (Some(GetRange::Suffix(len)), len),
        };
        let work = async {
            let got = self.s3.get_opts(&path, GetOptions { range, ..GetOptions::default() });
            // The head of an answer may take no longer than that of a small one.
            let got = match tokio::time::timeout(TRY, got).await {
                Ok(got) => got?,
                Err(e) => {
                    return Err(object_store::Error::Generic { store: "S3", source: e.into() });
                }
            };
            let (meta, len) = (got.meta.clone(), got.range.end - got.range.start);
            let body = tokio::time::timeout(limit(len), got.bytes()).await;
            let late = |e: tokio::time::error::Elapsed| object_store::Error::Generic {
                store: "S3",
                source: e.into(),
            };
            Ok((body.map_err(late)??, meta))
        };
        match self.send(&format!("get {key}"), false, most, work).await {
            Ok(((bytes, meta), answer)) => Ok(Some(Got { bytes, meta: meta_of(&meta, &answer) })),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Looks at an object.
    pub(super) async fn head(&self, key: &str) -> Result<Option<Meta>> {
        let path = self.path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let work = async { Ok(self.s3.get_opts(&path, options).await?.meta) };
        match self.send(&format!("look at {key}"), false, 0, work).await {
            Ok((meta, answer)) => Ok(Some(meta_of(&meta, &answer))),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes an object under a condition; its version.
    pub(super) async fn put(&self, key: &str, body: Bytes, expect: &Expect) -> Result<Version> {
        let path = self.path(key)?;
        let mode = match expect {
            Expect::Any => PutMode::Overwrite,
            Expect::Absent => PutMode::Create,
            Expect::Version(v) => {
                PutMode::Update(UpdateVersion { e_tag: Some(v.0.clone()), version: None })
            }
        };
        let bytes = body.len() as u64;
        let work = self.s3.put_opts(&path, PutPayload::from(body), PutOptions::from(mode));
        match self.send(&format!("put {key}"), true, bytes, work).await {
            Ok((put, _)) => Ok(Version(put.e_tag.unwrap_or_default())),
            // An update of what is not there is refused like any other.
            Err(e) if e.is_not_found() => {
                let message = e.message().to_owned();
                Err(Error::new(Kind::Conflict, "conflict", message))
            }
            Err(e) => Err(e),
        }
    }

    /// One page of the keys that begin with `prefix`.
    async fn page(
        &self,
        prefix: &str,
        flat: bool,
        after: Option<&str>,
        token: Option<String>,
    ) -> Result<Page> {
        let whole = format!("{}{prefix}", self.prefix);
        let options = PaginatedListOptions {
            offset: after.map(|key| format!("{}{key}", self.prefix)),
            delimiter: (!flat).then(|| "/".into()),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let start = (!whole.is_empty()).then_some(whole.as_str());
        let work = self.s3.list_paginated(start, options);
        let (page, answer) = self.send(&format!("list {prefix}"), false, 1 << 20, work).await?;
        let own = |key: &str| key.strip_prefix(self.prefix.as_str()).map(str::to_owned);
        let outside = || Error::unavailable(format!("the listing of {prefix} names other keys"));
        let mut out = Page { next: page.page_token, ..Page::default() };
        for meta in &page.result.objects {
            let key = own(meta.location.as_ref()).filter(|k| k.starts_with(prefix));
            out.rows.push(Row { key: key.ok_or_else(outside)?, meta: meta_of(meta, &answer) });
        }
        for dir in &page.result.common_prefixes {
            let dir = own(dir.as_ref()).filter(|k| k.starts_with(prefix));
            out.dirs.push(format!("{}/", dir.ok_or_else(outside)?));
        }
        Ok(out)
    }

    /// Every key that begins with `prefix`, in the server's order. A page that repeats
    /// a key, or one that comes before those of the page before it, fails the listing:
    /// what is deleted must never rest on such a one.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Row>> {
        Ok(self.listing(prefix, true, None).await?.rows)
    }

    /// As [`Bucket::list`], of the keys behind `after`.
    pub(super) async fn list_after(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Row>> {
        Ok(self.listing(prefix, true, after).await?.rows)
    }

    /// The keys right below `prefix`, and the directories there.
    pub(super) async fn list_dir(&self, prefix: &str) -> Result<Page> {
        self.listing(prefix, false, None).await
    }

    async fn listing(&self, prefix: &str, flat: bool, after: Option<&str>) -> Result<Page> {
        let mut out = Page::default();
        let (mut seen, mut tokens) = (HashSet::new(), HashSet::new());
        let mut token: Option<String> = None;
        loop {
            let page = self.page(prefix, flat, after, token.take()).await?;
            let bad = |why| Err(Error::unavailable(format!("the listing of {prefix} {why}")));
            if page.rows.iter().any(|row| !seen.insert(row.key.clone())) {
                return bad("repeats a key");
            }
            if let (Some(last), Some(first)) = (out.rows.last(), page.rows.first())
                && !follows(&last.key, &first.key)
            {
                return bad("goes backwards");
            }
            out.rows.extend(page.rows);
            out.dirs.extend(page.dirs);
            match page.next {
                None => return Ok(out),
                Some(next) if !tokens.insert(next.clone()) => return bad("goes round in circles"),
                next => token = next,
            }
        }
    }

    /// The store's clock, in nanoseconds since 1970, when the server tells it.
    pub(super) async fn now(&self) -> Result<Option<i64>> {
        let whole = format!("{}store.json", self.prefix);
        let work = self.s3.list_paginated(Some(&whole), PaginatedListOptions::default());
        let (_, answer) = self.send("look at the clock", false, 0, work).await?;
        Ok(answer.now_ns)
    }

    /// The keys that begin with `prefix` when one page holds them; `None` when there are
    /// more.
    pub(super) async fn some(&self, prefix: &str) -> Result<Option<Vec<Row>>> {
        let page = self.page(prefix, true, None, None).await?;
        Ok(page.next.is_none().then_some(page.rows))
    }
}

/// Does all of `work`, `width` at a time; the results in order. The futures are made
/// before the first is awaited: a closure across an await could not change threads.
pub(super) async fn in_order<F: Future>(work: Vec<F>, width: usize) -> Vec<F::Output> {
    futures::stream::iter(work).buffered(width.max(1)).collect().await
}

/// Whether a key may come after another: by bytes, or by the names of its parts, as
/// servers list that keep keys as files.
fn follows(last: &str, next: &str) -> bool {
    next > last || next.split('/').gt(last.split('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_bytes_or_by_parts() {
        assert!(follows("a/b", "a/c") && follows("a.x/b", "a/b") && follows("a/b", "a.x/b"));
        assert!(!follows("a/c", "a/b") && !follows("b/a", "a/z"));
    }
}
