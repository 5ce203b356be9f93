//! The bank: a snapshot taken before a restore, which holds every path the restore
//! overwrites, replaces, re-modes or deletes. Verified by reading back, not believed.

use std::collections::BTreeSet;

use crate::capture::{Captured, NewLabel, Recorder, Request};
use crate::damage;
use crate::diff::State;
use crate::error::{Error, Kind, Result};
use crate::ids::Digest;
use crate::object::content;
use crate::observe::{Observation, ObservedEntry, What};
use crate::path::RelPath;
use crate::plan::Step;
use crate::snapshot::doc::BankNote;
use crate::snapshot::tree::Ref;
use crate::store::Store;
use crate::tasks;

use super::journal::BankRef;
use super::work::changed;
use super::{fresh, read};

/// How often a bank is taken again because the store held a wrong object.
const MAX_ROUNDS: usize = 3;
/// Objects read back in one call, so that several calls share the work.
const BATCH: usize = 128;

/// A bank that was published and verified.
#[derive(Debug)]
pub(super) struct Banked {
    /// The snapshot and its label.
    pub(super) bank: BankRef,
    /// The capture that made it.
    pub(super) captured: Captured,
    /// Bytes of the displaced content.
    pub(super) bytes: u64,
}

/// Takes the bank of `steps`. The caller holds the workspace lock exclusively.
///
/// `bank-failed` with the path and the cause when a touched path cannot be stored or
/// read back, `changed-since-plan` when one differs from what was planned; nothing was
/// changed then, and nothing claims a safety copy.
pub(super) async fn bank(
    recorder: &Recorder,
    steps: &[Step],
    note: BankNote,
    seen: Option<Observation>,
) -> Result<Banked> {
    let touched: BTreeSet<RelPath> =
        steps.iter().filter(|s| s.displaces()).map(|s| s.path.clone()).collect();
    let request = Request {
        label: NewLabel::Numbered("bank"),
        bank: Some(note),
        must_store: touched,
        locked: true,
        ..Request::default()
    };
    let store = recorder.store();
    let mut bad = Vec::new();
    let mut seen = seen.filter(|_| read::is_small(steps));
    let hold = fresh::hold(recorder, "restore").await.map_err(failed)?;
    for _ in 0..MAX_ROUNDS {
        if seen.is_some() {
            read::store(recorder, steps).await?;
        }
        let captured = recorder.capture_seen(&request, seen.take()).await.map_err(failed)?;
        let content = held(&captured, steps)?;
        store.flush().await.map_err(failed)?;
        let threads = recorder.settings().observe.threads;
        let needed: Vec<Ref> = content.iter().cloned().chain(way_to(&captured, steps)).collect();
        bad = wrong(&**store, &needed, threads).await.map_err(failed)?;
        if bad.is_empty() {
            let snapshot = captured.id.clone().ok_or_else(|| {
                failed(Error::failed("bank-failed", "the capture made no snapshot"))
            })?;
            let (label, new) = (captured.label.clone(), captured.created);
            let chain = recorder.chain().clone();
            hold.release().await.map_err(failed)?;
            let bytes = content.iter().map(|r| r.length).sum();
            return Ok(Banked { bank: BankRef { snapshot, chain, label, new }, captured, bytes });
        }
        // Listed as damaged, they are stored again by the next capture without looking.
        damage::add(&**store, &*recorder.context().ids, &bad).await.map_err(failed)?;
    }
    let names: Vec<String> = bad.iter().map(Digest::hex).collect();
    let message = format!("the store keeps giving back wrong bytes for {}", names.join(", "));
    Err(failed(Error::failed("bank-failed", message)))
}

