//! Whether a path that a tree lacks was absent, or only not covered.

use crate::error::Result;
use crate::object::content;
use crate::path::RelPath;
use crate::snapshot::coverage::{Kind, Record, State, decode_records};
use crate::snapshot::doc::Snapshot;
use crate::snapshot::tree::{Body, Entry};
use crate::store::Store;
use crate::workspace::rules::{EntryKind, Matcher, RuleSet, Verdict};

/// What one side knows of a path that its tree does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence<'a> {
    /// It was not there.
    Absent,
    /// It was seen and not stored; this very path has the record.
    Recorded(&'a Record),
    /// It lies below a directory whose inside was not seen.
    Below(&'a Record),
    /// The rules kept it out, so that nothing is known of it.
    Excluded,
}

/// The coverage of one side: its records and the rules in force.
#[derive(Debug, Default)]
pub struct Cover {
    records: Vec<Record>,
    rules: Option<Matcher>,
}

impl Cover {
    /// Takes the records in any order. Without rules nothing counts as excluded.
    pub fn new(mut records: Vec<Record>, rules: Option<Matcher>) -> Self {
        records.sort_by(|a, b| a.path.cmp(&b.path));
        Self { records, rules }
    }

    /// That of a snapshot: its records, and the rules then.
    pub async fn of(store: &dyn Store, snapshot: &Snapshot) -> Result<Self> {
        let records = match (&snapshot.coverage.records, &snapshot.coverage.records_ref) {
            (Some(records), _) => records.clone(),
            (None, Some(r)) => decode_records(&content::read_all(store, r).await?)?,
            (None, None) => Vec::new(),
        };
        let rules = RuleSet::decode(&content::read_all(store, &snapshot.rules).await?)?;
        Ok(Self::new(records, Some(rules.matcher())))
    }

    /// The records in byte order of path.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The rules in force.
    pub fn rules(&self) -> Option<&Matcher> {
        self.rules.as_ref()
    }

    /// The record of this very path.
    pub fn record(&self, path: &RelPath) -> Option<&Record> {
        let at = self.records.binary_search_by(|r| r.path.cmp(path)).ok()?;
        self.records.get(at)
    }

    /// The record of an unseen directory that `path` lies below, the highest one. A
    /// record of something that is no directory hides nothing: there was no below.
    pub fn unseen_above(&self, path: &RelPath) -> Option<&Record> {
        if self.records.is_empty() {
            return None;
        }
        let mut found = None;
        let mut dir = path.parent();
        while let Some(d) = dir {
            let hides = |r: &&Record| r.state == State::Unobserved || r.kind == Kind::Dir;
            found = self.record(&d).filter(hides).or(found);
            dir = d.parent();
        }
        found
    }

    /// What is known of `path`, of that kind on the other side, where the tree lacks it.
    pub fn absence(&self, path: &RelPath, kind: EntryKind) -> Absence<'_> {
        if let Some(r) = self.record(path) {
            return Absence::Recorded(r);
        }
        if let Some(r) = self.unseen_above(path) {
            return Absence::Below(r);
        }
        let decision = self.rules.as_ref().map(|m| m.decide(path, kind).verdict);
        match decision {
            // a secret that was there has a record
            None | Some(Verdict::Stored | Verdict::Secret) => Absence::Absent,
            Some(Verdict::Excluded(_)) => Absence::Excluded,
        }
    }
}

/// The kind the rules ask for.
pub(crate) fn rule_kind(entry: &Entry) -> EntryKind {
    match entry.body {
        Body::File(_) => EntryKind::File,
        Body::Dir(_) => EntryKind::Dir,
        Body::Symlink(_) => EntryKind::Symlink,
    }
}
