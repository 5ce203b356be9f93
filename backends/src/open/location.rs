//! What a store URL says, before anything is asked.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use backtrail_core::error::{Error, Result};

use crate::mongo::{self, MongoOptions};
use crate::redact::decode;
use crate::s3::{self, S3Options};

/// Where a URL leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory: `/path` or `file:///path`.
    Local(PathBuf),
    /// A store in memory, shared by all that open the name in this process: `mem://name`.
    Memory(String),
    /// `s3://bucket/prefix`.
    S3(S3Options),
    /// `mongodb://host/database`.
    Mongo(MongoOptions),
}

/// Reads a store URL. Fails with `bad-value` naming the scheme when it is unknown.
///
/// ```
/// use backtrail_backends::open::{Location, parse};
/// assert_eq!(parse("file:///a%20b").unwrap(), Location::Local("/a b".into()));
/// assert!(parse("ftp://host/x").unwrap_err().message().contains("ftp"));
/// ```
pub fn parse(url: &str) -> Result<Location> {
    if url.starts_with('/') {
        return Ok(Location::Local(PathBuf::from(url)));
    }
    match url.split_once("://") {
        Some(("file", path)) if path.starts_with('/') => {
            let path = decode(path)
                .ok_or_else(|| Error::invalid(format!("store {url:?} has a bad %-escape")))?;
            Ok(Location::Local(PathBuf::from(OsString::from_vec(path))))
        }
        Some(("file", _)) => Err(Error::invalid(format!(
            "store {url:?} names a host: a local store is file:///path"
        ))),
        Some(("mem", name)) if !name.is_empty() => Ok(Location::Memory(name.to_owned())),
        Some(("s3", _)) => Ok(Location::S3(s3::url::parse(url)?)),
        Some(("mongodb" | "mongodb+srv", _)) => Ok(Location::Mongo(mongo::url::parse(url)?)),
        // The rest of such a URL may hold a password.
        Some((scheme, _)) => Err(Error::invalid(format!("store scheme {scheme:?} is not known"))
            .with_hint("use a path, file:///path, s3://bucket/prefix or mongodb://host/database")),
        None => Err(Error::invalid(format!("store {url:?} must be an absolute path or a URL"))),
    }
}

/// Fails unless `tenant` is a name that can stand in keys and paths.
pub fn check_tenant(tenant: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let valid =
        (1..=63).contains(&tenant.len()) && !tenant.starts_with('-') && tenant.bytes().all(plain);
    if valid {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "tenant {tenant:?} is not valid: 1-63 of a-z, 0-9 and -, not starting with -"
    )))
}

impl Location {
    /// The place of a tenant's own store: `default` lies at the place itself, others
    /// below `tenants/`. In a database the tenant is in every key instead.
    pub(super) fn of_tenant(self, tenant: &str) -> Result<Self> {
        check_tenant(tenant)?;
        if tenant == "default" {
            return Ok(self);
        }
        Ok(match self {
            Self::Local(path) => Self::Local(path.join("tenants").join(tenant)),
            Self::S3(s3) => {
                let prefix = format!("{}/tenants/{tenant}", s3.prefix);
                let options = s3.at(prefix.trim_start_matches('/'));
                Self::S3(options)
            }
            Self::Memory(name) => Self::Memory(format!("{name}/tenants/{tenant}")),
            mongo @ Self::Mongo(_) => mongo,
        })
    }
}
