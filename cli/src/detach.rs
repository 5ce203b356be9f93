//! Runs that go on without us: the same command once more, in a session of its own, and a
//! word from it once its run exists and is claimed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use backtrail_core::error::{Error, IoContext as _, Result};
use backtrail_core::fsx::Dir;
use backtrail_core::run::{remove_pid, write_pid};
use backtrail_core::tasks::blocking;
use serde_json::json;

use crate::context::App;
use crate::exit::{self, Code};

/// The hidden flag of the process that goes on.
const FLAG: &str = "--detached";
/// Begins the line that says the run is claimed.
pub(crate) const WORD: &str = "detached ";

/// Whether a run goes on without us.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Detach {
    /// Come back once the run has begun; it goes on without a terminal
    #[arg(long)]
    pub(crate) detach: bool,
    /// This is the process that goes on
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
}

/// Starts this command once more and waits for its word. What it says when it fails
/// before is passed on, with its exit code.
pub(crate) async fn start(app: &App) -> Result<Code> {
    let mut own = true;
    let args = crate::env::args().into_iter().skip(1).map(move |arg| {
        own &= arg != "--";
        if own && arg == "--detach" { FLAG.into() } else { arg }
    });
    let mut command = Command::new(crate::env::program()?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let told = blocking(move || {
        let what = || "the run cannot be started apart".to_owned();
        let mut child = command.spawn().context(what)?;
        let mut out = BufReader::new(child.stdout.take().ok_or_else(|| Error::invalid(what()))?);
        let mut line = String::new();
        out.read_line(&mut line).context(what)?;
        if let Some(run) = line.strip_prefix(WORD) {
            return Ok(Ok(run.trim_end().to_owned()));
        }
        let (mut rest, mut err) = (line.into_bytes(), Vec::new());
        out.read_to_end(&mut rest).context(what)?;
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_end(&mut err).context(what)?;
        }
        let status = child.wait().context(what)?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Err((rest, err, code)))
    })
    .await?;
    match told {
        Ok(run) if app.out.is_json() => {
            app.out.json(&json!({"run_id": run, "detached": true, "exit_code": 0}));
            Ok(exit::COMPLETE)
        }
        Ok(run) => {
            app.out.summary(format!("{run} has begun   backtrail logs {run} -f"));
            Ok(exit::COMPLETE)
        }
        Err((out, err, code)) => {
            app.out.bytes(&out);
            app.out.notice(String::from_utf8_lossy(&err).trim_end());
            Ok(u8::try_from(code).map_or(exit::FAILED, Code))
        }
    }
}

/// Leaves the session of whoever started us, so that its end is not ours.
pub(crate) fn leave_session() {
    // a process that leads a group already has a session of its own to stay in
    let _ = rustix::process::setsid();
}

/// The `.pid` of a detached run, for people; removed when dropped.
pub(crate) struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes it beside the record of `run` in a store that is a directory.
    pub(crate) async fn write(app: &App, store: Option<PathBuf>, run: &str) -> Result<Self> {
        let Some(dir) = store.map(|store| store.join("runs").join(run)) else {
            return Ok(Self(None));
        };
        let (path, pid) = (dir.clone(), app.ctx.host.pid);
        blocking(move || {
            let dir = Dir::open(&dir).context(|| format!("cannot open {}", dir.display()))?;
            write_pid(&dir, pid)
        })
        .await?;
        Ok(Self(Some(path)))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(dir) = self.0.as_ref().and_then(|dir| Dir::open(dir).ok()) {
            // what stays is evidence of nothing
            let _ = remove_pid(&dir);
        }
    }
}
