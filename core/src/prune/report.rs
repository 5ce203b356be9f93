//! What a prune did, or would do.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;

use super::policy::Policy;
use super::select::{Group, Protection, Removal};
use crate::ids::Digest;
use crate::reach::Hit;

/// The report of a prune: its JSON form is API.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The store's URL, redacted.
    pub store: String,
    /// What was asked for.
    pub policy: Policy,
    /// Nothing was written.
    pub dry_run: bool,
    /// Each chain and its rule.
    pub groups: Vec<Group>,
    /// Snapshots that went.
    pub removed: Vec<Removal>,
    /// Snapshots that stay whatever the limits.
    pub protected: Vec<Protection>,
    /// Snapshot documents read.
    pub snapshots_scanned: u64,
    /// Objects listed.
    pub objects_scanned: u64,
    /// Objects that snapshots refer to.
    pub objects_marked: u64,
    /// Objects deleted.
    pub objects_deleted: u64,
    /// Objects that nothing refers to and that are younger than the grace period.
    pub objects_spared_young: u64,
    /// Stored bytes of the deleted objects.
    pub bytes_freed: u64,
    /// Always empty: objects that are missing stop a prune, and its error lists them.
    pub missing: Vec<Missing>,
    /// Always empty: documents that cannot be read stop a prune, and its error lists them.
    pub unreadable: Vec<String>,
    /// What could not be deleted; the next prune tries again.
    pub failed: Vec<Failure>,
    /// This host's clock minus the store's, in milliseconds.
    pub skew_ms: i64,
    /// All that was to be deleted is gone.
    pub complete: bool,
    /// The digest of the plan, for `--plan`.
    pub plan: Digest,
    /// Notices for people.
    pub warnings: Vec<String>,
}

/// An object that snapshots need and that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its name.
    pub digest: Digest,
    /// Who needs it.
    #[serde(flatten)]
    pub hit: Hit,
}

/// Something that could not be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// An object's digest or a document's key.
    pub name: String,
    /// Why.
    pub error: String,
}

/// One row per missing object, sorted.
pub(super) fn missing(absent: &HashSet<Digest>, hits: &BTreeMap<Digest, Hit>) -> Vec<Missing> {
    let sorted: BTreeSet<&Digest> = absent.iter().collect();
    let row = |d: &Digest| Missing { digest: *d, hit: hits.get(d).cloned().unwrap_or_default() };
    sorted.into_iter().map(row).collect()
}

impl Report {
    /// The report of a store that holds nothing.
    pub(super) fn empty(store: String, policy: Policy, dry_run: bool) -> Self {
        Self {
            store,
            policy,
            dry_run,
            groups: Vec::new(),
            removed: Vec::new(),
            protected: Vec::new(),
            snapshots_scanned: 0,
            objects_scanned: 0,
            objects_marked: 0,
            objects_deleted: 0,
            objects_spared_young: 0,
            bytes_freed: 0,
            missing: Vec::new(),
            unreadable: Vec::new(),
            failed: Vec::new(),
            skew_ms: 0,
            complete: true,
            plan: super::select::PrunePlan::default().digest(),
            warnings: Vec::new(),
        }
    }
}
