//! A tree that nobody here made: the sources of this build's crates as cargo unpacked
//! them. Captured, changed in five hundred places, put back, undone and done again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use backtrail_tests::cli::{Entry, Sandbox, Tree, assert_same_tree};

/// How many files are enough.
const FILES: usize = 3000;

/// The directories of unpacked crates.
fn crates() -> Vec<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.expect("CARGO_HOME or HOME").join("registry/src");
    let list = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        entries.map(|e| e.expect("entry").path()).filter(|p| p.is_dir()).collect()
    };
    let mut out: Vec<PathBuf> = list(&sources).iter().flat_map(|index| list(index)).collect();
    out.sort();
    assert!(!out.is_empty(), "no sources in {}", sources.display());
    out
}

/// Copies a directory; how many files it held.
fn copy(from: &Path, to: &Path) -> usize {
    let mut files = 0;
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            files += copy(&path, &to);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path).expect("link"), &to).expect("link");
        } else {
            fs::copy(&path, &to).expect("copy");
            files += 1;
        }
    }
    files
}

/// The paths that the captures cover; the rules of these crates keep others out. The
/// rule files themselves are left as they are: with one gone, what it kept out is
/// covered, and a restore rightly keeps it and says so.
fn covered(s: &Sandbox) -> Vec<String> {
    let shown = s.ok(["show", "latest", "--files"]);
    let files = shown["files"].as_array().expect("files");
    let files = files.iter().filter(|f| f["kind"] == "file");
    let paths = files.map(|f| f["path"].as_str().expect("a path").to_owned());
    paths.filter(|p| !p.ends_with("ignore")).collect()
}

/// Five hundred changes of every kind.
fn change(s: &Sandbox, files: &[String]) {
    let step = files.len() / 500;
    for (n, path) in files.iter().step_by(step).take(500).enumerate() {
        let at = s.path(path);
        match n % 5 {
            0 => {
                let mut text = fs::read(&at).expect("there");
                text.truncate(text.len() / 2);
                text.extend_from_slice(format!("changed {n}\n").as_bytes());
                fs::write(&at, text).expect("write");
            }
            1 => fs::remove_file(&at).expect("remove"),
            2 => {
                s.write(format!("{path}.added/by/{n}.rs"), format!("added {n}\n"));
            }
            3 => fs::set_permissions(&at, fs::Permissions::from_mode(0o751)).expect("chmod"),
            _ => fs::rename(&at, s.path(format!("{path}.renamed"))).expect("rename"),
        }
    }
}

/// Kinds, to see that the change was one.
fn tally(tree: &Tree) -> BTreeMap<&'static str, usize> {
    let mut out = BTreeMap::new();
    for entry in tree.values() {
        let kind = match entry {
            Entry::File(..) => "files",
            Entry::Dir(_) => "directories",
            Entry::Link(_) => "links",
            Entry::Special => "special",
        };
        *out.entry(kind).or_default() += 1;
    }
    out
}

#[test]
fn a_real_tree_comes_back_heavy() {
    let s = Sandbox::new(env!("CARGO_BIN_EXE_backtrail-under-test"));
    let mut files = 0;
    for dir in crates() {
        files += copy(&dir, &s.path(dir.file_name().expect("a name")));
        if files >= FILES {
            break;
        }
    }
    assert!(files >= FILES, "{files} files are too few: fetch the crates first");
    let then = s.tree();
    let captured = s.run(["capture", "--json"]).json();
    assert!(captured["counts"]["files"].as_u64() > Some(FILES as u64 * 9 / 10), "{captured}");
    let paths = covered(&s);
    change(&s, &paths);
    let now = s.tree();
    assert_ne!(tally(&now), tally(&then));
    let diff = s.ok(["diff"]);
    assert!(diff.to_string().len() > 1000, "{diff}");
    let done = s.ok(["restore", "latest", "--yes"]);
    assert_eq!(done["counts"]["written"], 300, "{}", done["counts"]);
    assert_eq!(done["counts"]["deleted"], 200, "{}", done["counts"]);
    assert_eq!(done["counts"]["mode_changed"], 100, "{}", done["counts"]);
    assert_same_tree(&s.tree(), &then);
    let same = s.ok(["diff"]);
    assert_eq!(same["changes"], serde_json::json!([]), "{same}");
    s.ok(["undo", "--yes"]);
    assert_same_tree(&s.tree(), &now);
    s.ok(["redo", "--yes"]);
    assert_same_tree(&s.tree(), &then);
    s.ok(["verify", "--deep"]);
}
