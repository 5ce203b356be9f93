//! The parallel walk: every name below the root, `lstat`ed, judged by the rules and
//! matched against the stat cache. The result does not depend on order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::types::{ObservedDir, ObservedEntry, Settings, Warning, What};
use crate::clock::Context;
use crate::error::{Error, Result};
use crate::fsx::{self, Dir, FileKind, NameKind};
use crate::ids::Digest;
use crate::path::{self, MAX_DEPTH, RelPath};
use crate::snapshot::coverage::Reason;
use crate::snapshot::tree::Ref;
use crate::workspace::Root;
use crate::workspace::cache::{CachedStat, StatCache};
use crate::workspace::rules::{
    CACHEDIR_MARKER, CACHEDIR_SIGNATURE, Class, Decision, DirRules, EntryKind, LineWarning,
    MAX_RULE_FILE, MarkerKind, RuleFamily, RuleFile, RuleFileUse, VENV_MARKER, Verdict,
};

/// At most this many directory handles are kept open for children still to come.
const MAX_HANDLES: usize = 200;
/// How long counting goes on once too many files were met.
const COUNTING_NS: i64 = 2_000_000_000;

/// A file whose content the cache does not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) dir: usize,
    pub(super) entry: usize,
}

/// One walked directory and how it compares with the cache.
pub(super) struct Walked {
    pub(super) dir: ObservedDir,
    /// Files and links are exactly the cached ones; directories are compared later.
    pub(super) clean: bool,
    /// Cached directories of this one, by entry index: recorded before, same mode.
    pub(super) cached_dirs: Vec<usize>,
    /// Files read from the cache, without being opened.
    pub(super) hits: u64,
    /// Its inside could not be seen, and why.
    pub(super) failed: Option<(Reason, String)>,
}

/// What the walk hands on.
pub(super) struct Walk {
    pub(super) dirs: Vec<Walked>,
    pub(super) pending: Vec<Pending>,
    pub(super) warnings: Vec<Warning>,
    pub(super) rule_files: Vec<Arc<RuleFile>>,
    pub(super) markers: Vec<RelPath>,
    pub(super) family: RuleFamily,
    pub(super) excluded: BTreeMap<Class, u64>,
    /// Paths skipped with a system error, by (dir, entry).
    pub(super) errors: BTreeMap<(usize, usize), String>,
}

struct Task {
    id: usize,
    parent: Option<(usize, RelPath)>,
    name: Box<[u8]>,
    handle: Option<Arc<Dir>>,
    depth: usize,
    rules: Option<(DirRules, Decision)>,
    stat: fsx::Stat,
}

struct Queue {
    tasks: Vec<Task>,
    working: usize,
}

/// What the workers share.
struct Shared<'a> {
    ctx: &'a Context,
    root: &'a Root,
    settings: &'a Settings,
    cache: &'a StatCache,
    family: RuleFamily,
    root_rules: DirRules,
    queue: Mutex<Queue>,
    wake: Condvar,
    next_id: AtomicUsize,
    handles: AtomicUsize,
    files: AtomicU64,
    over: AtomicBool,
    over_since: AtomicI64,
    failure: Mutex<Option<Error>>,
}

