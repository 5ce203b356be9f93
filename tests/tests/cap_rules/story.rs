//! CAP-075: `explain` names file, line, rule and ancestor, and what was beaten.

use backtrail_core::workspace::rules::{
    CACHEDIR_SIGNATURE, EntryKind, Explanation, Limits, Outcome, RuleFamily, RuleSet,
};

use super::world::{World, path};

/// One line: decision, reason, source, file:line, pattern, ancestor.
fn short(e: &Explanation) -> String {
    let at = match (&e.file, e.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        _ => "-".to_owned(),
    };
    let pattern = e.pattern.as_deref().unwrap_or("-");
    let decision = format!("{:?}", e.decision).to_lowercase();
    format!("{decision} {} {} {at} [{pattern}] {}", e.reason, e.source, e.decided_at)
}

fn beaten(e: &Explanation) -> Vec<String> {
    let line = |b: &backtrail_core::workspace::rules::Beaten| {
        let line = b.line.map_or("-".to_owned(), |n| n.to_string());
        format!("{line} {} {} {}", b.pattern, b.at, b.why)
    };
    e.beaten.iter().map(line).collect()
}

fn check(world: World, want: &[(&str, &str, &[&str])]) {
    let walked = world.walk();
    for (name, story, lost) in want {
        let explained = walked.explain(name);
        assert_eq!(short(&explained), *story, "{name}");
        assert_eq!(beaten(&explained), *lost, "{name}");
    }
}

#[test]
fn cap_075_lists_and_families() {
    // CAP-058, CAP-059, CAP-067.
    check(
        World::new(&[
            ".git/HEAD",
            "node_modules/a",
            "src/main.go",
            "dist/a",
            "v/.git",
            "scratch/b",
        ])
        .file(".gitignore", "dist\n")
        .file(".backtrailignore", "scratch\n!.git\n"),
        &[
            (".git/", "excluded always always - [.git] .git", &[]),
            ("v/.git", "excluded always always - [.git] v/.git", &[]),
            (".git/HEAD", "excluded always always - [.git] .git", &[]),
            ("node_modules/a", "excluded default defaults - [node_modules] node_modules", &[]),
            ("src/main.go", "stored no-rule none - [-] src/main.go", &[]),
            ("dist/a", "stored no-rule none - [-] dist/a", &[]),
            ("scratch/b", "excluded rule rules .backtrailignore:1 [scratch] scratch", &[]),
            ("new/", "stored no-rule none - [-] new", &[]),
        ],
    );
}

#[test]
fn cap_075_lines_and_ancestors() {
    // CAP-060.
    let runs = "runs/**\n!runs/**/exports/*.mp4\n!runs/**/audio/*.mp3\nruns/_archived/**\n";
    check(
        World::default().file(".gitignore", runs),
        &[
            (
                "runs/1/exports/a.mp4",
                "stored negated rules .gitignore:2 [!runs/**/exports/*.mp4] runs/1/exports/a.mp4",
                &[
                    "1 runs/** runs/1 negated",
                    "1 runs/** runs/1/exports negated",
                    "1 runs/** runs/1/exports/a.mp4 later-line",
                ],
            ),
            (
                "runs/_archived/exports/a.mp4",
                "excluded rule rules .gitignore:4 [runs/_archived/**] runs/_archived/exports",
                &["2 !runs/**/exports/*.mp4 runs/_archived/exports/a.mp4 later-line"],
            ),
        ],
    );
    // CAP-061, CAP-062.
    check(
        World::default()
            .file(".gitignore", "*.log\n!keep.log\nbuild/\n!foo/\n")
            .file("sub/.gitignore", "*.local\n!keep.local\n"),
        &[
            (
                "build/keep.log",
                "excluded rule rules .gitignore:3 [build/] build",
                &["2 !keep.log build/keep.log too-early"],
            ),
            (
                "foo/x.log",
                "excluded rule rules .gitignore:1 [*.log] foo/x.log",
                &["4 !foo/ foo later-line"],
            ),
            (
                "sub/a/keep.local",
                "stored negated rules sub/.gitignore:2 [!keep.local] sub/a/keep.local",
                &["1 *.local sub/a/keep.local later-line"],
            ),
            ("keep.local", "stored no-rule none - [-] keep.local", &[]),
        ],
    );
}

#[test]
fn cap_075_secrets_defaults_and_markers() {
    // CAP-065, CAP-069, CAP-073.
    check(
        World::default()
            .file("target/CACHEDIR.TAG", CACHEDIR_SIGNATURE)
            .file(".gitignore", "!src/**\n!/node_modules/keep.js\n!ok/.env\n"),
        &[
            (
                "src/.env",
                "skipped secret secrets - [.env] src/.env",
                &["1 !src/** src/.env does-not-name"],
            ),
            (
                "src/node_modules/a",
                "excluded default defaults - [node_modules] src/node_modules",
                &[
                    "1 !src/** src/node_modules does-not-name",
                    "1 !src/** src/node_modules/a does-not-name",
                ],
            ),
            (
                "node_modules/keep.js",
                "stored negated rules .gitignore:2 [!/node_modules/keep.js] node_modules/keep.js",
                &["- node_modules node_modules negated"],
            ),
            (
                "ok/.env",
                "stored negated rules .gitignore:3 [!ok/.env] ok/.env",
                &["- .env ok/.env negated"],
            ),
            ("target/x", "excluded marker marker - [CACHEDIR.TAG or pyvenv.cfg] target", &[]),
            ("a.PEM", "skipped secret secrets - [*.pem] a.PEM", &[]),
        ],
    );
}

#[test]
fn cap_075_json_has_the_documented_fields() {
    let walked = World::default().file("a/.gitignore", "*.o\n").walk();
    let json = serde_json::to_value(walked.explain("a/b/x.o")).expect("it serializes");
    let want = serde_json::json!({
        "path": "a/b/x.o", "decision": "excluded", "reason": "rule", "source": "rules",
        "file": "a/.gitignore", "line": 1, "pattern": "*.o", "decided_at": "a/b/x.o", "beaten": [],
    });
    assert_eq!(json, want);
    let root = walked.matcher().explain(&path(""), EntryKind::Dir);
    assert_eq!((root.decision, root.reason), (Outcome::Stored, "no-rule"));
}

#[test]
fn an_old_rule_set_answers_from_its_own_lists() {
    let now = RuleSet::new(RuleFamily::Git, Limits::default(), false);
    let text = String::from_utf8(now.encode()).expect("JSON is UTF-8");
    let old = text.replace("\"node_modules\"", "\"old_modules\"").replace("\".npmrc\"", "\"z\"");
    let old = RuleSet::decode(old.as_bytes()).expect("it decodes").matcher();
    assert!(old.is_out(&path("old_modules"), EntryKind::Dir));
    assert!(!old.is_out(&path("node_modules"), EntryKind::Dir));
    assert!(!old.is_out(&path(".npmrc"), EntryKind::File));
    assert!(old.is_out(&path("d/Z"), EntryKind::File));
    assert_eq!(old.explain(&path("old_modules/x"), EntryKind::File).reason, "default");
}
