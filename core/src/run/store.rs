//! [`RunStore`]: typed calls about runs over any store.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::change::Run;
use super::checkpoint::Checkpoint;
use super::claim::Claim;
use super::record::{
    Driver, FORMAT_VERSION, MAX_SOURCE_BYTES, RecordHolder, RunRecord, default_name,
};
use super::status::Status;
use crate::clock::{Context, Timestamp};
use crate::error::{Error, Kind, Result};
use crate::ids::{Digest, NodeId, RunId};
use crate::store::{DocKey, Expect, Fence, LockName, Store, docs};

/// Runs of one store. Cheap to clone; a clone with a claim ([`RunStore::with_claim`])
/// sends the claim's fencing token along with every write to its run.
#[derive(Clone)]
pub struct RunStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) ctx: Context,
    pub(super) claim: Option<Arc<Claim>>,
}

/// A run to be created.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The id; `None` draws a UUID of version 7.
    pub id: Option<String>,
    /// The name; `None` is `<workflow>-<last 6 of the id>`.
    pub name: Option<String>,
    /// The workflow's name.
    pub workflow_name: String,
    /// The workflow's source: hashed, and kept up to 1 MiB.
    pub workflow_source: Option<String>,
    /// Where the workflow was read from.
    pub file_path: Option<String>,
    /// The workspace.
    pub work_dir: Option<String>,
    /// Inputs, secret ones redacted by the caller.
    pub inputs: Option<Map<String, Value>>,
    /// The first checkpoint: at the entry node.
    pub checkpoint: Checkpoint,
    /// Who executes it.
    pub driver: Driver,
    /// Submitted to a queue: `queued`; else it is `running` and claimed by this process.
    pub queued: bool,
    /// Declared limits.
    pub budget: Option<Value>,
    /// From [`super::launch_env`].
    pub launch_env: Option<std::collections::BTreeMap<String, String>>,
    /// The run whose node started this one.
    pub parent_run_id: Option<String>,
    /// The session of an external run.
    pub session_key: Option<String>,
    /// Further fields of the record, such as those of the fleet.
    pub extra: Map<String, Value>,
}

impl NewRun {
    /// A run of `workflow_name` that begins at node `entry`, executed here by the engine.
    pub fn new(workflow_name: impl Into<String>, entry: impl Into<String>) -> Self {
        Self {
            id: None,
            name: None,
            workflow_name: workflow_name.into(),
            workflow_source: None,
            file_path: None,
            work_dir: None,
            inputs: None,
            checkpoint: Checkpoint::at(entry),
            driver: Driver::Engine,
            queued: false,
            budget: None,
            launch_env: None,
            parent_run_id: None,
            session_key: None,
            extra: Map::new(),
        }
    }
}

/// A run just created.
#[derive(Debug)]
pub struct Created {
    /// The run.
    pub run: Run,
    /// The hold on its lock; `None` for a queued run.
    pub claim: Option<Claim>,
}

