//! The parallel walk: every name below the root, `lstat`ed, judged by the rules and
//! matched against the stat cache. The result does not depend on order.

mod entries;
mod rule_files;
mod too_many;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(super) use rule_files::{RuleRead, marker, read_rule_file, root_rule_file};

use super::types::{ObservedDir, Settings, Warning, What};
use crate::clock::Context;
use crate::error::{Error, Result};
use crate::fsx::{self, Dir};
use crate::ids::Digest;
use crate::path::RelPath;
use crate::snapshot::coverage::Reason;
use crate::workspace::Root;
use crate::workspace::cache::StatCache;
use crate::workspace::rules::{
    Class, Decision, DirRules, RuleFamily, RuleFile, Verdict, ignore_command,
};

/// At most this many directory handles are kept open for children still to come.
const MAX_HANDLES: u64 = 200;
/// Handles left for everything else: the store, its locks, files being read, the runtime.
const SPARE_HANDLES: u64 = 40;
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
    max_handles: usize,
    files: AtomicU64,
    /// When more files were met than are allowed; 0: not so far.
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
        max_handles: max_handles(),
        files: AtomicU64::new(0),
        over_since: AtomicI64::new(0),
        failure: Mutex::new(None),
    };
    let threads = settings.threads.max(2);
    let parts = std::thread::scope(|scope| {
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
    let mut found = merged(parts);
    if shared.is_over() {
        let files = shared.files.into_inner();
        let has_rules = root_file.is_some() || !found.rule_files.is_empty();
        let line = |dir: &RelPath| ignore_command(&root.path, dir, family, has_rules);
        return Err(too_many::too_many(&found.dirs, settings.max_files, files, line));
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

/// What all workers found, directories in the order of their index.
fn merged(mut parts: Vec<Found>) -> Found {
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
    found
}

/// Directory handles the walk may keep, fewer where the system allows few.
fn max_handles() -> usize {
    let spare = fsx::probe::max_open_files().saturating_sub(SPARE_HANDLES);
    MAX_HANDLES.min(spare / 2) as usize
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
            // A panic must not leave the others waiting for this one's work.
            let walk = AssertUnwindSafe(|| self.directory(task, &mut found, &mut buf));
            let done = catch_unwind(walk).unwrap_or_else(|_| {
                Err(Error::failed("internal", "walking a directory failed unexpectedly"))
            });
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

fn excluded_class(d: &Decision) -> Option<Class> {
    match d.verdict {
        Verdict::Excluded(class) => Some(class),
        _ => None,
    }
}
