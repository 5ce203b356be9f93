//! Pruning runs: a plan that can be shown, and its execution. Objects that only deleted
//! runs used are left to the sweep of [`crate::prune`].

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};

use super::delete::{DeleteOptions, Deleted, Tombstone};
use super::list::RunRow;
use super::record::RunRecord;
use super::status::Status;
use super::store::RunStore;
use crate::clock::Timestamp;
use crate::error::{Error, Kind, Result};
use crate::ids::RunId;
use crate::store::{DocKey, Listed, Prefix};

/// How long a tombstone is kept by default: 30 days.
pub const TOMBSTONE_AGE: Duration = Duration::from_hours(720);

/// Which runs go.
#[derive(Clone, Debug)]
pub struct RunPrune {
    /// Only runs whose last write is older.
    pub older_than: Option<Duration>,
    /// The newest of the candidates that stay in any case, at least 1.
    pub keep_last: Option<u64>,
    /// Only runs in these statuses.
    pub statuses: Vec<Status>,
    /// How long a tombstone is kept.
    pub tombstone_age: Duration,
}

impl Default for RunPrune {
    /// Finished, failed and cancelled runs, of any age.
    fn default() -> Self {
        Self {
            older_than: None,
            keep_last: None,
            statuses: vec![Status::Finished, Status::Failed, Status::Cancelled],
            tombstone_age: TOMBSTONE_AGE,
        }
    }
}

impl RunPrune {
    /// Fails with `bad-value` (exit 2) for a status that is never pruned, for a
    /// `keep_last` of 0, and when neither age nor number bounds what goes.
    pub fn check(&self) -> Result<()> {
        let may = |s: &Status| s.is_ended();
        if let Some(wrong) = self.statuses.iter().find(|s| !may(s)) {
            return Err(Error::invalid(format!(
                "runs that are {wrong} are never pruned: finished, failed, cancelled, failed_resumable"
            )));
        }
        if self.keep_last == Some(0) {
            return Err(Error::invalid("the number of runs to keep must be at least 1"));
        }
        if self.older_than.is_none() && self.keep_last.is_none() {
            return Err(Error::invalid("prune by age, by number of runs to keep, or by both"));
        }
        Ok(())
    }
}

/// A run that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneRun {
    /// The run.
    pub id: RunId,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub status: Status,
    /// Its last write, RFC 3339.
    pub updated_at: String,
    write_id: String,
}

/// What a prune would do: a value to show.
#[derive(Debug, Default)]
pub struct PrunePlan {
    /// Records looked at, readable ones.
    pub scanned: u64,
    /// The runs that go, newest first.
    pub runs: Vec<PruneRun>,
    /// Records that cannot be read or are of a later format, with the reason.
    pub unreadable: Vec<(String, String)>,
    /// Tombstones whose time is over.
    pub tombstones: Vec<RunId>,
    /// Deletions that a crash left half done.
    pub unfinished: Vec<RunId>,
    include_resumable: bool,
}

/// What a prune did.
#[derive(Debug, Default)]
pub struct PruneReport {
    /// Runs deleted.
    pub pruned: Vec<RunId>,
    /// Runs of the plan that stayed, each with its reason: held, or changed since.
    pub skipped: Vec<(RunId, Error)>,
    /// Tombstones removed.
    pub tombstones_reaped: u64,
}

impl RunStore {
    /// Says which runs go, and which tombstones. Reads only.
    pub async fn plan_prune(&self, policy: &RunPrune) -> Result<PrunePlan> {
        policy.check()?;
        let include_resumable = policy.statuses.contains(&Status::FailedResumable);
        let mut plan = PrunePlan { include_resumable, ..PrunePlan::default() };
        let mut candidates = Vec::new();
        let mut rows = self.list();
        while let Some(row) = rows.next().await {
            match row? {
                RunRow::Unreadable { name, error, .. } => {
                    plan.unreadable.push((name, error.to_string()));
                }
                RunRow::Run(run) => match run.record.check_writable() {
                    Err(e) => plan.unreadable.push((run.id().to_string(), e.to_string())),
                    Ok(()) => {
                        plan.scanned += 1;
                        candidates.extend(candidate(policy, &run.record));
                    }
                },
            }
        }
        plan.runs = chosen(policy, candidates, self.now());
        self.plan_tombstones(policy, &mut plan).await?;
        Ok(plan)
    }

