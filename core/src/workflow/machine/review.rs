//! Review gates: rounds of a companion and a person on one interaction.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::finish::own_output;
use super::{Action, Execution, Failure, Interaction, Line, Machine};
use crate::process::Reported;
use crate::run::{EngineEvent, FailureCode};
use crate::snapshot::label::{Boundary, Phase as BoundaryPhase};
use crate::workflow::answers::{AnswerSchema, schema_json};
use crate::workflow::file::definition::{AnswerSpec, Node, Posture, ReviewSpec, ValueType};
use crate::workflow::template::{Mode, render};

impl Machine {
    /// A round: a gate, then the companion if there is one, then the person.
    pub(super) fn begin_round(&mut self, node: &Node, spec: &ReviewSpec) {
        let again = self.state.retries.contains_key(&node.id.value);
        if !again {
            let gate = Some(self.state.next_gate);
            self.state.next_gate = self.state.next_gate.saturating_add(1);
            let phase = BoundaryPhase::Gate;
            self.capture(Boundary { phase, node: None, iteration: None, attempt: None, gate });
        }
        match self.companion(node, spec) {
            Ok(Some(execution)) => self.push(Action::Start(Box::new(execution))),
            Ok(None) => self.ask_review(node, spec, None),
            Err(failure) => self.failed(Line::Main, failure),
        }
    }

    fn companion(&self, node: &Node, spec: &ReviewSpec) -> Result<Option<Execution>, Failure> {
        let Some(companion) = &spec.companion else { return Ok(None) };
        let instructions = self.instructions(spec)?;
        let mut execution = self.execution(Line::Main, node, companion)?;
        execution.input["review"] = json!({
            "instructions": instructions,
            "turn": self.round(),
            "turns": self.state.turns.iter().map(|t| json!({
                "role": t.role, "content": t.content, "verdict": t.verdict,
            })).collect::<Vec<_>>(),
        });
        Ok(Some(execution))
    }

    fn instructions(&self, spec: &ReviewSpec) -> Result<String, Failure> {
        self.with_scope(Line::Main, |s| render(&spec.instructions, s, Mode::Plain))
    }

    /// The present round, from 1: a person's turn ends one.
    fn round(&self) -> u64 {
        1 + self.state.turns.iter().filter(|t| t.role == "human").count() as u64
    }

    /// The companion of a review ended well.
    pub(super) fn companion_spoke(&mut self, node: &Node, spec: &ReviewSpec, reported: &Reported) {
        self.spend(reported);
        let output = &reported.object;
        let spoken = own_output(reported).and_then(|output| {
            let content = output.get("content").and_then(Value::as_str);
            let content = content.ok_or_else(|| wrong("content must be text"))?;
            Ok((content.to_owned(), Verdict::read(output.get("verdict"))?))
        });
        let (content, verdict) = match spoken {
            Ok(spoken) => spoken,
            Err(failure) => return self.failed(Line::Main, failure),
        };
        self.state.retries.remove(&node.id.value);
        let turn = self.round();
        self.add_turn("companion", &content, output.get("verdict").cloned());
        let role = String::from("companion");
        self.emit(Some(Line::Main), EngineEvent::ReviewTurn { role, turn });
        if let Some(verdict) = &verdict {
            self.emit(Some(Line::Main), verdict.event());
        }
        let approved = verdict.as_ref().is_some_and(Verdict::approves);
        if spec.posture == Posture::Companion && approved {
            let interaction = self.interaction(node, spec, None);
            match interaction {
                Ok((interaction, _)) => self.push(Action::WriteInteraction(interaction)),
                Err(failure) => return self.failed(Line::Main, failure),
            }
            return self.review_ended(node, "approve", &content);
        }
        if !self.check_budget() {
            return self.ask_review(node, spec, output.get("verdict").cloned());
        }
        self.out_of_budget(Line::Main);
    }

    fn interaction(
        &self,
        node: &Node,
        spec: &ReviewSpec,
        answers: Option<Map<String, Value>>,
    ) -> Result<(Interaction, String), Failure> {
        let instructions = self.instructions(spec)?;
        let questions = super::object(json!({
            "decision": instructions,
            "comment": "What is to be changed, or why.",
        }));
        let interaction = Interaction {
            id: self.interaction_id(&self.attempt(Line::Main), 0),
            node: node.id.value.clone(),
            questions,
            answer_schema: schema_json(&review_schema()),
            turns: self.state.turns.clone(),
            answers,
        };
        Ok((interaction, instructions))
    }

