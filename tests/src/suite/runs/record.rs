//! RUN-RS01 to RS05, RS08, RS09, RS12, RS15 to RS17.

use backtrail_core::error::Kind;
use backtrail_core::ids::{InteractionId, NodeId};
use backtrail_core::run::{
    Actor, Checkpoint, FailureCode, Moved, NewRun, RunRow, RunStore, Status, Transition,
};
use backtrail_core::store::{DocKey, Listed, Prefix};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};

use super::{context, engine, forge, new_run, person, runs, started, stored};
use crate::suite::{Site, put, refused, run_id};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// RUN-RS01: what was created is loaded; local runs are running, submitted ones queued.
pub async fn rs01_created_is_loaded(site: &Site) {
    let runs = runs(site).await;
    let inputs = object(json!({"issue": "K7", "n": 3}));
    let new = NewRun {
        inputs: Some(inputs.clone()),
        workflow_source: Some("name: flow\n".into()),
        work_dir: Some("/w".into()),
        ..NewRun::new("flow", "plan")
    };
    let created = runs.create(new.clone()).await.expect("creates");
    let id = created.run.id().clone();
    assert!(created.claim.is_some());
    let other = RunStore::new(site.open().await, context());
    let run = other.load(&id).await.expect("loads");
    assert_eq!(run.record, created.run.record);
    assert_eq!((run.id(), run.status()), (&id, &Status::Running));
    assert_eq!(run.record.workflow_name, "flow");
    assert_eq!(run.record.inputs, Some(inputs));
    assert_eq!(run.record.checkpoint().expect("there").node_id, "plan");
    assert_eq!(run.record.name, format!("flow-{}", &id.as_str()[30..]));
    assert_eq!((run.record.claim_seq(), run.record.outcome_seq()), (1, 0));
    let hash = run.record.workflow_hash.clone().expect("hashed");
    assert_eq!(hash, backtrail_core::ids::Digest::of(b"name: flow\n").hex());
    assert_eq!(id.as_str().len(), 36, "a UUID: {id}");
    assert_eq!(id.as_str().as_bytes()[14], b'7');
    assert!(other.owner(&id).await.expect("asks").is_some());
    let queued = runs.create(NewRun { queued: true, ..new }).await.expect("creates");
    assert!(queued.claim.is_none());
    let run = other.load(queued.run.id()).await.expect("loads");
    assert_eq!(run.status(), &Status::Queued);
    assert!(run.record.queued_at().is_some() && run.record.started_at().is_none());
    assert!(other.owner(run.id()).await.expect("asks").is_none());
}

/// RUN-RS02: an id that exists or was deleted lately is a conflict, and nothing changes.
pub async fn rs02_an_id_is_used_once(site: &Site) {
    let runs = runs(site).await;
    let (_runs, run) = started(&runs, "once").await;
    let before = stored(&**runs.store(), run.id()).await;
    for queued in [false, true] {
        let again = runs.create(NewRun { queued, ..new_run("once") }).await;
        refused(again, Kind::Conflict);
    }
    assert_eq!(stored(&**runs.store(), run.id()).await, before);
    let gone = run_id("gone");
    let tombstone = DocKey::RunTombstone(gone.clone());
    let store = &**runs.store();
    put(store, &tombstone, "{}", backtrail_core::store::Expect::Absent).await.expect("puts");
    let e = refused(runs.create(new_run("gone")).await, Kind::Conflict);
    assert_eq!(e.code(), "deleted");
    let e = refused(runs.load(&gone).await, Kind::NotFound);
    assert_eq!(e.code(), "deleted");
}

/// RUN-RS03: what each status sets and clears.
pub async fn rs03_statuses_set_and_clear(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    let mut checkpoint = Checkpoint::at("b");
    checkpoint.outputs.insert("a".into(), json!({"note": "kept"}));
    ours.save_checkpoint(&mut run, &checkpoint).await.expect("saves");
    let failed = Transition::new(Status::FailedResumable, Actor::Engine, [Status::Running])
        .failure(FailureCode::EXECUTION_FAILED, "exit 3");
    ours.transition(&mut run, &failed).await.expect("moves");
    assert!(run.record.finished_at().is_some());
    assert_eq!(run.record.error(), Some("exit 3"));
    person(&ours, &mut run, Status::Running).await;
    assert_eq!((run.record.finished_at(), run.record.error()), (None, None));
    assert_eq!(run.record.failure_code(), None);
    assert_eq!(run.record.checkpoint(), Some(&checkpoint));
    assert_eq!(run.record.claim_seq(), 2);
    engine(&ours, &mut run, Status::Failed).await;
    let parked = Transition::new(Status::PausedOperator, Actor::Person, [Status::Failed])
        .rewind("tx-0123456789abcdef");
    ours.transition(&mut run, &parked).await.expect("parks");
    assert_eq!(run.record.finished_at(), None);
    assert!(run.record.needs_person());
    person(&ours, &mut run, Status::Running).await;
    assert!(!run.record.needs_person());
    let done = Transition::new(Status::Finished, Actor::Engine, [Status::Running])
        .result(json!({"tries": 2}));
    ours.transition(&mut run, &done).await.expect("finishes");
    let there = stored(&**runs.store(), run.id()).await;
    assert!(there["finished_at"].is_string());
    assert_eq!(there["result"], json!({"tries": 2}));
    assert_eq!(there["checkpoint"]["outputs"]["a"]["note"], "kept");
}

