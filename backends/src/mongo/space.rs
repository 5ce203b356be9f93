//! One tenant's view of a database: every `_id` and every filter begins with the tenant,
//! added here and nowhere else. Whatever reads or writes takes a [`Filter`], which only a
//! [`Space`] makes: a query without the tenant does not compile.

use std::collections::HashMap;
use std::time::Duration;

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::redact::Redactor;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Database};

use super::fault;

/// How long the server works on one write.
const LIMIT_MS: i32 = 15_000;

/// A filter that begins with the tenant.
///
/// ```compile_fail
/// // Nobody but a space can make one.
/// let filter = backtrail_backends::mongo::Filter(Default::default());
/// ```
#[derive(Clone, Debug)]
pub struct Filter(Document);

impl Filter {
    /// Narrows the filter. The `_id` stays.
    #[must_use]
    pub(super) fn and(mut self, field: &str, condition: impl Into<Bson>) -> Self {
        debug_assert_ne!(field, "_id");
        self.0.insert(field, condition);
        self
    }
}

/// A write by its filter: what to set, beside the tenant and the server's time `at`.
pub(super) struct Write {
    pub(super) filter: Filter,
    pub(super) set: Document,
    pub(super) unset: Vec<&'static str>,
    /// Make the document when the filter finds none.
    pub(super) upsert: bool,
    /// The field that gets the server's time.
    pub(super) stamp: &'static str,
}

/// What a batch of writes came to.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Documents found or made.
    pub(super) n: u64,
    /// Items that failed: code and message.
    pub(super) errors: HashMap<usize, (i32, String)>,
}

/// One tenant of one database.
pub(super) struct Space {
    db: Database,
    tenant: String,
    secrets: Redactor,
}

impl Space {
    pub(super) fn new(client: &Client, db: &str, tenant: &str, secrets: Redactor) -> Self {
        Self { db: client.database(db), tenant: tenant.to_owned(), secrets }
    }

    pub(super) fn db(&self) -> &Database {
        &self.db
    }

    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The `_id` of a key.
    fn id(&self, key: &str) -> String {
        format!("{}/{key}", self.tenant)
    }

