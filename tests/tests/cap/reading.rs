//! Files that change, vanish or turn into something else while they are captured.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use backtrail_core::capture::Captured;
use backtrail_core::snapshot::coverage::{Reason, Record};
use backtrail_tests::cli::{Entry, Sandbox};
use backtrail_tests::history::run;
use serde_json::json;

use crate::lib_side::Lib;
use crate::{as_nobody, give_to_nobody, records, sandbox};

/// Captures while `change` happens between the walk and the first read.
fn after_listing(s: &Sandbox, change: impl FnMut() + Send + 'static) -> Captured {
    run(async {
        let mut lib = Lib::of(s).await;
        lib.on_phase("read", change);
        let done = lib.capture().await;
        Lib::of(s).await.assert_clean().await;
        done
    })
}

fn rows(done: &Captured) -> Vec<(String, Reason)> {
    let row = |r: &Record| (r.path.to_string(), r.reason);
    done.coverage.records.iter().map(row).collect()
}

fn cat(s: &Sandbox, path: &str) -> Vec<u8> {
    s.run(["show", "latest", "--cat", path]).expect(0).stdout
}

/// A thread that goes on until it is dropped.
struct Busy(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Busy {
    fn new(mut step: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ask = stop.clone();
        let thread = std::thread::spawn(move || {
            while !ask.load(Ordering::SeqCst) {
                step();
                std::thread::sleep(Duration::from_millis(1)); // leaves the others some time
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

#[test]
fn cap_036_a_file_written_during_capture_is_whole_or_changing() {
    let s = sandbox();
    const LEN: usize = 30 << 20;
    let both = s.write("both", vec![b'A'; LEN]);
    let log = s.write("log", "first\n");
    let cut = s.write("cut", vec![b'z'; 3 << 20]);
    let other = s.write("other", "still\n");
    let mut letter = b'A';
    let rewriting = Busy::new(move || {
        letter = if letter == b'A' { b'B' } else { b'A' };
        let mut file = fs::File::options().write(true).open(&both).expect("open");
        for _ in 0..30 {
            file.write_all(&vec![letter; LEN / 30]).expect("write");
        }
    });
    let growing = Busy::new(move || {
        fs::File::options()
            .append(true)
            .open(&log)
            .expect("open")
            .write_all(b"line\n")
            .expect("write");
    });
    let truncating = Busy::new(move || {
        let file = fs::File::options().write(true).open(&cut).expect("open");
        file.set_len(0).expect("truncate");
        file.set_len(3 << 20).expect("grow");
    });
    for _ in 0..2 {
        let run = s.run(["capture", "--json"]);
        let changing: Vec<String> =
            records(&run.json()).iter().map(|(p, _)| (*p).to_owned()).collect();
        assert_eq!(run.code, if changing.is_empty() { 0 } else { 3 }, "{run}");
        assert!(records(&run.json()).iter().all(|(_, r)| *r == "changing"), "{run}");
        if !changing.iter().any(|p| p == "both") {
            let bytes = cat(&s, "both");
            assert_eq!(bytes.len(), LEN);
            assert!(bytes.iter().all(|b| *b == bytes[0]), "a mixture was stored");
        }
        if !changing.iter().any(|p| p == "cut") {
            let bytes = cat(&s, "cut");
            assert!(bytes.is_empty() || bytes.len() == 3 << 20);
            assert!(bytes.iter().all(|b| *b == *bytes.first().unwrap_or(&0)));
        }
        assert_eq!(cat(&s, "other"), b"still\n");
    }
    drop((rewriting, growing, truncating));
    fs::write(&other, "after\n").expect("write");
    let quiet = s.ok(["capture"]);
    assert_eq!(quiet["coverage"]["complete"], true);
    run(async { Lib::of(&s).await.assert_clean().await });
}

#[test]
fn cap_037_a_file_replaced_by_rename_is_old_or_new() {
    let s = sandbox();
    let file = s.write("f", "old\n");
    let new = s.top().join("new");
    fs::write(&new, "new content\n").expect("write");
    let done = after_listing(&s, move || fs::rename(&new, &file).expect("rename"));
    assert!(done.coverage.complete);
    assert_eq!(cat(&s, "f"), b"new content\n");
    // and for ever anew, by the binary
    let (target, beside) = (s.path("f"), s.top().join("beside"));
    let mut n = 0_u64;
    let renaming = Busy::new(move || {
        n += 1;
        fs::write(&beside, format!("state {n}\n")).expect("write");
        fs::rename(&beside, &target).expect("rename");
    });
    for _ in 0..5 {
        let run = s.run(["capture", "--json"]);
        assert!([0, 3].contains(&run.code), "{run}");
        if run.code == 0 {
            let text = String::from_utf8(cat(&s, "f")).expect("text");
            assert!(text.starts_with("state ") && text.ends_with('\n'), "{text:?}");
        }
    }
    drop(renaming);
}

#[test]
fn cap_038_a_file_that_goes_after_listing_is_vanished() {
    let s = sandbox();
    let gone = s.write("gone", "x");
    let dir = s.mkdir("d");
    s.write("d/below", "x");
    s.write("stays", "x");
    let back = s.write("back", "x");
    let mut looked = 0;
    let done = after_listing(&s, move || {
        looked += 1;
        fs::remove_file(&gone).expect("remove");
        fs::remove_dir_all(&dir).expect("remove");
        fs::remove_file(&back).expect("remove");
        fs::write(&back, "again").expect("write");
        assert_eq!(looked, 1);
    });
    assert!(done.coverage.complete);
    let vanished = |p: &str| (p.to_owned(), Reason::Vanished);
    assert_eq!(rows(&done), [vanished("d/below"), vanished("gone")]);
    assert_eq!(done.counts.files, 2);
    assert_eq!((cat(&s, "stays"), cat(&s, "back")), (b"x".to_vec(), b"again".to_vec()));
    let again = s.run(["capture", "--json"]).expect(0).json();
    assert_eq!(records(&again), []);
}

#[test]
fn cap_039_a_file_swapped_for_a_link_or_a_pipe_is_not_followed() {
    let s = sandbox();
    let secret = s.top().join("secret");
    fs::write(&secret, "outside-the-workspace").expect("write");
    fs::create_dir(s.top().join("elsewhere")).expect("mkdir");
    fs::write(s.top().join("elsewhere/f"), "outside-the-workspace").expect("write");
    for name in ["link", "pipe", "d/f", "kept"] {
        s.write(name, "inside");
    }
    let (link, pipe, d) = (s.path("link"), s.path("pipe"), s.path("d"));
    let done = after_listing(&s, move || {
        fs::remove_file(&link).expect("remove");
        symlink(&secret, &link).expect("link");
        fs::remove_file(&pipe).expect("remove");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        fs::remove_dir_all(&d).expect("remove");
        symlink("../elsewhere", &d).expect("link");
    });
    let rows = rows(&done);
    assert!(rows.contains(&(String::from("pipe"), Reason::Unsupported)), "{rows:?}");
    let tree = run(async { Lib::of(&s).await.recorded("latest").await });
    assert!(matches!(&tree[&b"link"[..]], Entry::Link(to) if to.ends_with(b"/secret")));
    assert!(!tree.contains_key(&b"pipe"[..]) && !tree.contains_key(&b"d/f"[..]), "{tree:?}");
    let leaked = |e: &Entry| matches!(e, Entry::File(_, b) if b == b"outside-the-workspace");
    assert!(!tree.values().any(leaked));
}

/// Captures while `f` is edited after each of its reads, `edits` times.
fn edited_after_its_turn(edits: u64) -> (Sandbox, Captured) {
    let s = sandbox();
    let file: PathBuf = s.write("f", "state 0");
    s.write("other", "x");
    let done = run(async {
        let mut lib = Lib::of(&s).await;
        let n = AtomicU64::new(0);
        lib.on_point("capture.objects", move || {
            if n.load(Ordering::SeqCst) < edits {
                let n = n.fetch_add(1, Ordering::SeqCst) + 1;
                fs::write(&file, format!("state {n}")).expect("write");
            }
            Ok(())
        });
        lib.capture().await
    });
    (s, done)
}

#[test]
fn cap_040_a_file_edited_after_its_turn_is_read_again_but_not_for_ever() {
    for edits in [1, 2] {
        let (s, done) = edited_after_its_turn(edits);
        assert!(done.coverage.complete, "{:?}", done.coverage);
        assert_eq!(cat(&s, "f"), format!("state {edits}").as_bytes());
    }
    let (s, done) = edited_after_its_turn(u64::MAX);
    assert_eq!(rows(&done), [(String::from("f"), Reason::Changing)]);
    assert!(!done.coverage.complete);
    assert_eq!(cat(&s, "other"), b"x");
}

#[test]
fn a_file_that_grows_over_the_limit_after_listing_is_too_large() {
    let s = sandbox();
    let file = s.write("f", "small");
    let done = after_listing(&s, move || {
        let grown = fs::File::options().write(true).open(&file).expect("open");
        grown.set_len((32 << 20) + 1).expect("grow");
    });
    assert_eq!(rows(&done), [(String::from("f"), Reason::TooLarge)]);
    assert_eq!(done.coverage.records[0].size, Some((32 << 20) + 1));
}

#[test]
fn cap_041_an_unreadable_path_is_named_and_the_rest_is_stored() {
    let s = sandbox();
    for name in ["a", "closed", "z", "dir/inside"] {
        s.write(name, "x");
    }
    give_to_nobody(&s);
    s.chmod("closed", 0);
    s.chmod("dir", 0);
    let run = as_nobody(s.command(["capture", "--json"])).expect(3);
    let json = run.json();
    assert_eq!(records(&json), [("closed", "unreadable"), ("dir", "unreadable")]);
    let rows = &json["coverage"]["records"];
    assert_eq!((&rows[0]["state"], &rows[0]["error"]), (&json!("skipped"), &json!("EACCES")));
    assert_eq!((&rows[1]["state"], &rows[1]["error"]), (&json!("unobserved"), &json!("EACCES")));
    assert_eq!(json["exit_code"], 3);
    assert_eq!(json["counts"]["files"], 2);
    let human = as_nobody(s.command(["capture"])).expect(3);
    assert!(
        human.out().contains("not covered: 2") && human.out().contains("unreadable"),
        "{human}"
    );
    let shown = as_nobody(s.command(["show", "latest", "--skipped"])).expect(0);
    assert!(shown.out().contains("closed") && shown.out().contains("EACCES"), "{shown}");
    assert!(Path::new(&s.path("closed")).exists());
}
