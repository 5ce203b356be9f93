//! The refusal of a capture that would store too many files.

use std::collections::BTreeMap;

use super::Walked;
use crate::error::Error;
use crate::observe::types::{ObservedEntry, What};
use crate::path::RelPath;

/// `too-many-files`, with the largest directories and lines that work when pasted;
/// `ignore` gives the one that leaves a directory out.
pub(super) fn too_many(
    dirs: &[(usize, Walked)],
    limit: u64,
    counted: u64,
    ignore: impl Fn(&RelPath) -> String,
) -> Error {
    let mut sums: BTreeMap<RelPath, u64> = BTreeMap::new();
    for (_, w) in dirs {
        let stored = |e: &&ObservedEntry| matches!(e.what, What::File(_) | What::Symlink(_));
        let own = w.dir.entries.iter().filter(stored).count() as u64;
        let top: Vec<&[u8]> = w.dir.path.segments().take(2).collect();
        if own > 0
            && let Ok(key) = RelPath::new(top.join(&b'/'))
        {
            *sums.entry(key).or_default() += own;
        }
    }
    let mut rows: Vec<(RelPath, u64)> = sums.into_iter().collect();
    rows.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let show = |(p, n): &(RelPath, u64)| {
        let name = if p.is_root() { String::from("the root itself") } else { format!("{p}/") };
        format!("{name} {n}")
    };
    let largest: Vec<String> = rows.iter().take(5).map(show).collect();
    let raise = format!("backtrail capture --max-files {}", counted * 2);
    let hint = match rows.iter().find(|(p, _)| !p.is_root()) {
        Some((p, _)) => format!(
            "leave out what need not be kept, or raise the limit:\n  {}\n  {raise}",
            ignore(p)
        ),
        None => format!("raise the limit:\n  {raise}"),
    };
    Error::refused(
        "too-many-files",
        format!(
            "more than {limit} files would be stored (counted {counted}); largest: {}",
            largest.join(", ")
        ),
    )
    .with_hint(hint)
    .with_detail("counted", counted)
    .with_detail("limit", limit)
}
