//! Ending a command that does not end by itself.

use std::path::Path;
use std::time::{Duration, Instant};

use backtrail_core::process::{Attempt, Cause, End, Outcome, run, stop_pair};

use crate::world::{Collect, LONG, alone, block_on, go, go_until, lives, sh, wait_for};

/// Asks `times` times once the file `ready` is there.
fn stopped(attempt: Attempt, dir: &Path, times: usize) -> (Outcome, String) {
    let (stopper, stop) = stop_pair();
    let ready = dir.join("ready");
    let asks = std::thread::spawn(move || {
        wait_for(&ready);
        for _ in 0..times {
            stopper.stop("cancel");
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let (outcome, out, _) = go_until(attempt, stop).expect("ran");
    asks.join().expect("asked");
    (outcome, out)
}

#[test]
fn a_stop_lets_the_command_finish_its_work() {
    alone("stops::a_stop_lets_the_command_finish_its_work", || {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "trap 'echo tidied; exit 3' TERM; echo > ready; while :; do sleep 0.05; done";
        let (outcome, out) = stopped(sh(text, dir.path()), dir.path(), 1);
        assert_eq!((outcome.end, &out[..]), (End::Code(3), "tidied\n"));
        assert_eq!(outcome.cause, Some(Cause::Stopped("cancel".to_owned())));
        assert!(outcome.elapsed < Duration::from_secs(9), "the grace was not needed");
    });
}

#[test]
fn one_that_ignores_term_is_killed_after_the_grace_or_when_asked_twice() {
    const NAME: &str = "stops::one_that_ignores_term_is_killed_after_the_grace_or_when_asked_twice";
    alone(NAME, || {
        let text = "trap '' TERM; echo $$ > pid; echo > ready; while :; do sleep 0.05; done";
        for (grace, times) in [(Duration::from_secs(1), 1), (LONG, 2)] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut attempt = sh(text, dir.path());
            attempt.grace = grace;
            let (outcome, _) = stopped(attempt, dir.path(), times);
            assert_eq!(outcome.end, End::Signal(9));
            assert!(outcome.elapsed < Duration::from_secs(30), "{:?}", outcome.elapsed);
            assert!(outcome.elapsed >= grace.min(Duration::from_millis(250)));
            assert!(!lives(&wait_for(&dir.path().join("pid"))));
        }
    });
}

#[test]
fn a_stopped_process_hears_the_stop() {
    alone("stops::a_stopped_process_hears_the_stop", || {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "trap 'exit 4' TERM; echo > ready; kill -STOP $$; while :; do sleep 0.05; done";
        let (outcome, _) = stopped(sh(text, dir.path()), dir.path(), 1);
        assert_eq!(outcome.end, End::Code(4));
    });
}

#[test]
fn the_time_limit_holds_in_the_middle_of_a_line_without_end() {
    alone("stops::the_time_limit_holds_in_the_middle_of_a_line_without_end", || {
        let dir = tempfile::tempdir().expect("a directory");
        let mut attempt = sh("cat /dev/zero", dir.path());
        attempt.timeout = Some(Duration::from_millis(500));
        let mut sink = Discard;
        let stop = backtrail_core::process::Stop::never();
        let outcome = block_on(run(attempt, &mut sink, stop)).expect("ran");
        assert_eq!(outcome.cause, Some(Cause::Timeout));
        assert_eq!(outcome.end, End::Signal(15));
        assert!(outcome.stdout_bytes > 0 && outcome.elapsed < Duration::from_secs(30));
    });
}

#[test]
fn the_time_limit_takes_the_children_of_a_shell_along() {
    alone("stops::the_time_limit_takes_the_children_of_a_shell_along", || {
        let dir = tempfile::tempdir().expect("a directory");
        let mut attempt = sh("sleep 300 & echo $! > pid; wait", dir.path());
        attempt.timeout = Some(Duration::from_millis(500));
        let (outcome, ..) = go(attempt).expect("ran");
        assert_eq!(outcome.cause, Some(Cause::Timeout));
        assert!(!lives(&wait_for(&dir.path().join("pid"))));
    });
}

#[test]
fn an_attempt_can_move_between_threads() {
    fn movable<T: Send>(future: T) -> T {
        future
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut sink = Collect::default();
    let stop = backtrail_core::process::Stop::never();
    assert!(block_on(movable(run(sh("true", dir.path()), &mut sink, stop))).is_ok());
}

#[test]
fn an_attempt_that_is_dropped_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let attempt = sh("echo $$ > pid; sleep 300", dir.path());
    let mut sink = Collect::default();
    let stop = backtrail_core::process::Stop::never();
    let pid = dir.path().join("pid");
    block_on(async {
        tokio::select! {
            _ = run(attempt, &mut sink, stop) => panic!("it sleeps"),
            () = async { while !pid.exists() { tokio::time::sleep(Duration::from_millis(10)).await } } => {}
        }
    });
    let (pid, began) = (wait_for(&pid), Instant::now());
    while lives(&pid) {
        assert!(began.elapsed() < LONG, "{pid} was not killed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Output is only counted.
struct Discard;

#[async_trait::async_trait]
impl backtrail_core::process::Sink for Discard {
    async fn chunk(
        &mut self,
        _: backtrail_core::process::Chunk,
    ) -> backtrail_core::error::Result<()> {
        Ok(())
    }
}
