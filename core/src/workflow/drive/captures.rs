//! The boundaries of a run: captured, pointed at the snapshot before, or missed and said
//! so.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Place;
use super::report::{Coverage, Report};
use crate::capture::{self, Alias, CoverageSummary, Kept, NewLabel, Recorder, Request};
use crate::clock::{Cancel, Context};
use crate::diff::{Side, Stored, delta};
use crate::error::{Error, Result};
use crate::fsx;
use crate::ids::{Chain, Digest, SnapshotId};
use crate::run::{EngineEvent, Run, RunStore, Versioning};
use crate::snapshot::chain::{self, History};
use crate::snapshot::doc::{Delta, Snapshot};
use crate::snapshot::label::{Boundary, Label};
use crate::tasks::blocking;
use crate::workflow::file::definition::CaptureMode;

/// How long a capture that was asked to stop may take to do so.
const LAST: Duration = Duration::from_secs(1);
/// Records of a stopped run are written within five seconds, captured or not.
const HURRIED: Duration = Duration::from_secs(3);
/// The most of a rule file that is looked at to tell whether it changed.
const MAX_RULES: u64 = 1 << 20;

/// What the record says of an overflow.
const LIMIT: &str = "limit";
const RULE_DIGEST: &str = "rule_digest";

/// What became of a boundary.
pub(super) enum Took {
    /// It is captured. An unchanged workspace added no snapshot: its label is still to be
    /// set.
    Captured(Option<Alias>),
    /// This run is not captured.
    Off,
    /// It is missed, for this reason.
    Missed(Error),
}

/// The captures of a run.
pub(super) struct Captures {
    place: Arc<Place>,
    chain: Chain,
    mode: CaptureMode,
    /// The snapshot behind which nothing of the run has executed.
    last: Option<SnapshotId>,
    first: Option<Snapshot>,
    newest: Option<Snapshot>,
    coverage: Option<CoverageSummary>,
    /// Labels whose loss is not yet on record.
    untold: Vec<(Label, String)>,
    missed: Vec<String>,
    /// Over the file limit under these rules.
    overflow: Option<Digest>,
    changed: Option<Delta>,
    /// The last capture left its label to us.
    unlabelled: bool,
    /// Whether captures leave labels to us.
    leaves: bool,
    /// True once a signal came.
    hurry: watch::Receiver<bool>,
    versioning: Versioning,
    /// One capture follows the other.
    kept: Kept,
}

impl Captures {
    /// The captures of a run. Once `hurry` says true, a capture gets little time. A
    /// workspace that an earlier process of the run found over the limit, as `before` says,
    /// is so still while limit and rules are the same.
    pub(super) fn new(
        place: Arc<Place>,
        chain: Chain,
        mode: CaptureMode,
        hurry: watch::Receiver<bool>,
        before: Option<&Versioning>,
    ) -> Self {
        let state = if mode == CaptureMode::Off { "off" } else { "on" };
        let now = Versioning { state: state.to_owned(), ..Versioning::default() };
        let before = before.filter(|b| state == "on" && b.state == "overflow");
        let overflow = before.and_then(|b| latch(b, place.capture.observe.max_files));
        let versioning = match (before, overflow) {
            (Some(latched), Some(_)) => latched.clone(),
            (Some(opened), None) => partial(opened),
            (None, _) => now,
        };
        Self {
            place,
            chain,
            mode,
            last: None,
            first: None,
            newest: None,
            coverage: None,
            untold: Vec::new(),
            missed: Vec::new(),
            overflow,
            changed: None,
            unlabelled: false,
            leaves: false,
            hurry,
            versioning,
            kept: Kept::default(),
        }
    }

    /// Labels of captures that add no snapshot are left to the caller.
    pub(super) fn leaving_labels(self) -> Self {
        Self { leaves: true, ..self }
    }

    pub(super) fn mode(&self) -> CaptureMode {
        self.mode
    }
    /// The newest snapshot.
    pub(super) fn newest(&self) -> Option<&SnapshotId> {
        self.newest.as_ref().map(|s| &s.id)
    }
    /// What the last capture found changed.
    pub(super) fn take_changed(&mut self) -> Option<Delta> {
        self.changed.take()
    }
    /// How well the workspace is recorded.
    pub(super) fn versioning(&self) -> &Versioning {
        &self.versioning
    }

    /// A recorder of this run. `cancel` stops what it does.
    pub(super) fn recorder(&self, cancel: Cancel) -> Recorder {
        let Place { runs, ctx, root, capture, .. } = &*self.place;
        let ctx = Context { cancel, ..ctx.clone() };
        let (store, chain) = (runs.store().clone(), self.chain.clone());
        let settings = capture::Settings { kept: Some(self.kept.clone()), ..capture.clone() };
        Recorder::open(store, ctx, root.clone(), chain, settings)
    }

