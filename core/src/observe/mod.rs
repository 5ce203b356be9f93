//! What is in the workspace now: one parallel walk judged by the rules, content
//! hashed where the stat cache does not know it, and the trees of it all.
//!
//! Capture stores an observation, `diff` and the restore plan compare one.

mod build;
mod explain;
mod read;
mod sink;
mod types;
mod walk;

use std::collections::BTreeMap;

pub(crate) use build::reference;
pub use explain::explain;
pub use sink::Sink;
pub use types::{Observed, ObservedDir, ObservedEntry, Settings, Warning, What};

use crate::clock::Context;
use crate::error::Result;
use crate::ids::Digest;
use crate::path::RelPath;
use crate::snapshot::coverage::Coverage;
use crate::snapshot::tree::Ref;
use crate::tasks::blocking;
use crate::workspace::Root;
use crate::workspace::cache::StatCache;
use crate::workspace::rules::{Limits, RuleSet};

/// An observation with what a capture needs besides.
pub struct Observation {
    /// The workspace now.
    pub observed: Observed,
    /// The stat cache as of now.
    pub cache: StatCache,
}

/// Looks at the workspace: walk, rules, cache, content, trees. With a sink, content
/// that had to be read is stored on the way; trees are the caller's to store.
///
/// Fails with `root-unreadable`, `rules-unreadable`, `too-many-files`, or the store's
/// error; a path that cannot be read becomes coverage.
pub async fn observe(
    ctx: &Context,
    root: &Root,
    settings: &Settings,
    cache: StatCache,
    sink: Option<&Sink>,
) -> Result<Observation> {
    let started_ns = ctx.clock.now().0;
    ctx.progress.phase("walk", None, None);
    let (c, r, s) = (ctx.clone(), root.clone(), settings.clone());
    let (walk, cache) = blocking(move || Ok((walk::walk(&c, &r, &s, &cache)?, cache))).await?;
    let mut dirs = walk.dirs;
    let reading = read::Reading { ctx, root, settings, sink };
    let (totals, read_errors) = read::read_all(reading, &mut dirs, walk.pending).await?;
    let mut errors: BTreeMap<RelPath, String> = BTreeMap::new();
    for ((d, e), text) in walk.errors.into_iter().chain(read_errors) {
        let dir = &dirs[d].dir;
        errors.insert(dir.path.join(&dir.entries[e].name), text);
    }
    for w in &dirs {
        errors.extend(w.failed.clone().map(|(_, text)| (w.dir.path.clone(), text)));
    }
    let racy_from = started_ns.saturating_sub(settings.safety_window_ns);
    let built = blocking(move || build::build(dirs, &cache, racy_from)).await?;
    let limits = Limits { max_file_bytes: settings.max_file_bytes, max_files: settings.max_files };
    let rules = RuleSet::new(walk.family, limits, settings.cross_filesystems)
        .with_found(walk.rule_files, walk.markers);
    let records = build::records(&built.dirs, &errors);
    let excluded = walk.excluded.iter().map(|(c, n)| (c.as_str().to_owned(), *n)).collect();
    let root = built.dirs.first().and_then(|d| d.tree.clone());
    let observed = Observed {
        root: root.unwrap_or_else(|| Ref::whole(0, Digest::EMPTY)),
        dirs: built.dirs,
        counts: built.counts,
        coverage: Coverage::new(records, excluded),
        rules,
        warnings: walk.warnings,
        read: (totals.files, totals.bytes),
        reused: built.hits,
        started_ns,
    };
    Ok(Observation { observed, cache: built.cache })
}
