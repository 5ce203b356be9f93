//! The S3 server of the tests: `tests/services.sh start`, then `eval "$(tests/services.sh
//! env)"`. One bucket, a fresh prefix per store.

use std::sync::Arc;

use backtrail_backends::host::RandomIds;
use backtrail_backends::open::OpenOptions;
use backtrail_backends::s3::{S3Options, S3Store};
use backtrail_core::clock::IdSource;
use backtrail_core::ids::Digest;
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::layers::verify::Verify;
use backtrail_core::store::{DocKey, Expect, Store};
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::Site;

/// Where the server is; `None`, and a word about it, without one.
pub fn server() -> Option<S3Options> {
    let given = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let found = given("S3_ENDPOINT").zip(given("S3_BUCKET"));
    let Some((endpoint, bucket)) = found else {
        assert!(
            given("BACKTRAIL_REQUIRE_SERVICES").as_deref() != Some("1"),
            "no S3 server: run tests/services.sh start and eval \"$(tests/services.sh env)\""
        );
        eprintln!("SKIPPED on s3: no S3_ENDPOINT");
        return None;
    };
    let allow_http = endpoint.starts_with("http://");
    Some(S3Options { endpoint: Some(endpoint), allow_http, ..S3Options::new(bucket, "") })
}

/// A prefix that nobody used before.
pub fn fresh() -> Option<S3Options> {
    let server = server()?;
    let ids: &dyn IdSource = &RandomIds;
    Some(server.at(format!("t/{}", ids.hex(8).expect("random"))))
}

/// The URL of a place.
pub fn url(place: &S3Options) -> String {
    let endpoint = place.endpoint.as_deref().expect("an endpoint");
    let (http, packs) = (place.allow_http, place.packs);
    format!("{}?endpoint={endpoint}&allow_http={http}&packs={packs}", place.url())
}

/// The S3 sites of the matrix.
pub fn sites() -> Vec<Site> {
    let Some(place) = fresh() else { return Vec::new() };
    let loose = S3Options { packs: false, ..place.clone() };
    vec![
        Site::s3("s3 with packs", place.at(format!("{}/p", place.prefix))),
        Site::s3("s3 without packs", loose.at(format!("{}/l", loose.prefix))),
    ]
}

/// The stack as `open` makes it, over a store that is made when it is not there.
pub async fn open(place: &S3Options, options: OpenOptions) -> Arc<dyn Store> {
    let retry = RetryPolicy::new(options.ids.clone());
    let store = raw(place, options).await;
    Arc::new(Retry::new(Arc::new(Verify::over_hashing(store)), retry))
}

/// The store alone, made when it is not there.
pub async fn raw(place: &S3Options, options: OpenOptions) -> Arc<S3Store> {
    let store = S3Store::new(place.clone(), options).expect("a client");
    match store.get(&DocKey::Marker).await {
        Ok(_) => {}
        Err(e) if e.is_not_found() => {
            let marker = Bytes::from("{\"format_version\":1,\"store_id\":\"test\"}");
            store.put(&DocKey::Marker, marker, Expect::Any, None).await.expect("a marker");
        }
        Err(e) => panic!("{e:?}"),
    }
    Arc::new(store)
}

/// A hand that reaches into a prefix behind the store's back. Blocks.
pub struct Bucket {
    s3: Arc<AmazonS3>,
    prefix: String,
}

impl Bucket {
    /// The prefix of `place`.
    pub fn new(place: &S3Options) -> Self {
        // Making a store chooses the TLS provider, which every client needs.
        drop(S3Store::new(place.clone(), OpenOptions::default()).expect("a client"));
        let s3 = AmazonS3Builder::from_env()
            .with_bucket_name(&place.bucket)
            .with_endpoint(place.endpoint.clone().expect("an endpoint"))
            .with_allow_http(place.allow_http)
            .build()
            .expect("a client");
        Self { s3: Arc::new(s3), prefix: format!("{}/", place.prefix) }
    }

    /// Runs on a thread and runtime of its own, so that async tests can call it.
    fn run<T: Send, F: Future<Output = T> + Send>(
        &self,
        work: impl FnOnce(Arc<AmazonS3>) -> F + Send,
    ) -> T {
        let s3 = self.s3.clone();
        std::thread::scope(|scope| {
            let run = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(work(s3))
            };
            scope.spawn(run).join().expect("no panic")
        })
    }

    fn path(&self, key: &str) -> Path {
        Path::parse(format!("{}{key}", self.prefix)).expect("a key")
    }

    /// Writes.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        let (path, bytes) = (self.path(key), Bytes::copy_from_slice(bytes));
        self.run(|s3| async move { s3.put(&path, bytes.into()).await }).expect("writes");
    }

    /// Reads.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        let path = self.path(key);
        self.run(|s3| async move {
            match s3.get(&path).await {
                Ok(got) => Some(got.bytes().await.expect("reads")),
                Err(object_store::Error::NotFound { .. }) => None,
                Err(e) => panic!("{e}"),
            }
        })
    }

    /// Deletes.
    pub fn delete(&self, key: &str) {
        let path = self.path(key);
        self.run(|s3| async move { s3.delete(&path).await }).expect("deletes");
    }

    /// Every key that begins with `dir`, which ends in `/` or is empty; sorted.
    pub fn list(&self, dir: &str) -> Vec<String> {
        let path = Path::parse(format!("{}{dir}", self.prefix)).expect("a key");
        let rows: Vec<_> = self.run(|s3| async move {
            use futures::TryStreamExt;
            s3.list(Some(&path)).try_collect().await.expect("lists")
        });
        let own =
            |m: object_store::ObjectMeta| m.location.to_string()[self.prefix.len()..].to_owned();
        let mut keys: Vec<String> = rows.into_iter().map(own).collect();
        keys.sort();
        keys
    }

    /// Replaces the stored bytes of a loose object, whichever spelling it has.
    pub fn spoil(&self, digest: &Digest, bytes: &[u8]) {
        let hex = digest.hex();
        let raw = format!("workspace-objects/{}/{}", &hex[..2], &hex[2..]);
        let zst = format!("{raw}.zst");
        let key = if self.get(&zst).is_some() { zst } else { raw };
        self.put(&key, bytes);
    }
}
