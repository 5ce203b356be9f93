//! What a drive is handed: the place it works in, how it works, and who watches.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::capture;
use crate::clock::Context;
use crate::error::Result;
use crate::process::{ScratchPlaces, Tee};
use crate::run::{LOG_LIMIT, RunRecord, RunStore};
use crate::snapshot::doc::Delta;
use crate::workspace::Root;

/// Where a run executes.
#[derive(Clone)]
pub struct Place {
    /// The runs of the store, without a claim.
    pub runs: RunStore,
    /// Time, chance and host. Its cancel token must be one that no signal sets: a signal
    /// comes as an [`Interrupts`], so that the last captures and records still work.
    pub ctx: Context,
    /// The workspace.
    pub root: Root,
    /// How it is captured.
    pub capture: capture::Settings,
    /// How a run is driven.
    pub settings: Settings,
    /// Who hears about it.
    pub watcher: Arc<dyn Watcher>,
}

/// How a run is driven.
#[derive(Clone)]
pub struct Settings {
    /// The command, for the messages of others who wait.
    pub command: String,
    /// The environment of the engine, from which secrets are taken and which commands
    /// inherit.
    pub environment: Vec<(OsString, OsString)>,
    /// Where scratch files may lie.
    pub scratch: ScratchPlaces,
    /// Between TERM and KILL, when a node does not say.
    pub grace: Duration,
    /// The limit of a run log in bytes.
    pub log_limit: u64,
    /// A capture that takes longer costs its own boundary.
    pub capture_timeout: Option<Duration>,
    /// How long locks are waited for.
    pub wait: Duration,
    /// Other runs may execute in the workspace meanwhile.
    pub share_workspace: bool,
    /// Values of variables whose names say that they are secret are redacted too.
    pub redact_guessed: bool,
    /// What commands get as `BACKTRAIL_STORE`.
    pub store: Option<OsString>,
    /// Where the standard streams of commands lead.
    pub streams: Streams,
    /// Processes that commands leave behind stay.
    pub keep_children: bool,
}

impl Settings {
    /// The settings of a runtime that executes itself what its nodes do, and calls
    /// itself `command` in messages to others.
    pub fn embedded(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            environment: Vec::new(),
            scratch: ScratchPlaces::default(),
            grace: Duration::from_secs(10),
            log_limit: LOG_LIMIT,
            capture_timeout: None,
            wait: Duration::from_secs(30),
            share_workspace: false,
            redact_guessed: true,
            store: None,
            streams: Streams::Log,
            keep_children: false,
        }
    }
}

/// Where the standard streams of commands lead.
#[derive(Clone, Default)]
pub enum Streams {
    /// Into the run log.
    #[default]
    Log,
    /// Into the run log and, byte for byte, to what this makes for each command. With
    /// `own_input` commands read what we would.
    Tee {
        /// Makes the copies' ends.
        make: Arc<dyn Fn() -> Tee + Send + Sync>,
        /// Standard input is ours.
        own_input: bool,
    },
    /// They are ours; nothing is recorded.
    Inherit,
}

/// Signals as they come, by their names. The first stops the run, the second skips the
/// grace.
pub type Interrupts = mpsc::UnboundedReceiver<String>;

/// Hears what a drive does, for people.
pub trait Watcher: Send + Sync {
    /// The run exists and is claimed. An error ends the drive before anything executes.
    fn begun(&self, _run: &RunRecord) -> Result<()> {
        Ok(())
    }
    /// A node's attempt ended.
    fn node(&self, _line: &NodeLine<'_>) {}
    /// Something to know.
    fn warning(&self, _text: &str) {}
}

/// Nobody watches.
pub struct Unwatched;

impl Watcher for Unwatched {}

/// One line about a node, for people.
#[derive(Clone, Copy, Debug)]
pub struct NodeLine<'a> {
    /// The node.
    pub node: &'a str,
    /// The entry into it, from 0.
    pub iteration: u64,
    /// `ok`, `asks`, or why it failed.
    pub outcome: &'a str,
    /// How long it took.
    pub elapsed: Duration,
    /// What the capture behind it found changed.
    pub changed: Option<Delta>,
}
