//! A command that inherits the terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backtrail_core::process::{Cause, End, Outcome, Stdio};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};

use crate::world::{LONG, go, sh};

const ROLE: &str = "BACKTRAIL_TEST_TERMINAL";

/// A program at a terminal of its own, and somebody who types.
struct Session {
    control: File,
    shown: Arc<Mutex<String>>,
    child: Child,
}

impl Session {
    /// Starts the test `name` of this file again, there.
    fn start(name: &str) -> Self {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&control).and_then(|()| unlockpt(&control)).expect("its other end");
        let path = ptsname(&control, Vec::new()).expect("its name");
        let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
        let open = || File::options().read(true).write(true).open(path).expect("opens");
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args([name, "--exact", "--nocapture"]).env(ROLE, name);
        command.stdin(open()).stdout(open()).stderr(open());
        let child = command.spawn().expect("starts");
        drop(command);
        let control = File::from(control);
        let mut read = control.try_clone().expect("a second handle");
        let shown = Arc::new(Mutex::new(String::new()));
        let seen = shown.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n) = read.read(&mut part) {
                seen.lock().expect("unpoisoned").push_str(&String::from_utf8_lossy(&part[..n]));
            }
        });
        Self { control, shown, child }
    }

    fn expect(&self, text: &str) {
        let began = Instant::now();
        loop {
            let shown = self.shown.lock().expect("unpoisoned").clone();
            if shown.contains(text) {
                return;
            }
            assert!(began.elapsed() < LONG, "{text:?} never came: {shown}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn type_in(&mut self, keys: &str) {
        self.control.write_all(keys.as_bytes()).expect("typed");
    }

    fn end(mut self) {
        let status = self.child.wait().expect("ends");
        let shown = self.shown.lock().expect("unpoisoned").clone();
        assert!(status.success(), "{shown}");
    }
}

/// In the program at the terminal: becomes its session leader. False in the test itself.
fn at_terminal(name: &str) -> bool {
    let there = std::env::var_os(ROLE).is_some_and(|n| n == name);
    if there {
        rustix::process::setsid().expect("no leader yet");
        rustix::process::ioctl_tiocsctty(std::io::stdin()).expect("our terminal");
    }
    there
}

fn inherited(text: &str) -> Outcome {
    let mut attempt = sh(text, Path::new("/"));
    attempt.stdio = Stdio::Inherited;
    go(attempt).expect("ran").0
}

fn in_front() -> bool {
    tcgetpgrp(std::io::stdin()).expect("a terminal") == rustix::process::getpgrp()
}

#[test]
fn ctrl_c_is_the_commands_and_the_terminal_comes_back() {
    const NAME: &str = "terminal::ctrl_c_is_the_commands_and_the_terminal_comes_back";
    if at_terminal(NAME) {
        let echoes = || {
            let modes = tcgetattr(std::io::stdin()).expect("modes");
            modes.local_modes.contains(LocalModes::ECHO)
        };
        assert!(echoes() && in_front());
        let text = "trap 'echo heard; exit 7' INT; read line; echo got-$line; stty -echo; \
                    echo quiet-now; while :; do sleep 0.05; done";
        let outcome = inherited(text);
        assert_eq!((outcome.end, outcome.cause), (End::Code(7), None));
        assert!(in_front() && echoes(), "as before");
        assert_eq!(inherited("stty -echo; kill -9 $$").end, End::Signal(9));
        assert!(in_front() && echoes(), "as before");
        println!("all-well");
        return;
    }
    let mut session = Session::start(NAME);
    session.type_in("word\n");
    session.expect("got-word");
    session.expect("quiet-now");
    session.type_in("\x03");
    session.expect("heard");
    session.expect("all-well");
    session.end();
}

#[test]
fn a_time_limit_takes_the_terminal_back() {
    const NAME: &str = "terminal::a_time_limit_takes_the_terminal_back";
    if at_terminal(NAME) {
        let mut attempt =
            sh("echo begun; trap '' INT TERM; while :; do sleep 0.05; done", Path::new("/"));
        attempt.stdio = Stdio::Inherited;
        attempt.timeout = Some(Duration::from_millis(500));
        attempt.grace = Duration::from_millis(500);
        let outcome = go(attempt).expect("ran").0;
        assert_eq!(outcome.end, End::Signal(9));
        assert!(in_front());
        println!("all-well");
        return;
    }
    let mut session = Session::start(NAME);
    session.expect("begun");
    session.type_in("\x03");
    session.expect("all-well");
    session.end();
}

#[test]
fn ctrl_z_where_no_shell_could_go_on_does_not_hang() {
    const NAME: &str = "terminal::ctrl_z_where_no_shell_could_go_on_does_not_hang";
    if at_terminal(NAME) {
        let outcome = inherited("echo begun; read line; echo got-$line");
        assert_eq!(outcome.end, End::Code(0));
        assert!(in_front());
        println!("all-well");
        return;
    }
    let mut session = Session::start(NAME);
    session.expect("begun");
    session.type_in("\x1a");
    std::thread::sleep(Duration::from_millis(300));
    session.type_in("word\n");
    session.expect("got-word");
    session.expect("all-well");
    session.end();
}

#[test]
fn a_command_that_wants_a_terminal_it_does_not_have_is_ended() {
    const NAME: &str = "terminal::a_command_that_wants_a_terminal_it_does_not_have_is_ended";
    if at_terminal(NAME) {
        let outcome = go(sh("read x < /dev/tty", Path::new("/"))).expect("ran").0;
        assert_eq!(outcome.cause, Some(Cause::WantsTerminal));
        println!("all-well");
        return;
    }
    let session = Session::start(NAME);
    session.expect("all-well");
    session.end();
}

#[test]
fn ctrl_z_stops_the_whole_job_and_fg_goes_on() {
    const NAME: &str = "terminal::ctrl_z_stops_the_whole_job_and_fg_goes_on";
    const JOB: &str = "BACKTRAIL_TEST_JOB";
    if std::env::var_os(JOB).is_some() {
        let outcome = inherited("stty -echo; echo begun; read line; echo got-$line");
        assert_eq!((outcome.end, in_front()), (End::Code(0), true));
        println!("all-well");
        return;
    }
    if at_terminal(NAME) {
        // the shell of this session, which gives the job a group of its own
        let exe = std::env::current_exe().expect("this test");
        let mut shell = Command::new("bash");
        shell
            .args(["--norc", "--noprofile", "-i"])
            .env("LC_ALL", "C")
            .env("PS1", "prompt> ")
            .env("JOB", exe);
        assert!(shell.status().expect("bash is there").success());
        return;
    }
    let mut session = Session::start(NAME);
    session.expect("prompt> ");
    session.type_in(&format!("{JOB}=1 \"$JOB\" {NAME} --exact --nocapture\n"));
    session.expect("begun");
    session.type_in("\x1a");
    session.expect("Stopped");
    session.type_in("echo shell-$((40 + 2))\n");
    session.expect("shell-42");
    session.type_in("fg\n");
    std::thread::sleep(Duration::from_millis(500));
    session.type_in("word\n");
    session.expect("got-word");
    session.expect("all-well");
    session.type_in("exit 0\n");
    session.end();
}