/// What one worker collects.
#[derive(Default)]
struct Found {
    dirs: Vec<(usize, Walked)>,
    warnings: Vec<Warning>,
    rule_files: Vec<Arc<RuleFile>>,
    markers: Vec<RelPath>,
    excluded: BTreeMap<Class, u64>,
    errors: BTreeMap<(usize, usize), String>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Walks everything below the root. Blocks.
pub(super) fn walk(
    ctx: &Context,
    root: &Root,
    settings: &Settings,
    cache: &StatCache,
) -> Result<Walk> {
    let (family, root_file, mut warnings) = root_rule_file(root)?;
    let first = Task {
        id: 0,
        parent: None,
        name: Box::default(),
        handle: None,
        depth: 0,
        rules: None,
        stat: root.stat,
    };
    let shared = Shared {
        ctx,
        root,
        settings,
        cache,
        family,
        root_rules: DirRules::root(Arc::default(), false, root_file.as_ref()),
        queue: Mutex::new(Queue { tasks: vec![first], working: 0 }),
        wake: Condvar::new(),
        next_id: AtomicUsize::new(1),
        handles: AtomicUsize::new(0),
        files: AtomicU64::new(0),
        over: AtomicBool::new(false),
        over_since: AtomicI64::new(0),
        failure: Mutex::new(None),
    };
    let threads = settings.threads.max(2);
    let mut parts = std::thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| shared.work());
        let others: Vec<_> = (1..threads).map(spawn).collect();
        let mut parts = vec![shared.work()];
        parts.extend(others.into_iter().filter_map(|t| t.join().ok()));
        parts
    });
    if let Some(e) = lock(&shared.failure).take() {
        return Err(e);
    }
    ctx.cancel.check()?;
    let mut found = parts.pop().unwrap_or_default();
    for mut part in parts {
        found.dirs.append(&mut part.dirs);
        found.warnings.append(&mut part.warnings);
        found.rule_files.append(&mut part.rule_files);
        found.markers.append(&mut part.markers);
        for (class, n) in part.excluded {
            *found.excluded.entry(class).or_default() += n;
        }
        found.errors.append(&mut part.errors);
    }
    found.dirs.sort_unstable_by_key(|(id, _)| *id);
    if shared.over.load(Ordering::Relaxed) {
        return Err(too_many(&found.dirs, settings.max_files, shared.files.into_inner()));
    }
    warnings.append(&mut found.warnings);
    found.rule_files.extend(root_file);
    found.rule_files.sort_by(|a, b| a.path().cmp(b.path()));
    found.markers.sort();
    let dirs: Vec<Walked> = found.dirs.into_iter().map(|(_, d)| d).collect();
    let pending = pending(&dirs);
    let Found { rule_files, markers, errors, excluded, .. } = found;
    Ok(Walk { dirs, pending, warnings, rule_files, markers, family, excluded, errors })
}

/// Files whose entry carries the placeholder for unknown content.
fn pending(dirs: &[Walked]) -> Vec<Pending> {
    let mut out = Vec::new();
    for (d, walked) in dirs.iter().enumerate() {
        if walked.clean {
            continue;
        }
        for (e, entry) in walked.dir.entries.iter().enumerate() {
            if matches!(&entry.what, What::File(r) if r.digest == UNKNOWN) {
                out.push(Pending { dir: d, entry: e });
            }
        }
    }
    out
}

/// Stands in for the digest of content that was not read yet.
pub(super) const UNKNOWN: Digest = Digest([0; 32]);

