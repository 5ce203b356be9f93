//! The rules of spec/capture.md 7 as cases: those that need no disk. Each function
//! is one id of the conformance list.

mod git;
mod model;
mod story;
mod world;

use backtrail_core::workspace::rules::{
    Always, CACHEDIR_SIGNATURE, Class, EntryKind, Source, Verdict,
};
use world::World;

#[test]
fn cap_058_only_the_source_is_stored() {
    let walked = World::new(&[".git/HEAD", "node_modules/a/b.js", "src/main.go"]).walk();
    assert_eq!(walked.stored(), ["src/main.go"]);
    assert_eq!(walked.entered, ["src"]);
    assert_eq!(walked.counted(Class::Always), 1);
    assert_eq!(walked.counted(Class::Default), 1);
}

#[test]
fn cap_059_one_family_is_in_force() {
    let world = World::new(&["dist/a", "scratch/b"]).file(".gitignore", "dist\n");
    assert_eq!(world.walk().stored(), [".gitignore", "scratch/b"]);

    let both = world.file(".backtrailignore", "scratch\n").walk();
    assert_eq!(both.stored(), [".backtrailignore", ".gitignore", "dist/a"]);

    let empty = World::new(&["dist/a", ".backtrailignore"]).file(".gitignore", "dist\n");
    assert!(empty.walk().stored().contains(&"dist/a"));
}

#[test]
fn cap_060_an_allowlist_below_an_excluded_tree() {
    let rules = "runs/**\n!runs/**/exports/*.mp4\n!runs/**/audio/*.mp3\nruns/_archived/**\n";
    let walked = World::new(&[
        "runs/1/exports/a.mp4",
        "runs/1/exports/a.txt",
        "runs/1/audio/b.mp3",
        "runs/1/audio/b.mp4",
        "runs/1/log",
        "runs/_archived/1/exports/old.mp4",
        "runs/_archived/exports/old.mp4",
    ])
    .file(".gitignore", rules)
    .walk();
    let want = [".gitignore", "runs/1/audio/b.mp3", "runs/1/exports/a.mp4"];
    assert_eq!(walked.stored(), want);
    // The last line does not match `_archived` itself, so it is listed, and no more.
    assert!(!walked.entered.iter().any(|d| d.contains("_archived/")), "{:?}", walked.entered);
}

#[test]
fn cap_061_negations_in_the_root_and_in_a_nested_file() {
    let world = World::new(&["secrets/x", "keep.local", "a.local", ".env", "server.pem"]);
    let walked = world.file(".gitignore", "secrets/\n*.local\n!keep.local\n").walk();
    assert_eq!(walked.stored(), [".gitignore", "keep.local"]);
    assert_eq!(walked.verdict(".env"), Verdict::Secret);
    assert_eq!(walked.verdict("server.pem"), Verdict::Secret);

    let nested = World::new(&["d/secrets/x", "d/keep.local", "d/a.local", "keep.local"])
        .file(".gitignore", "secrets/\n*.local\n")
        .file("d/.gitignore", "!keep.local\n")
        .walk();
    assert_eq!(nested.stored(), [".gitignore", "d/.gitignore", "d/keep.local"]);
}

#[test]
fn cap_062_an_earlier_negation_does_not_reinclude() {
    let walked = World::new(&["build/keep.log", "foo/x.log", "foo/keep.log", "keep.log"])
        .file(".gitignore", "*.log\n!keep.log\nbuild/\n!foo/\n")
        .walk();
    assert_eq!(walked.stored(), [".gitignore", "foo/keep.log", "keep.log"]);
    let counted = walked.counted(Class::Rule);
    assert_eq!(counted, 2, "build once, foo/x.log");
}

#[test]
fn cap_062_answers_are_gits() {
    git::compare_random_rules();
}

#[test]
fn cap_063_without_negation_nothing_excluded_is_entered() {
    let walked =
        World::new(&["assets/music/archive/a/b.wav", "build/x/tmp/c", "build/x/d", "build/tmp/e"])
            .file(".gitignore", "assets/music/archive/**\nbuild/**/tmp\n")
            .walk();
    assert_eq!(walked.stored(), [".gitignore", "build/x/d"]);
    // `x/**` does not match `x` itself, so it is listed and all in it is out.
    assert_eq!(
        walked.entered,
        ["assets", "assets/music", "assets/music/archive", "build", "build/x"]
    );
}

