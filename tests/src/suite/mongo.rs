//! The MongoDB server of the tests: `tests/services.sh start`, then `eval
//! "$(tests/services.sh env)"`. A fresh database per store, dropped with its site.

use std::sync::Arc;

use backtrail_backends::host::RandomIds;
use backtrail_backends::mongo::InitOptions;
use backtrail_backends::open::{self, OpenOptions};
use backtrail_backends::s3::S3Options;
use backtrail_core::clock::IdSource;
use backtrail_core::ids::Digest;
use backtrail_core::store::{DocKey, Store};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::{Client, Database};

use super::{Site, s3};

/// Where the server is; `None`, and a word about it, without one.
pub fn server() -> Option<String> {
    let given = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let found = given("MONGODB_URI");
    if found.is_none() {
        assert!(
            given("BACKTRAIL_REQUIRE_SERVICES").as_deref() != Some("1"),
            "no MongoDB: run tests/services.sh start and eval \"$(tests/services.sh env)\""
        );
        eprintln!("SKIPPED on mongodb: no MONGODB_URI");
    }
    found
}

/// The MongoDB sites of the matrix.
pub fn sites() -> Vec<Site> {
    let Some(place) = Place::fresh() else { return Vec::new() };
    let mut out = vec![Site::url("mongodb", At::mongo(place))];
    if let Some((place, objects)) = Place::fresh().zip(s3::fresh()) {
        out.push(Site::url("mongodb with objects in s3", At::mongo(place).with(objects)));
    }
    out
}

/// A store that is made by `init` and opened by its URL, as a command does.
pub struct At {
    url: String,
    /// The database, when documents lie in one.
    pub mongo: Option<Place>,
    /// The bucket, when objects lie in one.
    pub objects: Option<S3Options>,
    made: tokio::sync::OnceCell<()>,
}

impl At {
    /// A store at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), mongo: None, objects: None, made: Default::default() }
    }

    /// A store in a database.
    pub fn mongo(place: Place) -> Self {
        Self { mongo: Some(place), ..Self::new("") }
    }

    /// With its objects in a bucket.
    #[must_use]
    pub fn with(self, objects: S3Options) -> Self {
        Self { objects: Some(objects), ..self }
    }

    fn url(&self) -> &str {
        self.mongo.as_ref().map_or(&self.url, |place| &place.url)
    }

    /// Opens it, made when it is not there.
    pub async fn open(&self, options: OpenOptions) -> Arc<dyn Store> {
        let options = OpenOptions { objects: self.objects.as_ref().map(s3::url), ..options };
        let make = || async {
            let init = InitOptions::default();
            open::init(self.url(), options.clone(), init).await.expect("makes a store");
        };
        self.made.get_or_init(make).await;
        open::open(self.url(), options.clone()).await.expect("opens")
    }
}

/// A database of its own.
pub struct Place {
    /// Its URL.
    pub url: String,
    name: String,
}

impl Place {
    /// A database that nobody used before.
    pub fn fresh() -> Option<Self> {
        let server = server()?;
        let ids: &dyn IdSource = &RandomIds;
        let name = format!("bt_{}", ids.hex(8).expect("random"));
        let (base, query) = server.split_once('?').unwrap_or((&server, ""));
        // mongodb://hosts[/]: the database goes behind the hosts.
        let hosts = base.trim_end_matches('/');
        let mark = if query.is_empty() { "" } else { "?" };
        Some(Self { url: format!("{hosts}/{name}{mark}{query}"), name })
    }

    /// Runs on a thread and runtime of its own, so that async tests can call it.
    pub fn run<T: Send, F: Future<Output = T> + Send>(
        &self,
        work: impl FnOnce(Database) -> F + Send,
    ) -> T {
        std::thread::scope(|scope| {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let client = Client::with_uri_str(&self.url).await.expect("a client");
                    work(client.database(&self.name)).await
                })
            };
            scope.spawn(run).join().expect("no panic")
        })
    }

    /// Changes the document at a key of the tenant `default` by hand.
    pub fn set(&self, table: &str, key: &str, fields: Document) {
        let filter = doc! { "_id": format!("default/{key}") };
        let changed = self.run(|db| async move {
            let table = db.collection::<Document>(table);
            table.update_one(filter, doc! { "$set": fields }).await.expect("updates")
        });
        assert_eq!(changed.matched_count, 1, "{table} {key}");
    }

    /// Replaces the stored bytes of an object.
    pub fn spoil(&self, digest: &Digest, bytes: &[u8]) {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
        self.set("objects", &digest.hex(), doc! { "data": data });
    }

    /// Replaces the body of a run's record.
    pub fn spoil_document(&self, key: &DocKey, bytes: &[u8]) {
        let body = String::from_utf8(bytes.to_vec()).expect("text");
        let table = match key {
            DocKey::Run(_) => "runs",
            other => panic!("no test spoils {other}"),
        };
        self.set(table, &key.to_string(), doc! { "body": body });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run(|db| async move {
            // A test that failed must not fail again here.
            let _ = db.drop().await;
        });
    }
}
