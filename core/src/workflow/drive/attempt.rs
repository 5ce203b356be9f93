//! One execution of the machine as a real process, and what its end means.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::secrets::Known;
use super::{Place, Streams};
use crate::error::{Error, Result};
use crate::fsx;
use crate::process::{
    self, Alive, Asked, AttemptFiles, Cause, End, Environment, Identity, Reported, RunKey, RunLog,
    Scratch, Stdio, Stop, Tee, Variables,
};
use crate::run::FailureCode;
use crate::tasks::blocking;
use crate::workflow::file::definition::OutputMode;
use crate::workflow::machine::{Execution, Outcome};

/// What all attempts of a drive share.
pub(super) struct Bench {
    pub(super) place: Place,
    pub(super) run: RunKey,
    pub(super) scratch: Arc<Scratch>,
    pub(super) alive: Alive,
    pub(super) log: Arc<RunLog>,
    pub(super) known: Arc<Known>,
    /// The run lock's token.
    pub(super) fence: u64,
}

/// How an attempt ended.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// The exit code, 128+n for a signal.
    pub(super) exit: Option<i32>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
    /// Commands left behind that had to be stopped.
    pub(super) killed: Vec<String>,
}

impl Ended {
    fn refused(code: &str, message: impl Into<String>) -> Self {
        let outcome =
            Outcome::Failed { code: code.to_owned(), message: message.into(), exit_code: None };
        Self { outcome, exit: None, notes: Vec::new(), killed: Vec::new() }
    }
}

