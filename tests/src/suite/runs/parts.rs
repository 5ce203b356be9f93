//! RUN-AR01, IN01, LG01, LG02: what belongs to a run.

use std::sync::Arc;

use backtrail_core::error::Kind;
use backtrail_core::ids::{InteractionId, NodeId, RunId};
use backtrail_core::process::{Chunk, LogSink, Sink as _, Stream};
use backtrail_core::redact::Redactor;
use backtrail_core::run::{
    Actor, Answered, Checkpoint, EngineEvent, MAX_CHUNK_BYTES, NewEvent, PausePointer, Run,
    RunStore, Status, Transition, Turn, interaction_id,
};
use backtrail_core::store::layers::Call;
use backtrail_core::store::layers::fault::{Fault, FaultStore};
use backtrail_core::store::{DocKey, LogPart};
use bytes::Bytes;
use futures::TryStreamExt;
use serde_json::{Map, Value, json};

use super::{context, runs, started, stored};
use crate::suite::{Site, at_once, refused};

fn node(id: &str) -> NodeId {
    id.parse().expect("a node id")
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// RUN-AR01: versions in order, the latest with and without the index, and a crash
/// between artifact and checkpoint.
pub async fn ar01_versions_are_never_overwritten(site: &Site) {
    let fault = Arc::new(FaultStore::new(site.open().await));
    let runs = RunStore::new(fault.clone(), context());
    let (ours, mut run) = started(&runs, "r").await;
    let plan = node("plan");
    let write = async |from: u64, data: Value| {
        let done = ours.write_artifact(run.id(), &plan, from, data, Vec::new()).await;
        done.expect("writes").version
    };
    for n in 0..3 {
        assert_eq!(write(n, json!({"n": n})).await, n);
    }
    // The checkpoint never learned of version 2: the next one is free, the old one stays.
    assert_eq!(write(2, json!({"n": "again"})).await, 3);
    assert_eq!(ours.artifact(run.id(), &plan, 2).await.expect("reads").data, json!({"n": 2}));
    fault.arm(Call::Put, 1, Fault::AfterConflict);
    assert_eq!(write(4, json!({"n": 4})).await, 4, "ours, although the answer was a refusal");
    for n in 5..12 {
        assert_eq!(write(n, json!({"n": n})).await, n);
    }
    let (other, words) = (node("other"), vec!["x".to_owned()]);
    let other = ours.write_artifact(run.id(), &other, 0, json!(1), words).await;
    assert_eq!(other.expect("writes").labels, ["x"]);
    let versions = runs.artifact_versions(run.id()).await.expect("lists");
    assert_eq!(versions[&plan], (0..12).collect::<Vec<_>>());
    let latest = async |run: &Run| runs.artifact_index(run).await.expect("knows")["plan"];
    assert_eq!(latest(&run).await, 11, "without an index by listing");
    let mut checkpoint = Checkpoint::at("plan");
    checkpoint.artifact_versions.insert("plan".into(), 12);
    ours.patch(&mut run, |r| {
        r.artifact_index = Some([("plan".to_owned(), 3)].into());
        Ok(())
    })
    .await
    .expect("patches");
    ours.save_checkpoint(&mut run, &checkpoint).await.expect("saves");
    assert_eq!(latest(&run).await, 11, "an index that is behind is not trusted");
    let large = json!("x".repeat(1 << 20));
    let e = ours.write_artifact(run.id(), &plan, 12, large, Vec::new()).await;
    let e = refused(e, Kind::Invalid);
    assert_eq!(e.details()["failure_code"], "SCHEMA_VALIDATION");
    refused(runs.artifact(run.id(), &plan, 99).await, Kind::NotFound);
    let absent: RunId = "absent".parse().expect("an id");
    refused(ours.write_artifact(&absent, &plan, 0, json!(1), Vec::new()).await, Kind::NotFound);
}

async fn ask(ours: &RunStore, run: &mut Run, iteration: u64) -> InteractionId {
    let id = interaction_id(run.id(), &node("ok"), iteration, 0).expect("an id");
    let questions = json!({"summary": "ship it?"});
    ours.ask(run.id(), &id, &node("ok"), questions.clone(), None).await.expect("asks");
    let pointer = PausePointer { interaction_id: id.to_string(), questions: Some(questions) };
    let pause = Transition::new(Status::PausedWaitingHuman, Actor::Engine, [Status::Running]);
    let pause = pause.asking(pointer).checkpoint(Checkpoint::at("ok"));
    ours.transition(run, &pause).await.expect("pauses");
    id
}

/// RUN-IN01: the first answer wins, and a question without its document is still one.
pub async fn in01_the_first_answer_wins(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    let id = ask(&ours, &mut run, 0).await;
    assert_eq!(id.as_str(), "r_ok");
    let open = runs.open_question(&run).await.expect("reads").expect("open");
    assert_eq!((open.id, open.questions), (id.clone(), json!({"summary": "ship it?"})));
    let stored_key = DocKey::Interaction(run.id().clone(), id.clone());
    let there = crate::suite::body(&**runs.store(), &stored_key).await;
    assert!(there.contains("\"answered_at\": null"), "{there}");
    let shared = Arc::new((runs.clone(), run.clone(), id.clone()));
    let answer = |n: usize| {
        let shared = shared.clone();
        async move {
            let (runs, run, id) = &*shared;
            runs.answer(run, id, &object(json!({"approve": n.is_multiple_of(2)}))).await
        }
    };
    let done = at_once(6, answer).await;
    let firsts = done.iter().filter(|d| matches!(d, Ok(Answered::First(_)))).count();
    assert_eq!(firsts, 1, "{done:?}");
    let recorded = runs.interaction(run.id(), &id).await.expect("reads").answers.expect("there");
    let won = recorded["approve"].as_bool().expect("a word");
    for (n, done) in done.into_iter().enumerate() {
        match done {
            Ok(Answered::First(_) | Answered::Same(_)) => assert_eq!(n.is_multiple_of(2), won),
            Err(e) => assert_eq!((e.code(), e.kind()), ("already-answered", Kind::Conflict)),
        }
    }
    // Asked again under the same id it is answered already.
    refused(ours.ask(run.id(), &id, &node("ok"), json!({}), None).await, Kind::Conflict);
    lost_and_retired(&runs, &ours, run).await;
}

async fn lost_and_retired(runs: &RunStore, ours: &RunStore, mut run: Run) {
    super::person(ours, &mut run, Status::Running).await;
    let id = ask(ours, &mut run, 1).await;
    assert_eq!(id.as_str(), "r_ok.1");
    let key = DocKey::Interaction(run.id().clone(), id.clone());
    runs.store().delete(&key, None).await.expect("loses it");
    let open = runs.open_question(&run).await.expect("reads").expect("open");
    assert!(open.interaction.is_none());
    assert_eq!(open.questions, json!({"summary": "ship it?"}), "the checkpoint's copy");
    let answers = object(json!({"approve": true}));
    let done = runs.answer(&run, &id, &answers).await.expect("records");
    assert!(matches!(done, Answered::First(i) if i.node_id == node("ok")));
    let done = runs.answer(&run, &id, &answers).await.expect("repeats");
    assert!(matches!(done, Answered::Same(_)));
    let unknown: InteractionId = "r_other".parse().expect("an id");
    refused(runs.answer(&run, &unknown, &answers).await, Kind::NotFound);

    super::person(ours, &mut run, Status::Running).await;
    let id = ask(ours, &mut run, 2).await;
    let turn = Turn {
        role: "companion".into(),
        content: json!("looks good"),
        verdict: None,
        at: "2026-01-01T00:00:00Z".into(),
        extra: Map::new(),
    };
    let there = ours.add_turn(&run, &id, &turn, false).await.expect("adds");
    assert_eq!(there.turns.as_deref(), Some(&[turn][..]));
    ours.retire(&run, &id).await.expect("retires");
    assert!(runs.open_question(&run).await.expect("reads").is_none(), "it blocks nothing");
    assert_eq!(refused(runs.answer(&run, &id, &answers).await, Kind::Refused).code(), "retired");
    let all = runs.interactions(run.id()).await.expect("lists");
    assert_eq!(all.iter().filter(|i| i.retired_at.is_some()).count(), 1);
    assert_eq!(all.len(), 3);
    assert_eq!(stored(&**runs.store(), run.id()).await["status"], "paused_waiting_human");
}

fn bytes(offset: u64, text: &str) -> LogPart {
    LogPart::Bytes { offset, bytes: Bytes::from(text.to_owned()) }
}

/// RUN-LG01: sizes, windows, repeats, gaps, and lines of any length.
pub async fn lg01_logs_by_offset(site: &Site) {
    let fault = Arc::new(FaultStore::new(site.open().await));
    let runs = RunStore::new(fault.clone(), context());
    let (ours, mut run) = started(&runs, "r").await;
    let id = run.id().clone();
    assert_eq!(runs.log_size(&id).await.expect("asks"), 0);
    let append = async |at: u64, text: &'static str| {
        ours.append_log(&id, Some(at), Bytes::from_static(text.as_bytes())).await.expect("appends")
    };
    assert_eq!((append(0, "hello ").await, append(6, "world").await), (0, 6));
    assert_eq!(append(6, "world").await, 6, "the same again");
    let read = async |from, to| runs.read_log(&id, from, to).await.expect("reads");
    assert_eq!(read(4, 9).await, [bytes(4, "o wor")]);
    assert!(read(11, 0).await.is_empty() && read(400, 500).await.is_empty());
    assert_eq!(runs.log_size(&id).await.expect("asks"), 11);
    // A piece that cannot be stored is a gap; what follows keeps its place.
    let log = ours.open_log(&id, u64::MAX, Redactor::none()).await.expect("at the end");
    assert_eq!(log.position().await, 11);
    let mut sink = log.sink(None);
    fault.arm_times(Call::AppendLog, 1, 3, Fault::Before);
    print(&mut sink, b"lost\n").await;
    assert_eq!(log.report().await.holes, 1);
    fault.arm_times(Call::AppendLog, 1, 2, Fault::Before);
    print(&mut sink, b"kept\n").await;
    assert_eq!(log.report().await.holes, 0, "the third try stored it");
    let hole = LogPart::Hole { offset: 11, len: 5 };
    assert_eq!(read(0, 0).await, [bytes(0, "hello world"), hole, bytes(16, "kept\n")]);
    // A line of 17 MiB goes in parts, none above 1 MiB.
    let before = log.position().await;
    let line = "x".repeat(17 << 20);
    print(&mut sink, line.as_bytes()).await;
    let mut whole = Vec::new();
    for part in read(before, 0).await {
        let LogPart::Bytes { bytes, .. } = part else { panic!("no gap: {part:?}") };
        whole.extend_from_slice(&bytes);
    }
    assert!(whole == line.as_bytes());
    assert_eq!(before + line.len() as u64, log.position().await);
    assert_eq!(runs.log_size(&id).await.expect("asks"), log.position().await);
    const { assert!(MAX_CHUNK_BYTES == 1 << 20) };
    super::engine(&ours, &mut run, Status::Finished).await;
    let parts: Vec<LogPart> = runs.follow_log(&id, 16).try_collect().await.expect("ends");
    assert_eq!(parts.last().map(LogPart::end), Some(log.position().await));
}

