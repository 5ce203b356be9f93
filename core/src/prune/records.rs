//! What journals, undo lists, run records and checkpoints refer to.
//!
//! Their formats belong to other modules, and some to later versions. So nothing is
//! decoded beyond the members `state` and `plan`: whatever is spelled like a digest
//! in a record or in the plan it names is kept, and whatever is spelled like the id of
//! a stored snapshot protects it. That keeps too much rather than too little.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::load::Record;
use crate::ids::{Digest, SnapshotId};
use crate::snapshot::tree::Ref;
use crate::store::DocKey;

/// A plan that a record names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanRef {
    /// By digest alone: one object.
    Object(Digest),
    /// By reference: perhaps in chunks.
    Content(Ref),
}

/// What one record refers to.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Everything spelled like a digest.
    pub digests: BTreeSet<Digest>,
    /// Everything spelled like a snapshot id.
    pub ids: BTreeSet<SnapshotId>,
    /// Plans whose content is needed: they must be readable when `live`.
    pub plans: Vec<PlanRef>,
    /// A restore that is not over, a rewind that is open, a run that may execute.
    pub live: Option<String>,
}

/// Reads a record.
pub(super) fn names(record: &Record) -> Names {
    let value: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    let mut out = Names { live: live(&record.key, &value), ..Names::default() };
    out.digests = digests_in(&record.body);
    out.ids = runs_of_hex(&record.body, 16).filter_map(|s| s.parse().ok()).collect();
    match &record.key {
        DocKey::Journal(..) | DocKey::CheckpointRewind(..) if out.live.is_some() => {
            out.plans.extend(value.get("plan").and_then(plan_ref));
        }
        DocKey::Operations(_) => {
            let entries = value.get("entries").and_then(Value::as_array);
            let usable = |e: &&Value| {
                let state = e.get("state").and_then(Value::as_str);
                !matches!(state, Some("abandoned" | "expired"))
            };
            let plans = entries.into_iter().flatten().filter(usable);
            out.plans.extend(plans.filter_map(|e| plan_ref(e.get("plan")?)));
        }
        _ => {}
    }
    out
}

/// Everything spelled like a digest in some text.
pub(super) fn digests_in(bytes: &[u8]) -> BTreeSet<Digest> {
    runs_of_hex(bytes, 64).filter_map(|s| s.parse().ok()).collect()
}

/// Snapshots that live records name, with the reason in words.
pub(super) fn protected(records: &[Record]) -> BTreeMap<SnapshotId, String> {
    let mut out = BTreeMap::new();
    for record in records {
        let names = names(record);
        if let Some(reason) = names.live {
            out.extend(names.ids.into_iter().map(|id| (id, reason.clone())));
        }
    }
    out
}

fn live(key: &DocKey, value: &Value) -> Option<String> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or("of unknown state");
    match key {
        DocKey::Journal(_, transaction) => {
            let over = matches!(text("state"), "closed" | "rolled-back");
            (!over).then(|| format!("named by the unfinished restore {transaction}"))
        }
        DocKey::CheckpointRewind(subject, id) => {
            let over = matches!(text("state"), "closed" | "rolled-back" | "done");
            (!over).then(|| format!("named by the open rewind {subject}/{id}"))
        }
        DocKey::Checkpoint(subject, id) => Some(format!("named by checkpoint {subject}/{id}")),
        DocKey::Run(run) => {
            let status = text("status");
            let over = matches!(status, "finished" | "failed");
            (!over).then(|| format!("named by run {run}, which is {status}"))
        }
        _ => None,
    }
}

fn plan_ref(value: &Value) -> Option<PlanRef> {
    match value {
        Value::String(s) => s.parse().ok().map(PlanRef::Object),
        Value::Object(_) => serde_json::from_value(value.clone()).ok().map(PlanRef::Content),
        _ => None,
    }
}

/// The maximal runs of hex digits in `bytes` that are exactly `n` long.
fn runs_of_hex(bytes: &[u8], n: usize) -> impl Iterator<Item = &str> {
    let hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let runs = bytes.split(move |b| !hex(b)).filter(move |r| r.len() == n);
    runs.filter_map(|r| std::str::from_utf8(r).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_spelled_like_a_digest_or_id_is_found() {
        let (d, id) = ("ab".repeat(32), "0123456789abcdef");
        let body = format!(r#"{{"state":"applying","plan":"{d}","bank":{{"snapshot":"{id}"}}}}"#);
        let key = DocKey::parse("workspaces/00112233445566aa/journals/tx-0123456789abcde0.json");
        let record = Record { key: key.expect("a key"), body: body.into() };
        let names = names(&record);
        assert_eq!(names.plans, [PlanRef::Object(d.parse().expect("digest"))]);
        assert_eq!(names.digests.len(), 1);
        assert!(names.ids.contains(&id.parse().expect("id")));
        assert!(names.live.is_some());
        assert_eq!(protected(&[record]).len(), 1);
    }
}
