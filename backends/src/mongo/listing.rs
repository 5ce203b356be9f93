//! Listings: the rows of each collection in the order of their keys, merged.

use std::collections::BTreeSet;

use backtrail_core::error::{Error, Result};
use backtrail_core::store::{DocKey, Listed, Prefix};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mongodb::bson::doc;

use super::Inner;
use super::documents::version_of;
use super::space::{age, age_of};
use super::tables::tables_of;

type Rows<'a> = BoxStream<'a, Result<(String, Listed)>>;

impl Inner {
    pub(super) fn list_documents(&self, prefix: &Prefix) -> BoxStream<'_, Result<Listed>> {
        let dir = prefix.to_string();
        let tables = tables_of(prefix).iter();
        let rows = merged(tables.map(|table| self.rows(table, &dir)).collect());
        match prefix {
            Prefix::RunRecords => records(rows),
            _ => rows.map_ok(|(_, row)| row).boxed(),
        }
    }

    /// What one collection has below a directory.
    fn rows<'a>(&'a self, table: &str, dir: &str) -> Rows<'a> {
        let fields = doc! { "v": 1, "age": age("at") };
        let what = format!("list {table}");
        let found = self.space.find(table, what, self.space.below(dir), fields);
        let row = move |doc: mongodb::bson::Document| {
            let key = self.space.key_of(&doc).unwrap_or_default().to_owned();
            let listed = match (DocKey::parse(&key), version_of(&doc)) {
                (Some(key), version @ Some(_)) => Listed::Doc { key, version, age: age_of(&doc) },
                _ => Listed::Foreign { name: key.clone() },
            };
            (key, listed)
        };
        found.map_ok(row).boxed()
    }
}

/// Sorted streams as one.
fn merged(streams: Vec<Rows<'_>>) -> Rows<'_> {
    /// A stream and the row it would give next.
    type Ahead<'a> = (Option<(String, Listed)>, Rows<'a>);
    struct State<'a> {
        waiting: Vec<Rows<'a>>,
        ahead: Vec<Ahead<'a>>,
    }
    async fn next(state: &mut State<'_>) -> Result<Option<(String, Listed)>> {
        for mut rows in std::mem::take(&mut state.waiting) {
            state.ahead.push((rows.try_next().await?, rows));
        }
        state.ahead.retain(|(row, _)| row.is_some());
        let first = state.ahead.iter_mut().min_by(|a, b| {
            let key = |ahead: &Option<(String, Listed)>| ahead.as_ref().map(|(key, _)| key.clone());
            key(&a.0).cmp(&key(&b.0))
        });
        let Some((row, rows)) = first else { return Ok(None) };
        let out = row.take();
        *row = rows.try_next().await?;
        Ok(out)
    }
    let start = State { waiting: streams, ahead: Vec::new() };
    stream::try_unfold(start, |mut state| async move {
        Ok::<_, Error>(next(&mut state).await?.map(|row| (row, state)))
    })
    .boxed()
}

/// The run documents, and as foreign the places of runs that have none.
fn records(mut rows: Rows<'_>) -> BoxStream<'_, Result<Listed>> {
    let whole = async move {
        let mut out = Vec::new();
        let mut others = BTreeSet::new();
        let mut runs = BTreeSet::new();
        while let Some((key, row)) = rows.try_next().await? {
            let place = key.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
            match row {
                Listed::Doc { key: DocKey::Run(_), .. } => {
                    runs.insert(place);
                    out.push((key, row));
                }
                _ => drop(others.insert(place)),
            }
        }
        let lost = others.into_iter().filter(|place| !runs.contains(place));
        out.extend(lost.map(|name| (name.clone(), Listed::Foreign { name })));
        out.sort_by(|a, b| a.0.cmp(&b.0));
        Ok::<_, Error>(stream::iter(out.into_iter().map(|(_, row)| Ok(row))))
    };
    stream::once(whole).try_flatten().boxed()
}
