//! `runs begin`: a run that a shell or another runtime drives.

use backtrail_core::error::{Error, Result};
use backtrail_core::run::{Driver, NewRun, Run, RunStore, ShellOwner};
use backtrail_core::workflow::drive::external::ExternalRun;
use serde_json::json;

use super::super::run::{environment, parent};
use crate::context::App;
use crate::exit::{self, Code};
use crate::external::{Manner, of_session, owned_by};
use crate::hook::{self, Flag};

/// Arguments of `runs begin`.
#[derive(clap::Args)]
#[command(
    after_help = "Prints the run's id. The same --session gives the same run while it is open.

Examples:
  R=$(backtrail runs begin --workflow deploy)
  backtrail runs begin --session \"$ID\" --owner-pid \"$PPID\"
  backtrail runs begin --hook --owner-pid \"$PPID\"   # in an agent's hook"
)]
pub(crate) struct Args {
    /// What is done, as the name of a workflow
    #[arg(long, value_name = "NAME", default_value = "session")]
    workflow: String,
    /// The session that the run is of
    #[arg(long, value_name = "KEY", conflicts_with = "hook")]
    session: Option<String>,
    /// The run is alive while this process is
    #[arg(long, value_name = "PID")]
    owner_pid: Option<u32>,
    /// The run's name [default: WORKFLOW-ID]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The run's id [default: a new one]
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "hook"])]
    run_id: Option<String>,
    /// Let other runs execute in the workspace meanwhile
    #[arg(long)]
    share_workspace: bool,
    #[command(flatten)]
    pub(crate) flag: Flag,
}

/// Begins.
pub(crate) async fn run(app: &App, args: &Args) -> Result<Code> {
    if args.flag.hook {
        let work = async |app: &App, call: hook::Call| {
            begin(app, args, Some(&call.session)).await.map(drop)
        };
        return hook::answer(app, work).await;
    }
    let (run, created) = begin(app, args, args.session.as_deref()).await?;
    match app.out.is_json() {
        true => app.out.json(&json!({
            "run_id": run.id(), "name": run.record.name, "created": created,
            "status": run.status(), "session": run.record.session_key, "exit_code": 0,
        })),
        false => app.out.line(run.id().as_str()),
    }
    Ok(exit::COMPLETE)
}

async fn begin(app: &App, args: &Args, session: Option<&str>) -> Result<(Run, bool)> {
    let place = app.place(false).await?;
    let owner = ShellOwner::new(&app.ctx.host, args.owner_pid)?;
    let runs = app.runs(&place);
    let mut id = args.run_id.clone();
    if let Some(key) = session {
        match of_session(&runs, key).await? {
            Ok(run) => {
                // before another owner: what the last one left is captured as his
                app.reconcile_run(&place, run.id()).await?;
                let run = runs.load(run.id()).await?;
                return joined(&runs, run, args, &owner, &place.root()?.text()).await;
            }
            Err(free) => id = Some(free),
        }
    }
    app.recover_by_policy(&place).await?;
    let share = args.share_workspace || parent(app).is_some();
    app.reconcile_here(&place, share).await?;
    let mut new = NewRun {
        id,
        name: args.name.clone(),
        driver: Driver::External,
        launch_env: Some(environment(app)),
        parent_run_id: parent(app),
        session_key: session.map(str::to_owned),
        ..NewRun::new(args.workflow.clone(), "start")
    };
    new.extra.extend([owner.field()?]);
    let hook = args.flag.hook;
    let manner = Manner { share_workspace: share, ..Manner::of("runs begin", hook) };
    let at = app.external_place(&place, manner).await?;
    match ExternalRun::create(at, new, manner.capture).await {
        Ok(run) => Ok((runs.load(run.id()).await?, true)),
        // another command of the session was faster
        Err(e) if e.is_conflict() && session.is_some() => {
            match of_session(&runs, session.unwrap_or_default()).await? {
                Ok(run) => joined(&runs, run, args, &owner, &place.root()?.text()).await,
                Err(_) => Err(e),
            }
        }
        Err(e) => Err(e),
    }
}

/// The session's run goes on; it has another owner when one is named.
async fn joined(
    runs: &RunStore,
    mut run: Run,
    args: &Args,
    owner: &ShellOwner,
    here: &str,
) -> Result<(Run, bool)> {
    if let Some(dir) = run.record.work_dir.as_ref().filter(|dir| *dir != here) {
        let text = format!("the session's run {} works in {dir}", run.id());
        return Err(Error::refused("other-workspace", text)
            .with_hint(format!("backtrail runs end {} --status finished", run.id())));
    }
    if args.owner_pid.is_some() {
        owned_by(runs, &mut run, owner).await?;
    }
    Ok((run, false))
}