#[test]
fn cap_064_pruning_is_decided_per_directory() {
    let paths = ["build/out/keep", "build/other/x", "build/out/deep/y", ".cache/z", "docs/a.md"];
    let walk = |rules: &str| World::new(&paths).file(".gitignore", rules).walk();

    let docs = walk("*.md\nbuild/\n.cache/\n!docs/*.md\n");
    assert_eq!(docs.entered, ["docs"]);
    assert!(docs.stored().contains(&"docs/a.md"));

    let keep = walk("build/\n.cache/\n!build/out/keep\n");
    assert_eq!(keep.entered, ["build", "build/out", "docs"]);
    assert!(keep.stored().contains(&"build/out/keep"));

    let unanchored = walk("build/\n!keep\n");
    assert!(unanchored.entered.contains(&"build".to_owned()));
    assert!(unanchored.stored().contains(&"build/out/keep"));

    let early = walk("!keep\nbuild/\n.cache/\n");
    assert_eq!(early.entered, ["docs"], "a negation before the line has no effect");

    let git = World::new(&["build/.git/keep", ".git/keep"]);
    let git = git.file(".gitignore", "build/\n!keep\n!.git\n!.git/keep\n").walk();
    assert_eq!(git.entered, ["build"]);
}

#[test]
fn cap_064_what_is_not_entered_holds_nothing() {
    git::random_pruning();
}

#[test]
fn cap_065_secrets_and_defaults_must_be_named() {
    let paths = [
        "src/.env",
        "src/a.js",
        "src/web/node_modules/x.js",
        "node_modules/keep.js",
        "node_modules/other.js",
        "node_modules/pkg/keep.js",
        ".env",
    ];
    let walk = |rules: &str| World::new(&paths).file(".gitignore", rules).walk();

    for broad in ["!src/**\n", "!*\n", "!**\n", "!*.js\n", "!/**\n", "!src/*/**\n"] {
        assert_eq!(walk(broad).stored(), [".gitignore", "src/a.js"], "{broad}");
        assert_eq!(walk(broad).entered.iter().filter(|d| d.contains("node")).count(), 0);
    }
    let named = walk("!.env\n!node_modules/keep.js\n");
    assert_eq!(
        named.stored(),
        [".env", ".gitignore", "node_modules/keep.js", "src/.env", "src/a.js"]
    );
    // K47: the siblings are not counted, and only what must be entered is.
    assert_eq!(named.counted(Class::Default), 2, "the two node_modules");
    assert_eq!(named.entered, ["node_modules", "src", "src/web"]);

    for all in ["!node_modules/\n", "!**/node_modules/**\n"] {
        let stored = walk(all);
        let stored = stored.stored();
        assert!(stored.contains(&"node_modules/pkg/keep.js"), "{all}: {stored:?}");
        assert!(stored.contains(&"src/web/node_modules/x.js"), "{all}: {stored:?}");
        assert!(!stored.contains(&".env"));
    }
}

#[test]
fn cap_065_verdicts_are_those_of_the_words() {
    model::compare();
}

#[test]
fn cap_065_each_obstacle_needs_its_own_freeing() {
    let paths =
        ["node_modules/a/node_modules/b.js", "node_modules/a/.npmrc", "node_modules/a/c.js"];
    let walk = |rules: &str| World::new(&paths).file(".gitignore", rules).walk();
    let at = |rules: &str| walk(rules).stored().join(" ");

    assert_eq!(at("!/node_modules/\n"), ".gitignore node_modules/a/c.js");
    assert_eq!(at("!node_modules/a/.npmrc\n"), ".gitignore node_modules/a/.npmrc");
    assert_eq!(at("!.npmrc\n"), ".gitignore");
    assert_eq!(at("!**/node_modules/*.js\n"), ".gitignore", "the outer one is not named");
    let both = "!node_modules/a/node_modules/b.js\n";
    assert_eq!(at(both), ".gitignore node_modules/a/node_modules/b.js");
    let excluded_too = "node_modules/\n!node_modules/a/c.js\n";
    assert_eq!(at(excluded_too), ".gitignore node_modules/a/c.js");
}

#[test]
fn cap_066_a_slash_means_a_directory() {
    let world = World::default().file(".gitignore", "node_modules/\n");
    let link = world.file("node_modules@", "").walk();
    assert_eq!(link.stored(), [".gitignore", "node_modules@"]);
    assert!(link.entered.is_empty());
    let world = World::default().file(".gitignore", "node_modules/\n");
    assert_eq!(world.file("node_modules", "").walk().stored(), [".gitignore", "node_modules"]);
}

#[test]
fn some_names_are_always_out() {
    let staging = ".backtrail-stage-0123456789abcdef";
    let walked = World::new(&["vendor/.git", "vendor/a", "w/.GIT/x"])
        .file(&format!("sub/{staging}/x"), "")
        .file(".gitignore", "!.git\n!.GIT/\n!.backtrail-stage-*\n!**/.git/**\n")
        .walk();
    assert_eq!(walked.stored(), [".gitignore", "vendor/a"]);
    let staging = &walked.decisions[&format!("sub/{staging}/")];
    assert_eq!(staging.source, Source::Always(Always::Staging));
    assert_eq!(walked.counted(Class::Always), 3);
}