/// Says that the bank failed, with the exit code of the cause: the store's (8) or ours
/// (1). Being told to stop, or to wait, stays what it is.
pub(super) fn failed(e: Error) -> Error {
    let kind = match e.kind() {
        Kind::Busy | Kind::Interrupted => return e,
        Kind::Refused if matches!(e.code(), "recovery-needed" | "root-moved") => return e,
        kind @ (Kind::Unavailable { .. } | Kind::Denied) => kind,
        _ => Kind::Failed,
    };
    e.context("nothing was changed: the safety snapshot could not be taken")
        .with_kind(kind)
        .with_code("bank-failed")
        .with_hint("nothing is restored in place without one; --into another directory needs none")
}

/// The content of every touched file, after checking that the bank holds each touched
/// path exactly as planned.
fn held(captured: &Captured, steps: &[Step]) -> Result<Vec<Ref>> {
    let mut out = Vec::new();
    for step in steps.iter().filter(|s| s.displaces()) {
        let entry = captured.observed.entry(&step.path).ok_or_else(|| changed(&step.path))?;
        let state = state(entry).ok_or_else(|| {
            let message = format!("{} could not be stored", step.path);
            failed(
                Error::failed("bank-failed", message).with_paths([step.path.text().into_owned()]),
            )
        })?;
        if state != step.before {
            return Err(changed(&step.path));
        }
        if let What::File(content) = &entry.what {
            out.push(content.clone());
        }
    }
    Ok(out)
}

/// What an undo reads before it comes to the content: the trees above every touched
/// path, the rules and the records of what is not covered. A bank that is an older
/// snapshot stored none of them now.
fn way_to(captured: &Captured, steps: &[Step]) -> Vec<Ref> {
    let mut dirs = BTreeSet::new();
    for step in steps.iter().filter(|s| s.displaces()) {
        let mut up = Some(step.path.clone());
        while let Some(dir) = up.take_if(|d| !dirs.contains(d)) {
            up = dir.parent();
            dirs.insert(dir);
        }
    }
    let observed = &captured.observed;
    let trees = observed.dirs.iter().filter(|d| dirs.contains(&d.path));
    let mut out: Vec<Ref> = trees.filter_map(|d| d.tree.clone()).collect();
    if let Some(snapshot) = &captured.snapshot {
        out.push(snapshot.root.clone());
        out.push(snapshot.rules.clone());
        out.extend(snapshot.coverage.records_ref.clone());
    }
    out
}

fn state(entry: &ObservedEntry) -> Option<State> {
    match &entry.what {
        What::File(r) => Some(State::file(entry.stat.mode, r.length, r.digest)),
        What::Symlink(target) => Some(State::symlink(target)),
        What::Dir(_) => Some(State::dir(entry.stat.mode)),
        What::Skipped(_) | What::Unobserved(_) | What::Excluded(_) => None,
    }
}

/// Reads every object back; the digests of those that are missing or wrong. The store
/// re-hashes what it gives (CLD-O6).
async fn wrong(store: &dyn Store, content: &[Ref], threads: usize) -> Result<Vec<Digest>> {
    let objects: BTreeSet<(Digest, u64)> = content.iter().flat_map(Ref::objects).collect();
    let objects: Vec<(Digest, u64)> = objects.into_iter().collect();
    let mut rest = &objects[..];
    let batches = std::iter::from_fn(|| {
        let most = content::batch_len(rest.iter().map(|o| o.1)).min(BATCH);
        let (batch, tail) = rest.split_at(most);
        rest = tail;
        (!batch.is_empty()).then_some(batch)
    });
    let looks = batches.map(|batch| async move {
        let names: Vec<Digest> = batch.iter().map(|o| o.0).collect();
        let mut bad = Vec::new();
        for ((digest, length), found) in batch.iter().zip(store.get_objects(&names).await?) {
            match found {
                Ok(bytes) if bytes.len() as u64 == *length => {}
                Ok(_) => bad.push(*digest),
                Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt) => bad.push(*digest),
                Err(e) => return Err(e),
            }
        }
        Ok(bad)
    });
    Ok(tasks::all(looks, threads).await?.into_iter().flatten().collect())
}
