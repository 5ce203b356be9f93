//! A new run, from its record to its end.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::{Mutex, watch};

use super::attempt::Bench;
use super::captures::Captures;
use super::engine::{Drive, Progress};
use super::holds::Holds;
use super::journal::Journal;
use super::report::Report;
use super::secrets::{self, Known};
use super::{Interrupts, Place};
use crate::clock::Cancel;
use crate::error::{Error, Result};
use crate::ids::Chain;
use crate::process::{self, Alive, RunKey, RunLog, Scratch, StoreLog};
use crate::run::{
    Actor, Checkpoint, Claim, Created, FailureCode, NewRun, Run, RunStore, Status, Transition,
};
use crate::tasks::blocking;
use crate::workflow::file::Definition;
use crate::workflow::file::definition::CaptureMode;
use crate::workflow::machine::{Limits, Machine, RunInfo, Start};

/// A run to be launched.
pub struct Launch {
    /// The workflow, checked.
    pub definition: Arc<Definition>,
    /// Id, name, source and place of the file, and what else a record says. Workspace,
    /// inputs, checkpoint and budget are filled in.
    pub new: NewRun,
    /// Its inputs, checked and with defaults.
    pub inputs: Map<String, Value>,
    /// Variables that replace those of the file.
    pub vars: Map<String, Value>,
    /// Limits that replace those of the file.
    pub limits: Limits,
    /// Replaces the capture mode of the file.
    pub capture: Option<CaptureMode>,
}

/// Creates a run and drives it to its end: finished, failed, paused or stopped, as the
/// report says. Fails before anything is created with `missing-secret`, `busy` naming who
/// executes in the workspace, `recovery-needed`, and as [`RunStore::create`]; later only
/// when the records cannot be written any more.
pub async fn launch(place: Place, launch: Launch, interrupts: Interrupts) -> Result<Report> {
    let Launch { definition, mut new, inputs, vars, limits, capture } = launch;
    let known = Known::collect(&definition, &inputs, &place.settings)?;
    let _holds = Holds::take(&place).await?;
    let mut given = definition.vars.clone().into_iter().collect::<Map<_, _>>();
    given.extend(vars.clone());
    new.work_dir = Some(place.root.text());
    new.inputs = Some(secrets::recorded(&definition, &inputs, &known.redactor));
    new.checkpoint = Checkpoint {
        vars: known.redactor.object(given),
        ..Checkpoint::at(&definition.entry.value)
    };
    new.budget = budget(&definition, &limits);
    if place.settings.share_workspace {
        // what others did meanwhile cannot be told from what it did
        new.extra.insert(String::from("share_workspace"), true.into());
    }
    let Created { run, claim } = place.runs.create(new).await?;
    let claim = Arc::new(claim.ok_or_else(|| Error::invalid("a launched run is not queued"))?);
    place.ctx.faults.reach("run.created")?;
    let place = Arc::new(place);
    let mode = capture.unwrap_or(definition.capture);
    let made = Workshop { place: &place, known, mode }.open(run.clone(), claim.clone()).await;
    let made = match made {
        Ok(made) => made,
        Err(e) => return Err(not_begun(&place, claim, run, e).await),
    };
    if let Err(e) = place.watcher.begun(&run.record) {
        return Err(not_begun(&place, claim, run, e).await);
    }
    let info = run_info(&run, &place);
    let start = Start { run: info, inputs, vars, limits };
    let (machine, actions) = Machine::start(definition, start);
    let mut drive = made.drive(machine, vec![Status::Running]);
    drive.begin_watching(run.id().clone());
    drive.run(actions, interrupts).await
}

/// Declared limits as the record keeps them; none when none is declared.
pub(super) fn budget(definition: &Definition, limits: &Limits) -> Option<Value> {
    let declared = &definition.budget;
    let duration = limits.duration.or(declared.duration);
    let mut out = Map::new();
    let mut put = |key: &str, value: Option<Value>| out.extend(value.map(|v| (key.to_owned(), v)));
    put("duration", duration.map(|d| format!("{}ms", d.as_millis()).into()));
    put("iterations", Some(limits.iterations.unwrap_or(declared.iterations).into()));
    put("tokens", limits.tokens.or(declared.tokens).map(Value::from));
    put("cost_usd", limits.cost_usd.or(declared.cost_usd).map(Value::from));
    Some(Value::Object(out))
}