#[test]
fn cap_069_a_valid_tag_excludes_its_directory() {
    let tag = CACHEDIR_SIGNATURE.as_slice();
    let world = World::new(&["target/debug/x", "target/keep.txt", "wrong/x", "link/CACHEDIR.TAG@"])
        .file("target/CACHEDIR.TAG", tag)
        .file("target/.gitignore", "!*\n")
        .file("wrong/CACHEDIR.TAG", "Signature: no")
        .file("CACHEDIR.TAG", tag)
        .file("venv/pyvenv.cfg", "")
        .file("venv/bin/python@", "");
    let walked = world.walk();
    let stored = ["CACHEDIR.TAG", "link/CACHEDIR.TAG@", "wrong/CACHEDIR.TAG", "wrong/x"];
    assert_eq!(walked.stored(), stored);
    assert_eq!(walked.counted(Class::Marker), 2);
    let markers: Vec<_> = walked.set.markers().iter().map(ToString::to_string).collect();
    assert_eq!(markers, ["target", "venv"]);
    // The recorded markers keep answering for what no walk has seen.
    let below = walked.matcher().decide(&world::path("target/new/y"), EntryKind::File);
    assert_eq!(below.verdict, Verdict::Excluded(Class::Marker));

    let kept = world.file(".gitignore", "!target/keep.txt\n").walk();
    assert!(kept.stored().contains(&"target/keep.txt"));
    assert!(!kept.stored().iter().any(|p| p.starts_with("target/debug")));
}

#[test]
fn cap_070_a_bad_line_is_reported_and_skipped() {
    let rules = "a\nb\nc[d\n*.o\n";
    let walked = World::new(&["a", "x.o", "c[d", "y"]).file("sub/.gitignore", rules).walk();
    assert_eq!(walked.warnings.len(), 1);
    let warning = &walked.warnings[0];
    assert_eq!((warning.file.to_string().as_str(), warning.line), ("sub/.gitignore", 3));
    assert_eq!((warning.text.as_str(), warning.why), ("c[d", "it has an unclosed ["));
    let walked = World::new(&["a", "x.o", "c[d", "y"]).file(".gitignore", rules).walk();
    assert_eq!(walked.stored(), [".gitignore", "c[d", "y"]);
}

#[test]
fn cap_071_odd_lines_are_gits() {
    git::compare_odd_lines();
}

#[test]
fn cap_073_the_list_of_secrets() {
    let secrets = [
        ".env",
        ".env.local",
        ".env-prod",
        ".env_test",
        ".envrc",
        "prod.env",
        "a.pem",
        "a.key",
        "a.p12",
        "a.pfx",
        "a.jks",
        "a.keystore",
        "a.ppk",
        "a.kdbx",
        "id_rsa",
        "id_dsa.bak",
        "id_ecdsa",
        "id_ed25519.pub",
        ".npmrc",
        ".netrc",
        "_netrc",
        ".pypirc",
        ".pgpass",
        ".htpasswd",
        ".git-credentials",
        ".dockercfg",
        "credentials.json",
        "secrets.json",
        ".env.sample.local",
    ];
    let upper: Vec<String> = secrets.iter().map(|s| format!("U/{}", s.to_uppercase())).collect();
    let all: Vec<&str> = secrets.iter().copied().chain(upper.iter().map(String::as_str)).collect();
    let walked = World::new(&all).walk();
    assert_eq!(walked.stored(), [""; 0]);
    for name in all {
        assert_eq!(walked.verdict(name), Verdict::Secret, "{name}");
    }
    let kept = [".env.dist", ".env.example", ".env.sample", ".env.template", "env", "l/.env@"];
    let walked = World::new(&kept).file("d/.env/a", "").walk();
    assert_eq!(walked.stored().len(), kept.len() + 1);
    assert!(walked.entered.contains(&"d/.env".to_owned()));
}

#[test]
fn a_rule_file_without_a_say() {
    let walked = World::new(&["build/x", "a/y", "a/.gitignore@"])
        .file(".gitignore", "build/\n!build/z\n")
        .file("build/.gitignore", "!x\n")
        .file("a/.backtrailignore", "y\n")
        .walk();
    assert!(!walked.stored().contains(&"build/x"));
    assert!(walked.stored().contains(&"a/y"));
    assert_eq!(walked.ignored, ["a/.backtrailignore", "a/.gitignore"]);
}
