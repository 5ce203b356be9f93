//! What verbs that execute a run share: the place it works in, the lines it prints, and
//! how it ends.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use backtrail_core::clock::{Cancel, Context, Silent};
use backtrail_core::error::{Error, Result};
use backtrail_core::ids::{Chain, RunId};
use backtrail_core::process::ScratchPlaces;
use backtrail_core::run::{Driver, Liveness, Run, RunRow, RunStore, ShellOwner, Status};
use backtrail_core::snapshot::doc::Delta;
use backtrail_core::tasks::blocking;
use backtrail_core::workflow::drive::{
    self, NodeLine, Reconciled, Report, Streams, Unwatched, Watcher,
};
use backtrail_core::workspace::Root;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::context::{App, Place, Somewhere, quoted};
use crate::exit::{self, Code};
use crate::output::{Paint, format};

/// How one command drives a run.
pub(crate) struct Way {
    /// The command, for messages of others who wait.
    pub(crate) command: &'static str,
    /// Other runs may execute in the workspace meanwhile.
    pub(crate) share_workspace: bool,
    /// Nothing is guessed to be secret.
    pub(crate) no_redact: bool,
    /// Where the streams of commands lead.
    pub(crate) streams: Streams,
    /// Processes that commands leave behind stay.
    pub(crate) keep_children: bool,
    /// Who hears about nodes.
    pub(crate) watcher: Arc<dyn Watcher>,
}

impl Way {
    /// The code of a run that a signal stopped.
    pub(crate) fn signalled(name: &str) -> Code {
        exit::signalled(match name {
            "SIGHUP" => 1,
            "SIGINT" => 2,
            _ => 15,
        })
    }

    /// The way of a command that executes nothing unusual.
    pub(crate) fn of(command: &'static str, watcher: Arc<dyn Watcher>) -> Self {
        Self {
            command,
            share_workspace: false,
            no_redact: false,
            streams: Streams::Log,
            keep_children: false,
            watcher,
        }
    }
}

impl App {
    /// The context of a run: no signal cancels it, since the run hears signals itself.
    pub(crate) fn run_context(&self) -> Context {
        Context { cancel: Cancel::default(), progress: Arc::new(Silent), ..self.ctx.clone() }
    }

    /// The runs of a store.
    pub(crate) fn runs(&self, place: &Place) -> RunStore {
        RunStore::new(place.store.clone(), self.run_context())
    }