impl Shared<'_> {
    fn work(&self) -> Found {
        let mut found = Found::default();
        let mut buf = Vec::new();
        while let Some(task) = self.next_task() {
            let done = self.directory(task, &mut found, &mut buf);
            let mut queue = lock(&self.queue);
            queue.working -= 1;
            match done {
                Ok(mut children) => queue.tasks.append(&mut children),
                Err(e) => {
                    lock(&self.failure).get_or_insert(e);
                    queue.tasks.clear();
                }
            }
            drop(queue);
            self.wake.notify_all();
        }
        found
    }

    fn next_task(&self) -> Option<Task> {
        let mut queue = lock(&self.queue);
        loop {
            if lock(&self.failure).is_some() || self.ctx.cancel.is_cancelled() {
                queue.tasks.clear();
            }
            if let Some(task) = queue.tasks.pop() {
                queue.working += 1;
                return Some(task);
            }
            if queue.working == 0 {
                return None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Walks one directory; its children come back as tasks.
    fn directory(&self, task: Task, found: &mut Found, buf: &mut Vec<u8>) -> Result<Vec<Task>> {
        let path = match &task.parent {
            Some((_, above)) => above.join(&task.name),
            None => RelPath::root(),
        };
        if task.handle.is_some() {
            self.handles.fetch_sub(1, Ordering::Relaxed);
        }
        let mut walked = Walked::new(path, &task);
        match self.open(&walked.dir.path, &task) {
            Ok(dir) => {
                let children = self.inside(dir, &task, &mut walked, found, buf);
                let children = children.or_else(|e| self.failed(e, &task, &mut walked))?;
                found.dirs.push((task.id, walked));
                Ok(children)
            }
            Err(e) => {
                let none = self.failed(e, &task, &mut walked)?;
                found.dirs.push((task.id, walked));
                Ok(none)
            }
        }
    }

    fn open(&self, path: &RelPath, task: &Task) -> std::io::Result<Dir> {
        match &task.handle {
            _ if path.is_root() => self.root.dir.open_dir(b"."),
            Some(above) => above.open_dir(&task.name),
            None => self.root.dir.open_below(path),
        }
    }

    /// A directory that cannot be opened or listed: not seen, unless it is the root
    /// or the host ran out of handles.
    fn failed(&self, e: std::io::Error, task: &Task, walked: &mut Walked) -> Result<Vec<Task>> {
        if task.parent.is_none() || fsx::is_exhaustion(&e) {
            let what =
                if task.parent.is_none() { self.root.text() } else { walked.dir.path.to_string() };
            return Err(Error::failed("root-unreadable", format!("{what} cannot be read: {e}")));
        }
        let gone = e.kind() == std::io::ErrorKind::NotFound;
        let reason = if gone { Reason::Vanished } else { Reason::Unreadable };
        walked.failed = Some((reason, fsx::errno_name(&e)));
        walked.dir.entries.clear();
        walked.clean = false;
        Ok(Vec::new())
    }

    fn inside(
        &self,
        dir: Dir,
        task: &Task,
        walked: &mut Walked,
        found: &mut Found,
        buf: &mut Vec<u8>,
    ) -> std::io::Result<Vec<Task>> {
        let mut names: Vec<(Box<[u8]>, NameKind)> = Vec::new();
        dir.list(buf, |name, kind| names.push((name.into(), kind)))?;
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let Some(rules) = self.rules_inside(&dir, task, walked, &names, found) else {
            return Ok(Vec::new());
        };
        let handle = Arc::new(dir);
        let mut children = Vec::new();
        walked.dir.entries.reserve_exact(names.len());
        for (name, _) in names {
            let stat = match handle.stat(&name) {
                Ok(stat) => stat,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) if fsx::is_exhaustion(&e) => return Err(e),
                Err(e) => {
                    let at = (task.id, walked.dir.entries.len());
                    found.errors.insert(at, fsx::errno_name(&e));
                    let stat = fsx::Stat::unknown();
                    let what = What::Skipped(Reason::Unreadable);
                    walked.dir.entries.push(ObservedEntry { name, stat, what });
                    continue;
                }
            };
            let decision = rules.decide(&name, entry_kind(stat.kind));
            let what = self.judge(&handle, &name, &stat, &decision, walked, task.depth);
            // Our own directories are out by what they are, not by a rule.
            let ours = matches!(what, What::Excluded(Class::Always)).then_some(Class::Always);
            if let Some(class) = decision.counted().or(ours) {
                *found.excluded.entry(class).or_default() += 1;
            }
            if let What::Dir(id) = what {
                children.push(self.child(id, task, walked, &handle, &name, &rules, decision, stat));
            }
            walked.dir.entries.push(ObservedEntry { name, stat, what });
        }
        self.match_cache(walked);
        Ok(children)
    }

    #[expect(clippy::too_many_arguments, reason = "one call site, all of them needed")]
    fn child(
        &self,
        id: usize,
        task: &Task,
        walked: &Walked,
        handle: &Arc<Dir>,
        name: &[u8],
        rules: &DirRules,
        decision: Decision,
        stat: fsx::Stat,
    ) -> Task {
        let spare = self.handles.load(Ordering::Relaxed) < MAX_HANDLES;
        if spare {
            self.handles.fetch_add(1, Ordering::Relaxed);
        }
        Task {
            id,
            parent: Some((task.id, walked.dir.path.clone())),
            name: name.into(),
            handle: spare.then(|| handle.clone()),
            depth: task.depth + 1,
            rules: Some((rules.clone(), decision)),
            stat,
        }
    }

    /// What an entry is, content aside. Directories to walk get their index.
    fn judge(
        &self,
        dir: &Dir,
        name: &[u8],
        stat: &fsx::Stat,
        decision: &Decision,
        walked: &Walked,
        depth: usize,
    ) -> What {
        if self.settings.never_enter.contains(&(stat.device, stat.inode)) {
            return What::Excluded(Class::Always);
        }
        match decision.verdict {
            Verdict::Excluded(Class::Always) if is_foreign_staging(dir, name, stat) => {
                return What::Skipped(Reason::ReservedName);
            }
            Verdict::Excluded(class) if !(stat.kind == FileKind::Dir && decision.descend) => {
                return What::Excluded(class);
            }
            Verdict::Secret => return What::Skipped(Reason::Secret),
            _ => {}
        }
        match stat.kind {
            FileKind::Special => What::Skipped(Reason::Unsupported),
            FileKind::Dir => {
                let foreign = stat.mount != self.root.stat.mount;
                if foreign && !self.settings.cross_filesystems {
                    return What::Unobserved(Reason::OtherFilesystem);
                }
                if depth + 1 >= MAX_DEPTH {
                    return What::Unobserved(Reason::TooDeep);
                }
                What::Dir(self.next_id.fetch_add(1, Ordering::Relaxed))
            }
            FileKind::Symlink => {
                self.count();
                match dir.read_link(name) {
                    Ok(target) => What::Symlink(target.into()),
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                        What::Skipped(Reason::Vanished)
                    }
                    Err(_) => What::Skipped(Reason::Unreadable),
                }
            }
            FileKind::File => {
                let large = stat.size > self.settings.max_file_bytes;
                if large && !self.must_store(&walked.dir.path, name) {
                    return What::Skipped(Reason::TooLarge);
                }
                self.count();
                let empty = stat.size == 0;
                What::File(Ref::whole(stat.size, if empty { Digest::EMPTY } else { UNKNOWN }))
            }
        }
    }

    fn must_store(&self, dir: &RelPath, name: &[u8]) -> bool {
        contains(&self.settings.must_store, dir, name)
    }

    /// Counts one file or link that would be stored.
    fn count(&self) {
        let n = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        if n > self.settings.max_files && !self.over.swap(true, Ordering::Relaxed) {
            self.over_since.store(self.ctx.clock.now().0, Ordering::Relaxed);
        }
    }

    /// Rules for the names inside a directory: its own rule file and markers looked
    /// at. `None` when nothing inside can be included.
    fn rules_inside(
        &self,
        dir: &Dir,
        task: &Task,
        walked: &mut Walked,
        names: &[(Box<[u8]>, NameKind)],
        found: &mut Found,
    ) -> Option<DirRules> {
        if self.over.load(Ordering::Relaxed) && self.counted_enough() {
            return None;
        }
        let Some((above, decision)) = &task.rules else { return Some(self.root_rules.clone()) };
        let mut decision = decision.clone();
        if let Some(marker) = marker(dir, names) {
            decision = above.mark(&task.name, &decision, marker);
            if decision.marked {
                found.markers.push(walked.dir.path.clone());
                if let Some(class) = decision.counted() {
                    *found.excluded.entry(class).or_default() += 1;
                }
            }
            walked.dir.excluded = excluded_class(&decision);
            walked.dir.recorded = walked.dir.excluded.is_none();
            if walked.dir.excluded.is_some() && !decision.descend {
                walked.clean = false;
                return None;
            }
        }
        let nested = match self.nested_rules(dir, walked, names, found) {
            Ok(nested) => nested,
            Err(e) => {
                walked.failed = Some((Reason::RulesUnreadable, fsx::errno_name(&e)));
                walked.clean = false;
                return None;
            }
        };
        Some(above.enter(&task.name, &decision, nested.as_ref()))
    }

    fn counted_enough(&self) -> bool {
        self.ctx.clock.now().0 - self.over_since.load(Ordering::Relaxed) > COUNTING_NS
    }

    /// The directory's own rule file of the family in force.
    fn nested_rules(
        &self,
        dir: &Dir,
        walked: &Walked,
        names: &[(Box<[u8]>, NameKind)],
        found: &mut Found,
    ) -> std::io::Result<Option<Arc<RuleFile>>> {
        let mut rules = None;
        for (name, kind) in names {
            let kind = if *kind == NameKind::Dir { EntryKind::Dir } else { EntryKind::File };
            match self.family.classify(name, kind) {
                RuleFileUse::Ordinary => {}
                RuleFileUse::Ignored(why) => {
                    found.warnings.push(ignored_rule_file(&walked.dir.path.join(name), why));
                }
                RuleFileUse::Rules if walked.dir.excluded.is_some() => {}
                RuleFileUse::Rules => match read_rule_file(dir, &walked.dir.path, self.family)? {
                    RuleRead::File(file, mut warnings) => {
                        found.warnings.append(&mut warnings);
                        found.rule_files.push(file.clone());
                        rules = Some(file);
                    }
                    RuleRead::Ignored(why) => {
                        found.warnings.push(ignored_rule_file(&walked.dir.path.join(name), why));
                    }
                    RuleRead::Absent => {}
                },
            }
        }
        Ok(rules)
    }

    /// Fills in what the cache knows of the files, and says whether the directory is
    /// exactly as cached.
    fn match_cache(&self, walked: &mut Walked) {
        let block = self.cache.block(&walked.dir.path).filter(|_| !self.settings.rehash);
        let Some(block) = block else {
            walked.clean = false;
            return;
        };
        let mut cached = block.names().peekable();
        let mut clean = true;
        let path = &walked.dir.path;
        for (i, entry) in walked.dir.entries.iter_mut().enumerate() {
            while cached.next_if(|c| c.name < &*entry.name).is_some() {
                clean = false;
            }
            let known = cached.next_if(|c| c.name == &*entry.name);
            match (&mut entry.what, known) {
                (What::File(content), Some(c)) => {
                    let hit = c.kind == FileKind::File
                        && !c.racy
                        && !contains(&self.settings.must_read, path, &entry.name)
                        && c.stat == CachedStat::from(&entry.stat);
                    if let Some(r) = c.content.filter(|_| hit) {
                        *content = r;
                        walked.hits += 1;
                    } else {
                        clean = false;
                    }
                }
                (What::Symlink(target), Some(c)) => {
                    clean &= c.kind == FileKind::Symlink && c.target == &**target;
                }
                (What::Dir(_), Some(c)) => {
                    if c.kind == FileKind::Dir && c.stat.mode == entry.stat.mode {
                        walked.cached_dirs.push(i);
                    } else {
                        clean = false;
                    }
                }
                (What::Dir(_), None) => {}
                (What::File(_) | What::Symlink(_), None) | (_, Some(_)) => clean = false,
                (_, None) => {}
            }
        }
        walked.clean &= clean && cached.next().is_none();
    }
}

