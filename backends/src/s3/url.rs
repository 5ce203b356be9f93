//! `s3://bucket[/prefix][?option=value…]`.

use std::time::Duration;

use backtrail_core::error::{Error, Result};

/// Where a store lies in S3 and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Options {
    /// The bucket.
    pub bucket: String,
    /// What every key begins with, without slashes at its ends; empty: the whole bucket.
    pub prefix: String,
    /// The region; else the environment's, else `us-east-1`.
    pub region: Option<String>,
    /// The server; else the environment's, else Amazon's.
    pub endpoint: Option<String>,
    /// Allow plain `http`.
    pub allow_http: bool,
    /// The bucket is part of the host name, not of the path.
    pub virtual_hosted: bool,
    /// Requests in flight at most.
    pub concurrency: usize,
    /// Store small objects together.
    pub packs: bool,
    /// Age from which maintenance takes what a crash left, and packs loose objects.
    pub leftovers: Duration,
}

impl S3Options {
    /// The options of a bucket and prefix with nothing else said.
    pub fn new(bucket: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: prefix.into(),
            region: None,
            endpoint: None,
            allow_http: false,
            virtual_hosted: false,
            concurrency: 16,
            packs: true,
            leftovers: Duration::from_hours(24),
        }
    }

    /// The same bucket and server with another prefix.
    #[must_use]
    pub fn at(&self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self.clone() }
    }

    /// For messages. Options hold no secret, but they say little, so they are left out.
    pub fn url(&self) -> String {
        match self.prefix.as_str() {
            "" => format!("s3://{}", self.bucket),
            prefix => format!("s3://{}/{prefix}", self.bucket),
        }
    }
}

/// Reads an `s3://` URL.
///
/// ```
/// use backtrail_backends::s3::url::parse;
/// let options = parse("s3://bucket/team/a?packs=false").unwrap();
/// assert_eq!((options.bucket.as_str(), options.prefix.as_str()), ("bucket", "team/a"));
/// assert!(!options.packs);
/// assert!(parse("s3://key:secret@bucket").is_err());
/// ```
pub fn parse(url: &str) -> Result<S3Options> {
    let rest = url.strip_prefix("s3://").unwrap_or_default();
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // Nothing of such a URL may be printed: it holds a secret.
    if place.split('/').next().is_some_and(|host| host.contains('@')) {
        return Err(Error::invalid("an s3:// URL takes no user and password").with_hint(
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and leave them out of the URL",
        ));
    }
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    check_bucket(bucket)?;
    let mut options = S3Options::new(bucket, prefix_of(prefix)?);
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&name) {
            return Err(Error::invalid(format!("s3 URL option {name:?} is given twice")));
        }
        seen.push(name);
        let bad = || Error::invalid(format!("s3 URL option {name} has a bad value"));
        let value = decode(value).ok_or_else(bad)?;
        set(&mut options, name, value)?;
    }
    Ok(options)
}

fn set(options: &mut S3Options, name: &str, value: String) -> Result<()> {
    match name {
        "region" => options.region = Some(value),
        "endpoint" => options.endpoint = Some(endpoint(value)?),
        "allow_http" => options.allow_http = flag(name, &value)?,
        "virtual_hosted" => options.virtual_hosted = flag(name, &value)?,
        "packs" => options.packs = flag(name, &value)?,
        "concurrency" => {
            let number = value.parse().ok().filter(|n| (1..=256).contains(n));
            options.concurrency = number.ok_or_else(|| {
                Error::invalid(format!("s3 URL option concurrency {value:?} must be 1 to 256"))
            })?;
        }
        _ => {
            return Err(Error::invalid(format!("s3 URL option {name:?} is not known")).with_hint(
                "use region, endpoint, allow_http, virtual_hosted, concurrency or packs",
            ));
        }
    }
    Ok(())
}

fn flag(name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| Error::invalid(format!("s3 URL option {name} must be true or false")))
}

fn endpoint(value: String) -> Result<String> {
    let host = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://"));
    match host {
        Some(host) if host.contains('@') => {
            Err(Error::invalid("an s3 endpoint takes no user and password"))
        }
        Some(host) if !host.is_empty() => Ok(value.trim_end_matches('/').to_owned()),
        _ => Err(Error::invalid(format!("s3 endpoint {value:?} must be http://… or https://…"))),
    }
}

fn check_bucket(bucket: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    if (3..=63).contains(&bucket.len()) && bucket.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(format!("bucket {bucket:?} is not valid: 3-63 of a-z, 0-9, - and .")))
}

/// A prefix that cannot lead elsewhere: its parts are plain names.
fn prefix_of(text: &str) -> Result<String> {
    let bad = || Error::invalid(format!("prefix {text:?} is not valid"));
    let prefix = decode(text).ok_or_else(bad)?;
    let prefix = prefix.trim_end_matches('/');
    let plain = |part: &str| {
        !part.is_empty()
            && !matches!(part, "." | "..")
            && !part.contains(|c: char| c.is_control() || c == '\\')
    };
    if prefix.is_empty() || (prefix.len() <= 512 && prefix.split('/').all(plain)) {
        return Ok(prefix.to_owned());
    }
    Err(bad())
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
        out.push(u8::try_from(value).ok().filter(|b| *b != 0)?);
    }
    String::from_utf8(out).ok()
}