/// RUN-RS04: outcomes are counted at each arrival.
pub async fn rs04_outcomes_are_counted(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    assert_eq!(run.record.outcome_seq(), 0);
    engine(&ours, &mut run, Status::FailedResumable).await;
    assert_eq!(run.record.outcome_seq(), 1);
    person(&ours, &mut run, Status::Cancelled).await;
    assert_eq!(run.record.outcome_seq(), 2);
    let code = run.record.failure_code().map(FailureCode::as_str);
    assert_eq!(code, Some(FailureCode::CANCELLED));
    // Written again in the same status: no new outcome.
    ours.patch(&mut run, |r| {
        r.result = Some(json!(1));
        Ok(())
    })
    .await
    .expect("patches");
    assert_eq!(run.record.outcome_seq(), 2);
    person(&ours, &mut run, Status::Running).await;
    assert_eq!((run.record.outcome_seq(), run.record.failure_code()), (2, None));
    let born = forge(&**runs.store(), "born", json!({"status": "cancelled"})).await;
    assert_eq!(runs.load(&born).await.expect("loads").record.outcome_seq(), 0);
}

/// RUN-RS05: a transition names where it expects the run.
pub async fn rs05_wrong_expectation_moves_nothing(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    let before = stored(&**runs.store(), run.id()).await;
    let change =
        Transition::new(Status::Cancelled, Actor::Person, [Status::Queued, Status::Failed]);
    let moved = ours.transition(&mut run, &change).await.expect("answers");
    assert_eq!(moved, Moved::Not { actual: Status::Running });
    let empty = Transition::new(Status::Finished, Actor::Engine, []);
    refused(ours.transition(&mut run, &empty).await, Kind::Invalid);
    // Without the claim the engine has no right.
    let done = Transition::new(Status::Finished, Actor::Engine, [Status::Running]);
    let e = refused(runs.transition(&mut run, &done).await, Kind::Refused);
    assert_eq!(e.code(), "bad-transition");
    assert_eq!(stored(&**runs.store(), run.id()).await, before);
    // A stale copy asks the store where the run is now.
    let mut stale = run.clone();
    engine(&ours, &mut run, Status::FailedResumable).await;
    let moved = ours.transition(&mut stale, &done).await.expect("answers");
    assert_eq!(moved, Moved::Not { actual: Status::FailedResumable });
    assert_eq!(stale.status(), &Status::FailedResumable);
}

/// RUN-RS08: everything unknown survives ten transitions, at every depth.
pub async fn rs08_unknown_fields_survive(site: &Site) {
    let runs = runs(site).await;
    let odd = json!({
        "$name": "$inputs.x", "a.b": {"$x": 1, "": [null, {"deep.er": {"$y": [1.5, "\u{7f}\u{2028}"]}}]},
        "": 0, "max": i64::MAX, "min": i64::MIN, "unsigned": u64::MAX,
    });
    let members = json!({
        "status": "paused_operator",
        "inputs": odd, "$x": odd, "a.b": odd, "": odd, "tenant_id": "t",
        "checkpoint": {"node_id": "a", "new": odd, "current": {"iteration": 1, "attempt": 2, "new": odd},
            "outputs": {"a": odd}, "vars": {"$v": odd}},
        "holder": {"host": "h", "token": 0, "new": odd},
        "versioning": {"state": "on", "rules": odd},
    });
    let id = forge(&**runs.store(), "r", members.clone()).await;
    let claim = runs.claim(&id, std::time::Duration::ZERO, "suite").await.expect("claims");
    let ours = runs.with_claim(std::sync::Arc::new(claim));
    let mut run = ours.load(&id).await.expect("loads");
    for _ in 0..5 {
        person(&ours, &mut run, Status::Running).await;
        engine(&ours, &mut run, Status::PausedOperator).await;
    }
    let there = stored(&**runs.store(), &id).await;
    for name in ["inputs", "$x", "a.b", "", "tenant_id", "versioning", "checkpoint"] {
        let mut want = members[name].clone();
        if name == "checkpoint" {
            want["loop_counters"] = json!({});
            want["artifact_versions"] = json!({});
        }
        assert_eq!(there[name], want, "{name}");
    }
    assert_eq!(there["holder"]["new"], odd);
    assert_eq!(there["cas_version"], 11);
}

