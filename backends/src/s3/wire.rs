//! Every request to S3: one try, with a place in the gate and a time limit that grows
//! with the bytes. What goes wrong becomes an error kind here and nowhere else.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::{Error, Kind, Result};
use object_store::client::{
    ClientOptions as Options, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse,
    HttpService, ReqwestConnector,
};

/// Time for one try beside the time for its bytes.
pub(super) const TRY: Duration = Duration::from_secs(15);
/// The slowest transfer that is no stall, in bytes a second.
const SLOWEST: u64 = 64 * 1024;

/// What the answer to the request under way said beside its content.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    /// The server's clock, in nanoseconds since 1970.
    pub(super) now_ns: Option<i64>,
}

tokio::task_local! {
    static ANSWER: RefCell<Answer>;
}

/// Requests sent, by what they did.
#[derive(Debug, Default)]
pub(super) struct Requests {
    get: AtomicU64,
    head: AtomicU64,
    put: AtomicU64,
    delete: AtomicU64,
    list: AtomicU64,
    batch: AtomicU64,
}

/// A count of requests by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCount {
    /// Reads.
    pub get: u64,
    /// Looks at one key.
    pub head: u64,
    /// Writes.
    pub put: u64,
    /// Deletions of one key.
    pub delete: u64,
    /// Listing pages.
    pub list: u64,
    /// Batch deletions.
    pub batch: u64,
}

impl RequestCount {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.get + self.head + self.put + self.delete + self.list + self.batch
    }
}

impl std::ops::Sub for RequestCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            get: self.get - other.get,
            head: self.head - other.head,
            put: self.put - other.put,
            delete: self.delete - other.delete,
            list: self.list - other.list,
            batch: self.batch - other.batch,
        }
    }
}

impl Requests {
    /// What was sent so far.
    pub(super) fn count(&self) -> RequestCount {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        RequestCount {
            get: of(&self.get),
            head: of(&self.head),
            put: of(&self.put),
            delete: of(&self.delete),
            list: of(&self.list),
            batch: of(&self.batch),
        }
    }

    fn sent(&self, request: &HttpRequest) {
        let listing = request.uri().query().is_some_and(|q| q.contains("list-type="));
        let kind = match request.method().as_str() {
            "GET" if listing => &self.list,
            "GET" => &self.get,
            "HEAD" => &self.head,
            "PUT" => &self.put,
            "DELETE" => &self.delete,
            _ => &self.batch,
        };
        kind.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes clients that count and remember what answers say beside their content.
#[derive(Clone, Debug, Default)]
pub(super) struct Tap {
    pub(super) requests: Arc<Requests>,
    /// The client that was made, for requests that the driver has no call for.
    pub(super) made: Arc<Mutex<Option<HttpClient>>>,
}

impl HttpConnector for Tap {
    fn connect(&self, options: &Options) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        let client = HttpClient::new(Tapped { inner, requests: self.requests.clone() });
        *self.made.lock().unwrap_or_else(|e| e.into_inner()) = Some(client.clone());
        Ok(client)
    }
}

#[derive(Debug)]
struct Tapped {
    inner: HttpClient,
    requests: Arc<Requests>,
}

#[async_trait]
impl HttpService for Tapped {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.requests.sent(&request);
        let response = self.inner.execute(request).await?;
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok());
        let answer = Answer {
            status: Some(response.status().as_u16()),
            retry_after: header("retry-after")
                .and_then(|v| v.parse().ok())
                .map(Duration::from_secs),
            now_ns: header("date").and_then(date_ns),
        };
        let _ = ANSWER.try_with(|slot| *slot.borrow_mut() = answer);
        Ok(response)
    }
}

/// `Tue, 01 Dec 2026 00:39:10 GMT` in nanoseconds since 1970.
fn date_ns(text: &str) -> Option<i64> {
    let time = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

/// How long a try that moves so many bytes may take.
pub(super) fn limit(bytes: u64) -> Duration {
    TRY + Duration::from_secs(bytes / SLOWEST)
}

/// Runs one request; what it gave and what the answer said beside that. `bytes` is what
/// it moves at most.
pub(super) async fn once<T>(
    bytes: u64,
    work: impl Future<Output = object_store::Result<T>>,
) -> (Result<object_store::Result<T>, Duration>, Answer) {
    let limit = limit(bytes);
    let work = async {
        let done = tokio::time::timeout(limit, work).await;
        let answer = ANSWER.with(|slot| slot.borrow().clone());
        (done.map_err(|_| limit), answer)
    };
    ANSWER.scope(RefCell::default(), work).await
}

/// What one failed request means. `what` names operation and key; a write may have
/// happened all the same.
pub(super) fn classify(
    what: &str,
    write: bool,
    failed: object_store::Error,
    answer: &Answer,
) -> Error {
    let unsure = Kind::Unavailable { maybe_applied: write };
    let Some(status) = answer.status.filter(|s| *s >= 300) else {
        let message = format!("{what}: {}", transport(&failed));
        return Error::unavailable(message).with_kind(unsure);
    };
    let text = failed.to_string();
    let code = tag(&text, "Code").unwrap_or_default();
    let said = tag(&text, "Message").filter(|m| !m.is_empty()).map(|m| format!(": {m}"));
    let message = format!("{what}: {status} {code}{}", said.unwrap_or_default());
    let message = message.trim_end().to_owned();
    match status {
        404 if code == "NoSuchBucket" => Error::new(Kind::Denied, "no-bucket", message)
            .with_hint("create the bucket, or correct its name in the store URL"),
        404 => Error::not_found(message),
        409 | 412 => Error::new(Kind::Conflict, "conflict", message),
        408 | 429 | 500 | 502..=599 => {
            let error = Error::unavailable(message).with_kind(unsure);
            match answer.retry_after {
                Some(pause) => error.with_detail(
                    "retry_after_ms",
                    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                ),
                None => error,
            }
        }
        // A server that answers so to a write has an opinion of its own about conditions.
        304 => Error::unavailable(message).with_kind(unsure),
        501 => Error::new(Kind::Denied, "not-supported", message),
        401 | 403 => Error::new(Kind::Denied, "denied", message).with_hint(
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), and what they may do",
        ),
        300..=399 => Error::new(Kind::Denied, "denied", message)
            .with_hint("the bucket lies in another region: set AWS_REGION or ?region="),
        _ => Error::new(Kind::Denied, "rejected", message),
    }
}

/// The cause of a request without an answer, without its URL.
fn transport(failed: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = failed;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The text of an XML element of an error body.
fn tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("<{name}>"))? + name.len() + 2;
    let len = text[start..].find("</")?;
    Some(&text[start..start + len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_codes_are_read() {
        assert_eq!(date_ns("Tue, 01 Dec 2026 00:39:10 GMT"), Some(1_796_085_550_000_000_000));
        let body = "x <Error><Code>SlowDown</Code><Message>Reduce</Message></Error>";
        assert_eq!((tag(body, "Code"), tag(body, "Nope")), (Some("SlowDown"), None));
    }
}
