//! Every conformance id has a test, or stands in the list of cases not yet built.
//!
//! A test carries its id as the start of its name: `cap_042_…`, `res_001_…`, `run_ev03_…`,
//! `wt_p14_…`, `cld_o1_…`, `cld_s3_7_…`, `k42_…`. A bar (`CAP-P1`, `RUN-B1`, `CLD-CB2`) may be
//! named in the text of a benchmark instead. A K case counts as built when it, or one of the
//! ids that cover it, has a test.
//!
//! `BACKTRAIL_BLESS=1` takes out of `not-built.txt` what has a test by now.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{files, read, root, rust_files, without_comments};

const IDS: &str = "tests/conformance/ids.txt";
const NOT_BUILT: &str = "tests/conformance/not-built.txt";
/// The parts of the work that may still owe a case.
const PARTS: &[&str] = &["engine", "runs", "checkpoint", "worktrees", "network", "fleet"];

/// The lines of a list: first word → the others. Fails on a doubled first word.
fn list(path: &str) -> BTreeMap<String, Vec<String>> {
    let mut out = BTreeMap::new();
    for line in read(path).lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = line.split(' ').map(str::to_owned);
        let id = words.next().expect("a line has a word");
        assert!(out.insert(id.clone(), words.collect()).is_none(), "{path}: {id} stands twice");
    }
    out
}

/// The name that tests of an id begin with: `CAP-042` → `cap_042`, `K07` → `k07`.
fn stem(id: &str) -> String {
    id.to_ascii_lowercase().replace('-', "_")
}

/// The stem a function name claims, when it begins like a test of some id.
fn claimed(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('_').collect();
    let numbered = |s: &str, letters: usize| {
        let digits = s.trim_start_matches(|c: char| c.is_ascii_lowercase());
        s.len() - digits.len() <= letters
            && !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
    };
    match parts[..] {
        ["cld", "s3", n, ..] if numbered(n, 0) => Some(format!("cld_s3_{n}")),
        ["cap" | "res" | "run" | "chk" | "wt" | "cld", n, ..] if numbered(n, 2) => {
            Some(format!("{}_{n}", parts[0]))
        }
        [k, ..] if k.len() == 3 && k.starts_with('k') && numbered(k, 1) => Some(k.to_owned()),
        _ => None,
    }
}

/// Stem → the places of the functions that claim it.
fn tests() -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files(&["core", "backends", "cli", "tests", "benches"]) {
        let text = without_comments(&read(&file));
        for (at, _) in text.match_indices("fn ") {
            let rest = &text[at + 3..];
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(0);
            if let Some(stem) = claimed(&rest[..end]) {
                out.entry(stem).or_default().push(format!("{file}: {}", &rest[..end]));
            }
        }
    }
    out
}

fn is_bar(id: &str) -> bool {
    ["CAP-P", "RUN-B", "CLD-CB"].iter().any(|p| {
        id.strip_prefix(p).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Bars named in the text of a benchmark.
fn benchmarked(ids: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let code = files("benches").into_iter().filter(|f| !f.contains("/results/"));
    let text: String = code.map(|f| read(&f)).collect();
    ids.keys().filter(|id| is_bar(id) && text.contains(id.as_str())).cloned().collect()
}

/// The ids that have a test.
fn built(ids: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let tests = tests();
    let mut built = benchmarked(ids);
    built.extend(ids.keys().filter(|id| tests.contains_key(&stem(id))).cloned());
    let covered: Vec<String> = ids
        .iter()
        .filter(|(id, rest)| id.starts_with('K') && rest[1..].iter().any(|c| built.contains(c)))
        .map(|(id, _)| id.clone())
        .collect();
    built.extend(covered);
    built
}

#[test]
fn every_id_has_a_test_or_is_listed_as_not_built() {
    let (ids, mut owed) = (list(IDS), list(NOT_BUILT));
    let built = built(&ids);
    if std::env::var_os("BACKTRAIL_BLESS").is_some() {
        let text = read(NOT_BUILT);
        let keep = |l: &&str| !built.contains(l.split(' ').next().unwrap_or_default());
        let text: String = text.lines().filter(keep).flat_map(|l| [l, "\n"]).collect();
        std::fs::write(root().join(NOT_BUILT), text).expect("write the list");
        owed = list(NOT_BUILT);
    }
    let lines = |what: Vec<&String>| what.iter().map(|s| format!("  {s}\n")).collect::<String>();
    let both = lines(owed.keys().filter(|id| built.contains(*id)).collect());
    let unknown = lines(owed.keys().filter(|id| !ids.contains_key(*id)).collect());
    let neither =
        lines(ids.keys().filter(|id| !built.contains(*id) && !owed.contains_key(*id)).collect());
    assert!(
        both.is_empty() && unknown.is_empty() && neither.is_empty(),
        "{NOT_BUILT} does not agree with the tests (BACKTRAIL_BLESS=1 removes lines):\n\
         remove, they have a test:\n{both}remove, no list has them:\n{unknown}\
         add with the part that owes them ({PARTS:?}), or write their test:\n{neither}"
    );
}

#[test]
fn a_test_named_after_an_id_names_one_that_exists() {
    let stems: BTreeSet<String> = list(IDS).keys().map(|id| stem(id)).collect();
    let wrong: Vec<String> =
        tests().into_iter().filter(|(s, _)| !stems.contains(s)).flat_map(|(_, at)| at).collect();
    assert!(wrong.is_empty(), "no id of {IDS} is meant by:\n{}", wrong.join("\n"));
}

#[test]
fn the_lists_are_well_formed() {
    let ids = list(IDS);
    for (id, rest) in &ids {
        let k_case = id.len() == 3 && id.starts_with('K');
        let covers = &rest[1..];
        assert!(rest[0].ends_with(".md"), "{IDS}: {id} names no file");
        assert_eq!(k_case, !covers.is_empty(), "{IDS}: {id}: K cases name the ids that cover them");
        assert!(covers.iter().all(|c| ids.contains_key(c)), "{IDS}: {id} names an unknown id");
        assert_eq!(
            claimed(&format!("{}_x", stem(id))),
            Some(stem(id)),
            "{id}: no test can name it"
        );
    }
    assert!((1..=88).all(|n| ids.contains_key(&format!("K{n:02}"))), "{IDS}: K01 to K88");
    for (id, rest) in list(NOT_BUILT) {
        let known = rest.len() == 1 && PARTS.contains(&rest[0].as_str());
        assert!(known, "{NOT_BUILT}: {id} must name one part of {PARTS:?}");
    }
}