impl RunStore {
    /// The runs of `store`, with time, chance and host from `ctx`.
    pub fn new(store: Arc<dyn Store>, ctx: Context) -> Self {
        Self { store, ctx, claim: None }
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// A handle whose writes to the claim's run carry its fencing token.
    #[must_use]
    pub fn with_claim(&self, claim: Arc<Claim>) -> Self {
        Self { claim: Some(claim), ..self.clone() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.ctx.clock.now()
    }

    /// The right to write to `run`, when this handle has one. Fails with `LostLease`
    /// once it is lost.
    pub(super) fn fence(&self, run: &RunId) -> Result<Option<Fence>> {
        match &self.claim {
            Some(claim) if claim.run() == run => {
                claim.check()?;
                Ok(Some(claim.fence()))
            }
            _ => Ok(None),
        }
    }

    /// Creates a run: `running`, claimed by this process, or `queued`. Fails with
    /// `conflict` (kind Conflict) when the id exists, with `deleted` (kind Conflict) when
    /// it was deleted lately, and with `bad-value` for an id that may not be created.
    pub async fn create(&self, new: NewRun) -> Result<Created> {
        let id = match &new.id {
            Some(id) => new_id(id)?,
            None => RunId::new(self.uuid_v7()?)?,
        };
        check_node(&new.checkpoint.node_id)?;
        new.checkpoint.check()?;
        self.check_free(&id).await?;
        let claim = match new.queued {
            true => None,
            false => Some(self.take_lock(&id, std::time::Duration::ZERO, "create").await?),
        };
        let record = self.first_record(id, new, claim.as_ref());
        let run = self.put_record(record, Expect::Absent).await?;
        Ok(Created { run, claim })
    }

    /// Loads a run and heals it in memory; writes nothing. `not-found` when it does not
    /// exist, `deleted` (kind NotFound) when it was deleted lately.
    pub async fn load(&self, run: &RunId) -> Result<Run> {
        let key = DocKey::Run(run.clone());
        match self.store.get(&key).await {
            Ok(doc) => {
                let record = RunRecord::read(run, &doc.body)?;
                Ok(Run { record, version: doc.version })
            }
            Err(e) if e.is_not_found() => Err(self.missing(run).await),
            Err(e) => Err(e),
        }
    }

    /// Why a run is not there.
    pub(super) async fn missing(&self, run: &RunId) -> Error {
        match self.store.get(&DocKey::RunTombstone(run.clone())).await {
            Ok(_) => docs::deleted(run, false),
            Err(_) => Error::not_found(format!("run {run} is not in the store"))
                .with_hint("backtrail runs list --all"),
        }
    }

    /// Nothing is locked for a run that cannot be created.
    async fn check_free(&self, id: &RunId) -> Result<()> {
        let key = DocKey::Run(id.clone());
        match self.store.get(&key).await {
            Ok(doc) => {
                let there = format!("run {id} exists already: backtrail runs show {id}");
                return Err(docs::conflict(&key, Some(&doc.version)).with_hint(there));
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
        match self.store.get(&DocKey::RunTombstone(id.clone())).await {
            Ok(_) => Err(docs::deleted(id, true)),
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn first_record(&self, id: RunId, new: NewRun, claim: Option<&Claim>) -> RunRecord {
        let now = self.now();
        let name = new.name.unwrap_or_else(|| default_name(&new.workflow_name, &id));
        let source = new.workflow_source;
        let running = claim.is_some();
        let started = running.then(|| now.rfc3339());
        RunRecord {
            format_version: FORMAT_VERSION,
            id,
            workflow_name: new.workflow_name,
            status: if running { Status::Running } else { Status::Queued },
            inputs: new.inputs,
            created_at: now.rfc3339(),
            updated_at: now.rfc3339(),
            finished_at: None,
            error: None,
            failure_code: None,
            checkpoint: Some(new.checkpoint),
            artifact_index: None,
            outcome_seq: Some(0),
            claim_seq: Some(u64::from(running)),
            name,
            workflow_hash: source.as_ref().map(|s| Digest::of(s.as_bytes()).hex()),
            file_path: new.file_path,
            workflow_source: source.filter(|s| s.len() <= MAX_SOURCE_BYTES),
            work_dir: new.work_dir,
            started_at: started,
            queued_at: (!running).then(|| now.rfc3339()),
            driver: Some(new.driver),
            holder: claim.map(|c| RecordHolder::new(&self.ctx.host, now, c.fence().token)),
            cancel_requested_at: None,
            cancel_reason: None,
            pause_requested_at: None,
            pause_reason: None,
            explicit_resume_required: None,
            rewind_transaction: None,
            versioning: None,
            budget: new.budget,
            budget_raises: None,
            result: None,
            launch_env: new.launch_env,
            parent_run_id: new.parent_run_id,
            session_key: new.session_key,
            backtrail_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            cas_version: 0,
            write_id: String::new(),
            extra: new.extra,
            pointer_dropped: false,
        }
    }

    /// A UUID of version 7: the milliseconds of its time, then random bits.
    fn uuid_v7(&self) -> Result<String> {
        let mut b = [0_u8; 16];
        self.ctx.ids.fill(&mut b)?;
        let ms = u64::try_from(self.now().0 / 1_000_000).unwrap_or(0);
        b[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
        b[6] = 0x70 | (b[6] & 0x0f);
        b[8] = 0x80 | (b[8] & 0x3f);
        let hex = crate::ids::to_hex(&b);
        let (a, rest) = hex.split_at(8);
        Ok(format!("{a}-{}-{}-{}-{}", &rest[..4], &rest[4..8], &rest[8..12], &rest[12..]))
    }

    pub(super) fn run_lock(run: &RunId) -> LockName {
        LockName::Run(run.clone())
    }
}

/// The id of a run to be created: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`. Fails with
/// `bad-value` naming that form.
pub fn new_id(id: &str) -> Result<RunId> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let ok = (1..=128).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(plain);
    if !ok {
        return Err(Error::new(
            Kind::Invalid,
            "bad-value",
            format!(
                "run id {id:?} is not valid: 1-128 of A-Z a-z 0-9 . _ -, first a letter or digit"
            ),
        ));
    }
    RunId::new(id)
}

/// A checkpoint stands at a node, whose name becomes part of keys.
pub(super) fn check_node(node: &str) -> Result<NodeId> {
    NodeId::new(node)
}
