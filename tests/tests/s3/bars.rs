//! What captures and restores cost a bucket, in requests counted at the driver.

use std::path::Path;
use std::sync::Arc;

use backtrail_backends::host::{RandomIds, SystemClock, this_host};
use backtrail_backends::s3::S3Store;
use backtrail_core::capture::{Recorder, Request, Settings};
use backtrail_core::clock::{Cancel, Context, NoFaults, Silent};
use backtrail_core::observe;
use backtrail_core::restore::{IntoRequest, restore_into};
use backtrail_core::workspace::Root;
use backtrail_tests::suite::{noise, text};

use crate::world::{World, run, stack};

const FILES: u64 = 14_000;
const LARGE: u64 = 30;

/// A tree like that of a repository: small texts, and a few large files that do not
/// compress.
fn fill(root: &Path) {
    for i in 0..FILES {
        let dir = root.join(format!("d{}/s{}", i % 20, i % 280));
        std::fs::create_dir_all(&dir).expect("makes");
        let len = 500 + (i * 7_919 % 9_000) as usize;
        std::fs::write(dir.join(format!("f{i}.txt")), text(i, len).bytes()).expect("writes");
    }
    for i in 0..LARGE {
        let file = root.join(format!("d0/large{i}.bin"));
        std::fs::write(file, noise(i, 400_000).bytes()).expect("writes");
    }
}

fn context() -> Context {
    Context {
        clock: Arc::new(SystemClock),
        ids: Arc::new(RandomIds),
        host: this_host(),
        cancel: Cancel::default(),
        progress: Arc::new(Silent),
        faults: Arc::new(NoFaults),
    }
}

fn recorder(world: &World, store: Arc<S3Store>, root: &Path) -> Recorder {
    let ctx = context();
    let root = Root::open(root, &ctx.host, false).expect("a root");
    let observe = observe::Settings { safety_window_ns: 0, ..observe::Settings::default() };
    let cache = world.temp().join("cache");
    let settings = Settings { observe, cache_dir: Some(cache), ..Settings::default() };
    let chain = root.chain();
    Recorder::open(stack(store), ctx, root, chain, settings)
}

/// CLD-CB3, and the requests of CB2: a first capture costs at most 100 requests for all
/// small objects together and 2 for each large one, an unchanged one at most 4.
#[test]
fn cld_cb3_requests_of_captures() {
    run(async |world| {
        let work = world.temp().join("w");
        std::fs::create_dir(&work).expect("makes");
        fill(&work);
        let store = world.raw().await;
        let before = store.requests();
        recorder(&world, store.clone(), &work).capture(&Request::default()).await.expect("first");
        let first = store.requests() - before;
        eprintln!("first capture: {first:?}");
        assert!(first.total() <= 100 + 2 * LARGE, "{first:?}");
        let again = recorder(&world, store.clone(), &work);
        let before = store.requests();
        again.capture(&Request::default()).await.expect("unchanged");
        let unchanged = store.requests() - before;
        eprintln!("unchanged capture: {unchanged:?}");
        assert!(unchanged.total() <= 4, "{unchanged:?}");
    });
}

/// CLD-CB4: a restore into nothing costs at most 100 requests for the small objects.
#[test]
fn cld_cb4_requests_of_a_restore() {
    run(async |world| {
        let work = world.temp().join("w");
        std::fs::create_dir(&work).expect("makes");
        fill(&work);
        let store = world.raw().await;
        let captured = recorder(&world, store, &work).capture(&Request::default()).await;
        let reader = world.raw().await;
        let request = IntoRequest {
            tree: captured.expect("captures").snapshot.expect("a snapshot").root,
            dest: world.temp().join("restored"),
            paths: Default::default(),
            sync: false,
            special_modes: false,
            no_space_check: true,
            any_root: false,
            threads: 2,
        };
        let before = reader.requests();
        let stacked = stack(reader.clone());
        let done = restore_into(&*stacked, &context(), request).await.expect("restores");
        let restored = reader.requests() - before;
        eprintln!("restore: {restored:?}");
        assert_eq!(done.written.len() as u64, FILES + LARGE);
        assert!(restored.total() <= 100 + LARGE, "{restored:?}");
    });
}
