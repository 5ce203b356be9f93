//! Who worked between two snapshots, as the newer one says.

use crate::clock::Timestamp;
use crate::snapshot::doc::Snapshot;
use crate::snapshot::label::Phase;

/// Whose the changes of an interval are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// The run was executing.
    Executing,
    /// The run's process died in it, and lived until then for sure.
    Late(Timestamp),
    /// Nothing of the run executed.
    Idle,
    /// It cannot be told.
    Unknown,
}

/// The labels that close an interval in which the run executed.
const EXECUTING: [&str; 6] = ["pre:", "post:", "fail:", "pause:", "gate:", "step:"];

/// Judges the interval that ends with `newer`.
pub fn interval(newer: &Snapshot) -> Interval {
    let own = newer.label.as_ref().map_or("", |l| l.as_str());
    let begins = |prefix: &str| own.starts_with(prefix);
    if newer.is_bank() || newer.rewound_to.is_some() || begins("resume:") || begins("rewound:") {
        // Before that the run executed up to a boundary that was not captured.
        let executed = newer.missed.iter().any(|m| closes(&m.label));
        return if executed { Interval::Unknown } else { Interval::Idle };
    }
    if newer.late {
        let until = newer.alive_until.as_deref().map(Timestamp::parse);
        return match until {
            Some(Ok(until)) if begins("fail:") => Interval::Late(until),
            _ => Interval::Unknown,
        };
    }
    let inside = newer.boundary.as_ref().is_some_and(|b| b.phase == Phase::Inside);
    if inside || closes(own) {
        return Interval::Executing;
    }
    Interval::Unknown
}

fn closes(label: &str) -> bool {
    EXECUTING.iter().any(|p| label.starts_with(p))
}
