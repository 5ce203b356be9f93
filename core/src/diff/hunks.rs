//! The text inside one change: hunks of lines, computed in process from bytes.

use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;
use serde::ser::SerializeMap;

/// A side larger than this, in bytes, is not compared.
pub const MAX_TEXT_BYTES: u64 = 5 << 20;
/// More lines than this of one file are not shown, nor compared past their common
/// beginning and end.
pub const MAX_TEXT_LINES: usize = 20_000;
/// A NUL in so many first bytes makes a content binary.
const BINARY_PROBE: usize = 8_000;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// What can be shown of the inside of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TextDiff {
    /// A side holds a NUL in its first 8,000 bytes.
    pub binary: bool,
    /// A side is above [`MAX_TEXT_BYTES`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oversized: bool,
    /// Lines above [`MAX_TEXT_LINES`] are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The hunks; `None` for what is binary or oversized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunks: Option<Vec<Hunk>>,
}

/// Changed lines with what stands around them. Lines count from 1; a side without
/// lines starts at the line before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// First old line.
    pub old_start: usize,
    /// How many old lines.
    pub old_lines: usize,
    /// First new line.
    pub new_start: usize,
    /// How many new lines.
    pub new_lines: usize,
    /// The lines.
    pub lines: Vec<HunkLine>,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// On both sides.
    Context,
    /// Only on the old side.
    Delete,
    /// Only on the new side.
    Add,
}

/// One line. In JSON its `text`, or `base64` when it is not UTF-8, both without the
/// final LF; `no_newline` is true when there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkLine {
    /// What became of it.
    pub kind: LineKind,
    /// Its bytes, a final LF included.
    pub bytes: Vec<u8>,
    /// Its number on the old side.
    pub old_line: Option<usize>,
    /// Its number on the new side.
    pub new_line: Option<usize>,
}

impl HunkLine {
    /// The bytes without the final LF, and whether there was one.
    pub fn content(&self) -> (&[u8], bool) {
        match self.bytes.strip_suffix(b"\n") {
            Some(line) => (line, true),
            None => (&self.bytes, false),
        }
    }
}

impl Serialize for HunkLine {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("kind", &self.kind)?;
        let (line, ended) = self.content();
        match std::str::from_utf8(line) {
            Ok(text) => map.serialize_entry("text", text)?,
            Err(_) => map.serialize_entry("base64", &base64(line))?,
        }
        if !ended {
            map.serialize_entry("no_newline", &true)?;
        }
        if let Some(n) = self.old_line {
            map.serialize_entry("old_line", &n)?;
        }
        if let Some(n) = self.new_line {
            map.serialize_entry("new_line", &n)?;
        }
        map.end()
    }
}

/// Compares two contents; an absent side is empty.
pub fn text_diff(old: &[u8], new: &[u8]) -> TextDiff {
    if old.len().max(new.len()) as u64 > MAX_TEXT_BYTES {
        return TextDiff { oversized: true, ..TextDiff::default() };
    }
    let binary = |b: &[u8]| b[..b.len().min(BINARY_PROBE)].contains(&0);
    if binary(old) || binary(new) {
        return TextDiff { binary: true, ..TextDiff::default() };
    }
    let old: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
    let new: Vec<&[u8]> = new.split_inclusive(|b| *b == b'\n').collect();
    let (runs, cut) = changed_runs(&old, &new);
    let (hunks, full) = build(&old, &new, &runs);
    TextDiff { truncated: cut || full, hunks: Some(hunks), ..TextDiff::default() }
}

/// A stretch that differs.
#[derive(Clone, Debug)]
struct Run {
    old: Range<usize>,
    new: Range<usize>,
}

/// The stretches that differ, in order, and whether lines were left out.
fn changed_runs(old: &[&[u8]], new: &[&[u8]]) -> (Vec<Run>, bool) {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b);
    let tail = tail.count();
    let old_mid = &old_rest[..old_rest.len() - tail];
    let new_mid = &new_rest[..new_rest.len() - tail];
    let cut = old_mid.len().max(new_mid.len()) > MAX_TEXT_LINES;
    let old_mid = &old_mid[..old_mid.len().min(MAX_TEXT_LINES)];
    let new_mid = &new_mid[..new_mid.len().min(MAX_TEXT_LINES)];
    let mut runs = Vec::new();
    let (mut i, mut j) = (head, head);
    let end = (head + old_mid.len(), head + new_mid.len());
    let matched = matches(old_mid, new_mid).into_iter().map(|(a, b)| (a + head, b + head));
    for (a, b) in matched.chain([end]) {
        if a > i || b > j {
            runs.push(Run { old: i..a, new: j..b });
        }
        (i, j) = (a + 1, b + 1);
    }
    (runs, cut)
}