/// Hands output on as the pump of a command does.
async fn print(sink: &mut LogSink, output: &[u8]) {
    for piece in output.chunks(64 * 1024) {
        let chunk = Chunk { stream: Stream::Out, bytes: Bytes::copy_from_slice(piece) };
        sink.chunk(chunk).await.expect("is not held up");
    }
    sink.tick().await.expect("passes on");
}

/// RUN-LG02: at its limit the log says so once, and holds nobody up.
pub async fn lg02_the_limit_is_told_once(site: &Site) {
    let runs = runs(site).await;
    let (ours, run) = started(&runs, "r").await;
    let mut told = 0;
    for _ in 0..2 {
        // The second time as another process goes on with the same log.
        let log = ours.open_log(run.id(), 20, Redactor::none()).await.expect("begins");
        let mut sink = log.sink(None);
        print(&mut sink, b"0123456789\n").await;
        print(&mut sink, b"abcdefghijklmnop").await;
        for _ in 0..100 {
            print(&mut sink, &[b'z'; 4096]).await;
        }
        log.note("more").await.expect("is not held up");
        log.flush().await.expect("passes on");
        let report = log.report().await;
        assert!(report.error.is_none(), "{report:?}");
        if report.truncated {
            told += 1;
            let limit = NewEvent::engine(&EngineEvent::LogTruncated { limit: 20 });
            let event = limit.log_offset(log.position().await);
            ours.append_events(run.id(), &[event]).await.expect("appends");
        }
    }
    assert_eq!(told, 1);
    let parts = runs.read_log(run.id(), 0, 0).await.expect("reads");
    let [LogPart::Bytes { bytes, .. }] = &parts[..] else { panic!("{parts:?}") };
    let text = std::str::from_utf8(bytes).expect("text");
    let (output, notice) = text.split_once("\n[backtrail] ").expect("one notice");
    assert_eq!(output, "0123456789\nabcdefghi");
    assert!(notice.contains("limit of 20 bytes") && notice.lines().count() == 1, "{notice}");
    let events: Vec<_> = runs.events(run.id(), 0).try_collect().await.expect("reads");
    let [one] = &events[..] else { panic!("{events:?}") };
    assert_eq!((one.kind(), one.data("limit")), ("log_truncated", Some(&json!(20))));
    assert_eq!(one.log_offset(), Some(text.len() as u64));
}
