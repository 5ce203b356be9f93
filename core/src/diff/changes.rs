//! The changes between two recorded or observed states.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cover::{Absence, Cover, rule_kind};
use super::hunks::TextDiff;
use super::source::TreeSource;
use super::state::State;
use super::walk::{Pair, Side, walk};
use crate::error::Result;
use crate::path::RelPath;
use crate::snapshot::coverage::{Reason, Record};
use crate::snapshot::tree::{Body, Entry, Ref};

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Status {
    /// It is new.
    #[serde(rename = "A")]
    Added,
    /// It is gone.
    #[serde(rename = "D")]
    Deleted,
    /// Content or link text changed, perhaps the mode too.
    #[serde(rename = "M")]
    Modified,
    /// Only the mode changed.
    #[serde(rename = "m")]
    Mode,
    /// It is another kind of thing.
    #[serde(rename = "T")]
    Kind,
    /// It is not covered on a side, and what happened is not known.
    #[serde(rename = "U")]
    Uncovered,
}

impl Status {
    /// The letter.
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Deleted => 'D',
            Self::Modified => 'M',
            Self::Mode => 'm',
            Self::Kind => 'T',
            Self::Uncovered => 'U',
        }
    }
}

/// The side on which a path is not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Uncovered {
    /// The old one.
    From,
    /// The new one.
    To,
    /// Both.
    Both,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where.
    pub path: RelPath,
    /// What happened.
    pub status: Status,
    /// Where it is not covered; its bytes are never shown then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncovered: Option<Uncovered>,
    /// The old state, when something was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<State>,
    /// The new state, when something is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<State>,
    /// The text inside, once [`add_text`](super::add_text) read it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextDiff>,
    /// The old entry's body, to read its content.
    #[serde(skip)]
    pub from_body: Option<Body>,
    /// The new entry's body.
    #[serde(skip)]
    pub to_body: Option<Body>,
}

/// How many changes of each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    /// `A`.
    pub added: u64,
    /// `D`.
    pub deleted: u64,
    /// `M`.
    pub modified: u64,
    /// `m`.
    pub mode: u64,
    /// `T`.
    pub kind: u64,
    /// `U`.
    pub uncovered: u64,
}

impl ChangeCounts {
    /// Counts `changes`.
    pub fn of(changes: &[Change]) -> Self {
        let mut out = Self::default();
        for c in changes {
            *match c.status {
                Status::Added => &mut out.added,
                Status::Deleted => &mut out.deleted,
                Status::Modified => &mut out.modified,
                Status::Mode => &mut out.mode,
                Status::Kind => &mut out.kind,
                Status::Uncovered => &mut out.uncovered,
            } += 1;
        }
        out
    }
}

/// One side: a root tree, where its trees are, and what it did not cover.
pub struct View<'a> {
    /// The root tree.
    pub root: Ref,
    /// Where its trees are.
    pub trees: Box<dyn TreeSource + 'a>,
    /// What it does not cover.
    pub cover: Cover,
}

/// The changes from one side to the other in byte order of path; directories are
/// among them when they were made, removed or re-moded. With `only`, just the paths
/// named and all below them.
///
/// A path that is not covered on a side is never taken for absent there: `uncovered`
/// names the side. What is uncovered on both is left out unless its evidence moved.
pub async fn between(from: &View<'_>, to: &View<'_>, only: &[RelPath]) -> Result<Vec<Change>> {
    let wanted = |p: &RelPath| only.is_empty() || only.iter().any(|o| p.starts_with(o));
    let leads = |p: &RelPath| wanted(p) || only.iter().any(|o| o.starts_with(p));
    let mut out = BTreeMap::new();
    let old = Side { root: Some(&from.root), trees: &*from.trees };
    let new = Side { root: Some(&to.root), trees: &*to.trees };
    walk(old, new, &mut |pair| {
        if wanted(pair.path)
            && let Some(change) = judge(&pair, &from.cover, &to.cover)
        {
            out.insert(pair.path.clone(), change);
        }
        Ok(leads(pair.path))
    })
    .await?;
    for change in uncovered(&from.cover, &to.cover) {
        if wanted(&change.path) {
            out.entry(change.path.clone()).or_insert(change);
        }
    }
    Ok(out.into_values().collect())
}

