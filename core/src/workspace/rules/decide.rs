//! The evaluation: one directory at a time, each starting from the state of the one
//! above. Walk, rule sets of older snapshots and `explain` all go through here.

use std::sync::Arc;

use super::active::{Active, Alive};
use super::decision::{
    Class, Decision, EntryKind, Hit, LinePos, Mark, MarkerKind, Source, State, Verdict,
};
use super::file::RuleFile;
use super::names::{Always, NameLists};
use super::obstacle::{Freer, Obstacle};
use super::pattern::{NameMatcher, PathPattern, Pattern, Shape};
use crate::path::RelPath;

/// The rules as they stand in one directory. Cheap to clone and to share between
/// threads; holds all that is needed to judge the directory's entries.
///
/// ```
/// use backtrail_core::path::RelPath;
/// use backtrail_core::workspace::rules::*;
/// use std::sync::Arc;
///
/// let (file, _) = RuleFile::parse(&RelPath::root(), ".gitignore", b"build/\n!build/keep\n");
/// let root = DirRules::root(Arc::default(), false, Some(&Arc::new(file)));
/// let build = root.decide(b"build", EntryKind::Dir);
/// assert!(!build.is_stored() && build.descend);
/// let inside = root.enter(b"build", &build, None);
/// assert!(inside.decide(b"keep", EntryKind::File).is_stored());
/// assert!(!inside.decide(b"other", EntryKind::File).is_stored());
/// ```
#[derive(Clone, Debug)]
pub struct DirRules(Arc<Dir>);

#[derive(Debug)]
struct Dir {
    lists: Arc<NameLists>,
    store_secrets: bool,
    path: RelPath,
    depth: u32,
    /// The rule files that have a say here, from the root down.
    active: Vec<Active>,
    state: State,
}

impl DirRules {
    /// The rules at the workspace root. The root itself is never judged, whatever
    /// its name or content. `store_secrets` switches the list of secrets off.
    pub fn root(
        lists: Arc<NameLists>,
        store_secrets: bool,
        root_file: Option<&Arc<RuleFile>>,
    ) -> Self {
        Self(Arc::new(Dir {
            lists,
            store_secrets,
            path: RelPath::root(),
            depth: 0,
            active: root_file.and_then(Active::new).into_iter().collect(),
            state: State::default(),
        }))
    }

    /// The rules inside the directory `name`, on which `decision` was made here.
    /// `nested` is its own rule file, which has a say only if the directory is stored.
    #[must_use]
    pub fn enter(&self, name: &[u8], decision: &Decision, nested: Option<&Arc<RuleFile>>) -> Self {
        let dir = &*self.0;
        let mut active: Vec<_> = dir.active.iter().map(|a| a.enter(name)).collect();
        if decision.is_stored() {
            active.extend(nested.and_then(Active::new));
        }
        Self(Arc::new(Dir {
            lists: Arc::clone(&dir.lists),
            store_secrets: dir.store_secrets,
            path: dir.path.join(name),
            depth: dir.depth + 1,
            active,
            state: decision.state.clone(),
        }))
    }

    /// The directory's path.
    pub fn path(&self) -> &RelPath {
        &self.0.path
    }

    /// Judges one entry of this directory. The store and the cache, known by inode,
    /// and what a directory holds ([`Self::mark`]) are the walk's to find.
    pub fn decide(&self, name: &[u8], kind: EntryKind) -> Decision {
        let dir = &*self.0;
        if let Some(always) = dir.state.always {
            return self.always(always);
        }
        if let Some(always) = dir.lists.always(name) {
            return self.always((always, dir.depth + 1));
        }
        let hit = dir.last_match(name, kind == EntryKind::Dir);
        let mut state = dir.state.clone();
        let freeing = hit.filter(|hit| dir.apply(&mut state, *hit));
        if let Some(obstacles) = &dir.state.obstacles {
            state.obstacles = dir.pass(obstacles, freeing, name, kind);
        }
        let named = || freeing.is_some_and(|hit| dir.names(hit, name));
        if let Some(entry) = dir.lists.default_dir(name, kind)
            && !named()
        {
            dir.add_obstacle(&mut state, Source::Default(entry), name);
        }
        let secret = match dir.lists.secret(name, kind) {
            Some(entry) if !dir.store_secrets && !named() => Some(entry),
            _ => None,
        };
        self.judge(name, kind, state, hit, secret)
    }

    /// Judges the directory `name` again, now that it is known to hold a marker.
    /// [`Decision::marked`] says whether it belongs into the rule set's markers.
    #[must_use]
    pub fn mark(&self, name: &[u8], decision: &Decision, marker: MarkerKind) -> Decision {
        let dir = &*self.0;
        let mut state = decision.state.clone();
        let known = state.obstacles.as_deref().and_then(<[Obstacle]>::last);
        let freed = decision
            .hit
            .is_some_and(|hit| dir.pattern(hit).negated && !state.excluded && dir.names(hit, name));
        if state.always.is_some() || freed || known.is_some_and(|o| o.depth == dir.depth + 1) {
            return decision.clone();
        }
        dir.add_obstacle(&mut state, Source::Marker(marker), name);
        let judged = self.judge(name, EntryKind::Dir, state, decision.hit, None);
        Decision { marked: true, ..judged }
    }

