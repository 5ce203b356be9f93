//! The long story of a decision: what decided, where, and which lines lost.

use serde::Serialize;

use super::decide::DirRules;
use super::decision::{Class, Decision, EntryKind, LinePos, MarkerKind, Source, Verdict};
use super::file::RuleFile;
use super::matcher::Matcher;
use super::names::{CACHEDIR_MARKER, VENV_MARKER};
use super::pattern::Pattern;
use crate::path::RelPath;

/// What becomes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Captured.
    Stored,
    /// Left out by the rules.
    Excluded,
    /// Left out, and recorded as not covered.
    Skipped,
}

/// Why a path is captured or not, as `explain` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The path asked about.
    pub path: RelPath,
    /// What becomes of it.
    pub decision: Outcome,
    /// `no-rule` or `negated` when stored; `always` `rule` `default` `marker` when
    /// excluded; `secret` when skipped. The caller adds reasons that need the disk.
    pub reason: &'static str,
    /// Where the deciding pattern stands: `rules`, one of the lists `always`
    /// `secrets` `defaults`, `marker`, or `none`.
    pub source: &'static str,
    /// The rule file, when a line decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<RelPath>,
    /// Its line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The line as written, the list's entry or the marker's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The path or the ancestor that was matched.
    pub decided_at: RelPath,
    /// What would have decided otherwise, from the top down.
    pub beaten: Vec<Beaten>,
    /// The file's size, when a limit decided (set by the caller).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// That limit (set by the caller).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// A line or list entry that matched and lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Beaten {
    /// `rules`, `secrets` or `defaults`.
    pub source: &'static str,
    /// The rule file of a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<RelPath>,
    /// Its line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The line as written, or the entry.
    pub pattern: String,
    /// The path or the ancestor it matched.
    pub at: RelPath,
    /// `later-line`: a later line matches the same path. `too-early`: a negation
    /// before the line that excludes. `does-not-name`: a negation that does not name
    /// the secret or default directory. `negated`: a negation won.
    pub why: &'static str,
}

impl Matcher {
    /// Explains the decision that [`Matcher::decide`] makes on the same path.
    pub fn explain(&self, path: &RelPath, kind: EntryKind) -> Explanation {
        let decision = self.decide(path, kind);
        let mut beaten = Vec::new();
        let mut at = RelPath::root();
        for name in path.segments() {
            let dir = self.dir(&at);
            at = at.join(name);
            let kind = if at == *path { kind } else { EntryKind::Dir };
            let step = self.judge(&dir, name, kind);
            let lost = Lost { dir: &dir, at: &at, step: &step, last: &decision };
            beaten.extend(lost.lines(name, kind));
            beaten.extend(lost.entries(self, name, kind));
        }
        let (file, line, pattern) = self.words(&decision, path);
        let (outcome, reason) = outcome(&decision);
        Explanation {
            path: path.clone(),
            decision: outcome,
            reason,
            source: source_word(decision.source),
            file,
            line,
            pattern,
            decided_at: prefix(path, decision.decided_at),
            beaten,
            size: None,
            limit: None,
        }
    }

    /// File, line and text of what decided.
    fn words(
        &self,
        decision: &Decision,
        path: &RelPath,
    ) -> (Option<RelPath>, Option<u32>, Option<String>) {
        let lists = self.rule_set().lists();
        let pattern = match decision.source {
            Source::Nothing => return (None, None, None),
            Source::Line(LinePos { file_depth, line }) => {
                let dir = self.dir(&path.parent().unwrap_or_default());
                let file = dir.file_at(file_depth);
                let text = file.map(|f| f.line_text(line));
                return (file.map(|f| f.path().clone()), Some(line), text);
            }
            Source::Always(always) => lists.always_text(always).to_owned(),
            Source::Secret(i) => lists.secrets.text(i).to_owned(),
            Source::Default(i) => lists.defaults.text(i).to_owned(),
            Source::Marker(MarkerKind::Venv) => VENV_MARKER.to_owned(),
            Source::Marker(MarkerKind::CacheDir) => CACHEDIR_MARKER.to_owned(),
            Source::Marker(MarkerKind::Recorded) => format!("{CACHEDIR_MARKER} or {VENV_MARKER}"),
        };
        (None, None, Some(pattern))
    }
}

fn outcome(decision: &Decision) -> (Outcome, &'static str) {
    match (decision.verdict, decision.source) {
        (Verdict::Stored, Source::Line(_)) => (Outcome::Stored, "negated"),
        (Verdict::Stored, _) => (Outcome::Stored, "no-rule"),
        (Verdict::Secret, _) => (Outcome::Skipped, "secret"),
        (Verdict::Excluded(class), _) => (Outcome::Excluded, class.as_str()),
    }
}

fn source_word(source: Source) -> &'static str {
    match source {
        Source::Nothing => "none",
        Source::Always(_) => "always",
        Source::Line(_) => "rules",
        Source::Secret(_) => "secrets",
        Source::Default(_) => "defaults",
        Source::Marker(_) => "marker",
    }
}

/// The first `names` names of `path`.
fn prefix(path: &RelPath, names: u32) -> RelPath {
    let names = usize::try_from(names).unwrap_or(usize::MAX);
    path.segments().take(names).fold(RelPath::root(), |at, name| at.join(name))
}

/// Collects what lost at one prefix of the path.
struct Lost<'a> {
    dir: &'a DirRules,
    at: &'a RelPath,
    /// The decision on this prefix.
    step: &'a Decision,
    /// The decision on the path itself.
    last: &'a Decision,
}

impl Lost<'_> {
    fn lines(&self, name: &[u8], kind: EntryKind) -> Vec<Beaten> {
        if matches!(self.step.verdict, Verdict::Excluded(Class::Always)) {
            return Vec::new();
        }
        let stored = self.last.is_stored();
        // Only what would have decided otherwise was beaten.
        let against = |p: &Pattern| p.negated != stored;
        let all = self.dir.all_matches(name, kind);
        let against = all.into_iter().filter(|(_, p)| against(p));
        against.map(|(file, pattern)| self.line(file, pattern)).collect()
    }

    fn line(&self, file: &RuleFile, pattern: &Pattern) -> Beaten {
        let pos = LinePos { file_depth: file.depth(), line: pattern.line };
        let why = if self.dir.hit_pos(self.step) != Some(pos) {
            "later-line"
        } else if !pattern.negated {
            "negated"
        } else if self.step.state.excluded {
            "too-early"
        } else if self.last.state.excluded {
            "later-line"
        } else {
            "does-not-name"
        };
        Beaten {
            source: "rules",
            file: Some(file.path().clone()),
            line: Some(pattern.line),
            pattern: file.line_text(pattern.line),
            at: self.at.clone(),
            why,
        }
    }

    /// The list entries that a negation freed the path from.
    fn entries(&self, matcher: &Matcher, name: &[u8], kind: EntryKind) -> Vec<Beaten> {
        if !self.last.is_stored() {
            return Vec::new();
        }
        let lists = matcher.rule_set().lists();
        let secret = lists.secret(name, kind).map(|i| ("secrets", lists.secrets.text(i)));
        let default = lists.default_dir(name, kind).map(|i| ("defaults", lists.defaults.text(i)));
        let beaten = |(source, pattern): (&'static str, &str)| Beaten {
            source,
            file: None,
            line: None,
            pattern: pattern.to_owned(),
            at: self.at.clone(),
            why: "negated",
        };
        secret.into_iter().chain(default).map(beaten).collect()
    }
}
