//! `run -- CMD` at a real terminal: the command has it, and its Ctrl-C.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use backtrail_tests::cli::Run;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::world::{World, end};

/// Runs a command as the leader of a session at a terminal of its own. Once it shows a word,
/// the keys beside it are typed. What the terminal showed is in `stdout`.
fn at_terminal(command: &Command, typed: &[(&str, &str)]) -> Run {
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&control).and_then(|()| unlockpt(&control)).expect("its other end");
    let name = ptsname(&control, Vec::new()).expect("its name");
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let open = || File::options().read(true).write(true).open(path).expect("opens");
    let mut leader = Command::new("setsid");
    leader.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
    leader.env_clear().envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    leader.current_dir(command.get_current_dir().expect("a directory"));
    leader.stdin(open()).stdout(open()).stderr(open());
    let child = leader.spawn().expect("setsid of util-linux");
    drop(leader);
    let mut control = File::from(control);
    let mut keys = control.try_clone().expect("a second handle");
    let (mut shown, mut part, mut typed) = (Vec::new(), [0; 4096], typed.iter());
    let mut next = typed.next();
    // ends with an error once the last program closed the other end
    while let Ok(n) = control.read(&mut part) {
        shown.extend_from_slice(&part[..n]);
        let text = String::from_utf8_lossy(&shown).into_owned();
        if let Some((_, what)) = next.filter(|(word, _)| text.contains(word)) {
            keys.write_all(what.as_bytes()).expect("typed");
            next = typed.next();
        }
    }
    assert!(next.is_none(), "never shown: {next:?} in {}", String::from_utf8_lossy(&shown));
    Run { stdout: shown, ..end(child) }
}

const CHILD: &str = "test -t 0 -a -t 1 -a -t 2 && tty; trap 'echo heard; exit 7' INT; \
                     echo ready; read line; echo got-$line; while :; do sleep 0.05; done";

#[test]
fn run_cl01_at_a_terminal_the_command_keeps_it_and_its_ctrl_c() {
    let world = World::new();
    for (id, flags, code) in [("r1", &[] as &[&str], 1), ("r2", &["--child-exit"], 7)] {
        let whole = world.id(id);
        let args = ["run", "--run-id", &whole].into_iter().chain(flags.iter().copied());
        let command = world.sandbox.command(args.chain(["--", "sh", "-c", CHILD]));
        let typed = [("ready", "word\n"), ("got-word", "\x03")];
        let run = at_terminal(&command, &typed).expect(code);
        let shown = run.out();
        assert!(shown.contains("/dev/pts/") && shown.contains("heard"), "{run}");
        // the engine lived on and recorded what the child did
        let record = world.record(id);
        assert_eq!(record["status"], "failed_resumable", "{record}");
        assert_eq!(record["failure_code"], "EXECUTION_FAILED", "{record}");
        world.label(id, "fail:main:0");
        assert!(world.log(id).contains("not recorded"), "{}", world.log(id));
    }
    // --tty no: output is passed on and recorded, though there is a terminal
    let whole = world.id("r3");
    let script = "test -t 1 || echo piped";
    let args = ["run", "--run-id", &whole, "--tty", "no", "--", "sh", "-c", script];
    let run = at_terminal(&world.sandbox.command(args), &[]).expect(0);
    assert!(run.out().contains("piped"), "{run}");
    assert_eq!(world.log("r3"), "piped\n");
}