    /// Turns the state after a path into the answer for it: first that decides wins.
    fn judge(
        &self,
        name: &[u8],
        kind: EntryKind,
        state: State,
        hit: Option<Hit>,
        secret: Option<u16>,
    ) -> Decision {
        let dir = &*self.0;
        let own = dir.depth + 1;
        let line = |mark: Option<Mark>| match mark {
            Some(mark) => (Source::Line(dir.line_pos(mark.hit)), mark.at),
            None => (Source::Nothing, own),
        };
        let obstacle = state.obstacles.as_deref().and_then(<[Obstacle]>::first);
        let (verdict, (source, decided_at)) = if state.excluded {
            (Verdict::Excluded(Class::Rule), line(state.exclusion))
        } else if let Some(Obstacle { depth, source, .. }) = obstacle {
            let marker = matches!(source, Source::Marker(_));
            let class = if marker { Class::Marker } else { Class::Default };
            (Verdict::Excluded(class), (*source, *depth))
        } else if let Some(entry) = secret {
            (Verdict::Secret, (Source::Secret(entry), own))
        } else {
            (Verdict::Stored, line(state.negation))
        };
        let stored = verdict == Verdict::Stored;
        Decision {
            verdict,
            descend: kind == EntryKind::Dir && (stored || dir.may_reinclude(&state, name)),
            inherited: !stored && dir.state.is_out(),
            source,
            decided_at,
            marked: false,
            state,
            hit,
        }
    }

    fn always(&self, (always, at): (Always, u32)) -> Decision {
        Decision {
            verdict: Verdict::Excluded(Class::Always),
            descend: false,
            inherited: self.0.state.is_out(),
            source: Source::Always(always),
            decided_at: at,
            marked: false,
            state: State { always: Some((always, at)), ..State::default() },
            hit: None,
        }
    }

    /// Every line that matches the entry `name` itself, in order, with its file.
    pub(super) fn all_matches(&self, name: &[u8], kind: EntryKind) -> Vec<(&RuleFile, &Pattern)> {
        let dir = &*self.0;
        let is_dir = kind == EntryKind::Dir;
        let mut out = Vec::new();
        for active in &dir.active {
            for (i, pattern) in (0..).zip(&active.file.patterns) {
                if active.matches(i, pattern, name, is_dir, &dir.path) {
                    out.push((&*active.file, pattern));
                }
            }
        }
        out
    }

    /// The rule file that holds a line which decided here or above.
    pub(super) fn file_at(&self, depth: u32) -> Option<&RuleFile> {
        self.0.active.iter().map(|a| &*a.file).find(|f| f.depth() == depth)
    }

    /// The position of the last line that matches the path of `decision` itself.
    pub(super) fn hit_pos(&self, decision: &Decision) -> Option<LinePos> {
        decision.hit.map(|hit| self.0.line_pos(hit))
    }
}

impl State {
    /// True for a directory that is excluded itself.
    fn is_out(&self) -> bool {
        self.always.is_some() || self.excluded || self.obstacles.is_some()
    }
}

impl Dir {
    fn pattern(&self, hit: Hit) -> &Pattern {
        self.active[hit.file].file.pattern(hit.pattern)
    }

    fn line_pos(&self, hit: Hit) -> LinePos {
        let file = &self.active[hit.file].file;
        LinePos { file_depth: file.depth(), line: file.pattern(hit.pattern).line }
    }

    /// The last line, deeper files last, that matches the entry `name` itself.
    fn last_match(&self, name: &[u8], is_dir: bool) -> Option<Hit> {
        self.active.iter().enumerate().rev().find_map(|(file, active)| {
            let pattern = active.last_match(name, is_dir, &self.path)?;
            Some(Hit { file, pattern })
        })
    }

    /// Applies the last line that matches an entry to its state. True if it is a
    /// negation and the entry is not excluded after it: then it decides for it.
    fn apply(&self, state: &mut State, hit: Hit) -> bool {
        let mark = Mark { hit, at: self.depth + 1 };
        let later = |than: Option<Mark>| than.is_none_or(|m| hit > m.hit);
        if self.pattern(hit).negated {
            state.excluded &= !later(state.highest);
            if !state.excluded {
                state.negation = Some(mark);
            }
            return !state.excluded;
        }
        if !state.excluded || later(state.exclusion) {
            state.exclusion = Some(mark);
        }
        if later(state.highest) {
            state.highest = Some(mark);
        }
        state.excluded = true;
        false
    }

    /// The obstacles that still stand after the entry `name`.
    fn pass(
        &self,
        obstacles: &Arc<[Obstacle]>,
        freeing: Option<Hit>,
        name: &[u8],
        kind: EntryKind,
    ) -> Option<Arc<[Obstacle]>> {
        let freeing = freeing.and_then(|hit| Some((hit, self.path_pattern(hit)?)));
        if kind != EntryKind::Dir && freeing.is_none() {
            return Some(Arc::clone(obstacles));
        }
        let stands = |o: &&Obstacle| !freeing.is_some_and(|(hit, p)| o.freed_by(hit, p, name));
        let left = obstacles.iter().filter(stands);
        let left: Arc<[_]> = left.map(|o| o.enter(name, |hit| self.path_pattern(hit))).collect();
        (!left.is_empty()).then_some(left)
    }

