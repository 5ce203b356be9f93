//! What a command leaves behind.

use std::time::{Duration, Instant};

use backtrail_core::process::{Background, End, run, stop_pair};

use crate::world::{Collect, LONG, alone, block_on, go, go_until, lives, sh, wait_for, zombies};

/// Appends to `log` until it is killed; its id stands in `pid`. Ends by itself one day.
const WRITER: &str = "i=0; while [ $i -lt 3000 ]; do echo x >> log; sleep 0.02; i=$((i+1)); done";

#[test]
fn a_writer_in_the_background_is_stopped_and_named() {
    alone("groups::a_writer_in_the_background_is_stopped_and_named", || {
        let dir = tempfile::tempdir().expect("a directory");
        let text = format!("({WRITER}) & echo $! > pid; echo ready");
        let (outcome, out, _) = go(sh(&text, dir.path())).expect("ran");
        assert_eq!((outcome.end, &out[..]), (End::Code(0), "ready\n"));
        assert!(outcome.elapsed >= Duration::from_secs(2), "it had its two seconds");
        let pid = wait_for(&dir.path().join("pid"));
        assert!(outcome.killed.iter().any(|k| k.pid.to_string() == pid), "{:?}", outcome.killed);
        assert!(outcome.killed.iter().any(|k| k.command.contains("echo x >> log")));
        assert!(!lives(&pid) && outcome.left.is_empty() && !outcome.pipes_left);
        let before = std::fs::read(dir.path().join("log")).expect("log").len();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(std::fs::read(dir.path().join("log")).expect("log").len(), before);
        assert_eq!(zombies(), 0);
    });
}

#[test]
fn what_ends_in_time_is_waited_for_and_not_called_stopped() {
    alone("groups::what_ends_in_time_is_waited_for_and_not_called_stopped", || {
        let dir = tempfile::tempdir().expect("a directory");
        let (outcome, out, _) = go(sh("(sleep 0.5; echo late) &", dir.path())).expect("ran");
        assert_eq!((outcome.killed.len(), &out[..]), (0, "late\n"));
        let quiet = "(sleep 0.5; touch late) > /dev/null 2>&1 &";
        assert!(go(sh(quiet, dir.path())).expect("ran").0.killed.is_empty());
        assert!(dir.path().join("late").exists(), "also without a pipe");
        assert_eq!(zombies(), 0);
    });
}

#[test]
fn a_process_that_left_group_session_and_environment_does_not_outlive_the_attempt() {
    const NAME: &str =
        "groups::a_process_that_left_group_session_and_environment_does_not_outlive_the_attempt";
    alone(NAME, || {
        let dir = tempfile::tempdir().expect("a directory");
        let hide = "env -i PATH=\"$PATH\" setsid sh -c 'sleep 300 & echo $! > pid.tmp; \
                    mv pid.tmp pid' > /dev/null 2>&1 < /dev/null &";
        let text = format!("{hide}\nwhile ! [ -e pid ]; do sleep 0.01; done");
        let (outcome, ..) = go(sh(&text, dir.path())).expect("ran");
        let pid = wait_for(&dir.path().join("pid"));
        assert!(!lives(&pid) && outcome.left.is_empty(), "{outcome:?}");
        assert!(outcome.killed.iter().any(|k| k.command == "sleep 300"), "{:?}", outcome.killed);

        std::fs::remove_file(dir.path().join("pid")).expect("removed");
        let (stopper, stop) = stop_pair();
        let at = dir.path().to_owned();
        let asks = std::thread::spawn(move || {
            let pid = wait_for(&at.join("pid"));
            stopper.stop("cancel");
            pid
        });
        let (outcome, ..) =
            go_until(sh(&format!("{hide}\nsleep 300"), dir.path()), stop).expect("ran");
        let pid = asks.join().expect("asked");
        assert!(!lives(&pid), "{outcome:?}");
        assert_eq!(outcome.end, End::Signal(15));
        let killed = outcome.killed.iter().find(|k| k.pid.to_string() == pid);
        assert!(killed.is_some_and(|k| !k.command.is_empty()), "{:?}", outcome.killed);
        assert_eq!(zombies(), 0);
    });
}

