//! Deleting from a bucket: one key, one key on a condition, or a thousand at once.

use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::store::Version;
use futures::StreamExt;
use object_store::ObjectStore;
use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::Signer;

use super::bucket::{Bucket, in_order};
use super::wire::classify;

/// Keys of one batch deletion.
const BATCH: usize = 1_000;

impl Bucket {
    /// Deletes an object; an absent one is success.
    pub(super) async fn delete(&self, key: &str) -> Result<()> {
        self.delete_at(key, None).await
    }

    /// Deletes an object, on condition that it still has this version. The driver has no
    /// call for that, so the request is signed here.
    pub(super) async fn delete_at(&self, key: &str, version: Option<&Version>) -> Result<()> {
        let path = self.path(key)?;
        let bad = |e: String| object_store::Error::Generic { store: "S3", source: e.into() };
        let work =
            async {
                let url = self
                    .s3
                    .signed_url(
                        "DELETE".parse().map_err(|_| bad(String::new()))?,
                        &path,
                        Duration::from_secs(300),
                    )
                    .await?;
                let mut request = HttpRequest::new(HttpRequestBody::empty());
                *request.method_mut() = "DELETE".parse().map_err(|_| bad(String::new()))?;
                *request.uri_mut() = url.as_str().parse().map_err(|_| bad("no URL".into()))?;
                if let Some(version) = version {
                    let etag = version.0.parse().map_err(|_| bad("a bad version".into()))?;
                    request.headers_mut().insert("if-match", etag);
                }
                let response = self.http.execute(request).await.map_err(|e| {
                    object_store::Error::Generic { store: "S3", source: Box::new(e) }
                })?;
                match response.status().is_success() {
                    true => Ok(()),
                    false => {
                        let text = response.into_body().bytes().await.unwrap_or_default();
                        Err(bad(String::from_utf8_lossy(&text).into_owned()))
                    }
                }
            };
        match self.send(&format!("delete {key}"), true, 0, work).await {
            Ok(_) => Ok(()),
            Err(e) if e.is_not_found() && version.is_none() => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Deletes objects, a thousand a request; what became of each, in order. A server
    /// that knows no batches gets them one by one.
    pub(super) async fn delete_many(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        let mut out = Vec::with_capacity(keys.len());
        for keys in keys.chunks(BATCH) {
            out.extend(match self.delete_batch(keys).await {
                Err(e) if e.code() == "not-supported" => self.delete_singly(keys).await,
                done => done?,
            });
        }
        Ok(out)
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        let paths: Vec<Path> = keys.iter().map(|k| self.path(k)).collect::<Result<_>>()?;
        let asked = paths.len();
        let stream = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
        let work = async {
            let done: Vec<_> = self.s3.delete_stream(stream).collect().await;
            match done.len() == asked {
                true => Ok(done),
                // The request failed as a whole.
                false => Err(done.into_iter().find_map(Result::err).unwrap_or_else(|| {
                    let source = "a batch deletion was answered in part".into();
                    object_store::Error::Generic { store: "S3", source }
                })),
            }
        };
        let what = format!("delete of {asked} objects");
        let (done, answer) = self.send(&what, true, asked as u64 * 200, work).await?;
        if let [Err(_)] = &done[..]
            && answer.status.is_some_and(|s| s >= 300)
        {
            let failed = done.into_iter().find_map(Result::err);
            return Err(failed.map_or_else(
                || Error::unavailable(what.clone()),
                |failed| classify(&what, true, failed, &answer),
            ));
        }
        let each = |(done, key): (object_store::Result<Path>, &String)| match done {
            Ok(_) => Ok(()),
            Err(e) => {
                let text = e.to_string();
                let said = text.rsplit("failed for key ").next().unwrap_or(&text);
                Err(Error::unavailable(format!("delete {key}: {said}")))
            }
        };
        Ok(done.into_iter().zip(keys).map(each).collect())
    }

    async fn delete_singly(&self, keys: &[String]) -> Vec<Result<()>> {
        let deletes: Vec<_> = keys.iter().map(|key| self.delete(key)).collect();
        in_order(deletes, self.concurrency()).await
    }
}
