//! What a person at a terminal meets: prompts, colours, signals. Python makes the
//! terminal.

use std::fs;
use std::process::Command;

use backtrail_tests::cli::{Run, Sandbox, finish};

use crate::sandbox;

/// Runs a command on a terminal; once `prompt` is shown, types `answer`, or sends
/// SIGINT when there is none.
const SCRIPT: &str = r#"
import os, pty, select, signal, sys, time
prompt, answer, args = sys.argv[1].encode(), sys.argv[2].encode(), sys.argv[3:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(args[0], args)
out, sent, end = b"", False, time.time() + 60
while time.time() < end:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        out += data
    if prompt in out and not sent:
        sent = True
        os.write(fd, answer + b"\n") if answer else os.kill(pid, signal.SIGINT)
sys.stdout.buffer.write(out)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

fn on_terminal(s: &Sandbox, prompt: &str, answer: &str, args: &[&str]) -> Run {
    let own = s.command(args);
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT, prompt, answer]).arg(own.get_program()).args(args);
    python.current_dir(s.workspace()).env_clear();
    python.envs(own.get_envs().filter_map(|(k, v)| Some((k, v?)))).env("TERM", "xterm");
    finish(python)
}

#[test]
fn a_person_is_asked_and_the_answer_counts() {
    let s = sandbox();
    s.write("f", "1");
    s.capture();
    s.write("f", "2");
    s.write("g", "2");
    let restore = ["restore", "latest"];
    let no = on_terminal(&s, "[y/N]", "n", &restore).expect(4);
    assert!(no.out().contains("delete (1):") && no.out().contains("declined"), "{no}");
    assert!(no.out().contains("Write 1 and delete 1?"), "{no}");
    let interrupted = on_terminal(&s, "[y/N]", "", &restore).expect(130);
    assert!(interrupted.out().contains("interrupted by SIGINT"), "{interrupted}");
    assert_eq!(fs::read(s.path("f")).expect("read"), b"2");
    let yes = on_terminal(&s, "[y/N]", "y", &restore).expect(0);
    assert!(yes.out().contains("undo with: backtrail undo"), "{yes}");
    assert!(yes.out().contains("\x1b[33m"), "no colour: {yes}");
    assert_eq!(fs::read(s.path("f")).expect("read"), b"1");
    assert!(!s.path("g").exists());
    on_terminal(&s, "[y/N]", "y", &["prune", "--keep", "1"]);
}

#[test]
fn deleting_most_of_a_workspace_takes_a_typed_answer() {
    let s = sandbox();
    s.write("f", "1");
    let small = s.capture();
    for i in 0..30 {
        s.write(format!("f{i}"), "x");
    }
    let args = ["restore", &small, "--yes"];
    let run = on_terminal(&s, "to go on:", "y", &args).expect(4);
    assert!(run.out().contains("This deletes 30 of 31 files"), "{run}");
    assert!(s.path("f7").exists());
    on_terminal(&s, "to go on:", "30", &args).expect(0);
    assert!(!s.path("f7").exists());
}

#[test]
fn no_color_means_no_colour() {
    let mut s = sandbox();
    s.write("f", "1");
    s.capture();
    assert!(on_terminal(&s, "never", "-", &["list"]).expect(0).out().contains('\x1b'));
    s.env("NO_COLOR", "1");
    assert!(!on_terminal(&s, "never", "-", &["list"]).expect(0).out().contains('\x1b'));
}
