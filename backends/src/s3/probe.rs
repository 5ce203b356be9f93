//! Whether a server does what documents need. An answer outside the expected set is a
//! failed check, never a guess: a bucket whose server bends conditions may hold objects,
//! of which nothing is conditional, and nothing else.

use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::store::{Expect, Version};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, Part, in_order};

/// Concurrent creates of one key; some servers pass only the sequential test.
const RACERS: usize = 8;
const RACES: usize = 2;
/// More than a page of a listing.
const LISTED: usize = 1_005;

/// What the checks found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Documents, logs and locks may live here.
    pub documents: bool,
    /// The first check that failed, and how.
    pub failed: Option<String>,
}

impl Verdict {
    /// Fails (exit 8) unless documents may live in the bucket at `url`.
    pub fn require_documents(&self, url: &str) -> Result<()> {
        if self.documents {
            return Ok(());
        }
        let failed = self.failed.as_deref().unwrap_or("a check of its conditional writes");
        let message = format!("the server of {url} cannot hold documents: {failed}");
        Err(Error::new(Kind::Denied, "no-documents", message).with_hint(format!(
            "keep documents in another store: --store mongodb://HOST/DB --objects {url}"
        )))
    }
}

/// Fails with `name` unless `right`.
fn check(name: &str, right: bool, found: impl std::fmt::Debug) -> Result<()> {
    match right {
        true => Ok(()),
        false => Err(failed(name, &format!("{found:?}"))),
    }
}

fn failed(name: &str, found: &str) -> Error {
    Error::new(Kind::Denied, "probe-failed", format!("{name} ({found})"))
}

/// A write that must be refused as somebody else's.
fn refused(name: &str, done: Result<Version>) -> Result<()> {
    match done {
        Err(e) if e.is_conflict() => Ok(()),
        Err(e) => Err(failed(name, e.message())),
        Ok(_) => Err(failed(name, "it was accepted")),
    }
}

/// Runs the checks below `dir`, which ends in `/` and is empty, and cleans up. An error
/// says that the server could not be asked, not that it failed.
pub(super) async fn run(bucket: &Bucket, dir: &str) -> Result<Verdict> {
    let done = checks(bucket, dir).await;
    let keys =
        bucket.list(dir).await.map(|rows| rows.into_iter().map(|r| r.key).collect::<Vec<_>>());
    if let Ok(keys) = keys {
        // What stays is taken by maintenance later.
        let _ = bucket.delete_many(&keys).await;
    }
    match done {
        Ok(()) => Ok(Verdict { documents: true, failed: None }),
        Err(e) if e.code() == "probe-failed" => {
            Ok(Verdict { documents: false, failed: Some(e.message().to_owned()) })
        }
        Err(e) => Err(e),
    }
}

async fn checks(bucket: &Bucket, dir: &str) -> Result<()> {
    conditions(bucket, dir).await?;
    races(bucket, dir).await?;
    reads(bucket, dir).await?;
    listing(bucket, dir).await
}

async fn conditions(bucket: &Bucket, dir: &str) -> Result<()> {
    let key = format!("{dir}conditions.json");
    let put = async |text: &'static str, expect: Expect| {
        bucket.put(&key, Bytes::from_static(text.as_bytes()), &expect).await
    };
    let read = async || Ok::<_, Error>(bucket.get(&key).await?.map(|got| got.bytes));
    let name = "create";
    let first = put("1", Expect::Absent).await.map_err(|e| unexpected(name, e))?;
    check(name, !first.0.is_empty(), "no version came back")?;
    refused("create of an existing key", put("2", Expect::Absent).await)?;
    let name = "content after a refused create";
    check(name, read().await?.as_deref() == Some(b"1"), read().await?)?;
    let name = "update with the right version";
    put("3", Expect::Version(first.clone())).await.map_err(|e| unexpected(name, e))?;
    refused("update with a stale version", put("4", Expect::Version(first)).await)?;
    let name = "content after a refused update";
    check(name, read().await?.as_deref() == Some(b"3"), read().await?)?;
    let absent = format!("{dir}absent.json");
    let version = bucket.head(&key).await?.map(|m| Version(m.etag)).unwrap_or(Version("x".into()));
    let update = bucket.put(&absent, Bytes::from_static(b"5"), &Expect::Version(version)).await;
    refused("update of an absent key", update)?;
    let name = "an absent key after a refused update";
    check(name, bucket.get(&absent).await?.is_none(), "it is there")?;
    bucket.delete(&key).await?;
    check("read after a deletion", read().await?.is_none(), "it is still there")
}

/// A refusal where there must be none is a finding; an unreachable server is not.
fn unexpected(name: &str, e: Error) -> Error {
    match e.kind() {
        Kind::Conflict => failed(name, e.message()),
        _ if e.code() == "not-supported" || e.code() == "rejected" => failed(name, e.message()),
        _ => e,
    }
}

async fn races(bucket: &Bucket, dir: &str) -> Result<()> {
    for race in 0..RACES {
        let key = format!("{dir}race-{race}.json");
        let create = |i: usize| {
            let key = key.clone();
            async move { bucket.put(&key, Bytes::from(format!("{{\"n\":{i}}}")), &Expect::Absent).await }
        };
        let creates: Vec<_> = (0..RACERS).map(create).collect();
        let done = in_order(creates, RACERS).await;
        let won: Vec<usize> =
            done.iter().enumerate().filter(|(_, d)| d.is_ok()).map(|(i, _)| i).collect();
        let name = "concurrent creates of one key";
        check(name, won.len() == 1, format!("{} of {RACERS} won", won.len()))?;
        let there = bucket.get(&key).await?.map(|got| got.bytes);
        let winner = won.first().map(|i| Bytes::from(format!("{{\"n\":{i}}}")));
        check("content after concurrent creates", there == winner, "another one's is there")?;
    }
    Ok(())
}

async fn reads(bucket: &Bucket, dir: &str) -> Result<()> {
    let key = format!("{dir}odd $&+,;=@ é~'!().json");
    let text = Bytes::from_static(b"0123456789");
    bucket.put(&key, text.clone(), &Expect::Any).await?;
    let part = async |part| Ok::<_, Error>(bucket.get_part(&key, part).await?.map(|g| g.bytes));
    let whole = part(Part::Whole).await?;
    check("odd characters and read after write", whole == Some(text), &whole)?;
    let range = part(Part::Range(2..5)).await?;
    check("range read", range.as_deref() == Some(b"234"), &range)?;
    let suffix = part(Part::Suffix(3)).await?;
    check("suffix read", suffix.as_deref() == Some(b"789"), &suffix)?;
    let rows = bucket.list(dir).await?;
    check("list right after write", rows.iter().any(|row| row.key == key), rows.len())
}

async fn listing(bucket: &Bucket, dir: &str) -> Result<()> {
    let dir = format!("{dir}many/");
    let keys: Vec<String> = (0..LISTED).map(|i| format!("{dir}{i:05}")).collect();
    let any = &Expect::Any;
    let puts: Vec<_> =
        keys.iter().map(|key| bucket.put(key, Bytes::from_static(b"x"), any)).collect();
    for put in in_order(puts, bucket.concurrency()).await {
        put?;
    }
    let listed: Vec<String> = bucket.list(&dir).await?.into_iter().map(|row| row.key).collect();
    let name = "listing past 1,000 keys, complete and sorted";
    check(name, listed == keys, format!("{} of {LISTED}", listed.len()))?;
    for done in bucket.delete_many(&keys).await? {
        done?;
    }
    check("batch delete", bucket.list(&dir).await?.is_empty(), "keys are left")
}
