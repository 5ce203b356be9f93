//! What this host remembers of a bucket: index files, which never change, and the
//! verdict of the probe. All of it can be lost.

use std::path::PathBuf;

use backtrail_core::clock::{IdSource, Timestamp};
use backtrail_core::fsx::{self, Dir};
use backtrail_core::ids::Digest;
use backtrail_core::tasks::blocking;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Inner;
use super::probe::Verdict;

/// The largest file that is remembered.
const MOST: u64 = 256 * 1024 * 1024;
/// How long a verdict counts, in nanoseconds.
const VERDICT_NS: i64 = 24 * 3_600 * 1_000_000_000;

/// The verdict file.
#[derive(Serialize, Deserialize)]
struct Kept {
    at_ns: i64,
    verdict: Verdict,
}

impl Inner {
    fn cache_dir(&self, part: &str) -> Option<PathBuf> {
        self.open.cache_dir.as_ref().map(|dir| dir.join(part))
    }

    /// Index files of this store; nowhere before the store's id is known.
    fn index_dir(&self) -> Option<PathBuf> {
        let id = self.store_id.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        self.cache_dir("pack-index").filter(|_| plain).map(|dir| dir.join(id))
    }

    /// A remembered index file. Who decodes it checks its hash.
    pub(super) async fn cached_index(&self, name: &str) -> Option<Bytes> {
        read(self.index_dir()?, format!("{name}.idx")).await
    }

    /// Remembers an index file; that this fails is nobody's business.
    pub(super) async fn cache_index(&self, name: &str, bytes: &Bytes) {
        if let Some(dir) = self.index_dir() {
            write(dir, format!("{name}.idx"), bytes.clone(), &*self.open.ids).await;
        }
    }

    /// Forgets index files that are not among `names`.
    pub(super) async fn prune_cache(&self, names: Vec<String>) {
        let Some(dir) = self.index_dir() else { return };
        let prune = move || {
            let Ok(dir) = Dir::open(&dir) else { return Ok(()) };
            for name in dir.names().unwrap_or_default() {
                let known = names.iter().any(|n| name == format!("{n}.idx").as_bytes());
                if !known {
                    let _ = dir.unlink(&name);
                }
            }
            Ok(())
        };
        let _ = blocking(prune).await;
    }

    fn verdict_name(&self) -> String {
        let build = &self.open.host.program;
        let text = format!("{}\n{}\n{build}", self.bucket.server(), self.options.bucket);
        format!("{}.json", Digest::of(text.as_bytes()))
    }

    /// The verdict of the last day on this server and bucket by this build.
    pub(super) async fn cached_verdict(&self) -> Option<Verdict> {
        let bytes = read(self.cache_dir("probe")?, self.verdict_name()).await?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        let Timestamp(now) = self.open.clock.now();
        let age = now.checked_sub(kept.at_ns)?;
        (0..VERDICT_NS).contains(&age).then_some(kept.verdict)
    }

    /// Remembers a verdict.
    pub(super) async fn cache_verdict(&self, verdict: &Verdict) {
        let Some(dir) = self.cache_dir("probe") else { return };
        let kept = Kept { at_ns: self.open.clock.now().0, verdict: verdict.clone() };
        if let Ok(bytes) = serde_json::to_vec(&kept) {
            write(dir, self.verdict_name(), bytes.into(), &*self.open.ids).await;
        }
    }
}

async fn read(dir: PathBuf, name: String) -> Option<Bytes> {
    let read = move || {
        let found = Dir::open(&dir).and_then(|dir| fsx::read_small(&dir, name.as_bytes(), MOST));
        Ok(found.ok().flatten().map(Bytes::from))
    };
    blocking(read).await.ok().flatten()
}

async fn write(dir: PathBuf, name: String, bytes: Bytes, ids: &dyn IdSource) {
    let Ok(temp) = ids.hex(8) else { return };
    let write = move || {
        let temp = format!(".tmp-{temp}");
        let _ = fsx::make_private_dirs(&dir)
            .and_then(|()| Dir::open(&dir))
            .and_then(|dir| fsx::publish(&dir, name.as_bytes(), temp.as_bytes(), &bytes, false));
        Ok(())
    };
    let _ = blocking(write).await;
}