/// RUN-RS09: a code stands only on what failed, and a wrong one is dropped in memory.
pub async fn rs09_codes_come_and_go(site: &Site) {
    let runs = runs(site).await;
    let (ours, mut run) = started(&runs, "r").await;
    let fail = |code: &str| {
        Transition::new(Status::FailedResumable, Actor::Engine, [Status::Running])
            .failure(code, "why")
    };
    for to in [Status::Running, Status::Queued] {
        ours.transition(&mut run, &fail("NEVER_SEEN")).await.expect("fails");
        let code = runs.load(run.id()).await.expect("loads").record.failure_code().cloned();
        assert_eq!(code, FailureCode::new("NEVER_SEEN"));
        assert!(!code.expect("there").is_retryable());
        person(&ours, &mut run, to.clone()).await;
        assert_eq!((run.record.failure_code(), run.record.error()), (None, None), "{to}");
        if to == Status::Queued {
            let claim = Transition::new(Status::Running, Actor::Engine, [Status::Queued]);
            ours.transition(&mut run, &claim).await.expect("claims");
        }
    }
    ours.transition(&mut run, &fail("")).await.expect("fails");
    assert_eq!(run.record.failure_code(), None, "empty is unknown");
    let parked = Transition::new(Status::PausedOperator, Actor::Person, [Status::FailedResumable]);
    ours.transition(&mut run, &parked.rewind("tx-0123456789abcdef")).await.expect("parks");
    assert_eq!(run.record.error(), None);
    let wrong = json!({
        "failure_code": "TIMEOUT", "error": "old", "finished_at": "2026-01-01T00:00:00Z",
        "checkpoint": {"node_id": "a", "interaction_id": "q", "interaction_questions": {}},
    });
    let id = forge(&**runs.store(), "wrong", wrong).await;
    let before = stored(&**runs.store(), &id).await;
    let record = runs.load(&id).await.expect("loads").record;
    assert_eq!((record.failure_code(), record.error(), record.finished_at()), (None, None, None));
    assert_eq!(record.checkpoint().expect("there").interaction_id, None);
    assert_eq!(record.name, "flow-wrong");
    assert_eq!(stored(&**runs.store(), &id).await, before);
}

/// RUN-RS12: a later format is shown and left alone.
pub async fn rs12_a_newer_record_is_only_shown(site: &Site) {
    let runs = runs(site).await;
    for version in [Value::Null, json!(0), json!(1)] {
        let id = forge(&**runs.store(), "old", json!({"format_version": version})).await;
        let mut run = runs.load(&id).await.expect("loads");
        assert_eq!(run.record.format_version(), 1);
        runs.request_pause(&mut run, None).await.expect("writes");
        assert_eq!(stored(&**runs.store(), &id).await["format_version"], 1);
    }
    let newer = json!({"format_version": 2, "status": "failed", "error": "x", "finished_at": "y"});
    let id = forge(&**runs.store(), "newer", newer).await;
    let before = stored(&**runs.store(), &id).await;
    let mut run = runs.load(&id).await.expect("is shown");
    assert_eq!((run.record.format_version(), run.status()), (2, &Status::Failed));
    refused(runs.request_cancel(&mut run, None).await, Kind::Newer);
    let park = Transition::new(Status::PausedOperator, Actor::Person, [Status::Failed]).rewind("t");
    refused(runs.transition(&mut run, &park).await, Kind::Newer);
    let record = run.record.clone();
    refused(runs.save(&mut run, &record).await, Kind::Newer);
    refused(runs.save_checkpoint(&mut run, &Checkpoint::at("b")).await, Kind::Newer);
    assert_eq!(stored(&**runs.store(), &id).await, before);
    // Of another shape it is newer too, never damage.
    let id = forge(&**runs.store(), "shape", json!({"format_version": 9, "status": 7})).await;
    refused(runs.load(&id).await, Kind::Newer);
}