    fn path_pattern(&self, hit: Hit) -> Option<&PathPattern> {
        self.active[hit.file].path_pattern(hit.pattern)
    }

    fn add_obstacle(&self, state: &mut State, source: Source, name: &[u8]) {
        let mut freers = Vec::new();
        for (file, active) in self.active.iter().enumerate() {
            for Alive { pattern, state } in &active.alive {
                let Some(path) = active.path_pattern(*pattern) else {
                    continue;
                };
                let state = path.step_named(*state, name);
                if active.file.pattern(*pattern).negated && path.alive(state) {
                    freers.push(Freer { hit: Hit { file, pattern: *pattern }, state });
                }
            }
        }
        let new = Obstacle { depth: self.depth + 1, source, freers };
        let old = state.obstacles.as_deref().unwrap_or_default();
        state.obstacles = Some(old.iter().cloned().chain([new]).collect());
    }

    /// True if the line `hit`, which matches the entry `name`, names it: has a
    /// segment in its place that is not a bare `*` or `**`.
    fn names(&self, hit: Hit, name: &[u8]) -> bool {
        let active = &self.active[hit.file];
        match &active.file.pattern(hit.pattern).shape {
            Shape::Name(m) => *m != NameMatcher::Any,
            Shape::Path(p) => p.accepted(p.step_named(active.state_of(hit.pattern), name)),
        }
    }

    /// True if something below the excluded directory `name` could be included:
    /// some negation later than the excluding line could match below it, and for
    /// each obstacle one that names it.
    fn may_reinclude(&self, state: &State, name: &[u8]) -> bool {
        let obstacles = state.obstacles.as_deref().unwrap_or_default();
        if obstacles.iter().any(|o| o.freers.is_empty()) {
            return false;
        }
        if !state.excluded {
            return !obstacles.is_empty();
        }
        let later = |hit: Hit| state.highest.is_none_or(|m| hit > m.hit);
        self.active.iter().enumerate().any(|(file, active)| {
            let of_name = active.file.last_negated_name;
            of_name.is_some_and(|pattern| later(Hit { file, pattern }))
                || active.alive.iter().any(|a| {
                    active.file.pattern(a.pattern).negated
                        && later(Hit { file, pattern: a.pattern })
                        && active
                            .path_pattern(a.pattern)
                            .is_some_and(|p| p.alive(p.step(a.state, name)))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(rules: &[u8]) -> DirRules {
        let (file, _) = RuleFile::parse(&RelPath::root(), ".gitignore", rules);
        DirRules::root(Arc::default(), false, Some(&Arc::new(file)))
    }

    /// Judges a path name by name; the names but the last are directories.
    fn decide(rules: &DirRules, path: &str) -> Decision {
        let (mut dir, mut names) = (rules.clone(), path.split('/').peekable());
        loop {
            let name = names.next().expect("a name").as_bytes();
            if names.peek().is_none() {
                return dir.decide(name, EntryKind::File);
            }
            dir = dir.enter(name, &dir.decide(name, EntryKind::Dir), None);
        }
    }

    #[test]
    fn a_negation_must_stand_later_than_every_line_that_excludes() {
        let rules = root(b"x.log\n!*.keep\na/\n!a/b/\n*.d\n");
        assert!(decide(&rules, "a/b/file").is_stored());
        assert!(!decide(&rules, "a/c/f.keep").is_stored());
        // Included by line 4; line 2 agrees with that.
        assert!(decide(&rules, "a/b/f.keep").is_stored());
        // Line 1 excludes again; the source is that line, not line 3.
        let log = decide(&rules, "a/b/x.log");
        assert_eq!(log.source, Source::Line(LinePos { file_depth: 0, line: 1 }));
        assert_eq!(log.decided_at, 3);
        assert!(!decide(&rules, "a/b/x.d/f.keep").is_stored());
    }

    #[test]
    fn the_answer_is_small() {
        // One is made for each name of a walk.
        assert!(size_of::<Decision>() <= 256, "{}", size_of::<Decision>());
    }

    #[test]
    fn a_marker_is_freed_by_name_and_known_once() {
        let rules = root(b"!kept/\n!*/x\n");
        let cache = |name: &[u8]| {
            let plain = rules.decide(name, EntryKind::Dir);
            rules.mark(name, &plain, MarkerKind::CacheDir)
        };
        assert!(cache(b"kept").is_stored() && !cache(b"kept").marked);
        let other = cache(b"other");
        assert_eq!(other.verdict, Verdict::Excluded(Class::Marker));
        assert!(other.marked && !other.descend, "`*/x` does not name it");
        let known = cache(b"node_modules");
        assert_eq!(known.verdict, Verdict::Excluded(Class::Default));
        assert!(!known.marked);
    }
}
