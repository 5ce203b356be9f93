//! Whose place in a bucket it is: the marker, and what lies around it.

use std::collections::HashSet;

use backtrail_core::error::{Error, Result};
use backtrail_core::store::{DocKey, Expect};
use bytes::Bytes;

use super::bucket::Bucket;
use super::{Inner, S3Store, listing};

/// Times that listings which disagree are made anew.
const LOOKS: usize = 3;

impl S3Store {
    /// Writes the marker when there is none; the marker that is there then. Refused where
    /// other things lie, and inside another store: the two would count each other's keys.
    pub async fn init(&self, marker: Bytes) -> Result<Bytes> {
        let key = DocKey::Marker.to_string();
        let bucket = &*self.0.bucket;
        if let Some(got) = bucket.get(&key).await? {
            self.learn(&got.bytes);
            return Ok(got.bytes);
        }
        self.0.refuse_nested().await?;
        if let Some(name) = self.0.foreign().await? {
            let message = format!("{} holds {name:?}, and no store", self.0.options.url());
            return Err(Error::refused("not-a-store", message)
                .with_hint("choose a prefix that holds nothing"));
        }
        let there = match crate::net::settle(bucket, &key, &marker, &Expect::Absent).await? {
            Some(_) => marker,
            None => bucket.get(&key).await?.map(|got| got.bytes).unwrap_or(marker),
        };
        self.learn(&there);
        Ok(there)
    }
}

impl Inner {
    /// Fails when a store lies above. That of the other tenants is no other store.
    async fn refuse_nested(&self) -> Result<()> {
        let mut above = self.options.prefix.as_str();
        if let Some((rest, _)) =
            above.rsplit_once("/").filter(|(r, _)| *r == "tenants" || r.ends_with("/tenants"))
        {
            above = rest.strip_suffix("tenants").unwrap_or(rest).trim_end_matches('/');
        }
        while !above.is_empty() {
            above = above.rsplit_once('/').map_or("", |(parent, _)| parent);
            let parent = self.options.at(above);
            if Bucket::new(&parent)?.head(&DocKey::Marker.to_string()).await?.is_some() {
                let message = format!("{} lies in the store {}", self.options.url(), parent.url());
                return Err(Error::refused("nested-store", message)
                    .with_hint("choose a prefix outside that store"));
            }
        }
        Ok(())
    }

    /// The first thing at the top of the prefix that is none of ours.
    async fn foreign(&self) -> Result<Option<String>> {
        let top = self.bucket.list_dir("").await?;
        let file = top.rows.into_iter().map(|row| row.key).find(|key| DocKey::parse(key).is_none());
        let dir = || top.dirs.into_iter().find(|dir| !listing::is_ours(dir));
        Ok(file.or_else(dir))
    }

    /// A store at the root of a bucket deletes nothing beside keys that it did not write:
    /// somebody else may have more of them.
    pub(super) async fn check_root(&self) -> Result<()> {
        if !self.options.prefix.is_empty() {
            return Ok(());
        }
        let Some(name) = self.foreign().await? else { return Ok(()) };
        let message = format!("{} holds {name:?}, which is not of the store", self.options.url());
        Err(Error::refused("foreign-keys", message)
            .with_hint("keep the store below a prefix of its own; nothing was deleted"))
    }

    /// What must hold before anything is pruned: no foreign keys at the root of a bucket,
    /// and listings that agree with each other.
    pub(super) async fn check_prune(&self) -> Result<()> {
        self.check_root().await?;
        for dir in ["runs/", "workspaces/", "checkpoints/"] {
            self.check_listings(dir).await?;
        }
        Ok(())
    }

    /// Lists `dir` flat and by delimiter: both must name the same places. What came
    /// meanwhile is in the later one alone, so a disagreement is looked at anew.
    async fn check_listings(&self, dir: &str) -> Result<()> {
        for _ in 0..LOOKS {
            let mut flat = HashSet::new();
            for row in self.bucket.list(dir).await? {
                let place = row.key[dir.len()..].split_once('/').map(|(place, _)| place);
                flat.extend(place.map(|place| format!("{dir}{place}/")));
            }
            let places: HashSet<String> =
                self.bucket.list_dir(dir).await?.dirs.into_iter().collect();
            let mut agree = flat.is_subset(&places);
            for place in places.difference(&flat) {
                // A server that keeps keys as files may name an empty directory.
                agree &= self.bucket.list(place).await?.is_empty();
            }
            if agree {
                return Ok(());
            }
        }
        Err(Error::unavailable(format!("two listings of {dir} disagree; nothing was deleted")))
    }
}
