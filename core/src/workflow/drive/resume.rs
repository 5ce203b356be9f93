//! Going on with a run, whatever stopped it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::engine::Drive;
use super::holds::Holds;
use super::launch::{Workshop, run_info};
use super::reconcile::put_in_order;
use super::report::Report;
use super::secrets::Known;
use super::{Interrupts, Place};
use crate::clock::parse_duration;
use crate::error::{Error, Result};
use crate::ids::{Chain, InteractionId, NodeId, RunId};
use crate::run::{Checkpoint, FailureCode, Run, RunStore, Status};
use crate::snapshot::chain::load_refs;
use crate::snapshot::label::Boundary;
use crate::workflow::answers;
use crate::workflow::file::Definition;
use crate::workflow::file::definition::CaptureMode;
use crate::workflow::machine::{Limits, Machine, Refusal, Resume, Turn};

/// How a run goes on.
pub struct Again {
    /// The workflow, checked.
    pub definition: Arc<Definition>,
    /// The source, when it is another than the recorded one and accepted.
    pub source: Option<String>,
    /// Its inputs, secret ones given again.
    pub inputs: Map<String, Value>,
    /// Limits that replace those so far.
    pub raises: Limits,
    /// Replaces the capture mode of the file.
    pub capture: Option<CaptureMode>,
}

/// Goes on with a run and drives it to its next end. A run whose engine is gone is put in
/// order first.
///
/// Refused, and nothing is changed: `not-resumable`, `needs-answers` (with the questions),
/// `bad-answers`, `resume-invalid` (its node is not in the workflow), `budget-spent`,
/// `workspace-safety` (the workspace cannot be captured), `missing-secret`, `busy` naming
/// who executes the run, what executes in the workspace, or a process that still lives.
pub async fn resume(
    place: Place,
    run: &RunId,
    again: Again,
    interrupts: Interrupts,
) -> Result<Report> {
    let found = place.runs.load(run).await?;
    refuse_status(found.status())?;
    let known = Known::collect(&again.definition, &again.inputs, &place.settings)?;
    place.runs.check_idle(&found).await?;
    let _holds = Holds::take(&place).await?;
    let claim = place.runs.claim(run, std::time::Duration::ZERO, &place.settings.command).await?;
    let claim = Arc::new(claim);
    let runs = place.runs.with_claim(claim.clone());
    let mut found = runs.load(run).await?;
    if *found.status() == Status::Running {
        put_in_order(&place, &runs, &mut found).await?;
    }
    let status = found.status().clone();
    refuse_status(&status)?;
    let saved =
        found.record.checkpoint().cloned().ok_or_else(|| {
            Error::refused("not-resumable", format!("run {run} has no checkpoint"))
        })?;
    let limits = merged(found.record.budget_raises.as_ref(), &again.raises);
    let history = Answers::load(&place.runs, &found, &saved).await?;
    let answered = history.open.is_some();
    let resume = Resume {
        inputs: again.inputs.clone(),
        limits,
        claim: Some(found.record.claim_seq().saturating_add(1)),
        answers: history.open,
        answer_schema: history.schema,
        turns: history.turns,
        answered: history.all,
        artifacts: latest_artifacts(&place.runs, &found).await?,
        artifact_versions: next_versions(&place.runs, run).await?,
        next_gate: next_gate(&place, run).await?,
        ..Resume::new(run_info(&found, &place), status.clone())
    };
    let (machine, actions) = Machine::resume(again.definition.clone(), &saved, resume)
        .map_err(|refusal| refused(&found, refusal))?;
    note(&place, &runs, &mut found, &again).await?;
    let mode = again.capture.unwrap_or(again.definition.capture);
    let place = Arc::new(place);
    let tools = Workshop { place: &place, known, mode }.open(found.clone(), claim).await?;
    place.watcher.begun(&found.record)?;
    let drive = Drive { answered, resumed: true, ..tools.drive(machine, vec![status]) };
    drive.run(actions, interrupts).await
}

/// Ended runs that cannot go on.
fn refuse_status(status: &Status) -> Result<()> {
    let why = match status {
        Status::Finished => "it is finished",
        Status::Failed => "it failed for good",
        Status::Other(_) => "its status is of a later build",
        _ => return Ok(()),
    };
    Err(Error::refused("not-resumable", format!("the run cannot be resumed: {why}"))
        .with_detail("status", status.as_str())
        .with_hint("a rewind takes it back to an earlier boundary"))
}

fn refused(run: &Run, refusal: Refusal) -> Error {
    let id = run.id();
    match refusal {
        Refusal::Status(status) => match refuse_status(&status) {
            Err(e) => e,
            Ok(()) => Error::refused("not-resumable", format!("run {id} is {status}")),
        },
        Refusal::NeedsAnswers { interaction_id, questions } => {
            Error::refused("needs-answers", format!("run {id} waits for answers"))
                .with_detail("interaction", interaction_id)
                .with_detail("questions", Value::Object(questions))
                .with_hint(format!("backtrail answer {id}"))
        }
        Refusal::BadAnswers(problems) => {
            let rows: Vec<Value> = problems
                .iter()
                .map(|p| json!({"key": p.key, "message": p.message, "help": p.help}))
                .collect();
            Error::invalid(answers::told(&problems).join("; "))
                .with_code("bad-answers")
                .with_detail("problems", rows)
                .with_hint(format!("backtrail answer {id}"))
        }
        Refusal::NodeGone(node) => {
            let text = format!("run {id} stands at node {node:?}, which is not in the workflow");
            Error::refused("resume-invalid", text)
                .with_detail("failure_code", FailureCode::RESUME_INVALID)
        }
        Refusal::BudgetSpent { dimension, used, limit } => {
            let text = format!("the budget of run {id} is spent: {dimension} {used} of {limit}");
            let flag = match dimension {
                "duration" => "--max-duration DUR",
                "iterations" => "--max-iterations N",
                "tokens" => "--max-tokens N",
                _ => "--max-cost USD",
            };
            Error::refused("budget-spent", text).with_hint(format!("raise it with {flag}"))
        }
    }
}

