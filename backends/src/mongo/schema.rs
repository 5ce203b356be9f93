//! What a database must have before it is written to: indexes, the marker, and the time
//! that events and logs are kept. `store init` makes it; opening looks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::store::{DocKey, Expect};
use bytes::Bytes;
use futures::future::try_join_all;
use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;

use super::Inner;
use super::fault::code_of;
use super::tables::{EVENTS, INDEXES, Index, RUN_LOGS};
use crate::marker::{Marker, MarkerHead, no_store};

/// The server has no such collection or database yet.
const NO_NAMESPACE: i32 = 26;
/// Records are kept ten years at most.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

/// How long records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For good.
    Forever,
    /// So long.
    For(Duration),
}

/// What `store init` sets beside the marker; `None` leaves what is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct InitOptions {
    /// How long events are kept.
    pub events_ttl: Option<Keep>,
    /// How long run logs are kept.
    pub logs_ttl: Option<Keep>,
}

impl Index {
    fn name(&self) -> String {
        let fields = self.fields.iter().map(|(name, order)| format!("_{name}_{order}"));
        format!("tenant_1{}", fields.collect::<String>())
    }

    fn model(&self) -> IndexModel {
        let only = self.exists.map(|field| doc! { field: { "$exists": true } });
        let options =
            IndexOptions::builder().name(self.name()).partial_filter_expression(only).build();
        IndexModel::builder().keys(self.keys()).options(options).build()
    }
}

impl Inner {
    /// Makes indexes, then the marker. The marker that is there then.
    pub(super) async fn init(&self, options: InitOptions) -> Result<MarkerHead> {
        if let Some(there) = self.marker().await? {
            there.check_writable(self.options.url())?;
        }
        self.make_indexes().await?;
        self.keep(EVENTS, options.events_ttl).await?;
        self.keep(RUN_LOGS, options.logs_ttl).await?;
        self.learn(&self.marker_or_new().await?, Vec::new());
        self.marker().await?.ok_or_else(|| no_store(&self.options.url()))
    }

    async fn marker_or_new(&self) -> Result<MarkerHead> {
        if let Some(there) = self.marker().await? {
            return Ok(there);
        }
        let body: Bytes = Marker::fresh("mongodb", &self.open)?.body()?;
        let key = DocKey::Marker.to_string();
        crate::net::settle(&*self.small, &key, &body, &Expect::Absent).await?;
        self.marker().await?.ok_or_else(|| no_store(&self.options.url()))
    }

    pub(super) async fn marker(&self) -> Result<Option<MarkerHead>> {
        match self.get_document(&DocKey::Marker).await {
            Ok(doc) => {
                MarkerHead::parse(format!("the marker of {}", self.options.url()), &doc.body)
                    .map(Some)
            }
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn make_indexes(&self) -> Result<()> {
        let mut tables: BTreeMap<&str, Vec<IndexModel>> = BTreeMap::new();
        for index in INDEXES {
            tables.entry(index.table).or_default().push(index.model());
        }
        for (table, models) in tables {
            let what = format!("make the indexes of {table}");
            let table = self.space.db().collection::<Document>(table);
            table.create_indexes(models).await.map_err(|e| self.space.error(&what, &e))?;
        }
        Ok(())
    }

    /// The indexes that a store needs and this one has not.
    pub(super) async fn missing_indexes(&self) -> Result<Vec<String>> {
        let tables: BTreeSet<&str> = INDEXES.iter().map(|index| index.table).collect();
        let names = tables
            .into_iter()
            .map(|table| async move { Ok::<_, Error>((table, self.index_names(table).await?)) });
        let names: BTreeMap<&str, Vec<String>> = try_join_all(names).await?.into_iter().collect();
        let lacks = |index: &&Index| {
            !names.get(index.table).is_some_and(|there| there.contains(&index.name()))
        };
        let name = |index: &Index| format!("{}.{}", index.table, index.name());
        Ok(INDEXES.iter().filter(lacks).map(name).collect())
    }

    async fn index_names(&self, table: &str) -> Result<Vec<String>> {
        match self.space.db().collection::<Document>(table).list_index_names().await {
            Ok(names) => Ok(names),
            Err(e) if code_of(&e) == Some(NO_NAMESPACE) => Ok(Vec::new()),
            Err(e) => Err(self.space.error(&format!("list the indexes of {table}"), &e)),
        }
    }

    /// Sets how long the records of a collection are kept, for this tenant alone.
    async fn keep(&self, table: &'static str, keep: Option<Keep>) -> Result<()> {
        let Some(keep) = keep else { return Ok(()) };
        if let Keep::For(time) = keep
            && (time > LONGEST || time < Duration::from_secs(1))
        {
            return Err(Error::invalid("records are kept from a second to ten years, or off"));
        }
        let what = format!("set how long {table} are kept");
        let coll = self.space.db().collection::<Document>(table);
        let name = format!("ttl_{}", self.space.tenant());
        if self.index_names(table).await?.contains(&name) {
            let dropped = coll.drop_index(name.as_str()).await;
            dropped.map_err(|e| self.space.error(&what, &e))?;
        }
        let Keep::For(time) = keep else { return Ok(()) };
        let options = IndexOptions::builder()
            .name(name)
            .expire_after(time)
            .partial_filter_expression(doc! { "tenant": self.space.tenant() })
            .build();
        let model = IndexModel::builder().keys(doc! { "ts": 1 }).options(options).build();
        coll.create_index(model).await.map_err(|e| self.space.error(&what, &e))?;
        Ok(())
    }
}
