//! Who holds the locks of a local store, as far as the holder files say: for people,
//! never proof.

use std::path::Path;

use backtrail_core::store::Holder;

use super::fs::{self, Root};

/// The deepest directory below `locks/`.
const MAX_DEPTH: usize = 4;

/// Name and holder of every lock that somebody wrote down and did not give back. Of a
/// process that died the entry stays; the lock itself is free. Blocks.
pub fn holders(store: &Path) -> Vec<(String, Holder)> {
    let Ok(Some(root)) = Root::open(store) else { return Vec::new() };
    let mut out = Vec::new();
    walk(&root, "locks", MAX_DEPTH, &mut out);
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

fn walk(root: &Root, rel: &str, depth: usize, out: &mut Vec<(String, Holder)>) {
    let Ok(entries) = root.dir(rel).and_then(fs::entries) else { return };
    for entry in entries {
        let path = format!("{rel}/{}", entry.name);
        if let Some(base) = path.strip_suffix(".holder") {
            let holder = super::locks::read_holder(root, base);
            if !holder.guard.is_empty() {
                out.push((base.trim_start_matches("locks/").to_owned(), holder));
            }
        } else if depth > 0 && root.dir(&path).is_ok() {
            walk(root, &path, depth - 1, out);
        }
    }
}
