//! Core is listed in flow order, and a module uses only modules above it.

use crate::source::{code, read, root, rust_files};

/// The flow order of core. A row holds modules of one layer, which may use each other;
/// a new module of core gets its place here.
const LAYERS: &[&[&str]] = &[
    &["error"],
    &["ids"],
    &["path"],
    &["clock"],
    &["tasks"],
    &["fsx"],
    &["store"],
    // one layer: content is read by the references that trees and snapshots hold
    &["object", "snapshot"],
    &["damage"],
    &["workspace"],
    &["observe"],
    &["diff"],
    &["capture"],
    &["plan"],
    &["restore"],
    &["scope"],
    &["reach", "prune", "verify", "doctor", "size"],
    &["redact"],
    &["process"],
    &["run"],
    &["workflow"],
    // puts a run back: its files by restore, its record by run, its nodes by workflow
    &["rewind"],
    &["copy"],
    &["git", "worktree"],
    &["workspace_checkpoint"],
    &["queue", "runner"],
];

/// Uses that look upwards on purpose: (module, what it may use, why).
const ALLOWED: &[(&str, &str, &str)] = &[];

/// Crates that must never be reachable from core's manifest.
const DRIVERS: &[&str] =
    &["clap", "mongodb", "object_store", "async-nats", "reqwest", "hyper", "rustls", "indicatif"];

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// `core/src/store/mod.rs` → (`store`, 1); `core/src/store/key.rs` → (`store`, 2).
fn place(file: &str) -> Option<(String, usize)> {
    let rel = file.strip_prefix("core/src/")?.strip_suffix(".rs")?;
    let mut parts: Vec<&str> = rel.split('/').collect();
    if parts.last() == Some(&"mod") {
        parts.pop();
    }
    (parts != ["lib"]).then(|| (parts[0].to_owned(), parts.len()))
}

fn word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// The first names after a path root: `a` of `a::b`, `a` and `c` of `{a::b, c}`.
fn heads(after: &str) -> Vec<String> {
    let Some(group) = after.strip_prefix('{') else { return vec![word(after).to_owned()] };
    let mut names = Vec::new();
    let (mut depth, mut start) = (1, 0);
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            names.push(word(&group[start..i]).to_owned());
            start = i + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names.retain(|n| !n.is_empty());
    names
}

/// Top-level modules that a piece of core's code names, by `crate::` or by enough `super::`.
fn uses(code: &str, depth: usize) -> Vec<String> {
    let up = "super::".repeat(depth);
    let mut out = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let boundary = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        if boundary {
            out.extend(heads(&code[at + "crate::".len()..]));
        }
    }
    for (at, _) in code.match_indices(&up) {
        let after = &code[at + up.len()..];
        if !code[..at].ends_with(':') && !after.starts_with("super::") {
            out.extend(heads(after));
        }
    }
    out
}

#[test]
fn a_module_of_core_uses_only_modules_above_it() {
    let mut wrong = Vec::new();
    for file in rust_files(&["core/src"]) {
        let Some((module, depth)) = place(&file) else { continue };
        if file.ends_with("/tests.rs") || file.contains("/tests/") {
            continue;
        }
        let Some(own) = rank(&module) else {
            wrong.push(format!("{file}: module `{module}` has no place in LAYERS"));
            continue;
        };
        for used in uses(&code(&read(&file)), depth) {
            let excused = ALLOWED.iter().any(|(m, u, _)| *m == module && *u == used);
            match rank(&used) {
                Some(r) if r > own && !excused => {
                    wrong.push(format!("{file}: `{module}` uses `{used}`, which lies below it"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn lib_rs_of_core_lists_its_modules_in_flow_order() {
    let text = code(&read("core/src/lib.rs"));
    let listed: Vec<&str> = text
        .lines()
        .filter_map(|l| l.trim().trim_start_matches("pub ").strip_prefix("mod "))
        .map(word)
        .collect();
    let ranks: Vec<_> = listed
        .iter()
        .map(|m| rank(m).unwrap_or_else(|| panic!("`{m}` is not in LAYERS")))
        .collect();
    assert!(ranks.is_sorted(), "core/src/lib.rs lists {listed:?}; the order is that of LAYERS");
}

#[test]
fn core_depends_on_no_driver_and_no_command_line() {
    let manifest = read("core/Cargo.toml");
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default().trim_matches('"');
        let ships = section.contains("dependencies") && !section.contains("dev-");
        let driver = ships && DRIVERS.contains(&name);
        assert!(
            !driver,
            "core/Cargo.toml: {section} names {line:?}; drivers belong into backends, clap into cli"
        );
    }
}

#[test]
fn only_fsx_of_core_names_the_file_system() {
    let mut wrong = Vec::new();
    for file in rust_files(&["core/src"]) {
        if file.ends_with("/tests.rs") {
            continue; // tests look at real directories from outside
        }
        let fsx = place(&file).is_some_and(|(module, _)| module == "fsx");
        // the type of an open file may pass through; fsx opened it
        let mut text = code(&read(&file)).replace("std::fs::File", "");
        if place(&file).is_some_and(|(module, _)| module == "process") {
            text = text.replace("std::process", ""); // the one that starts commands
        }
        for banned in ["std::fs", "tokio::fs", "rustix::fs", "std::env", "std::process"] {
            if !fsx && text.contains(banned) {
                wrong.push(format!("{file}: names {banned}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(root().join("core/src/fsx").is_dir());
}

#[test]
fn uses_are_found_in_every_spelling() {
    let found = uses("use crate::{error::{Error, Kind}, ids};\nlet x = crate::plan::make();", 1);
    assert_eq!(found, ["error", "ids", "plan"]);
    assert_eq!(uses("use super::super::diff::x; use super::key;", 2), ["diff"]);
    assert_eq!(place("core/src/store/mod.rs"), Some(("store".to_owned(), 1)));
    assert_eq!(place("core/src/store/key.rs"), Some(("store".to_owned(), 2)));
    assert_eq!(place("core/src/lib.rs"), None);
}
