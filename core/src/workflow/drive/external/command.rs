//! A command as a step of an external run: executed as a node's command is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Entry, ExternalRun};
use crate::error::Result;
use crate::process::{self, Alive, Background, Command, RunKey, Scratch};
use crate::run::FailureCode;
use crate::tasks::blocking;
use crate::workflow::drive::Interrupts;
use crate::workflow::drive::attempt::{Bench, Ended};
use crate::workflow::drive::secrets::Known;
use crate::workflow::drive::watch::heartbeat;
use crate::workflow::file::definition::OutputMode;
use crate::workflow::machine::{Attempt, Execution, Outcome};

/// A command to be executed.
#[derive(Clone, Debug)]
pub struct Job {
    /// Program and arguments.
    pub command: Command,
    /// A directory below the workspace to work in.
    pub cwd: Option<String>,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The entry into its node, from 0.
    pub iteration: u64,
    /// The attempt, from 1.
    pub attempt: u64,
    /// The exit code, 128+n for a signal.
    pub child_exit: Option<i32>,
    /// Failure code and message; `None` when it succeeded or asks.
    pub failure: Option<(String, String)>,
    /// It asked a question: the run is paused.
    pub asks: bool,
    /// The signal that stopped it.
    pub signal: Option<String>,
}

impl ExternalRun {
    /// Executes a command as a step at `node`, which ends as the command does.
    pub async fn execute(
        &self,
        node: &str,
        job: Job,
        mut interrupts: Interrupts,
    ) -> Result<Executed> {
        let step = self.enter(node, Entry::Resumed).await?;
        let bench = self.bench().await?;
        let beat = heartbeat(bench.scratch.clone(), bench.place.ctx.clock.clone());
        let beat = tokio::spawn(beat);
        let at = Attempt {
            node: step.node().to_owned(),
            iteration: step.iteration(),
            attempt: step.attempt(),
        };
        let (stopper, stop) = process::stop_pair();
        let log = bench.log.clone();
        let mut work = std::pin::pin!(bench.execute(self.execution(at, job, &step), stop));
        let mut signal: Option<String> = None;
        let ended = loop {
            tokio::select! {
                ended = &mut work => break ended,
                Some(name) = interrupts.recv() => match &signal {
                    Some(_) => stopper.stop_now("the run stops"),
                    None => {
                        stopper.stop("the run stops");
                        signal = Some(name);
                    }
                },
            }
        };
        beat.abort();
        let flushed = log.flush().await;
        let mut state = self.shared.state.lock().await;
        if let Err(e) = flushed {
            state.warn(format!("the end of the run log is lost: {}", e.message()));
        }
        ended.notes.iter().for_each(|note| state.warn(note.clone()));
        drop(state);
        self.close(step, ended, signal).await
    }

    async fn bench(&self) -> Result<Arc<Bench>> {
        let state = self.shared.state.lock().await;
        let place = (*state.place).clone();
        let key = RunKey::new(&self.id, &place.runs.store().info());
        let (places, name) = (place.settings.scratch.clone(), key.scratch());
        let (scratch, alive) = blocking(move || {
            process::adopt_orphans();
            let scratch = Scratch::open(&places, &name)?;
            let alive = Alive::hold(scratch.dir())?;
            Ok((scratch, alive))
        })
        .await?;
        let redactor = state.redactor.clone();
        let log = state.runs().open_log(&self.id, place.settings.log_limit, redactor.clone());
        let fence = state.held.as_ref().map_or(0, |held| held.claim.fence().token);
        let known = Known { declared: BTreeMap::new(), redactor, warnings: Vec::new() };
        Ok(Arc::new(Bench {
            run: key,
            scratch: Arc::new(scratch),
            alive,
            log: log.await?,
            known: Arc::new(known),
            fence,
            place,
        }))
    }

    fn execution(&self, at: Attempt, job: Job, step: &super::Step) -> Execution {
        Execution {
            branch: None,
            execution_id: format!("{}:{}:{}", self.id, at.node, at.iteration),
            command: job.command,
            cwd: job.cwd,
            env: BTreeMap::new(),
            secrets: Vec::new(),
            stdin: String::new(),
            timeout: job.timeout,
            grace: None,
            success_codes: vec![0],
            output: OutputMode::File,
            background: Background::Kill,
            input: json!({"run": self.id, "node": at.node}),
            answers: match step.answers().is_empty() {
                true => Map::new(),
                false => Map::from_iter([(at.node.clone(), Value::from(step.answers().clone()))]),
            },
            attempt: at,
        }
    }

    async fn close(
        &self,
        step: super::Step,
        ended: Ended,
        signal: Option<String>,
    ) -> Result<Executed> {
        let mut done = Executed {
            iteration: step.iteration(),
            attempt: step.attempt(),
            child_exit: ended.exit,
            failure: None,
            asks: false,
            signal,
        };
        let failure = match ended.outcome {
            Outcome::Succeeded(reported) => {
                step.finish(reported.object).await?;
                return Ok(done);
            }
            Outcome::Asked(question) => {
                step.pause(question.questions).await?;
                done.asks = true;
                return Ok(done);
            }
            Outcome::Failed { code, message, .. } => (code, message),
            Outcome::TimedOut { after } => {
                (FailureCode::TIMEOUT.to_owned(), format!("it took longer than {after:?}"))
            }
            Outcome::Stopped => {
                let why = done.signal.as_deref().unwrap_or("a stop");
                (FailureCode::INTERRUPTED.to_owned(), format!("interrupted by {why}"))
            }
        };
        step.fail(&failure.0, &failure.1).await?;
        done.failure = Some(failure);
        Ok(done)
    }
}
