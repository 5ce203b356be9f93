//! Fan-outs: branches, how many execute at once, and how they join.

use serde_json::{Map, Value, json};

use super::state::{Fan, Lane, Phase};
use super::{Action, Failure, Line, Machine, object};
use crate::run::{EngineEvent, FailureCode};
use crate::workflow::file::definition::{Kind, ParallelSpec, Strategy};

/// The message of a branch that was stopped because of another.
const STOPPED: &str = "stopped: another branch ended first";

impl Machine {
    fn parallel(&self) -> Option<ParallelSpec> {
        match &self.definition.nodes.get(&self.state.main.node)?.kind {
            Kind::Parallel(spec) => Some(spec.clone()),
            _ => None,
        }
    }

    /// Begins the branches, or goes on with those that a checkpoint left.
    pub(super) fn fan_out(&mut self, spec: &ParallelSpec) {
        let begin = |b: &crate::workflow::finding::Spanned<String>| {
            Lane::new(Some(b.value.clone()), &b.value, Phase::Waiting)
        };
        let fresh = || Fan { lanes: spec.branches.iter().map(begin).collect(), closing: false };
        self.state.fan.get_or_insert_with(fresh);
        self.state.main.phase = Phase::Branching;
        self.settle();
    }

    /// Lets branches begin and go on, up to the number that may execute at once.
    pub(super) fn pump(&mut self) {
        let Some(spec) = self.parallel() else { return };
        let mut at = 0;
        while let Some(lane) = self.state.fan.as_ref().and_then(|f| f.lanes.get(at)) {
            let line = Line::Branch(at);
            at += 1;
            let begin = match lane.phase {
                Phase::Waiting => self.executing() < spec.max_concurrency,
                Phase::Ready => true,
                _ => false,
            };
            if !begin {
                continue;
            }
            if lane.phase == Phase::Waiting {
                self.emit(Some(line), EngineEvent::BranchStarted {});
            }
            self.enter(line);
            if self.state.ended || self.state.main.phase != Phase::Branching {
                return;
            }
        }
    }

    /// How many branches have begun and not ended.
    fn executing(&self) -> usize {
        let begun = |lane: &&Lane| !matches!(lane.phase, Phase::Waiting | Phase::Over);
        self.state.fan.as_ref().map_or(0, |f| f.lanes.iter().filter(begun).count())
    }

    /// A branch stands at its next node, or at the join.
    pub(super) fn branch_arrived(&mut self, line: Line, wait: bool) {
        let join = self.parallel().map(|spec| spec.join.value);
        if join.as_ref() != Some(&self.lane(line).node) {
            self.save(wait);
            return self.after_branch();
        }
        self.lane_mut(line).phase = Phase::Over;
        self.emit(Some(line), EngineEvent::BranchFinished { error: None, join_node: join });
        self.save(wait);
        self.settle();
    }

    /// A branch ended badly.
    pub(super) fn branch_failed(&mut self, line: Line, failure: Failure) {
        let error = Some(format!("{}: {}", failure.code, failure.message));
        let lane = self.lane_mut(line);
        lane.phase = Phase::Over;
        lane.error = Some(failure);
        self.emit(Some(line), EngineEvent::BranchFinished { error, join_node: None });
        self.save(false);
        self.settle();
    }

    /// A branch was stopped because of another.
    pub(super) fn branch_stopped(&mut self, line: Line) {
        self.branch_failed(line, Failure::new(FailureCode::CANCELLED, STOPPED));
    }

    fn after_branch(&mut self) {
        if self.state.stopping.is_some() {
            self.stop_when_idle();
        } else if self.state.exhausted {
            self.out_of_budget(Line::Main);
        } else {
            self.push(Action::Continue);
        }
    }

    /// Looks at what the branches came to: stop the others, wait, or join.
    fn settle(&mut self) {
        let (Some(spec), Some(fan)) = (self.parallel(), &self.state.fan) else { return };
        let over = |lane: &&Lane| lane.phase == Phase::Over;
        let succeeded = fan.lanes.iter().filter(over).any(|l| l.error.is_none());
        let failed = fan.lanes.iter().filter(over).any(|l| l.error.is_some());
        let close = match spec.strategy {
            Strategy::All => spec.fail_fast && failed,
            Strategy::Any => succeeded,
            Strategy::BestEffort => false,
        };
        if close && !fan.closing {
            self.close();
        }
        let Some(fan) = &self.state.fan else { return };
        if fan.lanes.iter().any(|l| l.phase != Phase::Over) {
            return self.after_branch();
        }
        self.join(&spec);
    }

    /// Stops the branches that have not ended.
    fn close(&mut self) {
        let Some(fan) = &mut self.state.fan else { return };
        fan.closing = true;
        for lane in &mut fan.lanes {
            if matches!(lane.phase, Phase::Waiting | Phase::Ready | Phase::Delayed) {
                lane.phase = Phase::Over;
                lane.error = Some(Failure::new(FailureCode::CANCELLED, STOPPED));
            }
        }
        for execution in self.running() {
            self.push(Action::Stop { execution, force: false });
        }
    }

    fn join(&mut self, spec: &ParallelSpec) {
        let lanes = self.state.fan.as_ref().map(|f| f.lanes.clone()).unwrap_or_default();
        let mut outcomes = Map::new();
        for lane in &lanes {
            let error = lane.error.as_ref().map(|e| json!({"code": e.code, "message": e.message}));
            let outcome = json!({ "ok": error.is_none(), "error": error });
            outcomes.insert(lane.branch.clone().unwrap_or_default(), outcome);
        }
        self.state.branches.extend(outcomes.clone());
        let real = |l: &&Lane| l.error.as_ref().is_some_and(|e| e.message != STOPPED);
        let failed: Vec<&Lane> = lanes.iter().filter(real).collect();
        let good = match spec.strategy {
            Strategy::All => failed.is_empty(),
            Strategy::Any => lanes.iter().any(|l| l.error.is_none()),
            Strategy::BestEffort => true,
        };
        let names: Vec<String> = failed.iter().filter_map(|l| l.branch.clone()).collect();
        let Some(node) = self.node(Line::Main) else { return };
        if good {
            let event = EngineEvent::JoinReady {
                strategy: spec.strategy.as_str().to_owned(),
                failed_branches: (!names.is_empty()).then_some(names),
            };
            self.emit(Some(Line::Main), event);
            let output = object(json!({ "branches": Value::Object(outcomes) }));
            return self.succeeded(Line::Main, &node, output);
        }
        let told: Vec<String> = failed
            .iter()
            .filter_map(|l| Some((l.branch.as_ref()?, l.error.as_ref()?)))
            .map(|(branch, e)| format!("{branch} ({}: {})", e.code, e.message))
            .collect();
        let text = format!("branches failed: {}", told.join(", "));
        self.failed(Line::Main, Failure::new(FailureCode::JOIN_FAILED, text));
    }
}