fn judge(pair: &Pair<'_>, from: &Cover, to: &Cover) -> Option<Change> {
    let (status, uncovered, other) = match (pair.from, pair.to) {
        (Some(a), Some(b)) => (compare(a, b)?, None, None),
        (Some(a), None) => one_sided(a, to.absence(pair.path, rule_kind(a)), Status::Deleted),
        (None, Some(b)) => one_sided(b, from.absence(pair.path, rule_kind(b)), Status::Added),
        (None, None) => return None,
    };
    let uncovered = uncovered.map(|()| match pair.to {
        Some(_) => Uncovered::From,
        None => Uncovered::To,
    });
    Some(Change {
        path: pair.path.clone(),
        status,
        uncovered,
        from: pair.from.map(State::of_entry).or_else(|| other.clone()),
        to: pair.to.map(State::of_entry).or(other),
        text: None,
        from_body: pair.from.map(|e| e.body.clone()),
        to_body: pair.to.map(|e| e.body.clone()),
    })
}

fn compare(a: &Entry, b: &Entry) -> Option<Status> {
    match (&a.body, &b.body) {
        (Body::File(x), Body::File(y)) if x != y => Some(Status::Modified),
        (Body::Symlink(x), Body::Symlink(y)) if x != y => Some(Status::Modified),
        (Body::File(_), Body::File(_))
        | (Body::Symlink(_), Body::Symlink(_))
        | (Body::Dir(_), Body::Dir(_)) => (a.mode != b.mode).then_some(Status::Mode),
        _ => Some(Status::Kind),
    }
}

/// A path that only one tree holds; `gone` is what it means if the other side saw that
/// it is not there.
fn one_sided(
    entry: &Entry,
    other: Absence<'_>,
    gone: Status,
) -> (Status, Option<()>, Option<State>) {
    match other {
        Absence::Absent => (gone, None, None),
        Absence::Below(_) | Absence::Excluded => (Status::Uncovered, Some(()), None),
        Absence::Recorded(r) => {
            let state = State::of_record(r);
            let status = if state.kind != State::of_entry(entry).kind {
                Status::Kind
            } else if r.reason == Reason::TooLarge {
                // it crossed the limit, so that its size and content changed
                Status::Modified
            } else {
                Status::Uncovered
            };
            (status, Some(()), Some(state))
        }
    }
}

/// What the records alone say: paths that no tree holds.
fn uncovered(from: &Cover, to: &Cover) -> Vec<Change> {
    let mut out = Vec::new();
    for new in to.records().iter().filter(|r| r.reason != Reason::Vanished) {
        match from.absence(&new.path, record_kind(new)) {
            Absence::Absent => out.push(of_records(Status::Added, None, Some(new))),
            Absence::Recorded(old) if moved(old, new) => {
                out.push(of_records(Status::Uncovered, Some(old), Some(new)));
            }
            _ => {}
        }
    }
    for old in from.records().iter().filter(|r| r.reason != Reason::Vanished) {
        if to.absence(&old.path, record_kind(old)) == Absence::Absent {
            out.push(of_records(Status::Deleted, Some(old), None));
        }
    }
    out
}

fn of_records(status: Status, from: Option<&Record>, to: Option<&Record>) -> Change {
    let uncovered = match (from, to) {
        (Some(_), Some(_)) => Uncovered::Both,
        (Some(_), None) => Uncovered::From,
        _ => Uncovered::To,
    };
    Change {
        path: from.or(to).map(|r| r.path.clone()).unwrap_or_default(),
        status,
        uncovered: Some(uncovered),
        from: from.map(State::of_record),
        to: to.map(State::of_record),
        text: None,
        from_body: None,
        to_body: None,
    }
}

fn record_kind(r: &Record) -> crate::workspace::rules::EntryKind {
    use crate::snapshot::coverage::Kind;
    use crate::workspace::rules::EntryKind;
    match r.kind {
        Kind::File => EntryKind::File,
        Kind::Dir => EntryKind::Dir,
        Kind::Symlink => EntryKind::Symlink,
        Kind::Special => EntryKind::Other,
    }
}

/// True unless the evidence proves that nothing happened.
fn moved(a: &Record, b: &Record) -> bool {
    let evidence = |r: &Record| (r.kind, r.size, r.mtime_ns, r.ctime_ns, r.inode, r.mode);
    evidence(a) != evidence(b)
}
