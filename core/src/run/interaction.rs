//! Interactions: questions to a person and the first answer, which wins.

use std::time::Duration;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change::Run;
use super::store::RunStore;
use crate::error::{Error, Kind, Result};
use crate::ids::{InteractionId, NodeId, RunId};
use crate::store::{DocKey, Expect, Listed, Prefix, Version, docs};

/// How often a change is tried against other writers.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);
/// The format version this build writes.
const FORMAT_VERSION: u64 = 1;

/// One word of a review.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// `companion` or `human`.
    pub role: String,
    /// What was said.
    pub content: Value,
    /// A companion's verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Value>,
    /// RFC 3339.
    pub at: String,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interaction {
    /// 1; absent reads as 1.
    #[serde(default)]
    pub format_version: u64,
    /// Its id, see [`interaction_id`].
    pub id: InteractionId,
    /// The run.
    pub run_id: RunId,
    /// The node that asks.
    pub node_id: NodeId,
    /// RFC 3339.
    #[serde(default)]
    pub requested_at: String,
    /// RFC 3339; null until it is answered.
    #[serde(default)]
    pub answered_at: Option<String>,
    /// What is shown: any keys.
    #[serde(default)]
    pub questions: Value,
    /// Key → answer; null until it is answered.
    #[serde(default)]
    pub answers: Option<Map<String, Value>>,
    /// The words of a review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Vec<Turn>>,
    /// Key → what an answer must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Value>,
    /// RFC 3339: its node was invalidated. It neither blocks nor feeds anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<String>,
    /// Fencing token of the last write that had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(default)]
    cas_version: u64,
    #[serde(default)]
    write_id: String,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The question that a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenQuestion {
    /// The interaction.
    pub id: InteractionId,
    /// What is shown.
    pub questions: Value,
    /// Its document; `None` when it is gone and the questions are the checkpoint's.
    pub interaction: Option<Interaction>,
}

/// What an answer came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// It is the first.
    First(Interaction),
    /// The same was recorded before.
    Same(Interaction),
}

/// The id of a question: `<run>_<node>`; from iteration 1 on `<run>_<node>.<iteration>`;
/// further questions of an iteration `<run>_<node>.<iteration>.<n>`.
///
/// ```
/// use backtrail_core::run::interaction_id;
/// let (run, node) = ("r".parse().unwrap(), "ok".parse().unwrap());
/// let ids = [(0, 0), (2, 0), (0, 1)].map(|(i, n)| interaction_id(&run, &node, i, n).unwrap());
/// assert_eq!(ids.map(|i| i.to_string()), ["r_ok", "r_ok.2", "r_ok.0.1"]);
/// ```
pub fn interaction_id(run: &RunId, node: &NodeId, iteration: u64, n: u64) -> Result<InteractionId> {
    InteractionId::new(match (iteration, n) {
        (0, 0) => format!("{run}_{node}"),
        (_, 0) => format!("{run}_{node}.{iteration}"),
        (_, _) => format!("{run}_{node}.{iteration}.{n}"),
    })
}

impl RunStore {
    /// Writes a question down; to be called before the status says paused. What was asked
    /// before under the id, unanswered and not retired, is given back as it is; an
    /// answered or retired one is a `conflict`.
    pub async fn ask(
        &self,
        run: &RunId,
        id: &InteractionId,
        node: &NodeId,
        questions: Value,
        answer_schema: Option<Value>,
    ) -> Result<Interaction> {
        let mut new = self.new_interaction(run, id, node, questions);
        new.answer_schema = answer_schema;
        match self.write_interaction(new, Expect::Absent).await {
            Err(e) if e.is_conflict() && e.code() != "deleted" => {
                let there = self.interaction(run, id).await?;
                if there.answered_at.is_some() || there.retired_at.is_some() {
                    return Err(e);
                }
                Ok(there)
            }
            done => done,
        }
    }

    fn new_interaction(
        &self,
        run: &RunId,
        id: &InteractionId,
        node: &NodeId,
        questions: Value,
    ) -> Interaction {
        Interaction {
            format_version: FORMAT_VERSION,
            id: id.clone(),
            run_id: run.clone(),
            node_id: node.clone(),
            requested_at: self.now().rfc3339(),
            answered_at: None,
            questions,
            answers: None,
            turns: None,
            answer_schema: None,
            retired_at: None,
            token: None,
            cas_version: 0,
            write_id: String::new(),
            extra: Map::new(),
        }
    }

    /// An interaction.
    pub async fn interaction(&self, run: &RunId, id: &InteractionId) -> Result<Interaction> {
        Ok(self.load_interaction(run, id).await?.0)
    }

    /// Every interaction of a run that can be read, sorted by id.
    pub async fn interactions(&self, run: &RunId) -> Result<Vec<Interaction>> {
        let mut out = Vec::new();
        let mut rows = self.store.list(&Prefix::Interactions(run.clone()));
        while let Some(row) = rows.try_next().await? {
            if let Listed::Doc { key: DocKey::Interaction(_, id), .. } = row {
                out.push(self.interaction(run, &id).await?);
            }
        }
        Ok(out)
    }

    /// The question that a run waits for, from its pause pointer; `None` when it waits
    /// for none. Without its document the checkpoint's copy serves.
    pub async fn open_question(&self, run: &Run) -> Result<Option<OpenQuestion>> {
        let Some(checkpoint) = run.record.checkpoint() else { return Ok(None) };
        let Some(id) = &checkpoint.interaction_id else { return Ok(None) };
        let id = InteractionId::new(id.as_str())?;
        let copy = || checkpoint.interaction_questions.clone().unwrap_or_default();
        match self.interaction(run.id(), &id).await {
            Ok(there) if there.retired_at.is_some() => Ok(None),
            Ok(there) => {
                let questions = there.questions.clone();
                Ok(Some(OpenQuestion { id, questions, interaction: Some(there) }))
            }
            Err(e) if e.is_not_found() => {
                Ok(Some(OpenQuestion { id, questions: copy(), interaction: None }))
            }
            Err(e) => Err(e),
        }
    }

