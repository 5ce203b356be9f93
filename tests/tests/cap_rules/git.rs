//! The same rules and paths given to the real `git check-ignore`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use backtrail_core::path::{RelPath, text};
use backtrail_core::workspace::rules::{EntryKind, Limits, RuleFamily, RuleFile, RuleSet};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// Directories that may hold a nested rule file.
const NESTED: [&str; 3] = ["a", "a/b", "foo"];

/// Rule files by directory, and paths; one with a trailing `/` is made a directory.
type Case = (BTreeMap<&'static str, Vec<u8>>, Vec<Vec<u8>>);

/// A repository of its own, out of reach of any configuration.
struct Repo(tempfile::TempDir);

impl Repo {
    fn new() -> Self {
        // In memory where there is such a place: each case makes dozens of directories.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let repo = Self(dir.expect("a temporary directory"));
        std::fs::create_dir(repo.work()).expect("a directory");
        let status = repo.git().args(["init", "-q"]).status().expect("git runs");
        assert!(status.success());
        repo
    }

    fn work(&self) -> std::path::PathBuf {
        self.0.path().join("w")
    }

    fn git(&self) -> Command {
        let mut git = Command::new("git");
        git.env_clear().env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", self.0.path());
        git.current_dir(self.work());
        git.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        git
    }

    /// Makes the work tree hold just the rule files and directories of a case.
    /// git believes only the disk about what is a directory.
    fn write(&self, (files, paths): &Case) -> BTreeSet<RelPath> {
        for entry in std::fs::read_dir(self.work()).expect("a directory") {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("a type").is_dir() {
                true if entry.file_name() == ".git" => {}
                true => std::fs::remove_dir_all(entry.path()).expect("removed"),
                false => std::fs::remove_file(entry.path()).expect("removed"),
            }
        }
        let asked = paths.iter().filter_map(|p| p.strip_suffix(b"/"));
        let nested = files.keys().map(|dir| dir.as_bytes());
        let mut dirs = BTreeSet::new();
        for dir in asked.chain(nested) {
            std::fs::create_dir_all(self.work().join(OsStr::from_bytes(dir))).expect("a directory");
            let dir = RelPath::new(dir).expect("a valid path");
            dirs.extend(std::iter::successors(Some(dir), RelPath::parent));
        }
        for (dir, bytes) in files {
            let at = self.work().join(dir).join(".gitignore");
            std::fs::write(at, bytes).expect("a rule file");
        }
        dirs
    }

    /// Whether git ignores each path.
    fn ignored(&self, paths: &[Vec<u8>]) -> Vec<bool> {
        let mut child = self
            .git()
            .args(["check-ignore", "--stdin", "-z", "-v", "-n", "--no-index"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        let name = |p: &Vec<u8>| [p.strip_suffix(b"/").unwrap_or(p), b"\0"].concat();
        let input: Vec<u8> = paths.iter().flat_map(name).collect();
        let writer = std::thread::spawn(move || stdin.write_all(&input).expect("git reads"));
        let out = child.wait_with_output().expect("git ends");
        writer.join().expect("all was written");
        assert!(out.status.code().is_some_and(|c| c <= 1), "git failed: {:?}", out.status);
        let fields: Vec<&[u8]> = out.stdout.split(|b| *b == 0).collect();
        // Source, line, pattern, path; an empty source when nothing matches.
        let rows: Vec<_> = fields.chunks_exact(4).collect();
        assert_eq!(rows.len(), paths.len());
        rows.iter().map(|row| !row[0].is_empty() && !row[2].starts_with(b"!")).collect()
    }
}

/// Our answer, or `None` where it may differ: at and below what a later negation
/// re-includes below an excluded directory.
fn ours(set: &RuleSet, path: &[u8], dirs: &BTreeSet<RelPath>) -> Option<bool> {
    let path = RelPath::new(path.strip_suffix(b"/").unwrap_or(path)).expect("a valid path");
    let kind = if dirs.contains(&path) { EntryKind::Dir } else { EntryKind::File };
    let matcher = set.matcher();
    let mut at = RelPath::root();
    let mut excluded = false;
    for name in path.segments() {
        at = at.join(name);
        let kind = if at == path { kind } else { EntryKind::Dir };
        let stored = matcher.decide(&at, kind).is_stored();
        if excluded && stored {
            return None;
        }
        excluded |= !stored;
    }
    Some(excluded)
}

fn rule_set(files: &BTreeMap<&str, Vec<u8>>) -> RuleSet {
    let parse = |(dir, bytes): (&&str, &Vec<u8>)| {
        let dir = RelPath::parse_text(dir).expect("a valid path");
        Arc::new(RuleFile::parse(&dir, ".gitignore", bytes).0)
    };
    let set = RuleSet::new(RuleFamily::Git, Limits::default(), false);
    set.with_found(files.iter().map(parse).collect(), Vec::new())
}

fn compare(repo: &Repo, case: &Case) -> Result<usize, String> {
    let (files, paths) = case;
    let dirs = repo.write(case);
    let set = rule_set(files);
    let mut compared = 0;
    for (path, git) in paths.iter().zip(repo.ignored(paths)) {
        let Some(ours) = ours(&set, path, &dirs) else { continue };
        compared += 1;
        if ours != git {
            let mut story = format!("{}: git ignores {git}, we exclude {ours}\n", text(path));
            for (dir, bytes) in files {
                story += &format!("--- {dir}/.gitignore\n{}\n", text(bytes));
            }
            return Err(story);
        }
    }
    Ok(compared)
}

fn pick(from: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(from).prop_map(|s| s.as_bytes().to_vec())
}

/// Segments that mean something.
#[rustfmt::skip]
const WHOLE: &[&str] = &[
    "a", "b", "c", "foo", "*", "**", "*.log", "foo*", "***", "a**", "**b", "?", "[ab]",
    "[!a]", "[a-c]*", "\\a", "\\*", "[[:digit:]]", "[[:alpha:]]?", "{a,b}", "a.log", "b*o",
    "f**o", "a\\ ", "[/]", "x[a/]", "#x", "\\#x", "", " a",
];
/// Pieces that may make anything.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "a", "b", "c", "*", "**", "?", "[", "]", "[ab]", "[^a]", "!", "\\", "/", "-", ":", "[:",
    ":]", "[[:punct:]]", "[[:space:]]", "[a-", "\\]", "#", " ", ".", "o", "\u{e9}", "\t", "^",
];

fn segment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => pick(WHOLE),
        1 => prop::collection::vec(pick(PIECES), 1..6).prop_map(|v| v.concat()),
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(segment(), 1..4).prop_map(|v| v.join(&b'/'));
    let ends: &[&str] = &["", "", "", "", "/", "/", " ", "/ ", "\r", "\t", "\\", "//"];
    let starts: &[&str] = &["", "", "", "", "!", "!", "/", "!/", "\\!", "#", " ", "**/"];
    (pick(starts), body, pick(ends)).prop_map(|(start, body, end)| [start, body, end].concat())
}

fn rule_file() -> impl Strategy<Value = Vec<u8>> {
    let ends: &[&str] = &["", "\n", "\r\n", "\r"];
    (prop::collection::vec(line(), 1..6), prop::sample::select(vec!["\n", "\r\n"]), pick(ends))
        .prop_map(|(lines, eol, end)| [lines.join(eol.as_bytes()), end].concat())
}

fn asked() -> impl Strategy<Value = Vec<u8>> {
    const NAMES: &[&str] = &[
        "a", "b", "c", "ab", "foo", "fo", "bo", "a.log", "b.log", "foo.log", "7", "*", "{a,b}",
        "[", "]", "[a", "a ", " a", "#x", "!a", "\\", "\\a", "-", "^", "\u{e9}", "a\t", "x",
    ];
    let names = prop::collection::vec(pick(NAMES), 1..5).prop_map(|v| v.join(&b'/'));
    (names, any::<bool>()).prop_map(|(mut path, dir)| {
        if dir {
            path.push(b'/');
        }
        path
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let nested = prop::collection::btree_map(prop::sample::select(&NESTED[..]), rule_file(), 0..3);
    (rule_file(), nested, prop::collection::vec(asked(), 40)).prop_map(
        |(root, mut files, paths)| {
            files.insert("", root);
            (files, paths)
        },
    )
}

/// Runs random rules and paths. `PROPTEST_RNG_SEED` replays, `PROPTEST_CASES` says how
/// many. `check` gives how much it could compare, or the story of a difference.
pub(crate) fn random<S: Strategy>(cases: S, check: impl Fn(S::Value) -> Result<usize, String>) {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(0),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let compared = std::cell::Cell::new(0);
    let result = TestRunner::new(config).run(&cases, |case| {
        let n = check(case).map_err(TestCaseError::fail)?;
        compared.set(compared.get() + n);
        Ok(())
    });
    if let Err(e) = result {
        panic!("replay with PROPTEST_RNG_SEED={seed}\n{e}");
    }
    assert!(compared.get() > 0, "nothing was compared");
}

/// CAP-062: our answers are git's.
pub(crate) fn compare_random_rules() {
    let repo = Repo::new();
    random(cases(), |case| compare(&repo, &case));
}

/// CAP-064: nothing is stored below a directory that would not be entered, also where
/// secrets and default directories lie on the way.
pub(crate) fn random_pruning() {
    random(cases(), |(files, paths)| {
        let named = |(dir, bytes): (_, Vec<u8>)| (dir, with_obstacles(&bytes));
        let files: BTreeMap<_, _> = files.into_iter().map(named).collect();
        let set = rule_set(&files);
        let matcher = set.matcher();
        let mut checked = 0;
        for path in &paths {
            let path = with_obstacles(path.strip_suffix(b"/").unwrap_or(path));
            let path = RelPath::new(path).expect("a valid path");
            let above = std::iter::successors(path.parent(), RelPath::parent);
            let closed = |d: &RelPath| !matcher.decide(d, EntryKind::Dir).descend;
            if let Some(dir) = above.into_iter().find(closed) {
                checked += 1;
                if matcher.decide(&path, EntryKind::File).is_stored() {
                    let rules: Vec<_> = files.iter().map(|(d, b)| (d, text(b))).collect();
                    return Err(format!("{path} is stored, {dir} is not entered: {rules:?}"));
                }
            }
        }
        Ok(checked)
    });
}

/// Renames two of the random names to a default directory and a secret.
fn with_obstacles(bytes: &[u8]) -> Vec<u8> {
    let text = bytes.iter().map(|b| char::from(*b)).collect::<String>();
    let text = text.replace("foo", "node_modules").replace("a.log", ".env");
    text.chars().map(|c| c as u8).collect()
}

/// CAP-071: each line with names that it should and should not match.
pub(crate) fn compare_odd_lines() {
    let repo = Repo::new();
    let names: &[&str] = &[
        "a",
        "a ",
        "#x",
        "!x",
        "x",
        "7",
        "p/a/b",
        "a/b",
        "a/x/b",
        "a/x/y/b",
        "q/a/",
        "{a,b}",
        "b",
        "[a",
        "\\#x",
        "a\r",
        "\u{feff}a",
        "d.log",
        "d.log/",
        "ab",
        "sub/a",
        "sub/7",
        "c ",
        "c",
    ];
    let paths: Vec<Vec<u8>> = names.iter().map(|n| n.as_bytes().to_vec()).collect();
    for rules in [
        &b"a\r\nb\r\n"[..],
        b"\xef\xbb\xbfa\n",
        b"\xef\xbb\xbf\xef\xbb\xbfa\n",
        b"\\#x\n",
        b"#x\n",
        b"\\!x\n",
        b"a\\ \n",
        b"a  \nc\\  \n",
        b"[[:digit:]]\n",
        b"a/**/b\n",
        b"{a,b}\n",
        b"\\[a\n",
        b"[a\n",
        b"[[]a\n",
        b"*.log/\n",
        b"a\r",
        b"a\0b\n",
        b"a\n!a\n",
        b"/\n//\n\n!\n",
    ] {
        let files = BTreeMap::from([("", rules.to_vec())]);
        if let Err(story) = compare(&repo, &(files, paths.clone())) {
            panic!("{story}");
        }
    }
}