    /// The key in an `_id` of ours.
    pub(super) fn key_of<'d>(&self, doc: &'d Document) -> Option<&'d str> {
        doc.get_str("_id").ok()?.strip_prefix(&self.tenant)?.strip_prefix('/')
    }

    /// The document at a key.
    pub(super) fn one(&self, key: &str) -> Filter {
        Filter(doc! { "_id": self.id(key) })
    }

    /// The documents at some keys.
    pub(super) fn some(&self, keys: impl IntoIterator<Item = String>) -> Filter {
        let ids: Vec<String> = keys.into_iter().map(|k| self.id(&k)).collect();
        Filter(doc! { "_id": { "$in": ids } })
    }

    /// Everything whose key begins with `dir`, which is empty or ends in `/`.
    pub(super) fn below(&self, dir: &str) -> Filter {
        let first = self.id(dir);
        // The sign behind '/'.
        let end = format!("{}0", first.trim_end_matches('/'));
        Filter(doc! { "_id": { "$gte": first, "$lt": end } })
    }

    /// Everything from one key to before another.
    pub(super) fn between(&self, first: &str, end: &str) -> Filter {
        Filter(doc! { "_id": { "$gte": self.id(first), "$lt": self.id(end) } })
    }

    /// What a change stream must show of what lies below `dir`.
    pub(super) fn inserts_below(&self, dir: &str) -> Document {
        let Filter(filter) = self.below(dir);
        let ids = filter.get("_id").cloned().unwrap_or(Bson::Null);
        doc! { "operationType": "insert", "documentKey._id": ids }
    }

    pub(super) fn error(&self, what: &str, e: &mongodb::error::Error) -> Error {
        fault::error(what, e, &self.secrets)
    }

    /// The documents that a filter finds, in the order of their keys. One that says it is
    /// another tenant's is `Corrupt`.
    pub(super) fn find<'a>(
        &self,
        table: &str,
        what: String,
        filter: Filter,
        projection: Document,
    ) -> BoxStream<'a, Result<Document>> {
        let mut fields = projection;
        fields.insert("tenant", 1);
        let table = self.db.collection::<Document>(table);
        let (tenant, secrets) = (self.tenant.clone(), self.secrets.clone());
        let opened = async move {
            let find = table.find(filter.0).projection(fields).sort(doc! { "_id": 1 });
            let rows = match find.await {
                Ok(rows) => rows,
                Err(e) => {
                    return stream::iter([Err(fault::error(&what, &e, &secrets))]).boxed();
                }
            };
            let judge = move |row: mongodb::error::Result<Document>| match row {
                Ok(row) if row.get_str("tenant").is_ok_and(|t| t == tenant) => Ok(row),
                Ok(_) => {
                    let message = format!("{what}: a document belongs to another tenant");
                    Err(Error::corrupt(message))
                }
                Err(e) => Err(fault::error(&what, &e, &secrets)),
            };
            rows.map(judge).boxed()
        };
        stream::once(opened).flatten().boxed()
    }

    /// The document that a filter finds.
    pub(super) async fn find_one(
        &self,
        table: &str,
        what: &str,
        filter: Filter,
        projection: Document,
    ) -> Result<Option<Document>> {
        let mut rows = self.find(table, what.to_owned(), filter, projection);
        rows.try_next().await
    }

    /// Writes in one command. Ordered: nothing behind the first failure.
    pub(super) async fn write(
        &self,
        table: &str,
        what: &str,
        writes: Vec<Write>,
        ordered: bool,
    ) -> Result<Written> {
        let statement = |write: Write| {
            let mut set = write.set;
            set.insert("tenant", self.tenant.as_str());
            let mut change = doc! { "$set": set, "$currentDate": { write.stamp: true } };
            if !write.unset.is_empty() {
                let gone = write.unset.iter().map(|field| ((*field).to_owned(), Bson::from("")));
                change.insert("$unset", gone.collect::<Document>());
            }
            doc! { "q": write.filter.0, "u": change, "upsert": write.upsert }
        };
        let updates: Vec<Document> = writes.into_iter().map(statement).collect();
        let command = doc! {
            "update": table,
            "updates": updates,
            "ordered": ordered,
            "writeConcern": concern(),
            "maxTimeMS": LIMIT_MS,
        };
        let answer = self.db.run_command(command).await.map_err(|e| self.error(what, &e))?;
        self.written(what, &answer)
    }

    fn written(&self, what: &str, answer: &Document) -> Result<Written> {
        if let Ok(doubt) = answer.get_document("writeConcernError") {
            let text = doubt.get_str("errmsg").unwrap_or("not acknowledged by a majority");
            return Err(Error::unavailable(format!("{what}: {}", self.secrets.text(text)))
                .with_kind(Kind::Unavailable { maybe_applied: true }));
        }
        let mut out = Written { n: number(answer, "n").unwrap_or(0), ..Written::default() };
        for row in answer.get_array("writeErrors").into_iter().flatten() {
            let Some(row) = row.as_document() else { continue };
            let index = number(row, "index").and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let code = number(row, "code").and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
            // The text of a duplicate repeats the whole key: of no use.
            let text = self.secrets.text(row.get_str("errmsg").unwrap_or_default()).into_owned();
            out.errors.insert(index, (code, text));
        }
        Ok(out)
    }

    /// Deletes what a filter finds; how many.
    pub(super) async fn delete(&self, table: &str, what: &str, filter: Filter) -> Result<u64> {
        let command = doc! {
            "delete": table,
            "deletes": [{ "q": filter.0, "limit": 0 }],
            "writeConcern": concern(),
            // Under a lock that is lost meanwhile nothing may go on for long.
            "maxTimeMS": LIMIT_MS,
        };
        let answer = self.db.run_command(command).await.map_err(|e| self.error(what, &e))?;
        let mut done = self.written(what, &answer)?;
        match done.errors.remove(&0) {
            None => Ok(done.n),
            Some((code, text)) => Err(fault::made(fault::kind_of(code), format!("{what}: {text}"))),
        }
    }

    /// [`Space::find`], read to the end.
    pub(super) async fn all(
        &self,
        table: &str,
        what: &str,
        filter: Filter,
        projection: Document,
    ) -> Result<Vec<Document>> {
        self.find(table, what.to_owned(), filter, projection).try_collect().await
    }
}

/// What is written has reached a majority and its journal.
fn concern() -> Document {
    doc! { "w": "majority", "j": true, "wtimeout": 30_000 }
}

/// A whole number, of whichever width the server chose.
pub(super) fn number(doc: &Document, field: &str) -> Option<u64> {
    match doc.get(field)? {
        Bson::Int32(n) => u64::try_from(*n).ok(),
        Bson::Int64(n) => u64::try_from(*n).ok(),
        Bson::Double(n) if *n >= 0.0 => Some(*n as u64),
        _ => None,
    }
}

/// The projection that gives the time since a document was stamped, by the server's
/// clock on both sides.
pub(super) fn age(stamp: &str) -> Document {
    doc! { "$subtract": ["$$NOW", format!("${stamp}")] }
}

/// That time; zero for what comes from the future or has no stamp.
pub(super) fn age_of(doc: &Document) -> Duration {
    Duration::from_millis(number(doc, "age").unwrap_or(0))
}
