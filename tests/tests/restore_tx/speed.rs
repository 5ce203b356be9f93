//! How long it takes: run by hand, with an optimized build.

use std::collections::BTreeSet;
use std::time::Instant;

use backtrail_core::restore::{IntoRequest, RestoreRequest, restore_into};

use crate::world::World;

/// 50,000 small files into an empty directory, and 1 % of them back in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn fifty_thousand_files() {
    let w = World::new().await;
    for i in 0..50_000 {
        let text = format!("file {i} {}\n", "x".repeat(i % 1500));
        w.write_mode(&format!("d{}/e{}/f{i}.txt", i % 50, i % 1000), text.as_bytes(), 0o644);
    }
    let start = Instant::now();
    let target = w.capture().await;
    println!("first capture {:?}", start.elapsed());
    for round in 0..3 {
        let dest = w.ws.parent().expect("parent").join(format!("out{round}"));
        let request = IntoRequest {
            tree: target.root.clone(),
            dest,
            paths: BTreeSet::new(),
            sync: false,
            special_modes: false,
            no_space_check: false,
            any_root: false,
            threads: 2,
        };
        let start = Instant::now();
        restore_into(&*w.store, &w.context(), request).await.expect("restored");
        println!("into {:?}", start.elapsed());
    }
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    w.capture().await;
    for round in 0..3 {
        let start = Instant::now();
        w.capture().await;
        println!("unchanged capture {:?}", start.elapsed());
        for i in (0..50_000).step_by(100) {
            w.write(&format!("d{}/e{}/f{i}.txt", i % 50, i % 1000), &format!("changed {round}"));
        }
        let start = Instant::now();
        let dry = RestoreRequest { dry_run: true, ..RestoreRequest::new(target.clone()) };
        w.run(dry).await.expect("planned");
        println!("dry run {:?}", start.elapsed());
        let start = Instant::now();
        let result = w.restore(&target).await.expect("restored");
        println!("in place {:?} ({} written)", start.elapsed(), result.counts.plan.written);
        let start = Instant::now();
        let next = w.captured().await;
        println!("next capture {:?}, {} read", start.elapsed(), next.read.count);
    }
}