#[test]
fn a_kept_process_stays_and_may_go_on_writing() {
    alone("groups::a_kept_process_stays_and_may_go_on_writing", || {
        let dir = tempfile::tempdir().expect("a directory");
        let text = "(i=0; while [ $i -lt 3000 ]; do echo noise; echo x >> log; sleep 0.02; \
                    i=$((i+1)); done) & echo $! > pid";
        let mut attempt = sh(text, dir.path());
        attempt.background = Background::Keep;
        let (outcome, ..) = go(attempt).expect("ran");
        assert_eq!((outcome.end, outcome.killed.len()), (End::Code(0), 0));
        let pid = wait_for(&dir.path().join("pid"));
        let size = || std::fs::read(dir.path().join("log")).map_or(0, |l| l.len());
        let (before, began) = (size(), Instant::now());
        while size() <= before + 10 {
            assert!(lives(&pid) && began.elapsed() < LONG, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ours");
    });
}

#[test]
fn attempts_side_by_side_do_not_touch_each_others_processes() {
    alone("groups::attempts_side_by_side_do_not_touch_each_others_processes", || {
        let dir = tempfile::tempdir().expect("a directory");
        let slow = sh("setsid sh -c 'sleep 2; echo whole' & wait; echo slow", dir.path());
        let quick = sh("setsid sleep 300 & sleep 0.3", dir.path());
        let (mut out, mut other) = (Collect::default(), Collect::default());
        let never = backtrail_core::process::Stop::never;
        let both =
            async { tokio::join!(run(slow, &mut out, never()), run(quick, &mut other, never())) };
        let (slow, quick) = block_on(both);
        let (slow, quick) = (slow.expect("ran"), quick.expect("ran"));
        assert_eq!(out.text(backtrail_core::process::Stream::Out), "whole\nslow\n");
        assert_eq!((slow.end, slow.killed.len()), (End::Code(0), 0), "{slow:?}");
        assert!(quick.killed.iter().any(|k| k.command == "sleep 300"), "{quick:?}");
    });
}

#[test]
fn many_attempts_leave_nothing_to_reap() {
    alone("groups::many_attempts_leave_nothing_to_reap", || {
        let dir = tempfile::tempdir().expect("a directory");
        for _ in 0..20 {
            let (outcome, ..) = go(sh("(setsid true &); (true &)", dir.path())).expect("ran");
            assert_eq!((outcome.end, outcome.killed.len()), (End::Code(0), 0));
        }
        assert_eq!(zombies(), 0);
    });
}

#[test]
fn what_an_engine_below_left_behind_does_not_outlive_the_attempt() {
    const NAME: &str = "groups::what_an_engine_below_left_behind_does_not_outlive_the_attempt";
    const INNER: &str = "BACKTRAIL_TEST_INNER";
    if let Some(dir) = std::env::var_os(INNER) {
        // the engine below: its command has a group and words of its own
        go(sh("echo $$ > pid; sleep 300", std::path::Path::new(&dir))).expect("ran");
        return;
    }
    alone(NAME, || {
        let dir = tempfile::tempdir().expect("a directory");
        let exe = std::env::current_exe().expect("this test");
        let text = format!(
            "{INNER}=$PWD {} {NAME} --exact > /dev/null & while ! [ -s pid ]; do sleep 0.01; done; \
             kill -9 $!; wait",
            exe.display()
        );
        let (outcome, ..) = go(sh(&text, dir.path())).expect("ran");
        let pid = wait_for(&dir.path().join("pid"));
        assert!(!lives(&pid), "{outcome:?}");
        assert!(outcome.killed.iter().any(|k| k.pid.to_string() == pid), "{outcome:?}");
    });
}

#[test]
fn a_group_that_forks_all_the_time_is_stopped() {
    alone("groups::a_group_that_forks_all_the_time_is_stopped", || {
        let dir = tempfile::tempdir().expect("a directory");
        // each hands on to the next in a session of its own and ends, for 30 seconds
        let text = "echo 'n=$1; [ $n -lt 3000 ] || exit; echo x >> log; sleep 0.01; \
                    setsid sh next $((n+1)) &' > next; setsid sh next 0 &";
        let (outcome, ..) = go(sh(text, dir.path())).expect("ran");
        assert!(!outcome.killed.is_empty() && outcome.left.is_empty(), "{outcome:?}");
        let size = || std::fs::read(dir.path().join("log")).expect("log").len();
        let before = size();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(size(), before);
    });
}

#[test]
fn without_adopting_orphans_the_words_in_the_environment_betray_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let hide = "setsid sh -c 'echo $$ > pid; exec sleep 300' > /dev/null 2>&1 < /dev/null &";
    let text = format!("({hide})\nwhile ! [ -s pid ]; do sleep 0.01; done");
    let (outcome, ..) = go(sh(&text, dir.path())).expect("ran");
    let pid = wait_for(&dir.path().join("pid"));
    assert!(!lives(&pid), "{outcome:?}");
    assert!(outcome.killed.iter().any(|k| k.pid.to_string() == pid), "{outcome:?}");
}
