//! Questions to a person: `human` nodes, and commands that ask.

use serde_json::{Map, Value};

use super::{Action, Attempt, Failure, Interaction, Line, Machine, Turn};
use crate::process::Question;
use crate::run::{EngineEvent, FailureCode, Status};
use crate::snapshot::label::Phase as BoundaryPhase;
use crate::workflow::answers::{schema_from_json, schema_json, text_schema};
use crate::workflow::file::definition::{HumanSpec, Kind, Node, Templated};
use crate::workflow::template;

/// How often a command may ask in one iteration.
const MAX_ASKS: u64 = 20;

impl Machine {
    /// The id of the n-th question of an iteration.
    pub(super) fn interaction_id(&self, attempt: &Attempt, n: u64) -> String {
        let Attempt { node, iteration, .. } = attempt;
        let run = &self.run.id;
        match (iteration, n) {
            (0, 0) => format!("{run}_{node}"),
            (_, 0) => format!("{run}_{node}.{iteration}"),
            _ => format!("{run}_{node}.{iteration}.{n}"),
        }
    }

    /// A `human` node asks.
    pub(super) fn ask_person(&mut self, node: &Node, spec: &HumanSpec) {
        let questions = Templated::Map(spec.questions.clone());
        let questions = match self.with_scope(Line::Main, |s| template::build(&questions, s)) {
            Ok(questions) => super::object(questions),
            Err(failure) => return self.failed(Line::Main, failure),
        };
        let id = self.interaction_id(&self.attempt(Line::Main), 0);
        self.ask(Interaction {
            id,
            node: node.id.value.clone(),
            questions,
            answer_schema: schema_json(&spec.answers),
            turns: Vec::new(),
            answers: None,
        });
    }

    /// A command asks: exit 75 with a question file.
    pub(super) fn execution_asked(&mut self, line: Line, node: &Node, question: &Question) {
        let refused = |text: &str| Failure {
            exit_code: Some(75),
            ..Failure::new(FailureCode::EXECUTION_FAILED, text)
        };
        if line != Line::Main {
            let text = "a node in a fan-out cannot ask a person";
            return self.failed(line, refused(text));
        }
        if !matches!(node.kind, Kind::Run(_)) {
            return self
                .failed(line, refused("a companion cannot ask: it is the review that asks"));
        }
        let answer_schema = match asked_for(question) {
            Ok(schema) => schema,
            Err(text) => {
                return self.failed(line, Failure::new(FailureCode::SCHEMA_VALIDATION, text));
            }
        };
        let attempt = self.attempt(line);
        let open = (0..MAX_ASKS)
            .map(|n| self.interaction_id(&attempt, n))
            .find(|id| !self.state.answered.contains_key(id));
        let Some(id) = open else {
            let text = format!("it asked {MAX_ASKS} times in one iteration and asks again");
            return self.failed(line, refused(&text));
        };
        let node = node.id.value.clone();
        let (questions, turns) = (question.questions.clone(), Vec::new());
        self.ask(Interaction { id, node, questions, answer_schema, turns, answers: None });
    }

    fn ask(&mut self, interaction: Interaction) {
        let event = EngineEvent::HumanInputRequested {
            interaction_id: interaction.id.clone(),
            questions: Value::Object(interaction.questions.clone()),
            review: None,
            instructions: None,
            posture: None,
            verdict: None,
            turn: None,
            turns: None,
        };
        self.wait_for_person(interaction, event);
    }

    /// Parks the run until a person answers: the capture and the interaction come before
    /// the status says so.
    pub(super) fn wait_for_person(&mut self, interaction: Interaction, event: EngineEvent) {
        self.capture(self.here(BoundaryPhase::Pause));
        let mut checkpoint = Box::new(self.checkpoint());
        checkpoint.interaction_id = Some(interaction.id.clone());
        checkpoint.interaction_questions = Some(Value::Object(interaction.questions.clone()));
        self.push(Action::WriteInteraction(interaction));
        self.emit(Some(Line::Main), event);
        let reason = Some(String::from("human"));
        self.emit(Some(Line::Main), EngineEvent::RunPaused { reason });
        let status = Status::PausedWaitingHuman;
        self.finish_with(Action::SetStatus { status, failure: None, result: None, checkpoint });
    }

    /// A person answered the open question of the run's node.
    pub(super) fn answered(&mut self, interaction_id: &str, answers: Map<String, Value>) {
        let event = EngineEvent::HumanAnswersRecorded {
            interaction_id: interaction_id.to_owned(),
            answers: Value::Object(answers.clone()),
        };
        self.emit(Some(Line::Main), event);
        self.state.answered.insert(interaction_id.to_owned(), Value::Object(answers.clone()));
        let Some(node) = self.node(Line::Main) else { return };
        match &node.kind {
            Kind::Human(_) => self.succeeded(Line::Main, &node, answers),
            Kind::Review(spec) => self.person_reviewed(&node, spec, interaction_id, &answers),
            _ => {
                self.next_attempt();
                self.save(true);
                self.try_node(Line::Main);
            }
        }
    }

    /// The next try inside the present iteration.
    pub(super) fn next_attempt(&mut self) {
        if let Some((_, attempt)) = &mut self.state.main.at {
            *attempt = attempt.saturating_add(1);
        }
    }

    /// Adds a turn to the open review.
    pub(super) fn add_turn(&mut self, role: &str, content: &str, verdict: Option<Value>) {
        let (role, content) = (role.to_owned(), content.to_owned());
        self.state.turns.push(Turn { role, content, verdict });
    }
}

/// What a question asks for, as an interaction keeps it.
fn asked_for(question: &Question) -> Result<Value, String> {
    if question.questions.is_empty() {
        return Err(String::from("\"questions\" of the question file is empty"));
    }
    let schema = match &question.answers {
        Some(answers) => schema_from_json(answers)?,
        None => text_schema(question.questions.keys()),
    };
    Ok(schema_json(&schema))
}