/// What people answered so far.
#[derive(Default)]
struct Answers {
    open: Option<Map<String, Value>>,
    schema: Option<Value>,
    turns: Vec<Turn>,
    all: Map<String, Value>,
}

impl Answers {
    async fn load(runs: &RunStore, run: &Run, saved: &Checkpoint) -> Result<Self> {
        let mut out = Self::default();
        for there in runs.interactions(run.id()).await? {
            let answers = there.answers.filter(|_| there.retired_at.is_none());
            if saved.interaction_id.as_deref() == Some(there.id.as_str()) {
                out.schema = there.answer_schema;
                out.open.clone_from(&answers);
            }
            if let Some(answers) = answers {
                out.all.insert(there.id.to_string(), Value::Object(answers));
            }
        }
        let id = saved.interaction_id.as_deref().map(InteractionId::new).transpose()?;
        if let Some(id) = id
            && let Ok(there) = runs.interaction(run.id(), &id).await
        {
            let text = |content: &Value| match content {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let turns = there.turns.unwrap_or_default();
            out.turns = turns
                .into_iter()
                .map(|t| Turn { content: text(&t.content), role: t.role, verdict: t.verdict })
                .collect();
        }
        Ok(out)
    }
}

/// The data of each node's latest artifact.
async fn latest_artifacts(runs: &RunStore, run: &Run) -> Result<Map<String, Value>> {
    let mut out = Map::new();
    for (node, version) in runs.artifact_index(run).await? {
        match runs.artifact(run.id(), &NodeId::new(node.as_str())?, version).await {
            Ok(artifact) => drop(out.insert(node, artifact.data)),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(out)
}

async fn next_versions(runs: &RunStore, run: &RunId) -> Result<BTreeMap<String, u64>> {
    let versions = runs.artifact_versions(run).await?;
    let next = |all: &Vec<u64>| all.last().map_or(0, |last| last.saturating_add(1));
    Ok(versions.iter().map(|(node, all)| (node.to_string(), next(all))).collect())
}

/// One above the highest gate.
async fn next_gate(place: &Place, run: &RunId) -> Result<u64> {
    let refs = load_refs(&**place.runs.store(), &Chain::Run(run.clone())).await?.refs;
    let gates = refs.labels.keys().filter_map(Boundary::parse).filter_map(|b| b.gate);
    Ok(gates.max().map_or(0, |n| n.saturating_add(1)))
}

/// Later limits replace earlier ones.
fn merged(raises: Option<&Value>, now: &Limits) -> Limits {
    let mut out = Limits::default();
    for raise in raises.and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| raise.get(key).and_then(Value::as_str);
        out.duration = text("duration").and_then(parse_duration).or(out.duration);
        let number = |key: &str| raise.get(key).and_then(Value::as_u64);
        out.iterations = number("iterations").or(out.iterations);
        out.tokens = number("tokens").or(out.tokens);
        out.cost_usd = raise.get("cost_usd").and_then(Value::as_f64).or(out.cost_usd);
    }
    Limits {
        duration: now.duration.or(out.duration),
        iterations: now.iterations.or(out.iterations),
        tokens: now.tokens.or(out.tokens),
        cost_usd: now.cost_usd.or(out.cost_usd),
    }
}

/// Records raised limits and an accepted source.
async fn note(place: &Place, runs: &RunStore, run: &mut Run, again: &Again) -> Result<()> {
    let raise = raise(&again.raises, &place.ctx.clock.now().rfc3339());
    if raise.is_none() && again.source.is_none() {
        return Ok(());
    }
    runs.patch(run, |record| {
        if let Some(raise) = &raise {
            let mut all = record.budget_raises.take().unwrap_or_else(|| json!([]));
            if let Some(rows) = all.as_array_mut() {
                rows.push(raise.clone());
            }
            record.budget_raises = Some(all);
        }
        if let Some(source) = &again.source {
            record.set_source(source);
        }
        Ok(())
    })
    .await
}

fn raise(raises: &Limits, at: &str) -> Option<Value> {
    if *raises == Limits::default() {
        return None;
    }
    let mut out = Map::new();
    let mut put = |key: &str, value: Option<Value>| out.extend(value.map(|v| (key.to_owned(), v)));
    put("at", Some(at.into()));
    put("duration", raises.duration.map(|d| format!("{}ms", d.as_millis()).into()));
    put("iterations", raises.iterations.map(Value::from));
    put("tokens", raises.tokens.map(Value::from));
    put("cost_usd", raises.cost_usd.map(Value::from));
    Some(Value::Object(out))
}
