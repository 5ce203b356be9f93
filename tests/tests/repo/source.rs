//! Reading this repository: files, and Rust source without comments and tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("tests/ lies in the root").to_path_buf()
}

/// A file of the repository as text.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every text file below `dir` (relative, `.` for all), sorted; no build output, no git data.
pub(crate) fn files(dir: &str) -> Vec<String> {
    let mut out = Vec::new();
    let top = root();
    collect(&top, &top.join(dir), &mut out);
    out.sort();
    out
}

fn collect(top: &Path, dir: &Path, out: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let entry = entry.expect("readable directory");
        let (name, path) = (entry.file_name(), entry.path());
        let kind = entry.file_type().expect("file type");
        if kind.is_dir() {
            let skip = name == ".git" || name == ".services" || path.join("CACHEDIR.TAG").exists();
            if !skip {
                collect(top, &path, out);
            }
        } else if kind.is_file() {
            let rel = path.strip_prefix(top).expect("below the root");
            out.push(rel.to_str().expect("our names are UTF-8").to_owned());
        }
    }
}

/// Rust files below the given directories.
pub(crate) fn rust_files(dirs: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = dirs.iter().flat_map(|d| files(d)).collect();
    out.retain(|f| f.ends_with(".rs"));
    out
}

/// The code of a Rust file: comments, string contents and `#[cfg(test)]` items blanked.
pub(crate) fn code(text: &str) -> String {
    without_tests(&without_comments(text))
}

/// Blanks comments and the contents of string and character literals.
pub(crate) fn without_comments(text: &str) -> String {
    let b = text.as_bytes();
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        let end = literal_or_comment_end(b, i);
        if end > i {
            out.extend(b[i..end].iter().map(|c| if *c == b'\n' { b'\n' } else { b' ' }));
            i = end;
        } else {
            out.push(b[i]);
            i += 1;
        }
    }
    String::from_utf8(out).expect("blanked whole characters")
}

/// Where the comment or literal that begins at `i` ends, or `i` when none does.
fn literal_or_comment_end(b: &[u8], i: usize) -> usize {
    let rest = &b[i..];
    let after_word = i > 0 && (b[i - 1].is_ascii_alphanumeric() || b[i - 1] == b'_');
    if rest.starts_with(b"//") {
        return i + rest.iter().position(|c| *c == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return i + 2 + find(&rest[2..], b"*/").map_or(rest.len() - 2, |n| n + 2);
    }
    if !after_word && (rest[0] == b'r' || rest.starts_with(b"br")) {
        let start = if rest[0] == b'b' { 2 } else { 1 };
        let hashes = rest[start..].iter().take_while(|c| **c == b'#').count();
        let open = start + hashes;
        if rest.get(open) == Some(&b'"') {
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            let body = &rest[open + 1..];
            return i + open + 1 + find(body, &close).map_or(body.len(), |n| n + close.len());
        }
    }
    match rest[0] {
        b'"' => i + quoted_len(rest, b'"'),
        // 'x' and '\n' are characters; 'a in a type is a lifetime
        b'\'' if rest.get(1) == Some(&b'\\') => i + quoted_len(rest, b'\''),
        b'\'' if rest.get(2) == Some(&b'\'') => i + 3,
        _ => i,
    }
}

fn quoted_len(b: &[u8], quote: u8) -> usize {
    let mut i = 1;
    while i < b.len() {
        match b[i] {
            b'\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    b.len()
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[item_len(rest)..];
    }
    out.push_str(rest);
    out
}

/// The length of the item at the start of `code`: up to its `;` or its closing brace.
fn item_len(code: &str) -> usize {
    let mut depth = 0_usize;
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return i + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return i + 1,
            _ => {}
        }
    }
    code.len()
}

#[test]
fn comments_strings_and_test_items_are_blanked() {
    let text = "use a; // b\n/* c */ let d = \"crate::e\"; #[cfg(test)]\nmod t { fn f() {} }\nfn g<'h>() { 'i'; r#\"j\"#; }";
    let code = code(text);
    for gone in ["b", "c ", "crate::e", "mod t", "f()", "'i'", "j"] {
        assert!(!code.contains(gone), "{gone:?} is still in {code:?}");
    }
    for kept in ["use a;", "let d", "fn g<'h>()"] {
        assert!(code.contains(kept), "{kept:?} is gone from {code:?}");
    }
}