/// Pairs of equal lines, ascending on both sides. Lines that one side alone has are
/// taken out first: they cannot match, and they are what makes a comparison slow.
fn matches(old: &[&[u8]], new: &[&[u8]]) -> Vec<(usize, usize)> {
    let mut names: HashMap<&[u8], (u32, bool)> = HashMap::new();
    for line in old {
        let next = names.len() as u32;
        names.entry(line).or_insert((next, false));
    }
    let mut shared_new = Vec::new();
    for (j, line) in new.iter().enumerate() {
        if let Some((name, shared)) = names.get_mut(line) {
            *shared = true;
            shared_new.push((j, *name));
        }
    }
    let shared_old: Vec<(usize, u32)> = old
        .iter()
        .enumerate()
        .filter_map(|(i, line)| names.get(line).filter(|(_, s)| *s).map(|(name, _)| (i, *name)))
        .collect();
    let a: Vec<u32> = shared_old.iter().map(|(_, name)| *name).collect();
    let b: Vec<u32> = shared_new.iter().map(|(_, name)| *name).collect();
    let mut out = Vec::new();
    for op in similar::capture_diff_slices(similar::Algorithm::Myers, &a, &b) {
        if let similar::DiffOp::Equal { old_index, new_index, len } = op {
            out.extend(
                (0..len).map(|k| (shared_old[old_index + k].0, shared_new[new_index + k].0)),
            );
        }
    }
    out
}

/// Groups runs whose context touches; the hunks, and whether lines were left out.
fn build(old: &[&[u8]], new: &[&[u8]], runs: &[Run]) -> (Vec<Hunk>, bool) {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut left = MAX_TEXT_LINES;
    let mut rest = runs;
    while !rest.is_empty() {
        let near = |w: &[Run]| w[1].old.start - w[0].old.end <= 2 * CONTEXT;
        let n = 1 + rest.windows(2).take_while(|w| near(w)).count();
        let (group, tail) = rest.split_at(n);
        rest = tail;
        let hunk = one_hunk(old, new, group, left);
        let wanted = group.iter().map(|r| r.old.len() + r.new.len()).sum::<usize>();
        let shown = hunk.lines.iter().filter(|l| l.kind != LineKind::Context).count();
        left -= hunk.lines.len();
        hunks.push(hunk);
        if shown < wanted || (left == 0 && !rest.is_empty()) {
            return (hunks, true);
        }
    }
    (hunks, false)
}

fn one_hunk(old: &[&[u8]], new: &[&[u8]], group: &[Run], limit: usize) -> Hunk {
    let first = &group[0];
    let lead = first.old.start.min(CONTEXT);
    let (mut i, mut j) = (first.old.start - lead, first.new.start - lead);
    let (old_from, new_from) = (i, j);
    let mut lines = Vec::new();
    let context = |lines: &mut Vec<HunkLine>, i: &mut usize, j: &mut usize, to: usize| {
        while *i < to && *i < old.len() && *j < new.len() && lines.len() < limit {
            lines.push(line(LineKind::Context, old[*i], Some(*i), Some(*j)));
            (*i, *j) = (*i + 1, *j + 1);
        }
    };
    for run in group {
        context(&mut lines, &mut i, &mut j, run.old.start);
        while i < run.old.end && lines.len() < limit {
            lines.push(line(LineKind::Delete, old[i], Some(i), None));
            i += 1;
        }
        while j < run.new.end && lines.len() < limit {
            lines.push(line(LineKind::Add, new[j], None, Some(j)));
            j += 1;
        }
    }
    let end = i + CONTEXT;
    // past a cut the sides may not agree: context stops where they do not
    while i < end && i < old.len() && j < new.len() && old[i] == new[j] && lines.len() < limit {
        let to = i + 1;
        context(&mut lines, &mut i, &mut j, to);
    }
    let (old_lines, new_lines) = (i - old_from, j - new_from);
    Hunk {
        old_start: old_from + usize::from(old_lines > 0),
        old_lines,
        new_start: new_from + usize::from(new_lines > 0),
        new_lines,
        lines,
    }
}

