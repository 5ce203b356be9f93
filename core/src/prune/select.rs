//! Retention: which snapshots go. A pure function of the policy and of what was
//! loaded, so that a dry run is the same computation as the real one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::policy::Policy;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::ids::{Chain, Digest, SnapshotId, WorkspaceKey};
use crate::snapshot::doc::Snapshot;
use crate::snapshot::label::Label;
use crate::snapshot::refs::Refs;
use crate::store::docs;

/// Why an unreachable document goes.
pub(super) const UNREACHABLE: &str = "reached by neither head nor label";

/// Whether the run of a chain may still execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// No run, or one that finished or failed, or whose record is gone.
    Ended,
    /// Any other status, unknown ones included.
    Unfinished(String),
}

/// One snapshot as loaded.
#[derive(Clone, Debug)]
pub struct Row {
    /// The document, without its coverage records.
    pub snapshot: Snapshot,
    /// Age by the store's own clock.
    pub age: Duration,
    /// Head or a label reaches it.
    pub reachable: bool,
}

/// One chain as loaded.
#[derive(Clone, Debug)]
pub struct LoadedChain {
    /// Its name.
    pub chain: Chain,
    /// Head and labels.
    pub refs: Refs,
    /// The refs were lost and rebuilt in memory; says why.
    pub rebuilt: Option<String>,
    /// Newest first.
    pub rows: Vec<Row>,
    /// Whether its run may still execute.
    pub run: RunState,
    /// The workspace it is of, by its newest snapshot.
    pub workspace: Option<WorkspaceKey>,
}

/// What selection needs besides policy and chains.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The workspace the command works in.
    pub workspace: Option<WorkspaceKey>,
    /// The store's clock now.
    pub now: Option<Timestamp>,
    /// Snapshots that unfinished restores, rewinds and runs name, with the reason.
    pub named: BTreeMap<SnapshotId, String>,
    /// Unreachable documents younger than this stay.
    pub grace: Duration,
    /// Select nothing by retention.
    pub objects_only: bool,
    /// Leave unreachable documents alone.
    pub snapshots_only: bool,
}

/// How the rules apply to one chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The chain.
    pub chain: Chain,
    /// The directory it is of, in path text.
    pub workspace: Option<String>,
    /// The rule in words.
    pub rule: String,
    /// Snapshots it has.
    pub snapshots: u64,
    /// Snapshots that go.
    pub removed: u64,
}

/// One snapshot that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// Its id.
    pub id: SnapshotId,
    /// Its chain.
    pub chain: Chain,
    /// The label given at its capture.
    pub label: Option<Label>,
    /// Which limit it breaks.
    pub reason: String,
    /// Head and labels do not reach it; it goes only once that was seen again under
    /// the `objects` lock.
    pub unreachable: bool,
}

/// One snapshot that stays whatever the limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Protection {
    /// Its id.
    pub id: SnapshotId,
    /// Why.
    pub reason: String,
}

/// What a prune would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrunePlan {
    /// Each chain and its rule.
    pub groups: Vec<Group>,
    /// What goes, by chain, oldest first.
    pub removed: Vec<Removal>,
    /// What stays whatever the limits.
    pub protected: Vec<Protection>,
}

impl PrunePlan {
    /// SHA-256 over what goes and why, independent of the time.
    pub fn digest(&self) -> Digest {
        Digest::of(&docs::canonical(&json!({ "format_version": 1, "removed": self.removed })))
    }
}

/// Makes the plan. Fails on a malformed policy, an unknown or ambiguous `protect`,
/// and a run that has no chain.
pub fn select(policy: &Policy, chains: &[LoadedChain], at: &Circumstances) -> Result<PrunePlan> {
    policy.check()?;
    if let Some(run) = &policy.run {
        let own = Chain::Run(run.clone());
        if !chains.iter().any(|c| c.chain == own) {
            return Err(Error::not_found(format!("run {run} has no snapshots")));
        }
    }
    let protected = protected(policy, chains, at)?;
    let mut plan = PrunePlan::default();
    for chain in chains {
        let (rule, limits) = rule(policy, chain, at);
        let mut gone = limits.map_or_else(Vec::new, |l| l.removals(chain, &protected));
        gone.extend(unreachable(chain, at, &protected));
        gone.reverse();
        plan.groups.push(Group {
            chain: chain.chain.clone(),
            workspace: chain.rows.first().map(|r| r.snapshot.workspace.root.clone()),
            rule,
            snapshots: chain.rows.len() as u64,
            removed: gone.len() as u64,
        });
        plan.removed.extend(gone);
    }
    let stored: BTreeSet<_> = chains.iter().flat_map(|c| &c.rows).map(|r| &r.snapshot.id).collect();
    let all = protected.into_iter().filter(|(id, _)| stored.contains(id));
    plan.protected = all.map(|(id, reason)| Protection { id, reason }).collect();
    Ok(plan)
}