    fn ask_review(&mut self, node: &Node, spec: &ReviewSpec, verdict: Option<Value>) {
        let (interaction, instructions) = match self.interaction(node, spec, None) {
            Ok(made) => made,
            Err(failure) => return self.failed(Line::Main, failure),
        };
        let event = EngineEvent::HumanInputRequested {
            interaction_id: interaction.id.clone(),
            questions: Value::Object(interaction.questions.clone()),
            review: Some(true),
            instructions: Some(instructions),
            posture: Some(spec.posture.as_str().to_owned()),
            verdict,
            turn: Some(self.round()),
            turns: Some(Value::from(spec.max_turns)),
        };
        self.wait_for_person(interaction, event);
    }

    /// The person answered: another round, or the end of the gate.
    pub(super) fn person_reviewed(
        &mut self,
        node: &Node,
        spec: &ReviewSpec,
        interaction_id: &str,
        answers: &Map<String, Value>,
    ) {
        // the next round asks on the same interaction
        self.state.answered.remove(interaction_id);
        let text = |key: &str| answers.get(key).and_then(Value::as_str).unwrap_or_default();
        let (decision, comment) = (text("decision").to_owned(), text("comment").to_owned());
        let turn = self.round();
        self.add_turn("human", &comment, Some(json!({ "decision": decision })));
        let role = String::from("human");
        self.emit(Some(Line::Main), EngineEvent::ReviewTurn { role, turn });
        let left = turn < u64::from(spec.max_turns);
        if decision == "request_changes" && spec.companion.is_some() && left {
            self.next_attempt();
            self.save(true);
            return self.try_node(Line::Main);
        }
        match self.interaction(node, spec, Some(answers.clone())) {
            Ok((interaction, _)) => self.push(Action::WriteInteraction(interaction)),
            Err(failure) => return self.failed(Line::Main, failure),
        }
        self.review_ended(node, &decision, &comment);
    }

    fn review_ended(&mut self, node: &Node, decision: &str, comment: &str) {
        let people = self.state.turns.iter().filter(|t| t.role == "human").count();
        let companions = self.state.turns.len() - people;
        let gate = self.state.next_gate.saturating_sub(1);
        let output = json!({
            "decision": decision,
            "comment": comment,
            "turns": people.max(companions),
            "gate": format!("gate:{gate}"),
        });
        self.succeeded(Line::Main, node, super::object(output));
    }
}

/// What a person is asked for at a gate.
pub(super) fn review_schema() -> AnswerSchema {
    let decision = AnswerSpec {
        value_type: ValueType::String,
        required: true,
        choices: ["approve", "request_changes", "reject"].map(Value::from).to_vec(),
        default: None,
        text: None,
    };
    let comment = AnswerSpec { required: false, ..AnswerSpec::text() };
    BTreeMap::from([(String::from("decision"), decision), (String::from("comment"), comment)])
}

fn wrong(text: &str) -> Failure {
    Failure::new(FailureCode::SCHEMA_VALIDATION, format!("the output of the companion: {text}"))
}

/// What a companion decided.
struct Verdict {
    decision: String,
    confidence: Option<f64>,
    blockers: Vec<String>,
}

impl Verdict {
    fn read(value: Option<&Value>) -> Result<Option<Self>, Failure> {
        let Some(value) = value.filter(|v| !v.is_null()) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| wrong("verdict must be an object"))?;
        let decision = object.get("decision").and_then(Value::as_str).unwrap_or_default();
        if !["approved", "changes_requested", "rejected"].contains(&decision) {
            let text = "decision must be approved, changes_requested or rejected";
            return Err(wrong(text));
        }
        let confidence = match object.get("confidence") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let share = value.as_f64().filter(|c| (0.0..=1.0).contains(c));
                Some(share.ok_or_else(|| wrong("confidence must be a number from 0 to 1"))?)
            }
        };
        let blockers = match object.get("blockers") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|b| b.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| wrong("blockers must be texts"))?,
            Some(_) => return Err(wrong("blockers must be a list")),
        };
        Ok(Some(Self { decision: decision.to_owned(), confidence, blockers }))
    }

    fn approves(&self) -> bool {
        self.decision == "approved" && self.blockers.is_empty()
    }

    fn event(&self) -> EngineEvent {
        EngineEvent::ReviewVerdict {
            decision: self.decision.clone(),
            confidence: self.confidence,
            blockers: (!self.blockers.is_empty()).then(|| self.blockers.clone()),
        }
    }
}
