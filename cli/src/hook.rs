//! Hooks of agents: a command that an agent calls at certain moments, with JSON about the
//! moment on standard input. It must never stand in the agent's way: it answers within two
//! seconds or gives up, ends with 0, and prints nothing.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use backtrail_core::error::{Error, Result};
use backtrail_core::run::{Run, RunStore};
use backtrail_core::tasks::blocking;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::context::{App, Place, Somewhere};
use crate::exit::{self, Code};
use crate::external::of_session;

/// When work is given up, and when the process ends whatever it is stuck in.
const LIMIT: Duration = Duration::from_millis(1700);
const LAST: Duration = Duration::from_millis(1900);
/// The most that is read of what the agent says.
const MAX: u64 = 4 << 20;

/// The flag.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Flag {
    /// Read session and directory from the JSON that an agent's hook gets on standard
    /// input; give up after 2 s, print nothing, and end with 0 whatever happens
    #[arg(long)]
    pub(crate) hook: bool,
}

/// What the agent says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// Its session.
    pub(crate) session: String,
    /// The tool that it is about to use.
    pub(crate) tool: Option<String>,
}

impl Call {
    fn read(map: &Map<String, Value>) -> Result<(Self, Option<PathBuf>)> {
        let text = |names: &[&str]| {
            let found = names.iter().find_map(|name| map.get(*name)?.as_str());
            found.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let session = text(&["session_id", "sessionId", "session", "conversation_id"]);
        let session =
            session.ok_or_else(|| Error::invalid("the hook's input names no session_id"))?;
        let cwd = text(&["cwd", "workspace", "working_directory"]).map(PathBuf::from);
        Ok((Self { session, tool: text(&["tool_name", "toolName", "tool"]) }, cwd))
    }
}

/// Does what a hook asks for. `work` is not waited for longer than an agent would.
pub(crate) async fn answer(
    app: &App,
    work: impl AsyncFnOnce(&App, Call) -> Result<()>,
) -> Result<Code> {
    watch();
    let session = std::sync::OnceLock::new();
    let heard = async {
        let (call, cwd) = Call::read(&input().await?)?;
        if let Some(cwd) = cwd.filter(|dir| dir.is_absolute()) {
            app.start_at(cwd);
        }
        let _ = session.set(call.session.clone());
        work(app, call).await
    };
    let done = match tokio::time::timeout(LIMIT, heard).await {
        Ok(done) => done,
        Err(_) => Err(Error::failed("time-limit", "it took too long and was given up")),
    };
    if let Err(e) = done {
        note(app, session.get(), &e).await;
    }
    Ok(exit::COMPLETE)
}

/// Ends the process in time, also when it hangs in a system call.
fn watch() {
    #[expect(clippy::disallowed_methods, reason = "whatever is stuck, and without clean-up")]
    let wait = || {
        std::thread::sleep(LAST);
        std::process::exit(0);
    };
    // without the thread the limit of the runtime is what there is
    let _ = std::thread::Builder::new().name("hook".to_owned()).spawn(wait);
}

/// What the agent says: read up to the object's end, since not every agent closes the pipe.
async fn input() -> Result<Map<String, Value>> {
    blocking(|| {
        let stdin = std::io::stdin().lock().take(MAX);
        let mut objects = serde_json::Deserializer::from_reader(stdin).into_iter();
        let bad = |e: serde_json::Error| Error::invalid(format!("the hook's input: {e}"));
        objects.next().transpose().map_err(bad)?.ok_or_else(|| Error::invalid("it said nothing"))
    })
    .await
}

/// Tells it in the run log, where somebody who misses a boundary looks.
async fn note(app: &App, session: Option<&String>, e: &Error) {
    let Some(session) = session else { return };
    let noted = async {
        let Somewhere { store, .. } = app.anywhere().await?;
        let runs = RunStore::new(store, app.run_context());
        if let Ok(run) = of_session(&runs, session).await? {
            let text = format!("[backtrail] a hook failed: {}\n", e.message().replace('\n', " "));
            runs.append_log(run.id(), None, Bytes::from(text)).await?;
        }
        Ok::<(), Error>(())
    };
    // the agent is not told, and must not be
    let _ = tokio::time::timeout(Duration::from_millis(150), noted).await;
}

/// The open run of the agent's session.
pub(crate) async fn run_of(app: &App, call: &Call) -> Result<(Place, Run)> {
    let Somewhere { settings, store, root } = app.anywhere().await?;
    let runs = RunStore::new(store.clone(), app.run_context());
    let run = of_session(&runs, &call.session).await?.map_err(|_| {
        Error::not_found(format!("session {:?} has no open run", call.session))
            .with_hint("the hook of the session's start calls backtrail runs begin --hook")
    })?;
    let chain = backtrail_core::ids::Chain::Run(run.id().clone());
    Ok((Place { settings, store, root, chain }, run))
}
