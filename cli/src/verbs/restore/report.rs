//! What a restore, undo or redo did, in words or as JSON.

use std::collections::BTreeMap;

use backtrail_core::plan::{ConflictDecision, ConflictKind, PlanKind};
use backtrail_core::restore::{RestoreResult, ResultState};
use backtrail_core::snapshot::coverage::Reason;

use crate::context::App;
use crate::exit::Code;
use crate::output::{Paint, format, shell};
use crate::verbs::SHORT;

/// Prints it; the code to end with. `shown`: the plan was printed already.
pub(crate) fn result(app: &App, r: &RestoreResult, shown: bool) -> Code {
    if app.out.is_json() {
        app.out.json(r);
    } else {
        print(app, r, shown);
    }
    Code(r.exit_code)
}

/// Prints it in words.
pub(crate) fn print(app: &App, r: &RestoreResult, shown: bool) {
    if r.state == ResultState::Planned {
        return; // the plan itself was printed
    }
    for w in r.warnings.iter().filter(|_| !shown) {
        app.out.warn(&w.message);
    }
    let c = &r.counts;
    let id = app.out.paint(Paint::Id, &r.target.snapshot.as_str()[..SHORT]);
    let verb = match (r.state, r.kind) {
        (ResultState::Unchanged, _) => "nothing to do for",
        (_, PlanKind::Undo) => "undone with",
        (_, PlanKind::Redo) => "done again with",
        (_, _) => "restored",
    };
    let mut line = format!(
        "{verb} {id}  {} written, {} deleted, {} same",
        c.plan.written, c.plan.deleted, c.plan.unchanged
    );
    for (n, word) in
        [(c.plan.mode_changed, "mode changed"), (c.hard_links_split, "hard links split")]
    {
        if n > 0 {
            line.push_str(&format!(", {n} {word}"));
        }
    }
    line.push_str(&format!(
        "  +{}  {}",
        format::bytes(r.bytes.written),
        format::elapsed(r.elapsed_ms)
    ));
    app.out.summary(line);
    remaining(app, r);
    if let Some(bank) = &r.bank {
        let id = app.out.paint(Paint::Id, &bank.snapshot.as_str()[..SHORT]);
        let back = if r.kind == PlanKind::Undo { "redo" } else { "undo" };
        // The bank belongs to the directory that was restored into.
        let place = match r.kind {
            PlanKind::Into => format!(" -w {}", shell(&r.workspace.root)),
            _ => String::new(),
        };
        app.out.summary(format!("bank {id}  {back} with: backtrail {back}{place}"));
    }
}

/// What was kept and what is not covered, with a command that shows it.
fn remaining(app: &App, r: &RestoreResult) {
    let mut parts = Vec::new();
    if r.counts.plan.kept > 0 {
        let kept = r.conflicts.iter().filter(|c| c.decision == ConflictDecision::Keep);
        let words = tally(kept.map(|c| conflict_word(c.kind)));
        parts.push(format!("kept: {} ({words})", r.counts.plan.kept));
    }
    if r.counts.plan.not_covered > 0 {
        let words = tally(r.not_covered.iter().map(|n| reason_word(n.reason)));
        parts.push(format!("not covered: {} ({words})", r.counts.plan.not_covered));
    }
    if r.counts.late_writes > 0 {
        parts.push(format!("written on meanwhile: {} (banked)", r.counts.late_writes));
    }
    if !parts.is_empty() {
        let id = &r.target.snapshot.as_str()[..SHORT];
        app.out.summary(format!("{}   backtrail diff {id}", parts.join("  ")));
    }
    for third in &r.third {
        app.out.warn(&format!("left as it is, changed since: {}", third.path));
    }
}

fn tally<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    match counts.len() {
        1 => counts.into_keys().collect(),
        _ => counts.iter().map(|(w, n)| format!("{n} {w}")).collect::<Vec<_>>().join(", "),
    }
}

fn conflict_word(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::ChangedAfterRun => "changed after the run",
        ConflictKind::OtherRun => "changed by another run",
        ConflictKind::Excluded => "excluded by a rule",
        ConflictKind::UncoveredContent => "holds what is not covered",
        ConflictKind::NestedRepo => "holds a repository",
        other => other.as_str(),
    }
}

fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::TooLarge => "over the size limit",
        other => other.as_str(),
    }
}
