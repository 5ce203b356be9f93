//! Generated documents agree with the command line; help, manual and completions work.

use crate::sandbox;

/// `BACKTRAIL_BLESS=1` writes the file anew.
#[test]
fn docs_cli_md_is_what_the_binary_says() {
    let text = sandbox().run(["reference"]).expect(0).out();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
    if std::env::var_os("BACKTRAIL_BLESS").is_some() {
        std::fs::write(file, &text).expect("write docs/cli.md");
    }
    let there = std::fs::read_to_string(file).unwrap_or_default();
    assert!(there == text, "docs/cli.md is stale: BACKTRAIL_BLESS=1 cargo nextest run docs_cli_md");
}

#[test]
fn every_verb_has_help_with_examples() {
    let s = sandbox();
    let help = s.run(["--help"]).expect(0).out();
    let verbs: Vec<&str> = help
        .lines()
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1)
        .take_while(|l| !l.is_empty())
        .filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|v| !v.is_empty()))
        .collect();
    assert!(verbs.len() > 1, "{help}");
    for verb in verbs {
        let run = s.run([verb, "--help"]).expect(0);
        assert!(run.out().contains("Examples:\n"), "{run}");
        assert!(run.stderr.is_empty(), "{run}");
        s.run(["man", verb]).expect(0);
    }
}

#[test]
fn manual_and_completions_are_printed() {
    let s = sandbox();
    assert!(s.run(["man"]).expect(0).out().contains(".TH backtrail"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(s.run(["completions", shell]).expect(0).out().contains("backtrail"));
    }
}
