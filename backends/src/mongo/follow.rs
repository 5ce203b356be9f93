//! What tells a follower of new records: a change stream, where there is one, else time.
//! The stream is a bell alone. What came is read from the collection, in order and once,
//! so a stream that repeats, stutters or dies costs time and nothing else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::ids::RunId;
use futures::StreamExt;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use tokio::time::Instant;

use super::fault::{NO_CHANGE_STREAM, code_of};
use super::space::Space;
use crate::net::runlog::Bell;

/// How often a follower without a stream looks.
const POLL: Duration = Duration::from_millis(500);
/// How often one with a stream looks all the same.
const SAFETY: Duration = Duration::from_millis(1_500);
/// After this many failures the stream is left alone for a while.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(60);

/// A bell of the records of one run in one collection.
pub(super) struct Pushed {
    space: Arc<Space>,
    table: &'static str,
    dir: String,
    stream: Option<ChangeStream<Document>>,
    failures: u32,
    /// Not to be tried before.
    rest: Option<Instant>,
    /// The server has no change streams.
    never: bool,
}

impl Pushed {
    pub(super) fn new(space: Arc<Space>, table: &'static str, run: &RunId) -> Self {
        let dir = format!("{run}/");
        Self { space, table, dir, stream: None, failures: 0, rest: None, never: false }
    }

    /// Opens the stream unless it is open or must not be tried yet.
    pub(super) async fn open(&mut self) {
        let resting = self.rest.is_some_and(|until| Instant::now() < until);
        if self.stream.is_some() || self.never || resting {
            return;
        }
        let shown = [
            doc! { "$match": self.space.inserts_below(&self.dir) },
            doc! { "$project": { "_id": 1, "operationType": 1, "ns": 1 } },
        ];
        let table = self.space.db().collection::<Document>(self.table);
        match table.watch().pipeline(shown).await {
            Ok(stream) => self.stream = Some(stream.with_type()),
            Err(e) => {
                self.never = code_of(&e) == Some(NO_CHANGE_STREAM);
                self.failed();
            }
        }
    }

    fn failed(&mut self) {
        self.stream = None;
        self.failures += 1;
        if self.failures >= FAILURES {
            self.failures = 0;
            self.rest = Some(Instant::now() + REST);
        }
    }
}

#[async_trait]
impl Bell for Pushed {
    async fn rung(&mut self) {
        self.open().await;
        let Some(stream) = &mut self.stream else { return tokio::time::sleep(POLL).await };
        match tokio::time::timeout(SAFETY, stream.next()).await {
            Err(_) => {}
            Ok(Some(Ok(_))) => self.failures = 0,
            Ok(Some(Err(_)) | None) => self.failed(),
        }
    }
}
