//! How long a prune of a large tree takes. Run by hand, best with `--release`:
//! `cargo test --release -p backtrail-tests --test prune -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use backtrail_tests::history::{History, Spec, run};

use crate::{go, keep, request};

#[test]
#[ignore = "a measurement, not a check"]
fn speed_of_twenty_snapshots_of_fifty_thousand_files() {
    run(async {
        let h = History::new().await;
        let chain = h.own();
        let mut spec = Spec::default();
        for i in 0..50_000 {
            let path = format!("d{:02}/e{:02}/f{i}", i % 70, (i / 70) % 70);
            spec.files.insert(path, format!("content of file number {i}").into_bytes());
        }
        let started = Instant::now();
        let first = h.snapshot(&chain, spec.clone()).await;
        println!("made one snapshot in {:?}", started.elapsed());
        for i in 0..19 {
            let path = format!("d{i:02}/e00/f{i}");
            let text = format!("changed {i}").into_bytes();
            h.change(&chain, &first, &path, &text).await;
        }
        let mut dry = request(&h, keep(10));
        dry.dry_run = true;
        for _ in 0..5 {
            let started = Instant::now();
            let report = backtrail_core::prune::prune(&*h.store, &h.ctx, &dry).await;
            println!("dry run: {:?}", started.elapsed());
            assert_eq!(report.expect("a dry run").removed.len(), 10);
        }
        let started = Instant::now();
        let report = go(&h, keep(10)).await.expect("prune");
        println!("prune: {:?}, {} objects", started.elapsed(), report.objects_deleted);
        let started = Instant::now();
        backtrail_core::verify::verify(
            &*h.store,
            &h.ctx,
            &backtrail_core::verify::Scope::All,
            true,
        )
        .await
        .expect("verify");
        println!("verify --deep: {:?}", started.elapsed());
        let started = Instant::now();
        backtrail_core::size::size(&*h.store, &h.ctx, |_| true).await.expect("size");
        println!("size: {:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(60));
    });
}
