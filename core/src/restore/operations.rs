//! The list of operations of a workspace: what `undo` and `redo` walk.
//!
//! `entries` are in order of time. `cursor` is the number of entries that are in
//! effect: what lies at and above it was undone and can be redone, until a new
//! operation abandons it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::journal::BankRef;
use crate::clock::Context;
use crate::error::{Error, Kind, Result};
use crate::ids::{Digest, SnapshotId, TransactionId, WorkspaceKey};
use crate::snapshot::tree::Ref;
use crate::store::{DocKey, Expect, Store, docs};

/// The newest entries kept.
pub const MAX_ENTRIES: usize = 1000;
/// Lost races before a write gives up.
const MAX_TRIES: usize = 10;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryState {
    /// In effect.
    Done,
    /// Undone; can be redone.
    Undone,
    /// Undone, and then something new was done.
    Abandoned,
    /// Its bank was pruned.
    Expired,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 0, never used twice.
    pub n: u64,
    /// Its transaction. An undone entry that was redone keeps its own.
    pub transaction: TransactionId,
    /// `restore` or `rewind`.
    pub kind: String,
    /// When, RFC 3339.
    pub at: String,
    /// The command.
    pub command: String,
    /// The snapshot that was put back.
    pub target: Option<SnapshotId>,
    /// The safety snapshot that undoes it.
    pub bank: Option<BankRef>,
    /// The safety snapshot of its undo, which redoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_bank: Option<BankRef>,
    /// The plan's scope.
    pub scope: Value,
    /// The plan's counts.
    pub counts: Value,
    /// The plan, as an object.
    pub plan: Ref,
    /// Its digest.
    pub plan_digest: Digest,
    /// What became of it.
    pub state: EntryState,
    /// Set-id bits were put back as the superuser.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub special_modes: bool,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// `operations.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    /// 1.
    pub format_version: u64,
    /// Writes so far.
    #[serde(default)]
    pub cas_version: u64,
    /// How many of `entries` are in effect.
    pub cursor: u64,
    /// The number of the next entry.
    #[serde(default)]
    pub next: u64,
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Fields of a later version, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            format_version: 1,
            cas_version: 0,
            cursor: 0,
            next: 0,
            entries: Vec::new(),
            extra: Map::new(),
        }
    }
}

/// What a finished transaction does to the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A new operation.
    Add,
    /// Entry `n` was undone.
    Undo(u64),
    /// Entry `n` was redone.
    Redo(u64),
}

impl Operations {
    /// Loads the list; empty when there is none.
    pub async fn load(store: &dyn Store, key: &WorkspaceKey) -> Result<Self> {
        Ok(load(store, key).await?.0)
    }

    /// The newest operation in effect, which `undo` undoes.
    pub fn to_undo(&self) -> Option<&Entry> {
        let below = self.entries.get(..self.cursor as usize)?;
        below.iter().rev().find(|e| matches!(e.state, EntryState::Done | EntryState::Expired))
    }

    /// The oldest undone operation, which `redo` does again.
    pub fn to_redo(&self) -> Option<&Entry> {
        let above = self.entries.get(self.cursor as usize..)?;
        above.iter().find(|e| e.state == EntryState::Undone)
    }

    /// Adds a new operation; what was undone before it is abandoned.
    pub fn add(&mut self, mut entry: Entry) {
        if self.entries.iter().any(|e| e.transaction == entry.transaction) {
            return; // written before a crash that came before the close
        }
        for undone in self.entries.iter_mut().filter(|e| e.state == EntryState::Undone) {
            undone.state = EntryState::Abandoned;
        }
        entry.n = self.next;
        self.next += 1;
        self.entries.push(entry);
        let surplus = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..surplus);
        self.cursor = self.entries.len() as u64;
    }

    /// Marks entry `n` undone, or done again; `bank` is that of the undo or redo.
    pub fn mark(&mut self, n: u64, state: EntryState, bank: Option<BankRef>) {
        let Some(at) = self.entries.iter().position(|e| e.n == n) else { return };
        let entry = &mut self.entries[at];
        entry.state = state;
        match state {
            EntryState::Undone => {
                entry.undo_bank = bank;
                self.cursor = at as u64;
            }
            EntryState::Done => {
                // What a later undo puts back is what this redo banked.
                if bank.is_some() {
                    entry.bank = bank;
                }
                self.cursor = at as u64 + 1;
            }
            EntryState::Abandoned | EntryState::Expired => {}
        }
    }
}