impl Walked {
    fn new(path: RelPath, task: &Task) -> Self {
        let excluded = task.rules.as_ref().and_then(|(_, d)| excluded_class(d));
        let parent = task.parent.as_ref().map(|(p, _)| *p);
        let dir = ObservedDir {
            path,
            parent,
            stat: task.stat,
            recorded: excluded.is_none(),
            excluded,
            tree: None,
            entries: Vec::new(),
        };
        Self { dir, clean: true, cached_dirs: Vec::new(), hits: 0, failed: None }
    }
}

fn contains(set: &BTreeSet<RelPath>, dir: &RelPath, name: &[u8]) -> bool {
    !set.is_empty() && set.contains(&dir.join(name))
}

fn excluded_class(d: &Decision) -> Option<Class> {
    match d.verdict {
        Verdict::Excluded(class) => Some(class),
        _ => None,
    }
}

fn entry_kind(kind: FileKind) -> EntryKind {
    match kind {
        FileKind::File => EntryKind::File,
        FileKind::Dir => EntryKind::Dir,
        FileKind::Symlink => EntryKind::Symlink,
        FileKind::Special => EntryKind::Other,
    }
}

/// A staging name that no restore of ours made.
fn is_foreign_staging(dir: &Dir, name: &[u8], stat: &fsx::Stat) -> bool {
    path::is_staging_name(name)
        && !(stat.kind == FileKind::Dir
            && dir.open_dir(name).is_ok_and(|d| d.stat(b"owner.json").is_ok()))
}

