//! What is printed: data on standard output, notices on standard error, one JSON
//! document with `--json`, and errors in one shape.

pub(crate) mod format;
mod pasted;

use std::error::Error as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use backtrail_core::error::Error;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::Common;
use crate::env::Env;
use crate::exit::{self, Code};
use crate::output::pasted::Pasted;
pub(crate) use crate::output::pasted::shell;
use crate::progress::Bar;

/// What a piece of text is, for its colour.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Paint {
    /// A snapshot id.
    Id,
    /// Something added, or all well.
    Good,
    /// Something deleted, or an error.
    Bad,
    /// Something to look at.
    Warn,
    /// Less important.
    Dim,
    /// A heading.
    Bold,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Id => "33",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warn => "35",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }
}

/// Prints for one command.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    pretty: bool,
    colour: bool,
    colour_errors: bool,
    pasted: Pasted,
    sink: Mutex<Sink>,
    bar: Arc<Bar>,
}

struct Sink {
    out: io::BufWriter<io::Stdout>,
    failed: Option<io::Error>,
}

impl Output {
    /// A printer for this command line and environment.
    pub(crate) fn new(env: &Env, common: &Common, bar: Arc<Bar>) -> Self {
        let colours = env.raw("NO_COLOR").is_none()
            && env.raw("TERM").is_none_or(|t| t.as_os_str() != "dumb");
        Self {
            json: common.json,
            quiet: common.quiet,
            pretty: env.stdout_terminal,
            colour: colours && env.stdout_terminal,
            colour_errors: colours && env.stderr_terminal,
            pasted: Pasted::new(common),
            sink: Mutex::new(Sink { out: io::BufWriter::new(io::stdout()), failed: None }),
            bar,
        }
    }

    /// `--json` was given.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// `text` in colour, where standard output takes colours.
    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        if self.colour { coloured(paint, text) } else { text.to_owned() }
    }

    /// One line of data.
    pub(crate) fn line(&self, text: impl AsRef<str>) {
        self.write(|out| writeln!(out, "{}", text.as_ref()));
    }

    /// One line that tells what a command did; nothing when quiet.
    pub(crate) fn summary(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.line(self.pasted.text(text.as_ref()));
        }
    }

    /// Exact bytes.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        self.write(|out| out.write_all(bytes));
    }

    /// The one JSON document of a command.
    pub(crate) fn json(&self, value: &impl Serialize) {
        self.write(|out| {
            if self.pretty {
                serde_json::to_writer_pretty(&mut *out, value)?;
            } else {
                serde_json::to_writer(&mut *out, value)?;
            }
            writeln!(out)
        });
    }

    /// What a prompt is about: on standard error, quiet or not.
    pub(crate) fn preview(&self, text: &str) {
        self.error_line(text.trim_end());
    }

    /// Something a person should know; on standard error.
    pub(crate) fn notice(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.error_line(&self.pasted.text(text.as_ref()));
        }
    }

    /// A warning in words, on standard error.
    pub(crate) fn warn(&self, text: &str) {
        self.notice(format!("{} {text}", self.heading(Paint::Warn, "warning:")));
    }

    /// A prompt: on standard error, without an end of line.
    pub(crate) fn prompt(&self, text: &str) {
        self.bar.clear();
        let mut err = io::stderr().lock();
        // Nobody is there to be told when standard error is closed.
        let _ = write!(err, "{text} ").and_then(|()| err.flush());
    }

    /// An error: message, causes and hint on standard error, or as JSON.
    pub(crate) fn error(&self, error: &Error, code: Code) {
        if self.json {
            self.json(&self.failure(error, code));
            return;
        }
        let mut text = format!("{} {}", self.heading(Paint::Bad, "error:"), error.message());
        for path in error.paths().iter().take(10).filter(|p| !error.message().contains(*p)) {
            text.push_str(&format!("\n  at: {path}"));
        }
        for cause in causes(error) {
            text.push_str(&format!("\n  caused by: {cause}"));
        }
        if let Some(hint) = error.hint() {
            let hint = self.pasted.text(hint);
            text.push_str(&format!("\n  {} {hint}", self.heading(Paint::Good, "hint:")));
        }
        self.error_line(&text);
    }

    /// An error as JSON.
    pub(crate) fn failure(&self, error: &Error, code: Code) -> Value {
        failure(error, code, &self.pasted)
    }

    /// Passes on what was printed so far.
    pub(crate) fn flush(&self) {
        self.write(|out| out.flush());
    }

    /// Flushes. The code to end with: another than `code` when standard output failed.
    pub(crate) fn finish(&self, code: Code) -> Code {
        self.write(|out| out.flush());
        let Some(failed) = self.sink().failed.take() else { return code };
        if failed.kind() == io::ErrorKind::BrokenPipe {
            return exit::pipe_closed();
        }
        // What was done stays done, whoever could not be told.
        self.error_line(&format!(
            "error: writing to standard output failed, after the command had ended with {}\n  \
             caused by: {failed}",
            code.0
        ));
        exit::FAILED
    }

    fn heading(&self, paint: Paint, text: &str) -> String {
        if self.colour_errors { coloured(paint, text) } else { text.to_owned() }
    }

    fn error_line(&self, text: &str) {
        self.bar.clear();
        let mut text = text.to_owned();
        text.push('\n');
        // One write, so that lines of two processes do not mix; a closed standard
        // error leaves nobody to tell.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    fn write(&self, what: impl FnOnce(&mut io::BufWriter<io::Stdout>) -> io::Result<()>) {
        self.bar.clear();
        let mut sink = self.sink();
        if sink.failed.is_none()
            && let Err(e) = what(&mut sink.out)
        {
            sink.failed = Some(e);
        }
    }

    /// True once nobody reads standard output any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.sink().failed.is_some()
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn coloured(paint: Paint, text: &str) -> String {
    format!("\x1b[{}m{text}\x1b[0m", paint.code())
}

