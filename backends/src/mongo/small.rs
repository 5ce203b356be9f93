//! Locks, heads and refs as the network room wants them: small documents under a
//! condition, one try each, with the server's word on how old they are.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::clock::IdSource;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::store::{DocKey, Expect, Version};
use bytes::Bytes;
use mongodb::bson::doc;

use super::documents::{Put, body_of, version_of};
use super::space::{Space, age, age_of};
use super::tables::{LOCKS, fields_of, table_of_small};
use crate::net::{Found, Named, Small};

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Small documents of a space.
pub(super) struct Smalls {
    pub(super) space: Arc<Space>,
    pub(super) ids: Arc<dyn IdSource>,
}

fn table(key: &str) -> Result<&'static str> {
    table_of_small(key).ok_or_else(|| Error::invalid(format!("{key} is no small document")))
}

/// A request within its limit.
async fn timely<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| {
        Err(Error::unavailable(format!("{what}: no answer within {} s", LIMIT.as_secs()))
            .with_kind(Kind::Unavailable { maybe_applied: true }))
    })
}

#[async_trait]
impl Small for Smalls {
    async fn read(&self, key: &str) -> Result<Option<Found>> {
        let fields = doc! { "body": 1, "v": 1, "age": age("at") };
        let what = format!("get {key}");
        let found = self.space.find_one(table(key)?, &what, self.space.one(key), fields);
        let Some(doc) = timely(&what, found).await? else { return Ok(None) };
        let idle = age_of(&doc);
        let doc = body_of(key, doc)?;
        Ok(Some(Found { body: doc.body, version: doc.version, idle: Some(idle), age: Some(idle) }))
    }

    async fn write(&self, key: &str, body: Bytes, expect: &Expect) -> Result<Version> {
        let mut bytes = [0; 8];
        self.ids.fill(&mut bytes)?;
        let (fields, unset) = DocKey::parse(key).map(|k| fields_of(&k, &body)).unwrap_or_default();
        let put = Put { table: table(key)?, key, body: &body, expect, fence: None, fields, unset };
        let version = i64::from_le_bytes(bytes) & i64::MAX;
        let refused = || Error::new(Kind::Conflict, "conflict", format!("{key} is another now"));
        timely(key, self.space.put_body(put, version)).await?.ok_or_else(refused)
    }

    async fn remove(&self, key: &str) -> Result<()> {
        let what = format!("delete {key}");
        let gone = self.space.delete(table(key)?, &what, self.space.one(key));
        timely(&what, gone).await.map(drop)
    }

    async fn below(&self, dir: &str) -> Result<Vec<Named>> {
        let fields = doc! { "v": 1, "age": age("at") };
        let what = format!("list {dir}");
        let rows = self.space.all(LOCKS, &what, self.space.below(dir), fields);
        let named = |doc: mongodb::bson::Document| {
            let key = self.space.key_of(&doc)?.to_owned();
            Some(Named { key, version: version_of(&doc)?, idle: Some(age_of(&doc)) })
        };
        Ok(timely(&what, rows).await?.into_iter().filter_map(named).collect())
    }
}
