//! A dispatcher without a disk: it does what the machine says to a record of lines.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use backtrail_core::process::{Question, reported};
use backtrail_core::run::{Checkpoint, EngineEvent, Status};
use backtrail_core::snapshot::label::Phase;
use backtrail_core::workflow::check::check;
use backtrail_core::workflow::file::Definition;
use backtrail_core::workflow::machine::{
    Action, Execution, Failure, Input, Interaction, Limits, Machine, Outcome, Refusal, Resume,
    RunInfo, Start,
};
use serde_json::{Map, Value, json};

/// A workflow that must have no errors.
pub(crate) fn workflow(text: &str) -> Arc<Definition> {
    let text = format!("backtrail: 1\nname: test\n{text}");
    let checked = check("flow.yaml", text.as_bytes());
    checked.definition.unwrap_or_else(|| panic!("{}", checked.report.human()))
}

/// An object of JSON.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

/// Success with an output.
pub(crate) fn ok(output: Value) -> Outcome {
    let bytes = output.to_string();
    Outcome::Succeeded(reported(bytes.as_bytes(), "the output").expect("a valid output"))
}

/// Exit 75 with these questions.
pub(crate) fn asks(questions: Value) -> Outcome {
    Outcome::Asked(Question { questions: object(questions), answers: None })
}

/// A command that exits 1.
pub(crate) fn exit_1() -> Outcome {
    Outcome::Failed {
        code: "EXECUTION_FAILED".into(),
        message: "exit 1".into(),
        exit_code: Some(1),
    }
}

pub(crate) fn run_info() -> RunInfo {
    RunInfo {
        id: "r1".into(),
        name: "test-r1".into(),
        workspace: "/w".into(),
        file: "flow.yaml".into(),
    }
}

/// What a script says about an execution: `None` leaves it running.
pub(crate) type Script<'a> = &'a mut dyn FnMut(&Execution) -> Option<Outcome>;

/// A run, and everything that was done for it.
pub(crate) struct World {
    pub(crate) definition: Arc<Definition>,
    pub(crate) machine: Machine,
    /// One line a thing done: `capture pre:a:0`, `start a 0 1`, `edge a b`, `status finished`…
    pub(crate) lines: Vec<String>,
    pub(crate) events: Vec<EngineEvent>,
    pub(crate) open: Vec<Execution>,
    pub(crate) started: Vec<Execution>,
    pub(crate) delays: Vec<Duration>,
    pub(crate) interactions: Vec<Interaction>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) status: Status,
    pub(crate) failure: Option<Failure>,
    pub(crate) result: Option<Value>,
    pub(crate) active: Duration,
    pub(crate) gates: u64,
    /// Node → one above its highest `pre:`.
    pub(crate) labelled: BTreeMap<String, u64>,
    /// Whether pauses before retries are over at once.
    pub(crate) impatient: bool,
    queue: VecDeque<Input>,
}

impl World {
    /// A run that has begun; nothing has ended yet.
    pub(crate) fn begin(definition: &Arc<Definition>, start: Start) -> Self {
        let start = Start { run: run_info(), ..start };
        let (machine, actions) = Machine::start(definition.clone(), start);
        let mut world = Self::empty(definition, machine);
        world.take(actions);
        world
    }

    /// A run that is driven to where it ends or waits.
    pub(crate) fn run(definition: &Arc<Definition>, script: Script<'_>) -> Self {
        let mut world = Self::begin(definition, Start::default());
        world.drive(script);
        world
    }

    fn empty(definition: &Arc<Definition>, machine: Machine) -> Self {
        Self {
            definition: definition.clone(),
            checkpoint: machine.checkpoint(),
            machine,
            lines: Vec::new(),
            events: Vec::new(),
            open: Vec::new(),
            started: Vec::new(),
            delays: Vec::new(),
            interactions: Vec::new(),
            status: Status::Running,
            failure: None,
            result: None,
            active: Duration::ZERO,
            gates: 0,
            labelled: BTreeMap::new(),
            impatient: true,
            queue: VecDeque::new(),
        }
    }

    /// The run again, from what was saved, in another process.
    pub(crate) fn resume(&self, change: impl FnOnce(&mut Resume)) -> Result<Self, Refusal> {
        // a run whose process was killed is reconciled first
        let status = match &self.status {
            Status::Running => Status::FailedResumable,
            other => other.clone(),
        };
        self.resume_from(&self.checkpoint, status, change)
    }

    fn resume_from(
        &self,
        saved: &Checkpoint,
        status: Status,
        change: impl FnOnce(&mut Resume),
    ) -> Result<Self, Refusal> {
        let text = serde_json::to_string(saved).expect("a checkpoint is JSON");
        let saved: Checkpoint = serde_json::from_str(&text).expect("and is read back");
        let mut resume = Resume::new(run_info(), status);
        resume.next_gate = self.gates;
        resume.labelled.clone_from(&self.labelled);
        if let Some(interaction) = self.interactions.last() {
            resume.answer_schema = Some(interaction.answer_schema.clone());
            resume.turns.clone_from(&interaction.turns);
        }
        change(&mut resume);
        let (machine, actions) = Machine::resume(self.definition.clone(), &saved, resume)?;
        let mut world = Self::empty(&self.definition, machine);
        world.gates = self.gates;
        world.labelled.clone_from(&self.labelled);
        world.take(actions);
        Ok(world)
    }