/// What marks this directory as an environment or a cache, if anything does.
pub(super) fn marker(dir: &Dir, names: &[(Box<[u8]>, NameKind)]) -> Option<MarkerKind> {
    let has = |n: &str| names.binary_search_by(|(m, _)| (**m).cmp(n.as_bytes())).is_ok();
    if has(VENV_MARKER) {
        return Some(MarkerKind::Venv);
    }
    let length = CACHEDIR_SIGNATURE.len() as u64;
    let signed = || fsx::read_small(dir, CACHEDIR_MARKER.as_bytes(), length).ok().flatten();
    (has(CACHEDIR_MARKER) && signed().is_some_and(|b| b == CACHEDIR_SIGNATURE))
        .then_some(MarkerKind::CacheDir)
}

pub(super) enum RuleRead {
    File(Arc<RuleFile>, Vec<Warning>),
    Ignored(&'static str),
    Absent,
}

pub(super) fn read_rule_file(
    dir: &Dir,
    path: &RelPath,
    family: RuleFamily,
) -> std::io::Result<RuleRead> {
    let name = family.file_name();
    match dir.stat(name.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(RuleRead::Absent),
        Err(e) => return Err(e),
        Ok(s) if s.kind != FileKind::File => return Ok(RuleRead::Ignored("it is no regular file")),
        Ok(s) if s.size > MAX_RULE_FILE as u64 => {
            return Err(std::io::Error::other("it is larger than 1 MiB"));
        }
        Ok(_) => {}
    }
    let Some(bytes) = fsx::read_small(dir, name.as_bytes(), MAX_RULE_FILE as u64)? else {
        return Ok(RuleRead::Absent);
    };
    let (file, bad) = RuleFile::parse(path, name, &bytes);
    let warn = |w: LineWarning| Warning {
        code: "rule-line",
        path: Some(w.file.text().into_owned()),
        files: None,
        bytes: None,
        hint: format!("line {} is skipped: {} ({})", w.line, w.why, w.text),
    };
    Ok(RuleRead::File(Arc::new(file), bad.into_iter().map(warn).collect()))
}

fn ignored_rule_file(path: &RelPath, why: &str) -> Warning {
    Warning {
        code: "rule-file-ignored",
        path: Some(path.text().into_owned()),
        files: None,
        bytes: None,
        hint: format!("rule file {path} is ignored: {why}"),
    }
}

/// The family in force and the root's rule file. An unreadable one stops everything.
pub(super) fn root_rule_file(
    root: &Root,
) -> Result<(RuleFamily, Option<Arc<RuleFile>>, Vec<Warning>)> {
    let fail = |e: std::io::Error| {
        Error::failed("rules-unreadable", format!("the rule file at the root cannot be read: {e}"))
    };
    let mut warnings = Vec::new();
    for family in [RuleFamily::Backtrail, RuleFamily::Git] {
        match read_rule_file(&root.dir, &RelPath::root(), family).map_err(fail)? {
            RuleRead::File(file, mut bad) => {
                warnings.append(&mut bad);
                return Ok((family, Some(file), warnings));
            }
            RuleRead::Ignored(why) => {
                let path = RelPath::root().join(family.file_name().as_bytes());
                warnings.push(ignored_rule_file(&path, why));
            }
            RuleRead::Absent => {}
        }
    }
    Ok((RuleFamily::Git, None, warnings))
}

/// `too-many-files`, with the largest directories and lines that work when pasted.
fn too_many(dirs: &[(usize, Walked)], limit: u64, counted: u64) -> Error {
    let mut sums: BTreeMap<RelPath, u64> = BTreeMap::new();
    for (_, w) in dirs {
        let stored = |e: &&ObservedEntry| matches!(e.what, What::File(_) | What::Symlink(_));
        let own = w.dir.entries.iter().filter(stored).count() as u64;
        let top: Vec<&[u8]> = w.dir.path.segments().take(2).collect();
        if own > 0
            && let Ok(key) = RelPath::new(top.join(&b'/'))
        {
            *sums.entry(key).or_default() += own;
        }
    }
    let mut rows: Vec<(RelPath, u64)> = sums.into_iter().collect();
    rows.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let show = |(p, n): &(RelPath, u64)| {
        let name = if p.is_root() { String::from("the root itself") } else { format!("{p}/") };
        format!("{name} {n}")
    };
    let largest: Vec<String> = rows.iter().take(5).map(show).collect();
    let suggestion = rows.iter().find(|(p, _)| !p.is_root()).map(|(p, _)| {
        format!(
            "echo '/{p}/' >> .backtrailignore   (or raise the limit: --max-files {})",
            counted * 2
        )
    });
    let hint = suggestion.unwrap_or_else(|| format!("--max-files {}", counted * 2));
    Error::refused(
        "too-many-files",
        format!(
            "more than {limit} files would be stored (counted {counted}); largest: {}",
            largest.join(", ")
        ),
    )
    .with_hint(hint)
    .with_detail("counted", counted)
    .with_detail("limit", limit)
}
