//! Much output, and copies of it.

use std::io::{PipeReader, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::Result;
use backtrail_core::process::{Append, Chunk, RunLog, Sink, Stdio, Stop, Tee, run};
use backtrail_core::redact::Secrets;
use bytes::Bytes;

use crate::world::{alone, block_on, go, sh};

struct Count(Arc<AtomicU64>);

#[async_trait]
impl Append for Count {
    async fn append(&self, offset: u64, bytes: Bytes) -> Result<()> {
        let end = offset + bytes.len() as u64;
        assert_eq!(self.0.swap(end, Ordering::SeqCst), offset, "offsets follow each other");
        assert!(bytes.len() <= 1 << 20);
        Ok(())
    }
}

/// The most memory that this process has used, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_gibibyte_without_a_newline_costs_little_memory_and_stops_at_the_limit_of_the_log() {
    const NAME: &str = "output::a_gibibyte_without_a_newline_costs_little_memory_and_stops_at_the_limit_of_the_log";
    const LIMIT: u64 = 32 << 20;
    alone(NAME, || {
        let dir = tempfile::tempdir().expect("a directory");
        let mut secrets = Secrets::default();
        assert!(secrets.declare("S", b"some-long-secret"));
        let stored = Arc::new(AtomicU64::new(0));
        let append = Arc::new(Count(stored.clone()));
        let log = RunLog::new(append, 0, LIMIT, secrets.redactor().expect("prepared"));
        for branch in [None, Some("left")] {
            let mut attempt = sh("head -c 1073741824 /dev/zero", dir.path());
            attempt.timeout = None;
            attempt.capture = true;
            let before = peak_kib();
            let outcome =
                block_on(run(attempt, &mut log.sink(branch), Stop::never())).expect("ran");
            assert_eq!(outcome.stdout_bytes, 1 << 30);
            assert!(outcome.sink_error.is_none() && outcome.captured.cut);
            let grown = peak_kib() - before;
            assert!(grown <= 64 * 1024, "{grown} KiB more");
        }
        let stored = stored.load(Ordering::SeqCst);
        assert!((LIMIT..LIMIT + 200).contains(&stored), "{stored} bytes and one notice");
        let (first, again) = block_on(async { (log.report().await, log.report().await) });
        assert!(first.truncated && !again.truncated && first.holes == 0);
    });
}

#[test]
fn copies_are_equal_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, err) = (reader(), reader());
    let mut attempt = sh("printf 'a\\000\\033[1m\\377b'; printf 'e\\001' >&2", dir.path());
    let tee = Tee { out: Some(Box::new(out.1)), err: Some(Box::new(err.1)) };
    attempt.stdio = Stdio::Piped { stdin: Vec::new(), tee };
    let (outcome, ..) = go(attempt).expect("ran");
    assert_eq!((outcome.stdout_bytes, outcome.stderr_bytes), (8, 2));
    assert_eq!(out.0.join().expect("read"), b"a\0\x1b[1m\xffb");
    assert_eq!(err.0.join().expect("read"), b"e\x01");
}

fn reader() -> (std::thread::JoinHandle<Vec<u8>>, std::io::PipeWriter) {
    let (mut read, write) = std::io::pipe().expect("a pipe");
    let work = move || {
        let mut all = Vec::new();
        read.read_to_end(&mut all).expect("read");
        all
    };
    (std::thread::spawn(work), write)
}

#[test]
fn a_reader_that_leaves_ends_the_command_as_it_would_without_us() {
    let dir = tempfile::tempdir().expect("a directory");
    let (read, write) = std::io::pipe().expect("a pipe");
    std::thread::spawn(move || leave_soon(read));
    let mut attempt = sh("exec yes", dir.path());
    let tee = Tee { out: Some(Box::new(write)), err: None };
    attempt.stdio = Stdio::Piped { stdin: Vec::new(), tee };
    let (outcome, ..) = go(attempt).expect("ran");
    assert_eq!(outcome.end, backtrail_core::process::End::Signal(13));
    assert_eq!((outcome.cause, outcome.tee_error), (None, None));
}

fn leave_soon(mut read: PipeReader) {
    let _ = read.read(&mut [0; 100]).expect("some");
}

#[test]
fn a_full_disk_behind_the_copy_is_reported_and_the_command_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("there");
    let mut attempt = sh("echo one; sleep 0.2; echo two", dir.path());
    let tee = Tee { out: Some(Box::new(full)), err: None };
    attempt.stdio = Stdio::Piped { stdin: Vec::new(), tee };
    let (outcome, out, _) = go(attempt).expect("ran");
    assert_eq!((&out[..], outcome.end), ("one\ntwo\n", backtrail_core::process::End::Code(0)));
    assert!(outcome.tee_error.is_some());
}

/// Takes a piece and then nothing more.
struct Stuck;

#[async_trait]
impl Sink for Stuck {
    async fn chunk(&mut self, _: Chunk) -> Result<()> {
        std::future::pending().await
    }
}

#[test]
fn a_stop_works_while_nobody_takes_the_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut attempt = sh("exec yes", dir.path());
    attempt.timeout = Some(Duration::from_millis(500));
    let outcome = block_on(run(attempt, &mut Stuck, Stop::never())).expect("ran");
    assert!(outcome.pipes_left && outcome.elapsed < Duration::from_secs(30));
}
