//! RUN-RS13, RS18, RS19: what a kill, a full disk, a mask and a missing home do.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backtrail_backends::local::LocalStore;
use backtrail_backends::open::OpenOptions;
use backtrail_core::error::Kind;
use backtrail_core::run::{RunRecord, RunStore};
use serde_json::{Value, json};

use super::child::{self, Job};
use super::{context, new_run, runs, started};
use crate::host::Mount;
use crate::suite::{Site, refused, run_id};

fn local(place: &Path) -> RunStore {
    RunStore::new(Arc::new(LocalStore::new(place, OpenOptions::default())), context())
}

/// Every path below `dir`, itself included.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut out = vec![dir.to_owned()];
    let mut at = 0;
    while at < out.len() {
        if std::fs::symlink_metadata(&out[at]).expect("there").is_dir() {
            let entries = std::fs::read_dir(&out[at]).expect("lists");
            out.extend(entries.map(|e| e.expect("an entry").path()));
        }
        at += 1;
    }
    out
}

fn temps(dir: &Path) -> Vec<PathBuf> {
    let is_temp =
        |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(".tmp-"));
    below(dir).into_iter().filter(is_temp).collect()
}

/// RUN-RS13: killed in the middle of a write, the record is the old or the new one.
pub async fn rs13_kills_leave_old_or_new(site: &Site) {
    let dir = site.dir().expect("a directory");
    // The first command of all dies before its record has a name.
    let runs = runs(site).await;
    let (_other, _) = started(&runs, "other").await;
    assert!(!child::run(&Job::CreateAndDie("store.doc.staged", 1), &dir));
    refused(runs.load(&run_id("r")).await, Kind::NotFound);
    let (ours, mut run) = started(&runs, "r").await;
    for (point, want) in [("store.doc.staged", None), ("store.doc.named", Some(json!("new")))] {
        assert!(!child::run(&Job::PatchAndDie(point), &dir));
        let there = runs.load(run.id()).await.expect("whole");
        assert_eq!(there.record.result, want, "killed at {point}");
        ours.request_pause(&mut run, None).await.expect("nobody is held up");
    }
    let left = temps(&dir);
    assert!(!left.is_empty(), "a kill leaves its staging file");
    runs.store().maintain().await.expect("sweeps");
    assert_eq!(temps(&dir), left, "it may still be somebody's");
    let yesterday = SystemTime::now() - Duration::from_hours(25);
    for temp in &left {
        let file = std::fs::File::options().write(true).open(temp).expect("opens");
        file.set_modified(yesterday).expect("ages");
    }
    runs.store().maintain().await.expect("sweeps");
    assert!(temps(&dir).is_empty());
    assert_eq!(runs.load(run.id()).await.expect("loads").record.result, Some(json!("new")));
}

/// RUN-RS13: on a full disk the record stays as it is.
pub async fn rs13_full_disk() {
    let temp = tempfile::tempdir().expect("a directory");
    let Some(_mount) = Mount::new(temp.path().join("small"), "size=1m") else { return };
    let place = temp.path().join("small/store");
    let runs = local(&place);
    let (ours, mut run) = started(&runs, "r").await;
    let file = place.join("runs/r/run.json");
    let before = std::fs::read(&file).expect("reads");
    let filler = temp.path().join("small/filler");
    // Fails once nothing is left, which is what is wanted.
    let _ = std::fs::write(&filler, vec![7; 2 << 20]);
    let set = |r: &mut RunRecord| {
        r.result = Some(Value::String("x".repeat(64 * 1024)));
        Ok(())
    };
    let e = ours.patch(&mut run, set).await.expect_err("no room");
    assert_eq!(e.code(), "store-full", "{e:?}");
    assert_eq!(std::fs::read(&file).expect("reads"), before);
    assert!(temps(&place).is_empty(), "nothing half written stays");
    std::fs::remove_file(filler).expect("makes room");
    ours.patch(&mut run, set).await.expect("fits");
    assert_eq!(runs.load(run.id()).await.expect("loads").record, run.record);
}

