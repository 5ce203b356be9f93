//! What a capture costs a store that is far away, in calls.

use std::sync::Arc;

use backtrail_core::store::layers::observe::{Counts, Observe};
use backtrail_tests::cli::Sandbox;
use backtrail_tests::history::run;

use crate::lib_side::Lib;
use crate::sandbox;

/// Calls and items so far.
fn sums(counts: &Counts) -> (u64, u64) {
    let all = counts.all();
    (all.iter().map(|(_, c)| c.calls).sum(), all.iter().map(|(_, c)| c.items).sum())
}

/// Calls and items of one more capture.
async fn cost(lib: &Lib, counts: &Counts) -> (u64, u64) {
    let before = sums(counts);
    lib.capture().await;
    let after = sums(counts);
    (after.0 - before.0, after.1 - before.1)
}

fn fill(s: &Sandbox, dirs: usize) {
    for dir in 0..dirs {
        for file in 0..5 {
            s.write(format!("d{dir}/f{file}"), format!("{dir} {file}"));
        }
    }
}

#[test]
fn cap_p5_calls_follow_what_changed_not_what_exists() {
    run(async {
        let mut seen = Vec::new();
        for dirs in [10, 200] {
            let s = sandbox();
            fill(&s, dirs);
            let mut lib = Lib::of(&s).await;
            let observe = Observe::new(lib.store.clone());
            let counts = observe.counts();
            lib.store = Arc::new(observe);
            lib.capture().await;
            let unchanged = cost(&lib, &counts).await;
            s.write("d3/f3", "changed");
            let one = cost(&lib, &counts).await;
            for dir in 0..8 {
                s.write(format!("d{dir}/f1"), "changed as well");
            }
            let eight = cost(&lib, &counts).await;
            assert!(unchanged.0 <= 12, "an unchanged capture made {} calls", unchanged.0);
            // Besides: the snapshot, the refs, and the trees they compare with.
            assert!(one.1 - unchanged.1 <= 12, "one file cost {one:?}, none {unchanged:?}");
            assert!(eight.1 - one.1 <= 7 * 4, "eight files cost {eight:?}, one {one:?}");
            seen.push((unchanged.0, one.0, eight.0));
        }
        assert_eq!(seen[0], seen[1], "calls depend on the size of the workspace");
    });
}
