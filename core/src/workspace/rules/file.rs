//! A rule file: its lines as written, and the patterns they hold, indexed so that
//! most names are judged by one or two hash lookups.

use std::collections::HashMap;

use super::EntryKind;
use super::pattern::{NameMatcher, Pattern, Shape};
use crate::path::{RelPath, text};

/// The largest rule file that is read, in bytes.
pub const MAX_RULE_FILE: usize = 1024 * 1024;

/// Which files hold the project's rules. One family only is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleFamily {
    /// `.backtrailignore`, in force when the root holds a regular file of that name.
    Backtrail,
    /// `.gitignore`, otherwise.
    Git,
}

/// What a directory entry means to the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleFileUse {
    /// A rule file of the family in force: read it (if its directory is included).
    Rules,
    /// Looks like a rule file and has no say, which deserves a warning
    /// (`rule-file-ignored`) with this reason.
    Ignored(&'static str),
    /// No rule file.
    Ordinary,
}

impl RuleFamily {
    /// The family in force, by whether the root holds a **regular** file
    /// `.backtrailignore` (an empty one counts, a link does not).
    pub fn choose(root_has_backtrailignore: bool) -> Self {
        if root_has_backtrailignore { Self::Backtrail } else { Self::Git }
    }

    /// The name of this family's files.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Backtrail => ".backtrailignore",
            Self::Git => ".gitignore",
        }
    }

    /// The name in a rule set object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backtrail => "backtrail",
            Self::Git => "git",
        }
    }

    /// Says whether the entry `name` of any directory is a rule file under this family.
    pub fn classify(self, name: &[u8], kind: EntryKind) -> RuleFileUse {
        if !name.ends_with(b"ignore") {
            return RuleFileUse::Ordinary;
        }
        let own = name == self.file_name().as_bytes();
        match (own, kind) {
            (true, EntryKind::File) => RuleFileUse::Rules,
            (true, _) => RuleFileUse::Ignored("it is not a regular file"),
            // The git family is in force, so the root holds no regular one.
            (false, EntryKind::File) if name == b".backtrailignore" => {
                RuleFileUse::Ignored("the workspace root holds no .backtrailignore")
            }
            (false, _) if name == b".backtrailignore" => {
                RuleFileUse::Ignored("it is not a regular file")
            }
            _ => RuleFileUse::Ordinary,
        }
    }
}

/// A line that was skipped because it cannot be parsed. Code `rule-line`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LineWarning {
    /// The rule file.
    pub file: RelPath,
    /// The line, from 1.
    pub line: u32,
    /// The line as written, in path text.
    pub text: String,
    /// What is wrong: completes "the line is skipped: …".
    pub why: &'static str,
}

/// A parsed rule file and the lines it was parsed from.
#[derive(Debug)]
pub struct RuleFile {
    path: RelPath,
    depth: u32,
    base_len: usize,
    lines: Vec<Box<[u8]>>,
    pub(super) patterns: Vec<Pattern>,
    index: NameIndex,
    /// The path patterns, by index into `patterns`, ascending.
    pub(super) anchored: Vec<u32>,
    /// The last negated pattern without a slash.
    pub(super) last_negated_name: Option<u32>,
}

impl RuleFile {
    /// Parses the bytes of the rule file `name` in `dir`. Never fails: lines that
    /// cannot be parsed come back as warnings and have no effect.
    pub fn parse(dir: &RelPath, name: &str, bytes: &[u8]) -> (Self, Vec<LineWarning>) {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut lines: Vec<Box<[u8]>> = bytes
            .split(|b| *b == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line).into())
            .collect();
        if lines.last().is_some_and(|last| last.is_empty()) {
            lines.pop();
        }
        Self::from_lines(dir.join(name.as_bytes()), lines)
    }

    /// Parses lines that [`Self::lines`] gave. `path` is the file's own path.
    pub(super) fn from_lines(path: RelPath, lines: Vec<Box<[u8]>>) -> (Self, Vec<LineWarning>) {
        let mut patterns = Vec::new();
        let mut warnings = Vec::new();
        for (number, line) in (1..).zip(&lines) {
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            match Pattern::parse(number, line) {
                Ok(pattern) => patterns.extend(pattern),
                Err(why) => warnings.push(LineWarning {
                    file: path.clone(),
                    line: number,
                    text: text(line).into_owned(),
                    why,
                }),
            }
        }
        let dir = path.parent().unwrap_or_default();
        let base_len = if dir.is_root() { 0 } else { dir.as_bytes().len() + 1 };
        let depth = u32::try_from(dir.segments().count()).unwrap_or(u32::MAX);
        let index = NameIndex::new(&patterns);
        let of = |want: fn(&Pattern) -> bool| {
            (0..).zip(&patterns).filter(move |(_, p)| want(p)).map(|(i, _)| i)
        };
        let anchored = of(|p| matches!(p.shape, Shape::Path(_))).collect();
        let last_negated_name = of(|p| p.negated && matches!(p.shape, Shape::Name(_))).last();
        let file =
            Self { path, depth, base_len, lines, patterns, index, anchored, last_negated_name };
        (file, warnings)
    }

    /// The file's own path.
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// How many directories the file lies below the root.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The lines as written, without line ends and byte order mark.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.lines.iter().map(|line| &**line)
    }

    /// The line with this number (from 1) as written, in path text.
    pub fn line_text(&self, line: u32) -> String {
        let line = usize::try_from(line).ok().and_then(|n| self.lines.get(n.checked_sub(1)?));
        text(line.map_or(b"", |line| line)).into_owned()
    }

    /// How many bytes of a workspace path lie before the part that this file's
    /// anchored patterns are compared with.
    pub(super) fn base_len(&self) -> usize {
        self.base_len
    }

    /// The last pattern without a slash that matches `name`.
    pub(super) fn last_name_match(&self, name: &[u8], is_dir: bool) -> Option<u32> {
        self.index.last_match(&self.patterns, name, is_dir)
    }

    /// The pattern at `index`. Indices come from this file.
    pub(super) fn pattern(&self, index: u32) -> &Pattern {
        &self.patterns[index as usize]
    }
}

