//! Workspace-relative paths: bytes preserved, valid by construction, and one
//! reversible text form for documents, JSON and messages.

use std::borrow::Cow;
use std::fmt;

use crate::error::{Error, Result};

/// The longest name the engine accepts, in bytes.
pub const MAX_NAME: usize = 1024;
/// The deepest path the engine accepts, in segments.
pub const MAX_DEPTH: usize = 4096;

/// A path relative to a workspace root: bytes, `/` between names, no empty, `.`
/// or `..` segment, no NUL. The empty path is the root itself. Ordered by bytes.
///
/// ```
/// use backtrail_core::path::RelPath;
/// let p = RelPath::new(b"src/a.rs").unwrap();
/// assert_eq!(p.text(), "src/a.rs");
/// assert!(RelPath::new(b"../x").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// The workspace root.
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Checks `bytes` and makes a path. Fails with `bad-value`, naming the path.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            for name in bytes.split(|b| *b == b'/') {
                check_name(name).map_err(|why| {
                    Error::invalid(format!("path {} {why}", text(&bytes)))
                        .with_paths([text(&bytes).into_owned()])
                })?;
            }
        }
        Ok(Self(bytes))
    }

    /// Parses the text form of [`text`].
    pub fn parse_text(s: &str) -> Result<Self> {
        Self::new(parse_text(s)?)
    }

    /// The path of `name` below this directory. `name` must have passed [`check_name`].
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(check_name(name).is_ok());
        let mut out = Vec::with_capacity(self.0.len() + 1 + name.len());
        if !self.0.is_empty() {
            out.extend_from_slice(&self.0);
            out.push(b'/');
        }
        out.extend_from_slice(name);
        Self(out)
    }

    /// The directory that holds this path, `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let cut = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..cut].to_vec()))
    }

    /// The last name, empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or(b"")
    }

    /// The names from the top down.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|s| !s.is_empty())
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for the workspace root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this path is `dir` or lies below it.
    pub fn starts_with(&self, dir: &Self) -> bool {
        dir.0.is_empty()
            || (self.0.starts_with(&dir.0)
                && (self.0.len() == dir.0.len() || self.0[dir.0.len()] == b'/'))
    }

    /// The reversible text form, see [`text`].
    pub fn text(&self) -> Cow<'_, str> {
        text(&self.0)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

impl serde::Serialize for RelPath {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text())
    }
}

impl<'de> serde::Deserialize<'de> for RelPath {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let s = String::deserialize(d)?;
        Self::parse_text(&s).map_err(serde::de::Error::custom)
    }
}

/// Says whether `name` may stand in a path, and if not, why.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("holds an empty name"),
        b"." => Err("holds the name ."),
        b".." => Err("holds the name .."),
        _ if name.len() > MAX_NAME => Err("holds a name longer than 1,024 bytes"),
        _ if name.contains(&b'/') => Err("holds a / inside a name"),
        _ if name.contains(&0) => Err("holds a NUL byte"),
        _ => Ok(()),
    }
}

/// True for a name equal to `.git` in any ASCII case: never captured, never written.
pub fn is_git_name(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// True for a name of the form of restore's staging directory, `.backtrail-stage-<16 hex>`.
pub fn is_staging_name(name: &[u8]) -> bool {
    name.strip_prefix(b".backtrail-stage-".as_slice()).is_some_and(|hex| {
        hex.len() == 16 && hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The reversible text form of path bytes: UTF-8 as it is, other bytes as `\xhh`,
/// a backslash doubled.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(s) = std::str::from_utf8(bytes)
        && !s.contains('\\')
    {
        return Cow::Borrowed(s);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', "\\\\"));
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    Cow::Owned(out)
}

/// Reads [`text`] back. Fails with `bad-value` on a backslash that is neither
/// doubled nor `\xhh`.
pub fn parse_text(s: &str) -> Result<Vec<u8>> {
    let bad = || Error::invalid(format!("path text {s:?} has a stray backslash"));
    let bytes = s.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] != b'\\' {
            out.push(bytes[i]);
            i += 1;
            continue;
        }
        match bytes.get(i + 1) {
            Some(b'\\') => {
                out.push(b'\\');
                i += 2;
            }
            Some(b'x') => {
                let hex = s.get(i + 2..i + 4).ok_or_else(bad)?;
                out.push(u8::from_str_radix(hex, 16).map_err(|_| bad())?);
                i += 4;
            }
            _ => return Err(bad()),
        }
    }
    Ok(out)
}

/// The form for people: [`text`] with control and bidirectional characters
/// escaped, quoted when anything was escaped.
pub fn quoted(bytes: &[u8]) -> String {
    let t = text(bytes);
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{061c}')
    };
    if !t.chars().any(odd) {
        return t.into_owned();
    }
    let mut out = String::from("\"");
    for c in t.chars() {
        if odd(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out.push('"');
    out
}

/// `text` as one word of a POSIX shell, in single quotes.
///
/// ```
/// assert_eq!(backtrail_core::path::shell_quoted("it's"), r"'it'\''s'");
/// ```
pub fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_reversible() {
        for raw in [&b"plain"[..], b"a\\b", b"bad\xff.txt", b"d\xfe/f", "µ/日本".as_bytes()] {
            assert_eq!(parse_text(&text(raw)).expect("own text parses"), raw);
        }
        assert!(parse_text("a\\q").is_err());
    }

    #[test]
    fn hostile_paths_are_refused() {
        for raw in [&b"../x"[..], b"/abs", b"a//b", b".", b"a/..", b"a\0b", b"a/"] {
            assert!(RelPath::new(raw).is_err(), "{raw:?}");
        }
    }
}
