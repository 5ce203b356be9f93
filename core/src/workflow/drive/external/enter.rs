//! Entering a node, whatever the run was doing before.

use serde_json::{Map, Value};

use super::state::{At, State};
use super::{End, Entry, is_over, step_open};
use crate::error::{Error, Result};
use crate::ids::{Chain, NodeId};
use crate::run::{Actor, Checkpoint, Current, EngineEvent, Moved, Status, Transition};
use crate::snapshot::chain::load_refs;
use crate::snapshot::label::Phase;
use crate::workflow::file::definition::CaptureMode;

impl State {
    pub(super) async fn enter(
        &mut self,
        node: &str,
        entry: Entry,
    ) -> Result<(At, Map<String, Value>)> {
        NodeId::new(node)?;
        self.refuse_over()?;
        self.hold().await?;
        if let Some(at) = &self.open {
            return Err(step_open(at));
        }
        self.obey().await?;
        let answers = self.answers().await?;
        let (at, checkpoint) = self.next(node);
        self.bound(&at, entry).await?;
        self.save_versioning().await?;
        let started = EngineEvent::NodeStarted {
            kind: String::from("external"),
            iteration: at.iteration,
            attempt: at.attempt,
        };
        if *self.run.status() == Status::Running {
            self.emit(&started, Some(&at)).await?;
            let runs = self.runs().clone();
            runs.save_checkpoint(&mut self.run, &checkpoint).await?;
        } else {
            self.come_back(&at, checkpoint, answers.is_some()).await?;
            self.emit(&started, Some(&at)).await?;
        }
        self.open = Some(at.clone());
        Ok((at, answers.unwrap_or_default()))
    }

    fn refuse_over(&self) -> Result<()> {
        let status = self.run.status();
        if !is_over(status) {
            return Ok(());
        }
        let text = format!("run {} is {status}: it cannot go on", self.run.id());
        Err(Error::refused("not-resumable", text).with_detail("status", status.as_str()))
    }

    /// Does what a person asked of the run meanwhile. Fails with `cancelled`.
    async fn obey(&mut self) -> Result<()> {
        self.run = self.runs().load(self.run.id()).await?;
        self.refuse_over()?;
        if *self.run.status() != Status::Running || self.run.record.cancel_requested_at().is_none()
        {
            return Ok(());
        }
        let reason = self.run.record.cancel_reason().map(str::to_owned);
        self.finish(End::cancelled(reason)).await?;
        let text = format!("somebody cancelled run {}", self.run.id());
        Err(Error::refused("cancelled", text))
    }

    /// The answers to the open question; `None` when there is no question.
    async fn answers(&self) -> Result<Option<Map<String, Value>>> {
        if *self.run.status() != Status::PausedWaitingHuman {
            return Ok(None);
        }
        let Some(open) = self.runs().open_question(&self.run).await? else { return Ok(None) };
        let answered = open.interaction.and_then(|i| i.answers);
        let id = self.run.id();
        answered.map(Some).ok_or_else(|| {
            Error::refused("needs-answers", format!("run {id} waits for answers"))
                .with_detail("interaction", open.id.as_str())
                .with_detail("questions", open.questions)
                .with_hint(format!("backtrail answer {id}"))
        })
    }

    /// The attempt that entering `node` now is, and the checkpoint that says so.
    fn next(&self, node: &str) -> (At, Checkpoint) {
        let mut checkpoint = self.run.record.checkpoint().cloned().unwrap_or_default();
        let again = checkpoint.current.take().filter(|_| checkpoint.node_id == node);
        let (iteration, attempt) = match again {
            Some(current) => (current.iteration, current.attempt.saturating_add(1)),
            None => (checkpoint.node_visits.get(node).copied().unwrap_or(0), 1),
        };
        node.clone_into(&mut checkpoint.node_id);
        checkpoint.node_visits.insert(node.to_owned(), iteration.saturating_add(1));
        checkpoint.current = Some(Current { iteration, attempt, ..Current::default() });
        (At { node: node.to_owned(), iteration, attempt }, checkpoint)
    }

    /// The boundaries of an entry.
    async fn bound(&mut self, at: &At, entry: Entry) -> Result<()> {
        let (pre, resume) = (at.boundary(Phase::Pre), at.boundary(Phase::Resume));
        let continuous = entry == Entry::Continuous && *self.run.status() == Status::Running;
        if continuous && self.alias(&pre, true).await? {
            return Ok(());
        }
        let chain = Chain::Run(self.run.id().clone());
        let first = load_refs(&**self.place.runs.store(), &chain).await?.refs.head.is_none();
        let boundary = if first { &pre } else { &resume };
        let missed = self.capture(boundary).await?;
        match missed {
            Some(e) if self.captures.mode() == CaptureMode::Required => {
                let text = format!("node {} is not entered: {}", at.node, e.message());
                let hint = "free what is in the way, or let captures be best effort";
                Err(Error::refused("workspace-safety", text).with_hint(hint).with_source(e))
            }
            Some(e) if !first => {
                // a second look would not do better
                if let Some(label) = pre.label() {
                    self.captures.miss(label, &e).await;
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None if first => Ok(()),
            None => self.alias(&pre, true).await.map(drop),
        }
    }

    /// The run is running again.
    async fn come_back(&mut self, at: &At, checkpoint: Checkpoint, answered: bool) -> Result<()> {
        let from = self.run.status().clone();
        let mut change = Transition::new(Status::Running, Actor::Person, [from.clone()]);
        if answered || from == Status::PausedWaitingHuman {
            change = change.answered();
        }
        let runs = self.runs().clone();
        let moved = runs.transition(&mut self.run, &change.checkpoint(checkpoint)).await?;
        if let Moved::Not { actual } = moved {
            let text = format!("the run is {actual} and was changed by somebody else");
            return Err(Error::refused("bad-transition", text));
        }
        let event = EngineEvent::RunResumed {
            resumed_from: Some(from.as_str().to_owned()),
            restart_node: Some(at.node.clone()),
            from_entry: None,
            claim: Some(self.run.record.claim_seq()),
            adopted: None,
        };
        self.emit(&event, None).await
    }
}
