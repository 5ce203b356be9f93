//! The preview of a plan in words.

use std::fmt::Write;

use super::types::{ConflictDecision, Plan, PlanKind};
use super::{Op, Step};
use crate::path::{RelPath, quoted};

/// Names of a list of writes.
const MAX_WRITES: usize = 20;
/// Names of any other list.
const MAX_ROWS: usize = 100;

impl Plan {
    /// The preview: deletions, overwrites, conflicts, not covered, left in place,
    /// writes, then counts, bytes, room and the digest. Long lists are cut unless
    /// `full`, writes at 20 names; each says how many more there are.
    pub fn preview(&self, full: bool) -> String {
        let rows = if full { usize::MAX } else { MAX_ROWS };
        let writes = if full { usize::MAX } else { MAX_WRITES };
        let mut out = self.headline();
        let mut deleted: Vec<&Step> = self.steps.iter().filter(|s| s.after.is_absent()).collect();
        deleted.sort_by(|a, b| a.path.cmp(&b.path));
        list(&mut out, "delete", rows, deleted.iter().map(|s| name(s)));
        let mut changed: Vec<&Step> = self.steps.iter().filter(|s| changes(s)).collect();
        changed.sort_by(|a, b| a.path.cmp(&b.path));
        list(&mut out, "overwrite", rows, changed.iter().map(|s| overwritten(s)));
        let conflicts = self.conflicts.iter().map(|c| {
            let what = match c.decision {
                ConflictDecision::Keep => "kept",
                ConflictDecision::Overwrite => "overwritten",
            };
            format!(
                "{}  {what}: {} ({})",
                shown(&c.path),
                quoted(c.detail.as_bytes()),
                c.kind.as_str()
            )
        });
        list(&mut out, "conflicts", rows, conflicts);
        let uncovered = self.not_covered.iter().map(|n| {
            let size = n.size.map(|s| format!(", {}", bytes(s))).unwrap_or_default();
            let proof = if n.unchanged { ", unchanged" } else { "" };
            format!("{}  {}{size}{proof}", shown(&n.path), n.reason.as_str())
        });
        list(&mut out, "not covered, left as is", rows, uncovered);
        let left = self.left_in_place.iter();
        let left = left.map(|l| format!("{}  {}", shown(&l.path), l.reason.as_str()));
        list(&mut out, "left in place", rows, left);
        let mut made: Vec<&Step> = self.steps.iter().filter(|s| s.before.is_absent()).collect();
        made.sort_by(|a, b| a.path.cmp(&b.path));
        list(&mut out, "write", writes, made.iter().map(|s| name(s)));
        self.totals(&mut out);
        out
    }

    fn headline(&self) -> String {
        let label = self.target.label.as_ref().map(|l| format!(" ({})", quoted(l.as_bytes())));
        let root = crate::path::parse_text(&self.workspace.root).unwrap_or_default();
        format!(
            "{} {}{} in {}\n",
            self.kind.as_str(),
            self.target.snapshot,
            label.unwrap_or_default(),
            quoted(&root),
        )
    }

    fn totals(&self, out: &mut String) {
        let c = &self.counts;
        let mut line =
            format!("{} written, {} deleted, {} same", c.written, c.deleted, c.unchanged);
        for (n, word) in [
            (c.mode_changed, "mode changed"),
            (c.dirs_created, "directories made"),
            (c.dirs_removed, "directories removed"),
            (c.kept, "kept"),
            (c.not_covered, "not covered"),
            (c.left_in_place, "left in place"),
        ] {
            if n > 0 {
                let _ = write!(line, ", {n} {word}"); // a String takes everything
            }
        }
        let _ = writeln!(out, "{line}");
        let displaced = match self.kind {
            PlanKind::Into => String::new(),
            _ => format!(", {} displaced and banked", bytes(self.bytes.displaced)),
        };
        let _ = writeln!(out, "{} to write{displaced}", bytes(self.bytes.to_write));
        let free = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), bytes);
        let _ = writeln!(
            out,
            "room needed {}, free in the workspace {}, in the store {}",
            bytes(self.space_needed()),
            free(self.bytes.workspace_free),
            free(self.bytes.store_free),
        );
        for w in &self.warnings {
            let _ = writeln!(out, "note: {}", w.message);
        }
        let _ = writeln!(out, "plan {}", self.digest);
    }
}

/// Something is there before and after.
fn changes(step: &Step) -> bool {
    !step.before.is_absent() && !step.after.is_absent()
}

fn shown(path: &RelPath) -> String {
    if path.is_root() { ".".to_owned() } else { path.to_string() }
}

fn name(step: &Step) -> String {
    let slash = matches!(step.op, Op::Mkdir | Op::Rmdir);
    format!("{}{}", shown(&step.path), if slash { "/" } else { "" })
}

fn overwritten(step: &Step) -> String {
    let path = shown(&step.path);
    match step.op {
        Op::Chmod => format!("{path}  mode {:04o} -> {:04o}", step.before.mode, step.after.mode),
        Op::ReplaceKind => {
            let kind = |s: &crate::diff::State| format!("{:?}", s.kind).to_lowercase();
            format!("{path}  {} -> {}", kind(&step.before), kind(&step.after))
        }
        _ => path,
    }
}

fn list(out: &mut String, title: &str, max: usize, rows: impl ExactSizeIterator<Item = String>) {
    let n = rows.len();
    if n == 0 {
        return;
    }
    let _ = writeln!(out, "{title} ({n}):"); // a String takes everything
    for row in rows.take(max) {
        let _ = writeln!(out, "  {row}");
    }
    if n > max {
        let _ = writeln!(out, "  (+{} more)", n - max);
    }
}

/// `812 B`, `1.2 MiB`.
fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
