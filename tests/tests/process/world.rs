//! How these tests run a command and look at processes.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command as Std;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use backtrail_core::error::Result;
use backtrail_core::process::{
    Attempt, Background, Chunk, Command, Environment, Identity, Outcome, RunKey, Sink, Stdio, Stop,
    Stream, Tee, Variables, run,
};

/// Long enough for anything on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Runs `body` in a process of its own that adopts orphans, as an engine's does. `name`
/// is the test's own full name.
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    const MARK: &str = "BACKTRAIL_TEST_ALONE";
    if std::env::var_os(MARK).is_some_and(|n| n == name) {
        assert!(backtrail_core::process::adopt_orphans(), "the system can");
        return body();
    }
    let exe = std::env::current_exe().expect("this test");
    let out = Std::new(exe).args([name, "--exact", "--nocapture"]).env(MARK, name).output();
    let out = out.expect("starts");
    let shown = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{name}: {shown}");
    assert!(shown.contains("1 passed"), "{name} is this test's full name: {shown}");
}

/// Runs a future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

/// Keeps all output.
#[derive(Default)]
pub(crate) struct Collect(pub(crate) Vec<Chunk>);

#[async_trait]
impl Sink for Collect {
    async fn chunk(&mut self, chunk: Chunk) -> Result<()> {
        self.0.push(chunk);
        Ok(())
    }
}

impl Collect {
    /// What one stream said.
    pub(crate) fn text(&self, stream: Stream) -> String {
        let of = self.0.iter().filter(|c| c.stream == stream);
        let bytes: Vec<u8> = of.flat_map(|c| c.bytes.to_vec()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The run of this process's attempts.
pub(crate) fn key() -> RunKey {
    RunKey { run: format!("run-{}", std::process::id()), store: String::from("tests") }
}

/// An attempt of a command in `cwd`, of an iteration that no other attempt has.
pub(crate) fn attempt(command: Command, cwd: &Path) -> Attempt {
    static ITERATION: AtomicU64 = AtomicU64::new(0);
    let at = Variables {
        run: key(),
        node: "n".to_owned(),
        iteration: ITERATION.fetch_add(1, Ordering::SeqCst),
        attempt: 1,
        ..Variables::default()
    };
    let mut environment = Environment::new(std::env::vars_os());
    environment.place(&at);
    Attempt {
        command,
        cwd: cwd.to_owned(),
        environment,
        identity: Identity { run: at.run.clone(), execution: at.execution() },
        stdio: Stdio::Piped { stdin: Vec::new(), tee: Tee::default() },
        timeout: Some(LONG),
        grace: Duration::from_secs(10),
        background: Background::Kill,
        alive: None,
        capture: false,
    }
}

/// An attempt of shell text.
pub(crate) fn sh(text: &str, cwd: &Path) -> Attempt {
    attempt(Command::Shell { shell: "/bin/sh".into(), text: text.into() }, cwd)
}

/// An attempt of a program.
pub(crate) fn argv(words: &[&str], cwd: &Path) -> Attempt {
    attempt(Command::Argv(words.iter().map(OsString::from).collect()), cwd)
}

/// Runs it; the outcome, standard output and standard error.
pub(crate) fn go(attempt: Attempt) -> Result<(Outcome, String, String)> {
    go_until(attempt, Stop::never())
}

/// The same, with somebody who may ask it to stop.
pub(crate) fn go_until(attempt: Attempt, stop: Stop) -> Result<(Outcome, String, String)> {
    let mut sink = Collect::default();
    let outcome = block_on(run(attempt, &mut sink, stop))?;
    Ok((outcome, sink.text(Stream::Out), sink.text(Stream::Err)))
}

/// Waits until a file is there and not empty; its text.
pub(crate) fn wait_for(path: &Path) -> String {
    let began = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(began.elapsed() < LONG, "{} never came", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True while a process runs; one that only waits to be reaped does not.
pub(crate) fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| !s[s.rfind(')').expect("a name")..].starts_with(") Z"))
}

/// This process's children that wait to be reaped.
pub(crate) fn zombies() -> usize {
    let me = std::process::id().to_string();
    let rows = std::fs::read_dir("/proc").expect("a list");
    let stats = rows.flatten().filter_map(|r| std::fs::read_to_string(r.path().join("stat")).ok());
    stats
        .filter(|s| {
            let mut fields = s[s.rfind(')').expect("a name") + 2..].split(' ');
            fields.next() == Some("Z") && fields.next() == Some(&me)
        })
        .count()
}
