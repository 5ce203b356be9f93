//! Starting, streams, exit codes, and commands that cannot be started.

use std::os::unix::fs::PermissionsExt as _;

use backtrail_core::error::{Kind, Result};
use backtrail_core::process::{Chunk, Command, End, Sink, Stdio, Stop, Tee, run};

use crate::world::{argv, attempt, block_on, go, sh};

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    for (text, end) in [
        ("exit 0", End::Code(0)),
        ("exit 75", End::Code(75)),
        ("exit 255", End::Code(255)),
        ("kill -9 $$", End::Signal(9)),
        ("kill -TERM $$", End::Signal(15)),
    ] {
        let (outcome, ..) = go(sh(text, dir.path())).expect("started");
        assert_eq!((outcome.end, outcome.cause), (end, None), "{text}");
        assert!(outcome.killed.is_empty() && outcome.left.is_empty() && !outcome.pipes_left);
    }
}

#[test]
fn arguments_directory_environment_and_input_reach_the_command_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, out, _) =
        go(argv(&["printf", "%s|", "a b", "$(x)", "", "é\n"], dir.path())).expect("ran");
    assert_eq!(out, "a b|$(x)||é\n|");
    let placed = sh("pwd -P; echo $BACKTRAIL_EXECUTION_ID", dir.path());
    let execution = placed.identity.execution.clone();
    let (_, out, _) = go(placed).expect("ran");
    let here = dir.path().canonicalize().expect("real");
    assert_eq!(out, format!("{}\n{execution}\n", here.display()));

    let mut copy = argv(&["cat"], dir.path());
    let input: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    copy.stdio = Stdio::Piped { stdin: input.clone(), tee: Tee::default() };
    copy.capture = true;
    let (outcome, ..) = go(copy).expect("ran");
    assert_eq!(outcome.stdout_bytes, 3_000_000);
    assert_eq!(outcome.captured.bytes, input[..1 << 20]);
    assert!(outcome.captured.cut);

    let mut deaf = sh("exec 0<&-; sleep 0.1; echo done", dir.path());
    deaf.stdio = Stdio::Piped { stdin: vec![b'x'; 3_000_000], tee: Tee::default() };
    assert_eq!(go(deaf).expect("ran").1, "done\n");
}

/// Leaves a file for each piece that came.
struct Steps {
    dir: std::path::PathBuf,
    came: Vec<Vec<u8>>,
}

#[async_trait::async_trait]
impl Sink for Steps {
    async fn chunk(&mut self, chunk: Chunk) -> Result<()> {
        self.came.push(chunk.bytes.to_vec());
        std::fs::write(self.dir.join(self.came.len().to_string()), "").expect("written");
        Ok(())
    }
}

#[test]
fn both_streams_are_counted_and_come_in_the_order_of_their_arrival() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "on() { while [ ! -e $1 ]; do sleep 0.01; done; }; \
                printf a; on 1; printf b >&2; on 2; printf c; on 3; printf dd >&2";
    let mut sink = Steps { dir: dir.path().to_owned(), came: Vec::new() };
    let outcome = block_on(run(sh(text, dir.path()), &mut sink, Stop::never())).expect("ran");
    assert_eq!(sink.came, [&b"a"[..], b"b", b"c", b"dd"]);
    assert_eq!((outcome.stdout_bytes, outcome.stderr_bytes), (2, 3));
}

#[test]
fn a_command_that_cannot_be_started_says_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").expect("written");
    let odd = dir.path().join("odd");
    std::fs::write(&odd, [0, 1, 2, 3]).expect("written");
    let lost = dir.path().join("lost");
    std::fs::write(&lost, "#!/no/such/interpreter\n").expect("written");
    for file in [&odd, &lost] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }
    let path = |p: &std::path::Path| p.to_str().expect("text").to_owned();
    let long = "x".repeat(200 * 1024);
    for (words, code) in [
        (vec!["no-such-command-here".to_owned()], "command-not-found"),
        (vec!["/no/such/command".to_owned()], "command-not-found"),
        (vec![path(&lost)], "command-not-found"),
        (vec![path(&plain)], "command-not-executable"),
        (vec![path(&odd)], "command-not-executable"),
        (vec![path(dir.path())], "command-not-executable"),
        (vec!["true".to_owned(), long], "command-too-long"),
        (vec!["true".to_owned(), "a\0b".to_owned()], "bad-value"),
        (vec![], "bad-value"),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let e = go(argv(&words, dir.path())).expect_err("cannot start");
        assert_eq!(e.code(), code, "{e:?}");
        assert!(e.message().len() < 300, "{e:?}");
    }
    let gone = dir.path().join("gone");
    let e = go(argv(&["true"], &gone)).expect_err("no directory");
    assert_eq!((e.code(), e.kind()), ("no-directory", Kind::Failed));
    let shell = Command::Shell { shell: "/no/shell".into(), text: "true".into() };
    let e = go(attempt(shell, dir.path())).expect_err("no shell");
    assert_eq!(e.code(), "command-not-found");
}
