//! The names of one directory: listed, `lstat`ed, judged, matched against the cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Found, Shared, Task, UNKNOWN, Walked};
use crate::fsx::{self, Dir, FileKind, NameKind, Stat};
use crate::ids::Digest;
use crate::observe::types::{ObservedEntry, What};
use crate::path::{self, MAX_DEPTH, RelPath};
use crate::snapshot::coverage::Reason;
use crate::snapshot::tree::Ref;
use crate::workspace::cache::CachedStat;
use crate::workspace::rules::{Class, Decision, DirRules, EntryKind, Verdict};

impl Shared<'_> {
    pub(super) fn inside(
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
        for (name, listed) in names {
            if self.counted_enough() {
                break;
            }
            let stat = match self.look_at(&handle, &name, listed) {
                Ok(stat) => stat,
                Err(e) if fsx::is_exhaustion(&e) => return Err(e),
                Err(e) => {
                    let (stat, what) = unseen(listed, &e);
                    match rules.decide(&name, entry_kind(stat.kind)).counted() {
                        Some(class) => *found.excluded.entry(class).or_default() += 1,
                        None => {
                            let at = (task.id, walked.dir.entries.len());
                            found.errors.insert(at, fsx::errno_name(&e));
                            walked.dir.entries.push(ObservedEntry { name, stat, what });
                        }
                    }
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

    /// `lstat` of a name. Once there are too many files, they are only counted, and
    /// the listing says enough.
    fn look_at(&self, dir: &Dir, name: &[u8], listed: NameKind) -> std::io::Result<Stat> {
        if !self.is_over() || listed == NameKind::Unknown {
            return dir.stat(name);
        }
        let kind = if listed == NameKind::Dir { FileKind::Dir } else { FileKind::File };
        Ok(Stat { kind, mount: self.root.stat.mount, ..Stat::unknown() })
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
        stat: Stat,
    ) -> Task {
        let spare = self.handles.load(Ordering::Relaxed) < self.max_handles;
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
        stat: &Stat,
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
        if n > self.settings.max_files && !self.settings.any_count && !self.is_over() {
            self.over_since.store(self.ctx.clock.now().0, Ordering::Relaxed);
        }
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

/// What stands for a name that was listed and could not be looked at.
fn unseen(listed: NameKind, e: &std::io::Error) -> (Stat, What) {
    let kind = match listed {
        NameKind::Dir => FileKind::Dir,
        NameKind::Other => FileKind::File,
        NameKind::Unknown => FileKind::Special,
    };
    let gone = e.kind() == std::io::ErrorKind::NotFound;
    let reason = if gone { Reason::Vanished } else { Reason::Unreadable };
    (Stat { kind, ..Stat::unknown() }, What::Skipped(reason))
}

fn contains(set: &BTreeSet<RelPath>, dir: &RelPath, name: &[u8]) -> bool {
    !set.is_empty() && set.contains(&dir.join(name))
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
fn is_foreign_staging(dir: &Dir, name: &[u8], stat: &Stat) -> bool {
    path::is_staging_name(name)
        && !(stat.kind == FileKind::Dir
            && dir.open_dir(name).is_ok_and(|d| d.stat(b"owner.json").is_ok()))
}
