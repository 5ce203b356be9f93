//! What a capture tells a person besides its result.

use std::collections::BTreeMap;

use super::{Job, Recorder};
use crate::error::{Kind, Result};
use crate::object::content;
use crate::observe::{Observed, Warning};
use crate::path::RelPath;
use crate::snapshot::coverage::{Coverage, Reason, Record};
use crate::snapshot::doc::Workspace;
use crate::workspace::rules::{EntryKind, RuleSet, ignore_command};

const BULK_FILES: u64 = 2000;
const BULK_BYTES: u64 = 256 << 20;
const LOW_SPACE: u64 = 1 << 30;

/// A warning about no path in particular.
pub(super) fn plain(code: &'static str, hint: String) -> Warning {
    Warning { code, path: None, files: None, bytes: None, hint }
}

/// True if the records of both say the same, `vanished` and `unsupported` aside.
/// Records kept as an object are compared by the name they would have.
pub(super) fn same_coverage(head: &Coverage, now: &Coverage) -> bool {
    let counts = |c: &Coverage| (c.complete, c.unobserved);
    if counts(head) != counts(now) {
        return false;
    }
    let lasting = |r: &&Record| !matches!(r.reason, Reason::Vanished | Reason::Unsupported);
    match (&head.records, &now.records) {
        (Some(a), Some(b)) => a.iter().filter(lasting).eq(b.iter().filter(lasting)),
        (None, Some(b)) => {
            let bytes = crate::snapshot::coverage::encode_records(b);
            head.records_ref.as_ref() == Some(&crate::observe::reference(&bytes))
        }
        _ => false,
    }
}

/// Warnings that only a snapshot that is about to be published can need.
pub(super) async fn on_publish(
    recorder: &Recorder,
    job: &mut Job<'_>,
    observed: &Observed,
    added: &[(RelPath, u64)],
) -> Result<()> {
    if observed.counts.files + observed.counts.symlinks == 0 {
        let excluded: u64 = observed.coverage.excluded.values().sum();
        let hint = format!("there is nothing to capture; the rules excluded {excluded} paths");
        job.warnings.push(plain("nothing-captured", hint));
    }
    if job.head.is_some() {
        let rules = &observed.rules;
        let line = |dir: &RelPath| {
            ignore_command(&recorder.root.path, dir, rules.family, !rules.files().is_empty())
        };
        job.warnings.extend(bulk_added(added, line));
        let grown = scope_grew(recorder, job, observed, added).await?;
        job.warnings.extend(grown);
    }
    let own = recorder.root.identity(&recorder.ctx.host);
    let other = |w: &Workspace| w.same_place(&own) && !w.same_directory(&own);
    let replaced = job.head.as_ref().is_some_and(|h| other(&h.workspace));
    if replaced {
        let hint = "the directory is another one than at the last capture, at the same path";
        job.warnings.push(plain("workspace-replaced", hint.into()));
    }
    let health = recorder.store.health().await?;
    if let (Some(free), Some(total)) = (health.free_bytes, health.total_bytes)
        && (free < LOW_SPACE || free < total / 20)
    {
        let hint = format!("the store has {} MiB left; backtrail prune frees space", free >> 20);
        job.warnings.push(Warning { bytes: Some(free), ..plain("store-low-space", hint) });
    }
    if health.volatile {
        let hint = "the store lies in memory and is lost at a reboot".into();
        job.warnings.push(plain("store-tmpfs", hint));
    }
    Ok(())
}

/// Very many new files, or very large ones, below one directory: the deepest such.
fn bulk_added(added: &[(RelPath, u64)], ignore: impl Fn(&RelPath) -> String) -> Option<Warning> {
    let large: u64 = added.iter().map(|(_, n)| n).sum();
    if (added.len() as u64) < BULK_FILES && large < BULK_BYTES {
        return None;
    }
    let mut sums: BTreeMap<RelPath, (u64, u64)> = BTreeMap::new();
    for (path, bytes) in added {
        let mut dir = path.parent();
        while let Some(d) = dir {
            dir = d.parent();
            let slot = sums.entry(d).or_default();
            *slot = (slot.0 + 1, slot.1 + bytes);
        }
    }
    let bulky = sums.iter().filter(|(_, (n, b))| *n >= BULK_FILES || *b >= BULK_BYTES);
    let (dir, (files, bytes)) = bulky.max_by_key(|(d, _)| d.segments().count())?;
    let hint = format!(
        "{files} new files ({} MiB) below {}; to leave them out: {}",
        bytes >> 20,
        if dir.is_root() { String::from("the root") } else { format!("{dir}/") },
        ignore(dir),
    );
    Some(Warning {
        code: "bulk-added",
        path: Some(dir.text().into_owned()),
        files: Some(*files),
        bytes: Some(*bytes),
        hint,
    })
}

/// New paths that the parent's rules excluded.
async fn scope_grew(
    recorder: &Recorder,
    job: &Job<'_>,
    observed: &Observed,
    added: &[(RelPath, u64)],
) -> Result<Option<Warning>> {
    let Some(head) = job.head.as_ref().filter(|h| h.rules.digest != observed.rules.digest()) else {
        return Ok(None);
    };
    let bytes = match content::read_all(&*recorder.store, &head.rules).await {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::NotFound) => return Ok(None),
        Err(e) => return Err(e),
    };
    let Ok(then) = RuleSet::decode(&bytes) else { return Ok(None) };
    let matcher = then.matcher();
    let out = |p: &RelPath| matcher.is_out(p, EntryKind::File);
    let grown: Vec<&(RelPath, u64)> = added.iter().filter(|(p, _)| out(p)).collect();
    let Some((first, _)) = grown.first() else { return Ok(None) };
    let why = matcher.explain(first, EntryKind::File);
    let rule = why.pattern.unwrap_or_else(|| why.reason.to_string());
    Ok(Some(Warning {
        code: "scope-grew",
        path: Some(first.text().into_owned()),
        files: Some(grown.len() as u64),
        bytes: Some(grown.iter().map(|(_, n)| n).sum()),
        hint: format!("{} new paths were excluded before, by {rule}", grown.len()),
    }))
}