/// What the machine is told about a run.
pub(super) fn run_info(run: &Run, place: &Place) -> RunInfo {
    RunInfo {
        id: run.id().to_string(),
        name: run.record.name.clone(),
        workspace: place.root.text(),
        file: run.record.file_path.clone().unwrap_or_default(),
    }
}

/// A run that exists and cannot begin is not left running.
async fn not_begun(place: &Place, claim: Arc<Claim>, mut run: Run, e: Error) -> Error {
    let change = Transition::new(Status::FailedResumable, Actor::Engine, [Status::Running])
        .failure(FailureCode::EXECUTION_FAILED, e.message());
    let moved = place.runs.with_claim(claim).transition(&mut run, &change).await;
    match moved {
        Ok(_) => e.with_detail("run_id", run.id().as_str()),
        Err(_) => e, // the first failure is the one to tell
    }
}

/// What a drive works with, before there is a machine.
pub(super) struct Workshop<'p> {
    pub(super) place: &'p Arc<Place>,
    pub(super) known: Known,
    pub(super) mode: CaptureMode,
}

/// The tools of a drive.
pub(super) struct Tools {
    place: Arc<Place>,
    runs: RunStore,
    claim: Arc<Claim>,
    run: Arc<Mutex<Run>>,
    bench: Arc<Bench>,
    captures: Captures,
    journal: Journal,
    hurry: watch::Sender<bool>,
    warnings: Vec<String>,
}

impl Workshop<'_> {
    /// Opens scratch, log, captures and journal of a run.
    pub(super) async fn open(self, run: Run, claim: Arc<Claim>) -> Result<Tools> {
        let Self { place, known, mode } = self;
        let id = run.id().clone();
        let runs = place.runs.with_claim(claim.clone());
        let key = RunKey::new(&id, &runs.store().info());
        let (places, name) = (place.settings.scratch.clone(), key.scratch());
        let (scratch, alive) = blocking(move || {
            process::adopt_orphans();
            let scratch = Scratch::open(&places, &name)?;
            let alive = Alive::hold(scratch.dir())?;
            Ok((scratch, alive))
        })
        .await?;
        let offset = runs.log_size(&id).await?;
        let fence = Some(claim.fence());
        let append = Arc::new(StoreLog { store: runs.store().clone(), run: id.clone(), fence });
        let limit = place.settings.log_limit;
        let log = RunLog::new(append, offset, limit, known.redactor.clone());
        let (hurry, hurried) = watch::channel(false);
        let (chain, before) = (Chain::Run(id.clone()), run.record.versioning.as_ref());
        let captures = Captures::new(place.clone(), chain, mode, hurried, before).leaving_labels();
        let warnings = known.warnings.clone();
        let bench = Bench {
            place: (**place).clone(),
            run: key,
            scratch: Arc::new(scratch),
            alive,
            log,
            known: Arc::new(known),
            fence: claim.fence().token,
        };
        let run = Arc::new(Mutex::new(run));
        let recorder = captures.recorder(Cancel::default());
        let redactor = bench.known.redactor.clone();
        let journal = Journal::start(runs.clone(), recorder, run.clone(), redactor);
        let place = place.clone();
        let bench = Arc::new(bench);
        Ok(Tools { place, runs, claim, run, bench, captures, journal, hurry, warnings })
    }
}

impl Tools {
    /// A drive of `machine`, whose first move expects one of `expects`.
    pub(super) fn drive(self, machine: Machine, expects: Vec<Status>) -> Drive {
        let mut state = Progress::new();
        for text in &self.warnings {
            self.place.watcher.warning(text);
        }
        state.warnings = self.warnings;
        Drive {
            place: self.place,
            runs: self.runs,
            claim: self.claim,
            run: self.run,
            machine,
            bench: self.bench,
            captures: self.captures,
            journal: self.journal,
            hurry: self.hurry,
            expects,
            answered: false,
            resumed: false,
            state,
        }
    }
}
