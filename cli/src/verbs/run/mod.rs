//! `run`: execute a workflow, or one command, and record what it does.

mod command;
pub(crate) mod given;
mod inside;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use backtrail_core::error::{Error, IoContext as _, Result};
use backtrail_core::run::{NewRun, RunRecord, launch_env};
use backtrail_core::tasks::blocking;
use backtrail_core::workflow::check::{Checked, check};
use backtrail_core::workflow::drive::{self, Launch, NodeLine, Streams, Watcher};
use backtrail_core::workflow::file::Definition;
use backtrail_core::workflow::file::MAX_BYTES;
use backtrail_core::workflow::file::definition::{CaptureMode, WorktreeMode};
use clap::ValueEnum;
use serde_json::Value;

use crate::context::{App, Place, quoted};
use crate::detach::{self, Detach, PidFile};
use crate::exit::{self, Code};
use crate::running::{Way, node_line};

use given::Raises;

/// Arguments of `run`.
#[derive(clap::Args)]
#[command(
    after_help = "The workspace is captured before and after each node. Ends with 9 when the run waits
for a person, with 3 when it finished and something could not be covered.

Examples:
  backtrail run flow.yaml --input task='fix the tests'
  backtrail run flow.yaml --check
  backtrail run -- make test
  backtrail run --in $R --node build -- make
  backtrail run --child-exit --timeout 20m -- agent --task 'fix the tests'"
)]
pub(crate) struct Args {
    /// The workflow file
    #[arg(value_name = "FILE", required_unless_present = "command", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// The command to execute instead, and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Only say what is wrong with the file
    #[arg(long, requires = "file")]
    check: bool,
    #[command(flatten)]
    apart: Detach,
    #[command(flatten)]
    one: command::Options,
    /// Execute the command as a step of this run, which another runtime drives
    #[arg(
        long = "in",
        value_name = "RUN",
        requires = "command",
        help_heading = "Options of a single command"
    )]
    inside: Option<String>,
    /// An input; K=@FILE reads a file, @@ is a literal @
    #[arg(long = "input", value_name = "K=V", requires = "file")]
    inputs: Vec<String>,
    /// A JSON file with inputs
    #[arg(long, value_name = "FILE", requires = "file")]
    inputs_file: Option<PathBuf>,
    /// Replace a variable of the file
    #[arg(long = "var", value_name = "K=V", requires = "file")]
    vars: Vec<String>,
    /// The run's name [default: WORKFLOW-ID]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The run's id [default: a new one]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    #[command(flatten)]
    raises: Raises,
    /// What happens when a capture fails [default: as the file says]
    #[arg(long, value_name = "MODE")]
    capture: Option<Mode>,
    /// Let other runs execute in the workspace meanwhile
    #[arg(long)]
    share_workspace: bool,
    /// Redact declared secrets only, not what looks like one
    #[arg(long)]
    no_redact: bool,
}

/// What happens when a capture fails.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The run does not start
    Required,
    /// The run goes on and says so
    BestEffort,
    /// Nothing is captured
    Off,
}

impl From<Mode> for CaptureMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Required => Self::Required,
            Mode::BestEffort => Self::BestEffort,
            Mode::Off => Self::Off,
        }
    }
}

/// A workflow to be executed, and where it is from.
struct Source {
    name: String,
    path: Option<PathBuf>,
    bytes: Vec<u8>,
}

/// Executes.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.apart.detach {
        return detach::start(app).await;
    }
    if let Some(run) = &args.inside {
        inside::check(&args.one)?;
        return inside::run(app, run, &args.one, &args.command).await;
    }
    let here = match &args.file {
        Some(_) => None,
        None => Some(app.place(false).await?),
    };
    let source = args.source(here.as_ref()).await?;
    let checked = check(&source.name, &source.bytes);
    if args.check {
        return Ok(print_findings(app, &checked));
    }
    let definition = runnable(app, &source.name, &checked)?;
    check_worktree(&definition)?;
    let mut given = given::object_file(args.inputs_file.as_deref()).await?;
    given.extend(given::inputs(&definition, &args.inputs).await?);
    let inputs = drive::check_inputs(&definition, &given)?;
    let vars = given::vars(&definition, &args.vars).await?;
    let limits = args.raises.limits()?;
    let place = match here {
        Some(here) => here,
        None => app.place(false).await?,
    };
    app.recover_by_policy(&place).await?;
    app.reconcile_here(&place, args.share_workspace || parent(app).is_some()).await?;
    let lines = Arc::new(Lines::new(args.file.is_some(), args.apart));
    let way = Way {
        share_workspace: args.share_workspace,
        no_redact: args.no_redact,
        streams: args.streams(app),
        keep_children: args.one.keep_children(),
        ..Way::of("run", lines.clone())
    };
    let place = app.drive_place(&place, way).await?;
    let new = NewRun {
        id: args.run_id.clone(),
        name: args.name.clone(),
        workflow_source: Some(String::from_utf8_lossy(&source.bytes).into_owned()),
        file_path: source.path.map(|p| p.display().to_string()),
        launch_env: Some(environment(app)),
        parent_run_id: parent(app),
        ..NewRun::new(definition.name.value.clone(), definition.entry.value.clone())
    };
    let capture = args.capture.map(CaptureMode::from);
    let launch = Launch { definition, new, inputs, vars, limits, capture };
    let store = place.runs.store().info().local_dir;
    let work = drive::launch(place, launch, app.interrupts());
    let report = lines.show(app, store, work).await?;
    let code = app.run_ended(&report, args.file.is_some())?;
    Ok(args.one.code(&report).unwrap_or(code))
}