    async fn plan_tombstones(&self, policy: &RunPrune, plan: &mut PrunePlan) -> Result<()> {
        let now = self.now();
        let mut rows = self.store.list(&Prefix::RunTombstones);
        while let Some(row) = rows.try_next().await? {
            let Listed::Doc { key: key @ DocKey::RunTombstone(_), .. } = row else { continue };
            let DocKey::RunTombstone(run) = &key else { continue };
            let doc = match self.store.get(&key).await {
                Ok(doc) => doc,
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e),
            };
            let left = self.store.list(&Prefix::Run(run.clone())).try_next().await?.is_some();
            if left {
                plan.unfinished.push(run.clone());
            }
            // One that does not say its time stays: it does no harm.
            let tombstone: Option<Tombstone> = serde_json::from_slice(&doc.body).ok();
            let since = tombstone.and_then(|t| Timestamp::parse(&t.deleted_at).ok());
            if since.is_some_and(|since| older(since, policy.tombstone_age, now)) {
                plan.tombstones.push(run.clone());
            }
        }
        Ok(())
    }

    /// Deletes what the plan names and nothing that changed since; finishes deletions
    /// that a crash left; removes tombstones whose time is over. A run that cannot be
    /// deleted is reported and holds up no other.
    pub async fn apply_prune(&self, plan: &PrunePlan) -> Result<PruneReport> {
        let mut report = PruneReport::default();
        for run in &plan.runs {
            let options = DeleteOptions {
                resumable: plan.include_resumable,
                write_id: Some(run.write_id.clone()),
                ..DeleteOptions::default()
            };
            match self.delete(&run.id, &options).await {
                Ok(Deleted::Now | Deleted::Before) => report.pruned.push(run.id.clone()),
                Err(e) if matches!(e.kind(), Kind::Unavailable { .. } | Kind::Interrupted) => {
                    return Err(e);
                }
                Err(e) => report.skipped.push((run.id.clone(), e)),
            }
        }
        for run in &plan.unfinished {
            self.finish_delete(run).await?;
        }
        for run in &plan.tombstones {
            // Whatever is left goes first: without the tombstone nobody would know.
            self.finish_delete(run).await?;
            self.store.delete(&DocKey::RunTombstone(run.clone()), None).await?;
            report.tombstones_reaped += 1;
        }
        Ok(report)
    }
}

fn candidate(policy: &RunPrune, record: &RunRecord) -> Option<(Timestamp, PruneRun)> {
    policy.statuses.contains(record.status()).then(|| {
        let run = PruneRun {
            id: record.id().clone(),
            name: record.name.clone(),
            status: record.status().clone(),
            updated_at: record.updated_at().to_owned(),
            write_id: record.write_id().to_owned(),
        };
        (record.updated(), run)
    })
}

/// The candidates that go: older than the age, and not among the newest to be kept.
fn chosen(
    policy: &RunPrune,
    mut candidates: Vec<(Timestamp, PruneRun)>,
    now: Timestamp,
) -> Vec<PruneRun> {
    candidates.sort_by(|a, b| (b.0, &b.1.id).cmp(&(a.0, &a.1.id)));
    let keep = usize::try_from(policy.keep_last.unwrap_or(0)).unwrap_or(usize::MAX);
    let old = |at: Timestamp| policy.older_than.is_none_or(|age| older(at, age, now));
    let rest = candidates.into_iter().skip(keep);
    rest.filter(|(at, _)| old(*at)).map(|(_, run)| run).collect()
}

fn older(since: Timestamp, age: Duration, now: Timestamp) -> bool {
    i128::from(now.0) - i128::from(since.0) > i128::try_from(age.as_nanos()).unwrap_or(i128::MAX)
}