    /// Captures a boundary. One without which nothing goes on is worth a walk of a
    /// workspace that was over the limit.
    pub(super) async fn capture(&mut self, boundary: &Boundary, must: bool) -> Took {
        if self.mode == CaptureMode::Off {
            return Took::Off;
        }
        let Some(label) = boundary.label() else { return Took::Off };
        self.changed = None;
        let must = must && self.mode == CaptureMode::Required;
        let latched = if must { None } else { self.latched().await };
        let taken = match latched {
            Some(e) => Err(e),
            None => self.take(boundary, label.clone()).await,
        };
        match taken {
            Ok(snapshot) => {
                self.open_latch();
                self.last = Some(snapshot.id.clone());
                self.first.get_or_insert_with(|| snapshot.clone());
                self.newest = Some(snapshot);
                Took::Captured(self.unlabelled.then(|| self.alias(boundary, false)).flatten())
            }
            Err(e) => {
                self.last = None;
                self.miss(label, &e).await;
                Took::Missed(e)
            }
        }
    }

    async fn take(&mut self, boundary: &Boundary, label: Label) -> Result<Snapshot> {
        let request = Request {
            label: NewLabel::Named(label),
            move_label: true,
            leave_label: self.leaves,
            boundary: Some(boundary.clone()),
            locked: true,
            ..Request::default()
        };
        self.take_request(&request).await
    }

    /// Captures as asked, within the limits of time.
    pub(super) async fn take_request(&mut self, request: &Request) -> Result<Snapshot> {
        self.tell().await?;
        let cancel = Cancel::default();
        let recorder = self.recorder(cancel.clone());
        let mut work = pin!(recorder.capture(request));
        let done = tokio::select! {
            biased;
            done = &mut work => done,
            limit = time_over(self.place.settings.capture_timeout, self.hurry.clone()) => {
                cancel.cancel("the time limit");
                match timeout(LAST, work).await {
                    Ok(Ok(done)) => Ok(done),
                    _ => {
                        let text = format!("it took longer than {limit:?}");
                        Err(Error::failed("capture-timeout", text))
                    }
                }
            }
        };
        let captured = done?;
        self.unlabelled = !captured.created && request.leave_label;
        self.changed = captured.changed_files;
        self.coverage = Some(captured.coverage);
        captured.snapshot.ok_or_else(|| Error::failed("internal", "a capture made no snapshot"))
    }

    /// Puts the boundaries that were missed on record.
    pub(super) async fn tell(&mut self) -> Result<()> {
        if self.untold.is_empty() {
            return Ok(());
        }
        self.recorder(Cancel::default()).missed(&self.untold).await?;
        self.untold.clear();
        Ok(())
    }

    /// Notes that a boundary is missed.
    pub(super) async fn miss(&mut self, label: Label, e: &Error) {
        let overflow = e.code() == "too-many-files";
        self.missed.push(label.to_string());
        self.untold.push((label, e.message().to_owned()));
        // what cannot be noted now is noted with the next capture
        let _ = self.tell().await;
        if overflow {
            let rules = self.rules().await;
            let extra = serde_json::json!({
                LIMIT: self.place.capture.observe.max_files,
                RULE_DIGEST: rules.hex(),
            });
            self.overflow = Some(rules);
            self.versioning = Versioning {
                state: String::from("overflow"),
                reason: Some(e.message().to_owned()),
                extra: extra.as_object().cloned().unwrap_or_default(),
            };
        } else if self.versioning.state != "overflow" {
            self.versioning.state = String::from("partial");
            self.versioning.reason = Some(e.message().to_owned());
        }
    }

    /// What is told of a boundary that was missed, once the limit of files apart, which
    /// was known when it was `known` before: a warning and the events.
    pub(super) fn told(
        &self,
        label: String,
        e: &Error,
        known: bool,
    ) -> (Option<String>, Vec<EngineEvent>) {
        let over = e.code() == "too-many-files";
        let fresh = !(over && known);
        let warning = fresh.then(|| format!("{label} was not captured: {}", e.message()));
        let mut events = Vec::new();
        if over && fresh {
            let count = e.details().get("files").and_then(serde_json::Value::as_u64);
            let limit = self.place.capture.observe.max_files;
            let count = count.unwrap_or(limit + 1);
            events.push(EngineEvent::CaptureOverflow { limit, count });
        }
        events.push(EngineEvent::CaptureFailed { label, error: e.message().to_owned() });
        (warning, events)
    }