/// RUN-RS18: modes whatever the mask, and no link is followed.
pub async fn rs18_modes_and_links(site: &Site) {
    let dir = site.dir().expect("a directory");
    assert!(child::run(&Job::Unmasked, &dir));
    for path in below(&dir.join("runs")) {
        let meta = std::fs::symlink_metadata(&path).expect("there");
        let want = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.mode() & 0o7777, want, "{}", path.display());
    }
    let names: Vec<_> = below(&dir.join("runs/r")).into_iter().skip(1).collect();
    for file in ["run.json", "events.jsonl", "run.log"] {
        assert!(names.iter().any(|p| p.ends_with(file)), "{file} in {names:?}");
    }
    links_are_not_followed(site, &dir).await;
}

async fn links_are_not_followed(site: &Site, dir: &Path) {
    let runs = runs(site).await;
    let outside = dir.parent().expect("a parent").join("outside");
    std::fs::create_dir(&outside).expect("makes");
    let target = outside.join("run.json");
    let text = std::fs::read_to_string(dir.join("runs/r/run.json")).expect("reads");
    std::fs::write(&target, &text).expect("writes");
    let mut run = runs.load(&run_id("r")).await.expect("loads");
    // A link in the place of the record, then in the place of the run.
    std::fs::remove_file(dir.join("runs/r/run.json")).expect("removes");
    symlink(&target, dir.join("runs/r/run.json")).expect("links");
    symlink(&outside, dir.join("runs/linked")).expect("links");
    for id in ["r", "linked"] {
        let e = runs.load(&run_id(id)).await.expect_err("is a link");
        assert!(!e.is_not_found(), "{e:?}");
    }
    let e = runs.request_cancel(&mut run, None).await.expect_err("is a link");
    assert!(!e.is_not_found(), "{e:?}");
    let event = backtrail_core::run::NewEvent::foreign("t", serde_json::Map::new());
    let event = [event.expect("an event")];
    runs.append_events(&run_id("linked"), &event).await.expect_err("is a link");
    assert_eq!(std::fs::read_to_string(&target).expect("reads"), text, "the target is untouched");
    assert_eq!(std::fs::read_dir(&outside).expect("lists").count(), 1);
}

/// RUN-RS19: store, home and temporary files on three file systems, and no home at all.
pub async fn rs19_three_file_systems() {
    let temp = tempfile::tempdir().expect("a directory");
    let mount = |name: &str| Mount::new(temp.path().join(name), "size=8m");
    let (Some(_store), Some(home), Some(_tmp)) = (mount("store"), mount("home"), mount("tmp"))
    else {
        return;
    };
    home.remount("ro");
    let homes = [Some(temp.path().join("home")), None];
    for (n, home) in homes.into_iter().enumerate() {
        let place = temp.path().join("store").join(n.to_string());
        let mut command = child::with_job(&Job::Unmasked, &place);
        command.env_remove("HOME").env_remove("XDG_DATA_HOME").env_remove("XDG_STATE_HOME");
        command.env("TMPDIR", temp.path().join("tmp"));
        if let Some(home) = &home {
            command.env("HOME", home);
        }
        let done = command.output().expect("ends");
        assert!(done.status.success(), "with home {home:?}: {done:?}");
        let runs = local(&place);
        assert_eq!(runs.load(&run_id("r")).await.expect("loads").id().as_str(), "r");
        assert_eq!(runs.log_size(&run_id("r")).await.expect("reads"), 6);
    }
    // A store that cannot be written to is named.
    let place = temp.path().join("home/store");
    let e = local(&place).create(new_run("r")).await.expect_err("read-only");
    assert!(e.message().contains(&*place.to_string_lossy()), "{e:?}");
    assert_eq!(e.kind(), Kind::Denied, "{e:?}");
}