fn causes(error: &Error) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(e) = cause {
        let text = e.to_string();
        // Some layers print their cause themselves; do not say it twice.
        if !error.message().ends_with(&text) && !out.iter().any(|o| o.ends_with(&text)) {
            out.push(text);
        }
        cause = e.source();
    }
    out
}

/// `{"error": {"code", "message", "hint"?, "paths"?, …}, "exit_code"}`.
fn failure(error: &Error, code: Code, pasted: &Pasted) -> Value {
    let mut map = Map::new();
    map.insert("code".into(), error.code().into());
    map.insert("message".into(), error.message().into());
    if let Some(hint) = error.hint() {
        map.insert("hint".into(), pasted.text(hint).into());
    }
    if !error.paths().is_empty() {
        map.insert("paths".into(), error.paths().into());
    }
    let causes = causes(error);
    if !causes.is_empty() {
        map.insert("causes".into(), causes.into());
    }
    for (key, value) in error.details() {
        map.entry(key.clone()).or_insert_with(|| value.clone());
    }
    json!({ "error": map, "exit_code": code.0 })
}

/// Prints the failure of a command line that could not be read.
pub(crate) fn usage_failure(message: &str, code: Code) {
    let value = json!({
        "error": { "code": "usage", "message": message },
        "exit_code": code.0,
    });
    // A closed standard output leaves nobody to tell.
    let _ = writeln!(io::stdout(), "{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_code_hint_paths_and_details() {
        let e = Error::refused("label-exists", "label x exists")
            .with_hint("backtrail label x --move")
            .with_paths(["a".to_owned()])
            .with_detail("previous", "1234")
            .with_source(io::Error::other("disk"));
        assert_eq!(
            failure(&e, exit::REFUSED, &Pasted::default()),
            json!({
                "error": {
                    "code": "label-exists", "message": "label x exists",
                    "hint": "backtrail label x --move", "paths": ["a"],
                    "causes": ["disk"], "previous": "1234",
                },
                "exit_code": 4,
            })
        );
    }
}
