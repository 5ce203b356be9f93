//! A tree in memory and a walk over it, as the real walk will do it: rule files are
//! read where a directory is listed, markers found, excluded directories entered
//! only when the decision says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use backtrail_core::path::RelPath;
use backtrail_core::workspace::rules::{
    Class, Decision, DirRules, EntryKind, Explanation, Limits, LineWarning, MarkerKind, Matcher,
    RuleFamily, RuleFile, RuleFileUse, RuleSet, Verdict,
};

/// A tree: `path/` is a directory, `path@` a link, anything else a file.
#[derive(Default)]
pub(crate) struct World {
    dirs: BTreeMap<RelPath, BTreeMap<Vec<u8>, Entry>>,
}

struct Entry {
    kind: EntryKind,
    content: Vec<u8>,
}

/// What the walk saw.
pub(crate) struct Walked {
    pub(crate) set: RuleSet,
    pub(crate) decisions: BTreeMap<String, Decision>,
    pub(crate) entered: Vec<String>,
    pub(crate) warnings: Vec<LineWarning>,
    pub(crate) ignored: Vec<String>,
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse_text(text).expect("a test path is valid")
}

impl World {
    pub(crate) fn new(paths: &[&str]) -> Self {
        paths.iter().fold(Self::default(), |world, p| world.file(p, ""))
    }

    /// Adds a path with content, and the directories above it.
    pub(crate) fn file(mut self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let (full, kind) = ask(name);
        let mut at = RelPath::root();
        for name in full.segments() {
            let dir = self.dirs.entry(at.clone()).or_default();
            at = at.join(name);
            let own = at == full;
            let kind = if own { kind } else { EntryKind::Dir };
            let entry = dir.entry(name.to_vec()).or_insert(Entry { kind, content: Vec::new() });
            if own {
                *entry = Entry { kind, content: content.as_ref().to_vec() };
            }
        }
        self
    }

    pub(crate) fn walk(&self) -> Walked {
        let root = self.dirs.get(&RelPath::root());
        let own = root.and_then(|d| d.get(b".backtrailignore".as_slice()));
        let family = RuleFamily::choose(own.is_some_and(|e| e.kind == EntryKind::File));
        let mut out = Walked {
            set: RuleSet::new(family, Limits::default(), false),
            decisions: BTreeMap::new(),
            entered: Vec::new(),
            warnings: Vec::new(),
            ignored: Vec::new(),
        };
        let (mut files, mut markers) = (Vec::new(), Vec::new());
        let file = self.rule_file(family, &RelPath::root(), &mut out);
        files.extend(file.clone());
        let rules = out.set.root(file.as_ref());
        self.walk_dir(&rules, family, &mut out, &mut files, &mut markers);
        out.set = out.set.with_found(files, markers);
        out.check_matcher();
        out
    }

    fn walk_dir(
        &self,
        rules: &DirRules,
        family: RuleFamily,
        out: &mut Walked,
        files: &mut Vec<Arc<RuleFile>>,
        markers: &mut Vec<RelPath>,
    ) {
        for (name, entry) in self.dirs.get(rules.path()).into_iter().flatten() {
            let full = rules.path().join(name);
            if matches!(family.classify(name, entry.kind), RuleFileUse::Ignored(_)) {
                out.ignored.push(full.to_string());
            }
            let mut decision = rules.decide(name, entry.kind);
            if decision.descend {
                if let Some(marker) = self.marker(&full) {
                    decision = rules.mark(name, &decision, marker);
                    markers.extend(decision.marked.then(|| full.clone()));
                }
                if decision.descend {
                    out.entered.push(full.to_string());
                    let file = self.rule_file(family, &full, out).filter(|_| decision.is_stored());
                    files.extend(file.clone());
                    let inside = rules.enter(name, &decision, file.as_ref());
                    self.walk_dir(&inside, family, out, files, markers);
                }
            }
            let mark = match entry.kind {
                EntryKind::Dir => "/",
                EntryKind::Symlink => "@",
                _ => "",
            };
            out.decisions.insert(format!("{full}{mark}"), decision);
        }
    }

    fn rule_file(
        &self,
        family: RuleFamily,
        dir: &RelPath,
        out: &mut Walked,
    ) -> Option<Arc<RuleFile>> {
        let entry = self.dirs.get(dir)?.get(family.file_name().as_bytes())?;
        if entry.kind != EntryKind::File {
            return None;
        }
        let (file, warnings) = RuleFile::parse(dir, family.file_name(), &entry.content);
        out.warnings.extend(warnings);
        Some(Arc::new(file))
    }

    fn marker(&self, dir: &RelPath) -> Option<MarkerKind> {
        self.dirs.get(dir)?.iter().find_map(|(name, entry)| {
            let marker = MarkerKind::candidate(name, entry.kind)?;
            marker.confirmed(&entry.content).then_some(marker)
        })
    }
}

impl Walked {
    /// The rule set alone, also after a round trip, gives the walk's own answers.
    fn check_matcher(&self) {
        let decoded = RuleSet::decode(&self.set.encode()).expect("own bytes decode");
        assert_eq!(decoded.digest(), self.set.digest());
        for matcher in [self.set.matcher(), decoded.matcher()] {
            for (name, walked) in &self.decisions {
                let (path, kind) = ask(name);
                let decision = matcher.decide(&path, kind);
                let (a, b) = (decision.verdict, walked.verdict);
                assert_eq!(a, b, "{name}: by the rule set, in the walk");
                assert_eq!(decision.decided_at, walked.decided_at, "{name}");
                assert_eq!(decision.descend, walked.descend, "{name}");
            }
        }
    }

    /// The files and links that are stored.
    pub(crate) fn stored(&self) -> Vec<&str> {
        let files = self.decisions.iter().filter(|(name, _)| !name.ends_with('/'));
        files.filter(|(_, d)| d.is_stored()).map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn verdict(&self, name: &str) -> Verdict {
        self.decisions[name].verdict
    }

    /// How often each class is counted in coverage.
    pub(crate) fn counted(&self, class: Class) -> usize {
        self.decisions.values().filter(|d| d.counted() == Some(class)).count()
    }

    pub(crate) fn explain(&self, name: &str) -> Explanation {
        let (path, kind) = ask(name);
        self.set.matcher().explain(&path, kind)
    }

    pub(crate) fn matcher(&self) -> Matcher {
        self.set.matcher()
    }
}

/// A path and its kind from the notation of [`World`].
fn ask(name: &str) -> (RelPath, EntryKind) {
    match name.strip_suffix(['/', '@']) {
        Some(dir) if name.ends_with('/') => (path(dir), EntryKind::Dir),
        Some(link) => (path(link), EntryKind::Symlink),
        None => (path(name), EntryKind::File),
    }
}
