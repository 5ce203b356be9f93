//! Finding what interrupted restores left: staging directories at the workspace root
//! (so that a command with another store sees them too) and journals in the store.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use super::journal::{Journal, JournalState};
use super::operations::Operations;
use super::owner::Owner;
use super::recover::Direction;
use super::stage;
use crate::clock::Host;
use crate::error::{Error, IoContext, Kind, Result};
use crate::ids::{RunId, TransactionId};
use crate::path;
use crate::store::{DocKey, Listed, Prefix, Store, docs};
use crate::tasks::blocking;
use crate::workspace::Root;

/// What an interrupted (or running) restore left.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The transaction, or the staging directory's name when nothing more is known.
    pub transaction: String,
    /// The journal: the staging copy when it can be read, else the store's.
    pub journal: Option<Journal>,
    /// Who did it, from staging or the journal.
    pub owner: Option<Owner>,
    /// Its staging directory lies at the root.
    pub staged: bool,
    /// That directory holds displaced originals.
    pub originals: bool,
    /// The store holds a journal of it that is not terminal.
    pub open_in_store: bool,
    /// The process that did it still runs.
    pub alive: bool,
    /// Of a rewind that its run decides: whether the run's record names it. `None` for
    /// any other, and when the record could not be asked.
    pub decided: Option<bool>,
}

/// What is to be done about something unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Its owner still works on it.
    Wait,
    /// Nothing was changed: swept by the next command that may write.
    Sweep,
    /// All was changed for good: closed by the next command that may write.
    Close,
    /// Somebody must say: finish or roll back.
    Recover,
    /// Originals that nothing explains: never touched.
    Unexplained,
}

impl Unfinished {
    /// What is to be done.
    pub fn need(&self) -> Need {
        if self.alive {
            return Need::Wait;
        }
        match self.journal.as_ref().map(|j| j.state) {
            Some(JournalState::Applied) if self.decided == Some(true) => Need::Close,
            Some(state) if state.needs_recovery() => Need::Recover,
            Some(JournalState::Committed) => Need::Close,
            None if self.originals => Need::Unexplained,
            _ => Need::Sweep,
        }
    }

    /// The way it must go: the one asked for, or the one that its run's record says.
    pub(super) fn direction(&self, asked: Direction) -> Result<Direction> {
        let Some(journal) = self.journal.as_ref().filter(|j| j.is_decided_by_run()) else {
            return Ok(asked);
        };
        match self.decided {
            Some(true) => Ok(Direction::Finish),
            Some(false) => Ok(Direction::RollBack),
            // Before all was applied nothing can have been decided.
            None if journal.state == JournalState::Applying => Ok(Direction::RollBack),
            None => Err(Error::unavailable(
                "the record of the run that was rewound says which way to go, and cannot be read",
            )),
        }
    }

    /// True if it was made with this store.
    pub fn is_of(&self, store: &dyn Store) -> bool {
        self.open_in_store || self.owner.as_ref().is_none_or(|o| o.store == store.info().url)
    }

    /// The error of a command that may not go on.
    pub fn refusal(&self, root: &Root) -> Error {
        let since = self.owner.as_ref().map_or("", |o| o.since.as_str());
        let id = &self.transaction;
        match self.need() {
            Need::Wait => {
                let owner = self.owner.clone().unwrap_or_default();
                let who = format!("pid {} on {}, since {since}", owner.pid, owner.host);
                Error::new(Kind::Busy, "busy", format!("restore {id} is under way ({who})"))
            }
            Need::Unexplained => Error::refused(
                "recovery-needed",
                format!(
                    "{}/{} holds originals of an interrupted restore, but its journal cannot \
                     be read; nothing is done to it",
                    root.text(),
                    String::from_utf8_lossy(&stage::stage_name(id))
                ),
            )
            .with_hint("open it with the store and the version of backtrail that made it"),
            _ => Error::refused(
                "recovery-needed",
                format!("restore {id} of {since} was interrupted and is half done"),
            )
            .with_hint(
                "run `backtrail restore --finish` to complete it or `backtrail restore \
                 --roll-back` to undo it",
            ),
        }
        .with_detail("transaction", id.clone())
    }
}

/// Everything unfinished in this workspace, by transaction. Reads only.
pub async fn detect(store: &dyn Store, root: &Root, host: &Host) -> Result<Vec<Unfinished>> {
    let (at, who) = (root.clone(), host.clone());
    let mut found = blocking(move || staged(&at, &who)).await?;
    let (journals, _) = journals(store, root).await?;
    for journal in journals.into_iter().filter(|j| !j.state.is_terminal()) {
        let id = journal.transaction.to_string();
        let slot = found.entry(id.clone()).or_insert_with(|| Unfinished {
            transaction: id,
            journal: None,
            owner: Some(journal.owner.clone()),
            staged: false,
            originals: false,
            open_in_store: false,
            alive: is_other_and_alive(&journal.owner, host),
            decided: None,
        });
        slot.open_in_store = true;
        // The staging copy was written first, so it is never behind.
        slot.journal.get_or_insert(journal);
    }
    // Originals without a readable copy may be explained by a journal that is closed.
    for slot in found.values_mut().filter(|s| s.journal.is_none() && s.originals) {
        slot.journal = closed_journal(store, root, &slot.transaction).await?;
    }
    for slot in found.values_mut() {
        slot.decided = decided(store, slot.journal.as_ref()).await?;
    }
    Ok(found.into_values().collect())
}

