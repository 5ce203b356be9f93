//! The run log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backtrail_core::error::{Error, Kind, Result};
use backtrail_core::process::{Append, RunLog, Stop, StoreLog, run};
use backtrail_core::redact::{Redactor, Secrets};
use backtrail_core::store::memory::MemoryStore;
use backtrail_core::store::{LogPart, Store};
use backtrail_tests::suite::make_run;
use bytes::Bytes;

use crate::world::{block_on, sh};

/// A log in memory. Appends at an offset in `fail` fail.
#[derive(Default)]
struct Kept {
    bytes: Mutex<Vec<u8>>,
    fail: Option<(u64, Kind)>,
}

#[async_trait]
impl Append for Kept {
    async fn append(&self, offset: u64, bytes: Bytes) -> Result<()> {
        if let Some((at, kind)) = self.fail
            && at == offset
        {
            return Err(Error::new(kind, "unavailable", "not now"));
        }
        let mut all = self.bytes.lock().expect("unpoisoned");
        let start = usize::try_from(offset).expect("small");
        let end = start + bytes.len();
        let len = all.len().max(end);
        all.resize(len, b'?');
        all[start..end].copy_from_slice(&bytes);
        Ok(())
    }
}

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().expect("unpoisoned").clone()).expect("text")
    }
}

fn redactor(secret: &str) -> Redactor {
    let mut secrets = Secrets::default();
    assert!(secrets.declare("API_TOKEN", secret.as_bytes()));
    secrets.redactor().expect("prepared")
}

#[test]
fn a_secret_split_over_two_writes_is_not_in_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = Arc::new(Kept::default());
    let log = RunLog::new(kept.clone(), 0, 1 << 20, redactor("s3cr3t-value"));
    let text = "printf 'a s3cr'; sleep 0.3; echo '3t-value b'; printf s3cr3t >&2; sleep 0.3; \
                echo -value >&2; printf s3cr3t-value | base64";
    block_on(async {
        run(sh(text, dir.path()), &mut log.sink(None), Stop::never()).await.expect("ran");
        log.note("said s3cr3t-value").await.expect("noted");
        log.flush().await.expect("flushed");
    });
    let text = kept.text();
    assert!(!text.contains("s3cr3t"), "{text}");
    assert!(text.contains("a [redacted:API_TOKEN] b\n"), "{text}");
    assert_eq!(text.matches("[redacted:API_TOKEN]").count(), 4, "{text}");
    assert!(text.ends_with("\n[backtrail] said [redacted:API_TOKEN]\n"), "{text}");
}

#[test]
fn a_store_keeps_the_log_and_positions_cut_out_what_a_command_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    block_on(async {
        let run_id = make_run(&*store, "r").await;
        let append = Arc::new(StoreLog { store: store.clone(), run: run_id.clone(), fence: None });
        let log = RunLog::new(append, 0, 1 << 20, Redactor::none());
        log.note("first").await.expect("noted");
        let from = log.position().await;
        let mut sink = log.sink(None);
        let ran = run(sh("echo one; echo two >&2", dir.path()), &mut sink, Stop::never());
        assert!(ran.await.expect("ran").sink_error.is_none());
        let to = log.position().await;
        log.note("last").await.expect("noted");
        log.flush().await.expect("flushed");
        let parts = store.read_log(&run_id, from, to).await.expect("read");
        let [LogPart::Bytes { offset, bytes }] = &parts[..] else { panic!("{parts:?}") };
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
        lines.sort_unstable();
        assert_eq!((*offset, lines), (from, vec![&b"one\n"[..], b"two\n"]));
    });
}

#[test]
fn lines_of_branches_are_kept_apart_and_ours_begin_a_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = Arc::new(Kept::default());
    let log = RunLog::new(kept.clone(), 0, 1 << 20, Redactor::none());
    let text = "printf one; sleep 0.2; echo ' two'; sleep 0.2; echo err >&2; printf end";
    block_on(async {
        let (mut left, mut right) = (log.sink(Some("left")), log.sink(Some("right")));
        let (a, b) = tokio::join!(
            run(sh(text, dir.path()), &mut left, Stop::never()),
            run(sh(text, dir.path()), &mut right, Stop::never()),
        );
        a.and(b).expect("ran");
        assert_eq!(log.position().await, kept.text().len() as u64);
        run(sh("printf open", dir.path()), &mut log.sink(None), Stop::never()).await.expect("ran");
        log.note("a\nb").await.expect("noted");
        log.flush().await.expect("flushed");
    });
    let text = kept.text();
    let lines: Vec<&str> = text.lines().collect();
    let (branches, ours) = lines.split_at(6);
    for branch in ["left", "right"] {
        let of: Vec<&str> = branches.iter().filter_map(|l| l.strip_prefix(branch)).collect();
        assert_eq!(of, ["| one two", "| err", "| end"], "{text}");
    }
    assert_eq!(ours, ["open", "[backtrail] a", "[backtrail] b"]);
}

#[test]
fn output_shows_up_while_the_command_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = Arc::new(Kept::default());
    let log = RunLog::new(kept.clone(), 0, 1 << 20, Redactor::none());
    // a stream that never rests
    let text = "while [ ! -e enough ]; do echo x; sleep 0.01; done";
    let (shown, enough) = (kept.clone(), dir.path().join("enough"));
    let watch = std::thread::spawn(move || {
        while shown.text().len() < 20 {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::write(enough, "").expect("written");
    });
    block_on(run(sh(text, dir.path()), &mut log.sink(None), Stop::never())).expect("ran");
    watch.join().expect("seen");
}

#[test]
fn a_failed_append_leaves_a_hole_and_a_lost_right_ends_the_writing() {
    let text = |kept: &Kept| kept.text();
    let kept = Arc::new(Kept {
        fail: Some((4, Kind::Unavailable { maybe_applied: true })),
        ..Kept::default()
    });
    let log = RunLog::new(kept.clone(), 4, 1 << 20, Redactor::none());
    block_on(async {
        log.note("lost").await.expect("noted");
        log.flush().await.expect("a hole is no failure");
        log.note("kept").await.expect("noted");
        log.flush().await.expect("stored");
        let report = log.report().await;
        assert_eq!((report.holes, report.truncated), (1, false));
        assert!(report.error.is_some());
    });
    assert!(text(&kept).ends_with("?[backtrail] kept\n"), "{}", text(&kept));

    let kept = Arc::new(Kept { fail: Some((0, Kind::LostLease)), ..Kept::default() });
    let log = RunLog::new(kept, 0, 1 << 20, Redactor::none());
    let dir = tempfile::tempdir().expect("a directory");
    let mut sink = log.sink(None);
    let outcome = block_on(run(sh("echo x", dir.path()), &mut sink, Stop::never())).expect("ran");
    assert_eq!(outcome.sink_error.expect("told").kind(), Kind::LostLease);
}