    /// Where scratch files of runs may lie.
    pub(crate) fn scratch_places(&self, place: &Place) -> ScratchPlaces {
        ScratchPlaces {
            state: self.env.raw("XDG_STATE_HOME").map(PathBuf::from),
            home: self.env.home.clone(),
            store: place.store.info().local_dir,
            temp: Some(self.env.raw("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from)),
        }
    }

    /// The run that RUN means, where the store is, and its workspace when that is here.
    pub(crate) async fn find_run(&self, text: &str) -> Result<(Place, Run)> {
        let Somewhere { settings, store, root } = self.anywhere().await?;
        let runs = RunStore::new(store.clone(), self.run_context());
        let here = root.as_ref().map(Root::text);
        let run = runs.resolve(text, here.as_deref()).await?;
        let chain = Chain::Run(run.id().clone());
        Ok((Place { settings, store, root, chain }, run))
    }

    /// As [`App::find_run`], for a verb that goes on with the run: in the workspace that
    /// its record names, wherever the command was started.
    pub(crate) async fn find_run_to_execute(&self, text: &str) -> Result<(Place, Run)> {
        let (place, run) = self.find_run(text).await?;
        let place = self.place_of(place, &run).await?;
        Ok((place, run))
    }

    /// The place in which a run works.
    pub(crate) async fn place_of(&self, place: Place, run: &Run) -> Result<Place> {
        let Some(dir) = run.record.work_dir.clone() else {
            return Err(Error::refused(
                "no-workspace",
                format!("run {} has no workspace", run.id()),
            ));
        };
        let bytes = backtrail_core::path::parse_text(&dir)?;
        let dir = PathBuf::from(OsString::from_vec(bytes));
        let host = self.ctx.host.clone();
        let root = blocking(move || Root::open(&dir, &host, true)).await?;
        if place.root.as_ref().is_some_and(|here| here.key != root.key) && !self.out.is_json() {
            self.out.notice(format!("the run's workspace is {}", quoted(&root.path)));
        }
        Ok(Place { root: Some(root), ..place })
    }

    /// Puts runs of this workspace in order whose process is gone. Fails with `busy` while
    /// a process of one still lives and, unless it is shared, while a run executes here
    /// that is driven from a shell: between two commands no lock says so.
    pub(crate) async fn reconcile_here(&self, place: &Place, share: bool) -> Result<()> {
        let runs = self.runs(place);
        let here = place.root()?.text();
        let mut gone = Vec::new();
        let mut rows = runs.list();
        while let Some(row) = rows.next().await {
            let RunRow::Run(run) = row? else { continue };
            if run.record.work_dir.as_ref() != Some(&here) || *run.status() != Status::Running {
                continue;
            }
            let within = run.record.checkpoint().is_some_and(|c| c.executing().is_some());
            match runs.liveness(&run).await? {
                Liveness::OwnerGone => gone.push(run.id().clone()),
                Liveness::Open { stale: false } if within && !share => {
                    runs.check_idle(&run).await?;
                }
                Liveness::Held(_) if ShellOwner::of(&run.record).is_some() && !share => {
                    runs.check_idle(&run).await?;
                }
                _ => {}
            }
        }
        for run in gone {
            self.reconcile_run(place, &run).await?;
        }
        Ok(())
    }

    /// Puts a run in order whose process is gone.
    pub(crate) async fn reconcile_run(&self, place: &Place, run: &RunId) -> Result<()> {
        let way = Way::of("reconcile", Arc::new(Unwatched));
        let place = self.drive_place(place, way).await?;
        if drive::reconcile(&place, run).await? != Reconciled::Fine {
            self.out.notice(format!("the process of run {run} is gone; it is resumable"));
        }
        Ok(())
    }

    /// Our environment, with what flags said of the store: commands of a run that record
    /// states themselves must mean the same one.
    fn child_environment(&self, place: &Place) -> Vec<(OsString, OsString)> {
        let mut out = self.env.all();
        let settings = &place.settings;
        let tenant = Some(&settings.tenant).filter(|tenant| *tenant != "default");
        let named =
            [("BACKTRAIL_OBJECTS", settings.objects.as_ref()), ("BACKTRAIL_TENANT", tenant)];
        let given = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        out.extend(given.map(|(name, value)| (name.into(), value.into())));
        out
    }

    /// What a drive is handed.
    pub(crate) async fn drive_place(&self, place: &Place, way: Way) -> Result<drive::Place> {
        let capture = self.capture_settings(place, way.command, true).await?;
        let nested = self.env.raw("BACKTRAIL_RUN_ID").is_some();
        Ok(drive::Place {
            runs: self.runs(place),
            ctx: self.run_context(),
            root: place.root()?.clone(),
            capture,
            settings: drive::Settings {
                command: way.command.to_owned(),
                environment: self.child_environment(place),
                scratch: self.scratch_places(place),
                grace: place.settings.run_grace,
                log_limit: place.settings.log_limit,
                capture_timeout: place.settings.capture_timeout,
                wait: place.settings.wait,
                share_workspace: way.share_workspace || nested,
                redact_guessed: !way.no_redact,
                store: Some(OsString::from(self.store_url(&place.settings)?)),
                streams: way.streams,
                keep_children: way.keep_children,
            },
            watcher: way.watcher,
        })
    }

    /// Prints how a run ended, and says which code to end with. `data` is false when
    /// standard output belongs to the run's command.
    pub(crate) fn run_ended(&self, report: &Report, data: bool) -> Result<Code> {
        let code = code_of(report);
        if self.out.is_json() {
            let mut value = serde_json::to_value(report)
                .map_err(|e| Error::invalid("the result cannot be written").with_source(e))?;
            value["exit_code"] = json!(code.0);
            self.out.json(&value);
            return Ok(code);
        }
        for line in self.lines(report) {
            if data { self.out.summary(line) } else { self.out.notice(line) }
        }
        Ok(code)
    }

    fn lines(&self, report: &Report) -> Vec<String> {
        let paint = match report.status {
            Status::Finished => Paint::Good,
            Status::PausedOperator | Status::PausedWaitingHuman => Paint::Warn,
            _ => Paint::Bad,
        };
        let status = self.out.paint(paint, report.status.as_str());
        let changes = changes(&report.changes);
        let took = format::elapsed(report.active_ms);
        let mut lines = vec![format!("{}  {status}  {changes}  {took}", printable(&report.name))];
        if let Some(error) = &report.error {
            let code = report.failure_code.as_ref().map_or("", |c| c.as_str());
            lines.push(format!("{code}: {}", printable(error)));
        }
        if let Some(questions) = report.questions.as_ref().and_then(Value::as_object) {
            for (key, question) in questions {
                let text = question.as_str().map_or_else(|| question.to_string(), str::to_owned);
                lines.push(format!("  {}: {}", printable(key), printable(&text)));
            }
        }
        if !report.coverage.complete {
            lines.push(uncovered(report));
        }
        lines.push(next_command(report));
        lines
    }
}

fn uncovered(report: &Report) -> String {
    match report.coverage.missed.is_empty() {
        true => {
            let run = &report.run_id;
            format!("not everything is covered   backtrail show latest --skipped --run {run}")
        }
        false => format!("not captured: {}", report.coverage.missed.join(", ")),
    }
}

/// True for a run of another runtime, which alone can go on with it.
pub(crate) fn is_external(run: &Run) -> bool {
    run.record.driver == Some(Driver::External)
}

/// What a person would type next.
fn next_command(report: &Report) -> String {
    let run = &report.run_id;
    match report.status {
        Status::PausedWaitingHuman => format!("backtrail answer {run}"),
        Status::PausedOperator | Status::FailedResumable | Status::Cancelled => {
            format!("backtrail resume {run}")
        }
        _ => format!("backtrail runs show {run}"),
    }
}

/// The code of a run's end: a signal, its status, then what is not covered.
fn code_of(report: &Report) -> Code {
    let signal = report.signal.as_deref().map(Way::signalled);
    let stopped = report.status == Status::FailedResumable;
    match (&report.status, signal) {
        (_, Some(code)) if stopped => code,
        (Status::Finished, _) if report.coverage.complete => exit::COMPLETE,
        (Status::Finished, _) => exit::PARTIAL,
        (Status::PausedWaitingHuman | Status::PausedOperator | Status::Queued, _) => exit::WAITING,
        _ => exit::FAILED,
    }
}

/// `+3 ~1 -0`.
pub(crate) fn changes(delta: &Delta) -> String {
    format!("+{} ~{} -{}", delta.added, delta.modified, delta.deleted)
}

/// Text of others for a terminal: no control character reaches it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// One node's line.
pub(crate) fn node_line(line: &NodeLine<'_>) -> String {
    let ms = u64::try_from(line.elapsed.as_millis()).unwrap_or(u64::MAX);
    let mut text = format!(
        "{} {}  {}  {}",
        line.node,
        line.iteration,
        printable(line.outcome),
        format::elapsed(ms)
    );
    if let Some(changed) = &line.changed {
        text.push_str(&format!("  {}", changes(changed)));
    }
    text
}