async fn load(
    store: &dyn Store,
    key: &WorkspaceKey,
) -> Result<(Operations, Option<crate::store::Version>)> {
    let loaded = docs::load::<Operations>(store, &DocKey::Operations(key.clone()), 1).await;
    let loaded = loaded.map_err(|e| match e.kind() {
        Kind::Corrupt => e.with_hint("backtrail doctor --fix begins a new list; the banks stay"),
        _ => e,
    })?;
    let Some((list, version)) = loaded else { return Ok((Operations::default(), None)) };
    Ok((list, Some(version)))
}

/// Changes the list by compare-and-swap.
pub(super) async fn update(
    store: &dyn Store,
    ctx: &Context,
    key: &WorkspaceKey,
    change: impl Fn(&mut Operations),
) -> Result<()> {
    let doc = DocKey::Operations(key.clone());
    for _ in 0..MAX_TRIES {
        let (mut list, version) = load(store, key).await?;
        let was = list.clone();
        change(&mut list);
        if list == was {
            return Ok(());
        }
        let expect = version.map_or(Expect::Absent, Expect::Version);
        match docs::save(store, &*ctx.ids, &doc, &list, expect, None).await {
            Err(e) if e.is_conflict() => {}
            done => return done.map(|_| ()),
        }
    }
    Err(Error::new(Kind::Busy, "busy", "the list of operations kept changing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> Entry {
        Entry {
            n: 0,
            transaction: format!("tx-{id:016x}").parse().expect("id"),
            kind: "restore".into(),
            at: String::new(),
            command: String::new(),
            target: None,
            bank: None,
            undo_bank: None,
            scope: Value::Null,
            counts: Value::Null,
            plan: Ref::whole(0, Digest::EMPTY),
            plan_digest: Digest::EMPTY,
            state: EntryState::Done,
            special_modes: false,
            extra: Map::new(),
        }
    }

    #[test]
    fn res_033_undo_and_redo_walk_the_list() {
        let mut list = Operations::default();
        list.add(entry(1));
        list.add(entry(2));
        list.add(entry(2));
        assert_eq!(list.entries.len(), 2);
        assert_eq!(list.to_undo().map(|e| e.n), Some(1));
        list.mark(1, EntryState::Undone, None);
        assert_eq!(list.to_undo().map(|e| e.n), Some(0));
        assert_eq!(list.to_redo().map(|e| e.n), Some(1));
        list.mark(0, EntryState::Undone, None);
        assert_eq!((list.to_undo(), list.to_redo().map(|e| e.n)), (None, Some(0)));
        list.mark(0, EntryState::Done, None);
        assert_eq!(list.to_redo().map(|e| e.n), Some(1));
    }

    #[test]
    fn res_035_a_new_operation_abandons_what_was_undone() {
        let mut list = Operations::default();
        list.add(entry(1));
        list.add(entry(2));
        list.mark(1, EntryState::Undone, None);
        list.add(entry(3));
        let states: Vec<_> = list.entries.iter().map(|e| e.state).collect();
        assert_eq!(states, [EntryState::Done, EntryState::Abandoned, EntryState::Done]);
        assert_eq!(list.to_undo().map(|e| e.n), Some(2));
        list.mark(2, EntryState::Undone, None);
        assert_eq!(list.to_undo().map(|e| e.n), Some(0), "an abandoned entry is passed over");
    }
}
