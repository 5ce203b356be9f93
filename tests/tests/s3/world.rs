//! A fresh prefix, and stores on it by various ways.

use std::sync::Arc;
use std::time::Duration;

use backtrail_backends::host::RandomIds;
use backtrail_backends::open::OpenOptions;
use backtrail_backends::s3::{S3Options, S3Store};
use backtrail_core::store::Store;
use backtrail_core::store::layers::retry::{Retry, RetryPolicy};
use backtrail_core::store::layers::verify::Verify;
use backtrail_tests::proxy::{Act, Proxy, Request};
use backtrail_tests::suite::s3;

/// A place for one test.
pub(crate) struct World {
    pub(crate) place: S3Options,
    temp: tempfile::TempDir,
}

/// Runs a test in a world of its own; without a server it is skipped, which is said.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let Some(place) = s3::fresh() else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let world = World { place, temp: tempfile::tempdir().expect("a directory") };
    runtime.expect("a runtime").block_on(async {
        let limit = Duration::from_secs(200);
        tokio::time::timeout(limit, test(world)).await.expect("the test ends");
    });
}

impl World {
    pub(crate) fn options(&self) -> OpenOptions {
        let state_dir = self.temp.path().join("state");
        OpenOptions { state_dir, lease_ttl: Duration::from_secs(3), ..OpenOptions::default() }
    }

    /// The store alone.
    pub(crate) async fn raw(&self) -> Arc<S3Store> {
        s3::raw(&self.place, self.options()).await
    }

    /// The store behind the retry layer.
    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        stack(self.raw().await)
    }

    /// The same place, reached through a proxy.
    pub(crate) fn through(
        &self,
        plan: impl Fn(&Request) -> Act + Send + Sync + 'static,
    ) -> S3Options {
        let server = self.place.endpoint.clone().expect("an endpoint");
        let proxy = Proxy::start(&server, plan);
        S3Options { endpoint: Some(proxy.url), ..self.place.clone() }
    }

    /// A store that maintenance finds old at once.
    pub(crate) async fn aged(&self) -> Arc<S3Store> {
        let place = S3Options { leftovers: Duration::ZERO, ..self.place.clone() };
        s3::raw(&place, self.options()).await
    }

    pub(crate) fn temp(&self) -> &std::path::Path {
        self.temp.path()
    }

    pub(crate) fn bucket(&self) -> s3::Bucket {
        s3::Bucket::new(&self.place)
    }
}

/// The stack as `open` makes it.
pub(crate) fn stack(store: Arc<S3Store>) -> Arc<dyn Store> {
    let policy = RetryPolicy {
        first_pause: Duration::from_millis(10),
        ..RetryPolicy::new(Arc::new(RandomIds))
    };
    Arc::new(Retry::new(Arc::new(Verify::over_hashing(store)), policy))
}
