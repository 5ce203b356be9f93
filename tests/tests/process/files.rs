//! What a command reports and asks.

use std::path::Path;

use backtrail_core::error::Result;
use backtrail_core::process::{
    Asked, AttemptFiles, End, Outcome, Reported, Scratch, ScratchPlaces,
};
use serde_json::json;

use crate::world::{go, sh};

struct Room {
    dir: tempfile::TempDir,
    scratch: Scratch,
}

fn room() -> Room {
    let dir = tempfile::tempdir().expect("a directory");
    let state = Some(dir.path().join("state"));
    let places = ScratchPlaces { state, ..ScratchPlaces::default() };
    let scratch = Scratch::open(&places, "r").expect("opened");
    Room { dir, scratch }
}

impl Room {
    /// Runs shell text that finds the files as `$IN`, `$OUT`, `$ASK`, `$ANS`.
    fn run(&self, text: &str, answers: Option<&[u8]>) -> (Outcome, String, AttemptFiles) {
        let files = self.scratch.attempt("n", 0, 1, br#"{"input":7}"#, answers).expect("files");
        let mut attempt = sh(text, self.dir.path());
        let name = |p: &Path| p.as_os_str().to_owned();
        attempt.environment.layer([
            ("IN", name(&files.input())),
            ("OUT", name(&files.output())),
            ("ASK", name(&files.question())),
            ("ANS", name(&files.answers())),
        ]);
        let (outcome, out, _) = go(attempt).expect("ran");
        (outcome, out, files)
    }

    fn output(&self, text: &str) -> Result<Reported> {
        self.run(text, None).2.read_output()
    }
}

#[test]
fn an_output_is_read_or_refused_with_its_position_and_never_hangs() {
    let room = room();
    assert_eq!(room.output("true").expect("nothing written"), Reported::default());
    let good =
        room.output(r#"printf '{"a":[1],"_tokens":12,"_cost_usd":0.5}' > $OUT"#).expect("good");
    assert_eq!((good.tokens, good.cost_usd), (Some(12), Some(0.5)));
    assert_eq!(good.object["a"], json!([1]));
    let link = "printf '{}' > elsewhere; ln -s $PWD/elsewhere $OUT";
    let replaced = "d=$(dirname $OUT); mv $d $d.old; mkdir $d; printf '{\"forged\":1}' > $OUT";
    assert!(room.output(replaced).expect("the one we made").object.is_empty());
    for (text, line, column, what) in [
        ("printf '[]' > $OUT", 1, 1, "a list"),
        ("printf '' > $OUT", 1, 1, "not JSON"),
        (r#"printf '{\n "a": 1,\n "b": }' > $OUT"#, 3, 7, "not JSON"),
        ("head -c 2097152 /dev/zero > $OUT", 1, 1, "2097152 bytes"),
        (link, 1, 1, "a link"),
        ("ln -s nowhere $OUT", 1, 1, "a link"),
        ("mkfifo $OUT", 1, 1, "no regular file"),
        ("mkdir $OUT", 1, 1, "no regular file"),
        (r#"printf '{\n"a": "\377"}' > $OUT"#, 2, 7, "not UTF-8"),
        (r#"printf '{"x": 1, "_tokens": -1}' > $OUT"#, 1, 10, "_tokens"),
        (r#"printf '{"_tokens": "3"}' > $OUT"#, 1, 2, "_tokens"),
        (r#"printf '{"_tokens": 1.5}' > $OUT"#, 1, 2, "_tokens"),
        (r#"printf '{"_cost_usd": -0.1}' > $OUT"#, 1, 2, "_cost_usd"),
        (r#"printf '{"_cost_usd": 1e999}' > $OUT"#, 1, 19, "not JSON"),
    ] {
        let e = room.output(text).expect_err(text);
        assert_eq!(e.code(), "schema-validation", "{text}: {e:?}");
        let at = (e.details()["line"].as_u64(), e.details()["column"].as_u64());
        assert_eq!(at, (Some(line), Some(column)), "{text}: {e:?}");
        assert!(e.message().contains(what), "{text}: {e:?}");
    }
}

#[test]
fn a_question_needs_the_file_and_the_code() {
    let room = room();
    let ask = |text: &str| {
        let (outcome, _, files) = room.run(text, None);
        files.read_question(outcome.end)
    };
    let good = r#"printf '{"questions":{"go":"on?"},"answers":{"go":{"type":"bool"}}}' > $ASK"#;
    let Ok(Asked::Yes(question)) = ask(&format!("{good}; exit 75")) else { panic!("it asks") };
    assert_eq!(question.questions["go"], "on?");
    assert_eq!(question.answers, Some(json!({ "go": { "type": "bool" } })));
    assert_eq!(ask("exit 75").expect("no file"), Asked::WithoutQuestion);
    assert_eq!(ask(&format!("{good}; exit 1")).expect("other code"), Asked::Ignored);
    assert_eq!(ask("exit 0").expect("nothing"), Asked::No);
    for bad in
        [r#"{"questions":{}}"#, r#"{"questions":"x"}"#, r#"{"questions":{"a":1},"b":2}"#, "[]"]
    {
        let e = ask(&format!("printf '%s' '{bad}' > $ASK; exit 75")).expect_err(bad);
        assert_eq!(e.code(), "schema-validation", "{bad}");
    }
    assert!(ask("mkfifo $ASK; exit 75").is_err(), "no hang");
}

#[test]
fn input_and_answers_are_there_to_be_read_and_each_attempt_begins_anew() {
    let room = room();
    let (outcome, out, _) =
        room.run("cat $IN $ANS; echo '{' > $OUT", Some(br#"{"q":{"go":true}}"#));
    assert_eq!((outcome.end, &out[..]), (End::Code(0), r#"{"input":7}{"q":{"go":true}}"#));
    let (_, out, files) = room.run("ls $(dirname $IN); stat -c %a $IN $(dirname $IN)", None);
    assert_eq!(out, "input.json\n600\n700\n");
    assert_eq!(files.read_output().expect("nothing"), Reported::default());
}

#[test]
fn the_first_place_that_can_be_used_is_used_and_found_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| Some(dir.path().join(name));
    std::fs::write(dir.path().join("blocked"), "a file in the way").expect("written");
    let places =
        ScratchPlaces { state: at("blocked"), home: at("home"), store: None, temp: at("tmp") };
    assert!(Scratch::find(&places, "r1").expect("looked").is_none());
    assert!(!dir.path().join("home").exists() && !dir.path().join("tmp").exists(), "only looked");
    let scratch = Scratch::open(&places, "r1").expect("the home can be used");
    let files = scratch.attempt("n", 0, 1, b"{}", None).expect("files");
    assert!(files.input().starts_with(dir.path().join("home/.local/state/backtrail/scratch/r1")));
    assert!(Scratch::find(&places, "r1").expect("looked").is_some());
    Scratch::remove(&places, "r1").expect("removed");
    Scratch::remove(&places, "r1").expect("twice");
    assert!(Scratch::find(&places, "r1").expect("looked").is_none());
    for bad in ["", ".", "..", "../x", "a/b"] {
        assert!(Scratch::open(&places, bad).is_err(), "{bad:?}");
        assert!(Scratch::remove(&places, bad).is_err(), "{bad:?}");
        assert!(scratch.attempt(bad, 0, 1, b"", None).is_err(), "{bad:?}");
    }
}

#[test]
fn a_trap_among_temporary_files_is_not_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = format!("backtrail-{}", rustix::process::geteuid().as_raw());
    let places = ScratchPlaces { temp: Some(dir.path().to_owned()), ..ScratchPlaces::default() };
    std::fs::create_dir(dir.path().join("elsewhere")).expect("made");
    std::os::unix::fs::symlink("elsewhere", dir.path().join(&name)).expect("linked");
    let e = Scratch::open(&places, "r").expect_err("a link");
    assert_eq!(e.code(), "no-scratch");
    std::fs::remove_file(dir.path().join(&name)).expect("removed");
    std::fs::create_dir(dir.path().join(&name)).expect("made");
    let theirs = Some(backtrail_tests::host::NOBODY);
    if std::os::unix::fs::chown(dir.path().join(&name), theirs, theirs).is_ok() {
        assert!(Scratch::open(&places, "r").is_err(), "another user's");
    }
}

#[test]
fn standard_output_can_be_the_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let captured = |text: &str| {
        let mut attempt = sh(text, dir.path());
        attempt.capture = true;
        go(attempt).expect("ran").0.captured
    };
    let good = captured(r#"echo '{"a":1,"_tokens":2}'; echo noise >&2"#).object().expect("good");
    assert_eq!((good.object["a"].as_u64(), good.tokens), (Some(1), Some(2)));
    assert_eq!(captured("printf 'a\nb'").text().expect("text"), "a\nb");
    assert_eq!(captured("true").text().expect("text"), "");
    for text in ["printf 'x\\377'", "head -c 1048577 /dev/zero"] {
        assert_eq!(captured(text).text().expect_err(text).code(), "schema-validation");
    }
    assert_eq!(captured("echo '[]'").object().expect_err("a list").code(), "schema-validation");
}