    /// Writes down how well the workspace is recorded, when that changed.
    pub(super) async fn save_versioning(&self, runs: &RunStore, run: &mut Run) -> Result<()> {
        let now = self.versioning.clone();
        let kept = run.record.versioning.clone();
        if kept.as_ref() == Some(&now) || kept.is_none() && now.state == "on" {
            return Ok(());
        }
        // what an earlier process missed stays missed
        if kept.is_some_and(|k| k.state != "on") && now.state == "on" {
            return Ok(());
        }
        runs.patch(run, |record| {
            record.versioning = Some(now.clone());
            Ok(())
        })
        .await
    }

    /// The error of a workspace that was over the limit, while its rules are the same:
    /// the walk is not paid again.
    async fn latched(&mut self) -> Option<Error> {
        let before = self.overflow?;
        if self.rules().await == before {
            let text = "the workspace holds more files than the limit; its rules have not changed";
            return Some(Error::refused("too-many-files", text));
        }
        self.open_latch();
        None
    }

    fn open_latch(&mut self) {
        if self.overflow.take().is_some() {
            self.versioning = partial(&self.versioning);
        }
    }

    /// A digest of the rule files at the root.
    async fn rules(&self) -> Digest {
        let dir = self.place.root.dir.clone();
        let read = blocking(move || {
            let mut all = Vec::new();
            for name in [".backtrailignore", ".gitignore"] {
                let read = fsx::read_small(&dir, name.as_bytes(), MAX_RULES);
                all.extend(read.ok().flatten().unwrap_or_default());
                all.push(0);
            }
            Ok(all)
        });
        Digest::of(&read.await.unwrap_or_default())
    }

    /// The alias that a boundary becomes; `None` when the last capture failed, so that
    /// there is nothing that it could name.
    pub(super) fn alias(&self, boundary: &Boundary, keep: bool) -> Option<Alias> {
        let snapshot = self.last.clone()?;
        Some(Alias { boundary: boundary.clone(), snapshot, keep })
    }

    /// Adds to a report what was captured by whomever, for a run whose boundaries several
    /// processes write.
    pub(super) async fn report_whole(&mut self, report: &mut Report) -> Result<()> {
        let store = self.place.runs.store().clone();
        let head = chain::load_refs(&*store, &self.chain).await?.refs.head;
        if let Some(head) = head {
            self.newest = Some(chain::read_snapshot(&*store, &self.chain, &head).await?);
        }
        self.report(report, true).await
    }

    /// Adds to a report what was captured.
    pub(super) async fn report(&mut self, report: &mut Report, resumed: bool) -> Result<()> {
        let store = self.place.runs.store().clone();
        if resumed && self.newest.is_some() {
            let history = History::load(&*store, &self.chain).await?;
            self.first = history.newest_first().last().map(|s| (*s).clone()).or(self.first.take());
        }
        // a capture inside a node may be newer than the last boundary
        let head = chain::load_refs(&*store, &self.chain).await?.refs.head;
        report.first_snapshot = self.first.as_ref().map(|s| s.id.clone());
        report.last_snapshot = head.or_else(|| self.newest().cloned());
        if let (Some(first), Some(newest)) = (&self.first, &self.newest) {
            let trees = Stored(&*store);
            let from = Side { root: Some(&first.root), trees: &trees };
            let to = Side { root: Some(&newest.root), trees: &trees };
            report.changes = delta(from, to, &mut |_| {}).await?.files;
        }
        let whole = self.coverage.as_ref().is_none_or(|c| c.complete);
        report.coverage = Coverage {
            complete: whole && self.missed.is_empty() && self.mode != CaptureMode::Off,
            not_covered: self.coverage.take().map(|c| c.records).unwrap_or_default(),
            missed: self.missed.clone(),
        };
        Ok(())
    }
}

/// The rules under which an earlier process found the workspace over `limit`; `None` when
/// the limit is another now.
fn latch(before: &Versioning, limit: u64) -> Option<Digest> {
    let then = before.extra.get(LIMIT)?.as_u64()?;
    let rules = before.extra.get(RULE_DIGEST)?.as_str()?.parse().ok()?;
    (then == limit).then_some(rules)
}

/// Captured again after it was not for a while.
fn partial(overflow: &Versioning) -> Versioning {
    let extra = Default::default();
    Versioning { state: String::from("partial"), reason: overflow.reason.clone(), extra }
}

/// Comes back with the time that a capture had, when that is over: its limit, or little
/// once a signal came.
async fn time_over(limit: Option<Duration>, mut hurry: watch::Receiver<bool>) -> Duration {
    let normal = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let hurried = async {
        if hurry.wait_for(|hurried| *hurried).await.is_err() {
            std::future::pending::<()>().await; // nobody is left who could hurry
        }
        sleep(HURRIED).await;
    };
    tokio::select! {
        () = normal => limit.unwrap_or_default(),
        () = hurried => HURRIED,
    }
}