/// RUN-RS15: an id that could mean something to a path gets nowhere.
pub async fn rs15_bad_ids_are_refused(site: &Site) {
    let runs = runs(site).await;
    let long = "x".repeat(300);
    for bad in ["", ".", "..", "../x", "a/b", "a\\b", "a\nb", &long] {
        let new = NewRun { id: Some(bad.to_owned()), ..new_run("r") };
        refused(runs.create(new).await, Kind::Invalid);
        refused(runs.resolve(bad, None).await, Kind::Invalid);
        refused(bad.parse::<backtrail_core::ids::RunId>(), Kind::Invalid);
        refused(bad.parse::<NodeId>(), Kind::Invalid);
        refused(bad.parse::<InteractionId>(), Kind::Invalid);
        refused(runs.create(NewRun::new("flow", bad)).await, Kind::Invalid);
    }
    // A new id is plainer than one that is read.
    for odd in ["-x", "a b", "a:b", "\u{e9}", &"x".repeat(129)] {
        refused(runs.create(new_run(odd)).await, Kind::Invalid);
        assert!(odd.parse::<backtrail_core::ids::RunId>().is_ok());
    }
    refused("a:b".parse::<NodeId>(), Kind::Invalid);
    // A store on a network has its marker from the start.
    let mut rows: Vec<_> = runs.store().list(&Prefix::All).try_collect().await.expect("lists");
    rows.retain(|row| !matches!(row, Listed::Doc { key: DocKey::Marker, .. }));
    assert!(rows.is_empty(), "{rows:?}");
    if let Some(dir) = site.dir() {
        let beside = std::fs::read_dir(dir.parent().expect("a parent")).expect("lists");
        assert!(beside.count() <= 1, "only the store, if that");
        assert!(!dir.join("runs").exists());
    }
}

/// RUN-RS16: a place without a record is no run, and locking an absent run makes nothing.
pub async fn rs16_leftovers_are_no_runs(site: &Site) {
    let runs = runs(site).await;
    let id = run_id("absent");
    let claim = runs.claim(&id, std::time::Duration::ZERO, "suite").await;
    refused(claim, Kind::NotFound);
    assert!(runs.owner(&id).await.expect("asks").is_none());
    let event = backtrail_core::run::NewEvent::foreign("t", Map::new()).expect("an event");
    refused(runs.append_events(&id, &[event]).await, Kind::NotFound);
    let Some(dir) = site.dir() else { return };
    assert!(!dir.exists(), "nothing was created");
    let (_ours, run) = started(&runs, "real").await;
    for place in ["locks-only/locks/x.lock", "logs-only/events.jsonl", "empty/x"] {
        let path = dir.join("runs").join(place);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("makes");
        std::fs::write(path, "").expect("writes");
    }
    std::fs::remove_file(dir.join("runs/empty/x")).expect("removes");
    let rows: Vec<RunRow> = runs.list().try_collect().await.expect("lists");
    let [RunRow::Run(one)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(one.id(), run.id());
    let places = ["runs/empty", "runs/locks-only", "runs/logs-only"];
    assert_eq!(named_by_doctor(&runs).await, places);
    // A day later a sweep takes them away, but never what holds a document or is held.
    let old = dir.join("runs/with-document");
    std::fs::create_dir_all(old.join("artifacts/a")).expect("makes");
    std::fs::write(old.join("artifacts/a/0.json"), "{}").expect("writes");
    let age = |name: &str| {
        let place = std::fs::File::open(dir.join(name)).expect("opens");
        let day = std::time::Duration::from_hours(25);
        place.set_modified(std::time::SystemTime::now() - day).expect("ages");
    };
    for name in ["runs/empty", "runs/logs-only", "runs/with-document"] {
        age(name);
    }
    runs.store().maintain().await.expect("sweeps");
    assert_eq!(named_by_doctor(&runs).await, ["runs/locks-only", "runs/with-document"]);
    assert!(runs.load(run.id()).await.is_ok());
}

/// What doctor calls a place without a record.
async fn named_by_doctor(runs: &RunStore) -> Vec<String> {
    let checks = backtrail_core::doctor::doctor(&**runs.store(), &context(), None, None).await;
    let check = checks.iter().find(|c| c.name == "runs").expect("looks at runs");
    let (_, names) = check.detail.split_once("record: ").expect("names them");
    let mut names: Vec<String> = names.split(", ").map(str::to_owned).collect();
    names.sort();
    names
}

/// RUN-RS17: an unreadable record is a row with the reason.
pub async fn rs17_unreadable_records_are_rows(site: &Site) {
    let runs = runs(site).await;
    for id in ["a", "b", "c"] {
        started(&runs, id).await;
    }
    site.spoil_document(&DocKey::Run(run_id("b")), b"{\"id\": \"b\", ");
    site.spoil_document(&DocKey::Run(run_id("c")), b"{\"id\": \"a\", \"status\": \"running\"}");
    let rows: Vec<RunRow> = runs.list().try_collect().await.expect("lists");
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for row in rows {
        match row {
            RunRow::Run(run) => good.push(run.id().to_string()),
            RunRow::Unreadable { id, error, .. } => {
                assert_eq!(error.kind(), Kind::Corrupt);
                assert!(error.message().contains("runs/"), "{error}");
                bad.push(id.expect("an id").to_string());
            }
        }
    }
    bad.sort();
    assert_eq!((good, bad), (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!(refused(runs.load(&run_id("b")).await, Kind::Corrupt).code(), "corrupt");
    let first = runs.list().next().await.expect("a row").expect("no error");
    assert!(matches!(first, RunRow::Run(_)), "what can be read comes first");
}