impl Bench {
    /// Executes, and comes back when nothing of it is left.
    pub(super) async fn execute(self: Arc<Self>, execution: Execution, stop: Stop) -> Ended {
        let prepared = self.prepare(&execution).await;
        let (files, attempt) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return Ended::refused(FailureCode::TOOL_FAILED_PERMANENT, self.words(&e)),
        };
        if stop.asked().is_some() {
            return Ended { outcome: Outcome::Stopped, ..Ended::refused("", "") };
        }
        if matches!(self.place.settings.streams, Streams::Inherit) {
            let text = "the command had the terminal: its output is not recorded";
            // the log is best effort
            let _ = self.log.note(text).await;
        }
        let mut sink = self.log.sink(execution.branch.as_deref());
        match process::run(attempt, &mut sink, stop).await {
            Ok(outcome) => self.judge(execution, files, outcome).await,
            Err(e) => Ended::refused(code_of(&e), self.words(&e)),
        }
    }

    fn words(&self, e: &Error) -> String {
        self.known.redactor.text(e.message()).into_owned()
    }

    async fn prepare(&self, execution: &Execution) -> Result<(AttemptFiles, process::Attempt)> {
        let at = execution.attempt.clone();
        let input = execution.input.to_string();
        let answers = (!execution.answers.is_empty())
            .then(|| Value::Object(execution.answers.clone()).to_string());
        let scratch = self.scratch.clone();
        let files = blocking(move || {
            let answers = answers.as_ref().map(|a| a.as_bytes());
            scratch.attempt(&at.node, at.iteration, at.attempt, input.as_bytes(), answers)
        })
        .await?;
        let stdin = execution.stdin.clone().into_bytes();
        let stdio = match &self.place.settings.streams {
            Streams::Log => Stdio::Piped { stdin, tee: Tee::default() },
            Streams::Tee { make, own_input: true } => Stdio::Recorded { tee: make() },
            Streams::Tee { make, .. } => Stdio::Piped { stdin, tee: make() },
            Streams::Inherit => Stdio::Inherited,
        };
        let attempt = process::Attempt {
            command: execution.command.clone(),
            cwd: self.cwd(execution).await?,
            environment: self.environment(execution, &files),
            identity: Identity { run: self.run.clone(), execution: execution.execution_id.clone() },
            stdio,
            timeout: execution.timeout,
            grace: execution.grace.unwrap_or(self.place.settings.grace),
            background: match self.keeps(execution) {
                true => process::Background::Keep,
                false => process::Background::Kill,
            },
            alive: Some(self.alive.clone()),
            capture: execution.output != OutputMode::File,
        };
        Ok((files, attempt))
    }

    fn keeps(&self, execution: &Execution) -> bool {
        self.place.settings.keep_children || execution.background == process::Background::Keep
    }

    /// The directory, which must lie in the workspace once links are resolved.
    async fn cwd(&self, execution: &Execution) -> Result<PathBuf> {
        let root = self.place.root.path.clone();
        let Some(cwd) = execution.cwd.clone() else { return Ok(root) };
        blocking(move || {
            let wanted = root.join(&cwd);
            let found = fsx::canonical(&wanted)
                .map_err(|e| Error::failed("no-directory", format!("cwd {cwd:?}: {e}")))?;
            match found.starts_with(&root) {
                true => Ok(found),
                false => {
                    Err(Error::refused("outside", format!("cwd {cwd:?} leaves the workspace")))
                }
            }
        })
        .await
    }

    /// The engine's without what only other nodes may know, the file's and the node's,
    /// its secrets, then where it is.
    fn environment(&self, execution: &Execution, files: &AttemptFiles) -> Environment {
        let settings = &self.place.settings;
        let declared = &self.known.declared;
        let hidden =
            |name: &OsString| name.to_str().is_some_and(|name| declared.contains_key(name));
        let engine = settings.environment.iter().filter(|(name, _)| !hidden(name));
        let mut environment = Environment::new(engine.cloned());
        environment.layer(execution.env.clone());
        let own = execution.secrets.iter().filter_map(|s| Some((s.clone(), declared.get(s)?)));
        environment.layer(own.map(|(name, value)| (name, value.clone())));
        let of_engine = |name: &str| {
            let found = settings.environment.iter().rfind(|(n, _)| n == name);
            found.map(|(_, value)| value.clone())
        };
        environment.place(&Variables {
            run: self.run.clone(),
            node: execution.attempt.node.clone(),
            iteration: execution.attempt.iteration,
            attempt: execution.attempt.attempt,
            input: Some(files.input()),
            output: Some(files.output()),
            question: Some(files.question()),
            answers: Some(files.answers()),
            workspace: Some(self.place.root.path.clone()),
            store: settings.store.clone(),
            objects: of_engine("BACKTRAIL_OBJECTS"),
            tenant: of_engine("BACKTRAIL_TENANT"),
            fence: Some(self.fence),
        });
        environment
    }

    async fn judge(
        &self,
        execution: Execution,
        files: AttemptFiles,
        ended: process::Outcome,
    ) -> Ended {
        let clear = |named: &[process::Named]| -> Vec<String> {
            named.iter().map(|n| self.known.redactor.text(&n.command).into_owned()).collect()
        };
        let mut notes = Vec::new();
        let node = &execution.attempt.node;
        let left = clear(&ended.left);
        if !left.is_empty() {
            notes.push(format!("node {node}: no signal ends {}", left.join(", ")));
        }
        if ended.pipes_left && !self.keeps(&execution) {
            notes.push(format!("node {node}: a process outside the run kept its output open"));
        }
        let errors = [ended.tee_error.clone(), ended.sink_error.as_ref().map(|e| self.words(e))];
        notes.extend(errors.into_iter().flatten().map(|e| format!("node {node}: output: {e}")));
        let killed = clear(&ended.killed);
        let exit = match ended.end {
            End::Code(code) => code,
            End::Signal(signal) => 128 + signal,
        };
        let outcome = self.outcome(&execution, files, ended, exit, &mut notes).await;
        Ended { outcome, exit: Some(exit), notes, killed }
    }

    async fn outcome(
        &self,
        execution: &Execution,
        files: AttemptFiles,
        ended: process::Outcome,
        exit: i32,
        notes: &mut Vec<String>,
    ) -> Outcome {
        let failed = |code: &str, message: String| Outcome::Failed {
            code: code.to_owned(),
            message,
            exit_code: Some(exit),
        };
        match &ended.cause {
            Some(Cause::Stopped(_)) => return Outcome::Stopped,
            Some(Cause::Timeout) => {
                return Outcome::TimedOut { after: execution.timeout.unwrap_or_default() };
            }
            Some(Cause::WantsTerminal) => {
                let text = "the command wanted a terminal, which it does not have";
                return failed(FailureCode::EXECUTION_FAILED, text.to_owned());
            }
            None => {}
        }
        let end = ended.end;
        let (files, asked) = match blocking(move || {
            let asked = files.read_question(end);
            Ok((files, asked))
        })
        .await
        {
            Ok((files, Ok(asked))) => (files, asked),
            Ok((_, Err(e))) | Err(e) => {
                return failed(FailureCode::SCHEMA_VALIDATION, self.words(&e));
            }
        };
        match asked {
            Asked::Yes(mut question) => {
                question.questions = self.known.redactor.object(question.questions);
                return Outcome::Asked(question);
            }
            Asked::WithoutQuestion if !execution.success_codes.contains(&75) => {
                let text = "it exited with 75 and asked nothing";
                return failed(FailureCode::EXECUTION_FAILED, text.to_owned());
            }
            Asked::Ignored => {
                let node = &execution.attempt.node;
                notes.push(format!("node {node} wrote a question and exited with {exit}, not 75"));
            }
            Asked::WithoutQuestion | Asked::No => {}
        }
        let good =
            |code: i32| u8::try_from(code).is_ok_and(|c| execution.success_codes.contains(&c));
        match end {
            End::Code(code) if good(code) => match self.output(execution, files, ended).await {
                Ok(reported) => Outcome::Succeeded(reported),
                Err(e) => failed(FailureCode::SCHEMA_VALIDATION, self.words(&e)),
            },
            End::Code(code) => {
                failed(FailureCode::EXECUTION_FAILED, format!("it exited with {code}"))
            }
            End::Signal(signal) => {
                let text = format!("it was ended by signal {signal}");
                failed(FailureCode::EXECUTION_FAILED, text)
            }
        }
    }

    /// What it reported, redacted.
    async fn output(
        &self,
        execution: &Execution,
        files: AttemptFiles,
        ended: process::Outcome,
    ) -> Result<Reported> {
        let reported = match execution.output {
            OutputMode::File => blocking(move || files.read_output()).await?,
            OutputMode::StdoutJson => ended.captured.object()?,
            OutputMode::StdoutText => {
                let text = Value::from(ended.captured.text()?);
                let object = Map::from_iter([(String::from("text"), text)]);
                Reported { object, ..Reported::default() }
            }
        };
        Ok(Reported { object: self.known.redactor.object(reported.object), ..reported })
    }
}

/// The failure code of a command that could not be started.
fn code_of(e: &Error) -> &'static str {
    match e.code() {
        "command-not-found" | "command-not-executable" | "command-too-long" | "no-directory" => {
            FailureCode::TOOL_FAILED_PERMANENT
        }
        _ => FailureCode::EXECUTION_FAILED,
    }
}