    /// Records an answer. The first wins: the same again is [`Answered::Same`], another
    /// is refused with `already-answered` (kind Conflict). A retired question takes none
    /// (`retired`). A question whose document is gone gets one from the checkpoint.
    /// Whether the answers are complete the caller has checked.
    pub async fn answer(
        &self,
        run: &Run,
        id: &InteractionId,
        answers: &Map<String, Value>,
    ) -> Result<Answered> {
        let at = self.now().rfc3339();
        let mut first = false;
        let change = |there: &mut Interaction| {
            first = there.answered_at.is_none();
            if there.retired_at.is_some() {
                let message = format!("question {id} was retired by a rewind");
                return Err(Error::refused("retired", message));
            }
            if !first && there.answers.as_ref() != Some(answers) {
                let message = format!("question {id} was answered otherwise");
                return Err(Error::new(Kind::Conflict, "already-answered", message));
            }
            if first {
                there.answered_at = Some(at.clone());
                there.answers = Some(answers.clone());
            }
            Ok(first)
        };
        let there = self.change_interaction(run, id, change).await?;
        Ok(if first { Answered::First(there) } else { Answered::Same(there) })
    }

    /// Takes a question out of the game, because its node was invalidated. An answered
    /// one stays as it is.
    pub async fn retire(&self, run: &Run, id: &InteractionId) -> Result<Interaction> {
        let at = self.now().rfc3339();
        let change = |there: &mut Interaction| {
            let open = there.answered_at.is_none() && there.retired_at.is_none();
            if open {
                there.retired_at = Some(at.clone());
            }
            Ok(open)
        };
        self.change_interaction(run, id, change).await
    }

    /// Adds a word to a review. With `reopen` the answer so far is taken into the words
    /// and the same interaction asks again, in its next round.
    pub async fn add_turn(
        &self,
        run: &Run,
        id: &InteractionId,
        turn: &Turn,
        reopen: bool,
    ) -> Result<Interaction> {
        let change = |there: &mut Interaction| {
            if there.retired_at.is_some() {
                let message = format!("question {id} was retired by a rewind");
                return Err(Error::refused("retired", message));
            }
            there.turns.get_or_insert_default().push(turn.clone());
            if reopen {
                there.answered_at = None;
                there.answers = None;
            }
            Ok(true)
        };
        self.change_interaction(run, id, change).await
    }

    async fn load_interaction(
        &self,
        run: &RunId,
        id: &InteractionId,
    ) -> Result<(Interaction, Version)> {
        let key = DocKey::Interaction(run.clone(), id.clone());
        let doc = self.store.get(&key).await?;
        docs::check_format(&key, &doc.body, FORMAT_VERSION)?;
        let mut there: Interaction = serde_json::from_slice(&doc.body).map_err(|e| {
            Error::corrupt(format!("interaction {key} is not readable")).with_source(e)
        })?;
        if (&there.run_id, &there.id) != (run, id) {
            return Err(Error::corrupt(format!("interaction {key} names another question")));
        }
        there.format_version = FORMAT_VERSION;
        Ok((there, doc.version))
    }

    /// Applies a change to what is stored, again while other writers are faster. `change`
    /// says whether there is anything to write.
    async fn change_interaction(
        &self,
        run: &Run,
        id: &InteractionId,
        mut change: impl FnMut(&mut Interaction) -> Result<bool>,
    ) -> Result<Interaction> {
        for tries in 1..=TRIES {
            let (mut next, expect) = match self.load_interaction(run.id(), id).await {
                Ok((there, version)) => (there, Expect::Version(version)),
                Err(e) if e.is_not_found() => {
                    (self.open_in_checkpoint(run, id, e)?, Expect::Absent)
                }
                Err(e) => return Err(e),
            };
            if !change(&mut next)? {
                return Ok(next);
            }
            match self.write_interaction(next, expect).await {
                Err(e) if e.is_conflict() && e.code() != "deleted" => {}
                done => return done,
            }
            self.pause(PAUSE * tries).await?;
        }
        let message = format!("question {id} is written to all the time");
        Err(Error::new(Kind::Busy, "busy", message))
    }

    /// The question as the pause pointer has it; `absent` when it is not the open one.
    fn open_in_checkpoint(
        &self,
        run: &Run,
        id: &InteractionId,
        absent: Error,
    ) -> Result<Interaction> {
        let open =
            run.record.checkpoint().filter(|c| c.interaction_id.as_deref() == Some(id.as_str()));
        let Some(open) = open else { return Err(absent) };
        let node = NodeId::new(open.node_id.as_str())?;
        let questions = open.interaction_questions.clone().unwrap_or_default();
        Ok(self.new_interaction(run.id(), id, &node, questions))
    }

    async fn write_interaction(
        &self,
        mut next: Interaction,
        expect: Expect,
    ) -> Result<Interaction> {
        let key = DocKey::Interaction(next.run_id.clone(), next.id.clone());
        let fence = self.fence(&next.run_id)?;
        next.token = fence.as_ref().map(|f| f.token).or(next.token);
        let (store, ids) = (&*self.store, &*self.ctx.ids);
        let saved = docs::save_settled(store, ids, &key, &next, expect, fence.as_ref()).await;
        let saved = self.explained(&next.run_id, saved).await?;
        next.cas_version = saved.cas_version;
        next.write_id = saved.write_id;
        Ok(next)
    }
}