fn line(kind: LineKind, bytes: &[u8], old: Option<usize>, new: Option<usize>) -> HunkLine {
    let number = |n: Option<usize>| n.map(|n| n + 1);
    HunkLine { kind, bytes: bytes.to_vec(), old_line: number(old), new_line: number(new) }
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const TABLE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let six = (bits >> (18 - 6 * i)) & 63;
            out.push(if i <= group.len() { TABLE[six as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunks(old: &str, new: &str) -> Vec<Hunk> {
        text_diff(old.as_bytes(), new.as_bytes()).hunks.expect("text")
    }

    /// Applies hunks to `old`; what comes out must be `new`.
    fn apply(old: &str, hunks: &[Hunk]) -> String {
        let lines: Vec<&str> = old.split_inclusive('\n').collect();
        let (mut out, mut at) = (String::new(), 0);
        for h in hunks {
            let start = h.old_start - usize::from(h.old_lines > 0);
            out.extend(lines[at..start].iter().copied());
            for l in h.lines.iter().filter(|l| l.kind != LineKind::Delete) {
                out.push_str(std::str::from_utf8(&l.bytes).expect("text"));
            }
            at = start + h.old_lines;
        }
        out.extend(lines[at..].iter().copied());
        out
    }

    #[test]
    fn one_changed_line_has_three_lines_around_it() {
        let old: String = (1..=10).map(|n| format!("{n}\n")).collect();
        let new = old.replace("5\n", "five\n");
        let got = hunks(&old, &new);
        assert_eq!(got.len(), 1);
        let h = &got[0];
        assert_eq!((h.old_start, h.old_lines, h.new_start, h.new_lines), (2, 7, 2, 7));
        assert_eq!(h.lines[3].old_line, Some(5));
        assert_eq!(h.lines[4].new_line, Some(5));
        assert_eq!(apply(&old, &got), new);
    }

    #[test]
    fn cr_is_content_and_a_missing_final_newline_is_marked() {
        let got = hunks("a\r\nb", "a\nb\n");
        let json = serde_json::to_value(&got[0].lines).expect("json");
        assert_eq!(json[0]["text"], "a\r");
        let kinds: Vec<_> = json.as_array().expect("list").iter().map(|l| &l["kind"]).collect();
        assert_eq!(kinds, ["delete", "delete", "add", "add"]);
        assert_eq!(json[1]["no_newline"], true);
        assert!(json[3].get("no_newline").is_none());
    }

    #[test]
    fn empty_binary_oversized_and_odd_bytes() {
        assert_eq!(hunks("", ""), []);
        let h = &hunks("", "x\n")[0];
        assert_eq!((h.old_start, h.old_lines, h.new_start, h.new_lines), (0, 0, 1, 1));
        assert!(text_diff(b"a\0", b"").binary);
        assert!(!text_diff(&[b"x".repeat(8_000), vec![0]].concat(), b"").binary);
        let big = text_diff(&vec![b'a'; (5 << 20) + 1], b"");
        assert!(big.oversized && big.hunks.is_none());
        let odd = text_diff(b"", b"\xff\xfe\n").hunks.expect("text");
        let json = serde_json::to_value(&odd[0].lines[0]).expect("json");
        assert_eq!(json["base64"], "//4=");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"foo"), "Zm9v");
    }

    #[test]
    fn many_lines_are_truncated_and_slow_cases_end() {
        let old: String = (0..30_000).map(|n| format!("a{n}\n")).collect();
        let new: String = (0..30_000).map(|n| format!("b{n}\n")).collect();
        let got = text_diff(old.as_bytes(), new.as_bytes());
        assert!(got.truncated);
        let shown: usize = got.hunks.expect("text").iter().map(|h| h.lines.len()).sum();
        assert_eq!(shown, MAX_TEXT_LINES);
        let far = format!("{old}end\n");
        assert!(!text_diff(old.as_bytes(), far.as_bytes()).truncated);
    }

    proptest::proptest! {
        #[test]
        fn hunks_applied_to_the_old_text_make_the_new_one(
            old in "([abc]\n){0,40}[abc]?", new in "([abc]\n){0,40}[abc]?"
        ) {
            proptest::prop_assert_eq!(apply(&old, &hunks(&old, &new)), new);
        }
    }
}