/// No run works in the person's own checkout that was to have one of its own.
fn check_worktree(definition: &Definition) -> Result<()> {
    if definition.worktree != WorktreeMode::Auto {
        return Ok(());
    }
    let text = "the workflow asks for a worktree of its own, which this build cannot make";
    Err(Error::refused("no-worktree", text)
        .with_hint("without `worktree: auto` it works in the workspace itself"))
}

impl Args {
    /// What is to be executed. `here` is where a command works.
    async fn source(&self, here: Option<&Place>) -> Result<Source> {
        if let Some(here) = here {
            return self.one.source(&self.command, here.root()?);
        }
        let file = self.file.as_ref().ok_or_else(|| Error::invalid("a file is needed"))?;
        Ok(Source {
            name: file.display().to_string(),
            path: Some(crate::env::absolute(file)?),
            bytes: read_file(file, MAX_BYTES as u64 + 1).await?,
        })
    }

    fn streams(&self, app: &App) -> Streams {
        // nobody reads what a detached command prints
        match self.file.is_some() || self.apart.detached {
            true => Streams::Log,
            false => self.one.streams(app),
        }
    }
}

/// What the record keeps of the environment.
pub(crate) fn environment(app: &App) -> std::collections::BTreeMap<String, String> {
    let all = app.env.all();
    launch_env(all.iter().filter_map(|(n, v)| Some((n.to_str()?, v.to_str()?))))
}

/// The run whose node started this command.
pub(crate) fn parent(app: &App) -> Option<String> {
    app.env.raw("BACKTRAIL_RUN_ID").and_then(|id| id.to_str()).map(str::to_owned)
}

/// Reads a file that a person named, at most `limit` bytes.
pub(crate) async fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let path = crate::env::absolute(path)?;
    blocking(move || {
        let what = || format!("cannot read {}", quoted(&path));
        let (dir, name) = match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) => (dir, OsString::from(name)),
            _ => return Err(Error::not_found(what())),
        };
        let absent = || Error::not_found(format!("{}: there is no such file", what()));
        // a person may name a link: what it leads to is meant
        let real = match backtrail_core::fsx::canonical(&dir.join(&name)) {
            Ok(real) => real,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(absent()),
            Err(e) => return Err(e).context(what),
        };
        let (Some(dir), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(absent());
        };
        let dir = backtrail_core::fsx::Dir::open(dir).context(what)?;
        let read = backtrail_core::fsx::read_small(&dir, name.as_encoded_bytes(), limit);
        read.context(what)?.ok_or_else(|| Error::invalid(format!("{}: it is no file", what())))
    })
    .await
}

fn print_findings(app: &App, checked: &Checked) -> Code {
    if app.out.is_json() {
        for finding in checked.report.json() {
            app.out.json(&finding);
        }
    } else {
        app.out.bytes(checked.report.human().as_bytes());
        if checked.report.findings().is_empty() {
            app.out.summary("nothing is wrong with it");
        }
    }
    if checked.report.errors() == 0 { exit::COMPLETE } else { exit::USAGE }
}

/// The workflow, when it has no error; warnings are told.
pub(crate) fn runnable(app: &App, name: &str, checked: &Checked) -> Result<Arc<Definition>> {
    if !app.out.is_json() && !checked.report.findings().is_empty() {
        app.out.notice(checked.report.human().trim_end());
    }
    checked.definition.clone().ok_or_else(|| {
        let n = checked.report.errors();
        let count = crate::output::format::count(n as u64, "error");
        Error::invalid(format!("workflow {name} has {count}"))
            .with_code("bad-workflow")
            .with_detail("findings", Value::Array(checked.report.json()))
    })
}

/// Lines of nodes as they come, printed by the thread that prints.
pub(crate) struct Lines {
    waiting: Mutex<Vec<Line>>,
    came: tokio::sync::Notify,
    nodes: bool,
    apart: Detach,
}

enum Line {
    Begun(String),
    Node(String),
    Warning(String),
}

impl Lines {
    /// With `nodes`, each node's end is a line.
    pub(crate) fn new(nodes: bool, apart: Detach) -> Self {
        if apart.detached {
            detach::leave_session();
        }
        let nodes = nodes && !apart.detached;
        Self { waiting: Mutex::default(), came: tokio::sync::Notify::new(), nodes, apart }
    }

    fn add(&self, line: Line) {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner()).push(line);
        self.came.notify_one();
    }

    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Waits for a drive and prints its lines meanwhile.
    pub(crate) async fn show<T>(
        &self,
        app: &App,
        store: Option<PathBuf>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut work = std::pin::pin!(work);
        let mut _pid = None;
        loop {
            let done = tokio::select! {
                done = &mut work => Some(done),
                () = self.came.notified() => None,
            };
            for line in self.take() {
                match line {
                    Line::Begun(run) => {
                        match PidFile::write(app, store.clone(), &run).await {
                            Ok(file) => _pid = Some(file),
                            Err(e) => app.out.warn(e.message()),
                        }
                        app.out.line(format!("{}{run}", detach::WORD));
                        app.out.flush();
                    }
                    Line::Node(text) if self.nodes && !app.out.is_json() => {
                        app.out.summary(text);
                        app.out.flush();
                    }
                    Line::Node(_) => {}
                    Line::Warning(text) => app.out.warn(&text),
                }
            }
            if let Some(done) = done {
                return done;
            }
        }
    }
}

impl Watcher for Lines {
    fn begun(&self, run: &RunRecord) -> Result<()> {
        if self.apart.detached {
            self.add(Line::Begun(run.id().to_string()));
        }
        Ok(())
    }

    fn node(&self, line: &NodeLine<'_>) {
        self.add(Line::Node(node_line(line)));
    }

    fn warning(&self, text: &str) {
        self.add(Line::Warning(crate::running::printable(text)));
    }
}
