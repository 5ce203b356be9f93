//! Every file that a document names exists.

use std::path::Path;

use crate::source::{files, read, root};

/// Where a path written in a document begins when it means this repository.
const TREES: &[&str] = &["core/", "backends/", "cli/", "tests/", "benches/", "docs/", ".ci/"];
const ROOT_FILES: &[&str] =
    &["Cargo.toml", "LICENSE", "README.md", "docker-compose.yml", "rustfmt.toml", ".clippy.toml"];

/// The paths a text names: link targets, and words in backticks that begin like ours.
fn named(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for part in text.split("](").skip(1) {
        let target = part.split([')', '#', ' ']).next().unwrap_or_default();
        if !target.is_empty() && !target.contains("://") {
            out.push(format!("link:{target}"));
        }
    }
    for (i, quoted) in text.split('`').enumerate() {
        let word = quoted.split(' ').next().unwrap_or_default();
        let ours = TREES.iter().any(|t| word.starts_with(t)) || ROOT_FILES.contains(&word);
        if i % 2 == 1 && ours && !word.contains(['*', '<', '…', '{', '$']) {
            out.push(word.trim_end_matches(['.', ',', ':']).to_owned());
        }
    }
    out
}

fn exists(document: &str, name: &str) -> bool {
    match name.strip_prefix("link:") {
        Some(link) => {
            let dir = Path::new(document).parent().unwrap_or_else(|| Path::new(""));
            root().join(dir).join(link).exists()
        }
        None => root().join(name).exists(),
    }
}

#[test]
fn every_file_named_in_a_document_exists() {
    let mut documents = files("docs");
    documents.retain(|f| f.ends_with(".md"));
    documents.push("README.md".to_owned());
    let mut missing = Vec::new();
    for document in &documents {
        // fenced blocks hold commands and pictures, not references
        let text: String = read(document).split("```").step_by(2).collect();
        for name in named(&text) {
            if !exists(document, &name) {
                missing.push(format!("{document} names {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "these files do not exist:\n{}", missing.join("\n"));
}

#[test]
fn names_are_found_in_links_and_backticks() {
    let text = "see [f](docs/a.md#x), `core/src/b.rs`, `cargo x`, `tests/*.rs`, [g](https://h)";
    assert_eq!(named(text), ["link:docs/a.md", "core/src/b.rs"]);
}