/// Whether the run's record names the rewind. A run that is gone decided nothing.
async fn decided(store: &dyn Store, journal: Option<&Journal>) -> Result<Option<bool>> {
    let Some(journal) = journal.filter(|j| j.is_decided_by_run() && !j.state.is_terminal()) else {
        return Ok(None);
    };
    let Some(Ok(id)) = journal.run.as_ref().map(|run| RunId::new(run.id.as_str())) else {
        return Ok(None);
    };
    let key = DocKey::Run(id);
    let doc = match store.get(&key).await {
        Ok(doc) => doc,
        Err(e) if e.is_not_found() => return Ok(Some(false)),
        Err(e) => return Err(e),
    };
    let record = docs::parse_object(&key, &doc.body)?;
    let named = record.get("rewind_transaction").and_then(serde_json::Value::as_str);
    Ok(Some(named == Some(journal.transaction.as_str())))
}

/// As [`detect`], from the staging directories alone: for a store that is gone.
pub(super) async fn detect_staged(root: &Root, host: &Host) -> Result<Vec<Unfinished>> {
    let (root, host) = (root.clone(), host.clone());
    Ok(blocking(move || staged(&root, &host)).await?.into_values().collect())
}

/// This very process never waits for itself: whoever asks holds the workspace lock.
fn is_other_and_alive(owner: &Owner, host: &Host) -> bool {
    let own = owner.pid == host.pid && owner.pid_start == host.pid_start;
    !own && owner.is_alive(host)
}

fn staged(root: &Root, host: &Host) -> Result<BTreeMap<String, Unfinished>> {
    let what = || format!("failed to look for unfinished restores in {}", root.text());
    let mut found = BTreeMap::new();
    for name in root.dir.names().context(what)? {
        if !path::is_staging_name(&name) {
            continue;
        }
        // A link or a file of that name is not ours.
        let Ok(dir) = root.dir.open_dir(&name) else { continue };
        let originals = stage::holds_originals(&dir).context(what)?;
        let journal = Journal::in_staging(&dir);
        if !stage::is_ours(&dir) && journal.is_none() && !originals {
            continue;
        }
        let owner = Owner::read(&dir).or_else(|| journal.as_ref().map(|j| j.owner.clone()));
        // One that builds a directory beside this workspace's files is nobody's concern.
        if owner.as_ref().is_some_and(|o| o.kind == "into" && o.is_alive(host)) {
            continue;
        }
        let hex = String::from_utf8_lossy(name.rsplit(|b| *b == b'-').next().unwrap_or_default());
        let transaction = format!("tx-{hex}");
        let alive = owner.as_ref().is_some_and(|o| is_other_and_alive(o, host));
        let row = Unfinished {
            transaction: transaction.clone(),
            journal,
            owner,
            staged: true,
            originals,
            open_in_store: false,
            alive,
            decided: None,
        };
        found.insert(transaction, row);
    }
    Ok(found)
}

/// Journals and the list of operations of this workspace where they cannot be read and
/// decide nothing: a restore that is half done has its staging, and a copy of its
/// journal there.
pub async fn unreadable(store: &dyn Store, root: &Root, host: &Host) -> Result<Vec<DocKey>> {
    let (at, who) = (root.clone(), host.clone());
    let found = blocking(move || staged(&at, &who)).await?;
    let (_, damaged) = journals(store, root).await?;
    let decides = |key: &DocKey| match key {
        DocKey::Journal(_, id) => found.contains_key(id.as_str()),
        _ => true,
    };
    let mut out: Vec<DocKey> = damaged.into_iter().filter(|key| !decides(key)).collect();
    match Operations::load(store, &root.key).await {
        Err(e) if e.kind() == Kind::Corrupt => out.push(DocKey::Operations(root.key.clone())),
        loaded => drop(loaded?),
    }
    Ok(out)
}

/// The readable journals of this workspace, and the keys of damaged ones. Those must not
/// keep anybody from working: see [`unreadable`].
async fn journals(store: &dyn Store, root: &Root) -> Result<(Vec<Journal>, Vec<DocKey>)> {
    let mut keys = Vec::new();
    let mut rows = store.list(&Prefix::Journals(root.key.clone()));
    while let Some(row) = rows.next().await {
        if let Listed::Doc { key, .. } = row? {
            keys.push(key);
        }
    }
    drop(rows);
    let reads = stream::iter(keys).map(|key| async move {
        let read = match store.get(&key).await {
            Ok(doc) => Journal::read(&key.to_string(), &doc.body),
            Err(e) => Err(e),
        };
        match read {
            Ok(journal) => Ok((Some(journal), None)),
            Err(e) if e.is_not_found() => Ok((None, None)),
            Err(e) if e.kind() == Kind::Corrupt => Ok((None, Some(key))),
            Err(e) => Err(e),
        }
    });
    let all: Vec<(Option<Journal>, Option<DocKey>)> = reads.buffered(16).try_collect().await?;
    let (journals, damaged): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    Ok((journals.into_iter().flatten().collect(), damaged.into_iter().flatten().collect()))
}

async fn closed_journal(store: &dyn Store, root: &Root, id: &str) -> Result<Option<Journal>> {
    let Ok(id) = TransactionId::new(id) else { return Ok(None) };
    let key = DocKey::Journal(root.key.clone(), id);
    match store.get(&key).await {
        Ok(doc) => Ok(Journal::read(&key.to_string(), &doc.body).ok()),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}
