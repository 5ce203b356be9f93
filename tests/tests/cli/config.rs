//! Settings, usage errors and the shape of failures.

use crate::sandbox;

#[test]
fn cap_078_malformed_settings_are_usage_errors_that_name_their_source() {
    let mut s = sandbox();
    for bad in ["0", "-1", "20GBs"] {
        s.env("BACKTRAIL_MAX_FILE", bad);
        let run = s.run(["config"]).expect(2);
        assert!(run.stderr.contains("BACKTRAIL_MAX_FILE") && run.stderr.contains(bad), "{run}");
        let run = s.run(["config", "--json"]).expect(2);
        assert_eq!(run.error_code(), "bad-value");
        assert!(run.stderr.is_empty(), "{run}");
    }
}

#[test]
fn a_setting_is_taken_from_flag_then_environment_then_file_then_default() {
    let mut s = sandbox();
    let wait = |run: serde_json::Value| {
        let rows = run["settings"].as_array().expect("rows").clone();
        let row = rows.into_iter().find(|r| r["key"] == "wait").expect("wait");
        (
            row["value"].as_str().expect("text").to_owned(),
            row["source"].as_str().expect("text").to_owned(),
        )
    };
    assert_eq!(wait(s.ok(["config"])), ("30s".into(), "default".into()));
    let file = s.home().join(".config/backtrail/config.toml");
    std::fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
    std::fs::write(&file, "wait = \"1m\"\n").expect("write");
    assert_eq!(wait(s.ok(["config"])), ("1m".into(), file.display().to_string()));
    s.env("BACKTRAIL_WAIT", "2m");
    assert_eq!(wait(s.ok(["config"])), ("2m".into(), "BACKTRAIL_WAIT".into()));
    assert_eq!(wait(s.ok(["config", "--wait", "3m"])), ("3m".into(), "--wait".into()));
    std::fs::write(&file, "wayt = \"1m\"\n").expect("write");
    let run = s.run(["config"]).expect(2);
    assert!(run.stderr.contains("wayt") && run.stderr.contains("config.toml"), "{run}");
}

#[test]
fn a_usage_error_ends_with_2_and_is_json_when_asked_for() {
    let s = sandbox();
    for args in [&["no-such-verb"][..], &["config", "--no-such-flag"], &[]] {
        s.run(args).expect(2);
    }
    let run = s.run(["config", "--no-such-flag", "--json"]).expect(2);
    assert_eq!(run.error_code(), "usage");
}

#[test]
fn a_closed_pipe_ends_quietly_and_a_full_disk_does_not() {
    use std::process::Stdio;
    let s = sandbox();
    let mut child = s.spawn(["reference"]);
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("wait");
    assert_eq!((out.status.code(), out.stderr.is_empty()), (Some(141), true));
    let mut command = s.command(["config"]);
    command.stdout(Stdio::from(std::fs::File::create("/dev/full").expect("open")));
    assert_eq!(command.output().expect("run").status.code(), Some(1));
}
