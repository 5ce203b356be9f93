//! Documents: the body as text, exactly, and a version drawn at random for each write, so
//! that none ever returns. One write is one `update` with its condition in the filter.

use backtrail_core::error::{Error, Result};
use backtrail_core::ids::RunId;
use backtrail_core::store::docs::{absent, check_body, conflict, deleted, token_of};
use backtrail_core::store::{DocKey, Document, Expect, Fence, LockName, Version};
use bytes::Bytes;
use futures::future::try_join;
use mongodb::bson::{self, Bson, doc};

use super::Inner;
use super::fault::{self, DUPLICATE};
use super::space::{Filter, Space, Write};
use super::tables::{EVENTS, RUN_LOGS, fields_of, table_of};

/// Times an unconditional write that meets another one is sent again.
const RACES: u32 = 10;

/// The condition of a write as a filter, and whether it may create.
fn condition(filter: Filter, expect: &Expect) -> Option<(Filter, bool)> {
    Some(match expect {
        Expect::Any => (filter, true),
        // What is there has a version: the server then tries to insert, and is refused.
        Expect::Absent => (filter.and("v", doc! { "$exists": false }), true),
        Expect::Version(Version(text)) => (filter.and("v", from_text(text)?), false),
    })
}

fn from_text(version: &str) -> Option<i64> {
    i64::from_str_radix(version, 16).ok()
}

/// The version of a document as stored.
pub(super) fn version_of(doc: &bson::Document) -> Option<Version> {
    Some(Version(format!("{:016x}", doc.get_i64("v").ok()?)))
}

/// The body of a document as stored.
pub(super) fn body_of(key: &str, mut doc: bson::Document) -> Result<Document> {
    let version = version_of(&doc);
    match (doc.remove("body"), version) {
        (Some(Bson::String(body)), Some(version)) => {
            Ok(Document { body: Bytes::from(body), version })
        }
        _ => Err(Error::corrupt(format!("document {key} has no body or no version"))),
    }
}

/// A write of a body.
pub(super) struct Put<'a> {
    pub(super) table: &'static str,
    pub(super) key: &'a str,
    pub(super) body: &'a Bytes,
    pub(super) expect: &'a Expect,
    pub(super) fence: Option<&'a Fence>,
    pub(super) fields: bson::Document,
    pub(super) unset: Vec<&'static str>,
}

impl Space {
    /// Writes a body; `None` when its condition does not hold.
    pub(super) async fn put_body(&self, put: Put<'_>, version: i64) -> Result<Option<Version>> {
        let what = format!("put {}", put.key);
        let Some((filter, upsert)) = condition(self.one(put.key), put.expect) else {
            return Ok(None);
        };
        let filter = match put.fence.and_then(|f| i64::try_from(f.token).ok()) {
            Some(token) => filter.and("token", doc! { "$not": { "$gt": token } }),
            None => filter,
        };
        let text = String::from_utf8(put.body.to_vec())
            .map_err(|_| Error::invalid(format!("document {} is not UTF-8", put.key)))?;
        let mut set = put.fields;
        set.insert("body", text);
        set.insert("v", version);
        let write = Write { filter, set, unset: put.unset, upsert, stamp: "at" };
        let mut done = self.write(put.table, &what, vec![write], true).await?;
        match done.errors.remove(&0) {
            Some((DUPLICATE, _)) => Ok(None),
            Some((code, text)) => Err(fault::made(fault::kind_of(code), format!("{what}: {text}"))),
            None if done.n == 0 => Ok(None),
            None => Ok(Some(Version(format!("{version:016x}")))),
        }
    }
}

impl Inner {
    /// A version that was never used: 63 random bits.
    pub(super) fn fresh_version(&self) -> Result<i64> {
        let mut bytes = [0; 8];
        self.open.ids.fill(&mut bytes)?;
        Ok(i64::from_le_bytes(bytes) & i64::MAX)
    }

    async fn look(&self, key: &DocKey) -> Result<Option<Document>> {
        let text = key.to_string();
        let fields = doc! { "body": 1, "v": 1 };
        let what = format!("get {text}");
        let found = self.space.find_one(table_of(key), &what, self.space.one(&text), fields);
        found.await?.map(|doc| body_of(&text, doc)).transpose()
    }

    async fn is_there(&self, key: &DocKey) -> Result<bool> {
        let text = key.to_string();
        let what = format!("look at {text}");
        let filter = self.space.one(&text);
        let fields = doc! { "_id": 1 };
        Ok(self.space.find_one(table_of(key), &what, filter, fields).await?.is_some())
    }

