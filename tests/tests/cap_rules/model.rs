//! The evaluation of spec/capture.md 7 word for word, slow and without states, for
//! patterns made of plain segments. What git cannot answer (re-inclusion, secrets,
//! defaults) is compared with this.

use std::sync::Arc;

use backtrail_core::path::RelPath;
use backtrail_core::workspace::rules::{
    Class, EntryKind, Limits, RuleFamily, RuleFile, RuleSet, Verdict,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Line {
    /// The directory of its file: the root, or `a`, or `a/b`.
    base: usize,
    negated: bool,
    dir_only: bool,
    anchored: bool,
    segments: Vec<&'static str>,
}

/// A path, a directory or not.
type Asked = (Vec<&'static str>, bool);

const BASES: [&[&str]; 3] = [&[], &["a"], &["a", "b"]];

impl Line {
    fn text(&self) -> String {
        let bang = if self.negated { "!" } else { "" };
        let start = if self.anchored { "/" } else { "" };
        let end = if self.dir_only { "/" } else { "" };
        format!("{bang}{start}{}{end}\n", self.segments.join("/"))
    }

    /// True if the line matches `names`; with a place, if it does so with a segment
    /// in that place that is not a bare `*` or `**`.
    fn matches(&self, names: &[&str], is_dir: bool, place: Option<usize>) -> bool {
        let base = BASES[self.base];
        if !names.starts_with(base) || names.len() == base.len() || (self.dir_only && !is_dir) {
            return false;
        }
        if place.is_some_and(|p| p < base.len()) {
            return false;
        }
        if !self.anchored && self.segments.len() == 1 {
            let last = names.len() - 1;
            let named = place.is_none_or(|p| p == last && !bare(self.segments[0]));
            return named && segment(self.segments[0], names[last]);
        }
        align(&self.segments, &names[base.len()..], place.map(|p| p - base.len()))
    }
}

fn bare(pattern: &str) -> bool {
    matches!(pattern, "*" | "**")
}

fn segment(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        _ if bare(pattern) => true,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}

fn align(segments: &[&str], names: &[&str], place: Option<usize>) -> bool {
    let Some((first, rest)) = segments.split_first() else {
        return names.is_empty();
    };
    let next = |place: Option<usize>| place.and_then(|p| p.checked_sub(1));
    let take = |segments: &[&str]| {
        let Some((name, names)) = names.split_first() else { return false };
        let passed = place != Some(0) || !bare(first);
        passed && segment(first, name) && align(segments, names, next(place))
    };
    match (*first, rest.is_empty()) {
        ("**", true) => take(rest) || take(segments),
        ("**", false) => align(rest, names, place) || take(segments),
        _ => take(rest),
    }
}

/// The verdict on `names`; those before the last are directories.
fn judge(lines: &[Line], names: &[&str], is_dir: bool) -> Verdict {
    let (mut excluded, mut highest) = (false, None);
    let mut deciding: Vec<Option<&Line>> = Vec::new();
    for end in 1..=names.len() {
        let (q, dir) = (&names[..end], is_dir || end < names.len());
        let has_say = |line: &&Line| {
            let base = BASES[line.base];
            base.is_empty()
                || (base.len() < end
                    && q.starts_with(base)
                    && judge(lines, base, true) == Verdict::Stored)
        };
        let matching = |(_, line): &(usize, &Line)| has_say(line) && line.matches(q, dir, None);
        let last = lines.iter().enumerate().rfind(matching);
        match last {
            Some((i, line)) if line.negated => excluded = excluded && Some(i) < highest,
            Some((i, _)) => (excluded, highest) = (true, highest.max(Some(i))),
            None => {}
        }
        deciding.push(last.map(|(_, line)| line).filter(|line| line.negated && !excluded));
    }
    let freed = |place: usize| {
        (place..names.len()).any(|q| {
            let dir = is_dir || q + 1 < names.len();
            deciding[q].is_some_and(|line| line.matches(&names[..=q], dir, Some(place)))
        })
    };
    if excluded {
        return Verdict::Excluded(Class::Rule);
    }
    let default = |i: &usize| names[*i] == "node_modules" && (is_dir || i + 1 < names.len());
    if (0..names.len()).filter(default).any(|i| !freed(i)) {
        return Verdict::Excluded(Class::Default);
    }
    let last = names.len() - 1;
    if !is_dir && names[last] == ".env" && !freed(last) {
        return Verdict::Secret;
    }
    Verdict::Stored
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    const SEGMENTS: &[&str] =
        &["a", "b", "c", "node_modules", ".env", "*", "**", "*.js", "n*", "x.js", ".e*"];
    let segments = prop::collection::vec(prop::sample::select(SEGMENTS), 1..5);
    let flags = (any::<bool>(), prop::bool::weighted(0.2), any::<bool>());
    let line = (prop::sample::select(vec![0, 0, 0, 1, 2]), flags, segments);
    let line = line.prop_map(|(base, (negated, dir_only, anchored), segments)| Line {
        base,
        negated,
        dir_only,
        anchored,
        segments,
    });
    prop::collection::vec(line, 1..8).prop_map(|mut lines| {
        // The order of evaluation: deeper files later.
        lines.sort_by_key(|line| line.base);
        lines
    })
}

fn paths() -> impl Strategy<Value = Vec<Asked>> {
    const NAMES: &[&str] = &["a", "b", "c", "node_modules", ".env", "x.js", "n"];
    let path = prop::collection::vec(prop::sample::select(NAMES), 1..6);
    prop::collection::vec((path, prop::bool::weighted(0.3)), 60)
}

/// CAP-065, CAP-061: verdicts are those of the words.
pub(crate) fn compare() {
    super::git::random((lines(), paths()), |(lines, paths): (Vec<Line>, Vec<Asked>)| {
        let file = |base: usize| {
            let own = lines.iter().filter(|l| l.base == base).map(Line::text);
            let dir = RelPath::parse_text(&BASES[base].join("/")).expect("a valid path");
            Arc::new(RuleFile::parse(&dir, ".gitignore", own.collect::<String>().as_bytes()).0)
        };
        let set = RuleSet::new(RuleFamily::Git, Limits::default(), false);
        let matcher = set.with_found((0..BASES.len()).map(file).collect(), Vec::new()).matcher();
        for (names, is_dir) in &paths {
            let path = RelPath::parse_text(&names.join("/")).expect("a valid path");
            let kind = if *is_dir { EntryKind::Dir } else { EntryKind::File };
            let (ours, words) =
                (matcher.decide(&path, kind).verdict, judge(&lines, names, *is_dir));
            if ours != words {
                let text: Vec<_> = lines.iter().map(|l| (BASES[l.base], l.text())).collect();
                return Err(format!("{path}: the spec says {words:?}, we {ours:?}: {text:#?}"));
            }
        }
        Ok(paths.len())
    });
}