/// Finds the last matching pattern without a slash. Literal names and `*.ext` are
/// hashed; what remains is tried one by one, the last first.
#[derive(Debug, Default)]
struct NameIndex {
    literals: Table,
    extensions: Table,
    loose: Vec<u32>,
}

/// Pattern indices by name, ascending, behind a check of length and ends that spares
/// most hashing.
#[derive(Debug, Default)]
struct Table {
    seen: u64,
    by_name: HashMap<Box<[u8]>, Vec<u32>>,
}

impl Table {
    fn bit(name: &[u8]) -> u64 {
        let end = |b: Option<&u8>| b.map_or(0, |b| usize::from(*b));
        1 << ((name.len() + end(name.first()) * 5 + end(name.last()) * 11) % 64)
    }

    fn add(&mut self, name: &[u8], index: u32) {
        self.seen |= Self::bit(name);
        self.by_name.entry(name.into()).or_default().push(index);
    }

    fn last(&self, patterns: &[Pattern], name: &[u8], is_dir: bool) -> Option<u32> {
        if self.seen & Self::bit(name) == 0 {
            return None;
        }
        let fits = |i: &&u32| is_dir || !patterns[**i as usize].dir_only;
        self.by_name.get(name)?.iter().rev().find(fits).copied()
    }
}

impl NameIndex {
    fn new(patterns: &[Pattern]) -> Self {
        let mut out = Self::default();
        for (i, pattern) in (0..).zip(patterns) {
            match &pattern.shape {
                Shape::Path(_) => {}
                Shape::Name(NameMatcher::Literal(name)) => out.literals.add(name, i),
                Shape::Name(NameMatcher::Suffix(suffix)) if is_extension(suffix) => {
                    out.extensions.add(&suffix[1..], i);
                }
                Shape::Name(_) => out.loose.push(i),
            }
        }
        out
    }

    fn last_match(&self, patterns: &[Pattern], name: &[u8], is_dir: bool) -> Option<u32> {
        let mut best = self.literals.last(patterns, name, is_dir);
        if self.extensions.seen != 0
            && let Some(dot) = name.iter().rposition(|b| *b == b'.')
        {
            best = best.max(self.extensions.last(patterns, &name[dot + 1..], is_dir));
        }
        for i in self.loose.iter().rev() {
            if best.is_some_and(|best| *i < best) {
                break;
            }
            let pattern = &patterns[*i as usize];
            if let Shape::Name(matcher) = &pattern.shape
                && (is_dir || !pattern.dir_only)
                && matcher.matches(name)
            {
                return Some(*i);
            }
        }
        best
    }
}

/// `.ext` with one dot only, so that the part behind a name's last dot decides.
fn is_extension(suffix: &[u8]) -> bool {
    suffix.first() == Some(&b'.') && !suffix[1..].contains(&b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> (RuleFile, Vec<LineWarning>) {
        RuleFile::parse(&RelPath::root(), ".gitignore", bytes)
    }

    #[test]
    fn lines_are_read_as_git_reads_them() {
        let (file, warnings) = parse(b"\xef\xbb\xbfa\r\n\n# c\n  b \n\\#x\nc\r");
        assert!(warnings.is_empty());
        let lines: Vec<_> = file.lines().collect();
        assert_eq!(lines, [&b"a"[..], b"", b"# c", b"  b ", b"\\#x", b"c"]);
        let at: Vec<_> = file.patterns.iter().map(|p| p.line).collect();
        assert_eq!(at, [1, 4, 5, 6]);
        let hit = |name: &[u8]| file.last_name_match(name, false);
        assert_eq!(hit(b"  b"), Some(1));
        assert_eq!(hit(b"b"), None);
        assert_eq!(hit(b"#x"), Some(2));
    }

    #[test]
    fn the_last_match_wins_across_the_index() {
        let (file, _) = parse(b"*.o\na.o\n!a*\n*.tar.gz\nd/\n*\\.o\n");
        let hit = |name: &[u8], dir| file.last_name_match(name, dir);
        assert_eq!(hit(b"a.o", false), Some(5));
        assert_eq!(hit(b"a.c", false), Some(2));
        assert_eq!(hit(b"x.tar.gz", false), Some(3));
        assert_eq!(hit(b"d", false), None);
        assert_eq!(hit(b"d", true), Some(4));
    }
}