    pub(super) async fn get_document(&self, key: &DocKey) -> Result<Document> {
        self.look(key).await?.ok_or_else(|| absent(key))
    }

    pub(super) async fn put_document(
        &self,
        key: &DocKey,
        body: Bytes,
        expect: &Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        check_body(key, &body)?;
        self.check_writable()?;
        self.check_fence(fence)?;
        self.check_place(key, fence).await?;
        if let DocKey::Run(run) = key {
            // The head comes first, so that no run is ever without one.
            if !matches!(expect, Expect::Version(_)) {
                self.heads.make(run).await?;
            }
            if let Some(token) = token_of(&body) {
                self.heads.raise(run, token).await?;
            }
        }
        let version = self.write_document(key, &body, expect, fence).await?;
        if let DocKey::RunTombstone(run) = key {
            self.heads.mark_deleted(run).await?;
        }
        Ok(version)
    }

    async fn write_document(
        &self,
        key: &DocKey,
        body: &Bytes,
        expect: &Expect,
        fence: Option<&Fence>,
    ) -> Result<Version> {
        let text = key.to_string();
        for _ in 0..RACES {
            let (fields, unset) = fields_of(key, body);
            let table = table_of(key);
            let put = Put { table, key: &text, body, expect, fence, fields, unset };
            if let Some(version) = self.space.put_body(put, self.fresh_version()?).await? {
                return Ok(version);
            }
            // Whether that was our own earlier try is for the retry layer to find out.
            let there = self.look(key).await?;
            if let (Some(fence), Some(doc)) = (fence, &there) {
                fence.check(&text, token_of(&doc.body))?;
            }
            if *expect != Expect::Any {
                return Err(conflict(key, there.map(|doc| doc.version).as_ref()));
            }
            self.jitter().await?;
        }
        Err(Error::unavailable(format!("too many write {text} at once")))
    }

    /// Refuses a write below a run that does not exist or was deleted (CLD-D10). Who
    /// holds the run's guard is not asked: deletion takes that first.
    async fn check_place(&self, key: &DocKey, fence: Option<&Fence>) -> Result<()> {
        let Some(run) = key.run() else { return Ok(()) };
        if fence.is_some_and(|f| f.lock == LockName::Run(run.clone())) {
            return Ok(());
        }
        match key {
            DocKey::Run(_) if self.is_deleted(run).await? => Err(deleted(run, true)),
            DocKey::Run(_) => Ok(()),
            _ => self.check_run(run).await,
        }
    }

    async fn is_deleted(&self, run: &RunId) -> Result<bool> {
        self.is_there(&DocKey::RunTombstone(run.clone())).await
    }

    /// Fails with `NotFound`, or `deleted`, unless the run is there to be written to.
    pub(super) async fn check_run(&self, run: &RunId) -> Result<()> {
        let key = DocKey::Run(run.clone());
        match try_join(self.is_deleted(run), self.is_there(&key)).await? {
            (true, _) => Err(deleted(run, false)),
            (false, true) => Ok(()),
            (false, false) => Err(Error::not_found(format!("run {run} is not in the store"))),
        }
    }

    pub(super) async fn delete_document(
        &self,
        key: &DocKey,
        version: Option<&Version>,
    ) -> Result<()> {
        self.check_writable()?;
        let text = key.to_string();
        let what = format!("delete {text}");
        let expect = version.map_or(Expect::Any, |v| Expect::Version(v.clone()));
        let gone = match condition(self.space.one(&text), &expect) {
            Some((filter, _)) => self.space.delete(table_of(key), &what, filter).await?,
            None => 0,
        };
        if gone == 0 && version.is_some() {
            let there = self.look(key).await?.map(|doc| doc.version);
            return Err(conflict(key, there.as_ref()));
        }
        match key {
            DocKey::Run(run) if self.is_deleted(run).await? => self.finish_run(run).await,
            _ => Ok(()),
        }
    }

    /// Removes what a deleted run still has beside documents; the head goes last, so
    /// that a late append finds it marked until there is nothing left.
    async fn finish_run(&self, run: &RunId) -> Result<()> {
        for table in [EVENTS, RUN_LOGS] {
            let what = format!("delete {table} of run {run}");
            self.space.delete(table, &what, self.space.below(&format!("{run}/"))).await?;
        }
        self.heads.remove(run).await
    }
}