/// The limits in force for one chain.
struct Limits {
    keep: Option<u64>,
    max_bytes: Option<u64>,
    older_than: Option<Duration>,
}

impl Limits {
    /// Newest first. Once one goes for count or bytes, older unprotected ones go too.
    fn removals(&self, chain: &LoadedChain, protected: &Protected) -> Vec<Removal> {
        let (mut out, mut bytes) = (Vec::new(), 0u64);
        let mut over: Option<String> = None;
        let reachable = chain.rows.iter().filter(|r| r.reachable);
        for (position, row) in reachable.enumerate() {
            bytes = bytes.saturating_add(row.snapshot.counts.bytes);
            let old = || {
                let limit = self.older_than.filter(|l| row.age > *l)?;
                Some(format!("older than {}", words(limit)))
            };
            let broken = over.clone().or_else(|| self.broken(position as u64, bytes));
            let Some(reason) = broken.clone().or_else(old) else { continue };
            if !protected.contains_key(&row.snapshot.id) {
                over = broken;
                out.push(removal(chain, row, reason, false));
            }
        }
        out
    }

    fn broken(&self, position: u64, bytes: u64) -> Option<String> {
        if let Some(keep) = self.keep.filter(|k| position >= *k) {
            return Some(format!("not among the newest {keep}"));
        }
        self.max_bytes.filter(|m| bytes > *m).map(|m| format!("above {m} bytes"))
    }
}

fn removal(chain: &LoadedChain, row: &Row, reason: String, unreachable: bool) -> Removal {
    let s = &row.snapshot;
    let (id, label) = (s.id.clone(), s.label.clone());
    Removal { id, chain: chain.chain.clone(), label, reason, unreachable }
}

/// The rule of a chain in words, and the limits when it has any.
fn rule(policy: &Policy, chain: &LoadedChain, at: &Circumstances) -> (String, Option<Limits>) {
    let untouched = |why: &str| (format!("untouched: {why}"), None);
    let named = matches!(&chain.chain, Chain::Run(r) if policy.run.as_ref() == Some(r));
    let here = chain.workspace.is_some() && chain.workspace == at.workspace;
    if at.objects_only {
        return untouched("objects only");
    }
    if chain.rebuilt.is_some() {
        return untouched("its refs were lost and are rebuilt in memory only");
    }
    if policy.run.is_some() && !named {
        return untouched("not the run asked for");
    }
    if !named && !here && !policy.all_workspaces {
        return untouched("another workspace");
    }
    match (&chain.chain, &chain.run) {
        (Chain::Checkpoint(_), _) => untouched("bound to workspace checkpoints"),
        (Chain::Run(_), RunState::Unfinished(status)) if !policy.has_limits() => {
            untouched(&format!("the run is {status}"))
        }
        (Chain::Run(_), RunState::Unfinished(status)) if !policy.include_unfinished => {
            untouched(&format!("the run is {status} (--include-unfinished applies the limits)"))
        }
        (Chain::Workspace(_), _) if !policy.has_limits() => untouched("no limit given"),
        _ => given(policy),
    }
}

fn given(policy: &Policy) -> (String, Option<Limits>) {
    let Policy { keep, max_bytes, older_than, .. } = policy;
    if !policy.has_limits() {
        let keep = policy.default_keep;
        let limits = Limits { keep: Some(keep), max_bytes: None, older_than: None };
        return (format!("newest {keep}"), Some(limits));
    }
    let parts = [
        keep.map(|n| format!("newest {n}")),
        max_bytes.map(|n| format!("at most {n} bytes")),
        older_than.map(|d| format!("not older than {}", words(d))),
    ];
    let rule = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let limits = Limits { keep: *keep, max_bytes: *max_bytes, older_than: *older_than };
    (rule, Some(limits))
}

fn words(d: Duration) -> String {
    match d.as_secs() {
        s if s > 0 && s.is_multiple_of(86_400) => format!("{}d", s / 86_400),
        s if s > 0 && s.is_multiple_of(3_600) => format!("{}h", s / 3_600),
        s if s > 0 && s.is_multiple_of(60) => format!("{}m", s / 60),
        _ => format!("{d:?}"),
    }
}

/// Documents that a crash left before their refs. Of a chain whose refs were rebuilt,
/// or which workspace checkpoints name, nothing is known to be unreachable.
fn unreachable(chain: &LoadedChain, at: &Circumstances, protected: &Protected) -> Vec<Removal> {
    if at.snapshots_only || chain.rebuilt.is_some() || matches!(chain.chain, Chain::Checkpoint(_)) {
        return Vec::new();
    }
    let gone =
        |r: &&Row| !r.reachable && r.age >= at.grace && !protected.contains_key(&r.snapshot.id);
    let rows = chain.rows.iter().filter(gone);
    rows.map(|r| removal(chain, r, UNREACHABLE.to_owned(), true)).collect()
}

