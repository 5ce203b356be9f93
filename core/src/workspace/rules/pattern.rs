//! One parsed line: what it matches, seen name by name.
//!
//! A pattern with a slash is a small automaton over the names of a path, so that a
//! walk carries a few bits from directory to directory instead of matching whole
//! paths again, and can ask "could this match something further down".

use super::wildmatch::{check, class_end, is_special, wildmatch};

/// More segments than a state word has bits for are folded into one [`Segment::Rest`].
const MAX_SEGMENTS: usize = 60;

/// One line of a rule file that can match something.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Line number in its file, from 1.
    pub(super) line: u32,
    /// The line begins with `!`.
    pub(super) negated: bool,
    /// The line ends in `/`.
    pub(super) dir_only: bool,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// No slash: compared with the last name, at any depth.
    Name(NameMatcher),
    /// A slash at the start or inside: compared from the file's directory down.
    Path(PathPattern),
}

/// A matcher of single names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameMatcher {
    /// A bare `*` or `**`: matches every name, and names none.
    Any,
    Literal(Box<[u8]>),
    /// `*` and then literal bytes.
    Suffix(Box<[u8]>),
    /// Literal bytes and then `*`.
    Prefix(Box<[u8]>),
    Glob(Box<[u8]>),
}

#[derive(Debug)]
pub(super) enum Segment {
    /// `*` alone: one name, any.
    Star,
    /// `**` alone: any number of names.
    StarStar,
    Text(NameMatcher),
    /// What git does not compare name by name (`a**` at the end of the literal
    /// start, `\/`, a `/` inside a class): any number of names as far as states go;
    /// the answer comes from git's algorithm on the whole path.
    Rest,
}

/// A pattern anchored to the directory of its file.
///
/// A state is a set of bits: bit `i` says that the first `i` segments have matched
/// the names so far; bit `len` that the whole pattern matched just now.
#[derive(Debug)]
pub(super) struct PathPattern {
    segments: Box<[Segment]>,
    /// The pattern without its leading slash, for [`Segment::Rest`].
    raw: Box<[u8]>,
}

impl Pattern {
    /// Parses the text of a line that is not blank and no comment. `Ok(None)` for
    /// one that git accepts and that matches nothing, such as `/`.
    pub(super) fn parse(line: u32, text: &[u8]) -> Result<Option<Self>, &'static str> {
        // git hands lines to C string functions.
        let text = text.split(|b| *b == 0).next().unwrap_or(b"");
        let text = trim_trailing_spaces(text);
        let (negated, text) = match text.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (dir_only, body) = match text.strip_suffix(b"/") {
            Some(body) => (true, body),
            None => (false, text),
        };
        check(body)?;
        if body.is_empty() {
            return Ok(None);
        }
        let shape = if body.contains(&b'/') {
            let raw = body.strip_prefix(b"/").unwrap_or(body);
            if raw.is_empty() {
                return Ok(None);
            }
            Shape::Path(PathPattern::new(raw))
        } else {
            Shape::Name(NameMatcher::new(body))
        };
        Ok(Some(Self { line, negated, dir_only, shape }))
    }
}

/// Drops trailing spaces (not tabs) unless escaped, as git does.
fn trim_trailing_spaces(text: &[u8]) -> &[u8] {
    let (mut i, mut end) = (0, 0);
    while i < text.len() {
        match text[i] {
            b' ' => i += 1,
            b'\\' => {
                i += 2;
                end = i.min(text.len());
            }
            _ => {
                i += 1;
                end = i;
            }
        }
    }
    &text[..end]
}

/// The bytes of a pattern without wildcards, `None` if it has some.
fn unescape(pattern: &[u8]) -> Option<Box<[u8]>> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter();
    while let Some(b) = bytes.next() {
        match b {
            b'\\' => out.push(*bytes.next()?),
            b'*' | b'?' | b'[' => return None,
            b => out.push(*b),
        }
    }
    Some(out.into())
}

impl NameMatcher {
    pub(super) fn new(pattern: &[u8]) -> Self {
        let plain = |bytes: &[u8]| !bytes.iter().any(|b| is_special(*b));
        if !pattern.is_empty() && pattern.iter().all(|b| *b == b'*') {
            return Self::Any;
        }
        if let Some(literal) = unescape(pattern) {
            return Self::Literal(literal);
        }
        match pattern {
            [b'*', rest @ ..] if plain(rest) => Self::Suffix(rest.into()),
            [rest @ .., b'*'] if plain(rest) => Self::Prefix(rest.into()),
            _ => Self::Glob(pattern.into()),
        }
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(bytes) => name == &**bytes,
            Self::Suffix(bytes) => name.ends_with(bytes),
            Self::Prefix(bytes) => name.starts_with(bytes),
            Self::Glob(pattern) => wildmatch(pattern, name),
        }
    }
}

impl Segment {
    fn new(pattern: &[u8]) -> Self {
        match pattern {
            b"*" => Self::Star,
            [b'*', b'*', rest @ ..] if rest.iter().all(|b| *b == b'*') => Self::StarStar,
            _ => Self::Text(NameMatcher::new(pattern)),
        }
    }
}

impl PathPattern {
    fn new(raw: &[u8]) -> Self {
        let odd = odd_from(raw).unwrap_or(raw.len() + 1);
        let mut segments = Vec::new();
        let mut start = 0;
        for part in raw.split(|b| *b == b'/') {
            let end = start + part.len();
            if odd <= end || segments.len() == MAX_SEGMENTS {
                segments.push(Segment::Rest);
                break;
            }
            segments.push(Segment::new(part));
            start = end + 1;
        }
        Self { segments: segments.into(), raw: raw.into() }
    }

