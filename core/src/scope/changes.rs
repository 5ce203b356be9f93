//! From intervals to paths.

use std::collections::{BTreeMap, BTreeSet};

use super::Produced;
use super::interval::{Interval, interval};
use super::line::Line;
use crate::diff::{Change, between_stored, changed_at};
use crate::error::Result;
use crate::ids::Chain;
use crate::path::RelPath;
use crate::plan::{ConflictKind, Foreseen, LeftReason};
use crate::snapshot::chain::{load_refs, read_snapshot};
use crate::snapshot::doc::Snapshot;
use crate::store::Store;
use crate::workspace::Root;

/// A set of paths.
pub type Paths = BTreeSet<RelPath>;

/// Whose a change is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Run,
    Nobodys,
    Unknown,
}

/// What is known of a path, from the newest interval on.
#[derive(Clone, Copy)]
struct Known {
    newest: Whose,
    run: bool,
    other: bool,
    /// Of the newest change that is not the run's.
    reason: Option<LeftReason>,
}

pub(super) async fn collect(store: &dyn Store, line: &Line, root: &Root) -> Result<Produced> {
    let mut known: BTreeMap<RelPath, Known> = BTreeMap::new();
    let mut out = Produced { missed: line.missed.clone(), ..Produced::default() };
    for (older, newer) in line.intervals() {
        let interval = interval(newer);
        for change in between_stored(store, older, newer).await? {
            if change.uncovered.is_some() {
                out.not_covered.insert(change.path);
                continue;
            }
            let whose = whose(interval, newer, &change, root)?;
            note(&mut known, change.path, whose);
        }
    }
    for (path, known) in known {
        out.sort_in(path, known);
    }
    Ok(out)
}

fn note(known: &mut BTreeMap<RelPath, Known>, path: RelPath, whose: Whose) {
    let fresh = Known { newest: whose, run: false, other: false, reason: None };
    let known = known.entry(path).or_insert(fresh);
    let reason = match whose {
        Whose::Run => {
            known.run = true;
            return;
        }
        Whose::Nobodys => LeftReason::Parked,
        Whose::Unknown => LeftReason::Unattributed,
    };
    known.other = true;
    known.reason.get_or_insert(reason);
}

impl Produced {
    fn sort_in(&mut self, path: RelPath, known: Known) {
        if !known.run {
            self.left.insert(path, known.reason.unwrap_or(LeftReason::OutOfScope));
            return;
        }
        match (known.newest, known.other) {
            (Whose::Run, true) => {
                self.mixed.insert(path.clone());
            }
            (Whose::Run, false) => {}
            (newest, _) => {
                let when = match newest {
                    Whose::Nobodys => "while the run was parked",
                    _ => "by nobody that is known",
                };
                let detail = format!("changed by the run and then {when}");
                let kind = ConflictKind::ChangedAfterRun;
                self.foreseen.insert(path.clone(), Foreseen { kind, detail });
            }
        }
        self.paths.insert(path);
    }
}

fn whose(interval: Interval, newer: &Snapshot, change: &Change, root: &Root) -> Result<Whose> {
    Ok(match interval {
        Interval::Executing => Whose::Run,
        Interval::Idle => Whose::Nobodys,
        Interval::Unknown => Whose::Unknown,
        Interval::Late(until) => {
            let by_then = match &newer.changed_later {
                _ if change.to.is_none() => false,
                Some(later) => later.binary_search(&change.path).is_err(),
                None => changed_at(change, root)?.is_some_and(|at| at <= until),
            };
            if by_then { Whose::Run } else { Whose::Unknown }
        }
    })
}

/// What the run of `chain` changed while it was executing, in snapshots taken after
/// `since`. Clocks are all that orders two chains. A chain that cannot be read to its
/// end says what it can.
pub async fn changed_since(store: &dyn Store, chain: &Chain, since: &str) -> Result<Paths> {
    let mut out = Paths::new();
    let Some(head) = load_refs(store, chain).await?.refs.head else { return Ok(out) };
    let mut newer = read_snapshot(store, chain, &head).await?;
    while newer.created_at.as_str() > since
        && let Some(next) = newer.rewound_to.clone().or(newer.parent.clone())
    {
        let older = match read_snapshot(store, chain, &next).await {
            Ok(older) if older.seq < newer.seq => older,
            Ok(_) => break,
            Err(e) if e.is_not_found() => break,
            Err(e) => return Err(e),
        };
        if matches!(interval(&newer), Interval::Executing | Interval::Late(_)) {
            let changes = between_stored(store, &older, &newer).await?;
            out.extend(changes.into_iter().filter(|c| c.uncovered.is_none()).map(|c| c.path));
        }
        newer = older;
    }
    Ok(out)
}