type Protected = BTreeMap<SnapshotId, String>;

fn protected(policy: &Policy, chains: &[LoadedChain], at: &Circumstances) -> Result<Protected> {
    let mut out = at.named.clone();
    for chain in chains {
        for (label, target) in chain.refs.labels.iter().filter(|(_, t)| t.pinned) {
            let reason = || format!("pinned by label {label}");
            out.entry(target.snapshot.clone()).or_insert_with(reason);
        }
        if let RunState::Unfinished(status) = &chain.run {
            protect_tips(chain, status, &mut out);
        }
    }
    protect_banks(policy, chains, at, &mut out);
    for text in &policy.protect {
        let id = named(text, chains)?;
        out.entry(id).or_insert_with(|| format!("--protect {text}"));
    }
    Ok(out)
}

/// Every id that no loaded snapshot names as parent, and its parent; a run's branches
/// have one each. None found (a cycle): the newest.
fn protect_tips(chain: &LoadedChain, status: &str, out: &mut Protected) {
    let snapshots = || chain.rows.iter().map(|r| &r.snapshot);
    let parents: BTreeSet<_> = snapshots().filter_map(|s| s.parent.as_ref()).collect();
    let mut tips: Vec<&Snapshot> = snapshots().filter(|s| !parents.contains(&s.id)).collect();
    if tips.is_empty() {
        tips.extend(snapshots().next());
    }
    for tip in tips {
        out.entry(tip.id.clone()).or_insert_with(|| format!("tip of a run that is {status}"));
        if let Some(parent) = &tip.parent {
            let reason = || format!("parent of the tip of a run that is {status}");
            out.entry(parent.clone()).or_insert_with(reason);
        }
    }
}

/// The newest safety snapshots of each workspace, and the young ones. A snapshot that
/// a `bank:<n>` label points at is one as well.
fn protect_banks(policy: &Policy, chains: &[LoadedChain], at: &Circumstances, out: &mut Protected) {
    let mut banks: BTreeMap<Option<&WorkspaceKey>, Vec<(Duration, u64, &SnapshotId)>> =
        BTreeMap::new();
    for chain in chains {
        for row in chain.rows.iter().filter(|r| r.reachable) {
            if let Some(age) = bank_age(chain, row, at) {
                let rows = banks.entry(chain.workspace.as_ref()).or_default();
                rows.push((age, u64::MAX - row.snapshot.seq, &row.snapshot.id));
            }
        }
    }
    for mut rows in banks.into_values() {
        rows.sort();
        for (n, (age, _, id)) in rows.into_iter().enumerate() {
            let reason = if (n as u64) < policy.bank_keep {
                format!("bank among the newest {}", policy.bank_keep)
            } else if age < policy.bank_age {
                format!("bank younger than {}", words(policy.bank_age))
            } else {
                continue;
            };
            out.entry(id.clone()).or_insert(reason);
        }
    }
}

/// The age of a safety snapshot: its own, or since a bank label was pointed at it.
fn bank_age(chain: &LoadedChain, row: &Row, at: &Circumstances) -> Option<Duration> {
    let own = row.snapshot.is_bank().then_some(row.age);
    let labels = chain.refs.labels.iter();
    let pointed = labels
        .filter(|(l, t)| t.snapshot == row.snapshot.id && l.as_str().starts_with("bank:"))
        .map(|(_, t)| {
            let since = Timestamp::parse(&t.at).ok().zip(at.now);
            let ns = since.map(|(then, now)| now.0.saturating_sub(then.0).max(0) as u64);
            ns.map_or(row.age, Duration::from_nanos)
        });
    own.into_iter().chain(pointed).min()
}

fn named(text: &str, chains: &[LoadedChain]) -> Result<SnapshotId> {
    let prefix = text.to_ascii_lowercase();
    if !crate::snapshot::label::is_id_like(&prefix) {
        return Err(Error::invalid(format!("{text:?} is no snapshot id or prefix of one")));
    }
    let rows = chains.iter().flat_map(|c| &c.rows);
    let ids: BTreeSet<_> = rows
        .filter(|r| r.snapshot.digest.hex().starts_with(&prefix))
        .map(|r| &r.snapshot.id)
        .collect();
    let mut ids = ids.into_iter();
    match (ids.next(), ids.next()) {
        (Some(id), None) => Ok(id.clone()),
        (None, _) => Err(Error::not_found(format!("no snapshot {text:?} to protect"))),
        _ => {
            Err(Error::invalid(format!("{text:?} names several snapshots")).with_code("ambiguous"))
        }
    }
}
