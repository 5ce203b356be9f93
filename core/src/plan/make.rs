//! Makes the plan.

use std::collections::BTreeSet;

use super::draft::Draft;
use super::input::{PlanInput, Scope};
use super::types::{NotCovered, Plan};
use super::walk::Walk;
use crate::error::{Error, Result};
use crate::fsx::{FileKind, Stat};
use crate::path::RelPath;
use crate::snapshot::coverage::{Kind, Reason, Record, State};

/// Makes the plan of a restore: pure, so that equal inputs give byte-equal plans.
///
/// Fails with `bad-value` for a `keep` or `take` path that is unknown or named twice,
/// with `NotFound` for a scope path known neither to the target nor to the disk, and
/// with `Corrupt` for a target that names the store or is no directory anybody made.
pub fn make(input: &PlanInput<'_>) -> Result<Plan> {
    check_picks(input)?;
    check_scope(input)?;
    let mut draft = Draft::new(input);
    if !input.scope.is_empty() {
        Walk::run(input, &mut draft)?;
        for record in input.cover.records() {
            not_covered_then(input, record, &mut draft);
        }
    }
    draft.finish(input)
}

fn known(input: &PlanInput<'_>, path: &RelPath) -> bool {
    path.is_root()
        || input.cover.record(path).is_some()
        || input.observed.is_some_and(|o| o.entry(path).is_some())
        || input.view.holds(path, input.observed)
}

fn check_picks(input: &PlanInput<'_>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for path in input.options.keep.iter().chain(&input.options.take) {
        let wrong = if !seen.insert(path) {
            "is named twice by --keep and --take"
        } else if !known(input, path) {
            "is known neither to the snapshot nor to the workspace"
        } else {
            continue;
        };
        let message = format!("path {path} {wrong}");
        return Err(Error::invalid(message).with_paths([path.text().into_owned()]));
    }
    Ok(())
}

fn check_scope(input: &PlanInput<'_>) -> Result<()> {
    let Scope::Paths(paths) = input.scope else { return Ok(()) };
    let unknown: Vec<String> =
        paths.iter().filter(|p| !known(input, p)).map(|p| p.text().into_owned()).collect();
    let Some(first) = unknown.first() else { return Ok(()) };
    let message = format!("{first} is known neither to the snapshot nor to the workspace");
    Err(Error::not_found(message).with_paths(unknown))
}

/// Reports a path that the target did not cover.
fn not_covered_then(input: &PlanInput<'_>, record: &Record, draft: &mut Draft<'_>) {
    let (_, in_scope) = draft.scope.find(&record.path);
    let in_scope = in_scope || (record.path.is_root() && *input.scope == Scope::Full);
    let mut up = Some(record.path.clone());
    while let Some(path) = up {
        if draft.is_kept(&path) {
            return;
        }
        up = path.parent();
    }
    let disk = input.observed.and_then(|o| o.entry(&record.path)).map(|e| &e.stat);
    // gone then, and gone now: there is nothing to cover
    if !in_scope || (record.reason == Reason::Vanished && disk.is_none()) {
        return;
    }
    let file = disk.filter(|s| s.kind == FileKind::File).map(|s| s.size);
    draft.not_covered(NotCovered {
        path: record.path.clone(),
        reason: record.reason,
        size: if disk.is_some() { file } else { record.size },
        unchanged: disk.is_some_and(|stat| proves(record, stat)),
    });
}

/// True if the evidence of then is that of now. Of a directory it proves nothing about
/// what is in it.
fn proves(record: &Record, stat: &Stat) -> bool {
    let kind = match stat.kind {
        FileKind::File => Kind::File,
        FileKind::Dir => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Special => Kind::Special,
    };
    record.state == State::Skipped
        && record.kind == kind
        && kind != Kind::Dir
        && record.size == Some(stat.size)
        && record.mtime_ns == Some(stat.mtime_ns)
        && record.ctime_ns == Some(stat.ctime_ns)
        && record.inode == Some(stat.inode)
        && record.mode == Some(stat.mode)
}