    /// Answers the open question.
    pub(crate) fn answer(&self, answers: Value) -> Self {
        self.resume(|r| r.answers = Some(object(answers))).expect("the answers fit")
    }

    /// Feeds one input.
    pub(crate) fn feed(&mut self, input: Input) {
        let actions = self.machine.step(input, self.active);
        self.take(actions);
    }

    /// Feeds what waits, and ends what executes as the script says, until nothing is left.
    pub(crate) fn drive(&mut self, script: Script<'_>) {
        for _ in 0..100_000 {
            if let Some(input) = self.queue.pop_front() {
                self.feed(input);
                continue;
            }
            let Some((at, outcome)) =
                self.open.iter().enumerate().find_map(|(n, e)| Some((n, script(e)?)))
            else {
                return;
            };
            let execution = self.open.remove(at);
            self.feed(Input::Ended { attempt: execution.attempt, outcome });
        }
        panic!("the run does not end: {:?}", &self.lines[self.lines.len() - 20..]);
    }

    /// Ends one open execution.
    pub(crate) fn end(&mut self, node: &str, outcome: Outcome) {
        let at = self.open.iter().position(|e| e.attempt.node == node).expect("it executes");
        let execution = self.open.remove(at);
        self.feed(Input::Ended { attempt: execution.attempt, outcome });
        while let Some(input) = self.queue.pop_front() {
            self.feed(input);
        }
    }

    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.line(&action);
            match action {
                Action::Start(execution) => {
                    self.started.push((*execution).clone());
                    self.open.push(*execution);
                }
                Action::Emit(emission) => self.events.push(emission.event),
                Action::SaveCheckpoint { checkpoint, .. } => self.checkpoint = *checkpoint,
                Action::SetStatus { status, failure, result, checkpoint } => {
                    (self.status, self.failure, self.result) = (status, failure, result);
                    self.checkpoint = *checkpoint;
                }
                Action::Delay { attempt, length } => {
                    self.delays.push(length);
                    if self.impatient {
                        self.queue.push_back(Input::DelayOver(attempt));
                    }
                }
                Action::WriteInteraction(interaction) => self.interactions.push(interaction),
                Action::Continue => self.queue.push_back(Input::Continue),
                Action::Capture { boundary, .. } | Action::Alias { boundary, .. } => {
                    self.gates = self.gates.max(boundary.gate.map_or(0, |g| g + 1));
                    if let (Phase::Pre, Some(node), Some(n)) =
                        (boundary.phase, boundary.node, boundary.iteration)
                    {
                        let next = self.labelled.entry(node).or_insert(0);
                        *next = (*next).max(n + 1);
                    }
                }
                _ => {}
            }
        }
    }

    fn line(&mut self, action: &Action) {
        let line = match action {
            Action::Capture { boundary, .. } => {
                format!("capture {}", boundary.label().expect("a label"))
            }
            Action::Alias { boundary, .. } => {
                format!("alias {}", boundary.label().expect("a label"))
            }
            Action::Start(e) => {
                let a = &e.attempt;
                format!("start {} {} {}", a.node, a.iteration, a.attempt)
            }
            Action::Stop { execution, force } => {
                format!("{} {}", if *force { "kill" } else { "stop" }, execution.node)
            }
            Action::Emit(e) => match &e.event {
                EngineEvent::EdgeSelected { from, to, .. } => format!("edge {from} {to}"),
                event => format!("event {}", kind(event)),
            },
            Action::SetStatus { status, .. } => format!("status {status}"),
            Action::WriteArtifact { node, version, .. } => format!("artifact {node} {version}"),
            Action::WriteInteraction(i) => format!("interaction {}", i.id),
            Action::Warn(text) => format!("warn {text}"),
            _ => return,
        };
        self.lines.push(line);
    }

    /// The lines that begin with one of these words, without it where there is but one.
    pub(crate) fn only(&self, words: &[&str]) -> Vec<&str> {
        let begins = |line: &&String| words.iter().any(|w| line.split(' ').next() == Some(*w));
        let lines = self.lines.iter().filter(begins);
        match words {
            [word] => lines.map(|l| &l[word.len() + 1..]).collect(),
            _ => lines.map(String::as_str).collect(),
        }
    }

    /// The failure code of the run.
    pub(crate) fn code(&self) -> &str {
        self.failure.as_ref().map_or("", |f| &f.code)
    }

    /// Data of the events of a type.
    pub(crate) fn data(&self, kind: &str) -> Vec<Value> {
        let json = |e| serde_json::to_value(e).expect("an event is JSON");
        let events = self.events.iter().map(json).filter(|e| e["type"] == kind);
        events.map(|e| e.get("data").cloned().unwrap_or(json!({}))).collect()
    }
}

fn kind(event: &EngineEvent) -> String {
    let json = serde_json::to_value(event).expect("an event is JSON");
    json["type"].as_str().expect("a type").to_owned()
}

/// Limits of the duration alone.
pub(crate) fn duration_limit(seconds: u64) -> Limits {
    Limits { duration: Some(Duration::from_secs(seconds)), ..Limits::default() }
}
