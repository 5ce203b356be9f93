//! Children that outlive their engine are seen.

use backtrail_core::error::Kind;
use backtrail_core::process::{
    Alive, Background, RunKey, Scratch, ScratchPlaces, Survivor, survivors,
};

use crate::world::{alone, go, key, lives, sh, wait_for};

#[test]
fn a_living_child_is_seen_by_its_environment_or_its_descriptor() {
    alone("alive::a_living_child_is_seen_by_its_environment_or_its_descriptor", || {
        let dir = tempfile::tempdir().expect("a directory");
        let places = ScratchPlaces { temp: Some(dir.path().to_owned()), ..Default::default() };
        let scratch = Scratch::open(&places, "r").expect("opened");
        let run = key();
        let other = RunKey { store: String::from("other"), ..key() };
        assert_eq!(survivors(Some(scratch.dir()), &run).expect("looked"), []);
        // one with our words; one without them, that the descriptor betrays
        for (name, start) in [("words", "sleep 300"), ("bare", "env -i PATH=\"$PATH\" sleep 300")] {
            let held = Alive::hold(scratch.dir()).expect("nobody else");
            let quiet = "> /dev/null 2>&1 < /dev/null";
            let mut attempt = sh(&format!("{start} {quiet} & echo $! > {name}"), dir.path());
            attempt.background = Background::Keep;
            attempt.alive = Some(held);
            go(attempt).expect("ran");
            let pid = wait_for(&dir.path().join(name));
            let found = survivors(Some(scratch.dir()), &run).expect("looked");
            // the same id in another store is another run
            assert_eq!(survivors(None, &other).expect("looked"), [], "{name}");
            let [Survivor::Process(one)] = &found[..] else { panic!("{name}: {found:?}") };
            assert_eq!(one.pid.to_string(), pid);
            let e = Alive::hold(scratch.dir()).expect_err("it holds the lock");
            assert_eq!(e.kind(), Kind::Busy);
            assert!(e.message().contains(&pid), "{e:?}");
            let id = pid.parse().ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
            rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("ours");
            while lives(&pid) {
                std::thread::yield_now();
            }
            assert_eq!(survivors(Some(scratch.dir()), &run).expect("looked"), []);
        }
    });
}

#[test]
fn the_descriptor_reaches_the_command_and_no_number_of_a_script() {
    let dir = tempfile::tempdir().expect("a directory");
    let places = ScratchPlaces { temp: Some(dir.path().to_owned()), ..Default::default() };
    let scratch = Scratch::open(&places, "r").expect("opened");
    let mut attempt = sh("ls -l /proc/$$/fd", dir.path());
    attempt.alive = Some(Alive::hold(scratch.dir()).expect("locked"));
    let (_, out, _) = go(attempt).expect("ran");
    let line = out.lines().find(|l| l.ends_with("/alive")).expect("inherited");
    let (number, _) = line.split_once(" -> ").expect("a link");
    let number: u32 = number.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(number >= 100, "{line}");
}
