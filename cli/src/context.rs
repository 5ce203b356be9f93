//! What a verb is handed: settings, printer, the engine's context, and the store,
//! workspace and chain that the command line means.

use std::sync::Arc;
use std::time::Duration;

use backtrail_core::clock::Cancel;
use backtrail_core::error::{Error, Kind, Result};

use crate::args::Common;
use crate::env::Env;
use crate::exit::{self, Code};
use crate::output::Output;
use crate::progress::Bar;
use crate::settings::{Override, Settings};
use crate::signals::Signals;

/// Everything a verb is handed.
pub(crate) struct App {
    /// The environment.
    pub(crate) env: Env,
    /// Flags that every verb knows.
    pub(crate) common: Common,
    /// The printer.
    pub(crate) out: Output,
    cancel: Cancel,
    overrides: Vec<Override>,
    signals: Signals,
}

impl App {
    /// Sets all up; opens nothing yet.
    pub(crate) fn new(env: Env, common: Common, overrides: Vec<Override>) -> Self {
        let bar = Arc::new(Bar::new(env.stderr_terminal && !common.quiet));
        let out = Output::new(&env, common.json, common.quiet, bar);
        let cancel = Cancel::default();
        let signals = Signals::listen(cancel.clone(), crate::env::ignored_signals());
        Self { env, common, out, cancel, overrides, signals }
    }

    /// The settings. Fails with `bad-value`, naming the source.
    pub(crate) fn settings(&self) -> Result<Settings> {
        Settings::resolve(&self.env, &self.overrides, self.common.workspace.clone())
    }

    /// Ends once a signal asked to stop.
    pub(crate) async fn cancelled(&self) {
        while !self.cancel.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The error of a command that a signal stopped.
    pub(crate) fn interrupted(&self) -> Error {
        let stopped = self.cancel.check().err();
        stopped.unwrap_or_else(|| Error::new(Kind::Interrupted, "interrupted", "interrupted"))
    }

    /// Prints an error, flushes, and says which code to end with.
    pub(crate) fn finish(&self, result: Result<Code>) -> Code {
        let code = match result {
            Ok(code) => code,
            Err(e) => {
                let code = self.code_of(&e);
                self.out.error(&e, code);
                code
            }
        };
        self.out.finish().unwrap_or(code)
    }

    /// A failure after a signal is that signal's, whatever layer gave up first; what
    /// was complete before the signal was heard stays complete.
    fn code_of(&self, e: &Error) -> Code {
        match self.signals.first() {
            Some(n) if e.kind() != Kind::Invalid => exit::signalled(n),
            _ => exit::of(e),
        }
    }
}