    fn accept_bit(&self) -> u64 {
        1 << self.segments.len()
    }

    /// Adds the states reached by a `**` that stands for no name.
    fn close(&self, mut state: u64) -> u64 {
        for (i, segment) in self.segments.iter().enumerate() {
            // A trailing `**` needs at least one name.
            let last = i + 1 == self.segments.len();
            if state & (1 << i) != 0 && matches!(segment, Segment::StarStar) && !last {
                state |= 1 << (i + 1);
            }
        }
        state
    }

    /// The state in the directory that holds the file.
    pub(super) fn start(&self) -> u64 {
        self.close(1)
    }

    /// The state after one more name.
    pub(super) fn step(&self, state: u64, name: &[u8]) -> u64 {
        let mut out = 0;
        for (i, segment) in self.segments.iter().enumerate() {
            if state & (1 << i) == 0 {
                continue;
            }
            out |= match segment {
                Segment::Star => 1 << (i + 1),
                Segment::Text(m) if m.matches(name) => 1 << (i + 1),
                Segment::Text(_) => 0,
                Segment::StarStar if i + 1 < self.segments.len() => 1 << i,
                Segment::StarStar | Segment::Rest => 1 << i | 1 << (i + 1),
            };
        }
        self.close(out)
    }

    /// [`Self::step`], but only through segments that name `name`: neither a bare
    /// `*` nor a `**`.
    pub(super) fn step_named(&self, state: u64, name: &[u8]) -> u64 {
        let mut out = 0;
        for (i, segment) in self.segments.iter().enumerate() {
            if state & (1 << i) != 0
                && let Segment::Text(m) = segment
                && m.matches(name)
            {
                out |= 1 << (i + 1);
            }
        }
        self.close(out)
    }

    /// True if the last step matched the whole pattern (over-wide for a `Rest`).
    pub(super) fn accepted(&self, state: u64) -> bool {
        state & self.accept_bit() != 0
    }

    /// True if something further down could still match.
    pub(super) fn alive(&self, state: u64) -> bool {
        state & (self.accept_bit() - 1) != 0
    }

    /// True if `name`, directly below a directory in `state`, matches the pattern.
    /// `path` gives the path of `name` from the file's directory, when asked.
    pub(super) fn matches_child(
        &self,
        state: u64,
        name: &[u8],
        path: impl FnOnce() -> Vec<u8>,
    ) -> bool {
        let last = self.segments.len() - 1;
        if state & (1 << last) == 0 {
            return false;
        }
        match &self.segments[last] {
            Segment::Star | Segment::StarStar => true,
            Segment::Text(m) => m.matches(name),
            Segment::Rest => self.matches_whole(&path()),
        }
    }

    /// git's `match_pathname`: the literal start first, then wildmatch on what is
    /// left, which so begins a pattern of its own (`a**` spans slashes).
    fn matches_whole(&self, path: &[u8]) -> bool {
        let literal = literal_len(&self.raw);
        let Some(rest) = path.strip_prefix(&self.raw[..literal]) else {
            return false;
        };
        wildmatch(&self.raw[literal..], rest)
    }
}

fn literal_len(pattern: &[u8]) -> usize {
    pattern.iter().position(|b| is_special(*b)).unwrap_or(pattern.len())
}

/// The index of the first byte from which a pattern cannot be cut at its slashes.
fn odd_from(raw: &[u8]) -> Option<usize> {
    let literal = literal_len(raw);
    let stars = raw[literal..].iter().take_while(|b| **b == b'*').count();
    if stars >= 2 && literal > 0 && raw[literal - 1] != b'/' {
        let after = literal + stars;
        if after == raw.len() || raw[after] == b'/' || raw[after..].starts_with(b"\\/") {
            return Some(literal);
        }
    }
    let mut p = literal;
    while p < raw.len() {
        match raw[p] {
            b'\\' if raw.get(p + 1) == Some(&b'/') => return Some(p),
            b'\\' => p += 1,
            b'[' => {
                let end = class_end(raw, p);
                if raw[p..end].contains(&b'/') {
                    return Some(p);
                }
                p = end;
            }
            _ => {}
        }
        p += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(line: &str, path: &str) -> bool {
        let Ok(Some(Pattern { shape: Shape::Path(p), .. })) = Pattern::parse(1, line.as_bytes())
        else {
            panic!("{line} is no path pattern");
        };
        let names: Vec<&str> = path.split('/').collect();
        let (last, dirs) = names.split_last().expect("a path has a name");
        let state = dirs.iter().fold(p.start(), |s, name| p.step(s, name.as_bytes()));
        p.matches_child(state, last.as_bytes(), || path.into())
    }

    #[test]
    fn paths_match_name_by_name() {
        for (line, path, want) in [
            ("/a", "a", true),
            ("/a", "b/a", false),
            ("a/b", "a/b", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**", "a", false),
            ("a/**", "a/b/c", true),
            ("**/a/b", "x/a/b", true),
            ("/**", "x/y", true),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/c", false),
            ("/a**/x", "ab/c/x", true),
            ("x/?**", "x/a/b", false),
            ("a//b", "a/b", false),
        ] {
            assert_eq!(matches(line, path), want, "{line} {path}");
        }
    }

    #[test]
    fn trailing_spaces_go_unless_escaped() {
        assert_eq!(trim_trailing_spaces(b"a  "), b"a");
        assert_eq!(trim_trailing_spaces(b"a\\  "), b"a\\ ");
        assert_eq!(trim_trailing_spaces(b" a b\t "), b" a b\t");
        assert_eq!(trim_trailing_spaces(b"   "), b"");
    }
}
