//! `--into`: RES-070 and RES-071, and what K86 and K87 say of new files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use backtrail_core::clock::NoFaults;
use backtrail_core::error::{Kind, Result};
use backtrail_core::restore::{IntoDone, IntoRequest, restore_into};
use backtrail_core::snapshot::doc::Snapshot;

use crate::world::{At, World, picture, rel};

fn request(target: &Snapshot, dest: PathBuf) -> IntoRequest {
    IntoRequest {
        tree: target.root.clone(),
        dest,
        paths: BTreeSet::new(),
        sync: false,
        special_modes: false,
        no_space_check: false,
        any_root: false,
        threads: 2,
    }
}

async fn into(w: &World, request: IntoRequest) -> Result<IntoDone> {
    restore_into(&*w.store, &w.context(), request).await
}

async fn filled() -> (World, Snapshot) {
    let w = World::new().await;
    w.write("a", "a1");
    w.write("d/e/b", "b1");
    w.write_mode("d/run.sh", b"#!", 0o755);
    w.write_mode("secretive", b"s", 0o600);
    w.write_mode("nothing", b"", 0o444);
    w.write_mode("big", &[7; 9 << 20], 0o640);
    symlink("a", w.ws.join("link")).expect("link");
    fs::create_dir(w.ws.join("empty")).expect("directory");
    w.write(&format!("{}/{}", "n".repeat(250), "m".repeat(255)), "long");
    let target = w.capture().await;
    (w, target)
}

#[tokio::test]
async fn res_070_an_absent_or_empty_directory_gets_the_whole() {
    let (w, target) = filled().await;
    let dest = w.ws.parent().expect("parent").join("out");
    for sync in [false, true] {
        let done = into(&w, IntoRequest { sync, ..request(&target, dest.clone()) }).await;
        let done = done.expect("restored");
        assert_eq!(picture(&dest), w.picture());
        assert_eq!(done.written.len(), 8);
        let e = into(&w, request(&target, dest.clone())).await.expect_err("not empty");
        assert_eq!((e.kind(), e.code()), (Kind::Refused, "not-empty"));
        fs::remove_dir_all(&dest).expect("removed");
        fs::create_dir(&dest).expect("empty");
    }
    let left: Vec<_> = fs::read_dir(w.ws.parent().expect("parent")).expect("list").collect();
    assert_eq!(left.len(), 4, "workspace, store, cache, out: {left:?}");
}

#[tokio::test]
async fn res_070_dangerous_places_are_refused() {
    let (w, target) = filled().await;
    for dest in [PathBuf::from("/"), w.ws.join(".git")] {
        let e = into(&w, request(&target, dest)).await.expect_err("refused");
        assert_eq!((e.kind(), e.code()), (Kind::Invalid, "unsafe-root"));
    }
}

#[tokio::test]
async fn res_071_a_failure_leaves_no_directory_and_no_staging() {
    let (mut w, target) = filled().await;
    let dest = w.ws.parent().expect("parent").join("out");
    w.faults = At::fail("restore.staged", 1);
    into(&w, request(&target, dest.clone())).await.expect_err("the fault");
    w.faults = Arc::new(NoFaults);
    assert!(!dest.exists());
    let left: Vec<_> = fs::read_dir(w.ws.parent().expect("parent")).expect("list").collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[tokio::test]
async fn paths_choose_what_is_written() {
    let (w, target) = filled().await;
    let dest = w.ws.parent().expect("parent").join("out");
    let paths = [rel("d/e"), rel("a")].into();
    into(&w, IntoRequest { paths, ..request(&target, dest.clone()) }).await.expect("restored");
    let names: Vec<String> = picture(&dest).into_keys().collect();
    assert_eq!(names, ["a", "d", "d/e", "d/e/b"]);
    let paths = [rel("nowhere")].into();
    let dest = dest.with_file_name("other");
    let e = into(&w, IntoRequest { paths, ..request(&target, dest) }).await.expect_err("unknown");
    assert_eq!(e.kind(), Kind::NotFound);
}

#[tokio::test]
async fn res_060_long_runs_of_zeros_are_holes() {
    let w = World::new().await;
    let mut bytes = vec![0; 20 << 20];
    bytes.extend_from_slice(b"end");
    w.write_mode("sparse", &bytes, 0o644);
    let target = w.capture().await;
    let dest = w.ws.parent().expect("parent").join("out");
    into(&w, request(&target, dest.clone())).await.expect("restored");
    let out = dest.join("sparse");
    assert_eq!(fs::read(&out).expect("there"), bytes);
    assert!(fs::metadata(out).expect("stat").blocks() * 512 < 1 << 20);
    fs::remove_file(w.ws.join("sparse")).expect("removed");
    w.restore(&target).await.expect("restored");
    let meta = fs::metadata(w.ws.join("sparse")).expect("stat");
    assert!(meta.len() == bytes.len() as u64 && meta.blocks() * 512 < 1 << 20);
}
